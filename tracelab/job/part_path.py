"""Ways back through one rank, for the job's critical path: what its work waited for.

The job's path is walked when all ranks are compared, and by then the events are gone. So each file
gives the ways by which its own critical path would go back from its communication and from the ends
of its steps. Ways that meet go on as one, so each stretch is listed once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, Record
from tracelab.base.intervals import Int64Array
from tracelab.measures.critical_path import HOST, PathKind, path_links, through_host
from tracelab.measures.idle_culprits import busy_with, outermost_around
from tracelab.model.frames import event_as_shown
from tracelab.model.graph import Graph
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# The host is sampled every 10 us, in long recordings at no more moments than these.
_SAMPLE_NS, _MAX_SAMPLES = 10_000, 1 << 16


class PathPlace(Record):
    """Something that a path can be spent on.

    Example: ``PathPlace(name="aten::mm", site=CallSite(function="train", file="train.py"))``.

    Attributes:
        name: of the activity or call that ran, or of what the host was in.
        site: where in the program that is, or was launched; of several the longest.
    """

    name: str
    site: CallSite


class PathPart(Arrays):
    """Ways back through one rank; k stretches, each followed by what came before it.

    Times are ns since the file's first event. A stretch ends where the one that led to it begins.

    Attributes:
        spent_on: each kind of time and what it was spent on; None where that is not known.
        since_ns: int64[k], ns, when each stretch began.
        spent_index: int32[k], into `spent_on`.
        following: int32[k], the stretch to go on with, ABSENT at the beginning of the recording.
        operation_stretch: int32[c], of each operation its kernel; the same for those of one kernel.
        end_stretch: int32[s + 1], what led up to the end of each step, and to that of the trace;
            ABSENT for nothing.
        end_ns: int64[s + 1], ns, these ends.
        first_ns: ns, when the recording began.

    Example row: ``(since_ns=900_000, spent_index=2, following=17)``.
    """

    spent_on: tuple[tuple[PathKind, PathPlace | None], ...]
    since_ns: Int64Array
    spent_index: NDArray[np.int32]
    following: NDArray[np.int32]
    operation_stretch: NDArray[np.int32]
    end_stretch: NDArray[np.int32]
    end_ns: Int64Array
    first_ns: int


def path_part(graph: Graph, row: NDArray[np.intp], lines: SourceLines) -> PathPart | None:
    """Gather what the job's critical path needs of a file; None if no other rank waits for it.

    The slow reference model is ``tests/reference/job_path.py``, of the path itself.

    Args:
        graph: the file's dependencies.
        row: intp[c], the timeline row of each communication operation.
        lines: where the file's source is looked for.
    """
    if not len(row):
        return None
    timeline, ways = graph.host.timeline, _Ways(graph)
    operation_stretch = [ways.add_activity(one) for one in row.tolist()]
    thread_index = [int(timeline.trace.thread_index[step.event_id]) for step in timeline.steps]
    ends_ns = [window.end_ns for window in (*timeline.windows[1:], timeline.windows[0])]
    end_stretch = list(map(ways.add_end, ends_ns, [*thread_index, ABSENT]))
    spent, spent_index = np.unique(np.array((ways.kind, ways.place)), axis=1, return_inverse=True)
    places = ways.places.located(np.unique(spent[1]), lines)
    return PathPart(
        spent_on=tuple((PathKind(kind), places.get(place)) for kind, place in spent.T.tolist()),
        since_ns=np.array(ways.since_ns, dtype=np.int64),
        spent_index=spent_index.reshape(-1).astype(np.int32),
        following=np.array(ways.following, dtype=np.int32),
        operation_stretch=np.array(operation_stretch, dtype=np.int32),
        end_stretch=np.array(end_stretch, dtype=np.int32),
        end_ns=np.array(ends_ns, dtype=np.int64),
        first_ns=ways.first_ns,
    )


class _Ways:
    """Ways back through a file, each up to where it joins another one.

    Attributes:
        since_ns, following: as in `PathPart`.
        kind, place: what each stretch is spent on: a `PathKind`, and a number among the places.
        places: the places.
        first_ns: ns, when the recording began.
    """

    def __init__(self, graph: Graph) -> None:
        timeline = graph.host.timeline
        self.since_ns: list[int] = []
        self.kind: list[int] = []
        self.place: list[int] = []
        self.following: list[int] = []
        self.places = _Places(timeline)
        self.first_ns = min(window.start_ns for window in timeline.windows)
        self._links = path_links(graph)
        self._stretch_of_row: dict[int, int] = {}
        self._place_of_row = self.places.add(timeline.event_id, timeline.end_ns - timeline.start_ns)
        stalls = self._links.stalls
        stall_id = np.array(stalls.event_id, dtype=np.int64)
        length_ns = np.array(stalls.end_ns, dtype=np.int64) - stalls.start_ns
        place_of_stall = self.places.add(stall_id, length_ns).tolist()
        self._place_of_stall = dict(zip(stalls.event_id, place_of_stall, strict=True))
        threads = {*self._links.launch_thread_index.tolist(), *stalls.thread_index, ABSENT}
        threads |= {int(timeline.trace.thread_index[step.event_id]) for step in timeline.steps}
        self._samples = {
            thread: _sample_host(graph, self.places, thread, self.first_ns) for thread in threads
        }

    def add_activity(self, row: int) -> int:
        """Add the way back from an activity; its first stretch, ABSENT without an activity."""
        links, timeline = self._links, self._links.timeline
        before, new = row, len(self.since_ns)
        while before != ABSENT and before not in self._stretch_of_row:
            self._stretch_of_row[before] = len(self.since_ns)
            start_ns, place = int(timeline.start_ns[before]), int(self._place_of_row[before])
            self._add(start_ns, int(timeline.kind[before]), place)
            since_ns, kind = links.upstream_end_ns[before], int(links.kind_between[before])
            if kind == PathKind.HOST:
                self._add_host(since_ns, start_ns, ABSENT)
            else:
                self._add(since_ns, kind, ABSENT if kind == PathKind.UNKNOWN else place)
            thread = int(links.launch_thread_index[before])
            before = links.upstream_row[before]
            if before == HOST:
                before = self._add_through_host(since_ns, thread)
        if new < len(self.since_ns):
            self.following[-1] = self._stretch_of_row.get(before, ABSENT)
        return self._stretch_of_row.get(row, ABSENT)

    def add_end(self, end_ns: int, thread: int) -> int:
        """Add the way back from the end of a window, as of the critical path of one file.

        Args:
            end_ns: ns.
            thread: of the step, ABSENT of the trace.
        """
        row = self._links.last_ended(end_ns)
        if row != ABSENT and self._links.timeline.end_ns[row] >= end_ns:
            return self.add_activity(row)
        first = len(self.since_ns)
        before = self._add_through_host(end_ns, thread)
        last = len(self.since_ns) - 1
        self.following[last] = self.add_activity(before)
        return first

    def _add_through_host(self, now_ns: int, thread: int) -> int:
        """Add the way back on the host; the activity that it last waited for, or ABSENT."""
        row, stretches = through_host(self._links, thread, ABSENT, now_ns, self.first_ns)
        for stretch in stretches:
            if stretch.kind == PathKind.HOST:
                self._add_host(stretch.since_ns, now_ns, stretch.thread_index)
            else:
                place = self._place_of_stall.get(stretch.event_id, ABSENT)
                self._add(stretch.since_ns, stretch.kind, place)
            now_ns = min(now_ns, stretch.since_ns)
        return row

    def _add_host(self, since_ns: int, until_ns: int, thread: int) -> None:
        """Add what a thread was in between two moments."""
        begin_ns, place_index = self._samples[thread]
        since_ns = max(since_ns, self.first_ns)
        first = max(0, int(begin_ns.searchsorted(since_ns, "right")) - 1)
        end = max(first + 1, int(begin_ns.searchsorted(until_ns)))
        begins_ns = np.maximum(begin_ns[first:end], since_ns).tolist()
        for at_ns, place in zip(
            begins_ns[::-1], place_index[first:end][::-1].tolist(), strict=True
        ):
            self._add(at_ns, PathKind.HOST, place)

    def _add(self, since_ns: int, kind: int, place: int) -> None:
        """Add a stretch, followed by the next one to be added."""
        self.since_ns.append(since_ns)
        self.kind.append(kind)
        self.place.append(place)
        self.following.append(len(self.since_ns))


def _sample_host(
    graph: Graph, places: _Places, thread: int, first_ns: int
) -> tuple[Int64Array, NDArray[np.int32]]:
    """Find the operators and functions that a thread was in: since when, ns, and their places."""
    trace, end_ns = graph.host.timeline.trace, max(x.end_ns for x in graph.host.timeline.windows)
    count = min(_MAX_SAMPLES, 1 + (end_ns - first_ns) // _SAMPLE_NS)
    begin_ns = first_ns + (end_ns - first_ns) * np.arange(count + 1) // count
    middle_ns = begin_ns[:-1] + np.diff(begin_ns) // 2
    thread_index = np.full(count, thread)
    loading_id = outermost_around(trace, graph.host.loading_id, middle_ns, thread_index)
    is_loading = (loading_id != ABSENT) & (trace.thread_index[loading_id] == thread)
    busy_id = busy_with(graph.host.timeline, middle_ns, thread_index)
    place_index = places.add(np.where(is_loading, loading_id, busy_id), np.diff(begin_ns))
    changes = np.flatnonzero(np.diff(place_index, prepend=ABSENT - 1))
    return begin_ns[changes], place_index[changes]


class _Places:
    """Names of events, numbered; the longest event of each has its call site."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._numbers: dict[str, int] = {}
        self._longest: dict[int, tuple[int, int]] = {}  # number to length and event

    def add(self, event_id: Int64Array, length_ns: Int64Array) -> NDArray[np.int32]:
        """Number some events by their names: int32[k], ABSENT without an event."""
        trace = self._timeline.trace
        known = np.flatnonzero(event_id != ABSENT)
        event, of_event = np.unique(event_id[known], return_inverse=True)
        total_ns = np.zeros(len(event), dtype=np.int64)
        np.add.at(total_ns, of_event, length_ns[known])
        number = np.empty(len(event), dtype=np.int32)
        names = trace.name_index[event]
        for name in np.unique(names).tolist():
            own = np.flatnonzero(names == name)
            shown = event_as_shown(trace.strings[name])
            number[own] = place = self._numbers.setdefault(shown, len(self._numbers))
            longest = int(own[total_ns[own].argmax()])
            found = (int(total_ns[longest]), int(event[longest]))
            self._longest[place] = max(self._longest.get(place, found), found)
        index = np.full(len(event_id), ABSENT, dtype=np.int32)
        index[known] = number[of_event]
        return index

    def located(self, numbers: NDArray[np.intp], lines: SourceLines) -> dict[int, PathPlace]:
        """Find the call sites of some places, by their numbers."""
        timeline, names = self._timeline, list(self._numbers)
        launch_of = np.arange(len(timeline.trace))
        launch_of[timeline.event_id] = timeline.launch_id
        host_id = {
            number: int(launch_of[self._longest[number][1]])
            for number in numbers.tolist()
            if number != ABSENT
        }
        launched = [number for number, event_id in host_id.items() if event_id != ABSENT]
        event_id = np.array([host_id[number] for number in launched], dtype=np.intp)
        sites = dict(zip(launched, call_sites(timeline, event_id, lines), strict=True))
        return {
            number: PathPlace(names[number], sites.get(number, NO_CALL_SITE)) for number in host_id
        }
