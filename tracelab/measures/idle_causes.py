"""Causes of idle time: every idle nanosecond of a device has exactly one.

Until the host launched the activity that ends a bubble, the device waited for the host; after, for
what `Binding` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int8Array,
    Int32Array,
    Int64Array,
    concatenated,
    read_only,
    rows_at,
)
from tracelab.base.intervals import Intervals, intersect, measure_within, subtract, union
from tracelab.model.binding import REASONS, Reason
from tracelab.model.graph import Graph
from tracelab.model.host import NOTHING_RECORDED, Host
from tracelab.model.kernel_kinds import is_graph_launch
from tracelab.model.lookup import expand_ranges, groups_of, match_names, range_of
from tracelab.model.steps import Window, bounds_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class Cause(IntEnum):
    """Cause of a device's idle time."""

    HOST_BLOCKED = 0  # the thread that launches next was blocked or stalled in a call
    INPUT = 1  # it was in a data loader
    HOST_BUSY = 2  # it was executing operators, Python or launches, or waited for a thread that was
    DEPENDENCY = 3  # the next activity was launched and waited for work on another device
    LAUNCH = 4  # it was launched, and did not wait for another device
    GRAPH = 5  # inside one replay of a CUDA graph
    EDGE = 6  # before the device's first activity, or after its last
    PROFILER = 7  # the thread was in the profiler's own code, or in the recorder's
    UNKNOWN = 8


# What is known of a thread before a launch, the first that holds first.
_CAUSE_OF_STATE = (
    ("profiler", Cause.PROFILER),
    ("blocked", Cause.HOST_BLOCKED),
    ("input", Cause.INPUT),
    ("recorded", Cause.HOST_BUSY),
)

# Some bubbles (bool[k]), and those pieces (bool[p]) of them that are selected; several times.
Selection = Sequence[tuple[BoolArray, BoolArray]]
# Pieces of bubbles: intp[n] the bubble, and intp[n] the piece.
Pairs = tuple[IndexArray, IndexArray]


