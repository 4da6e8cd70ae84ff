"""Blockers of overlap: the way back through the binding dependencies."""

from __future__ import annotations

from enum import IntEnum
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, IndexArray, Int8Array, Int64Array, concatenated, read_only
from tracelab.base.intervals import Intervals, intersect, measure, measure_within, union
from tracelab.measures.overlap import compared_streams
from tracelab.model.activities import Stream
from tracelab.model.binding import Constraint
from tracelab.model.graph import Graph
from tracelab.model.host import host_stalls, waits_for
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# Memsets and markers between a collective and the compute that waited for it.
_MAX_HOPS = 16

_Integer = TypeVar("_Integer", bound=np.integer[Any])


class OverlapBlocker(IntEnum):
    """Reason why two pieces of work did not run at the same time."""

    SAME_STREAM = 0
    EVENT_WAIT = 1
    HOST_SYNC = 2  # a blocking call kept the host from launching the second one in time
    LATE_LAUNCH = 3
    HARDWARE_QUEUE = 4  # one stood behind the other
    NO_FREE_SM = 5  # the first one left no multiprocessor free
    TRUE_DEPENDENCY = 6  # there was no other work that did not need it
    UNKNOWN = 7


# These constraints lead on to another row, and make of the way: by value of `Constraint`, the
# strongest of `SAME_STREAM`, `EVENT_WAIT` and `HARDWARE_QUEUE`.
_LEADS_ON = (
    Constraint.STREAM,
    Constraint.DEPENDENT_LAUNCH,
    Constraint.EVENT,
    Constraint.PEER_COPY,
    Constraint.QUEUE,
)
_PASSED_OF = {
    Constraint.EVENT: OverlapBlocker.EVENT_WAIT,
    Constraint.PEER_COPY: OverlapBlocker.EVENT_WAIT,
    Constraint.QUEUE: OverlapBlocker.HARDWARE_QUEUE,
}
_PASSED = read_only(
    np.array(
        [_PASSED_OF.get(constraint, OverlapBlocker.SAME_STREAM) for constraint in Constraint],
        np.int8,
    )
)


