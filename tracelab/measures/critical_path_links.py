"""What each activity and each host stall waited for: where the critical path goes on.

A stream starts its next activity within microseconds once nothing is in the way. Where one that was
launched before starts later than that after all that it is known to depend on, something unresolved
blocked it: an activity of its device that ended just before (a wait whose record the file does not
name) or, without any, one that was still running (no free multiprocessor).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import Int64Array
from tracelab.measures.host_stalls import waits_for
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.host import Host
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# Ten times the usual gap between two activities of one stream that wait for nothing (H200: 1.6 us).
_QUEUE_LATENCY_NS = 16_000
_NEVER = 2**63 - 1

HOST = -2  # in the place of a row: the path goes on on the host


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RowsByEnd(Frozen):
    """The timeline rows of one device by end.

    Attributes:
        row: intp[k].
        end_ns: int64[k], ns.
        empty_end_ns: int64[e], ns, the ends of those that have no length.
    """

    row: NDArray[np.intp]
    end_ns: Int64Array
    empty_end_ns: Int64Array

    def before(self, time_ns: Int64Array) -> NDArray[np.intp]:
        """The row that ended last by each moment and began before it, else ABSENT."""
        # Of those that end at the moment, the ones that begin there as well come last.
        empty_until = np.searchsorted(self.empty_end_ns, time_ns, "right")
        empty_now = empty_until - np.searchsorted(self.empty_end_ns, time_ns)
        position = np.searchsorted(self.end_ns, time_ns, "right") - empty_now - 1
        return np.where(position >= 0, self.row[position], ABSENT)


@dataclass(frozen=True, slots=True, eq=False)
class PathStalls:
    """The host stalls that waited for anything, by start, for a walk that asks them one by one.

    Attributes:
        event_id: the calls; of a stalled call, all allocations that stalled it are one stall.
        start_ns, end_ns: ns.
        thread_index: index into `Trace.threads`.
        awaited_row: the timeline rows that they waited for, ABSENT where that is not known.
        of_thread: thread to the positions of the stalls that it waits for, its own and those of
            others that begin while it does nothing; for ABSENT all of them.

    Example row: ``(event_id=17, start_ns=400, end_ns=900, thread_index=0, awaited_row=5)``.
    """

    event_id: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    thread_index: tuple[int, ...]
    awaited_row: tuple[int, ...]
    of_thread: Callable[[int], tuple[int, ...]]

    def begun_before(self, time_ns: int) -> int:
        """How many stalls began before a moment."""
        return bisect_left(self.start_ns, time_ns)

    def last_before(self, thread: int, stall_index: int, time_ns: int) -> int:
        """The last stall before another one that a thread waited for and that was over by then.

        ABSENT where there is none.
        """
        indices = self.of_thread(thread)
        # Of each thread hardly more than one has begun and is not over.
        for position in range(bisect_left(indices, stall_index) - 1, -1, -1):
            if self.end_ns[indices[position]] <= time_ns:
                return indices[position]
        return ABSENT


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PathLinks(Frozen):
    """What each activity and each host stall waited for; what a walk asks one by one is a tuple.

    Attributes:
        timeline: the GPU activities.
        launch_thread_index: int32[m], the thread that launched each timeline row.
        upstream_row: per row the one to go on with, HOST where that is its launch, or ABSENT.
        upstream_end_ns: per row the moment to go on from: when its launch call got to launch or its
            upstream row ended, at most its own start.
        by_end: per device its rows by end.
        stalls: the host stalls.

    Example row: ``(launch_thread_index=0, upstream_row=4, upstream_end_ns=390)``.
    """

    timeline: Timeline
    launch_thread_index: NDArray[np.int32]
    upstream_row: tuple[int, ...]
    upstream_end_ns: tuple[int, ...]
    by_end: Mapping[int, RowsByEnd]
    stalls: PathStalls

    def last_ended(self, time_ns: int) -> int:
        """The row that ended last by a moment, of any device, else ABSENT."""
        last_row, last_end_ns = ABSENT, ABSENT
        for rows in self.by_end.values():
            position = int(np.searchsorted(rows.end_ns, time_ns, "right")) - 1
            if position >= 0 and (last_row == ABSENT or rows.end_ns[position] > last_end_ns):
                last_row, last_end_ns = int(rows.row[position]), int(rows.end_ns[position])
        return last_row


def path_links(graph: Graph) -> PathLinks:
    """Find what each activity and each host stall of a file waited for."""
    timeline = graph.host.timeline
    launched_ns = _launched_ns(graph.host)
    by_end = _rows_by_end(timeline)
    upstream_row, upstream_end_ns = _upstream(graph, launched_ns, by_end)
    return PathLinks(
        timeline=timeline,
        launch_thread_index=timeline.trace.thread_index[timeline.launch_id],
        upstream_row=tuple(upstream_row.tolist()),
        upstream_end_ns=tuple(upstream_end_ns.tolist()),
        by_end=by_end,
        stalls=_path_stalls(graph, launched_ns),
    )


def _rows_by_end(timeline: Timeline) -> dict[int, RowsByEnd]:
    """Per device its rows by end; of those that end together, by start."""
    by_end = np.lexsort((timeline.start_ns, timeline.end_ns))
    is_empty = timeline.start_ns == timeline.end_ns
    rows_of = {
        device: by_end[timeline.device_number[by_end] == device]
        for device in timeline.device_numbers
    }
    return {
        device: RowsByEnd(rows, timeline.end_ns[rows], timeline.end_ns[rows[is_empty[rows]]])
        for device, rows in rows_of.items()
    }


def _launched_ns(host: Host) -> Int64Array:
    """int64[n], ns, per event when it got to launch: `Host.launched_ns`, cut to what it launched.

    The work may begin just before a stalled call returns: then it is stalled no more.
    """
    timeline, launched_ns = host.timeline, host.launched_ns.copy()
    is_stalled = np.isin(timeline.launch_id, host.stalled_calls.event_id)
    np.minimum.at(launched_ns, timeline.launch_id[is_stalled], timeline.start_ns[is_stalled])
    return launched_ns


def _upstream(
    graph: Graph, launched_ns: Int64Array, by_end: Mapping[int, RowsByEnd]
) -> tuple[Int64Array, Int64Array]:
    """Per row the one to go on with, HOST or ABSENT, and from when on: int64[m] each."""
    timeline, start_ns = graph.host.timeline, graph.host.timeline.start_ns
    launch_ns = np.where(timeline.launch_id == ABSENT, ABSENT, launched_ns[timeline.launch_id])
    awaited_row = _awaited_rows(graph)
    awaited_row = _with_unresolved(timeline, awaited_row, launch_ns, by_end)
    ready_ns = _ready_ns(timeline, awaited_row)
    is_launch_bound = launch_ns > ready_ns
    queued_ns = np.where(awaited_row == ABSENT, start_ns, ready_ns)
    upstream_end_ns = np.minimum(np.where(is_launch_bound, launch_ns, queued_ns), start_ns)
    return np.where(is_launch_bound, HOST, awaited_row), upstream_end_ns


def _ready_ns(timeline: Timeline, awaited_row: Int64Array) -> Int64Array:
    """Per row when the one that it waited for had ended, at most its own start; else ABSENT."""
    ended_ns = np.minimum(timeline.end_ns[awaited_row], timeline.start_ns)
    return np.where(awaited_row == ABSENT, ABSENT, ended_ns)


def _awaited_rows(graph: Graph) -> Int64Array:
    """int64[m], per row the one that it waited for on the GPU and that ended last, else ABSENT.

    A dependent launch waited for the one before it in its stream too: to begin, not to end.
    """
    timeline = graph.host.timeline
    start_ns, end_ns = timeline.start_ns, timeline.end_ns
    rows = np.arange(len(timeline.event_id))
    previous_row = np.full(len(rows), ABSENT, dtype=np.int64)
    follows = np.zeros(len(rows), dtype=np.bool_)
    may_start = (end_ns[:-1] <= start_ns[1:]) | timeline.overlaps_previous[1:]
    follows[1:] = (timeline.stream_index[1:] == timeline.stream_index[:-1]) & may_start
    previous_row[follows] = rows[follows] - 1
    source_row = graph.awaited_row
    is_later = (previous_row == ABSENT) | (end_ns[source_row] > end_ns[previous_row])
    return np.where((source_row != ABSENT) & is_later, source_row, previous_row)


def _with_unresolved(
    timeline: Timeline,
    awaited_row: Int64Array,
    launch_ns: Int64Array,
    by_end: Mapping[int, RowsByEnd],
) -> Int64Array:
    """The awaited rows, with what most likely blocked those that started later than explained."""
    known_ns = np.maximum(_ready_ns(timeline, awaited_row), launch_ns)
    late_rows = np.flatnonzero(timeline.start_ns - known_ns > _QUEUE_LATENCY_NS)
    likely_row = _likely_blockers(timeline, late_rows, by_end)
    is_later = (likely_row != ABSENT) & (timeline.end_ns[likely_row] > known_ns[late_rows])
    with_unresolved = awaited_row.copy()
    with_unresolved[late_rows[is_later]] = likely_row[is_later]
    return with_unresolved


def _likely_blockers(
    timeline: Timeline, rows: NDArray[np.intp], by_end: Mapping[int, RowsByEnd]
) -> NDArray[np.intp]:
    """The row that most likely kept each of these from starting earlier, else ABSENT."""
    start_ns, device_number = timeline.start_ns[rows], timeline.device_number[rows]
    likely_row = np.full(len(rows), ABSENT, dtype=np.intp)
    for device, of_device in by_end.items():
        indices = np.flatnonzero(device_number == device)
        likely_row[indices] = of_device.before(start_ns[indices])
    is_far = (likely_row == ABSENT) | (start_ns - timeline.end_ns[likely_row] > _QUEUE_LATENCY_NS)
    # Nothing ended just before: what was still running, of several what began first.
    far = np.flatnonzero(is_far)
    running_start_ns = np.full(len(far), _NEVER)
    for stream in timeline.streams:
        stream_start_ns = timeline.start_ns[stream.first_row : stream.end_row]
        running_row = stream.first_row + np.searchsorted(stream_start_ns, start_ns[far]) - 1
        is_running = running_row >= stream.first_row
        is_running &= timeline.end_ns[running_row] > start_ns[far]
        is_running &= device_number[far] == stream.device_number
        is_running &= timeline.start_ns[running_row] < running_start_ns
        running_start_ns[is_running] = timeline.start_ns[running_row[is_running]]
        likely_row[far[is_running]] = running_row[is_running]
    return likely_row


def _path_stalls(graph: Graph, launched_ns: Int64Array) -> PathStalls:
    host, calls, stalled = graph.host, graph.host.blocking_calls, graph.host.stalled_calls
    timeline = host.timeline
    # They come by start: of the allocations that stalled a call, the first is the earliest.
    stalled_id, first = np.unique(stalled.event_id, return_index=True)
    event_id = np.concatenate((calls.event_id, stalled_id))
    start_ns = np.concatenate((calls.start_ns, stalled.start_ns[first]))
    end_ns = np.concatenate((calls.end_ns, launched_ns[stalled_id]))
    awaited_row = _rows_awaited_by_calls(graph)[event_id]
    # Where the work was done before, the call did not wait.
    has_waited = (awaited_row == ABSENT) | (timeline.end_ns[awaited_row] > start_ns)
    order = np.flatnonzero(has_waited)
    order = order[np.argsort(start_ns[order], kind="stable")]
    event_id, start_ns = event_id[order], start_ns[order]
    thread_index = timeline.trace.thread_index[event_id]

    @cache  # it is asked of few threads, of each one at every turn
    def of_thread(thread: int) -> tuple[int, ...]:
        if thread == ABSENT:
            return tuple(range(len(event_id)))
        is_awaited = waits_for(host, np.full(len(event_id), thread), thread_index, start_ns)
        return tuple(np.flatnonzero(is_awaited).tolist())

    return PathStalls(
        event_id=tuple(event_id.tolist()),
        start_ns=tuple(start_ns.tolist()),
        end_ns=tuple(end_ns[order].tolist()),
        thread_index=tuple(thread_index.tolist()),
        awaited_row=tuple(awaited_row[order].tolist()),
        of_thread=of_thread,
    )


def _rows_awaited_by_calls(graph: Graph) -> Int64Array:
    """int64[n], per event the row that it waited for, if it is a blocking call, else ABSENT."""
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    trace, launch_id = timeline.trace, timeline.launch_id
    row_of = np.full(len(trace), ABSENT, dtype=np.int64)
    row_of[timeline.event_id] = np.arange(len(timeline.event_id))
    sync = np.flatnonzero(graph.kind == EdgeKind.SYNC)
    # The last of a call's assignments stays: what ended last, of several the first edge.
    sync = sync[np.lexsort((-sync, trace.end_ns[graph.source_id[sync]]))]
    awaited_row = np.full(len(trace), ABSENT, dtype=np.int64)
    awaited_row[graph.target_id[sync]] = row_of[graph.source_id[sync]]
    # A blocking copy waits for what it launches itself, unless its memory was only staged.
    is_copy = np.isin(launch_id, calls.event_id[calls.kind == Blocking.COPY])
    is_copy &= timeline.start_ns < trace.end_ns[launch_id]
    awaited_row[launch_id[is_copy]] = np.flatnonzero(is_copy)
    return awaited_row
