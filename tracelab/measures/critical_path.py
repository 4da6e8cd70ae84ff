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

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.measures.host_stalls import waits_for
from tracelab.measures.measure import Measure, keyed_by
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.host import Host
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# Ten times the usual gap between two activities of one stream that wait for nothing (H200: 1.6 us).
_QUEUE_LATENCY_NS = 16_000
_HOST = -2  # in the place of a row: the walk goes on on the host
_NEVER = 2**63 - 1


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


_KIND_NAMES = tuple(kind.name.lower() for kind in PathKind)


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
    event_id: Int64Array

    def by_kind(self) -> dict[str, int]:
        """Length per kind in small letters, ns; every kind is listed."""
        totals = np.zeros(len(PathKind), dtype=np.int64)
        np.add.at(totals, self.kind, self.end_ns - self.start_ns)
        return dict(zip(_KIND_NAMES, totals.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class CriticalPathMetrics:
    """The critical path of one window, ns per kind."""

    rank: int
    step: int | None
    total_ns: int
    by_kind: Mapping[str, int] = field(metadata=keyed_by(PathKind, complete=True))


def critical_paths(graph: Graph, windows: Sequence[Window] | None = None) -> list[CriticalPath]:
    """The critical path of each window.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.

    The slow reference model is ``tests/reference/walks.py``.
    """
    links = _Links(graph)
    windows = graph.host.timeline.windows if windows is None else windows
    return [_Walk(links, window).path() for window in windows]


class _Links:
    """What each activity and each halt waited for.

    A halt is a call in which a thread got no further: it blocks, or an allocation held it up. What
    the walk asks at every turn is a plain list.

    Attributes:
        start_ns, end_ns, kind, event: of each row, as in the timeline and its trace.
        launch_thread: int32[m], the thread that launched each row.
        before: per row the one to go on with, _HOST where that is its launch, or ABSENT.
        until_ns: per row when what stands between it and that began, at most its own start.
        between: int8[m], the `PathKind` of the time between.
        by_end, ends: per device its rows by end, and their ends, int64[rows], ns.
        halt_event, halt_start, halt_end, halt_thread: of each halt, by start.
        halt_row: per halt the row that it waited for, else ABSENT.
        threads: the thread of each step, by its number.
    """

    def __init__(self, graph: Graph) -> None:
        timeline = graph.host.timeline
        trace = timeline.trace
        self.host = graph.host
        self.start_ns, self.end_ns = timeline.start_ns, timeline.end_ns
        self.kind, self.event = timeline.kind, timeline.event_id
        self.launch_thread = trace.thread_index[timeline.launch_id]
        by_end = np.lexsort((timeline.start_ns, timeline.end_ns))
        self.by_end = {
            x: by_end[timeline.device_number[by_end] == x] for x in timeline.device_numbers
        }
        self.ends = {x: self.end_ns[rows] for x, rows in self.by_end.items()}
        self._link_rows(graph)
        self._link_halts(graph)
        self.threads = {
            step.number: int(trace.thread_index[step.event_id]) for step in timeline.steps
        }

    def _link_rows(self, graph: Graph) -> None:
        timeline, start = graph.host.timeline, self.start_ns
        launch_ns = np.where(
            timeline.launch_id == ABSENT, ABSENT, _launched_ns(graph.host)[timeline.launch_id]
        )
        awaited = _awaited_rows(graph)
        ready = np.where(awaited == ABSENT, ABSENT, np.minimum(self.end_ns[awaited], start))
        known = np.maximum(ready, launch_ns)
        late = np.flatnonzero(start - known > _QUEUE_LATENCY_NS)
        held_by = self._held_by(timeline, late)
        held = (held_by != ABSENT) & (self.end_ns[held_by] > known[late])
        late, held_by = late[held], held_by[held]
        awaited[late], ready[late] = held_by, np.minimum(self.end_ns[held_by], start[late])
        launched = launch_ns > ready
        until = np.where(launched, launch_ns, np.where(awaited == ABSENT, start, ready))
        self.before: list[int] = np.where(launched, _HOST, awaited).tolist()
        self.until_ns: list[int] = np.minimum(until, start).tolist()
        queued = np.where(launch_ns == ABSENT, PathKind.UNKNOWN, PathKind.QUEUE)
        self.between = np.where(launched, PathKind.LAUNCH, queued).astype(np.int8)

    def _held_by(self, timeline: Timeline, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """The row that most likely kept each of these from starting earlier, else ABSENT."""
        start, held_by = self.start_ns[rows], np.full(len(rows), ABSENT, dtype=np.intp)
        device = timeline.device_number[rows]
        for number in timeline.device_numbers:
            mine = np.flatnonzero(device == number)
            held_by[mine] = self.ended_before(number, start[mine])
        far = (held_by == ABSENT) | (start - self.end_ns[held_by] > _QUEUE_LATENCY_NS)
        far_rows = np.flatnonzero(far)
        begun = np.full(len(far_rows), _NEVER)
        for lane in timeline.streams:
            starts = self.start_ns[lane.first_row : lane.end_row]
            other = lane.first_row + np.searchsorted(starts, start[far_rows]) - 1
            runs = (other >= lane.first_row) & (self.end_ns[other] > start[far_rows])
            runs &= (device[far_rows] == lane.device_number) & (self.start_ns[other] < begun)
            begun[runs] = self.start_ns[other[runs]]
            held_by[far_rows[runs]] = other[runs]
        return held_by

    def ended_before(self, device: int, time_ns: Int64Array) -> NDArray[np.intp]:
        """The row of a device that ended last by each moment and began before it: else ABSENT."""
        rows, ends = self.by_end[device], self.ends[device]
        empty = ends[ends == self.start_ns[rows]]
        # Of those that end at the moment, the ones that begin there as well come last.
        at_once = np.searchsorted(empty, time_ns, "right") - np.searchsorted(empty, time_ns)
        place = np.searchsorted(ends, time_ns, "right") - at_once - 1
        return np.where(place >= 0, rows[place], ABSENT)

    def ended_last(self, time_ns: int) -> int:
        """The row that ended last by a moment, of any device, else ABSENT."""
        last = ABSENT
        for device, ends in self.ends.items():
            place = int(np.searchsorted(ends, time_ns, "right")) - 1
            if place >= 0 and (last == ABSENT or ends[place] > self.end_ns[last]):
                last = int(self.by_end[device][place])
        return last

    def _link_halts(self, graph: Graph) -> None:
        timeline, calls, held_calls = (
            graph.host.timeline,
            graph.host.blocking_calls,
            graph.host.stalled_calls,
        )
        trace, launch = timeline.trace, timeline.launch_id
        row_of = np.full(len(trace), ABSENT, dtype=np.int64)
        row_of[timeline.event_id] = np.arange(len(timeline.event_id))
        sync = np.flatnonzero(graph.kind == EdgeKind.SYNC)
        # The last of a call's assignments stays: what ended last, of several the first edge.
        sync = sync[np.lexsort((-sync, trace.end_ns[graph.source_id[sync]]))]
        awaited = np.full(len(trace), ABSENT, dtype=np.int64)
        awaited[graph.target_id[sync]] = row_of[graph.source_id[sync]]
        # A blocking copy waits for what it launches itself, unless its memory was only staged.
        copies = np.isin(launch, calls.event_id[calls.kind == Blocking.COPY])
        copies &= timeline.start_ns < trace.end_ns[launch]
        awaited[launch[copies]] = np.flatnonzero(copies)
        # They come by start: of the allocations that held up a call, the first is the earliest.
        held, first = np.unique(held_calls.event_id, return_index=True)
        halt = np.concatenate((calls.event_id, held))
        start_ns = np.concatenate((calls.start_ns, held_calls.start_ns[first]))
        end_ns = np.concatenate((calls.end_ns, _launched_ns(graph.host)[held]))
        # Where the work was done before, the call did not wait.
        row = awaited[halt]
        waited = np.flatnonzero((row == ABSENT) | (self.end_ns[row] > start_ns))
        order = waited[np.argsort(start_ns[waited], kind="stable")]
        halt, start_ns, end_ns = halt[order], start_ns[order], end_ns[order]
        self.halt_event: list[int] = halt.tolist()
        self.halt_start: list[int] = start_ns.tolist()
        self.halt_end: list[int] = end_ns.tolist()
        self.halt_thread: list[int] = trace.thread_index[halt].tolist()
        self.halt_row: list[int] = row[order].tolist()
        self._halts_of: dict[int, list[int]] = {ABSENT: list(range(len(halt)))}

    def last_halt(self, thread: int, before: int, now: int) -> int:
        """The last of the halts before one that held up a thread and was over by now, else ABSENT.

        A thread is held up by its own halts, and by another's while it did nothing.
        """
        if thread not in self._halts_of:
            others, moments = np.array(self.halt_thread), np.array(self.halt_start)
            holds = waits_for(self.host, np.full(len(others), thread), others, moments)
            self._halts_of[thread] = np.flatnonzero(holds).tolist()
        halts = self._halts_of[thread]
        # Of each thread hardly more than one has begun and is not over.
        for place in range(bisect_left(halts, before) - 1, -1, -1):
            if self.halt_end[halts[place]] <= now:
                return halts[place]
        return ABSENT


def _launched_ns(host: Host) -> Int64Array:
    """int64[n], ns, per event when it got to launch: `Host.launched_ns`, cut to what it launched.

    The work may begin just before the call returns that was held up: then it is held no more.
    """
    timeline, launched_ns = host.timeline, host.launched_ns.copy()
    held = np.isin(timeline.launch_id, host.stalled_calls.event_id)
    np.minimum.at(launched_ns, timeline.launch_id[held], timeline.start_ns[held])
    return launched_ns


def _awaited_rows(graph: Graph) -> Int64Array:
    """int64[m], per row the one that it waited for on the GPU and that ended last, else ABSENT.

    What begins early waited for the one before it in its stream too: to let it begin, not to end.
    """
    timeline = graph.host.timeline
    start, end = timeline.start_ns, timeline.end_ns
    rows = np.arange(len(timeline.event_id))
    previous = np.full(len(rows), ABSENT, dtype=np.int64)
    follows = np.zeros(len(rows), dtype=np.bool_)
    over = (end[:-1] <= start[1:]) | timeline.overlaps_previous[1:]
    follows[1:] = (timeline.stream_index[1:] == timeline.stream_index[:-1]) & over
    previous[follows] = rows[follows] - 1
    source = graph.awaited_row
    later = (source != ABSENT) & ((previous == ABSENT) | (end[source] > end[previous]))
    return np.where(later, source, previous)


class _Walk:
    """One walk from the end of a window to its start."""

    def __init__(self, links: _Links, window: Window) -> None:
        self._links = links
        self._window = window
        self._now = window.end_ns
        self._rows: list[int] = []  # the activities that were passed
        # How many of them came before it, then start, kind and event of what else was passed.
        self._others: list[tuple[int, int, int, int]] = []

    def path(self) -> CriticalPath:
        """Walk, then give the segments in order."""
        links, window = self._links, self._window
        row = links.ended_last(window.end_ns)
        if row == ABSENT or links.end_ns[row] < window.end_ns:
            # The GPU was done before: the host's annotation is what ends the window.
            thread = links.threads.get(window.step, ABSENT) if window.step is not None else ABSENT
            row = self._through_host(thread, ABSENT)
        while row != ABSENT and self._now > window.start_ns:
            row = self._through_activities(row)
        self._spend(window.start_ns, PathKind.UNKNOWN, ABSENT)
        return self._segments()

    def _segments(self) -> CriticalPath:
        """The time from each thing that was passed to what was passed before it."""
        links, window = self._links, self._window
        rows = np.array(self._rows, dtype=np.intp)
        until = np.array([links.until_ns[row] for row in self._rows], dtype=np.int64)
        # Of each activity the time that it ran, and the time until the one before it.
        since = np.stack((links.start_ns[rows], until), axis=1).ravel()
        kind = np.stack((links.kind[rows], links.between[rows]), axis=1).ravel()
        event = np.repeat(links.event[rows], 2)
        others = np.array(self._others, dtype=np.int64)
        place = 2 * others[:, 0]
        since = np.maximum(np.insert(since, place, others[:, 1]), window.start_ns)
        kind, event = np.insert(kind, place, others[:, 2]), np.insert(event, place, others[:, 3])
        bounds = np.minimum.accumulate(np.concatenate(([window.end_ns], since)))
        spent = np.flatnonzero(bounds[1:] < bounds[:-1])[::-1]
        return CriticalPath(bounds[spent + 1], bounds[spent], kind[spent], event[spent])

    def _spend(self, since: int, kind: int, event: int) -> None:
        """Give the time from `since` to now to a kind, and go there."""
        self._others.append((len(self._rows), since, kind, event))
        self._now = min(self._now, since)

    def _through_activities(self, row: int) -> int:
        """Pass activities until the host leads on, and it; the row that comes before, or ABSENT."""
        links, first_ns = self._links, self._window.start_ns
        before, until_ns, rows, now = links.before, links.until_ns, self._rows, self._now
        while row >= 0 and now > first_ns:
            rows.append(row)
            now = min(now, until_ns[row])
            row = before[row]
        self._now = now
        if row != _HOST:
            return row
        return self._through_host(int(links.launch_thread[rows[-1]]), int(links.event[rows[-1]]))

    def _through_host(self, thread: int, event: int) -> int:
        """Go back on the host to the activity that it last waited for, or ABSENT at the start."""
        links, first_ns = self._links, self._window.start_ns
        halt = bisect_left(links.halt_start, self._now)
        while self._now > first_ns:
            halt = links.last_halt(thread, halt, self._now)
            if halt == ABSENT:
                break
            self._spend(links.halt_end[halt], PathKind.HOST, event)
            event, thread = links.halt_event[halt], links.halt_thread[halt]
            row = links.halt_row[halt]
            if row != ABSENT:
                self._spend(int(links.end_ns[row]), PathKind.SYNC, event)
                return row
            self._spend(links.halt_start[halt], PathKind.SYNC, event)
        self._spend(first_ns, PathKind.HOST, event)
        return ABSENT


def critical_path_rows(graph: Graph, windows: Sequence[Window]) -> list[CriticalPathMetrics]:
    """How long the critical path of each window is, by kind."""
    return [
        CriticalPathMetrics(0, window.step, window.length_ns, path.by_kind())
        for window, path in zip(windows, critical_paths(graph, windows), strict=True)
    ]


MEASURE = Measure("critical_path", CriticalPathMetrics, critical_path_rows)
