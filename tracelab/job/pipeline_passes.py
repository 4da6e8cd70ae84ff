"""The forward and backward passes of one rank: when they ran, and what each send came after."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import IndexArray, Int64Array, join, measure_within
from tracelab.model.graph import Graph
from tracelab.model.host import NOTHING_RECORDED
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.phases import Phase, Phases
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class Passes(Arrays):
    """The passes of the s steps of one rank, and the host at its c communication operations.

    Attributes:
        start_ns, end_ns: int64[s], ns, first to last kernel of the passes on the device that
            decides, else ABSENT.
        launched_ns: int64[c], ns, or ABSENT.
        waited_ns, computes: int64[c], ns that the launching thread was blocked, loading data or in
            the profiler by then, and compute kernels launched by then.
        phase: int8[c], the `Phase` of the last of these.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    launched_ns: Int64Array
    waited_ns: Int64Array
    computes: Int64Array
    phase: NDArray[np.int8]


_NONE = np.zeros(0, dtype=np.int64)
NO_PASSES = Passes(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE.astype(np.int8))


def find_passes(graph: Graph, phases: Phases, row: IndexArray, device: int) -> Passes:
    """Find the passes of every step, and what the host had done by each communication operation."""
    timeline = graph.host.timeline
    trace, launch_id = timeline.trace, timeline.launch_id
    is_compute = timeline.select(device=device, kind=Kind.COMPUTE)
    computes = np.flatnonzero(is_compute & (launch_id != ABSENT))
    computes = computes[np.argsort(trace.start_ns[launch_id[computes]], kind="stable")]
    phase = phases.phases_of(launch_id[computes])
    start_ns, end_ns = _spans(timeline, computes, phase)

    computes_ns, launch_id = trace.start_ns[launch_id[computes]], launch_id[row]
    is_launched = launch_id != ABSENT
    launched_ns = np.where(is_launched, trace.start_ns[launch_id], ABSENT)
    count = np.searchsorted(computes_ns, launched_ns)
    phase_before = np.append(np.int8(Phase.UNKNOWN), phase)[np.where(is_launched, count, 0)]
    waited_ns, count = _waited_ns(graph, launch_id), np.where(is_launched, count, ABSENT)
    return Passes(start_ns, end_ns, launched_ns, waited_ns, count, phase_before.astype(np.int8))


def _spans(
    timeline: Timeline, computes: IndexArray, phase: NDArray[np.int8]
) -> tuple[Int64Array, Int64Array]:
    start_ns, end_ns = np.full((2, len(timeline.steps)), ABSENT, dtype=np.int64)
    in_pass = np.isin(phase, (Phase.FORWARD, Phase.BACKWARD))
    for step_index, of_step in groups_of(timeline.step_index[computes]):
        chosen = of_step[in_pass[of_step]]
        rows = computes[chosen if len(chosen) else of_step]
        start_ns[step_index] = timeline.start_ns[rows].min()
        end_ns[step_index] = timeline.end_ns[rows].max()
    return start_ns, end_ns


def _waited_ns(graph: Graph, launch_id: Int64Array) -> Int64Array:
    trace = graph.host.timeline.trace
    waited_ns = np.zeros(len(launch_id), dtype=np.int64)
    first_ns = trace.start_ns.min(initial=0)
    threads = np.where(launch_id != ABSENT, trace.thread_index[launch_id], ABSENT)
    for thread, index in groups_of(threads):
        state = graph.host.states.get(thread, NOTHING_RECORDED)
        away = join(join(state.blocked, state.input), state.profiler)
        until_ns = trace.start_ns[launch_id[index]]
        waited_ns[index] = measure_within(away, np.full(len(index), first_ns), until_ns)
    return waited_ns
