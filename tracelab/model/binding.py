"""Binding wait of each GPU activity: found here once, and read by everything else.

An activity starts once its launch, the activity before it in its stream and what its stream waits
for are over, and the GPU has room for it. The constraint in the file that was met last counts. A
start much later than typical (`latencies`) most likely waited for earlier work of another stream of
its device: what ended just before it, or kernels that left no multiprocessor free. Else a `Reason`
says why the wait is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int64Array
from tracelab.base.intervals import measure_within
from tracelab.model.host import Host
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.latencies import (
    AWAITED,
    MAX_WAKE_UP_NS,
    MIN_DELAY_NS,
    NODE,
    UNEXPLAINED_NS,
    Latencies,
    event_index,
    launch_index,
    measure_latencies,
    previous_index,
)
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.stream_progress import StreamProgress, StreamQueues
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class Constraint(IntEnum):
    """Kind of wait of an activity; of several that end at one moment the first counts."""

    STREAM = 0  # the end of the activities before it in its stream
    DEPENDENT_LAUNCH = 1  # only a sign of them: programmatic dependent launch, or a graph's node
    EVENT = 2  # what its stream was made to wait for
    PEER_COPY = 3  # a copy between devices in a default stream
    LAUNCH = 4
    QUEUE = 5  # what shares its hardware queue or copy engine
    NO_FREE_SM = 6  # kernels of other streams filled the multiprocessors
    UNKNOWN = 7
    CALLBACK = 8  # found by earlier versions; the key of the reports stays


class Reason(IntEnum):
    """Reason why the wait of an activity, or a device, is unknown."""

    NONE = 0
    LAUNCH_NOT_IN_FILE = 1
    HOST_NOT_RECORDED = 2
    WAIT_WITHOUT_RECORD = 3
    NOTHING_IN_THE_WAY = 4


REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.LAUNCH_NOT_IN_FILE: "the launch of the next activity is not in the file",
        Reason.HOST_NOT_RECORDED: "no event says what the CPU did (record with_stack=True)",
        Reason.WAIT_WITHOUT_RECORD: "a stream waited for work of another one, and the file does "
        "not say which",
        Reason.NOTHING_IN_THE_WAY: "an activity started long after its launch, and the file shows "
        "nothing in its way: events may be missing",
    }
)


class Awaited(Arrays):
    """Waits of each row of a timeline because of stream waits and peer copies.

    `row` ([m]) is the row of another stream that ended last of those, else ABSENT; after an
    unresolved wait of its stream there may be another. If `any_stream_waits`, the streams of some
    waits are not known: any may be meant.
    """

    row: Int64Array
    is_inferred: BoolArray
    is_peer_copy: BoolArray
    after_unresolved_wait: BoolArray
    any_stream_waits: bool


_SHOW_LATENCIES = (Constraint.STREAM, Constraint.EVENT, Constraint.PEER_COPY, Constraint.LAUNCH)


class Constraints(Arrays):
    """Waits of some rows of the timeline.

    Attributes:
        constraint: [m], a `Constraint`: what was met last.
        source_row: the row that it waited for; ABSENT for the host, or if not known. For UNKNOWN,
            that of the last constraint known, or what is likeliest.
        ready_ns: when that constraint was met, for UNKNOWN the last one known; its own start where
            that is not seen (DEPENDENT_LAUNCH, NO_FREE_SM).
        delay_ns: how much earlier it could have started without that constraint; ABSENT where it
            had no other.
        unexplained_ns: how long before its start it could have started by all that the file shows,
            if nothing explains that; else 0.
        reason: a `Reason`, NONE unless the constraint is UNKNOWN.
    """

    constraint: Int8Array
    source_row: Int64Array
    is_inferred: BoolArray
    ready_ns: Int64Array
    delay_ns: Int64Array
    unexplained_ns: Int64Array
    reason: Int8Array


class Binding(Constraints):
    """Wait of each activity, by row of the timeline.

    Attributes, besides those of `Constraints`:
        launch_ns: [m], when its launch call had returned, or began if it started before that;
            ABSENT without one in the file.
        stream_ns: when all before it in its stream had ended; its own start where one of them still
            ran (DEPENDENT_LAUNCH); ABSENT without one.
        event_ns, event_row: when the row of another stream that a stream wait or a peer copy made
            it wait for had ended, and that row, of several the last; else ABSENT.
    """

    launch_ns: Int64Array
    stream_ns: Int64Array
    event_ns: Int64Array
    event_row: Int64Array
    event_is_inferred: BoolArray
    latencies: Latencies


def bind(
    host: Host,
    queues: StreamQueues,
    progress: StreamProgress,
    awaited: Awaited,
    wake_up_ns: Int64Array,
) -> Binding:
    """Find what each activity waited for.

    `awaited` is due to stream waits and peer copies; `wake_up_ns` is how long blocking calls took
    to return once what they waited for had ended.
    """
    timeline, launch_ns = host.timeline, _launch_ns(host)
    stream_ns, stream_row, is_dependent = _stream_constraints(timeline, progress, launch_ns)
    event_ns = np.where(awaited.row == ABSENT, ABSENT, timeline.end_ns[awaited.row])
    met_ns = np.stack((stream_ns, event_ns, launch_ns))
    known = _last_met(timeline, awaited, met_ns, stream_row, is_dependent)
    index, latency_ns = shown_latencies(host, known)
    latencies = measure_latencies(
        np.append(index, np.full(len(wake_up_ns), AWAITED)), np.append(latency_ns, wake_up_ns)
    )
    row = np.flatnonzero(_is_late(host, known, latencies))
    late = _explain_late(host, queues, awaited, np.maximum(stream_ns, event_ns), known, row)
    constraints = _clear_missing_launches(timeline, _replace_rows(known, row, late))
    return Binding(
        launch_ns=launch_ns,
        stream_ns=stream_ns,
        event_ns=event_ns,
        event_row=awaited.row,
        event_is_inferred=awaited.is_inferred,
        **{field.name: getattr(constraints, field.name) for field in fields(constraints)},
        latencies=latencies,
    )


def _replace_rows(known: Constraints, row: IndexArray, late: Constraints) -> Constraints:
    columns = {field.name: getattr(known, field.name).copy() for field in fields(known)}
    for name, column in columns.items():
        column[row] = getattr(late, name)
    return Constraints(**columns)


def _last_met(
    timeline: Timeline,
    awaited: Awaited,
    met_ns: Int64Array,
    stream_row: Int64Array,
    is_dependent: BoolArray,
) -> Constraints:
    by_stream = np.where(is_dependent, Constraint.DEPENDENT_LAUNCH, Constraint.STREAM)
    by_event = np.where(awaited.is_peer_copy, Constraint.PEER_COPY, Constraint.EVENT)
    last = met_ns.argmax(axis=0)  # of equal ones the first
    *_, other_ns, last_ns = np.sort(met_ns, axis=0)
    is_any = last_ns != ABSENT
    is_last = [last == 0, last == 1]
    return Constraints(
        constraint=np.select(is_last, [by_stream, by_event], Constraint.LAUNCH).astype(np.int8),
        source_row=np.where(is_any, np.select(is_last, [stream_row, awaited.row], ABSENT), ABSENT),
        is_inferred=is_last[1] & awaited.is_inferred,
        ready_ns=np.where(is_any, last_ns, timeline.start_ns),
        delay_ns=np.where(other_ns == ABSENT, ABSENT, last_ns - other_ns),
        unexplained_ns=np.zeros(len(last), dtype=np.int64),
        reason=np.zeros(len(last), dtype=np.int8),
    )


def _stream_constraints(
    timeline: Timeline, progress: StreamProgress, launch_ns: Int64Array
) -> tuple[Int64Array, Int64Array, BoolArray]:
    # What began early was let to by the one before it, at its own start, unless it was launched
    # just before.
    start_ns, end_ns = timeline.start_ns, timeline.end_ns
    row = np.arange(len(start_ns))
    # Of all before it in its stream the one that ended last.
    is_longest = end_ns == progress.ended_ns
    longest_row = np.maximum.accumulate(np.where(is_longest, row, ABSENT))
    follows = np.zeros(len(row), dtype=np.bool_)
    follows[1:] = timeline.stream_index[1:] == timeline.stream_index[:-1]
    has_ended = follows & (np.roll(progress.ended_ns, 1) <= start_ns)
    is_dependent = follows & timeline.overlaps_previous & ~has_ended
    was_launched = (launch_ns == ABSENT) | (start_ns - launch_ns > MIN_DELAY_NS)
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
    # Work reaches the GPU at the end of its call: it starts 1 to 5 us after, however long that was.
    timeline, start_ns = host.timeline, host.timeline.start_ns
    return_ns = timeline.trace.end_ns[timeline.launch_id]
    began_ns = np.minimum(host.launched_ns[timeline.launch_id], start_ns)
    launch_ns = np.where(return_ns <= start_ns, return_ns, began_ns)
    return np.where(timeline.launch_id == ABSENT, ABSENT, launch_ns)


def shown_latencies(host: Host, constraints: Constraints) -> tuple[IndexArray, Int64Array]:
    """The latencies of starts after their wait: index into `LATENCIES`, and ns."""
    timeline = host.timeline
    is_launch = constraints.constraint == Constraint.LAUNCH
    is_shown = (timeline.launch_id != ABSENT) & np.isin(constraints.constraint, _SHOW_LATENCIES)
    is_shown &= ~(is_launch & (host.starts_in_its_call | host.is_staged))
    # Of a graph only what starts first waits for the launch.
    is_shown[1:] &= ~is_launch[1:] | (timeline.launch_id[1:] != timeline.launch_id[:-1])
    latency_ns = timeline.start_ns - constraints.ready_ns
    # Within a replay nodes follow each other faster, which counts for itself as well.
    launch_id, source_row = timeline.launch_id, constraints.source_row
    is_node = is_shown & (constraints.constraint == Constraint.STREAM)
    is_node &= launch_id == launch_id[source_row]
    index = _latency_index(timeline, constraints)[is_shown]
    return (
        np.append(index, np.full(np.count_nonzero(is_node), NODE)),
        np.append(latency_ns[is_shown], latency_ns[is_node]),
    )


def _latency_index(timeline: Timeline, constraints: Constraints) -> IndexArray:
    kind, constraint = timeline.kind, constraints.constraint
    index = np.where(constraint == Constraint.LAUNCH, launch_index(kind), event_index(kind))
    is_stream = np.isin(constraint, (Constraint.STREAM, Constraint.QUEUE))
    return np.where(is_stream, previous_index(kind[constraints.source_row], kind), index)


def _is_late(host: Host, known: Constraints, latencies: Latencies) -> BoolArray:
    # A launch call that still ran is enough of an explanation for anything that it launches.
    timeline, is_launching = host.timeline, host.starts_in_its_call
    typical_ns = latencies.typical_ns[_latency_index(timeline, known)]
    least_ns = np.where(is_launching, MIN_DELAY_NS, UNEXPLAINED_NS)
    is_late = timeline.start_ns - known.ready_ns - typical_ns > least_ns
    is_launch: BoolArray = known.constraint == Constraint.LAUNCH
    return is_late & ~(is_launch & is_launching)


def _clear_missing_launches(timeline: Timeline, constraints: Constraints) -> Constraints:
    # Of these nothing is known; what is likeliest to have been in their way stays their source.
    is_missing = timeline.launch_id == ABSENT
    late_ns = timeline.start_ns - constraints.ready_ns
    return replace(
        constraints,
        constraint=np.where(is_missing, Constraint.UNKNOWN, constraints.constraint).astype(np.int8),
        is_inferred=constraints.is_inferred & ~is_missing,
        delay_ns=np.where(is_missing, late_ns, constraints.delay_ns),
        reason=np.where(is_missing, Reason.LAUNCH_NOT_IN_FILE, constraints.reason).astype(np.int8),
    )


# Activities that ended just before a start: more than a GPU has hardware queues.
_MAX_ENDED_ACTIVITIES = 64


def _explain_late(
    host: Host,
    queues: StreamQueues,
    awaited: Awaited,
    others_ns: Int64Array,
    known: Constraints,
    row: IndexArray,
) -> Constraints:
    timeline, may_be_wait = host.timeline, awaited.after_unresolved_wait[row]
    start_ns, ready_ns = timeline.start_ns[row], known.ready_ns[row]
    may_be_wait = may_be_wait | awaited.any_stream_waits
    # Nothing tells when such a wait was over, or when the profiler missed the launch.
    is_open = may_be_wait | (timeline.launch_id[row] == ABSENT)
    since_ns = np.where(is_open, np.maximum(ready_ns, start_ns - MAX_WAKE_UP_NS), ready_ns)
    ended_row = _ended_just_before(timeline, queues, row, ready_ns)
    running_row = _running_beside(timeline, row)
    is_launching = host.starts_in_its_call[row]
    is_behind = ~is_launching & (ended_row != ABSENT)
    is_of_host = is_launching | (host.is_staged[row] & ~is_behind)
    is_full = ~is_of_host & ~is_behind & (running_row != ABSENT)
    is_full &= _has_no_room(timeline, row, since_ns)
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
    others_ns = np.where(is_of_host, others_ns[row], ready_ns)
    delay_ns = np.where(others_ns == ABSENT, ABSENT, met_ns - others_ns)
    is_known = is_unexplained & ~is_unknown
    # Any wait may be its own where what it was for has ended: on another device, or there was no
    # room afterwards.
    has_other = (running_row != ABSENT) | (len(timeline.device_numbers) > 1)
    is_wait = awaited.after_unresolved_wait[row] | (awaited.any_stream_waits & has_other)
    reason = np.where(is_wait, Reason.WAIT_WITHOUT_RECORD, Reason.NOTHING_IN_THE_WAY)
    return Constraints(
        constraint=np.select(cases, constraints, known.constraint[row]).astype(np.int8),
        source_row=np.select(cases[:4], sources, known.source_row[row]),
        is_inferred=np.where(is_known, known.is_inferred[row], ~is_unexplained),
        ready_ns=np.where(is_unexplained, ready_ns, met_ns),
        delay_ns=np.where(is_known, known.delay_ns[row], delay_ns),
        unexplained_ns=np.where(is_unexplained | (is_full & is_open), start_ns - ready_ns, 0),
        reason=np.where(is_unknown, reason, Reason.NONE).astype(np.int8),
    )


def _is_ordered(timeline: Timeline, row: IndexArray, ended_row: IndexArray) -> BoolArray:
    # Within a graph all order is by its edges, and NCCL orders the streams of a communicator.
    is_comm = timeline.kind == Kind.COMM
    is_ordered: BoolArray = timeline.launch_id[row] == timeline.launch_id[ended_row]
    is_ordered &= timeline.launch_id[row] != ABSENT
    is_ordered |= is_comm[row] & is_comm[ended_row]
    return is_ordered


def _ended_just_before(
    timeline: Timeline, queues: StreamQueues, row: IndexArray, ready_ns: Int64Array
) -> IndexArray:
    by_end = np.argsort(timeline.end_ns, kind="stable")
    end_ns, start_ns = timeline.end_ns[by_end], timeline.start_ns[row]
    since_ns = np.maximum(ready_ns + 1, start_ns - MAX_WAKE_UP_NS)
    ended_row = np.full(len(row), ABSENT, dtype=np.intp)
    position = np.searchsorted(end_ns, start_ns, side="right") - 1
    open_index = np.arange(len(row))
    for _ in range(_MAX_ENDED_ACTIVITIES * len(timeline.device_numbers)):
        open_index = open_index[position[open_index] >= 0]
        open_index = open_index[end_ns[position[open_index]] >= since_ns[open_index]]
        if not len(open_index):
            break
        late_row, ended = row[open_index], by_end[position[open_index]]
        fits = timeline.stream_index[ended] != timeline.stream_index[late_row]
        fits &= timeline.device_number[ended] == timeline.device_number[late_row]
        fits &= queues.launch_ns[ended] <= queues.launch_ns[late_row]
        fits &= timeline.start_ns[ended] < timeline.start_ns[late_row]
        ended_row[open_index[fits]] = ended[fits]
        open_index = open_index[~fits]
        position[open_index] -= 1
    return ended_row


def _running_beside(timeline: Timeline, row: IndexArray) -> IndexArray:
    # The compute in another stream of the device; collectives take few multiprocessors.
    running_row = np.full(len(row), ABSENT, dtype=np.intp)
    for device, late in groups_of(timeline.device_number[row]):
        compute = np.flatnonzero(timeline.select(device=device, kind=Kind.COMPUTE))
        by_start = compute[np.argsort(timeline.start_ns[compute], kind="stable")]
        reach_ns = np.maximum.accumulate(timeline.end_ns[by_start])
        is_longest = timeline.end_ns[by_start] == reach_ns
        longest = np.maximum.accumulate(np.where(is_longest, np.arange(len(by_start)), 0))
        begun = np.searchsorted(timeline.start_ns[by_start], timeline.start_ns[row[late]]) - 1
        beside, begun = late[begun >= 0], begun[begun >= 0]
        running = by_start[longest[begun]]
        runs = timeline.end_ns[running] > timeline.start_ns[row[beside]]
        runs &= timeline.stream_index[running] != timeline.stream_index[row[beside]]
        running_row[beside[runs]] = running[runs]
    return running_row


def _has_no_room(timeline: Timeline, row: IndexArray, since_ns: Int64Array) -> BoolArray:
    # Kernels computed on its device until it started. Pauses of up to 20 us together do not count,
    # and copies that leave or reach the device need no multiprocessor.
    start_ns, idle_ns = timeline.start_ns[row], np.zeros(len(row), dtype=np.int64)
    for device, late in groups_of(timeline.device_number[row]):
        computing = timeline.busy(timeline.select(device=device, kind=Kind.COMPUTE))
        busy_ns = measure_within(computing, since_ns[late], start_ns[late])
        idle_ns[late] = start_ns[late] - since_ns[late] - busy_ns
    is_copy = timeline.kind[row] == Kind.COPY
    is_copy &= ~match_names(
        timeline.trace, timeline.event_id[row], lambda name: copy_direction(name) == "d2d"
    )
    has_none: BoolArray = ~is_copy & (idle_ns <= UNEXPLAINED_NS)
    return has_none
