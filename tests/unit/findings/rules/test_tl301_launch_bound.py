"""TL301: ten kernels of 5 us, launched every 20 us, so that the GPU is idle for 9 x 15 us."""

from functools import partial

import pytest

from tests.build.files import US, call, kernel, launch, operator, python, step
from tests.build.finding_events import blocking, launched_one_by_one, work
from tracelab.base.options import Options
from tracelab.findings.finding import CRITICAL, INFO, WARNING

SUB_BACKWARD = "autograd::engine::evaluate_function: SubBackward0"


def test_launch_bound(findings):
    # 135 of 185 us.
    [finding] = findings(*launched_one_by_one())

    assert (finding.rule, finding.cause, finding.severity) == ("TL301", "launch_bound", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (135 * US, 135 * US)
    assert (finding.where.operator, finding.where.device, finding.where.count) == (
        "aten::add",
        0,
        9,
    )


def test_a_step_is_no_place_of_the_program(findings):
    # GIVEN launches in a step and in no operator, as old files write them
    launches = [row for row in launched_one_by_one() if row.get("name") != "aten::add"]
    rows = [step(1, 0, 400 * US) | {"cat": "cpu_op"}, *launches]
    [finding] = findings(*rows)

    assert finding.title == "The CPU cannot launch kernels fast enough"


def test_is_silent_where_launches_are_ahead(summaries):
    rows = [
        row
        for i in range(10)
        for row in work(
            (40 + 5 * i) * US, (45 + 5 * i) * US, "add", launched=3 * i * US, correlation=i + 1
        )
    ]

    assert summaries(operator("aten::add", 0, 40 * US), *rows) == []


@pytest.mark.parametrize(
    ("unprofiled_ms", "severity", "bound"),
    [
        # Of the step's 210 us, 25 are before the first kernel, and the host took 135 of the rest.
        (0.1, CRITICAL, 25),  # 110 of these are the profiler's
        ("0.078", WARNING, 3),  # 132
        (5, CRITICAL, 135),
        (0, CRITICAL, 135),  # no such step
        ("nan", CRITICAL, 135),
        ("inf", CRITICAL, 135),
        (None, CRITICAL, 135),
    ],
)
def test_wins_no_more_than_a_step_loses_without_the_profiler(
    summaries, unprofiled_ms, severity, bound
):
    about = {"tracelab": {"unprofiled_step_ms": unprofiled_ms}}

    assert summaries(step(1, 0, 210 * US), *launched_one_by_one(), before=about) == [
        ("TL301", "launch_bound", severity, bound)
    ]


@pytest.mark.parametrize("unprofiled_ms", [0.01, 0.05, "0.051"])
def test_what_only_the_profiler_costs_is_not_reported(summaries, unprofiled_ms):
    # The GPU works for 50 us of the step: of 51 it is idle for less than 2 %.
    about = {"tracelab": {"unprofiled_step_ms": unprofiled_ms}}

    assert summaries(step(1, 0, 210 * US), *launched_one_by_one(), before=about) == []


@pytest.mark.parametrize(("unprofiled_ms", "bound"), [("0.052", 2), ("0.075", 25)])
def test_where_the_profiler_may_cost_all_of_it_what_is_idle_without_it_is_a_bound(
    summaries, unprofiled_ms, bound
):
    # The step is 158 or 135 us shorter without the profiler, as much as is late or more; but the
    # GPU works for 50 us of it, so some of that was in the 25 before the first kernel, or nowhere.
    about = {"tracelab": {"unprofiled_step_ms": unprofiled_ms}}

    assert summaries(step(1, 0, 210 * US), *launched_one_by_one(), before=about) == [
        ("TL301", "launch_bound", INFO, bound)
    ]


def test_of_two_steps_counts_the_profiler_twice(summaries):
    # GIVEN two steps of 10 kernels each, with 15 us between them: 400 us, of which 100 busy and 15
    # before the first kernel
    rows = [*launched_one_by_one(), *launched_one_by_one(first=200 * US)]
    about = {"tracelab": {"unprofiled_step_ms": 0.1}}

    # THEN of 2 x 100 us, 85 are left for the host
    assert summaries(step(1, 0, 200 * US), step(2, 200 * US, 400 * US), *rows, before=about) == [
        ("TL301", "launch_bound", CRITICAL, 85)
    ]


def test_of_one_step_cites_what_is_in_it(findings):
    # GIVEN long waits in the first step, shorter ones in the second
    rows = [
        step(1, 0, 400 * US),
        *launched_one_by_one(kernels=4, every=100 * US),
        step(2, 400 * US, 600 * US),
        *launched_one_by_one(first=400 * US),
    ]

    # WHEN
    [finding] = findings(*rows, options=Options(step=2))

    # THEN
    assert finding.step == 2
    assert finding.evidence
    assert all(rows[i]["ts"] + rows[i]["dur"] > 400 for i in finding.evidence)


def test_leaves_idle_behind_a_blocking_call_to_the_call(summaries):
    # The host is in an operator from 0 to 200, and blocked in it until 112.
    rows = blocking(
        operator("aten::item", 0, 200 * US), call("cudaStreamSynchronize", 4 * US, 112 * US)
    )

    assert summaries(*rows) == [("TL101", "host_sync", WARNING, 20)]


def pause(gap, *around):
    """A GPU that computes until 110 us, and a launch the gap later that takes 2 us to start."""
    launched = (110 + gap) * US
    return [
        *(made(0, launched + 10 * US) for made in around),
        *work(10 * US, 110 * US, launched=0, correlation=1),
        *work(launched + 2 * US, launched + 202 * US, launched=launched, correlation=2),
    ]


def runs(name):
    return partial(python, name)


IN_PROGRAM, IN_TORCH = runs("train.py(3): encode"), runs("torch/optim/adam.py(139): _init_group")


@pytest.mark.parametrize(("gap", "cause"), [(999, "launch_bound"), (1_000, "slow_host")])
@pytest.mark.parametrize("around", [(IN_PROGRAM,), (IN_TORCH, IN_PROGRAM)])
def test_a_gap_of_a_millisecond_in_which_nothing_is_launched_is_told_apart(
    summaries, around, gap, cause
):
    assert summaries(*pause(gap, *around)) == [("TL301", cause, CRITICAL, gap + 2)]


@pytest.mark.parametrize(
    "around",
    [
        (IN_PROGRAM, IN_TORCH),
        (IN_PROGRAM, IN_TORCH, runs("<built-in function id>")),
        (partial(operator, "aten::add"),),
        (IN_PROGRAM, IN_TORCH, partial(operator, "Optimizer.step#Adam.step")),
    ],
)
def test_what_pytorch_does_before_it_launches_is_launching(summaries, around):
    assert summaries(*pause(5_000, *around)) == [("TL301", "launch_bound", CRITICAL, 5_002)]


@pytest.mark.slow
def test_of_very_many_gaps_the_longest_20_000_say_where_most_time_is_lost(findings):
    # GIVEN 8,000 gaps of 5 us in an addition, 12,000 of 4 us in a multiplication, and 9,000 of 1 us
    # in an addition again: 48 ms in the multiplication, 40 in the long gaps of the addition, 49 in
    # all of them
    rows, at, number = [], 0, 0
    for name, gaps, length in (("add", 8_000, 5), ("mul", 12_000, 4), ("add", 9_000, 1)):
        begin = at
        for _ in range(gaps):
            at, number = at + (length + 1) * US, number + 1
            rows += [launch(at, at, number), kernel(at, at + US, correlation=number)]
        rows.append(operator(f"aten::{name}", begin, at))

    # WHEN
    [finding] = findings(*rows)

    # THEN
    assert (finding.rule, finding.where.operator) == ("TL301", "aten::mul")


def test_a_gpu_that_is_hardly_used_is_no_loss(alarms):
    rows = [launch(0, 5 * US, 1), kernel(10 * US, 10_010 * US, device=1, correlation=1)]
    rows += [
        row
        for i in range(4)
        for row in (
            operator("aten::add", (1_000 * i + 10) * US, (1_000 * i + 910) * US),
            launch((1_000 * i + 900) * US, (1_000 * i + 902) * US, i + 2),
            kernel(
                (1_000 * i + 905) * US, (1_000 * i + 907) * US, "add", device=0, correlation=i + 2
            ),
        )
    ]
    assert alarms(*rows) == []


def test_a_loop_stands_where_the_program_calls_it(findings):
    # GIVEN a loop of which the backward pass takes longer, on autograd's thread
    turns, autograd = 30, 7
    rows = []
    for number in range(4):
        begins = 4_000 * US * number
        rows += [
            step(number + 1, begins, begins + 4_000 * US),
            python("loop.py(3): train", begins + US, begins + 3_900 * US),
            python("loop.py(9): turns", begins + 2 * US, begins + 1_000 * US),
        ]
        for i in range(turns):
            start = begins + (10 + 30 * i) * US
            back = begins + (1_100 + 90 * i) * US
            first = (number * turns + i) * 2 + 1
            rows += [
                operator("aten::sub", start, start + 20 * US),
                *work(start + 10 * US, start + 12 * US, launched=start + US, correlation=first),
                operator(SUB_BACKWARD, back, back + 80 * US, tid=autograd),
                *work(
                    back + 70 * US,
                    back + 72 * US,
                    launched=back + 60 * US,
                    correlation=first + 1,
                    tid=autograd,
                ),
            ]
    [loop] = [x for x in findings(*rows) if x.remedy == "launch-loop"]
    assert (loop.where.function, loop.where.operator) == ("turns", "aten::sub")