class OverlapBlockers:
    """Says of two rows of a timeline what kept the one from overlapping the other.

    `launched_ns` and `thread_index` ([m]) are when the launch call of each row got to launch, and
    its thread, or ABSENT.
    """

    def __init__(self, graph: Graph) -> None:
        host, timeline = graph.host, graph.host.timeline
        trace = timeline.trace
        is_launched = timeline.launch_id != ABSENT

        def launch_values(column: NDArray[_Integer]) -> NDArray[_Integer]:
            return read_only(
                np.where(is_launched, column[timeline.launch_id], column.dtype.type(ABSENT))
            )

        self.timeline = timeline
        self.blocking_calls = host.blocking_calls
        self.launched_ns = launch_values(host.launched_ns)
        self.thread_index = launch_values(trace.thread_index)
        self._graph = graph
        self._stalls = host_stalls(host)
        by_start = np.argsort(self._stalls.start_ns, kind="stable")
        # Of each thread's stalls by start: index, start, and the latest end so far.
        self._stalls_of_thread = {
            thread: (
                by_start[indices],
                self._stalls.start_ns[by_start[indices]],
                np.maximum.accumulate(self._stalls.end_ns[by_start[indices]]),
            )
            for thread, indices in groups_of(self._stalls.thread_index[by_start])
        }

    def between(
        self, row: IndexArray, other_row: IndexArray, since_ns: Int64Array
    ) -> tuple[Int8Array, Int64Array]:
        """Say what kept rows from overlapping others that ran since then: `OverlapBlocker`, [k].

        Beside it the event ids of the blocking calls behind HOST_SYNC, else ABSENT. Walks back
        through `Binding` while that is short work between the two.
        """
        timeline, binding = self.timeline, self._graph.binding
        blocker = np.full(len(row), OverlapBlocker.TRUE_DEPENDENCY, dtype=np.int8)
        blocking_call_id = np.full(len(row), ABSENT, dtype=np.int64)
        row, passed = row.astype(np.int64), np.full(len(row), OverlapBlocker.SAME_STREAM, np.int8)
        # The file does not say what depends on what within one replay, or shares a queue.
        open_index = np.flatnonzero(timeline.launch_id[row] != timeline.launch_id[other_row])
        for _ in range(_MAX_HOPS):
            if not len(open_index):
                break
            open_row, open_since_ns = row[open_index], since_ns[open_index]
            constraint, source_row = binding.constraint[open_row], binding.source_row[open_row]
            # What was met before the other one ran leaves no more than a latency.
            is_bound = binding.ready_ns[open_row] >= open_since_ns
            is_late = is_bound & (constraint == Constraint.LAUNCH)
            is_bound &= np.isin(constraint, _LEADS_ON)
            # The source is the other, comes after it in its stream or is of its kind.
            other = other_row[open_index]
            is_after = timeline.end_ns[source_row] >= timeline.end_ns[other]
            is_after = (is_after | (source_row == other)) & (
                timeline.stream_index[source_row] == timeline.stream_index[other]
            )
            is_same_kind = timeline.kind[source_row] == timeline.kind[other]
            is_reached = is_bound & (is_after | is_same_kind)
            is_later = timeline.start_ns[open_row] > open_since_ns
            late_index, reached_index = open_index[is_late], open_index[is_reached]
            blocker[late_index], blocking_call_id[late_index] = self._late_launch(
                open_row[is_late], open_since_ns[is_late]
            )
            for binds, reason in (
                (Constraint.NO_FREE_SM, OverlapBlocker.NO_FREE_SM),
                (Constraint.UNKNOWN, OverlapBlocker.UNKNOWN),
            ):
                blocker[open_index[is_later & (constraint == binds)]] = reason
            passed[open_index] = np.maximum(passed[open_index], _PASSED[constraint])
            blocker[reached_index] = passed[reached_index]
            row[open_index] = source_row
            open_index = open_index[is_bound & ~is_reached]
        return read_only(blocker), read_only(blocking_call_id)

    def _late_launch(self, row: Int64Array, since_ns: Int64Array) -> tuple[Int8Array, Int64Array]:
        """The host launched rows late: because of a blocking call, or because it was slow."""
        until_ns = self.launched_ns[row]
        index, stall_index = self._stalls_before_launch(row, since_ns)
        # The one that blocked longest since then; of two allocations, by how long each went on.
        call_index = self._stalls.call_index[stall_index]
        start_ns = self._stalls.start_ns[stall_index]
        blocked_ns = np.minimum(self.blocking_calls.end_ns[call_index], until_ns[index])
        blocked_ns -= np.maximum(start_ns, since_ns[index])
        # The last one of each row stays: of those that blocked as long, the first.
        order = np.lexsort((-stall_index, -start_ns, blocked_ns))
        blocking_call_id = np.full(len(row), ABSENT, dtype=np.int64)
        blocking_call_id[index[order]] = self.blocking_calls.event_id[call_index[order]]
        is_blocked = blocking_call_id != ABSENT
        blocker = np.where(is_blocked, OverlapBlocker.HOST_SYNC, OverlapBlocker.LATE_LAUNCH)
        return blocker.astype(np.int8), blocking_call_id

    def _stalls_before_launch(
        self, row: Int64Array, since_ns: Int64Array
    ) -> tuple[IndexArray, IndexArray]:
        """Pairs: index of a row here, index of a host stall between its moment and its launch."""
        host, stalls = self._graph.host, self._stalls
        until_ns, thread_index = self.launched_ns[row], self.thread_index[row]
        indices, stall_indices = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
        for thread, (stall_index, start_ns, reach_ns) in self._stalls_of_thread.items():
            may_wait = np.flatnonzero((thread_index == thread) | (thread in host.launching_threads))
            first = np.searchsorted(reach_ns, since_ns[may_wait], side="right")
            last = np.searchsorted(start_ns, until_ns[may_wait])
            range_index, position = expand_ranges(first, last)
            indices.append(may_wait[range_index])
            stall_indices.append(stall_index[position])
        index, stall_index = np.concatenate(indices), np.concatenate(stall_indices)
        waits = stalls.end_ns[stall_index] > since_ns[index]
        waits &= waits_for(
            host,
            thread_index[index],
            stalls.thread_index[stall_index],
            stalls.start_ns[stall_index],
        )
        return index[waits], stall_index[waits]


