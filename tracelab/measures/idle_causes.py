"""Causes of idle time: every idle nanosecond of a device has exactly one.

A bubble ends where the device's next activity starts, so that activity tells the cause: before the
host launched it, the device waited for the host; after, for what `Binding` says that the activity
waited for. A launch call that another thread's allocation stalled has launched nothing before it
returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, concatenated, rows_at
from tracelab.base.intervals import (
    Int64Array,
    Intervals,
    gaps,
    intersect,
    measure_within,
    overlapping_pairs,
    union,
)
from tracelab.model.constraints import REASONS, Reason
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.graph import Graph
from tracelab.model.host import NOTHING_RECORDED, Host
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.steps import Window, bounds_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class Cause(IntEnum):
    """Cause of a device's idle time."""

    HOST_BLOCKED = 0  # the thread that launches the next activity was blocked or stalled in a call
    INPUT = 1  # it was in a data loader
    HOST_BUSY = 2  # it was executing operators, Python or launches, or waited for a thread that was
    DEPENDENCY = 3  # the next activity was launched and waited for work on another device
    LAUNCH = 4  # it was launched, and did not wait for another device
    GRAPH = 5  # inside one replay of a CUDA graph
    EDGE = 6  # before the device's first activity, where no step tells more, or after its last
    PROFILER = 7  # the thread was in the profiler's own code, or in the recorder's
    UNKNOWN = 8  # the file does not say


# What is known of a thread before a launch, the first that holds first.
_CAUSE_OF_STATE = (
    ("profiler", Cause.PROFILER),
    ("blocked", Cause.HOST_BLOCKED),
    ("input", Cause.INPUT),
    ("recorded", Cause.HOST_BUSY),
)


class Bubbles(Arrays):
    """The idle time of every device, cut into pieces of one cause each; by device and start.

    Attributes:
        device_number: int32[k].
        start_ns, end_ns: int64[k], ns; the pieces of a device are disjoint and make up its idle.
        cause: int8[k], a `Cause`.
        reason: int8[k], a `Reason`, NONE unless the cause is UNKNOWN.
        next_id: int64[k], event id of the activity that ended the bubble, ABSENT at the file's end.
    """

    device_number: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array
    cause: NDArray[np.int8]
    reason: NDArray[np.int8]
    next_id: Int64Array

    def by_cause(
        self, device: int, windows: Sequence[Window], part: Intervals | None = None
    ) -> list[dict[str, int]]:
        """Idle of one device per window, or a part of it: every cause in small letters to ns."""
        return self._totals(device, self.cause, Cause, windows, part)

    def by_reason(self, device: int, windows: Sequence[Window]) -> list[dict[str, int]]:
        """Idle of unknown cause of one device per window: reason in small letters to ns."""
        totals = self._totals(device, self.reason, REASONS, windows)
        return [{reason: ns for reason, ns in of_window.items() if ns} for of_window in totals]

    def _totals(
        self,
        device: int,
        column: NDArray[np.int8],
        members: Iterable[IntEnum],
        windows: Sequence[Window],
        part: Intervals | None = None,
    ) -> list[dict[str, int]]:
        """Idle of one device per window: names of the members of a column to ns."""
        of_device = column[self.rows_of(device)]
        present, none = frozenset(np.unique(of_device).tolist()), [0] * len(windows)
        totals = {
            member.name.lower(): self._within(device, of_device == member, windows, part).tolist()
            if member in present
            else none
            for member in members
        }
        return [{name: ns[i] for name, ns in totals.items()} for i in range(len(windows))]

    def rows_of(self, device: int) -> slice:
        """The pieces of one device, which are next to each other."""
        # A number of another type would copy the column.
        number = self.device_number.dtype.type(device)
        first, end = (self.device_number.searchsorted(number, side) for side in ("left", "right"))
        return slice(int(first), int(end))

    def within(
        self, device: int, is_chosen: NDArray[np.bool_], windows: Sequence[Window]
    ) -> Int64Array:
        """Idle of one device in each window, of the chosen pieces (bool[k]): int64[windows], ns."""
        return self._within(device, is_chosen[self.rows_of(device)], windows)

    def _within(
        self,
        device: int,
        is_chosen: NDArray[np.bool_],
        windows: Sequence[Window],
        part: Intervals | None = None,
    ) -> Int64Array:
        rows = self.rows_of(device)
        pieces = union(self.start_ns[rows][is_chosen], self.end_ns[rows][is_chosen])
        inside = pieces if part is None else intersect(pieces, part)
        return measure_within(inside, *bounds_of(windows))