class Bubbles(Arrays, dict=True):
    """The idle time of every device, in pieces of one cause each.

    Devices that wait for a thread at the same time share pieces. A bubble is a gap, or the shared
    or unshared part of one.

    Attributes:
        device_number: int32[k], of each bubble, by device and start; disjoint on each device.
        next_id: int64[k], event id of the activity that ended it, ABSENT at the file's end.
        first, end: intp[k], its pieces are [first, end), at least one; they touch.
        start_ns, end_ns: int64[p], ns, of each piece.
        cause: int8[p], a `Cause`.
        reason: int8[p], a `Reason`, NONE unless the cause is UNKNOWN.
    """

    device_number: Int32Array
    next_id: Int64Array
    first: IndexArray
    end: IndexArray
    start_ns: Int64Array
    end_ns: Int64Array
    cause: Int8Array
    reason: Int8Array

    def by_cause(
        self, device: int, windows: Sequence[Window], part: Intervals | None = None
    ) -> list[dict[str, int]]:
        """Idle of one device per window, or a part of it: causes in small letters to ns."""
        return _totals(self._idle_by_cause, Cause, device, windows, part)

    def by_reason(self, device: int, windows: Sequence[Window]) -> list[dict[str, int]]:
        """Idle of unknown cause of one device per window: reasons in small letters to ns."""
        totals = _totals(self._idle_by_reason, REASONS, device, windows)
        return [{reason: ns for reason, ns in of_window.items() if ns} for of_window in totals]

    def rows_of(self, device: int) -> slice:
        """The bubbles of one device."""
        return range_of(self.device_number, device)

    @cached_property
    def lasts_ns(self) -> tuple[Int64Array, Int64Array]:
        """int64[k] twice, ns, when each bubble begins and ends."""
        return read_only(self.start_ns[self.first]), read_only(self.end_ns[self.end - 1])

    @cached_property
    def bubble_of(self) -> IndexArray:
        """intp[p], the bubble of each piece; of a shared one a bubble that waits for its thread."""
        order = np.argsort(self.first, kind="stable")
        piece = np.arange(len(self.cause))
        begun = np.searchsorted(self.first, piece, side="right", sorter=order)
        return read_only(order[begun - 1])

    def pieces_of(self, rows: slice | IndexArray, is_piece: BoolArray | None = None) -> Pairs:
        """Each piece of some bubbles, or of those each chosen one (bool[p]), with its bubble."""
        row = np.arange(len(self.first))[rows]
        if is_piece is None:
            index, piece = expand_ranges(self.first[row], self.end[row])
            return row[index], piece
        chosen = np.flatnonzero(is_piece)
        bounds = (np.searchsorted(chosen, x[row]) for x in (self.first, self.end))
        index, position = expand_ranges(*bounds)
        return row[index], chosen[position]

    def longest(self, selection: Selection, length_ns: Int64Array, most: int) -> Pairs:
        """The selected pieces that have most of a length (int64[p]), the longest first."""
        found = [self._longest(rows, is_piece, length_ns, most) for rows, is_piece in selection]
        row, piece = (np.concatenate(x) for x in zip(*found, strict=True))
        order = np.lexsort((piece, row, -length_ns[piece]))[:most]
        return row[order], piece[order]

    def _longest(
        self, is_row: BoolArray, is_piece: BoolArray, length_ns: Int64Array, most: int
    ) -> Pairs:
        """As many of the longest chosen pieces of chosen bubbles, or more."""
        rows, order = np.flatnonzero(is_row), np.argsort(-length_ns, kind="stable")
        reach = np.searchsorted(np.cumsum((self.covered(is_row) * is_piece)[order]), most)
        if reach == len(order):
            return self.pieces_of(rows, is_piece)
        least_ns = length_ns[order[reach]]
        alike = is_piece & (length_ns == least_ns)
        until = np.searchsorted(np.cumsum(self.sums(alike)[rows]), most)
        longer = self.pieces_of(rows, is_piece & (length_ns > least_ns))
        as_long = self.pieces_of(rows[: until + 1], alike)
        return np.concatenate((longer[0], as_long[0])), np.concatenate((longer[1], as_long[1]))

    def last_longest(self, length_ns: Int64Array) -> IndexArray:
        """intp[k], the last piece of the greatest length (int64[p]) in each bubble."""

        def longer(piece: IndexArray, later: IndexArray) -> IndexArray:
            return np.where(length_ns[later] >= length_ns[piece], later, piece)

        size, piece = self.end - self.first, np.zeros(len(self.first), dtype=np.intp)
        best, width = np.arange(len(length_ns)), 1
        while width <= size.max(initial=0):
            rows = np.flatnonzero((size >= width) & (size < 2 * width))
            latest = best[self.end[rows] - width]
            piece[rows] = longer(best[self.first[rows]], latest)
            best = longer(best[:-width], best[width:])
            width *= 2
        return piece

    def sums(self, of_piece: NDArray[np.integer[Any] | np.bool_]) -> Int64Array:
        """int64[k], the sum of a number of each piece (int[p]) over the pieces of each bubble."""
        before = np.concatenate(([0], np.cumsum(of_piece, dtype=np.int64)))
        sums: Int64Array = before[self.end] - before[self.first]
        return sums

    def covered(self, is_row: BoolArray | slice = slice(None)) -> IndexArray:
        """intp[p], how many of all bubbles, or of chosen ones (bool[k]), each piece is in."""
        count = len(self.cause) + 1
        begin, end = (np.bincount(x[is_row], minlength=count) for x in (self.first, self.end))
        return np.cumsum(begin - end)[:-1]

    def select(self, is_piece: BoolArray) -> Selection:
        """Some pieces (bool[p]) of all bubbles."""
        return ((np.ones(len(self.first), dtype=np.bool_), is_piece),)

    def idle(self, selection: Selection) -> DeviceIdle:
        """The selected idle time."""
        parts = concatenated([self._idle(is_row, is_piece) for is_row, is_piece in selection])
        return rows_at(parts, np.argsort(parts.device_number, kind="stable"))

    def _idle(self, is_row: BoolArray, is_piece: BoolArray) -> DeviceIdle:
        piece = np.flatnonzero(is_piece)
        bounds = np.searchsorted(piece, self.first), np.searchsorted(piece, self.end)
        row = np.flatnonzero((bounds[0] < bounds[1]) & is_row)
        begins = np.ones(len(piece), dtype=np.bool_)
        begins[1:] = (np.diff(piece) > 1) | (self.start_ns[piece[1:]] != self.end_ns[piece[:-1]])
        # Touching pieces as one; a bubble has a part of the first and the last of them.
        stretch = np.cumsum(begins) - 1
        since_ns = self.start_ns[piece[begins]]
        until_ns = self.end_ns[piece[np.append(begins[1:], [True])[: len(piece)]]]
        first, last = bounds[0][row], bounds[1][row] - 1
        index, of_bubble = expand_ranges(stretch[first], stretch[last] + 1)
        return DeviceIdle(
            device_number=self.device_number[row[index]],
            start_ns=np.maximum(since_ns[of_bubble], self.start_ns[piece[first]][index]),
            end_ns=np.minimum(until_ns[of_bubble], self.end_ns[piece[last]][index]),
        )

    @cached_property
    def all_idle(self) -> DeviceIdle:
        """Idle time of every device."""
        return self.idle(self.select(np.ones(len(self.cause), dtype=np.bool_)))

    @cached_property
    def _idle_by_cause(self) -> dict[int, DeviceIdle]:
        return self._idle_by(self.cause)

    @cached_property
    def _idle_by_reason(self) -> dict[int, DeviceIdle]:
        return self._idle_by(self.reason)

    def _idle_by(self, column: Int8Array) -> dict[int, DeviceIdle]:
        return {x: self.idle(self.select(column == x)) for x in np.unique(column).tolist()}


