"""What windows would take without the profiler, in nanoseconds."""

from dataclasses import replace
from itertools import accumulate

import pytest

from tests.build.rows import AUTOGRAD, MAIN, US, call, comm, kernel, launch, operator, step, trace
from tracelab.base.intervals import union
from tracelab.base.options import PROFILER_STEP
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.unprofiled_windows import (
    active_devices,
    profiler_overhead_ns,
    start_up,
    unprofiled_idle_ns,
    unprofiled_ns,
)
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.steps import Window
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import FileInfo

MS = 1_000_000


def recorded(unprofiled_step_ms, *rows):
    """The graph of a file whose capture says how long a step takes without the profiler."""
    step_ns = None if unprofiled_step_ms is None else unprofiled_step_ms * MS
    made = replace(trace(*rows), info=FileInfo(unprofiled_step_ns=step_ns))
    return build_graph(observe_host(build_timeline(made, step_pattern=PROFILER_STEP)))


def host_bound_steps():
    """Two steps of 10 ms; in each the GPU computes for 4 ms after 6 ms of operators."""
    return [
        row
        for number in range(2)
        for start in [10 * number * MS]
        for row in (
            step(number, start, start + 10 * MS),
            operator("aten::mm", start, start + 6 * MS),
            launch(start + 6 * MS, start + 6 * MS, number + 1),
            kernel(start + 6 * MS, start + 10 * MS, correlation=number + 1),
        )
    ]


def measured(graph):
    """Overhead of device 0 and length without the profiler, both in ms, of each window."""
    idle = bubbles(graph)
    windows, start = graph.host.timeline.windows, start_up(graph, idle)
    overhead_ns = profiler_overhead_ns(graph, windows, idle, start)[0]
    lengths_ns = unprofiled_ns(graph, windows, idle, start)
    return (
        [ns / MS for ns in overhead_ns.tolist()],
        [None if ns is None else ns / MS for ns in lengths_ns],
    )


def test_what_a_step_takes_longer_is_the_profilers():
    # The trace begins with the first kernel, at 6 ms: 14 ms for two steps.
    overhead_ms, length_ms = measured(recorded(7, *host_bound_steps()))

    assert overhead_ms == [0, 3, 3]
    assert length_ms == [None, 7, 7]


def test_no_more_than_the_host_kept_the_gpu_idle_is_the_profilers():
    overhead_ms, length_ms = measured(recorded(1, *host_bound_steps()))

    assert overhead_ms == [6, 6, 6]
    assert length_ms == [8, 4, 4]


@pytest.mark.parametrize(
    ("name", "end", "launched", "returned"),
    [("cudaEventQuery", 0, 0, 59), ("cudaStreamSynchronize", 60, 60, 61)],
    ids=["launch", "host blocked"],
)
def test_idle_between_launch_and_start_and_behind_a_blocking_call_may_be_the_profilers(
    name, end, launched, returned
):
    # Two steps of 100 us, in each of which the GPU waits for 60.
    rows = [
        row
        for number in range(2)
        for start in [100 * number * US]
        for row in (
            step(number, start, start + 100 * US),
            call(name, start, start + end * US),
            launch(start + launched * US, start + returned * US, number + 1),
            kernel(start + 60 * US, start + 100 * US, correlation=number + 1),
        )
    ]

    assert measured(recorded(0.07, *rows)) == ([0, 0.03, 0.03], [None, 0.07, 0.07])


def test_hardly_less_is_not_spoken_of():
    # 9.5 ms are not a tenth less than 10 ms.
    overhead_ms, length_ms = measured(recorded(9.5, *host_bound_steps()))

    assert overhead_ms == [0, 0.5, 0.5]
    assert length_ms == [None, None, None]


def run_ahead_steps():
    """Kernels of 100 us, launched at 10, 160, 270 us and then every 80: from 12, 162, 272 on.

    A launch takes 2 us. The first step begins at 9, the others when the work of the one before
    ends: at 112, 262, 372, 472, until 572. The host runs ahead from the fourth on.
    """
    launched_us = (10, 160, 270, 350, 430)
    starts_us = (12, 162, 272, 372, 472)
    begins_us = (9, *(at + 3 for at in launched_us))
    return [
        row
        for i, (at, start, begin) in enumerate(zip(launched_us, starts_us, begins_us, strict=False))
        for row in (
            step(i, begin * US, (at + 3) * US),
            launch(at * US, (at + 2) * US, i + 1),
            kernel(start * US, (start + 100) * US, correlation=i + 1),
        )
    ]