class Gaps(Arrays):
    """The bubbles of one device between its first and its last activity, in order.

    Activities of no length keep no device busy: they neither end a bubble nor begin one.

    Attributes:
        start_ns, end_ns: int64[g], ns.
        next_row: intp[g], timeline row of the activity that starts at the end; of several the one
            of the lowest stream.
        launch_id: int64[g], event id of the call that launched `next_row`, else ABSENT.
        launched_ns: int64[g], when that call got to launch (see `Host.launched_ns`), within the
            gap; its end without a launch.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    next_row: NDArray[np.intp]
    launch_id: Int64Array
    launched_ns: Int64Array


def device_gaps(host: Host, device: int) -> Gaps:
    """The bubbles of one device.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    timeline = host.timeline
    rows = _busy_rows(timeline, device)
    start_ns = timeline.start_ns[rows]
    busy = union(start_ns, timeline.end_ns[rows])
    gap_start_ns, gap_end_ns = busy.ends[:-1], busy.starts[1:]
    by_start = np.argsort(start_ns, kind="stable")
    next_row = rows[by_start[np.searchsorted(start_ns[by_start], gap_end_ns)]]
    return _make_gaps(host, gap_start_ns, gap_end_ns, next_row)


def _make_gaps(
    host: Host, start_ns: Int64Array, end_ns: Int64Array, next_row: NDArray[np.intp]
) -> Gaps:
    """Gaps with the launches of what ends them."""
    launch_id = host.timeline.launch_id[next_row]
    launched_ns = np.clip(host.launched_ns[launch_id], start_ns, end_ns)
    return Gaps(
        start_ns=start_ns,
        end_ns=end_ns,
        next_row=next_row,
        launch_id=launch_id,
        launched_ns=np.where(launch_id == ABSENT, end_ns, launched_ns),
    )


def inside_replays(timeline: Timeline, idle: Gaps) -> NDArray[np.bool_]:
    """bool[g], which gaps are between activities of one replay of a CUDA graph."""
    is_replay = match_names(timeline.trace, idle.launch_id, is_graph_launch)
    has_begun = timeline.first_start_of_launch_ns[idle.next_row] <= idle.start_ns
    found: NDArray[np.bool_] = (idle.launch_id != ABSENT) & is_replay & has_begun
    return found


