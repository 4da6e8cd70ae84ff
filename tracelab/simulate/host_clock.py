"""The host's time without the profiler, at every moment of the steps that are replayed.

Between the replayed calls, the profiler's time is taken away where it recorded something.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import IndexArray, Int64Array
from tracelab.base.intervals import Intervals, contains, gaps, join, measure_within, union
from tracelab.measures.unprofiled_windows import HostClock
from tracelab.model.graph import Graph
from tracelab.model.phases import Phases
from tracelab.simulate.baseline import Baseline
from tracelab.simulate.profiler_cost import MIN_LEFT_SHARE, Calibration, RecordedEvents
from tracelab.simulate.program import NEVER, NodeKind, Program, Via

# The profiler takes time before the begin of an event and after it, and so at its end.
_SIDES = 2


def host_clock(graph: Graph, phases: Phases, baseline: Baseline) -> HostClock | None:
    """Say how far the host is without the profiler when it was so far with it.

    None where the replay is not of the step without the profiler, or steps have no length.
    """
    calibration, timeline = baseline.calibration, graph.host.timeline
    if calibration is None or timeline.steady is None:
        return None
    steps = [timeline.steps[index] for index in timeline.steady.indices]
    step_id = np.array([x.event_id for x in steps if x.number in baseline.steps], dtype=np.intp)
    in_steps = union(timeline.trace.start_ns[step_id], timeline.trace.end_ns[step_id])
    if not len(in_steps):
        return None
    in_charge = dict(phases.threads_in_charge(union(in_steps.starts[:1], in_steps.ends[-1:])))
    knot_ns, replayed_ns = _find_calls(graph, calibration, in_steps, in_charge)
    recorded = RecordedEvents(graph)
    marks = [recorded.marks(thread).inside(part) for thread, part in in_charge.items()]
    between_steps = gaps(in_steps, int(in_steps.starts[0]), int(in_steps.ends[-1]))
    in_profiler = reduce(join, map(recorded.profiler_calls, in_charge), between_steps)
    mark_ns = [of_thread.moment_ns for of_thread in marks]
    cut_ns = np.unique(np.concatenate((knot_ns, *mark_ns, in_profiler.starts, in_profiler.ends)))
    cut_ns = cut_ns[(cut_ns >= knot_ns[0]) & (cut_ns <= knot_ns[-1])]
    events = np.zeros(len(cut_ns))
    for of_thread in marks:
        events += of_thread.count(cut_ns, cut_ns + 1)
    length_ns = np.diff(cut_ns)
    cost_ns = (events[:-1] + events[1:]) * calibration.event_ns / _SIDES
    cost_ns = np.minimum(cost_ns, length_ns * (1 - MIN_LEFT_SHARE))
    cost_ns = np.maximum(cost_ns, measure_within(in_profiler, cut_ns[:-1], cut_ns[1:]))
    stretch = np.searchsorted(knot_ns, cut_ns[:-1], side="right") - 1
    left_ns = _shortened(length_ns, cost_ns, stretch, np.diff(replayed_ns))
    unprofiled_ns = np.rint(np.concatenate(([0.0], np.cumsum(left_ns)))).astype(np.int64)
    return HostClock(cut_ns, unprofiled_ns, len(step_id))


def _find_calls(
    graph: Graph, calibration: Calibration, in_steps: Intervals, in_charge: dict[int, Intervals]
) -> tuple[Int64Array, Int64Array]:
    program, time_ns = calibration.program, calibration.time_ns
    begin_ns = graph.host.timeline.trace.start_ns[program.event_id]
    of_host = np.flatnonzero(program.kind != NodeKind.ACTIVITY)
    is_counted = np.zeros(len(of_host), dtype=np.bool_)
    for thread, part in in_charge.items():
        is_own = program.thread_index[of_host] == thread
        is_counted |= is_own & contains(part, begin_ns[of_host])
    node, begun_ns = of_host[is_counted], _begun_ns(program, time_ns)
    first_ns, last_ns = _ends(program, time_ns, begin_ns, begun_ns, in_steps)
    bounds_ns = in_steps.starts[:1], in_steps.ends[-1:]
    recorded_ns = np.concatenate((*bounds_ns, begin_ns[node], program.moment_ns[node]))
    replayed_ns = np.concatenate(([first_ns, last_ns], begun_ns[node], time_ns[node]))
    order = np.lexsort((replayed_ns, recorded_ns))
    recorded_ns, replayed_ns = recorded_ns[order], np.maximum.accumulate(replayed_ns[order])
    is_last = np.append(np.diff(recorded_ns) > 0, True)
    return recorded_ns[is_last], replayed_ns[is_last]


def _begun_ns(program: Program, time_ns: Int64Array) -> Int64Array:
    """int64[n], ns, when the host begins each call in a replay: before the call waits."""
    edge = np.flatnonzero(np.isin(program.via, (Via.HOST, Via.THREAD)) & (program.lag == 0))
    begun_ns = np.full(len(program), NEVER)
    arrived_ns = time_ns[program.source[edge]] + program.latency_ns[edge]
    np.maximum.at(begun_ns, program.target[edge], arrived_ns)
    return np.where(begun_ns == NEVER, time_ns - program.cost_ns, begun_ns)


def _ends(
    program: Program,
    time_ns: Int64Array,
    begin_ns: Int64Array,
    begun_ns: Int64Array,
    in_steps: Intervals,
) -> tuple[int, int]:
    # From the last call to the first one is one edge, which both ends share as recorded.
    [wrap, *_] = np.flatnonzero((program.lag == 1) & (program.via == Via.HOST))
    first, last = program.target[wrap], program.source[wrap]
    head_ns = int(begin_ns[first] - in_steps.starts[0])
    tail_ns = int(in_steps.ends[-1] - program.moment_ns[last])
    left_ns = min(int(program.latency_ns[wrap]), head_ns + tail_ns)
    head_left_ns = left_ns * head_ns // max(1, head_ns + tail_ns)
    return int(begun_ns[first]) - head_left_ns, int(time_ns[last]) + left_ns - head_left_ns


def _shortened(
    length_ns: Int64Array, cost_ns: NDArray[np.float64], stretch: IndexArray, left_ns: Int64Array
) -> NDArray[np.float64]:
    # The profiler's time goes first; if that is too little, the rest shrinks in proportion.
    whole_ns, profiler_ns = (
        np.bincount(stretch, of_piece, len(left_ns)) for of_piece in (length_ns, cost_ns)
    )
    taken_ns = whole_ns - left_ns
    goes = np.clip(taken_ns / np.maximum(profiler_ns, 1), 0, 1)
    remains_ns = whole_ns - goes * profiler_ns
    stays = left_ns / np.where(remains_ns > 0, remains_ns, 1)
    return (length_ns - goes[stretch] * cost_ns) * stays[stretch]