class DeviceIdle(Arrays):
    """Some of the idle time of the devices, in disjoint stretches ([s]); by device and start."""

    device_number: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array

    def intervals(self, device: int) -> Intervals:
        """Return the idle time of one device."""
        rows = range_of(self.device_number, device)
        return union(self.start_ns[rows], self.end_ns[rows])

    def within(self, device: int, windows: Sequence[Window]) -> Int64Array:
        """Measure the idle time of one device in each window: int64[windows], ns."""
        return measure_within(self.intervals(device), *bounds_of(windows))


def _totals(
    idle: Mapping[int, DeviceIdle],
    members: Iterable[IntEnum],
    device: int,
    windows: Sequence[Window],
    part: Intervals | None = None,
) -> list[dict[str, int]]:
    def measured(member: IntEnum) -> list[int]:
        if member not in idle:
            return [0] * len(windows)
        time = idle[member].intervals(device)
        inside = time if part is None else intersect(time, part)
        lengths_ns: list[int] = measure_within(inside, *bounds_of(windows)).tolist()
        return lengths_ns

    totals = {member.name.lower(): measured(member) for member in members}
    return [{name: ns[i] for name, ns in totals.items()} for i in range(len(windows))]


class Gaps(Arrays):
    """The bubbles of one device between its first and its last activity, in order.

    Activities of no length neither end a bubble nor begin one.

    Attributes:
        next_row: intp[g], timeline row of the activity at the end; of several the lowest stream's.
        launch_id: int64[g], event id of the call that launched it, else ABSENT.
        launched_ns: int64[g], when that call got to launch (`Host.launched_ns`), within the gap;
            its end without a launch.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    next_row: IndexArray
    launch_id: Int64Array
    launched_ns: Int64Array


def device_gaps(host: Host, device: int) -> Gaps:
    """The bubbles of one device."""
    timeline = host.timeline
    rows = _busy_rows(timeline, device)
    start_ns = timeline.start_ns[rows]
    busy = union(start_ns, timeline.end_ns[rows])
    gap_start_ns, gap_end_ns = busy.ends[:-1], busy.starts[1:]
    by_start = np.argsort(start_ns, kind="stable")
    next_row = rows[by_start[np.searchsorted(start_ns[by_start], gap_end_ns)]]
    return _make_gaps(host, gap_start_ns, gap_end_ns, next_row)


def _make_gaps(host: Host, start_ns: Int64Array, end_ns: Int64Array, next_row: IndexArray) -> Gaps:
    launch_id = host.timeline.launch_id[next_row]
    launched_ns = np.clip(host.launched_ns[launch_id], start_ns, end_ns)
    return Gaps(
        start_ns=start_ns,
        end_ns=end_ns,
        next_row=next_row,
        launch_id=launch_id,
        launched_ns=np.where(launch_id == ABSENT, end_ns, launched_ns),
    )


def inside_replays(timeline: Timeline, idle: Gaps) -> BoolArray:
    """bool[g], which gaps are between activities of one replay of a CUDA graph."""
    is_replay = match_names(timeline.trace, idle.launch_id, is_graph_launch)
    has_begun = timeline.first_start_of_launch_ns[idle.next_row] <= idle.start_ns
    found: BoolArray = (idle.launch_id != ABSENT) & is_replay & has_begun
    return found


def bubbles(graph: Graph, windows: Sequence[Window] | None = None) -> Bubbles:
    """Find and explain the idle time of every device within the hull of some windows."""
    timeline = graph.host.timeline
    windows = timeline.windows if windows is None else windows
    hull_start_ns = min(window.start_ns for window in windows)
    hull_end_ns = max(window.end_ns for window in windows)
    idle = concatenated([device_gaps(graph.host, x) for x in timeline.device_numbers])
    return _joined([*_explain(graph, idle), *_explain_edges(graph, hull_start_ns, hull_end_ns)])


def _joined(parts: Sequence[Bubbles]) -> Bubbles:
    together = concatenated(parts)
    sizes = np.array([len(part.cause) for part in parts], dtype=np.intp)
    before = np.repeat(np.cumsum(sizes) - sizes, [len(part.first) for part in parts])
    first, end = together.first + before, together.end + before
    order = np.lexsort((together.start_ns[first], together.device_number))
    return replace(
        together,
        device_number=together.device_number[order],
        next_id=together.next_id[order],
        first=first[order],
        end=end[order],
    )


class _Stretches(Arrays):
    """Stretches of idle time, those of a device disjoint, each with the row that ends its gap."""

    device_number: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array
    next_row: IndexArray


def _make_bubbles(
    timeline: Timeline, idle: _Stretches, cause: ArrayLike, reason: ArrayLike
) -> Bubbles:
    index = np.arange(len(idle.start_ns))
    return Bubbles(
        idle.device_number,
        _event_id(timeline, idle.next_row),
        index,
        index + 1,
        idle.start_ns,
        idle.end_ns,
        np.full(len(index), cause, dtype=np.int8),
        np.full(len(index), reason, dtype=np.int8),
    )


def _explain(graph: Graph, idle: Gaps) -> Iterator[Bubbles]:
    """Cut gaps into bubbles of pieces of one cause; together they are the gaps."""
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

    def stretches(is_chosen: BoolArray, start_ns: Int64Array, end_ns: Int64Array) -> _Stretches:
        index = np.flatnonzero(is_chosen & (end_ns > start_ns))
        return _Stretches(device_number[row[index]], start_ns[index], end_ns[index], row[index])

    is_queued = is_waiting & ~is_blocking
    before_launch = stretches(is_waiting, idle.start_ns, idle.launched_ns)
    thread_index = timeline.trace.thread_index[timeline.launch_id[before_launch.next_row]]
    for is_chosen, start_ns, end_ns, cause, reason in (
        (~is_launched, idle.start_ns, idle.end_ns, Cause.UNKNOWN, Reason.LAUNCH_NOT_IN_FILE),
        (in_graph, idle.start_ns, idle.end_ns, Cause.GRAPH, Reason.NONE),
        # A call that launches a copy and waits for it is blocked from its beginning.
        (is_waiting & is_blocking, idle.launched_ns, idle.end_ns, Cause.HOST_BLOCKED, Reason.NONE),
        (is_queued, idle.launched_ns, awaited_ns, Cause.DEPENDENCY, Reason.NONE),
    ):
        yield _make_bubbles(timeline, stretches(is_chosen, start_ns, end_ns), cause, reason)
    launched = stretches(is_queued, awaited_ns, idle.end_ns)
    reasons = binding.reason[launched.next_row]
    causes = np.where(reasons == Reason.NONE, Cause.LAUNCH, Cause.UNKNOWN).astype(np.int8)
    yield _make_bubbles(timeline, launched, causes, reasons)
    if len(thread_index):
        yield from _explain_late_launches(graph, before_launch, thread_index)


def _explain_late_launches(
    graph: Graph, idle: _Stretches, thread_index: Int32Array
) -> Iterator[Bubbles]:
    """Explain idle time before late launches of some threads (int32[k]) by the host's activity."""
    # The time of each thread is cut once, however many devices waited.
    cuts, rows, bounds, count = [], [], [], 0
    for thread, index in groups_of(thread_index):
        starts_ns, ends_ns = idle.start_ns[index], idle.end_ns[index]
        pieces = _cut(graph.host, thread, union(starts_ns, ends_ns))
        first = np.searchsorted(pieces[1], starts_ns, side="right")
        bounds.append((count + first, count + np.searchsorted(pieces[0], ends_ns)))
        cuts.append(pieces)
        rows.append(index)
        count += len(pieces[0])
    start_ns, end_ns, cause = map(np.concatenate, zip(*cuts, strict=True))
    first, end = map(np.concatenate, zip(*bounds, strict=True))
    idle = rows_at(idle, np.concatenate(rows))
    # A piece of which a device waited for a part only is a bubble of its own.
    has_head = start_ns[first] < idle.start_ns
    has_tail = (end_ns[end - 1] > idle.end_ns) & ~(has_head & (end == first + 1))
    for has_part, of_gap in ((has_head, first), (has_tail, end - 1)):
        piece, of_part = of_gap[has_part], rows_at(idle, has_part)
        part = replace(
            of_part,
            start_ns=np.maximum(start_ns[piece], of_part.start_ns),
            end_ns=np.minimum(end_ns[piece], of_part.end_ns),
        )
        timeline, causes = graph.host.timeline, cause[piece]
        yield _make_bubbles(timeline, part, causes, _reason_of(causes))
    first, end = first + has_head, end - has_tail
    row = np.flatnonzero(first < end)
    yield Bubbles(
        idle.device_number[row],
        _event_id(graph.host.timeline, idle.next_row[row]),
        first[row],
        end[row],
        start_ns,
        end_ns,
        cause,
        _reason_of(cause),
    )


