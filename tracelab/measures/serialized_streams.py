"""Compute in two streams of a device that ran serialized, and what serialized it.

Only streams that both compute are looked at, and only time in which one of them computed while the
other one's next kernel was blocked.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, concatenated, read_only
from tracelab.base.intervals import (
    IndexArray,
    Int64Array,
    Intervals,
    intersect,
    measure,
    measure_within,
    union,
)
from tracelab.measures.graph_streams import compared_streams
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers
from tracelab.model.activities import Stream
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

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
        row: [k], the timeline row that was blocked.
        other_row: the last timeline row that ran before it in the other stream.
        start_ns, end_ns: while the other stream ran.
        blocker: an `OverlapBlocker`.
        blocking_call_id: event id of the blocking call behind HOST_SYNC, else ABSENT.
        bound_ns: the compute that the blocked stream then did before it was blocked again, at most
            the length.
    """

    row: IndexArray
    other_row: IndexArray
    start_ns: Int64Array
    end_ns: Int64Array
    blocker: NDArray[np.int8]
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
