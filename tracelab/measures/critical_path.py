"""The chain of work that decided how long a window took.

Walking back from the window's end, each moment belongs to what was binding then: an activity that
ran, the launch or the host that it waited for, or the activity that the host waited for. The
segments tile the window: nothing is left out, nothing counted twice.

A stream starts its next activity within microseconds once nothing is in the way. Where one that was
launched before starts later than that after all that it is known to depend on, something unnamed
held it: an activity of its device that ended just before (a wait whose record the file does not
name) or, without any, one that was still running (no free multiprocessor).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.graph import EdgeKind, Graph
from tracelab.host import Blocking, Host
from tracelab.intervals import Int64Array
from tracelab.measures.syncs import waits_for
from tracelab.timeline import Window
from tracelab.trace import ABSENT

# Ten times the usual gap between two activities of one stream that wait for nothing (H200: 1.6 us).
_QUEUE_LATENCY_NS = 16_000


class PathKind(IntEnum):
    """What a stretch of the critical path was spent on; the first four are a `Kind`."""

    COMPUTE = 0
    COMM = 1
    COPY = 2
    MEMSET = 3
    LAUNCH = 4  # from the launch call to the start of the activity
    QUEUE = 5  # from the end of one activity to the start of the next, launched before
    HOST = 6  # on the host, which nothing on the GPU is known to have held up
    SYNC = 7  # the host was in a blocking call whose work was done or is not known, or held up
    UNKNOWN = 8  # the launch is not in the file, or nothing in the file comes before


@dataclass(frozen=True, slots=True, eq=False)
class CriticalPath:
    """The segments of one window's critical path, ascending.

    Attributes:
        start_ns, end_ns: int64[s], ns; each segment begins where the one before ends, the first
            at the window's start, the last ends at its end.
        kind: int8[s], a `PathKind`.
        event: int64[s], the activity that ran or was waited for, or the call that blocked or that
            an allocation held up; ABSENT where the host led up to the window's end.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    kind: NDArray[np.int8]
    event: Int64Array

    def by_kind(self) -> dict[str, int]:
        """Length per kind in small letters, ns; every kind is listed."""
        totals = np.zeros(len(PathKind), dtype=np.int64)
        np.add.at(totals, self.kind, self.end_ns - self.start_ns)
        return {kind.name.lower(): int(totals[kind]) for kind in PathKind}


def critical_paths(graph: Graph, windows: Sequence[Window]) -> list[CriticalPath]:
    """The critical path of each window."""
    links = _Links(graph)
    return [_Walk(links, window).path() for window in windows]


class _Links:
    """What each activity and each halt waited for, as plain lists: the walk is a loop.

    A halt is a call in which a thread got no further: it blocks, or an allocation held it up.
    """

    def __init__(self, graph: Graph) -> None:
        timeline, calls = graph.host.timeline, graph.host.blocking
        trace = timeline.trace
        self.graph = graph
        self.event: list[int] = timeline.event.tolist()
        self.start: list[int] = timeline.start_ns.tolist()
        self.end: list[int] = timeline.end_ns.tolist()
        self.kind: list[int] = timeline.kind.tolist()
        launch, launched_ns = timeline.launch, _launched_ns(graph.host)
        self.launch_ns: list[int] = np.where(launch == ABSENT, ABSENT, launched_ns[launch]).tolist()
        self.launch_thread: list[int] = trace.thread[launch].tolist()
        self.awaited: list[int] = _awaited_rows(graph).tolist()
        self.device: list[int] = timeline.device.tolist()
        by_end = np.lexsort((timeline.start_ns, timeline.end_ns))
        self.by_end: dict[int, list[int]] = {
            device: by_end[timeline.device[by_end] == device].tolist()
            for device in timeline.devices
        }
        self.ends = {x: [self.end[row] for row in rows] for x, rows in self.by_end.items()}
        row_of = np.full(len(trace), ABSENT, dtype=np.int64)
        row_of[timeline.event] = np.arange(len(timeline.event))
        sync = graph.kind == EdgeKind.SYNC
        self.sync_row: dict[int, int] = {}
        for source, target in zip(
            row_of[graph.source[sync]].tolist(), graph.target[sync].tolist(), strict=True
        ):
            known = self.sync_row.get(target)
            if known is None or self.end[source] > self.end[known]:
                self.sync_row[target] = source
        # A blocking copy waits for what it launches itself, unless its memory was only staged.
        copying = calls.call[calls.kind == Blocking.COPY]
        for row in np.flatnonzero(np.isin(launch, copying)).tolist():
            if timeline.start_ns[row] < trace.end_ns[launch[row]]:
                self.sync_row[int(launch[row])] = row
        # They come by start: of the allocations that held up a call, the first is the earliest.
        held, first = np.unique(graph.host.held.call, return_index=True)
        halt = np.concatenate((calls.call, held))
        start_ns = np.concatenate((calls.start_ns, graph.host.held.start_ns[first]))
        end_ns = np.concatenate((calls.end_ns, launched_ns[held]))
        by_start = np.argsort(start_ns, kind="stable")
        self.halt_event: list[int] = halt[by_start].tolist()
        self.halt_start: list[int] = start_ns[by_start].tolist()
        self.halt_end: list[int] = end_ns[by_start].tolist()
        self.halt_thread: list[int] = trace.thread[halt[by_start]].tolist()
        self.threads = {step.number: int(trace.thread[step.event]) for step in timeline.steps}


