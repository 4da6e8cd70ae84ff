"""Which communication and which copies ran while nothing hid them, and what was in the way.

A collective can hide under compute, a copy under compute or communication. Which work it could have
run beside depends on what it does: the data of a copy to the GPU, and the shards that an all-gather
collects, are there early, so the work *before* them is independent; what an all-reduce, a
reduce-scatter or a copy from the GPU makes is needed late, so the work *after* it is. What a stage
of a pipeline receives is needed at once: nothing is independent.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from tracelab.graph import Graph
from tracelab.intervals import (
    Int64Array,
    Intervals,
    join,
    measure_within,
    overlapping_pairs,
    subtract,
    union,
)
from tracelab.kinds import Kind, copy_direction
from tracelab.measures.obstacles import Obstacle, Obstacles
from tracelab.timeline import Timeline
from tracelab.trace import ABSENT, Category

_END_OF_TIME = 2**62
_AUTOGRAD = "autograd::engine::evaluate_function"
_NEEDS_NOTHING_BEFORE = re.compile(r"all_?gather", re.IGNORECASE)
_NEEDED_AT_ONCE = re.compile(
    r"send_?recv|send|recv|dispatch|combine|all_?to_?all|a2a", re.IGNORECASE
)
_TINY_COPY_NS = 10_000


class Side(IntEnum):
    """Where the work is that does not depend on a copy or a collective."""

    NONE = 0
    BEFORE = 1
    AFTER = 2


@dataclass(frozen=True, slots=True, eq=False)
class Exposed:
    """The exposed stretches of communication and copies; by device, kind and start.

    Attributes:
        row: intp[k], the timeline row that ran; of several at once the one that began first.
        start_ns, end_ns: int64[k], ns; disjoint within a device and kind.
        obstacle: int8[k], an `Obstacle`.
        held: intp[k], the timeline row that could not run beside it, ABSENT without any.
        held_by: int64[k], event id of the blocking call behind HOST_SYNC, else ABSENT.
        bound_ns: int64[k], the independent work there is to hide it under, at most its length.
        delays: bool[k], whether the next compute waited for it: it is blocking, not only exposed.
    """

    row: NDArray[np.intp]
    start_ns: Int64Array
    end_ns: Int64Array
    obstacle: NDArray[np.int8]
    held: NDArray[np.intp]
    held_by: Int64Array
    bound_ns: Int64Array
    delays: NDArray[np.bool_]

    def blocking(self, timeline: Timeline, device: int, kind: Kind) -> Intervals:
        """When exposed work of a kind held up the next compute of its device."""
        mine = self.delays & timeline.of(device=device, kind=kind)[self.row]
        return union(self.start_ns[mine], self.end_ns[mine])


def exposed(graph: Graph) -> Exposed:
    """Find and explain what nothing hid, on every device."""
    timeline = graph.host.timeline
    finder = _Finder(graph)
    pieces: list[_Piece] = []
    for device in timeline.devices:
        compute, comm = (timeline.of(device=device, kind=k) for k in (Kind.COMPUTE, Kind.COMM))
        copies = timeline.of(device=device, kind=Kind.COPY)
        pieces += finder.pieces(comm, hidden_by=compute)
        pieces += finder.pieces(copies, hidden_by=compute | comm)
    return Exposed(
        row=np.array([x.row for x in pieces], dtype=np.intp),
        start_ns=np.array([x.start_ns for x in pieces], dtype=np.int64),
        end_ns=np.array([x.end_ns for x in pieces], dtype=np.int64),
        obstacle=np.array([x.obstacle for x in pieces], dtype=np.int8),
        held=np.array([x.held for x in pieces], dtype=np.intp),
        held_by=np.array([x.held_by for x in pieces], dtype=np.int64),
        bound_ns=np.array([x.bound_ns for x in pieces], dtype=np.int64),
        delays=np.array([x.delays for x in pieces], dtype=np.bool_),
    )


@dataclass(slots=True)
class _Piece:
    row: int
    start_ns: int
    end_ns: int
    obstacle: Obstacle = Obstacle.TRUE_DEPENDENCY
    held: int = ABSENT
    held_by: int = ABSENT
    bound_ns: int = 0
    delays: bool = False


class _Finder:
    """What the pieces of a file have in common."""

    def __init__(self, graph: Graph) -> None:
        self._timeline = timeline = graph.host.timeline
        self._obstacles = Obstacles(graph)
        self._in_backward = launched_in_backward(timeline)
        self._side = cache(partial(side_of_independent_work, timeline))

    def pieces(self, rows: NDArray[np.bool_], *, hidden_by: NDArray[np.bool_]) -> list[_Piece]:
        """What ran of these rows while none of the others did, explained."""
        timeline = self._timeline
        hiding = np.flatnonzero(hidden_by & (timeline.end_ns > timeline.start_ns))
        hiding = hiding[np.argsort(timeline.start_ns[hiding], kind="stable")]
        mine = np.flatnonzero(rows)
        mine = mine[np.argsort(timeline.start_ns[mine], kind="stable")]
        busy = timeline.busy(hidden_by)
        found = [_Piece(*x) for x in _uncovered(timeline, mine, busy)]
        # Compute that already hides something has no room for more.
        free = subtract(busy, timeline.busy(rows))
        self._explain(found, hiding)
        self._bound(found, mine, hiding, free)
        self._follow_the_others(found, hiding)
        for piece in found:
            if piece.obstacle == Obstacle.TRUE_DEPENDENCY or piece.bound_ns == 0:
                piece.obstacle, piece.bound_ns = Obstacle.TRUE_DEPENDENCY, 0
                piece.held_by = ABSENT
        return found

    def _explain(self, pieces: list[_Piece], hiding: NDArray[np.intp]) -> None:
        timeline = self._timeline
        # What comes next is asked of the stream that computes most: the kernel that divides the
        # gradients in a side stream needs what the collective made, the backward pass does not.
        busiest = hiding[timeline.lane[hiding] == self._busiest_lane(hiding)]
        starts, next_starts = timeline.start_ns[hiding], timeline.start_ns[busiest]
        reach = np.maximum.accumulate(timeline.end_ns[hiding])
        for piece in pieces:
            side = self._side(piece.row)
            at = int(np.searchsorted(next_starts, piece.end_ns))
            after = int(busiest[at]) if at < len(busiest) else ABSENT
            holds_after, held_by = Obstacle.TRUE_DEPENDENCY, ABSENT
            if after != ABSENT:
                holds_after, held_by = self._obstacles.between(after, piece.row, piece.start_ns)
            piece.delays = holds_after in (Obstacle.SAME_STREAM, Obstacle.EVENT_WAIT)
            before = int(np.searchsorted(starts, piece.start_ns)) - 1
            if side == Side.AFTER:
                piece.obstacle, piece.held, piece.held_by = holds_after, after, held_by
            elif side == Side.BEFORE and before >= 0:
                piece.held = piece.row
                ended = min(int(reach[before]), piece.start_ns)
                piece.obstacle, piece.held_by = self._obstacles.between(
                    piece.row, int(hiding[before]), ended - 1
                )

    def _follow_the_others(self, pieces: list[_Piece], hiding: NDArray[np.intp]) -> None:
        """What comes before all other work of the file, as the first batch does, is like the rest.

        The work that it could have run beside was done before the recording began. Where those
        that follow in its stream under its name have an obstacle for the most part, it has it too,
        and their share to win.
        """
        timeline = self._timeline
        begins = int(timeline.start_ns[hiding].min(initial=_END_OF_TIME))
        name = timeline.trace.name[timeline.event]
        first: dict[tuple[int, int], list[_Piece]] = defaultdict(list)
        later: dict[tuple[int, int], list[_Piece]] = defaultdict(list)
        for piece in pieces:
            # What could have run beside the result of others is recorded, however early they ran.
            if self._side(piece.row) == Side.BEFORE:
                alike = first if timeline.start_ns[piece.row] < begins else later
                alike[int(name[piece.row]), int(timeline.lane[piece.row])].append(piece)
        for key, early in first.items():
            held = [x for x in later[key] if x.obstacle != Obstacle.TRUE_DEPENDENCY]
            bound = sum(x.bound_ns for x in held)
            length = sum(x.end_ns - x.start_ns for x in later[key])
            if 2 * bound <= length:
                continue
            example = max(held, key=lambda x: x.bound_ns)
            for piece in early:
                if piece.obstacle == Obstacle.TRUE_DEPENDENCY:
                    piece.obstacle, piece.held = example.obstacle, piece.row
                    piece.held_by = example.held_by
                    piece.bound_ns = (piece.end_ns - piece.start_ns) * bound // length

    def _busiest_lane(self, hiding: NDArray[np.intp]) -> int:
        timeline = self._timeline
        compute = hiding[timeline.kind[hiding] == Kind.COMPUTE]
        if not len(compute):
            return ABSENT
        length = timeline.end_ns[compute] - timeline.start_ns[compute]
        return int(np.bincount(timeline.lane[compute], weights=length).argmax())

    def _bound(
        self,
        pieces: list[_Piece],
        mine: NDArray[np.intp],
        hiding: NDArray[np.intp],
        free: Intervals,
    ) -> None:
        """Limit each piece to the independent work that there is."""
        lengths: dict[int, int] = {}
        held = [x for x in pieces if x.obstacle != Obstacle.TRUE_DEPENDENCY]
        for piece in held:
            length = piece.end_ns - piece.start_ns
            lengths[piece.row] = lengths.get(piece.row, 0) + length
        sides = np.array([self._side(x) for x in mine.tolist()], int)
        allowed = self._allowed_before(mine[sides == Side.BEFORE], free, lengths)
        allowed |= self._allowed_after(mine[sides == Side.AFTER], hiding, free, lengths)
        for piece in held:
            piece.bound_ns = min(piece.end_ns - piece.start_ns, allowed.get(piece.row, 0))
            if piece.bound_ns:
                allowed[piece.row] -= piece.bound_ns

    def _allowed_before(
        self, rows: NDArray[np.intp], free: Intervals, lengths: dict[int, int]
    ) -> dict[int, int]:
        """What each of these rows, by start, can hide under since the one before it."""
        if not len(rows):
            return {}
        timeline = self._timeline
        start, reach = timeline.start_ns[rows], np.maximum.accumulate(timeline.end_ns[rows])
        since = np.minimum(np.concatenate(([ABSENT], reach[:-1])), start)
        room = measure_within(free, since, start).tolist()
        return {
            row: min(lengths.get(row, 0), space)
            for row, space in zip(rows.tolist(), room, strict=True)
        }

    def _allowed_after(
        self,
        rows: NDArray[np.intp],
        hiding: NDArray[np.intp],
        free: Intervals,
        lengths: dict[int, int],
    ) -> dict[int, int]:
        """What each of these rows, by start, can hide under until the next one begins.

        Gradients are needed when the backward pass is over, so all that is left of it can hide
        them. Of other results nothing is known but what comes next.
        """
        if not len(rows):
            return {}
        timeline = self._timeline
        start, end = timeline.start_ns[rows], timeline.end_ns[rows]
        limit = self._ends_of_backward(rows, hiding)
        until = np.append(start[1:], _END_OF_TIME)
        until = np.where(limit == ABSENT, until, np.minimum(until, limit))
        room = measure_within(free, end, np.maximum(end, until)).tolist()
        allowed: dict[int, int] = {}
        left, phase = 0, ABSENT
        for i in range(len(rows) - 1, -1, -1):
            row, ends = int(rows[i]), int(limit[i])
            space = room[i] + (left if ends == phase else 0)
            allowed[row] = min(lengths.get(row, 0), space)
            left, phase = (space - allowed[row], ends) if ends != ABSENT else (0, ABSENT)
        return allowed

    def _ends_of_backward(self, rows: NDArray[np.intp], hiding: NDArray[np.intp]) -> Int64Array:
        """When the backward pass ended that launched each row: int64[n], ABSENT outside any.

        That is when the last compute ended that the row's thread launched before another did.
        """
        timeline = self._timeline
        order = hiding[np.argsort(self._obstacles.launch_ns[hiding], kind="stable")]
        launch_ns, thread = self._obstacles.launch_ns[order], self._obstacles.thread[order]
        last_of_run = np.append(np.flatnonzero(np.diff(thread)), len(order) - 1)
        ends = np.full(len(rows), ABSENT, dtype=np.int64)
        for i in np.flatnonzero(self._in_backward[rows]).tolist():
            at = int(np.searchsorted(launch_ns, self._obstacles.launch_ns[rows[i]]))
            ends[i] = timeline.end_ns[rows[i]]
            if at < len(order) and thread[at] == self._obstacles.thread[rows[i]]:
                last = last_of_run[np.searchsorted(last_of_run, at)]
                ends[i] = timeline.end_ns[order[at : last + 1]].max()
        return ends


def launched_in_backward(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], which rows were launched by a thread of autograd's."""
    trace = timeline.trace
    names = [i for i, x in enumerate(trace.strings) if x.startswith(_AUTOGRAD)]
    operators = trace.of_category(Category.OPERATOR)
    threads = np.unique(trace.thread[operators[np.isin(trace.name[operators], names)]])
    by_one: NDArray[np.bool_] = np.isin(trace.thread[timeline.launch], threads)
    by_one[timeline.launch == ABSENT] = False
    return by_one


