"""Which communication and which copies ran while nothing hid them, and what was in the way.

A collective can hide under compute, a copy under compute or communication. Which work it could have
run beside depends on what it does: the data of a copy to the GPU, and the shards that an all-gather
collects, are there early, so the work *before* them is independent; what an all-reduce, a
reduce-scatter or a copy from the GPU makes is needed late, so the work *after* it is. What a stage
of a pipeline receives is needed at once: nothing is independent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import (
    Int64Array,
    Intervals,
    join,
    measure_within,
    overlapping_pairs,
    subtract,
    union,
)
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

_END_OF_TIME = np.iinfo(np.int64).max
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


_SIDES_OF_COPIES = {"h2d": Side.BEFORE, "d2h": Side.AFTER, "p2p": Side.AFTER}


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
    blocker: NDArray[np.int8]
    blocked_row: NDArray[np.intp]
    blocking_call_id: Int64Array
    bound_ns: Int64Array
    delays: NDArray[np.bool_]

    def blocking(self, timeline: Timeline, device: int, kind: Kind) -> Intervals:
        """When exposed work of a kind held up the next compute of its device."""
        mine = self.delays & timeline.select(device=device, kind=kind)[self.row]
        return union(self.start_ns[mine], self.end_ns[mine])


def exposed(graph: Graph) -> Exposed:
    """Find and explain what nothing hid, on every device."""
    timeline = graph.host.timeline
    finder = _Finder(graph)
    found: list[Exposed] = []
    for device in timeline.device_numbers:
        compute, comm = (timeline.select(device=device, kind=k) for k in (Kind.COMPUTE, Kind.COMM))
        copies = timeline.select(device=device, kind=Kind.COPY)
        found.append(finder.pieces(comm, hidden_by=compute))
        found.append(finder.pieces(copies, hidden_by=compute | comm))
    return Exposed(*(np.concatenate([getattr(x, y.name) for x in found]) for y in fields(Exposed)))


class _Finder:
    """What the pieces of a file have in common."""

    def __init__(self, graph: Graph) -> None:
        self._timeline = timeline = graph.host.timeline
        self._obstacles = OverlapBlockers(graph)
        self._in_backward = launched_in_backward(timeline)

    def pieces(self, rows: NDArray[np.bool_], *, hidden_by: NDArray[np.bool_]) -> Exposed:
        """What ran of these rows while none of the others did, explained."""
        timeline = self._timeline
        hiding = np.flatnonzero(hidden_by & (timeline.end_ns > timeline.start_ns))
        hiding = hiding[np.argsort(timeline.start_ns[hiding], kind="stable")]
        mine = np.flatnonzero(rows)
        mine = mine[np.argsort(timeline.start_ns[mine], kind="stable")]
        busy = timeline.busy(hidden_by)
        # Compute that already hides something has no room for more.
        free = subtract(busy, timeline.busy(rows))
        found = self._explained(*_uncovered(timeline, mine, busy), hiding)
        self._bound(found, mine, hiding, free)
        self._follow_the_others(found, hiding)
        hopeless = (found.blocker == OverlapBlocker.TRUE_DEPENDENCY) | (found.bound_ns == 0)
        found.blocker[hopeless] = OverlapBlocker.TRUE_DEPENDENCY
        found.bound_ns[hopeless] = 0
        found.blocking_call_id[hopeless] = ABSENT
        return found

    def _explained(
        self,
        row: NDArray[np.intp],
        start_ns: Int64Array,
        end_ns: Int64Array,
        hiding: NDArray[np.intp],
    ) -> Exposed:
        """These pieces and what was in their way; their bounds are still to be found."""
        timeline = self._timeline
        # What comes next is asked of the stream that computes most: the kernel that divides the
        # gradients in a side stream needs what the collective made, the backward pass does not.
        busiest = hiding[timeline.stream_index[hiding] == self._busiest_lane(hiding)]
        at = np.searchsorted(timeline.start_ns[busiest], end_ns)
        followed = np.flatnonzero(at < len(busiest))
        after = np.full(len(row), ABSENT, dtype=np.intp)
        after[followed] = busiest[at[followed]]
        obstacle = np.full(len(row), OverlapBlocker.TRUE_DEPENDENCY, dtype=np.int8)
        held_by = np.full(len(row), ABSENT, dtype=np.int64)
        obstacle[followed], held_by[followed] = self._obstacles.between(
            after[followed], row[followed], start_ns[followed]
        )
        delays = np.isin(obstacle, (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT))
        side = side_of_independent_work(timeline, row)
        early = side != Side.AFTER
        obstacle[early], held_by[early] = OverlapBlocker.TRUE_DEPENDENCY, ABSENT
        before = np.searchsorted(timeline.start_ns[hiding], start_ns) - 1
        led = np.flatnonzero((side == Side.BEFORE) & (before >= 0))
        reach = np.maximum.accumulate(timeline.end_ns[hiding])
        obstacle[led], held_by[led] = self._obstacles.between(
            row[led], hiding[before[led]], np.minimum(reach[before[led]], start_ns[led]) - 1
        )
        held = np.where(early, ABSENT, after)
        held[led] = row[led]
        bound_ns = np.zeros(len(row), dtype=np.int64)
        return Exposed(row, start_ns, end_ns, obstacle, held, held_by, bound_ns, delays)

    def _follow_the_others(self, found: Exposed, hiding: NDArray[np.intp]) -> None:
        """What comes before all other work of the file, as the first batch does, is like the rest.

        The work that it could have run beside was done before the recording began. Where those
        that follow in its stream under its name have an obstacle for the most part, it has it too,
        and their share to win.
        """
        timeline, row = self._timeline, found.row
        begins = timeline.start_ns[hiding].min(initial=_END_OF_TIME)
        length = found.end_ns - found.start_ns
        obstructed = found.blocker != OverlapBlocker.TRUE_DEPENDENCY
        # What could have run beside the result of others is recorded, however early they ran.
        led = np.flatnonzero(side_of_independent_work(timeline, row) == Side.BEFORE)
        early = timeline.start_ns[row] < begins
        name = timeline.trace.name_index[timeline.event_id[row[led]]].astype(np.int64)
        for _, alike in groups_of(name * len(timeline.streams) + timeline.stream_index[row[led]]):
            group = led[alike]
            first, later = group[early[group]], group[~early[group]]
            held = later[obstructed[later]]
            bound, whole = int(found.bound_ns[held].sum()), int(length[later].sum())
            if 2 * bound <= whole:
                continue
            example = held[np.argmax(found.bound_ns[held])]
            for piece in first[~obstructed[first]].tolist():
                found.blocker[piece], found.blocked_row[piece] = found.blocker[example], row[piece]
                found.blocking_call_id[piece] = found.blocking_call_id[example]
                found.bound_ns[piece] = int(length[piece]) * bound // whole

    def _busiest_lane(self, hiding: NDArray[np.intp]) -> int:
        timeline = self._timeline
        compute = hiding[timeline.kind[hiding] == Kind.COMPUTE]
        if not len(compute):
            return ABSENT
        length = timeline.end_ns[compute] - timeline.start_ns[compute]
        return int(np.bincount(timeline.stream_index[compute], weights=length).argmax())

    def _bound(
        self,
        found: Exposed,
        mine: NDArray[np.intp],
        hiding: NDArray[np.intp],
        free: Intervals,
    ) -> None:
        """Limit each piece to the independent work that there is."""
        held = np.flatnonzero(found.blocker != OverlapBlocker.TRUE_DEPENDENCY)
        row, length = found.row[held], (found.end_ns - found.start_ns)[held]
        lengths, allowed = (
            np.zeros(len(self._timeline.event_id), dtype=np.int64) for _ in range(2)
        )
        np.add.at(lengths, row, length)
        sides = side_of_independent_work(self._timeline, mine)
        for side, allow in (
            (Side.BEFORE, self._allowed_before),
            (Side.AFTER, partial(self._allowed_after, hiding)),
        ):
            rows = mine[sides == side]
            allowed[rows] = allow(rows, free, lengths[rows])
        # The pieces of one row stand together: the first has the first of what is allowed.
        gone = np.cumsum(length) - length
        begins = np.diff(row, prepend=ABSENT) != 0
        gone -= np.maximum.accumulate(np.where(begins, gone, 0))
        found.bound_ns[held] = np.clip(allowed[row] - gone, 0, length)

    def _allowed_before(
        self, rows: NDArray[np.intp], free: Intervals, lengths: Int64Array
    ) -> Int64Array:
        """What each of these rows, by start, can hide under since the one before it: int64[n]."""
        timeline = self._timeline
        start, reach = timeline.start_ns[rows], np.maximum.accumulate(timeline.end_ns[rows])
        since = np.minimum(np.concatenate(([ABSENT], reach))[: len(rows)], start)
        return np.minimum(lengths, measure_within(free, since, start))

    def _allowed_after(
        self,
        hiding: NDArray[np.intp],
        rows: NDArray[np.intp],
        free: Intervals,
        lengths: Int64Array,
    ) -> list[int]:
        """What each of these rows, by start, can hide under until the next one begins.

        Gradients are needed when the backward pass is over, so all that is left of it can hide
        them. Of other results nothing is known but what comes next.
        """
        timeline = self._timeline
        start, end = timeline.start_ns[rows], timeline.end_ns[rows]
        limit = self._ends_of_backward(rows, hiding)
        until = np.append(start, _END_OF_TIME)[1:]
        until = np.where(limit == ABSENT, until, np.minimum(until, limit))
        room = measure_within(free, end, np.maximum(end, until))
        allowed: list[int] = []
        left, phase = 0, ABSENT
        # From the last one on: what it leaves is there for the ones before it.
        columns = (x[::-1].tolist() for x in (lengths, room, limit))
        for length, own, ends in zip(*columns, strict=True):
            space = own + (left if ends == phase else 0)
            allowed.append(min(length, space))
            left, phase = (space - allowed[-1], ends) if ends != ABSENT else (0, ABSENT)
        return allowed[::-1]

    def _ends_of_backward(self, rows: NDArray[np.intp], hiding: NDArray[np.intp]) -> Int64Array:
        """When the backward pass ended that launched each row: int64[n], ABSENT outside any.

        That is when the last compute ended that the row's thread launched before another did.
        """
        timeline, obstacles = self._timeline, self._obstacles
        order = hiding[np.argsort(obstacles.launch_ns[hiding], kind="stable")]
        thread = obstacles.thread[order]
        mine = np.flatnonzero(self._in_backward[rows])
        at = np.searchsorted(obstacles.launch_ns[order], obstacles.launch_ns[rows[mine]])
        ends = np.full(len(rows), ABSENT, dtype=np.int64)
        ends[mine] = timeline.end_ns[rows[mine]]
        inside = at < len(order)
        inside[inside] = thread[at[inside]] == obstacles.thread[rows[mine[inside]]]
        ends[mine[inside]] = _last_of_run(thread, timeline.end_ns[order])[at[inside]]
        return ends


def _last_of_run(thread: NDArray[np.integer[Any]], end_ns: Int64Array) -> Int64Array:
    """The greatest end from each entry on, up to where the thread changes: int64[k], ns."""
    ends, place = np.unique(end_ns, return_inverse=True)
    # From the back each run ranks above the ones before, so that a maximum never leaves its run.
    run = np.cumsum(np.diff(thread[::-1], prepend=thread[-1:]) != 0)
    rank = np.maximum.accumulate(run * len(ends) + place[::-1])
    last: Int64Array = ends[(rank - run * len(ends))[::-1]]
    return last


def launched_in_backward(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], which rows were launched by a thread of autograd's."""
    trace = timeline.trace
    operators = trace.of_category(Category.OPERATOR)
    autograds = operators[match_names(trace, operators, lambda x: x.startswith(_AUTOGRAD))]
    threads = np.unique(trace.thread_index[autograds])
    by_one: NDArray[np.bool_] = np.isin(trace.thread_index[timeline.launch_id], threads)
    by_one[timeline.launch_id == ABSENT] = False
    return by_one


