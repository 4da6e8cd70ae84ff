"""What windows would take without the profiler, in nanoseconds."""

from dataclasses import replace

import pytest

from tests.build.rows import US, call, kernel, launch, operator, step, trace
from tracelab.measures.bubbles import bubbles
from tracelab.measures.profiler_overhead import (
    active_devices,
    profiler_overhead_ns,
    unprofiled_ns,
)
from tracelab.model.file_info import FileInfo
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.options import PROFILER_STEP

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
    overhead_ns = profiler_overhead_ns(graph, None, idle)[0]
    lengths_ns = unprofiled_ns(graph, None, idle)
    return (
        [ns / MS for ns in overhead_ns.tolist()],
        [None if ns is None else ns / MS for ns in lengths_ns],
    )


def test_what_a_step_takes_longer_is_the_profilers():
    # The trace begins with the first kernel, at 6 ms: 14 ms for two steps. What comes before it is
    # not known to be the host's.
    overhead_ms, length_ms = measured(recorded(7, *host_bound_steps()))

    assert overhead_ms == [0, 0, 3]
    assert length_ms == [None, None, 7]


def test_no_more_than_the_host_kept_the_gpu_idle_is_the_profilers():
    overhead_ms, length_ms = measured(recorded(1, *host_bound_steps()))

    assert overhead_ms == [6, 0, 6]
    assert length_ms == [8, None, 4]


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

    assert measured(recorded(0.07, *rows)) == ([0, 0, 0.03], [None, None, 0.07])


def test_hardly_less_is_not_spoken_of():
    # 9.5 ms are not a tenth less than 10 ms.
    overhead_ms, length_ms = measured(recorded(9.5, *host_bound_steps()))

    assert overhead_ms == [0, 0, 0.5]
    assert length_ms == [None, None, None]


def test_capture_that_says_nothing():
    assert measured(recorded(None, *host_bound_steps())) == ([0, 0, 0], [None, None, None])


def test_active_devices_do_a_hundredth_of_what_the_busiest_does():
    rows = [kernel(0, 1_000), kernel(0, 10, device=1), kernel(0, 9, device=2)]

    assert {device: x.tolist() for device, x in active_devices(recorded(None, *rows)).items()} == {
        0: [True],
        1: [True],
        2: [False],
    }
