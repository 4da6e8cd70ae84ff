"""The host's time without the profiler, at each moment: see `loops` for what was recorded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build import rows
from tests.build.host_bound_loop import EVENTS_A_STEP, STEP_US, graph_of, recorded_steps
from tests.build.rows import AUTOGRAD, US
from tracelab.measures.unprofiled_windows import HostClock
from tracelab.model.graph import Graph
from tracelab.model.phases import Phases
from tracelab.simulate.baseline import Baseline
from tracelab.simulate.host_clock import host_clock
from tracelab.simulate.profiler_cost import calibrate
from tracelab.simulate.recorded import record_program, repeat


def clock_of(graph: Graph) -> HostClock | None:
    """The clock of all steps but the first."""
    numbers = tuple(step.number for step in graph.host.timeline.steps[1:])
    program = repeat(graph, record_program(graph), 1, len(numbers))
    baseline = Baseline(steps=numbers, calibration=calibrate(graph, program))
    return host_clock(graph, Phases(graph.host), baseline)


def lengths_us(clock: HostClock, *moments_us: float) -> list[float]:
    """How long the pieces between moments of the first replayed step are."""
    moments_ns = STEP_US * US + np.array(moments_us) * US
    lengths_ns = clock.lengths_ns(moments_ns[:-1].astype(int), moments_ns[1:].astype(int))
    return (lengths_ns / US).tolist()


def test_each_event_takes_its_time_away_where_it_was_recorded():
    # GIVEN 3 us an event: 6 of the 10 us of each launch, and 3 between two launches
    graph = graph_of(*recorded_steps(), host_us=STEP_US - 3 * EVENTS_A_STEP)
    clock = clock_of(graph)
    # THEN the 40 us from the first launch to the second lose 3. They are in three pieces, as one
    # operator ends and another one begins: each has two ends, and loses as much.
    assert clock.steps == 3
    assert lengths_us(clock, 10, 20) == pytest.approx([4], abs=0.02)
    assert lengths_us(clock, 20, 25, 50, 60) == pytest.approx([4, 24, 9], abs=0.02)
    assert lengths_us(clock, 60, 70) == pytest.approx([4], abs=0.02)
    # The 40 us from the second launch to the next step's first are one stretch, too.
    assert lengths_us(clock, 70, 110) == pytest.approx([37], abs=0.02)
    assert lengths_us(clock, 0, 300) == pytest.approx([3 * 82], abs=0.02)


def test_the_profilers_own_code_takes_no_time():
    # GIVEN 10 us in the profiler between two steps, and a host that took just those less
    graph = graph_of(*recorded_steps(apart_us=10), host_us=STEP_US)
    clock = clock_of(graph)
    # THEN nothing else is shorter
    assert lengths_us(clock, 10, 110, 120, 220) == pytest.approx([100, 0, 100], abs=0.02)


def test_a_wait_is_as_long_as_the_replay_says():
    # GIVEN a synchronization after a kernel of 500 us; all else is recorded before the launch
    some = []
    for number in range(4):
        start = number * 600 * US
        some += [
            rows.step(number, start, start + 600 * US),
            *(rows.operator("aten::view", start + i * US, start + i * US) for i in range(1, 60)),
            rows.launch(start + 60 * US, start + 70 * US, 2 * number + 1),
            rows.kernel(start + 72_112, start + 572_112, correlation=2 * number + 1),
            rows.call(
                "cudaStreamSynchronize",
                start + 80 * US,
                start + 577_035,
                correlation=2 * number + 2,
            ),
            rows.sync_row(
                "Stream Sync",
                start + 80 * US,
                start + 577_035,
                correlation=2 * number + 2,
                stream=7,
            ),
        ]
    graph = graph_of(*some, host_us=560)
    clock = clock_of(graph)
    steps = clock.lengths_ns(np.array([600_000]), np.array([2_400_000])) / 3
    assert steps == pytest.approx(560_000, abs=2_000)
    [before, waited] = clock.lengths_ns(
        np.array([600 * US, 680 * US]), np.array([660 * US, 600 * US + 577_035])
    )
    # THEN the wait is none of what the profiler took, as the kernel begins earlier, too
    assert 0 < before < 40 * US
    assert waited == 497_035


def test_autograds_thread_counts_while_it_works():
    # GIVEN a launch of autograd's thread, in between those of the main thread
    some = []
    for number in range(4):
        start = number * STEP_US * US
        some += [
            rows.step(number, start, start + STEP_US * US),
            rows.operator("aten::add", start + 5 * US, start + 25 * US),
            rows.launch(start + 10 * US, start + 20 * US, 2 * number + 1),
            rows.kernel(start + 22_112, start + 30 * US, correlation=2 * number + 1),
            rows.operator("backward", start + 50 * US, start + 90 * US, thread=AUTOGRAD),
            rows.launch(start + 60 * US, start + 70 * US, 2 * number + 2, thread=AUTOGRAD),
            rows.kernel(start + 72_112, start + 80 * US, correlation=2 * number + 2),
        ]
    clock = clock_of(graph_of(*some, host_us=STEP_US - 15))
    # THEN its launch is shorter, too, and the clock never runs backwards
    assert lengths_us(clock, 60, 70)[0] < 9
    assert (np.diff(clock.unprofiled_ns) >= 0).all()
    assert lengths_us(clock, 0, 300) == pytest.approx([3 * 85], abs=3)


def test_without_a_calibration_there_is_no_clock():
    assert clock_of(graph_of(*recorded_steps())) is None
