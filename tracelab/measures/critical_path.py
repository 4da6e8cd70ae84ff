"""The chain of work that decided how long a window took.

Walking back from the window's end, each moment belongs to what was binding then: an activity that
ran, the launch or the host that it waited for (`Binding`), or the activity that the host waited for
(the graph's edges). The segments tile the window. Where nothing is recorded of the host for long
while the GPU works throughout, it most likely waits in a loop that reads what a kernel writes: a
stall too, of which the end is not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Annotated

import numpy as np

from tracelab.base.arrays import Arrays, IndexArray, Int8Array, Int32Array, Int64Array, Record
from tracelab.measures.blocking_calls import rows_awaited_by_calls
from tracelab.measures.measure import Measure, keyed_by, summed
from tracelab.model.binding import Constraint
from tracelab.model.graph import Graph
from tracelab.model.host import Host, is_recorded, unrecorded_waits
from tracelab.model.lookup import last_in_group
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# A thread may wait for stalls of any other: looked up in blocks, so many of which are remembered.
_BLOCK_STALLS, _MAX_BLOCKS = 256, 1_024

HOST = -2  # in the place of a row: the path goes on on the host


class PathKind(IntEnum):
    """Kind of a stretch of the critical path; the first four are a `Kind`."""

    COMPUTE = 0
    COMM = 1
    COPY = 2
    MEMSET = 3
    LAUNCH = 4  # from the launch call to the start of the activity
    QUEUE = 5  # from the end of one activity to the start of the next, launched before
    HOST = 6  # on the host, not known to have waited for the GPU, or in a graph's function of it
    SYNC = 7  # the host was blocked by work that was done or is not known, or stalled
    UNKNOWN = 8


class PathStalls(Record, eq=False):
    """The host stalls that waited for anything, by start, for a walk that asks them one by one.

    Attributes:
        event_id: the calls; all allocations that stalled one call are one stall; ABSENT for a
            silence.
        thread_index: ABSENT for a silence, which is of all threads.
        awaited_row: the timeline rows that they waited for, else ABSENT; of a silence the last one
            that had ended when it began.
        awaited: gives which stalls of a block a thread waits for, its own and those of others that
            begin while it does nothing; for ABSENT all of them.
    """

    event_id: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    thread_index: tuple[int, ...]
    awaited_row: tuple[int, ...]
    awaited: Callable[[int, int], tuple[int, ...]]

    def last_before(self, thread: int, stall_index: int, time_ns: int) -> int:
        """The last stall before another that a thread waited for and that was over, else ABSENT."""
        for block in range((stall_index - 1) // _BLOCK_STALLS, -1, -1):
            indices = self.awaited(thread, block)
            # Of each thread hardly more than one has begun and is not over.
            for position in range(bisect_left(indices, stall_index) - 1, -1, -1):
                if self.end_ns[indices[position]] <= time_ns:
                    return indices[position]
        return ABSENT


class PathLinks(Arrays):
    """Waits of each activity and each host stall; tuples where a walk asks one by one.

    Attributes:
        upstream_row: per row the one to go on with, HOST where that is its launch, or ABSENT.
        upstream_end_ns: per row when that had ended or its launch call got to launch, at most its
            own start.
        kind_between: int8[m], the `PathKind` of the time from then to the start of each row.
        row_by_end: intp[m], the rows by end, device and start.
    """

    timeline: Timeline
    launch_thread_index: Int32Array
    upstream_row: tuple[int, ...]
    upstream_end_ns: tuple[int, ...]
    kind_between: Int8Array
    row_by_end: IndexArray
    stalls: PathStalls

    def last_ended(self, time_ns: int) -> int:
        """The row that ended last by a moment, of any device, else ABSENT."""
        return int(_last_ended(self.timeline, self.row_by_end, np.array([time_ns]))[0])


def path_links(graph: Graph) -> PathLinks:
    """Find what each activity and each host stall of a file waited for."""
    timeline, binding = graph.host.timeline, graph.binding
    launched_ns = _launched_ns(graph.host)
    row_by_end = np.lexsort((timeline.start_ns, -timeline.device_number, timeline.end_ns))
    has_launch = timeline.launch_id != ABSENT
    is_unknown = binding.constraint == Constraint.UNKNOWN
    source_row, ready_ns = _find_last_ended(graph, np.flatnonzero(is_unknown))
    by_host = has_launch & (source_row == ABSENT)
    upstream_row = np.where(by_host, HOST, source_row)
    upstream_end_ns = np.where(by_host, launched_ns[timeline.launch_id], ready_ns)
    upstream_end_ns = np.minimum(upstream_end_ns, timeline.start_ns)
    kinds = [PathKind.UNKNOWN, PathKind.LAUNCH]
    kind_between = np.select([is_unknown, by_host], kinds, PathKind.QUEUE)
    return PathLinks(
        timeline=timeline,
        launch_thread_index=timeline.trace.thread_index[timeline.launch_id],
        upstream_row=tuple(upstream_row.tolist()),
        upstream_end_ns=tuple(upstream_end_ns.tolist()),
        kind_between=kind_between.astype(np.int8),
        row_by_end=row_by_end,
        stalls=_path_stalls(graph, launched_ns, row_by_end),
    )


def _find_last_ended(graph: Graph, row: IndexArray) -> tuple[Int64Array, Int64Array]:
    # Of rows that waited for something unknown, the path goes on with what ended last on their
    # device, since they could have started: only time in which nothing ended is unknown.
    timeline, binding = graph.host.timeline, graph.binding
    source_row, ready_ns = binding.source_row.copy(), binding.ready_ns.copy()
    by_end = np.lexsort((timeline.start_ns, timeline.end_ns, timeline.device_number))
    last = last_in_group(
        timeline.device_number[by_end],
        timeline.end_ns[by_end],
        timeline.device_number[row],
        timeline.start_ns[row],
        "right",
    )
    last_row = np.where(last == ABSENT, ABSENT, by_end[last])
    is_later = (last != ABSENT) & (timeline.start_ns[last_row] < timeline.start_ns[row])
    is_later &= timeline.end_ns[last_row] > ready_ns[row]
    source_row[row[is_later]] = last_row[is_later]
    ready_ns[row[is_later]] = timeline.end_ns[last_row[is_later]]
    return source_row, ready_ns


def _last_ended(timeline: Timeline, row_by_end: IndexArray, time_ns: Int64Array) -> IndexArray:
    position = np.searchsorted(timeline.end_ns, time_ns, side="right", sorter=row_by_end) - 1
    return np.where(position >= 0, row_by_end[position], ABSENT)


def _launched_ns(host: Host) -> Int64Array:
    timeline, launched_ns = host.timeline, host.launched_ns.copy()
    is_stalled = np.isin(timeline.launch_id, host.stalled_calls.event_id)
    np.minimum.at(launched_ns, timeline.launch_id[is_stalled], timeline.start_ns[is_stalled])
    return launched_ns


def _path_stalls(graph: Graph, launched_ns: Int64Array, row_by_end: IndexArray) -> PathStalls:
    host, calls, stalled = graph.host, graph.host.blocking_calls, graph.host.stalled_calls
    timeline = host.timeline
    # They come by start: of the allocations that stalled a call, the first is the earliest.
    stalled_id, first = np.unique(stalled.event_id, return_index=True)
    event_id = np.concatenate((calls.event_id, stalled_id))
    start_ns = np.concatenate((calls.start_ns, stalled.start_ns[first]))
    end_ns = np.concatenate((calls.end_ns, launched_ns[stalled_id]))
    awaited_row = rows_awaited_by_calls(graph, with_staged=False)[event_id]
    # Where the work was done before, the call did not wait.
    has_waited = (awaited_row == ABSENT) | (timeline.end_ns[awaited_row] > start_ns)
    silences = unrecorded_waits(host)
    ended_row = _last_ended(timeline, row_by_end, silences.starts)
    follows_work = ended_row != ABSENT
    silent = np.full(int(follows_work.sum()), ABSENT)
    event_id = np.append(event_id[has_waited], silent)
    start_ns = np.append(start_ns[has_waited], silences.starts[follows_work])
    end_ns = np.append(end_ns[has_waited], silences.ends[follows_work])
    awaited_row = np.append(awaited_row[has_waited], ended_row[follows_work])
    order = np.argsort(start_ns, kind="stable")
    event_id, start_ns, end_ns, awaited_row = (
        column[order] for column in (event_id, start_ns, end_ns, awaited_row)
    )
    thread_index = np.where(event_id == ABSENT, ABSENT, timeline.trace.thread_index[event_id])

    @lru_cache(_MAX_BLOCKS)  # a walk asks for a block at every turn, and then for the one before
    def awaited(thread: int, block: int) -> tuple[int, ...]:
        index = np.arange(len(event_id))[block * _BLOCK_STALLS :][:_BLOCK_STALLS]
        is_awaited = host.is_launching[thread_index[index]]
        is_awaited &= ~is_recorded(host, thread, start_ns[index])
        is_awaited |= (event_id[index] == ABSENT) | (thread_index[index] == thread)
        return tuple(index[is_awaited | (thread == ABSENT)].tolist())

    return PathStalls(
        event_id=tuple(event_id.tolist()),
        start_ns=tuple(start_ns.tolist()),
        end_ns=tuple(end_ns.tolist()),
        thread_index=tuple(thread_index.tolist()),
        awaited_row=tuple(awaited_row.tolist()),
        awaited=awaited,
    )


_KIND_NAMES = tuple(kind.name.lower() for kind in PathKind)


class CriticalPath(Arrays):
    """The segments of one window's critical path ([s], ascending), which touch and fill the window.

    `kind` is a `PathKind`, `event_id` the activity that ran or was waited for, or the call that
    blocked or was stalled; ABSENT where the host led up to the window's end.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    kind: Int8Array
    event_id: Int64Array

    def by_kind(self) -> dict[str, int]:
        """Length per kind in small letters, ns; every kind is listed."""
        totals_ns = summed(self.kind, self.end_ns - self.start_ns, len(PathKind))
        return dict(zip(_KIND_NAMES, totals_ns.tolist(), strict=True))