def _cut(host: Host, thread: int, idle: Intervals) -> tuple[Int64Array, Int64Array, Int8Array]:
    """Start, end and cause of pieces of idle time before launches of a thread, ascending."""
    # A thread of which nothing is recorded, or in a lock, waited for another, as autograd's first
    # launch does for the main thread's blocking call. Last comes what is known by name only (a
    # step): a thread there is taken to run Python.
    states = host.states.get(thread, NOTHING_RECORDED), host.other_threads(thread, idle)
    known = [(getattr(state, doing), cause) for state in states for doing, cause in _CAUSE_OF_STATE]
    known += [(state.waiting, Cause.HOST_BUSY) for state in states]
    known += [(state.annotated, Cause.HOST_BUSY) for state in states]
    pieces = []
    for during, cause in known:
        if len(during):
            pieces.append((intersect(idle, during), cause))
            idle = subtract(idle, during)
    pieces.append((idle, Cause.UNKNOWN))
    start_ns = np.concatenate([x.starts for x, _ in pieces])
    end_ns = np.concatenate([x.ends for x, _ in pieces])
    causes = np.repeat(
        np.array([cause for _, cause in pieces], dtype=np.int8), [len(x) for x, _ in pieces]
    )
    order = np.argsort(start_ns)
    return start_ns[order], end_ns[order], causes[order]