def test_what_the_start_of_a_recording_leaves_idle_is_not_there_without_it():
    # GIVEN steps of 103, 150, 110, 100 and 100 us, in which the GPU is idle for 3, 50 and 10 us
    # before the host runs ahead. By the median of 103 the profiler made a step 13 us longer.
    graph, steady = recorded(0.09, *run_ahead_steps()), Window(None, 9 * US, 572 * US)
    idle = bubbles(graph)
    start = start_up(graph, idle)

    # THEN nothing of the idle time is there without it, and no more than that was added
    assert profiler_overhead_ns(graph, [steady], idle, start)[0].tolist() == [63 * US]
    assert unprofiled_ns(graph, [steady], idle, start) == (500 * US,)


def test_steps_are_no_shorter_than_without_the_profiler():
    # GIVEN the same, and 101 us without the profiler: by the median five steps are 10 us longer,
    # and the start has 63, but 563 us are only 58 more than 505
    graph, steady = recorded(0.101, *run_ahead_steps()), Window(None, 9 * US, 572 * US)

    idle = bubbles(graph)
    start = start_up(graph, idle)
    assert profiler_overhead_ns(graph, [steady], idle, start)[0].tolist() == [58 * US]


@pytest.mark.parametrize(("unprofiled_us", "idle_us"), [(104, 20), (100, 0), (90, 0)])
def test_idle_without_the_profiler_is_what_a_step_takes_beside_the_work(unprofiled_us, idle_us):
    graph = recorded(unprofiled_us / 1_000, *run_ahead_steps())

    assert unprofiled_idle_ns(graph.host.timeline, Window(None, 9 * US, 572 * US)) == {
        0: idle_us * US  # of five steps
    }
    assert unprofiled_idle_ns(graph.host.timeline, Window(1, 112 * US, 262 * US)) == {
        0: idle_us * US // 5
    }


def test_idle_without_the_profiler_may_be_there_while_a_collective_waits():
    # GIVEN steps of 100 us, of which the GPU computes for 40 and then is in a collective for 50
    rows = [
        row
        for i in range(3)
        for at in [100 * i * US]
        for row in (
            step(i, at, at + 100 * US),
            launch(at, at + 2 * US, 2 * i + 1),
            kernel(at + 10 * US, at + 50 * US, correlation=2 * i + 1),
            launch(at + 3 * US, at + 5 * US, 2 * i + 2),
            comm(at + 50 * US, at + 100 * US, correlation=2 * i + 2),
        )
    ]

    # THEN without the profiler it may take no time
    graph = recorded(0.09, *rows)
    assert unprofiled_idle_ns(graph.host.timeline, Window(None, 0, 300 * US)) == {0: 150 * US}


def test_idle_without_the_profiler_is_unknown_of_a_capture_that_says_nothing():
    graph = recorded(None, *run_ahead_steps())
    assert unprofiled_idle_ns(graph.host.timeline, Window(None, 9 * US, 572 * US)) == {}


def test_capture_that_says_nothing():
    assert measured(recorded(None, *host_bound_steps())) == ([0, 0, 0], [None, None, None])


def test_active_devices_do_a_hundredth_of_what_the_busiest_does():
    rows = [kernel(0, 1_000), kernel(0, 10, device=1), kernel(0, 9, device=2)]
    graph = recorded(None, *rows)
    is_active = active_devices(graph, graph.host.timeline.windows)

    assert {device: x.tolist() for device, x in is_active.items()} == {
        0: [True],
        1: [True],
        2: [False],
    }


# --- idle time from the start of a recording ---

TAKES = 2  # us, a launch


