"""Which steps are steady: those that the beginning and the end of the recording left whole."""

from dataclasses import replace

import pytest

from tests.build.rows import AUTOGRAD, annotation, call, kernel, launch, timeline
from tracelab.model.timeline import BACKLOG, CUT, STOPPED, LeftOut
from tracelab.model.trace import Category


def steps_of(*numbers):
    """Steps of 100 ns, one after the other, each of which launches a kernel of 20 ns."""
    rows = []
    for i, number in enumerate(numbers):
        start = 100 * i
        rows.append(annotation(f"ProfilerStep#{number}", start, start + 90))
        rows.append(launch(start + 10, start + 15, correlation=i))
        rows.append(kernel(start + 30, start + 50, correlation=i))
    return rows


def steady(rows):
    """The numbers of the steady steps, their window, and what is left out."""
    made = timeline(*rows)
    found = made.steady
    numbers = [made.steps[index].number for index in found.indices]
    return numbers, (found.window.start_ns, found.window.end_ns), found.left_out


def test_all_steps_are_steady_where_nothing_is_missing():
    assert steady(steps_of(4, 5, 6)) == ([4, 5, 6], (0, 290), ())


def test_a_step_with_work_launched_before_the_recording_is_left_out():
    # The kernel of before runs until 120: 20 ns into the second step, whose own runs in stream 7.
    rows = [*steps_of(4, 5, 6), kernel(-50, 120, stream=9)]
    assert steady(rows) == ([6], (200, 290), (LeftOut(4, BACKLOG), LeftOut(5, BACKLOG)))


def test_work_of_another_stream_counts_until_the_stream_gets_work_with_a_launch():
    # In stream 9 the second kernel without a launch runs behind one that has a launch.
    rows = [
        *steps_of(4, 5, 6),
        kernel(5, 8, stream=9),
        launch(20, 22, correlation=50),
        kernel(60, 70, stream=9, correlation=50),
        kernel(150, 160, stream=9),
    ]
    assert steady(rows) == ([5, 6], (100, 290), (LeftOut(4, BACKLOG),))


def test_a_step_that_lacks_a_kernel_that_it_launched_is_left_out():
    rows = [*steps_of(4, 5, 6), launch(220, 225, correlation=70)]
    assert steady(rows) == ([4, 5], (0, 190), (LeftOut(6, CUT),))


@pytest.mark.parametrize(
    ("last_end_ns", "recorded_until_ns", "left_out"),
    [(329, 250, ()), (330, 250, (LeftOut(6, STOPPED),)), (330, 300, ())],
    ids=["nearly twice as long as usual", "twice", "the host at work"],
)
def test_a_last_step_that_ends_with_the_profiler_stopping_is_left_out(
    last_end_ns, recorded_until_ns, left_out
):
    # In each step nothing is recorded for the last 40 ns, from the end of its kernel on.
    *rows, last_step, its_launch, its_kernel = steps_of(4, 5, 6)
    rows += [replace(last_step, end=last_end_ns), its_launch, its_kernel]
    rows.append(call("cudaEventQuery", 220, recorded_until_ns))
    assert steady(rows)[2] == left_out


@pytest.mark.parametrize(
    ("ends_ns", "left_out"), [(230, ()), (219, (LeftOut(6, CUT),))], ids=["captured", "after it"]
)
def test_what_is_captured_into_a_graph_is_not_lost(ends_ns, left_out):
    rows = [
        *steps_of(4, 5, 6),
        call("cudaStreamBeginCapture", 216, 218),
        call("cudaStreamEndCapture", ends_ns - 1, ends_ns),
        launch(220, 225, correlation=70),
    ]
    assert steady(rows)[2] == left_out


def test_what_autograds_thread_launches_during_a_capture_is_not_lost():
    rows = [
        *steps_of(4, 5, 6),
        call("cudaStreamBeginCapture", 216, 218),
        call("cudaStreamEndCapture", 229, 230),
        launch(220, 225, correlation=70, thread=AUTOGRAD),
    ]
    assert steady(rows)[2] == ()


def test_a_memset_of_nothing_is_not_lost():
    rows = [*steps_of(4, 5), call("cudaMemsetAsync", 120, 125, correlation=71)]
    assert steady(rows)[2] == ()


def test_the_only_step_is_steady_whatever_it_holds_and_marked():
    rows = [*steps_of(4), kernel(-50, 20, stream=9)]
    assert steady(rows) == ([4], (0, 90), (LeftOut(4, BACKLOG),))


@pytest.mark.parametrize("correlation", [1, 90])
def test_a_call_of_the_driver_inside_the_runtimes_launches_nothing_of_its_own(correlation):
    inner = call("cuLaunchKernel", 111, 114, correlation=correlation, category=Category.DRIVER)
    assert steady([*steps_of(4, 5, 6), inner])[2] == ()


def test_only_steps_that_hold_such_work_are_left_out():
    # In stream 9 kernels without a launch run in the first and the third step, and one with a
    # launch in the fourth.
    rows = [
        *steps_of(4, 5, 6, 7),
        kernel(5, 8, stream=9),
        kernel(205, 208, stream=9),
        launch(320, 322, correlation=50),
        kernel(360, 370, stream=9, correlation=50),
    ]
    assert steady(rows)[2] == (LeftOut(4, BACKLOG), LeftOut(6, BACKLOG))


def test_no_step_is_steady_without_steps_or_where_none_is_whole():
    assert timeline(launch(0, 1, 1), kernel(5, 9, correlation=1)).steady is None
    rows = [*steps_of(4, 5), launch(20, 25, correlation=70), launch(120, 125, correlation=71)]
    assert timeline(*rows).steady is None