def side_of_independent_work(timeline: Timeline, rows: NDArray[np.intp]) -> NDArray[np.int8]:
    """Where the work is that copies or collectives could run beside: int8[k], a `Side`."""
    trace, events = timeline.trace, timeline.event_id[rows]
    side = np.full(len(rows), Side.AFTER, dtype=np.int8)
    side[match_names(trace, events, needed_at_once)] = Side.NONE
    side[match_names(trace, events, _NEEDS_NOTHING_BEFORE.search)] = Side.BEFORE
    copies = np.flatnonzero(timeline.kind[rows] == Kind.COPY)
    side[copies] = Side.NONE
    # For a tiny copy another stream would cost more.
    length = timeline.end_ns[rows[copies]] - timeline.start_ns[rows[copies]]
    copies = copies[length >= _TINY_COPY_NS]
    for direction, there in _SIDES_OF_COPIES.items():
        side[copies[match_names(trace, events[copies], partial(_copies_to, direction))]] = there
    return side


def _copies_to(direction: str, name: str) -> bool:
    return copy_direction(name) == direction


def needed_at_once(name: str) -> bool:
    """Whether a collective of this name brings what the next kernel needs."""
    return _NEEDED_AT_ONCE.search(name) is not None


def _uncovered(
    timeline: Timeline, rows: NDArray[np.intp], cover: Intervals
) -> tuple[NDArray[np.intp], Int64Array, Int64Array]:
    """Row, start and end of what ran of these rows (by start) outside a set, ascending."""
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    reach = np.maximum.accumulate(np.concatenate(([ABSENT], end)))[:-1]
    own_start = np.maximum(start, reach)
    filled = end > own_start
    own = Intervals(own_start[filled], end[filled])
    alone = subtract(join(own, own), cover)
    i, j = overlapping_pairs(own, alone)
    begun = np.maximum(own.starts[i], alone.starts[j])
    return rows[filled][i], begun, np.minimum(own.ends[i], alone.ends[j])