def _reason_of(cause: Int8Array) -> Int8Array:
    is_unknown = cause == Cause.UNKNOWN
    return np.where(is_unknown, Reason.HOST_NOT_RECORDED, Reason.NONE).astype(np.int8)


def mark_beginnings_as_edges(timeline: Timeline, bubbles: Bubbles) -> Bubbles:
    """The same with all idle before the first activity of a device as its edge, whatever it was."""
    first_rows = [_first_row(timeline, _busy_rows(timeline, x)) for x in timeline.device_numbers]
    is_first = np.isin(bubbles.next_id, _event_id(timeline, np.array(first_rows, dtype=np.intp)))
    is_first &= bubbles.next_id != ABSENT
    is_edge = bubbles.covered(is_first) > 0  # they share pieces with none that end later
    return replace(
        bubbles,
        cause=np.where(is_edge, np.int8(Cause.EDGE), bubbles.cause),
        reason=np.where(is_edge, np.int8(Reason.NONE), bubbles.reason),
    )


def _explain_edges(graph: Graph, start_ns: int, end_ns: int) -> Iterator[Bubbles]:
    """The time before each device's first activity and after its last; all of it without any."""
    # Of the step that launched the first one the file says what the host did before.
    host, timeline = graph.host, graph.host.timeline
    edges, beginnings = [], []
    for device in timeline.device_numbers:
        rows = _busy_rows(timeline, device)
        first = _first_row(timeline, rows)
        if first == ABSENT:
            edges.append((device, start_ns, end_ns, ABSENT))
            continue
        first_ns, last_ns = int(timeline.start_ns[first]), int(timeline.end_ns[rows].max())
        step_index = int(timeline.step_index[first])
        step_ns = first_ns if step_index == ABSENT else timeline.steps[step_index].start_ns
        begun_ns = min(max(start_ns, step_ns), first_ns)
        edges += [(device, start_ns, begun_ns, first), (device, last_ns, end_ns, ABSENT)]
        beginnings.append((begun_ns, first_ns, first))
    device_number, edge_start_ns, edge_end_ns, next_row = np.array(edges, dtype=np.int64).T
    stretches = _Stretches(device_number.astype(np.int32), edge_start_ns, edge_end_ns, next_row)
    is_filled = edge_end_ns > edge_start_ns
    yield _make_bubbles(timeline, rows_at(stretches, is_filled), Cause.EDGE, Reason.NONE)
    gap = _make_gaps(host, *np.array(beginnings, dtype=np.int64).reshape(-1, 3).T)
    for found in _explain(graph, gap):
        is_known = found.cause != Cause.UNKNOWN
        yield replace(
            found,
            cause=np.where(is_known, found.cause, np.int8(Cause.EDGE)),
            reason=np.where(is_known, found.reason, np.int8(Reason.NONE)),
        )


def _busy_rows(timeline: Timeline, device: int) -> IndexArray:
    own = timeline.rows_of(device)
    row = np.arange(own.start, own.stop)
    return row[timeline.end_ns[own] > timeline.start_ns[own]]


def _first_row(timeline: Timeline, rows: IndexArray) -> int:
    return int(rows[np.argmin(timeline.start_ns[rows])]) if len(rows) else ABSENT


def _event_id(timeline: Timeline, row: IndexArray) -> Int64Array:
    event_id: Int64Array = np.where(row == ABSENT, ABSENT, timeline.event_id[row])
    return event_id