def side_of_independent_work(timeline: Timeline, row: int) -> Side:
    """Where the work is that a copy or a collective could run beside."""
    name = timeline.trace.name_of(int(timeline.event[row]))
    if timeline.kind[row] == Kind.COPY:
        if timeline.end_ns[row] - timeline.start_ns[row] < _TINY_COPY_NS:
            return Side.NONE  # another stream for it would cost more
        return {"h2d": Side.BEFORE, "d2h": Side.AFTER, "p2p": Side.AFTER}.get(
            copy_direction(name), Side.NONE
        )
    if _NEEDS_NOTHING_BEFORE.search(name):
        return Side.BEFORE
    return Side.NONE if needed_at_once(name) else Side.AFTER


def needed_at_once(name: str) -> bool:
    """Whether a collective of this name brings what the next kernel needs."""
    return _NEEDED_AT_ONCE.search(name) is not None


def _uncovered(
    timeline: Timeline, rows: NDArray[np.intp], cover: Intervals
) -> list[tuple[int, int, int]]:
    """(row, start, end) of what ran of these rows (by start) outside a set, ascending."""
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    reach = np.maximum.accumulate(np.concatenate(([ABSENT], end)))[:-1]
    own_start = np.maximum(start, reach)
    filled = end > own_start
    own = Intervals(own_start[filled], end[filled])
    if not len(own):
        return []
    alone = subtract(join(own, own), cover)
    i, j = overlapping_pairs(own, alone)
    begun = np.maximum(own.starts[i], alone.starts[j])
    ended = np.minimum(own.ends[i], alone.ends[j])
    return list(zip(rows[filled][i].tolist(), begun.tolist(), ended.tolist(), strict=True))
