"""Host work that is more than launching stays where launches become one."""

import pytest

from tests.build import rows
from tests.build.repeated_scenes import Scene, scene
from tests.build.rows import US, kernel, launch, python
from tracelab.simulate.recorded import record_program, whole
from tracelab.simulate.sites import Sites


def step_with(*frames, gap=400 * US, starts_after=10 * US):
    """Two launches, a gap in some functions, two more and 20 us of the loop.

    Launches take 5 us: what starts sooner than that starts inside its call.
    """

    def of_step(first, number):
        second = first + 15 * US + gap
        starts = (first, first + 10 * US, second, second + 10 * US)
        for i, start in enumerate(starts):
            yield launch(start, start + 5 * US, number + i)
            begin = start + starts_after
            yield kernel(begin, begin + 5 * US, correlation=number + i)
        for i, name in enumerate(frames):
            yield python(name, first + (16 + i) * US, second - (1 + i) * US)

    return scene(50 * US + gap, of_step)


@pytest.mark.parametrize("starts_after", [4 * US, 10 * US], ids=["inside its call", "later"])
def test_what_an_environment_does_is_not_replayed_by_a_graph(starts_after):
    # Each graph takes 10 us to launch, the environment 400 us, and the rest of the loop 20 us.
    frames = "train.py(9): step", "gymnasium/core.py(3): step"
    assert step_with(*frames, starts_after=starts_after).step_ns("graph") == (
        (10 + 400 + 10 + 20) * US
    )


def test_a_kernel_that_starts_inside_its_call_fuses_across_no_pause():
    # The calls take 5 us each, two of which go; 1,000 us of silence stay with 20 of the loop.
    step = step_with(gap=1000 * US, starts_after=4 * US)
    assert step.step_ns("fuse") == (5 + 1000 + 5 + 20) * US


def test_what_pytorch_does_to_launch_is_gone():
    frames = "train.py(9): step", "torch/optim/adam.py(700): _group_tensors"
    assert step_with(*frames).step_ns("graph") == (10 + 20) * US


@pytest.mark.parametrize(("gap", "step"), [(400 * US, 30 * US), (1000 * US, 1040 * US)])
def test_without_functions_in_the_file_only_a_longer_gap_is_other_work(gap, step):
    assert step_with(gap=gap).step_ns("graph") == step


def test_a_short_gap_is_part_of_launching():
    assert step_with("gymnasium/core.py(3): step", gap=100 * US).step_ns("graph") == 30 * US


def test_a_silent_pause_in_a_step_stays_at_most():
    # A graph of four nodes takes 4 us to launch, or 10 and 0.7 more for each; the loop takes 20.
    at_least, at_most = step_with(gap=400 * US).bounds_ns("graph")
    assert (at_least, at_most) == ((4 + 20) * US, 12_800 + (400 + 20) * US)


@pytest.mark.parametrize("launched", [0, 50, 90], ids=["behind", "around", "before"])
def test_work_counts_in_the_last_step_wherever_its_launch_is(launched):
    # A function of 40 us, and one of 30, of a step of 100 whose only launch comes first, between
    # them or last.
    def of_step(first, number):
        yield launch(first + launched * US, first + (launched + 5) * US, number)
        yield kernel(first + (launched + 6) * US, first + (launched + 8) * US, correlation=number)
        yield python("train.py(9): compute", first + 6 * US, first + 46 * US)
        yield python("train.py(20): compute", first + 56 * US, first + 86 * US)

    assert scene(100 * US, of_step).step_ns("host:compute=0") == 30 * US


def launches_around(pause, *, within=None, operator="aten::add"):
    """Twenty launches of 5 us each 15 us with a kernel of 3, a pause after half; without steps."""
    some = []
    for i in range(20):
        begin = 15 * US * i + (pause if i >= 10 else 0)
        some += [
            launch(begin, begin + 5 * US, i),
            kernel(begin + 4 * US, begin + 7 * US, correlation=i),
        ]
        if operator:
            some.append(rows.operator(operator, begin, begin + 6 * US))
    if within:
        some.append(within("eval", 0, 300 * US + pause))
    graph = rows.graph(*some)
    program = whole(graph, record_program(graph))
    return Scene(program, Sites(graph, None, program))


@pytest.mark.parametrize(
    ("within", "middle"), [(None, 500), (rows.annotation, 0)], ids=["unknown", "in a named region"]
)
@pytest.mark.parametrize("edit", ["graph", "fuse"])
def test_a_pause_of_which_the_file_says_nothing_is_in_no_saving(within, middle, edit):
    # Another 500 us of silence stay, unless a name says that the program went on there.
    longer, shorter = (launches_around(us * US, within=within) for us in (810, 310))
    adds = longer.step_ns(edit) - shorter.step_ns(edit)
    (low, high), (low_of_shorter, high_of_shorter) = longer.bounds_ns(edit), shorter.bounds_ns(edit)
    assert (low - low_of_shorter, adds, high - high_of_shorter) == (
        middle * US,
        middle * US,
        500 * US,
    )


def test_of_a_file_with_nothing_but_calls_only_the_calls_are_saved():
    # After the first kernel's start 19 calls of 5 us, and 19 times 10 us of which nothing is known.
    calls, operators = (launches_around(0, operator=name) for name in (None, "aten::add"))
    saved_us = [(x.step_ns() - x.step_ns("graph")) / US for x in (calls, operators)]
    assert saved_us[0] <= 19 * 5
    assert saved_us[1] > 19 * 10
    assert calls.step_ns() - calls.bounds_ns("graph")[0] <= 19 * 5 * US


@pytest.mark.parametrize("edit", ["graph", "fuse"])
def test_of_a_launch_bound_step_that_sleeps_only_its_launches_are_saved(edit):
    # 100 launches each 10 us are 1 ms of 11; the other 10 the host sleeps, after half of them.
    def of_step(first, number):
        for i in range(100):
            begin = first + 10 * US * i + (10_000 * US if i >= 50 else 0)
            yield launch(begin, begin + 5 * US, number + i)
            yield kernel(begin + 4 * US, begin + 6 * US, correlation=number + i)
        asleep = first + 496 * US
        yield python("train.py(9): train", first, first + 11_000 * US)
        yield python("<built-in function sleep>", asleep, asleep + 10_000 * US)

    step = scene(11_000 * US, of_step)
    assert step.step_ns() == 11_000 * US
    for ns in (step.step_ns(edit), *step.bounds_ns(edit)):
        # Two calls of 5 to 80 us are left beside the sleep, and 5 us before and after each.
        assert (10_000 + 2 * 4) * US <= ns <= (10_000 + 2 * 80 + 2 * 5) * US
