"""Why a device was idle: every idle nanosecond has exactly one cause.

A bubble ends where the device's next activity starts, so that activity tells the cause: before the
host launched it, the host was what all waited for; after, it waited on the GPU. A launch call that
another thread's allocation held up has launched nothing before it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import (
    Int64Array,
    Intervals,
    gaps,
    measure_within,
    overlapping_pairs,
    union,
)
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.steps import Window
from tracelab.model.thread_states import NOTHING_RECORDED
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# From the end of a launch call to the start of an activity that nothing holds up, less than 50 us
# was seen in 120 complete traces of H100, H200, H800, B200 and MI300.
_LONGEST_LAUNCH_NS = 100_000


class Cause(IntEnum):
    """What an idle device waited for."""

    HOST_BLOCKED = 0  # the thread that launches the next activity sat in a blocked call
    INPUT = 1  # it was in a data loader
    HOST_BUSY = 2  # it was executing operators, Python or launches
    DEPENDENCY = 3  # the next activity was launched and waited for work on another device
    LAUNCH = 4  # from the launch call to the start, with nothing in the way
    GRAPH = 5  # inside one replay of a CUDA graph
    EDGE = 6  # before the device's first activity in the file, or after its last
    UNKNOWN = 7  # the file does not say


class Reason(IntEnum):
    """Why the cause is unknown."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Bubbles:
    """The idle time of every device, cut into pieces of one cause each; by device and start.

    Attributes:
        device: int32[k].
        start_ns, end_ns: int64[k], ns; the pieces of a device are disjoint and make up its idle.
        cause: int8[k], a `Cause`.
        reason: int8[k], a `Reason`, NONE unless the cause is UNKNOWN.
        next_event: int64[k], the activity that ended the bubble, ABSENT at the file's end.
    """

    device_number: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array
    cause: NDArray[np.int8]
    reason: NDArray[np.int8]
    next_id: Int64Array

    def by_cause(self, device: int, windows: Sequence[Window]) -> list[dict[str, int]]:
        """Idle of one device per window: cause in small letters to ns, every cause listed."""
        totals = {cause: self.within(device, self.cause == cause, windows) for cause in Cause}
        return [
            {cause.name.lower(): int(column[i]) for cause, column in totals.items()}
            for i in range(len(windows))
        ]

    def by_reason(self, device: int, windows: Sequence[Window]) -> list[dict[str, int]]:
        """Idle of unknown cause of one device per window: reason in small letters to ns."""
        totals = {reason: self.within(device, self.reason == reason, windows) for reason in REASONS}
        return [
            {reason.name.lower(): int(x[i]) for reason, x in totals.items() if x[i]}
            for i in range(len(windows))
        ]

    def within(
        self, device: int, chosen: NDArray[np.bool_], windows: Sequence[Window]
    ) -> Int64Array:
        """Idle of one device in each window, of the chosen pieces (bool[k]): int64[windows], ns."""
        rows = chosen & (self.device_number == device)
        return measure_within(
            union(self.start_ns[rows], self.end_ns[rows]),
            [window.start_ns for window in windows],
            [window.end_ns for window in windows],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """The bubbles of one device between its first and its last activity, in order.

    Activities of no length keep no device busy: they neither end a bubble nor begin one.

    Attributes:
        start_ns, end_ns: int64[g], ns.
        after: intp[g], timeline row of the activity that starts at the end; of several the one of
            the lowest stream.
        launch: int64[g], event id of the call that launched `after`, else ABSENT.
        launched_ns: int64[g], when that call got to launch (see `Host.launched_ns`), within the
            gap; its end without a launch.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    next_row: NDArray[np.intp]
    launch_id: Int64Array
    launched_ns: Int64Array


def device_gaps(host: Host, device: int) -> Gaps:
    """The bubbles of one device."""
    timeline = host.timeline
    rows = _working(timeline, device)
    start = timeline.start_ns[rows]
    busy = union(start, timeline.end_ns[rows])
    gap_start, gap_end = busy.ends[:-1], busy.starts[1:]
    by_start = np.argsort(start, kind="stable")
    after = rows[by_start[np.searchsorted(start[by_start], gap_end)]]
    launch = timeline.launch_id[after]
    launched = np.clip(host.launched_ns[launch], gap_start, gap_end)
    return Gaps(
        start_ns=gap_start,
        end_ns=gap_end,
        next_row=after,
        launch_id=launch,
        launched_ns=np.where(launch == ABSENT, gap_end, launched),
    )


def bubbles(graph: Graph, windows: Sequence[Window]) -> Bubbles:
    """Find and explain the idle time of every device within the hull of these windows."""
    timeline = graph.host.timeline
    hull_start = min(window.start_ns for window in windows)
    hull_end = max(window.end_ns for window in windows)
    found: list[tuple[int, _Pieces, Cause, Reason]] = []
    began_ns = _launch_began_ns(timeline)
    for device in timeline.device_numbers:
        for pieces, cause, reason in _explain(graph, device_gaps(graph.host, device), began_ns):
            found.append((device, pieces, cause, reason))
        found.append(
            (device, _edges(timeline, device, hull_start, hull_end), Cause.EDGE, Reason.NONE)
        )
    sizes = [len(pieces.start_ns) for _, pieces, _, _ in found]
    device_column = np.repeat([device for device, *_ in found], sizes).astype(np.int32)
    start = np.concatenate([pieces.start_ns for _, pieces, _, _ in found])
    order = np.lexsort((start, device_column))
    after = np.concatenate([pieces.after for _, pieces, _, _ in found])[order]
    next_event = np.where(after == ABSENT, ABSENT, timeline.event_id[after])
    return Bubbles(
        device_number=device_column[order],
        start_ns=start[order],
        end_ns=np.concatenate([pieces.end_ns for _, pieces, _, _ in found])[order],
        cause=np.repeat([cause for *_, cause, _ in found], sizes).astype(np.int8)[order],
        reason=np.repeat([reason for *_, reason in found], sizes).astype(np.int8)[order],
        next_id=next_event.astype(np.int64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Disjoint stretches of idle time, ascending, each with the row that ends its gap."""

    start_ns: Int64Array
    end_ns: Int64Array
    after: NDArray[np.intp]

    def split(self, by: Intervals) -> tuple[_Pieces, _Pieces]:
        """The parts inside the set, and the parts outside it."""
        if not len(self.start_ns):
            return self, self
        outside = gaps(by, int(self.start_ns[0]), int(self.end_ns[-1]))
        return self._within(by), self._within(outside)

    def _within(self, other: Intervals) -> _Pieces:
        mine, theirs = overlapping_pairs(Intervals(self.start_ns, self.end_ns), other)
        return _Pieces(
            np.maximum(self.start_ns[mine], other.starts[theirs]),
            np.minimum(self.end_ns[mine], other.ends[theirs]),
            self.after[mine],
        )


def _explain(graph: Graph, idle: Gaps, began_ns: Int64Array) -> list[tuple[_Pieces, Cause, Reason]]:
    """Cut the gaps of one device into pieces of one cause; together they are the gaps."""
    timeline = graph.host.timeline
    known = idle.launch_id != ABSENT
    replayed = known & match_names(timeline.trace, idle.launch_id, is_graph_launch)
    in_graph = replayed & (began_ns[idle.next_row] <= idle.start_ns)
    blocks = np.isin(idle.launch_id, graph.host.blocking_calls.event_id)
    unknown_wait = graph.after_unresolved_wait[idle.next_row] & (len(timeline.device_numbers) > 1)
    queued = known & ~in_graph & ~blocks & ~unknown_wait
    source = graph.awaited_row[idle.next_row]
    awaited = np.where(source == ABSENT, idle.launched_ns, timeline.end_ns[source])
    ready = np.clip(awaited, idle.launched_ns, idle.end_ns)
    free = np.maximum(ready, timeline.trace.end_ns[idle.launch_id])
    held = queued & (idle.end_ns - free > _LONGEST_LAUNCH_NS)

    def pieces(chosen: NDArray[np.bool_], start: Int64Array, end: Int64Array) -> _Pieces:
        chosen = chosen & (end > start)
        return _Pieces(start[chosen], end[chosen], idle.next_row[chosen])

    waiting = known & ~in_graph
    found = [
        (pieces(~known, idle.start_ns, idle.end_ns), Cause.UNKNOWN, Reason.LAUNCH_NOT_IN_FILE),
        (pieces(in_graph, idle.start_ns, idle.end_ns), Cause.GRAPH, Reason.NONE),
        # A call that launches a copy and waits for it is blocked from its beginning.
        (pieces(waiting & blocks, idle.launched_ns, idle.end_ns), Cause.HOST_BLOCKED, Reason.NONE),
        (
            pieces(waiting & unknown_wait & ~blocks, idle.launched_ns, idle.end_ns),
            Cause.UNKNOWN,
            Reason.WAIT_WITHOUT_RECORD,
        ),
        (pieces(queued, idle.launched_ns, ready), Cause.DEPENDENCY, Reason.NONE),
        (pieces(queued & ~held, ready, idle.end_ns), Cause.LAUNCH, Reason.NONE),
        (pieces(held, ready, idle.end_ns), Cause.UNKNOWN, Reason.NOTHING_IN_THE_WAY),
    ]
    late = np.flatnonzero(waiting & (idle.launched_ns > idle.start_ns))
    for thread, places in groups_of(timeline.trace.thread_index[idle.launch_id[late]]):
        own = late[places]
        stretches = _Pieces(idle.start_ns[own], idle.launched_ns[own], idle.next_row[own])
        found += _explain_late_launch(graph, thread, stretches)
    return found


def _explain_late_launch(
    graph: Graph, thread: int, late: _Pieces
) -> list[tuple[_Pieces, Cause, Reason]]:
    """What the host did while the GPU had nothing to do.

    While nothing is recorded of the thread that launched next, it waited for another: so does the
    main thread's blocking call stand behind the first launch of autograd's thread. Last comes what
    is only known by name, a step for one: between its calls and operators, without Python's stacks,
    a thread is taken to run Python.
    """
    found: list[tuple[_Pieces, Cause, Reason]] = []
    states = (graph.host.states.get(thread, NOTHING_RECORDED), graph.host.other_threads(thread))
    for state in states:
        blocked, late = late.split(state.blocked)
        waiting, late = late.split(state.input)
        busy, late = late.split(state.recorded)
        found += [
            (blocked, Cause.HOST_BLOCKED, Reason.NONE),
            (waiting, Cause.INPUT, Reason.NONE),
            (busy, Cause.HOST_BUSY, Reason.NONE),
        ]
    for state in states:
        busy, late = late.split(state.annotated)
        found.append((busy, Cause.HOST_BUSY, Reason.NONE))
    return [*found, (late, Cause.UNKNOWN, Reason.HOST_NOT_RECORDED)]


def _edges(timeline: Timeline, device: int, start_ns: int, end_ns: int) -> _Pieces:
    """The time before the device's first activity and after its last; all of it without any."""
    rows = _working(timeline, device)
    first = rows[np.argmin(timeline.start_ns[rows])] if len(rows) else ABSENT
    begins = timeline.start_ns[first] if len(rows) else end_ns
    starts = np.array([start_ns, timeline.end_ns[rows].max(initial=begins)], dtype=np.int64)
    ends = np.array([begins, end_ns], dtype=np.int64)
    filled = ends > starts
    return _Pieces(starts[filled], ends[filled], np.array([first, ABSENT])[filled])


def _working(timeline: Timeline, device: int) -> NDArray[np.intp]:
    """The rows of a device that kept it busy."""
    return np.flatnonzero(timeline.select(device=device) & (timeline.end_ns > timeline.start_ns))


def _launch_began_ns(timeline: Timeline) -> Int64Array:
    """Per row when the first of all activities of its launch started: int64[m], ns."""
    launches, number = np.unique(timeline.launch_id, return_inverse=True)
    first = np.full(len(launches), np.iinfo(np.int64).max)
    np.minimum.at(first, number, timeline.start_ns)
    return first[number]