# Of the whole trace: a stream that computes less does no independent work.
_MIN_COMPUTE_SHARE = 0.05
# Of the time of the stream that computes less: with more overlap they are not serialized.
_MAX_OVERLAP_SHARE = 0.2
# What needed the other, came late by itself, or may have.
_NOT_SERIALIZED = (
    OverlapBlocker.TRUE_DEPENDENCY,
    OverlapBlocker.LATE_LAUNCH,
    OverlapBlocker.UNKNOWN,
)


class SerializedStreams(Arrays):
    """Time in which one stream of a device computed and the next kernel of another could not.

    Attributes:
        row, other_row: [k], the timeline row that was blocked, and the last one in the other
            stream.
        blocking_call_id: event id of the blocking call behind HOST_SYNC, else ABSENT.
        bound_ns: the compute that the blocked stream then did before it was blocked again, at most
            the length.
    """

    row: IndexArray
    other_row: IndexArray
    start_ns: Int64Array
    end_ns: Int64Array
    blocker: Int8Array
    blocking_call_id: Int64Array
    bound_ns: Int64Array


def serialized_streams(graph: Graph) -> SerializedStreams:
    """Find the streams that ran serialized, on every device."""
    timeline, blockers = graph.host.timeline, OverlapBlockers(graph)
    least_ns = _MIN_COMPUTE_SHARE * timeline.windows[0].length_ns
    busy = [x for x in compared_streams(timeline) if measure(_computing(timeline, x)) >= least_ns]
    pairs = [
        _serialized_pair(blockers, one, other)
        for one, other in combinations(busy, 2)
        if one.device_number == other.device_number and _exclude_each_other(timeline, one, other)
    ]
    return concatenated([_none(), *pairs])


def _none() -> SerializedStreams:
    empty = np.zeros(0, dtype=np.int64)
    return SerializedStreams(empty, empty, empty, empty, empty.astype(np.int8), empty, empty)


def _compute_rows(timeline: Timeline, stream: Stream) -> IndexArray:
    is_compute = timeline.kind[stream.first_row : stream.end_row] == Kind.COMPUTE
    return read_only(stream.first_row + np.flatnonzero(is_compute))


def _computing(timeline: Timeline, stream: Stream) -> Intervals:
    rows = _compute_rows(timeline, stream)
    return union(timeline.start_ns[rows], timeline.end_ns[rows])


def _exclude_each_other(timeline: Timeline, one: Stream, other: Stream) -> bool:
    one_busy, other_busy = (_computing(timeline, stream) for stream in (one, other))
    lesser_ns = min(measure(one_busy), measure(other_busy))
    return measure(intersect(one_busy, other_busy)) <= _MAX_OVERLAP_SHARE * lesser_ns


def _serialized_pair(blockers: OverlapBlockers, one: Stream, other: Stream) -> SerializedStreams:
    timeline = blockers.timeline
    # If two begin together, the stream with the smaller number is first.
    rows = np.sort(np.concatenate((_compute_rows(timeline, one), _compute_rows(timeline, other))))
    rows = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
    # A run is what one of the two computes before the other does.
    first = np.flatnonzero(np.diff(timeline.stream_index[rows], prepend=ABSENT))
    run_ns = np.add.reduceat(timeline.end_ns[rows] - timeline.start_ns[rows], first)
    row, other_row = rows[first[1:]], rows[first[1:] - 1]
    start_ns = timeline.start_ns[rows[first[:-1]]]
    end_ns = np.minimum(timeline.end_ns[other_row], timeline.start_ns[row])
    calls, launched_ns = blockers.blocking_calls, blockers.launched_ns[row]
    in_blocking_calls = union(calls.start_ns, calls.end_ns)
    host_blocked_ns = measure_within(in_blocking_calls, start_ns, np.maximum(start_ns, launched_ns))
    is_candidate = (end_ns > start_ns) & ((launched_ns < start_ns) | (host_blocked_ns > 0))
    change = np.flatnonzero(is_candidate)
    blocker, blocking_call_id = blockers.between(row[change], other_row[change], start_ns[change])
    is_blocked = ~np.isin(blocker, _NOT_SERIALIZED)
    change = change[is_blocked]
    return SerializedStreams(
        row=row[change],
        other_row=other_row[change],
        start_ns=start_ns[change],
        end_ns=end_ns[change],
        blocker=blocker[is_blocked],
        blocking_call_id=blocking_call_id[is_blocked],
        bound_ns=np.minimum(end_ns[change] - start_ns[change], run_ns[change + 1]),
    )
