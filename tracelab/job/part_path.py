"""Waits of one rank, for the job's critical path: what each activity and host stall waited for.

The job's path is walked when all ranks are compared, and by then the events are gone. So each file
gives the links that its own critical path is walked by, with names instead of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, OneLine, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.measures.critical_path import HOST, PathLinks, PathStalls, path_links
from tracelab.measures.idle_culprits import busy_with, outermost_around
from tracelab.model.frames import event_as_shown
from tracelab.model.graph import Graph
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# The host is sampled every 10 us, in long recordings at no more moments than these.
_SAMPLE_NS, _MAX_SAMPLES = 10_000, 1 << 16
_OF_THREADS: dict[int, tuple[int, ...]] = {}
_NO_STALLS = PathStalls((), (), (), (), (), _OF_THREADS.__getitem__)


@dataclass(frozen=True, slots=True, repr=False)
class PathPlace(OneLine):
    """Something that a path can be spent on.

    Example: ``PathPlace(name="aten::mm", site=CallSite(function="train", file="train.py"))``.

    Attributes:
        name: of the activity or call that ran, or of what the host was in.
        site: where in the program that is, or was launched; of several the longest.
    """

    name: str
    site: CallSite


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PathEnds(Frozen):
    """Moments at which a path may end: the s steps, and the whole trace; ns since the first event.

    Attributes:
        at_ns: int64[s + 1], ns.
        row: int64[s + 1], the activity that ended then, HOST where the host ended the window.
        thread_index: int64[s + 1], of the step, ABSENT of the trace.

    Example row: ``(at_ns=19_000, row=12, thread_index=0)``.
    """

    at_ns: Int64Array
    row: Int64Array
    thread_index: Int64Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostSamples(Frozen):
    """Operators and functions that one thread was in, k one after the other.

    Attributes:
        begin_ns: int64[k], ns, when each was first seen.
        place_index: int32[k], into the places, ABSENT for none.

    Example row: ``(begin_ns=10_000, place_index=3)``.
    """

    begin_ns: Int64Array
    place_index: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PathPart(Frozen):
    """Links of one rank's m activities, by timeline row; ns since its first event.

    Attributes:
        places: what time can be spent on.
        row: int64[c], the activity of each operation.
        operation_index: int32[m], the first operation of an activity, ABSENT of others.
        start_ns, end_ns: int64[m], ns.
        kind: int8[m], a `PathKind`.
        place_index: int32[m], into `places`.
        upstream_row, upstream_end_ns, kind_between, thread_index: int[m], as of `PathLinks`.
        stalls: the host stalls.
        stall_place: event id of a stall to its place.
        samples: of each thread what it was in.
        ends: the ends of steps.
        first_ns: ns, when the recording began.

    Example row: ``(start_ns=900_000, end_ns=990_000, kind=PathKind.COMPUTE, place_index=2,
    upstream_row=4, upstream_end_ns=880_000, kind_between=PathKind.QUEUE, thread_index=0)``.
    """

    places: tuple[PathPlace, ...]
    row: Int64Array
    operation_index: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array
    kind: NDArray[np.int8]
    place_index: NDArray[np.int32]
    upstream_row: Int64Array
    upstream_end_ns: Int64Array
    kind_between: NDArray[np.int8]
    thread_index: NDArray[np.int32]
    stalls: PathStalls
    stall_place: Mapping[int, int]
    samples: Mapping[int, HostSamples]
    ends: PathEnds
    first_ns: int

    def __len__(self) -> int:
        return len(self.start_ns)


_NONE = np.zeros(0, dtype=np.int64)
NO_PATH = PathPart(
    places=(),
    row=_NONE,
    operation_index=_NONE.astype(np.int32),
    start_ns=_NONE,
    end_ns=_NONE,
    kind=_NONE.astype(np.int8),
    place_index=_NONE.astype(np.int32),
    upstream_row=_NONE,
    upstream_end_ns=_NONE,
    kind_between=_NONE.astype(np.int8),
    thread_index=_NONE.astype(np.int32),
    stalls=_NO_STALLS,
    stall_place={},
    samples={},
    ends=PathEnds(_NONE, _NONE, _NONE),
    first_ns=0,
)


def path_part(graph: Graph, row: NDArray[np.intp], lines: SourceLines) -> PathPart:
    """Gather what the job's critical path needs of a file.

    The slow reference model is ``tests/reference/job_path.py``, of the path itself.

    Args:
        graph: the file's dependencies.
        row: intp[c], the timeline row of each communication operation.
        lines: where the file's source is looked for.
    """
    if not len(row):
        return NO_PATH  # no other rank waits for it
    links, timeline = path_links(graph), graph.host.timeline
    operation_index = np.full(len(timeline.start_ns), ABSENT, dtype=np.int32)
    operation_index[row[::-1]] = np.arange(len(row))[::-1]
    places = _Places(timeline, lines)
    first_ns = min(window.start_ns for window in timeline.windows)
    ends = _find_ends(links)
    threads = {*links.launch_thread_index.tolist(), *links.stalls.thread_index}
    threads |= {*ends.thread_index.tolist(), ABSENT}
    stall_id = np.array(links.stalls.event_id, dtype=np.int64)
    length_ns = np.array(links.stalls.end_ns, dtype=np.int64) - links.stalls.start_ns
    stall_index = places.add(stall_id, length_ns).tolist()
    return PathPart(
        row=row.astype(np.int64),
        operation_index=operation_index,
        start_ns=timeline.start_ns,
        end_ns=timeline.end_ns,
        kind=timeline.kind,
        place_index=places.add(timeline.event_id, timeline.end_ns - timeline.start_ns),
        upstream_row=np.array(links.upstream_row, dtype=np.int64),
        upstream_end_ns=np.array(links.upstream_end_ns, dtype=np.int64),
        kind_between=links.kind_between,
        thread_index=links.launch_thread_index,
        stalls=_resolve_threads(links.stalls, threads),
        stall_place=dict(zip(links.stalls.event_id, stall_index, strict=True)),
        samples=_sample_host(graph, places, sorted(threads), first_ns),
        ends=ends,
        first_ns=first_ns,
        places=places.found(),
    )


def _find_ends(links: PathLinks) -> PathEnds:
    """Find the ends of the steps and of the trace, as the critical path of one file does."""
    timeline = links.timeline
    thread_index = [int(timeline.trace.thread_index[step.event_id]) for step in timeline.steps]
    windows = [*timeline.windows[1:], timeline.windows[0]]
    rows = []
    for window in windows:
        row = links.last_ended(window.end_ns)
        is_host = row == ABSENT or timeline.end_ns[row] < window.end_ns
        rows.append(HOST if is_host else row)
    return PathEnds(
        at_ns=np.array([window.end_ns for window in windows], dtype=np.int64),
        row=np.array(rows, dtype=np.int64),
        thread_index=np.array([*thread_index, ABSENT], dtype=np.int64),
    )


def _resolve_threads(stalls: PathStalls, threads: Iterable[int]) -> PathStalls:
    """Return the stalls with those that each thread waits for, instead of how to find them."""
    return replace(
        stalls, stalls_of={thread: stalls.stalls_of(thread) for thread in threads}.__getitem__
    )


def _sample_host(
    graph: Graph, places: _Places, threads: Iterable[int], first_ns: int
) -> dict[int, HostSamples]:
    trace, end_ns = graph.host.timeline.trace, max(x.end_ns for x in graph.host.timeline.windows)
    count = min(_MAX_SAMPLES, 1 + (end_ns - first_ns) // _SAMPLE_NS)
    begin_ns = first_ns + (end_ns - first_ns) * np.arange(count + 1) // count
    middle_ns = begin_ns[:-1] + np.diff(begin_ns) // 2
    samples = {}
    for thread in threads:
        thread_index = np.full(count, thread)
        loading_id = outermost_around(trace, graph.host.loading_id, middle_ns, thread_index)
        is_loading = (loading_id != ABSENT) & (trace.thread_index[loading_id] == thread)
        busy_id = busy_with(trace, middle_ns, thread_index)
        event_id = np.where(is_loading, loading_id, busy_id)
        place_index = places.add(event_id, np.diff(begin_ns))
        changes = np.flatnonzero(np.diff(place_index, prepend=ABSENT - 1))
        samples[thread] = HostSamples(begin_ns[changes], place_index[changes])
    return samples


class _Places:
    """Names of events, numbered; the longest event of each has its call site.

    Attributes:
        numbers: each name, to its number.
    """

    def __init__(self, timeline: Timeline, lines: SourceLines) -> None:
        self._timeline, self._lines = timeline, lines
        self.numbers: dict[str, int] = {}
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
            number[own] = place = self.numbers.setdefault(shown, len(self.numbers))
            longest = int(own[total_ns[own].argmax()])
            found = (int(total_ns[longest]), int(event[longest]))
            self._longest[place] = max(self._longest.get(place, found), found)
        index = np.full(len(event_id), ABSENT, dtype=np.int32)
        index[known] = number[of_event]
        return index

    def found(self) -> tuple[PathPlace, ...]:
        """List the places by their numbers."""
        timeline = self._timeline
        launch_of = np.arange(len(timeline.trace))
        launch_of[timeline.event_id] = timeline.launch_id
        longest = [self._longest[number][1] for number in range(len(self.numbers))]
        host_id = launch_of[np.array(longest, dtype=np.intp)]
        known = np.flatnonzero(host_id != ABSENT)
        sites = [NO_CALL_SITE] * len(host_id)
        found = call_sites(timeline, host_id[known], self._lines)
        for index, site in zip(known.tolist(), found, strict=True):
            sites[index] = site
        return tuple(map(PathPlace, self.numbers, sites))
