"""What each GPU activity waited for: answered here once, and read by everything else.

An activity starts once the host has launched it, the activity before it in its stream is over, what
its stream was made to wait for is over, and the GPU has room for it. Of what the file shows, the
constraint that was met last is the one that counts. What then still starts much later than is
typical (`latencies`) waited for something that the file does not show. It was most likely work of
another stream of its device that was launched before it:

- what ended just before it started: an event wait whose record is not named, or the hardware queue
  that both streams share, or the order in which NCCL runs the kernels of a communicator;
- kernels that ran all that time and still do: they left no multiprocessor free.

Where there is neither, what it waited for is not known, and a `Reason` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import Int64Array
from tracelab.model.blocking_calls import Blocking
from tracelab.model.host import Host
from tracelab.model.kernel_kinds import Kind
from tracelab.model.late_starts import ended_just_before, has_no_room, running_beside
from tracelab.model.latencies import (
    AWAITED,
    LONGEST_WAKE_UP_NS,
    SHORTEST_DELAY_NS,
    UNEXPLAINED_NS,
    Latencies,
    event_index,
    launch_index,
    measure_latencies,
    previous_index,
)
from tracelab.model.stream_progress import StreamProgress
from tracelab.model.stream_queues import StreamQueues
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class Constraint(IntEnum):
    """What an activity can have waited for; of those met at one moment the first counts."""

    STREAM = 0  # the end of the activities before it in its stream
    DEPENDENT_LAUNCH = 1  # only a sign of them: programmatic dependent launch, or a graph's node
    EVENT = 2  # what its stream was made to wait for
    PEER_COPY = 3  # a copy between devices in a default stream
    LAUNCH = 4  # the host's call
    QUEUE = 5  # work of another stream, launched before it: a shared hardware queue or copy engine
    NO_FREE_SM = 6  # kernels of other streams, which left no multiprocessor free
    UNKNOWN = 7  # the file does not say


_SHOW_LATENCIES = (
    Constraint.STREAM,
    Constraint.EVENT,
    Constraint.PEER_COPY,
    Constraint.LAUNCH,
)


class Reason(IntEnum):
    """Why it is not known what an activity, or a device, waited for."""

    NONE = 0
    LAUNCH_NOT_IN_FILE = 1
    HOST_NOT_RECORDED = 2
    WAIT_WITHOUT_RECORD = 3
    NOTHING_IN_THE_WAY = 4


REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.LAUNCH_NOT_IN_FILE: "the launch of the next activity is not in the file",
        Reason.HOST_NOT_RECORDED: "no event tells what the host did (record with_stack=True)",
        Reason.WAIT_WITHOUT_RECORD: "a stream waited for an event that the file does not name",
        Reason.NOTHING_IN_THE_WAY: "an activity started long after its launch, and the file shows "
        "nothing in its way: events may be missing",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Awaited(Frozen):
    """What stream waits and peer copies made each row of a timeline wait for.

    Attributes:
        row: int64[m], the row of another stream that ended last of those, ABSENT without any.
        is_inferred: bool[m], whether not the file but the times tell that.
        is_peer_copy: bool[m], whether it was a copy between devices, without any wait.
        after_unresolved_wait: bool[m], whether its stream waited for something else before it, that
            neither the file nor the times tell.
        any_stream_waits: whether waits are in the file whose streams are not: any may be meant.

    Example row: ``(row=12, is_inferred=True, is_peer_copy=False, after_unresolved_wait=False)``.
    """

    row: Int64Array
    is_inferred: NDArray[np.bool_]
    is_peer_copy: NDArray[np.bool_]
    after_unresolved_wait: NDArray[np.bool_]
    any_stream_waits: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binding(Frozen):
    """What each activity waited for; by row of the timeline.

    Attributes:
        launch_ns: int64[m], ns, when the call that launched it had returned, or when it began to
            launch where the activity started before that; ABSENT without one in the file.
        stream_ns: int64[m], ns, when all before it in its stream had ended; its own start where one
            of them still ran (DEPENDENT_LAUNCH); ABSENT without one.
        event_ns: int64[m], ns, when `event_row` had ended, ABSENT without one.
        event_row: int64[m], the row of another stream that a stream wait or a peer copy made it
            wait for, of several the one that ended last, ABSENT without any.
        event_is_inferred: bool[m], whether not the file but the times tell that.
        constraint: int8[m], a `Constraint`: what was met last.
        source_row: int64[m], the row that it waited for; ABSENT where that was the host, or is not
            known. Where the constraint is UNKNOWN, that of the last one known, or, without a
            launch in the file, what is likeliest.
        is_inferred: bool[m], whether not the file but the times tell what it waited for.
        ready_ns: int64[m], ns, when that constraint was met; its own start where that is not seen
            (DEPENDENT_LAUNCH, NO_FREE_SM). Where it is UNKNOWN, when the last one known was met.
        delay_ns: int64[m], ns, how much earlier it could have started without that constraint, by
            the others; ABSENT where it had no other.
        unexplained_ns: int64[m], ns, how long before its start it could have started by all that
            the file shows, if it was late and what ran beside it does not explain that; else 0.
        reason: int8[m], a `Reason`, NONE unless the constraint is UNKNOWN.
        latencies: what is typical in this trace.

    Example row: ``(launch_ns=300, stream_ns=500, event_ns=900, event_row=12,
    event_is_inferred=False, constraint=Constraint.EVENT, source_row=12, is_inferred=False,
    ready_ns=900, delay_ns=400, unexplained_ns=0, reason=Reason.NONE)``: it waited for the activity
    of row 12, 400 ns longer than for its stream.
    """

    launch_ns: Int64Array
    stream_ns: Int64Array
    event_ns: Int64Array
    event_row: Int64Array
    event_is_inferred: NDArray[np.bool_]
    constraint: NDArray[np.int8]
    source_row: Int64Array
    is_inferred: NDArray[np.bool_]
    ready_ns: Int64Array
    delay_ns: Int64Array
    unexplained_ns: Int64Array
    reason: NDArray[np.int8]
    latencies: Latencies


def bind(
    host: Host,
    queues: StreamQueues,
    progress: StreamProgress,
    awaited: Awaited,
    wake_up_ns: Int64Array,
) -> Binding:
    """Find what each activity waited for.

    The slow reference model is ``tests/reference/binding.py``.

    Args:
        host: the host side of the timeline.
        queues: the order of the launches.
        progress: how far the streams had got when.
        awaited: what stream waits and peer copies made rows wait for.
        wake_up_ns: int64[k], ns, how long blocking calls took to return once what they waited for
            had ended.
    """
    met = _met(host, progress, awaited)
    known = _last_met(host.timeline, awaited, met)
    index, latency_ns = shown_latencies(host, known)
    latencies = measure_latencies(
        np.append(index, np.full(len(wake_up_ns), AWAITED)), np.append(latency_ns, wake_up_ns)
    )
    row = np.flatnonzero(_is_late(host, known, latencies))
    late = _explain_late(host, queues, awaited, met, known, row)
    constraints = _without_launch(host.timeline, _with(known, row, late))
    return Binding(
        launch_ns=met.launch_ns,
        stream_ns=met.stream_ns,
        event_ns=met.event_ns,
        event_row=awaited.row,
        event_is_inferred=awaited.is_inferred,
        **{field.name: getattr(constraints, field.name) for field in fields(constraints)},
        latencies=latencies,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Met(Frozen):
    """When the constraints that the file shows were met, by row of the timeline.

    The times are those of `Binding`; `stream_row` (int64[m]) is the row of its stream that let it
    start, `is_dependent` (bool[m]) says where that one still ran.
    """

    stream_ns: Int64Array
    stream_row: Int64Array
    event_ns: Int64Array
    launch_ns: Int64Array
    is_dependent: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Constraints(Frozen):
    """What some rows waited for; columns as in `Binding`."""

    constraint: NDArray[np.int8]
    source_row: Int64Array
    is_inferred: NDArray[np.bool_]
    ready_ns: Int64Array
    delay_ns: Int64Array
    unexplained_ns: Int64Array
    reason: NDArray[np.int8]


def _with(known: _Constraints, row: NDArray[np.intp], late: _Constraints) -> _Constraints:
    """What is known of all rows, and more of some (intp[k])."""
    columns = {field.name: getattr(known, field.name).copy() for field in fields(known)}
    for name, column in columns.items():
        column[row] = getattr(late, name)
    return _Constraints(**columns)


def _met(host: Host, progress: StreamProgress, awaited: Awaited) -> _Met:
    timeline, launch_ns = host.timeline, _launch_ns(host)
    stream_ns, stream_row, is_dependent = _stream_constraints(timeline, progress, launch_ns)
    event_ns = np.where(awaited.row == ABSENT, ABSENT, timeline.end_ns[awaited.row])
    return _Met(stream_ns, stream_row, event_ns, launch_ns, is_dependent)


def _last_met(timeline: Timeline, awaited: Awaited, met: _Met) -> _Constraints:
    """Of the constraints that the file shows the one that was met last."""
    by_stream = np.where(met.is_dependent, Constraint.DEPENDENT_LAUNCH, Constraint.STREAM)
    by_event = np.where(awaited.is_peer_copy, Constraint.PEER_COPY, Constraint.EVENT)
    met_ns = np.stack((met.stream_ns, met.event_ns, met.launch_ns))
    last = met_ns.argmax(axis=0)  # of equal ones the first
    met_ns.sort(axis=0)
    last_ns, other_ns = met_ns[2], met_ns[1]
    is_any = last_ns != ABSENT
    is_last = [last == 0, last == 1]
    source_row = np.select(is_last, [met.stream_row, awaited.row], ABSENT)
    return _Constraints(
        constraint=np.select(is_last, [by_stream, by_event], Constraint.LAUNCH).astype(np.int8),
        source_row=np.where(is_any, source_row, ABSENT),
        is_inferred=awaited.is_inferred & is_last[1],
        ready_ns=np.where(is_any, last_ns, timeline.start_ns),
        delay_ns=np.where(other_ns == ABSENT, ABSENT, last_ns - other_ns),
        unexplained_ns=np.zeros(len(last), dtype=np.int64),
        reason=np.zeros(len(last), dtype=np.int8),
    )


def _stream_constraints(
    timeline: Timeline, progress: StreamProgress, launch_ns: Int64Array
) -> tuple[Int64Array, Int64Array, NDArray[np.bool_]]:
    """When its stream let each row start, by which row, and whether that one still ran then.

    What began early was let to by the one before it, at its own start, unless its launch came just
    before.
    """
    start_ns, end_ns = timeline.start_ns, timeline.end_ns
    row = np.arange(len(start_ns))
    # Of all before it in its stream the one that ended last.
    is_longest = end_ns == progress.ended_ns
    longest_row = np.maximum.accumulate(np.where(is_longest, row, ABSENT))
    follows = np.zeros(len(row), dtype=np.bool_)
    follows[1:] = timeline.stream_index[1:] == timeline.stream_index[:-1]
    has_ended = follows & (np.roll(progress.ended_ns, 1) <= start_ns)
    is_dependent = follows & timeline.overlaps_previous & ~has_ended
    was_launched = (launch_ns == ABSENT) | (start_ns - launch_ns > SHORTEST_DELAY_NS)
    # Where activities overlap as they should not, the one before counts for itself.
    ended_alone = follows & ~has_ended & ~is_dependent & (np.roll(end_ns, 1) <= start_ns)
    still_runs = np.roll(end_ns, 1) > start_ns
    source_row = np.where(
        has_ended | (is_dependent & ~still_runs), np.roll(longest_row, 1), row - 1
    )
    is_dependent &= was_launched
    source_row = np.where(has_ended | is_dependent | ended_alone, source_row, ABSENT)
    stream_ns = np.where(source_row == ABSENT, ABSENT, end_ns[source_row])
    return np.where(is_dependent, start_ns, stream_ns), source_row, is_dependent


def _launch_ns(host: Host) -> Int64Array:
    """When each row was launched, see `Binding.launch_ns`.

    What has long been launched starts 1 to 5 us after the call's return, however long the call
    took: only at its end does the work reach the GPU.
    """
    timeline, start_ns = host.timeline, host.timeline.start_ns
    return_ns = timeline.trace.end_ns[timeline.launch_id]
    began_ns = np.minimum(host.launched_ns[timeline.launch_id], start_ns)
    launch_ns = np.where(return_ns <= start_ns, return_ns, began_ns)
    return np.where(timeline.launch_id == ABSENT, ABSENT, launch_ns)


def _is_launching(host: Host) -> NDArray[np.bool_]:
    """bool[m], which rows started while a call ran that did nothing but launch them."""
    timeline = host.timeline
    return_ns = timeline.trace.end_ns[timeline.launch_id]
    is_launching: NDArray[np.bool_] = timeline.launch_id != ABSENT
    is_launching &= timeline.start_ns < return_ns
    return is_launching & ~_is_staged(host)


def _is_staged(host: Host) -> NDArray[np.bool_]:
    """bool[m], which rows are copies that the driver makes step by step, as of pageable memory.

    It first brings the memory to the GPU's reach; the call blocks, or has returned up to 0.7 ms
    before the copy begins.
    """
    calls = host.blocking_calls
    return np.isin(host.timeline.launch_id, calls.event_id[calls.kind == Blocking.COPY])


def shown_latencies(
    host: Host, constraints: Binding | _Constraints
) -> tuple[NDArray[np.intp], Int64Array]:
    """How long starts took once what they waited for was over, where the file shows that.

    Returns:
        intp[k], index into `LATENCIES`, and int64[k], ns.
    """
    timeline = host.timeline
    is_launch = constraints.constraint == Constraint.LAUNCH
    is_shown = (timeline.launch_id != ABSENT) & np.isin(constraints.constraint, _SHOW_LATENCIES)
    is_shown &= ~(is_launch & (_is_launching(host) | _is_staged(host)))
    # Of a graph only what starts first waits for the launch.
    is_shown[1:] &= ~is_launch[1:] | (timeline.launch_id[1:] != timeline.launch_id[:-1])
    latency_ns = timeline.start_ns - constraints.ready_ns
    return _latency_index(timeline, constraints)[is_shown], latency_ns[is_shown]


def _latency_index(timeline: Timeline, constraints: Binding | _Constraints) -> NDArray[np.intp]:
    """intp[m], index into `LATENCIES`: what lies between the constraint and the start."""
    kind, constraint = timeline.kind, constraints.constraint
    index = np.where(constraint == Constraint.LAUNCH, launch_index(kind), event_index(kind))
    is_stream = constraint == Constraint.STREAM
    return np.where(is_stream, previous_index(kind[constraints.source_row], kind), index)


def _is_late(host: Host, known: _Constraints, latencies: Latencies) -> NDArray[np.bool_]:
    """bool[m], which rows started later than the constraints that the file shows explain.

    A launch call that still ran is enough of an explanation for anything that it launches.
    """
    timeline, is_launching = host.timeline, _is_launching(host)
    typical_ns = latencies.typical_ns[_latency_index(timeline, known)]
    least_ns = np.where(is_launching, SHORTEST_DELAY_NS, UNEXPLAINED_NS)
    is_late = timeline.start_ns - known.ready_ns - typical_ns > least_ns
    is_launch: NDArray[np.bool_] = known.constraint == Constraint.LAUNCH
    return is_late & ~(is_launch & is_launching)


def _explain_late(
    host: Host,
    queues: StreamQueues,
    awaited: Awaited,
    met: _Met,
    known: _Constraints,
    row: NDArray[np.intp],
) -> _Constraints:
    """What late rows (intp[k]) waited for, as far as the host and what ran beside them tell."""
    timeline, may_be_wait = host.timeline, awaited.after_unresolved_wait[row]
    start_ns, ready_ns = timeline.start_ns[row], known.ready_ns[row]
    may_be_wait = may_be_wait | awaited.any_stream_waits
    # Nothing tells when such a wait was over, or when the profiler missed the launch.
    is_open = may_be_wait | (timeline.launch_id[row] == ABSENT)
    since_ns = np.where(is_open, np.maximum(ready_ns, start_ns - LONGEST_WAKE_UP_NS), ready_ns)
    ended_row = ended_just_before(timeline, queues, row, ready_ns)
    running_row = running_beside(timeline, row)
    is_launching = _is_launching(host)[row]
    is_behind = ~is_launching & (ended_row != ABSENT)
    is_of_host = is_launching | (_is_staged(host)[row] & ~is_behind)
    is_full = ~is_of_host & ~is_behind & (running_row != ABSENT)
    is_full &= has_no_room(timeline, row, since_ns)
    is_unexplained = ~(is_of_host | is_behind | is_full)
    # Within a graph the order is not in the file: what is known of its nodes stands.
    is_unknown = is_unexplained & (timeline.first_start_of_launch_ns[row] == start_ns)
    by_wait = may_be_wait | _is_ordered(timeline, row, ended_row)
    cases = [is_of_host, is_behind & by_wait, is_behind, is_full, is_unknown]
    constraints = [
        Constraint.LAUNCH,
        Constraint.EVENT,
        Constraint.QUEUE,
        Constraint.NO_FREE_SM,
        Constraint.UNKNOWN,
    ]
    sources = [np.full(len(row), ABSENT), ended_row, ended_row, running_row]
    # What ended just before was over then; when the others let it start cannot be seen.
    met_ns = np.where(is_behind, timeline.end_ns[ended_row], start_ns)
    others_ns = np.maximum(met.stream_ns, met.event_ns)[row]
    others_ns = np.where(is_of_host, others_ns, ready_ns)
    delay_ns = np.where(others_ns == ABSENT, ABSENT, met_ns - others_ns)
    is_known = is_unexplained & ~is_unknown
    # What a wait is for has ended: on another device, or there was no room afterwards.
    is_wait = may_be_wait & ((running_row != ABSENT) | (len(timeline.device_numbers) > 1))
    reason = np.where(is_wait, Reason.WAIT_WITHOUT_RECORD, Reason.NOTHING_IN_THE_WAY)
    return _Constraints(
        constraint=np.select(cases, constraints, known.constraint[row]).astype(np.int8),
        source_row=np.select(cases[:4], sources, known.source_row[row]),
        is_inferred=np.where(is_known, known.is_inferred[row], ~is_unexplained),
        ready_ns=np.where(is_unexplained, ready_ns, met_ns),
        delay_ns=np.where(is_known, known.delay_ns[row], delay_ns),
        unexplained_ns=np.where(is_unexplained | (is_full & is_open), start_ns - ready_ns, 0),
        reason=np.where(is_unknown, reason, Reason.NONE).astype(np.int8),
    )


def _without_launch(timeline: Timeline, constraints: _Constraints) -> _Constraints:
    """The same, where nothing is known of activities whose launch is not in the file.

    What is likeliest to have been in their way stays their source.
    """
    is_missing = timeline.launch_id == ABSENT
    late_ns = timeline.start_ns - constraints.ready_ns
    return replace(
        constraints,
        constraint=np.where(is_missing, Constraint.UNKNOWN, constraints.constraint).astype(np.int8),
        is_inferred=constraints.is_inferred & ~is_missing,
        delay_ns=np.where(is_missing, late_ns, constraints.delay_ns),
        reason=np.where(is_missing, Reason.LAUNCH_NOT_IN_FILE, constraints.reason).astype(np.int8),
    )


def _is_ordered(
    timeline: Timeline, row: NDArray[np.intp], ended_row: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """bool[k], whether a wait orders two rows for sure, though the file does not show it.

    Within a graph all order is by its edges, and NCCL makes the streams of a communicator wait for
    each other.
    """
    is_comm = timeline.kind == Kind.COMM
    is_ordered: NDArray[np.bool_] = timeline.launch_id[row] == timeline.launch_id[ended_row]
    is_ordered &= timeline.launch_id[row] != ABSENT
    is_ordered |= is_comm[row] & is_comm[ended_row]
    return is_ordered