def program(*intervals_us, works_us=100, launches=1, threads=(MAIN,), early_us=0):
    """Steps of kernels that work for so long, each launched so many us after the one before.

    A step begins where the host ended the one before, or earlier, and the first one 1 us before its
    launch. The threads take turns to launch.
    """
    rows, free_us = [], 0
    launched_us = list(accumulate(intervals_us))
    begun_us = launched_us[0] - 1
    for number in range(len(launched_us) // launches):
        of_step = launched_us[number * launches : (number + 1) * launches]
        ended_us = of_step[-1] + TAKES + 1
        rows.append(step(number, begun_us * US, ended_us * US))
        begun_us = ended_us - early_us
        for place, at_us in enumerate(of_step):
            correlation = len(rows)
            starts_us = max(free_us, at_us + TAKES)
            free_us = starts_us + works_us
            rows += [
                launch(
                    at_us * US,
                    (at_us + TAKES) * US,
                    correlation,
                    thread=threads[place % len(threads)],
                ),
                kernel(starts_us * US, free_us * US, correlation=correlation),
            ]
    return rows


def found(*rows):
    """The idle before the host ran ahead, and where it was slow at first, as (start, end) in us."""
    graph = build_graph(observe_host(build_timeline(trace(*rows), step_pattern=PROFILER_STEP)))
    idle = bubbles(graph)
    origin_ns = graph.host.timeline.steps[0].start_ns

    def of(is_chosen):
        time = idle.idle([(is_chosen, result.by_host)])
        time = union(time.start_ns - origin_ns, time.end_ns - origin_ns)
        return list(zip((time.starts / US).tolist(), (time.ends / US).tolist(), strict=True))

    result = start_up(graph, idle)
    return of(result.not_ahead), of(result.slow)


def test_idle_time_before_the_host_runs_ahead():
    # GIVEN kernels of 100 us. The first is launched at 10 us and works from 12 to 112; the second
    # at 160, from 162 to 262; the third at 270, from 272 on; then one each 80 us, while the GPU
    # works. The first step begins at 9.
    rows = program(10, 150, 110, 80, 80, 80)

    # THEN all idle time until the third one starts is there because the recording has just begun
    assert found(*rows) == ([(0, 3), (103, 153), (253, 263)], [])


def test_without_steps_in_which_the_host_is_ahead_only_the_start_is_slow():
    # GIVEN kernels of 50 us, launched after 150 us at first, and then each 110 us: from 12, 162,
    # 272, 382, 492 on, each of which the GPU waits for
    rows = program(10, 150, 110, 110, 110, works_us=50)

    # THEN the program has this idle time, and at the start more of it
    assert found(*rows) == ([], [(0, 3), (53, 153)])


@pytest.mark.parametrize(("interval_us", "expected"), [(320, [(103, 323)]), (321, [])])
def test_not_where_the_host_stalls(interval_us, expected):
    # GIVEN a second launch that takes so long, while the others take 80 us: the median is 80
    not_ahead, _ = found(*program(10, interval_us, 80, 80, 80, 80))

    # THEN it is a stall beyond four times as much
    assert not_ahead == [(0, 3), *expected]


@pytest.mark.parametrize("threads", [(MAIN,), (MAIN, AUTOGRAD)], ids=["one thread", "two threads"])
@pytest.mark.parametrize("early_us", [0, 20], ids=["one after another", "overlapping"])
def test_of_two_launches_in_a_step_each_has_its_own_usual_time(threads, early_us):
    # GIVEN steps of two launches, 10 and 150 us after the one before. The kernels work for 100 us:
    # launched at 10 and 160, 170 and 320, 330 and 480 ... they start at 12, 162, 262, 362, ...
    of_launches = (10, 150, 10, 150, 10, 150, 10, 150)
    rows = program(*of_launches, launches=2, threads=threads, early_us=early_us)

    # THEN 150 us are nothing unusual at the second launch, though most take 10
    assert found(*rows) == ([(0, 3), (103, 153)], [])


def test_a_stall_later_on_is_no_start():
    # GIVEN a host that is ahead from the second step on, and stalls before the fourth
    assert found(*program(10, 80, 80, 500, 80, 80, 80)) == ([(0, 3)], [])


def test_a_host_that_is_seldom_ahead_does_not_run_ahead():
    # GIVEN kernels of 100 us, of which only the third and the fourth are launched in time
    rows = program(10, 150, 80, 80, 150, 150, 150, 150, 150)

    # THEN
    assert found(*rows) == ([], [(0, 3), (103, 153)])


def test_work_of_before_the_recording_keeps_the_gpu_busy():
    # GIVEN a kernel that the file has no launch of, until 12 us, when the first one could start
    rows = [kernel(0, 12 * US), *program(10, 80, 80, 80)]

    # THEN the host is ahead from the first step on
    assert found(*rows) == ([], [])


def test_two_steps_show_nothing():
    assert found(*program(10, 150)) == ([], [])