class CriticalPathMetrics(Record):
    """The critical path of one window, ns per kind."""

    rank: int
    step: int | None
    total_ns: int
    by_kind: Annotated[Mapping[str, int], keyed_by(PathKind, complete=True)]


def critical_paths(
    graph: Graph, windows: Sequence[Window] | None = None
) -> tuple[CriticalPath, ...]:
    """The critical path of each window."""
    timeline, links = graph.host.timeline, path_links(graph)
    thread_of_step: dict[int | None, int] = {
        step.number: int(timeline.trace.thread_index[step.event_id]) for step in timeline.steps
    }
    return tuple(
        _Walk(links, window).path(thread_of_step.get(window.step, ABSENT))
        for window in (timeline.windows if windows is None else windows)
    )


class _Walk:
    def __init__(self, links: PathLinks, window: Window) -> None:
        self._links = links
        self._window = window
        self._now_ns = window.end_ns
        self._rows: list[int] = []
        # How many of them came before it, then start, kind and event of what else was passed.
        self._others: list[tuple[int, int, int, int]] = []

    def path(self, thread: int) -> CriticalPath:
        links, window = self._links, self._window
        row = links.last_ended(window.end_ns)
        if row == ABSENT or links.timeline.end_ns[row] < window.end_ns:
            # The GPU was done before: the host's annotation is what ends the window.
            row = self._through_host(thread, ABSENT)
        while row != ABSENT and self._now_ns > window.start_ns:
            row = self._through_activities(row)
        self._spend(window.start_ns, PathKind.UNKNOWN, ABSENT)
        return self._segments()

    def _segments(self) -> CriticalPath:
        links, timeline, window = self._links, self._links.timeline, self._window
        rows = np.array(self._rows, dtype=np.intp)
        upstream_end_ns = np.array([links.upstream_end_ns[row] for row in self._rows], np.int64)
        since_ns = np.stack((timeline.start_ns[rows], upstream_end_ns), axis=1).ravel()
        kind = np.stack((timeline.kind[rows], links.kind_between[rows]), axis=1).ravel()
        event_id = np.repeat(timeline.event_id[rows], 2)
        others = np.array(self._others, dtype=np.int64)
        position = 2 * others[:, 0]
        since_ns = np.maximum(np.insert(since_ns, position, others[:, 1]), window.start_ns)
        kind = np.insert(kind, position, others[:, 2])
        event_id = np.insert(event_id, position, others[:, 3])
        bounds_ns = np.minimum.accumulate(np.concatenate(([window.end_ns], since_ns)))
        spent = np.flatnonzero(bounds_ns[1:] < bounds_ns[:-1])[::-1]
        return CriticalPath(bounds_ns[spent + 1], bounds_ns[spent], kind[spent], event_id[spent])

    def _spend(self, since_ns: int, kind: int, event_id: int) -> None:
        """Give the time from then to now to a kind, and go there."""
        self._others.append((len(self._rows), since_ns, kind, event_id))
        self._now_ns = min(self._now_ns, since_ns)

    def _through_activities(self, row: int) -> int:
        """Pass activities until the host leads on, and it; the row that comes before, or ABSENT."""
        links, first_ns = self._links, self._window.start_ns
        upstream_row, upstream_end_ns = links.upstream_row, links.upstream_end_ns
        rows, now_ns = self._rows, self._now_ns
        while row >= 0 and now_ns > first_ns:
            rows.append(row)
            now_ns = min(now_ns, upstream_end_ns[row])
            row = upstream_row[row]
        self._now_ns = now_ns
        if row != HOST:
            return row
        last_row = rows[-1]
        event_id = int(links.timeline.event_id[last_row])
        return self._through_host(int(links.launch_thread_index[last_row]), event_id)

    def _through_host(self, thread: int, event_id: int) -> int:
        """Go back on `thread` (or any, ABSENT) to the activity that the host last waited for.

        ABSENT at the start. `event_id` is the activity that it led up to.
        """
        stalls, first_ns = self._links.stalls, self._window.start_ns
        stall_index = bisect_left(stalls.start_ns, self._now_ns)
        while self._now_ns > first_ns:
            stall_index = stalls.last_before(thread, stall_index, self._now_ns)
            if stall_index == ABSENT:
                break
            self._spend(stalls.end_ns[stall_index], PathKind.HOST, event_id)
            event_id, thread = stalls.event_id[stall_index], stalls.thread_index[stall_index]
            row = stalls.awaited_row[stall_index]
            kind = PathKind.UNKNOWN if event_id == ABSENT else PathKind.SYNC
            if kind == PathKind.UNKNOWN or row != ABSENT:
                self._spend(int(self._links.timeline.end_ns[row]), kind, event_id)
                return row
            self._spend(stalls.start_ns[stall_index], kind, event_id)
        self._spend(first_ns, PathKind.HOST, event_id)
        return ABSENT


def critical_path_rows(
    windows: Sequence[Window], critical_paths: Sequence[CriticalPath]
) -> tuple[CriticalPathMetrics, ...]:
    """Lengths of the critical path of each window, by kind."""
    return tuple(
        CriticalPathMetrics(0, window.step, window.length_ns, path.by_kind())
        for window, path in zip(windows, critical_paths, strict=True)
    )


MEASURE = Measure("critical_path", CriticalPathMetrics, critical_path_rows)