def bubbles(graph: Graph, windows: Sequence[Window] | None = None) -> Bubbles:
    """Find and explain the idle time of every device within the hull of some windows.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    timeline = graph.host.timeline
    windows = timeline.windows if windows is None else windows
    hull_start_ns = min(window.start_ns for window in windows)
    hull_end_ns = max(window.end_ns for window in windows)
    explained = [
        _make_bubbles(timeline, device, pieces, cause, reason)
        for device in timeline.device_numbers
        for pieces, cause, reason in [
            *_explain(graph, device_gaps(graph.host, device)),
            *_explain_edges(graph, device, hull_start_ns, hull_end_ns),
        ]
    ]
    found = concatenated(explained)
    return rows_at(found, np.lexsort((found.start_ns, found.device_number)))


class _Pieces(Arrays):
    """Disjoint stretches of idle time, ascending, each with the row that ends its gap."""

    start_ns: Int64Array
    end_ns: Int64Array
    next_row: NDArray[np.intp]

    def split(self, cover: Intervals) -> tuple[_Pieces, _Pieces]:
        """The parts inside the set, and the parts outside it."""
        outside = gaps(cover, int(self.start_ns[0]), int(self.end_ns[-1]))
        return self._within(cover), self._within(outside)

    def _within(self, cover: Intervals) -> _Pieces:
        index, cover_index = overlapping_pairs(Intervals(self.start_ns, self.end_ns), cover)
        return _Pieces(
            np.maximum(self.start_ns[index], cover.starts[cover_index]),
            np.minimum(self.end_ns[index], cover.ends[cover_index]),
            self.next_row[index],
        )


def _make_bubbles(
    timeline: Timeline, device: int, pieces: _Pieces, cause: Cause, reason: Reason
) -> Bubbles:
    """Pieces of one device, cause and reason, ascending."""
    count = len(pieces.start_ns)
    next_id = np.where(pieces.next_row == ABSENT, ABSENT, timeline.event_id[pieces.next_row])
    return Bubbles(
        device_number=np.full(count, device, dtype=np.int32),
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        cause=np.full(count, cause, dtype=np.int8),
        reason=np.full(count, reason, dtype=np.int8),
        next_id=next_id.astype(np.int64),
    )


def _explain(graph: Graph, idle: Gaps) -> list[tuple[_Pieces, Cause, Reason]]:
    """Cut the gaps of one device into pieces of one cause; together they are the gaps."""
    timeline, binding, row = graph.host.timeline, graph.binding, idle.next_row
    is_launched = idle.launch_id != ABSENT
    in_graph = inside_replays(timeline, idle)
    is_waiting = is_launched & ~in_graph
    is_blocking = np.isin(idle.launch_id, graph.host.blocking_calls.event_id)
    # All other streams of its device were idle as well.
    source_row, device_number = binding.source_row[row], timeline.device_number
    on_other = (source_row != ABSENT) & (device_number[source_row] != device_number[row])
    source_end_ns = np.where(on_other, timeline.end_ns[source_row], idle.launched_ns)
    awaited_ns = np.clip(source_end_ns, idle.launched_ns, idle.end_ns)

    def pieces(is_chosen: NDArray[np.bool_], start_ns: Int64Array, end_ns: Int64Array) -> _Pieces:
        is_chosen = is_chosen & (end_ns > start_ns)
        return _Pieces(start_ns[is_chosen], end_ns[is_chosen], row[is_chosen])

    is_queued = is_waiting & ~is_blocking
    before_launch = pieces(is_waiting, idle.start_ns, idle.launched_ns)
    thread_index = timeline.trace.thread_index[timeline.launch_id[before_launch.next_row]]
    return [
        (
            pieces(~is_launched, idle.start_ns, idle.end_ns),
            Cause.UNKNOWN,
            Reason.LAUNCH_NOT_IN_FILE,
        ),
        (pieces(in_graph, idle.start_ns, idle.end_ns), Cause.GRAPH, Reason.NONE),
        *(
            explained
            for thread, indices in groups_of(thread_index)
            for explained in _explain_late_launches(graph, thread, rows_at(before_launch, indices))
        ),
        # A call that launches a copy and waits for it is blocked from its beginning.
        (
            pieces(is_waiting & is_blocking, idle.launched_ns, idle.end_ns),
            Cause.HOST_BLOCKED,
            Reason.NONE,
        ),
        (pieces(is_queued, idle.launched_ns, awaited_ns), Cause.DEPENDENCY, Reason.NONE),
        *(
            (
                pieces(is_queued & (binding.reason[row] == reason), awaited_ns, idle.end_ns),
                Cause.UNKNOWN if reason else Cause.LAUNCH,
                reason,
            )
            for reason in Reason
        ),
    ]


def _explain_late_launches(
    graph: Graph, thread: int, idle: _Pieces
) -> Iterator[tuple[_Pieces, Cause, Reason]]:
    """Explain late launches by the host's activity in the gap."""
    # While nothing is recorded of the thread that launched next, it waited for another: so does the
    # main thread's blocking call stand behind the first launch of autograd's thread. So it did in a
    # lock, where the others come first as well; if nothing is recorded of them, they are taken to
    # run Python. Last comes what is only known by name, a step for one: between its calls and
    # operators, without Python's stacks, a thread is taken to run Python.
    within = Intervals(idle.start_ns, idle.end_ns)
    states = (
        graph.host.states.get(thread, NOTHING_RECORDED),
        graph.host.other_threads(thread, within),
    )
    known = [(getattr(state, doing), cause) for state in states for doing, cause in _CAUSE_OF_STATE]
    known += [(state.waiting, Cause.HOST_BUSY) for state in states]
    known += [(state.annotated, Cause.HOST_BUSY) for state in states]
    for during, cause in known:
        if len(during) and len(idle.start_ns):
            pieces, idle = idle.split(during)
            yield pieces, cause, Reason.NONE
    yield idle, Cause.UNKNOWN, Reason.HOST_NOT_RECORDED


