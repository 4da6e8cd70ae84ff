"""Exposed communication and copies, and what kept other work from overlapping them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int64Array, concatenated
from tracelab.base.intervals import Intervals, join, overlapping_pairs, subtract, union
from tracelab.measures.independent_work import (
    Side,
    independent_work_ns,
    launched_by_optimizer,
    launched_in_backward,
    side_of_independent_work,
)
from tracelab.measures.measure import summed
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_END_OF_TIME = np.iinfo(np.int64).max
_EXPLANATION = np.dtype(
    [("blocker", np.int8), ("blocked_row", np.intp), ("blocking_call_id", np.int64)]
)
_Explanations = NDArray[np.void]
_NOTHING_TO_CHANGE = (
    OverlapBlocker.TRUE_DEPENDENCY,
    OverlapBlocker.NO_FREE_SM,
    OverlapBlocker.UNKNOWN,
)


class Exposed(Arrays):
    """The exposed pieces of communication and copies; by device, kind and start, disjoint.

    Attributes:
        row: [k], the timeline row that ran; of several side by side the one that began first.
        blocked_row: the timeline row that could not overlap it, else ABSENT.
        blocking_call_id: event id of the blocking call behind HOST_SYNC, else ABSENT.
        bound_ns: the independent work that could overlap it, at most its length.
        delays: whether the next compute waited for it.
    """

    row: IndexArray
    start_ns: Int64Array
    end_ns: Int64Array
    blocker: Int8Array
    blocked_row: IndexArray
    blocking_call_id: Int64Array
    bound_ns: Int64Array
    delays: BoolArray

    def blocking(self, timeline: Timeline, device: int, kind: Kind) -> Intervals:
        """The time in which the next compute waited for exposed work of a kind."""
        is_chosen = self.delays & timeline.select(device=device, kind=kind)[self.row]
        return union(self.start_ns[is_chosen], self.end_ns[is_chosen])


class _Pieces(Arrays):
    """The exposed time of one kind and device; columns as in `Exposed`."""

    row: IndexArray
    start_ns: Int64Array
    end_ns: Int64Array

    @property
    def length_ns(self) -> Int64Array:
        return self.end_ns - self.start_ns


def exposed(graph: Graph) -> Exposed:
    """Find the exposed communication and copies of every device, and explain them."""
    timeline, blockers = graph.host.timeline, OverlapBlockers(graph)
    is_in_backward = launched_in_backward(timeline)
    needs_gradients = launched_by_optimizer(timeline)
    of_kinds = []
    is_exposable = np.isin(timeline.kind, (Kind.COMM, Kind.COPY))
    devices = np.unique(timeline.device_number[is_exposable]).tolist()
    for device in devices or timeline.device_numbers[:1]:
        compute, comm, copies = (
            timeline.select(device=device, kind=kind)
            for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY)
        )
        of_kinds += [
            _exposed_against(blockers, is_in_backward, needs_gradients, is_chosen, is_other)
            for is_chosen, is_other in ((comm, compute), (copies, compute | comm))
        ]
    return concatenated(of_kinds)


def _exposed_against(
    blockers: OverlapBlockers,
    is_in_backward: BoolArray,
    needs_gradients: BoolArray,
    is_chosen: BoolArray,
    is_other: BoolArray,
) -> Exposed:
    timeline = blockers.timeline
    rows = _sort_by_start(timeline, is_chosen)
    other_rows = _sort_by_start(timeline, is_other & (timeline.end_ns > timeline.start_ns))
    others_busy = timeline.busy(is_other)
    # Work that already overlaps some of these rows has no room for more.
    free = subtract(others_busy, timeline.busy(is_chosen))
    pieces = _uncovered(timeline, rows, others_busy)
    after, delays = _blocked_afterwards(blockers, pieces, other_rows)
    next_row = after["blocked_row"]
    is_gradient = is_in_backward & (timeline.kind == Kind.COMM)
    is_needed = is_gradient[pieces.row] & (next_row != ABSENT) & needs_gradients[next_row]
    after["blocker"][is_needed] = OverlapBlocker.TRUE_DEPENDENCY
    after["blocking_call_id"][is_needed] = ABSENT
    explanation = _explain_side(blockers, pieces, other_rows, after)
    is_blocked = _are_blocked(explanation)
    bound_ns = _bound_ns(blockers, is_in_backward, pieces, is_blocked, rows, other_rows, free)
    explanation, bound_ns = _like_later_ones(timeline, pieces, explanation, bound_ns, other_rows)
    blocker, is_blocked = explanation["blocker"], _are_blocked(explanation)
    is_possible = is_blocked & (bound_ns > 0)
    is_reported = is_possible | ~is_blocked
    # Of work launched before the recording the file does not say what it, or others, waited for.
    is_unlaunched = timeline.launch_id[pieces.row] == ABSENT
    nothing_to_change = np.where(
        is_unlaunched, OverlapBlocker.UNKNOWN, OverlapBlocker.TRUE_DEPENDENCY
    )
    is_reported &= ~is_unlaunched | (blocker != OverlapBlocker.TRUE_DEPENDENCY)
    return Exposed(
        row=pieces.row,
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        blocker=np.where(is_reported, blocker, nothing_to_change).astype(np.int8),
        blocked_row=explanation["blocked_row"],
        blocking_call_id=np.where(is_possible, explanation["blocking_call_id"], ABSENT),
        bound_ns=np.where(is_possible, bound_ns, 0),
        delays=delays,
    )


def _sort_by_start(timeline: Timeline, is_chosen: BoolArray) -> IndexArray:
    rows = np.flatnonzero(is_chosen)
    return rows[np.argsort(timeline.start_ns[rows], kind="stable")]


def _uncovered(timeline: Timeline, rows: IndexArray, cover: Intervals) -> _Pieces:
    start_ns, end_ns = timeline.start_ns[rows], timeline.end_ns[rows]
    reach_ns = np.maximum.accumulate(np.concatenate(([ABSENT], end_ns)))[:-1]
    # If several rows run side by side, the one that began first has the time.
    own_start_ns = np.maximum(start_ns, reach_ns)
    is_filled = end_ns > own_start_ns
    own = Intervals(own_start_ns[is_filled], end_ns[is_filled])
    alone = subtract(join(own, own), cover)
    own_index, alone_index = overlapping_pairs(own, alone)
    return _Pieces(
        row=rows[is_filled][own_index],
        start_ns=np.maximum(own.starts[own_index], alone.starts[alone_index]),
        end_ns=np.minimum(own.ends[own_index], alone.ends[alone_index]),
    )


def _blocked_afterwards(
    blockers: OverlapBlockers, pieces: _Pieces, other_rows: IndexArray
) -> tuple[_Explanations, BoolArray]:
    """Explain by the next work; bool[k], True where it waited for the piece."""
    timeline = blockers.timeline
    # In the stream that computes most: one beside it may divide what the collective made.
    stream_index = timeline.stream_index[other_rows]
    compute_ns = (timeline.end_ns - timeline.start_ns) * (timeline.kind == Kind.COMPUTE)
    of_stream_ns = np.bincount(stream_index, compute_ns[other_rows], 1)
    is_busiest = (stream_index == of_stream_ns.argmax()) & of_stream_ns.any()
    busiest_rows = other_rows[is_busiest]
    next_index = np.searchsorted(timeline.start_ns[busiest_rows], pieces.end_ns)
    followed = np.flatnonzero(next_index < len(busiest_rows))
    explanation = _explained(
        blockers,
        followed,
        blocked_row=busiest_rows[next_index[followed]],
        other_row=pieces.row[followed],
        since_ns=pieces.start_ns[followed],
        count=len(pieces.row),
    )
    waiting = (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT)
    return explanation, np.isin(explanation["blocker"], waiting)


def _explain_side(
    blockers: OverlapBlockers, pieces: _Pieces, other_rows: IndexArray, after: _Explanations
) -> _Explanations:
    # Work after the piece could not start earlier; for work before it, the piece itself could not.
    timeline = blockers.timeline
    side = side_of_independent_work(timeline, pieces.row)
    previous_index = np.searchsorted(timeline.start_ns[other_rows], pieces.start_ns) - 1
    preceded = np.flatnonzero((side == Side.BEFORE) & (previous_index >= 0))
    reach_ns = np.maximum.accumulate(timeline.end_ns[other_rows])
    before = _explained(
        blockers,
        preceded,
        blocked_row=pieces.row[preceded],
        other_row=other_rows[previous_index[preceded]],
        since_ns=np.minimum(reach_ns[previous_index[preceded]], pieces.start_ns[preceded]) - 1,
        count=len(pieces.row),
    )
    return np.where(side == Side.AFTER, after, before)


def _explained(
    blockers: OverlapBlockers,
    piece_index: IndexArray,
    *,
    blocked_row: IndexArray,
    other_row: IndexArray,
    since_ns: Int64Array,
    count: int,
) -> _Explanations:
    """Explain some of `count` pieces; the rest stays empty."""
    nothing = np.array((OverlapBlocker.TRUE_DEPENDENCY, ABSENT, ABSENT), dtype=_EXPLANATION)
    explanation = np.full(count, nothing)
    blocker, blocking_call_id = blockers.between(blocked_row, other_row, since_ns)
    explanation["blocker"][piece_index] = blocker
    explanation["blocked_row"][piece_index] = blocked_row
    explanation["blocking_call_id"][piece_index] = blocking_call_id
    return explanation


def _are_blocked(explanation: _Explanations) -> BoolArray:
    """bool[k], where something was in the way that a change could take away."""
    return ~np.isin(explanation["blocker"], _NOTHING_TO_CHANGE)


def _bound_ns(
    blockers: OverlapBlockers,
    is_in_backward: BoolArray,
    pieces: _Pieces,
    is_blocked: BoolArray,
    rows: IndexArray,
    other_rows: IndexArray,
    free: Intervals,
) -> Int64Array:
    row, length_ns = pieces.row[is_blocked], pieces.length_ns[is_blocked]
    count = len(blockers.timeline.event_id)
    exposed_ns, work_ns = summed(row, length_ns, count), np.zeros(count, dtype=np.int64)
    work_ns[rows] = independent_work_ns(
        blockers, is_in_backward, rows, other_rows, free, exposed_ns[rows]
    )
    # The pieces of one row stand together: the first has the first of its work.
    used_ns = np.cumsum(length_ns) - length_ns
    is_first = np.diff(row, prepend=ABSENT) != 0
    used_ns -= np.maximum.accumulate(np.where(is_first, used_ns, 0))
    bound_ns = np.zeros(len(is_blocked), dtype=np.int64)
    bound_ns[is_blocked] = np.clip(work_ns[row] - used_ns, 0, length_ns)
    return bound_ns


def _like_later_ones(
    timeline: Timeline,
    pieces: _Pieces,
    explanation: _Explanations,
    bound_ns: Int64Array,
    other_rows: IndexArray,
) -> tuple[_Explanations, Int64Array]:
    # Nothing recorded could overlap the first batch. Where those that follow in its stream under
    # its name are mostly blocked, it is blocked by the same, and has their share of independent
    # work.
    row, length_ns, is_blocked = pieces.row, pieces.length_ns, _are_blocked(explanation)
    explanation, bound_ns = explanation.copy(), bound_ns.copy()
    first_start_ns = timeline.start_ns[other_rows].min(initial=_END_OF_TIME)
    is_first = timeline.start_ns[row] < first_start_ns
    # What could have overlapped the result of others is recorded, however early they ran.
    has_work_before = np.flatnonzero(side_of_independent_work(timeline, row) == Side.BEFORE)
    name_index = timeline.trace.name_index[timeline.event_id[row[has_work_before]]]
    stream_index = timeline.stream_index[row[has_work_before]]
    alike = name_index.astype(np.int64) * len(timeline.streams) + stream_index
    for _, indices in groups_of(alike):
        group = has_work_before[indices]
        first, later = group[is_first[group]], group[~is_first[group]]
        blocked = later[is_blocked[later]]
        blocked_bound_ns, later_ns = int(bound_ns[blocked].sum()), int(length_ns[later].sum())
        if 2 * blocked_bound_ns <= later_ns:
            continue
        example = blocked[np.argmax(bound_ns[blocked])]
        for piece in first[~is_blocked[first]].tolist():
            explanation[piece] = explanation[example]
            explanation["blocked_row"][piece] = row[piece]
            bound_ns[piece] = int(length_ns[piece]) * blocked_bound_ns // later_ns
    return explanation, bound_ns
