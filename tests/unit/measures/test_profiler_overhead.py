"""What windows would take without the profiler, in nanoseconds."""

from dataclasses import replace

import pytest

from tests.build.rows import US, call, comm, kernel, launch, operator, step, trace
from tracelab.base.options import PROFILER_STEP
from tracelab.measures.bubbles import bubbles
from tracelab.measures.profiler_overhead import (
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
    overhead_ns = profiler_overhead_ns(graph, None, idle, start_up(graph, idle))[0]
    lengths_ns = unprofiled_ns(graph, None, idle, start_up(graph, idle))
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

    assert {device: x.tolist() for device, x in active_devices(recorded(None, *rows)).items()} == {
        0: [True],
        1: [True],
        2: [False],
    }
