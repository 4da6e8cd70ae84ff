"""What ran in the steady steps: which operator and which phase launched, and did, what.

What the tables of kernels, operators and phases are made of, column by column. GPU activities
count in the step that launched them, and so does the host's time: from the start of the step's
annotation to its end. Idle time counts in the step's window. At each moment one thread of the host
counts (`Phases`), so that its times add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import (
    Int64Array,
    Intervals,
    intersect,
    join,
    overlapping_pairs,
    union,
)
from tracelab.measures.bubbles import Bubbles
from tracelab.model.graph import Graph
from tracelab.model.phases import Phase, Phases
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# In a column of names: the host was in no operator; the file has no host for it.
NO_OPERATOR, NO_HOST = -1, -2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WhatRan(Frozen):
    """What the steady steps launched, and what the host did in them.

    Attributes:
        step: the number of the step, where it is asked for alone; None for the steady steps.
        steps: how many steady steps these are; None for the whole trace of a file without any.
        is_forward_inferred: see `Phases`.
        length_ns: int64[r], ns, of each GPU activity.
        kernel: int64[r], its name, as an index into `Trace.strings`.
        kind: int8[r], a `Kind`.
        operator: int64[r], the name of the innermost operator around its launch, as an index into
            `Trace.strings`, NO_OPERATOR or NO_HOST.
        phase: int8[r], the `Phase` of its launch.
        is_first: bool[r], which is the first activity of its launch here.
        host_operator, host_phase: int64[h] and int8[h], the innermost operator and the phase that
            the host was in, each pair once.
        host_ns: int64[h], ns, how long it was in both, in its own steps.
        idle_ns: int64[h], ns, how long the devices were idle meanwhile, in the steps' windows,
            added up.
        call_operator, call_count: int64[c], how often the operators of each name began in the
            host's steps, on a thread that counted then.

    Example row of an activity: ``(length_ns=1_640, kernel=3, kind=Kind.COMPUTE, operator=17,
    phase=Phase.FORWARD, is_first=True)``.
    """

    step: int | None
    steps: int | None
    is_forward_inferred: bool
    length_ns: Int64Array
    kernel: Int64Array
    kind: NDArray[np.int8]
    operator: Int64Array
    phase: NDArray[np.int8]
    is_first: NDArray[np.bool_]
    host_operator: Int64Array
    host_phase: NDArray[np.int8]
    host_ns: Int64Array
    idle_ns: Int64Array
    call_operator: Int64Array
    call_count: Int64Array


def what_ran(graph: Graph, windows: Sequence[Window], bubbles: Bubbles) -> WhatRan:
    """Say of what the steady steps launched, and of the host's time in them, what it was.

    The slow reference model is ``tests/reference/host_work.py``.

    Args:
        graph: the file's dependencies.
        windows: what is measured: the whole trace and every step, or one step.
        bubbles: the idle time in them.

    Returns:
        the columns; of a step that is asked for alone, those of that step.
    """
    timeline = graph.host.timeline
    phases = Phases(graph.host)
    indices, on_host, within = _scope(timeline, windows[0])
    rows = (
        np.arange(len(timeline.event_id))
        if indices is None
        else np.flatnonzero(np.isin(timeline.step_index, indices))
    )
    operator, phase = _of_launches(timeline, phases, rows)
    _, first = np.unique(timeline.launch_id[rows], return_index=True)
    is_first = np.zeros(len(rows), dtype=np.bool_)
    is_first[first] = True
    host_operator, host_phase, host_ns, idle_ns = _host_time(
        timeline, phases, on_host, within, _idle(timeline, bubbles, within)
    )
    calls = np.bincount(_called(timeline, phases, on_host))
    return WhatRan(
        step=windows[0].step,
        steps=None if indices is None else len(indices),
        is_forward_inferred=phases.is_forward_inferred,
        length_ns=timeline.end_ns[rows] - timeline.start_ns[rows],
        kernel=timeline.trace.name_index[timeline.event_id[rows]].astype(np.int64),
        kind=timeline.kind[rows],
        operator=operator,
        phase=phase,
        is_first=is_first & (timeline.launch_id[rows] != ABSENT),
        host_operator=host_operator,
        host_phase=host_phase,
        host_ns=host_ns,
        idle_ns=idle_ns,
        call_operator=np.flatnonzero(calls),
        call_count=calls[calls > 0],
    )


def _scope(timeline: Timeline, window: Window) -> tuple[Sequence[int] | None, Intervals, Intervals]:
    """Which steps count, as indices into `Timeline.steps`, and when they ran.

    Returns:
        the indices, or None for the whole trace; when the host ran them; and their windows.
    """
    trace, steps = timeline.trace, timeline.steps
    if window.step is not None:
        indices: Sequence[int] = [i for i in range(len(steps)) if steps[i].number == window.step]
    elif timeline.steady is not None:
        indices = timeline.steady.indices
    else:
        launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
        host_start_ns = trace.start_ns[launch_id].min(initial=window.start_ns)
        within = union([window.start_ns], [window.end_ns])
        return None, union([host_start_ns], [window.end_ns]), within
    chosen = [steps[i] for i in indices]
    event_ids = np.array([step.event_id for step in chosen], dtype=np.intp)
    return (
        indices,
        union(trace.start_ns[event_ids], trace.end_ns[event_ids]),
        union([step.start_ns for step in chosen], [step.end_ns for step in chosen]),
    )


def _of_launches(
    timeline: Timeline, phases: Phases, rows: NDArray[np.intp]
) -> tuple[Int64Array, NDArray[np.int8]]:
    """The operator and the phase of the launch of each row: int64[r] and int8[r]."""
    launch_ids, index = np.unique(timeline.launch_id[rows], return_inverse=True)
    is_launched = launch_ids != ABSENT
    launched = launch_ids[is_launched]
    operator = np.full(len(launch_ids), NO_HOST, dtype=np.int64)
    phase = np.full(len(launch_ids), Phase.UNKNOWN, dtype=np.int8)
    # A name that is ABSENT is NO_OPERATOR.
    operator[is_launched] = timeline.operators.names(timeline.operators.innermost(launched))
    phase[is_launched] = phases.of_events(launched)
    return operator[index], phase[index]


def _idle(timeline: Timeline, bubbles: Bubbles, within: Intervals) -> list[Intervals]:
    """When each device was idle in some time."""
    idle = []
    for device in timeline.device_numbers:
        is_own = bubbles.device_number == device
        idle.append(intersect(union(bubbles.start_ns[is_own], bubbles.end_ns[is_own]), within))
    return idle


def _host_time(
    timeline: Timeline,
    phases: Phases,
    on_host: Intervals,
    within: Intervals,
    idle: Sequence[Intervals],
) -> tuple[Int64Array, NDArray[np.int8], Int64Array, Int64Array]:
    """Each pair of an operator and a phase, with the host's time in both, and the devices' idle.

    Args:
        timeline: the GPU activities.
        phases: of its host.
        on_host: when the host ran the steps.
        within: their windows.
        idle: when each device was idle in the windows.
    """
    count = (len(timeline.trace.strings) - NO_HOST) * len(Phase)
    sums_ns = np.zeros((2, count), dtype=np.int64)
    for thread, part in phases.threads_in_charge(join(on_host, within)):
        pieces, operator, phase = _pieces(timeline, phases, thread, part, on_host)
        key = (operator - NO_HOST) * len(Phase) + phase
        host_ns = (pieces.ends - pieces.starts)[is_host := _covers(on_host, pieces.starts)]
        # Sums below 2**53 are exact.
        sums_ns[0] += np.bincount(key[is_host], host_ns, count).astype(np.int64)
        for of_device in idle:
            gap, piece = overlapping_pairs(of_device, pieces)
            shared_ns = np.minimum(pieces.ends[piece], of_device.ends[gap])
            shared_ns -= np.maximum(pieces.starts[piece], of_device.starts[gap])
            sums_ns[1] += np.bincount(key[piece], shared_ns, count).astype(np.int64)
    keys = np.flatnonzero(sums_ns.any(axis=0))
    operators, phase_index = np.divmod(keys, len(Phase))
    return operators + NO_HOST, phase_index.astype(np.int8), sums_ns[0, keys], sums_ns[1, keys]


def _pieces(
    timeline: Timeline, phases: Phases, thread: int, part: Intervals, on_host: Intervals
) -> tuple[Intervals, Int64Array, NDArray[np.int8]]:
    """The time of a thread, cut wherever its operator or phase changes, or a step of the host.

    Returns:
        the pieces, which touch, in order; the name of the operator and the phase of each.
    """
    cuts_ns = [part.starts, part.ends, on_host.starts, on_host.ends]
    if thread != ABSENT:
        operators = timeline.operators
        own = operators.of_thread(thread)
        cuts_ns += [operators.start_ns[own], operators.end_ns[own], phases.boundaries_ns(thread)]
    moments_ns = np.sort(np.concatenate(cuts_ns))
    is_piece = _covers(part, moments_ns)[:-1] & (np.diff(moments_ns) > 0)
    pieces = Intervals(moments_ns[:-1][is_piece], moments_ns[1:][is_piece])
    if thread == ABSENT:
        unknown = np.full(len(pieces), Phase.UNKNOWN, dtype=np.int8)
        return pieces, np.full(len(pieces), NO_HOST, dtype=np.int64), unknown
    operator = operators.names(operators.innermost_at(thread, pieces.starts))
    return pieces, operator, phases.at(thread, pieces.starts)


def _covers(intervals: Intervals, moments_ns: Int64Array) -> NDArray[np.bool_]:
    """bool[k], which of these moments, ascending, lie in a set."""
    change = np.zeros(len(moments_ns) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(moments_ns, intervals.starts), 1)
    np.add.at(change, np.searchsorted(moments_ns, intervals.ends), -1)
    return np.cumsum(change[:-1]) > 0


def _called(timeline: Timeline, phases: Phases, on_host: Intervals) -> Int64Array:
    """int64[c], the name of each operator that began on a thread in charge."""
    operators = timeline.operators
    names = [np.zeros(0, dtype=np.int64)]
    for thread, part in phases.threads_in_charge(on_host):
        if thread != ABSENT:
            own = operators.of_thread(thread)
            is_begun = _covers(part, operators.start_ns[own])
            names.append(operators.names(np.arange(own.start, own.stop)[is_begun]))
    return np.concatenate(names)