def mark_beginnings_as_edges(timeline: Timeline, bubbles: Bubbles) -> Bubbles:
    """The same with all idle before the first activity of a device as its edge, whatever it was.

    A recording begins with empty queues. What the device waited for then is known, but it need not
    be what it waits for in another step.
    """
    is_edge = np.zeros(len(bubbles.cause), dtype=np.bool_)
    for device in timeline.device_numbers:
        start_ns = timeline.start_ns[_busy_rows(timeline, device)]
        if len(start_ns):
            rows = bubbles.rows_of(device)
            is_edge[rows] = bubbles.end_ns[rows] <= start_ns.min()
    return replace(
        bubbles,
        cause=np.where(is_edge, np.int8(Cause.EDGE), bubbles.cause),
        reason=np.where(is_edge, np.int8(Reason.NONE), bubbles.reason),
    )


def _explain_edges(
    graph: Graph, device: int, start_ns: int, end_ns: int
) -> Iterator[tuple[_Pieces, Cause, Reason]]:
    """The time before the device's first activity and after its last; all of it without any."""
    # Of the step that launched the first one the file says what the host did before.
    timeline = graph.host.timeline
    rows = _busy_rows(timeline, device)
    if not len(rows):
        yield _edge_pieces(start_ns, end_ns, ABSENT)
        return
    first = rows[np.argmin(timeline.start_ns[rows])]
    first_ns, last_ns = int(timeline.start_ns[first]), int(timeline.end_ns[rows].max())
    step_index = int(timeline.step_index[first])
    step_ns = first_ns if step_index == ABSENT else timeline.steps[step_index].start_ns
    begun_ns = min(max(start_ns, step_ns), first_ns)
    yield _edge_pieces(start_ns, begun_ns, first)
    gap = _make_gaps(graph.host, np.array([begun_ns]), np.array([first_ns]), np.array([first]))
    for pieces, cause, reason in _explain(graph, gap):
        is_known = cause != Cause.UNKNOWN
        yield pieces, cause if is_known else Cause.EDGE, reason if is_known else Reason.NONE
    yield _edge_pieces(last_ns, end_ns, ABSENT)


def _edge_pieces(start_ns: int, end_ns: int, next_row: int) -> tuple[_Pieces, Cause, Reason]:
    """A stretch of time as an edge; none where it has no length."""
    one = slice(int(end_ns > start_ns))
    start, end, row = (np.array([value])[one] for value in (start_ns, end_ns, next_row))
    return _Pieces(start, end, row), Cause.EDGE, Reason.NONE


def _busy_rows(timeline: Timeline, device: int) -> NDArray[np.intp]:
    """The rows of a device that kept it busy."""
    return np.flatnonzero(timeline.select(device=device) & (timeline.end_ns > timeline.start_ns))