def _launched_ns(host: Host) -> Int64Array:
    """int64[n], ns, per event when it got to launch: `Host.launched_ns`, cut to what it launched.

    The work may begin just before the call returns that was held up: then it is held no more.
    """
    timeline, launched_ns = host.timeline, host.launched_ns.copy()
    held = np.isin(timeline.launch, host.held.call)
    np.minimum.at(launched_ns, timeline.launch[held], timeline.start_ns[held])
    return launched_ns


def _awaited_rows(graph: Graph) -> Int64Array:
    """int64[m], per row the one that it waited for on the GPU and that ended last, else ABSENT.

    What begins early waited for the one before it in its stream too: to let it begin, not to end.
    """
    timeline = graph.host.timeline
    start, end = timeline.start_ns, timeline.end_ns
    rows = np.arange(len(timeline.event))
    previous = np.full(len(rows), ABSENT, dtype=np.int64)
    follows = np.zeros(len(rows), dtype=np.bool_)
    over = (end[:-1] <= start[1:]) | timeline.early[1:]
    follows[1:] = (timeline.lane[1:] == timeline.lane[:-1]) & over
    previous[follows] = rows[follows] - 1
    source = graph.event_source
    later = (source != ABSENT) & ((previous == ABSENT) | (end[source] > end[previous]))
    return np.where(later, source, previous)


class _Walk:
    """One walk from the end of a window to its start."""

    def __init__(self, links: _Links, window: Window) -> None:
        self._links = links
        self._window = window
        self._now = window.end_ns
        self._segments: list[tuple[int, int, int, int]] = []

    def path(self) -> CriticalPath:
        """Walk, then give the segments in order."""
        links, window = self._links, self._window
        ended = [self._ended_by(device, window.end_ns) for device in links.ends]
        row = max(ended, key=lambda row: links.end[row] if row != ABSENT else ABSENT)
        if row == ABSENT or links.end[row] < window.end_ns:
            # The GPU was done before: the host's annotation is what ends the window.
            thread = links.threads.get(window.step, ABSENT) if window.step is not None else ABSENT
            row = self._through_host(thread, ABSENT)
        while row != ABSENT and self._now > window.start_ns:
            row = self._through_activity(row)
        self._spend(window.start_ns, PathKind.UNKNOWN, ABSENT)
        columns = np.array(self._segments[::-1], dtype=np.int64).reshape(-1, 4).T
        return CriticalPath(columns[0], columns[1], columns[2].astype(np.int8), columns[3])

    def _spend(self, since: int, kind: int, event: int) -> None:
        """Give the time from `since` to now to a kind, and go there."""
        since = max(since, self._window.start_ns)
        if since < self._now:
            self._segments.append((since, self._now, kind, event))
            self._now = since

    def _through_activity(self, row: int) -> int:
        """Pass an activity and what it waited for; the row that comes before, or ABSENT."""
        links = self._links
        event, start = links.event[row], links.start[row]
        self._spend(start, links.kind[row], event)
        awaited, launch_ns = links.awaited[row], links.launch_ns[row]
        ready = min(links.end[awaited], start) if awaited != ABSENT else ABSENT
        if start - max(ready, launch_ns) > _QUEUE_LATENCY_NS:
            held_by = self._held_by(row)
            if held_by != ABSENT and links.end[held_by] > max(ready, launch_ns):
                awaited, ready = held_by, min(links.end[held_by], start)
        if launch_ns > ready:
            self._spend(launch_ns, PathKind.LAUNCH, event)
            return self._through_host(links.launch_thread[row], event)
        if awaited != ABSENT:
            kind = PathKind.QUEUE if launch_ns != ABSENT else PathKind.UNKNOWN
            self._spend(ready, kind, event)
        return awaited

    def _through_host(self, thread: int, event: int) -> int:
        """Go back on the host to the activity that it last waited for, or ABSENT at the start.

        A thread is held up by its own halts, and by another's while it did nothing.
        """
        links = self._links
        host = links.graph.host
        last = bisect_left(links.halt_start, self._now)
        for halt in range(last - 1, -1, -1):
            if self._now <= self._window.start_ns:
                return ABSENT
            ended, begun, by = links.halt_end[halt], links.halt_start[halt], links.halt_thread[halt]
            if ended > self._now or not (thread == ABSENT or waits_for(host, thread, by, begun)):
                continue
            row = links.sync_row.get(links.halt_event[halt], ABSENT)
            if row != ABSENT and links.end[row] <= begun:
                continue  # the work was done before: the call did not wait
            self._spend(ended, PathKind.HOST, event)
            event, thread = links.halt_event[halt], by
            if row != ABSENT:
                self._spend(links.end[row], PathKind.SYNC, event)
                return row
            self._spend(begun, PathKind.SYNC, event)
        self._spend(self._window.start_ns, PathKind.HOST, event)
        return ABSENT

    def _held_by(self, row: int) -> int:
        """The row that most likely kept another from starting earlier, else ABSENT."""
        links, start = self._links, self._links.start[row]
        ended = self._ended_by(links.device[row], start, started_before=start)
        if ended != ABSENT and start - links.end[ended] <= _QUEUE_LATENCY_NS:
            return ended
        running = [
            other
            for lane in links.graph.host.timeline.lanes
            if lane.device == links.device[row]
            and (other := bisect_left(links.start, start, lane.first, lane.last) - 1) >= lane.first
            and links.end[other] > start
        ]
        return min(running, key=links.start.__getitem__, default=ended)

    def _ended_by(self, device: int, time_ns: int, started_before: int = 2**63 - 1) -> int:
        """The row of a device that ended last by a moment, else ABSENT."""
        links = self._links
        place = bisect_right(links.ends[device], time_ns)
        for index in range(place - 1, -1, -1):
            row = links.by_end[device][index]
            if links.start[row] < started_before:
                return row
        return ABSENT
