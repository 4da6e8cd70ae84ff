"""Operations of several ranks that are one: collectives, and sends with their receives.

Operations of one process group are matched by order, messages by their peers, too. Recordings that
differ in kind or size anywhere stay unmatched. The shift of two recordings follows from step
numbers, else from clocks; recordings of equal content begin with the same operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, concatenated, rows_at
from tracelab.job.part import RankPart
from tracelab.model.collectives import Group, Operation
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.trace import ABSENT

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Basis(IntEnum):
    """Evidence of a match."""

    ORDER = 0  # order within the process group
    PEERS = 1  # peers and order of sends and receives


class Reason(IntEnum):
    """Reason for which an operation has no match."""

    NO_FILE = 0
    NOT_RECORDED = 1
    ORDER = 2
    UNKNOWN = 3


_WORDS = {
    Reason.NO_FILE: "with ranks whose files are missing",
    Reason.NOT_RECORDED: "not in the recordings of the other ranks",
    Reason.ORDER: "in an order that fits no other rank's recording",
    Reason.UNKNOWN: "of an unknown kind or with an unknown peer",
}
# Every rank passes as much in and out; of others (uneven splits) each rank knows its own sizes.
_SYMMETRIC = (Operation.ALL_REDUCE, Operation.BROADCAST, Operation.REDUCE)
# No rank can end before all have begun: each needs what every other one has.
ENDS_TOGETHER = (
    Operation.ALL_REDUCE,
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.ALL_TO_ALL,
    Operation.BARRIER,
    Operation.SEND_RECV,
)
# With which one recording is compared.
_MAX_COMPARED_RECORDINGS = 4
# Synchronized clocks of hosts are at least as close.
_MAX_CLOCK_DIFFERENCE_NS = 1_000_000
# By which the closest end is closer than all others.
_MIN_CLEAR_FACTOR = 4
# Of bundled jobs the ends of one collective are at most 70 us apart on two ranks of one host.
_ENDS_APART_NS = 100_000
# Or a tenth of a long collective.
_ENDS_APART_DIVISOR = 10
_MAX_OUTLIERS = 0.2
# Operations, which show how far the clocks are apart.
_MAX_NEIGHBORS = 3


class Matches(Arrays):
    """Operations that several ranks carried out together; m matches of k members in all.

    Matches are ascending by the recorded start of their first member.

    Attributes:
        first: int64[m + 1]; members of match i are ``first[i]`` to ``first[i + 1]``, by rank.
        part_index, operation_index: int32[k], int64[k], into the parts and their operations.
        basis: int8[m], a `Basis`.
        unmatched: int64[parts], operations without a match.
        unmatched_why: per part, in words; empty where all have one.
    """

    first: Int64Array
    part_index: NDArray[np.int32]
    operation_index: Int64Array
    basis: NDArray[np.int8]
    unmatched: Int64Array
    unmatched_why: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.basis)

    @property
    def match_index(self) -> IndexArray:
        """intp[k], the match that each member belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def members_of(self, parts: int) -> tuple[IndexArray, ...]:
        """Return the members of each of N parts, intp, ascending."""
        count = np.bincount(self.part_index, minlength=parts)
        order = np.argsort(self.part_index, kind="stable")
        return tuple(np.split(order, np.cumsum(count)[:-1]))

    def member_values(self, columns: Sequence[NDArray[_Scalar]]) -> NDArray[_Scalar]:
        """Return one value per member, of one array over the operations of each part."""
        begin = np.cumsum([0, *(len(column) for column in columns)])
        return np.concatenate(columns)[begin[self.part_index] + self.operation_index]


class _Operations(Arrays):
    """The operations of all parts, part after part, each by start; n rows.

    Receives are sends here, seen from the other end. Times are by the recorded clocks; the size is
    ABSENT unless all ranks have the same.
    """

    part_index: Int64Array
    operation: NDArray[np.int8]
    group_index: Int64Array
    source_rank: Int64Array
    target_rank: Int64Array
    step_number: Int64Array
    size_bytes: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.part_index)

    @property
    def ends_together(self) -> BoolArray:
        return np.isin(self.operation, ENDS_TOGETHER)


def match(parts: Sequence[RankPart]) -> Matches:
    """Find which operations of several ranks are one; each part is of another rank, in order.

    The slow reference model is ``tests/reference/matches.py``.
    """
    operations, groups = _collect_operations(parts)
    unit = _units(operations, len(groups))
    key = np.full(len(operations), ABSENT, dtype=np.int64)
    for _, index in groups_of(unit):
        key[index] = _order_keys(operations, index)
    placed = np.flatnonzero(key != ABSENT)
    member = placed[np.lexsort((operations.part_index[placed], key[placed], unit[placed]))]
    is_first = np.ones(len(member), dtype=np.bool_)
    is_first[1:] = (np.diff(unit[member]) != 0) | (np.diff(key[member]) != 0)
    first = np.flatnonzero(is_first)
    count = np.diff(first, append=len(member))
    reason = np.where(unit == ABSENT, Reason.UNKNOWN, Reason.ORDER).astype(np.int8)
    reason[member] = np.repeat(np.where(count == 1, Reason.NOT_RECORDED, ABSENT), count)
    _mark_missing(reason, parts, groups, operations, unit)

    matched = np.flatnonzero(count > 1)
    matched = matched[np.argsort(operations.start_ns[member[first[matched]]], kind="stable")]
    _, position = expand_ranges(first[matched], first[matched] + count[matched])
    begin = np.cumsum([0, *(len(part) for part in parts)])
    part_index = operations.part_index[member[position]]
    is_message = operations.operation[member[first[matched]]] == Operation.SEND
    unmatched = np.bincount(operations.part_index[reason != ABSENT], minlength=len(parts))
    return Matches(
        first=np.append(0, np.cumsum(count[matched])).astype(np.int64),
        part_index=part_index.astype(np.int32),
        operation_index=member[position] - begin[part_index],
        basis=np.where(is_message, Basis.PEERS, Basis.ORDER).astype(np.int8),
        unmatched=unmatched.astype(np.int64),
        unmatched_why=tuple(map(_describe, np.split(reason, begin[1:-1]))),
    )


def _collect_operations(parts: Sequence[RankPart]) -> tuple[_Operations, tuple[Group, ...]]:
    groups: dict[Group, int] = {}
    columns = []
    for part_index, part in enumerate(parts):
        index = [groups.setdefault(group, len(groups)) for group in part.groups]
        columns.append(_part_operations(part_index, part, np.array(index, dtype=np.int64)))
    return concatenated(columns), tuple(groups)


def _part_operations(part_index: int, part: RankPart, group_index: Int64Array) -> _Operations:
    is_send, is_receive = part.operation == Operation.SEND, part.operation == Operation.RECV
    is_sized = np.isin(part.operation, _SYMMETRIC) | is_send
    step_number = np.full(len(part), ABSENT, dtype=np.int64)
    has_step = part.step_index != ABSENT
    step_number[has_step] = part.steps.number[part.step_index[has_step]]
    return _Operations(
        part_index=np.full(len(part), part_index, dtype=np.int64),
        operation=np.where(is_receive, np.int8(Operation.SEND), part.operation),
        group_index=group_index[part.group_index],
        source_rank=np.where(is_receive, part.peer_rank, np.where(is_send, part.rank, ABSENT)),
        target_rank=np.where(is_send, part.peer_rank, np.where(is_receive, part.rank, ABSENT)),
        step_number=step_number,
        size_bytes=np.where(is_sized, part.in_bytes, np.where(is_receive, part.out_bytes, ABSENT)),
        start_ns=part.origin_ns + part.start_ns,
        end_ns=part.origin_ns + part.end_ns,
    )


def _units(operations: _Operations, group_count: int) -> NDArray[np.int64]:
    unit = operations.group_index.copy()
    unit[operations.operation == Operation.UNKNOWN] = ABSENT
    pair = np.flatnonzero(operations.operation == Operation.SEND)
    source, target = operations.source_rank[pair], operations.target_rank[pair]
    ends = np.stack((operations.group_index[pair], source, target))
    of_pair = np.unique(ends, axis=1, return_inverse=True)[1].reshape(-1)
    is_known = (source != ABSENT) & (target != ABSENT) & (source != target)
    unit[pair] = np.where(is_known, group_count + of_pair, ABSENT)
    return unit


def _order_keys(operations: _Operations, index: IndexArray) -> NDArray[np.int64]:
    """int64[k], the same for what is one operation by order; ABSENT where that is not known."""
    # Recordings are compared with the longest one and some others that fit it; those that fit none
    # of them, with each other.
    key = np.full(len(index), ABSENT, dtype=np.int64)
    of_part = [chosen for _, chosen in groups_of(operations.part_index[index])]
    left, origin = sorted(of_part, key=len, reverse=True), len(index)
    while left:
        longest, *others = left
        placed, left = [(rows_at(operations, index[longest]), origin)], []
        for chosen in others:
            other = rows_at(operations, index[chosen])
            for one, begin in placed[:_MAX_COMPARED_RECORDINGS]:
                shift = _find_shift(one, other)
                if shift is not None:
                    placed.append((other, begin + shift))
                    key[longest] = origin + np.arange(len(longest))
                    key[chosen] = begin + shift + np.arange(len(chosen))
                    break
            else:
                left.append(chosen)
        origin += 2 * len(index)  # further than all of these begin apart
    return key


def _mark_missing(
    reason: NDArray[np.int8],
    parts: Sequence[RankPart],
    groups: Sequence[Group],
    operations: _Operations,
    unit: Int64Array,
) -> None:
    ranks = {part.rank for part in parts}
    for _, index in groups_of(np.where(reason == Reason.ORDER, unit, ABSENT)):
        if (operations.part_index[index] == operations.part_index[index[0]]).all():
            reason[index] = Reason.NOT_RECORDED
    of_group = operations.group_index
    in_job = [len(ranks.intersection(group.ranks or ranks)) > 1 for group in groups]
    ends = np.stack((operations.source_rank, operations.target_rank))
    has_file = np.where(
        operations.operation == Operation.SEND,
        np.isin(ends, [*ranks]).all(axis=0),
        np.array(in_job, dtype=np.bool_)[of_group],
    )
    is_open = (reason == Reason.ORDER) | (reason == Reason.NOT_RECORDED)
    reason[is_open & ~has_file] = Reason.NO_FILE
    is_alone = [group.size == 1 or len(group.ranks) == 1 for group in groups]
    reason[np.array(is_alone, dtype=np.bool_)[of_group]] = ABSENT  # needs no other rank


def _describe(reason: NDArray[np.int8]) -> str:
    """Count the operations of one part without a match, by the reason.

    >>> _describe(np.array([ABSENT, Reason.UNKNOWN, Reason.NO_FILE, Reason.UNKNOWN]))
    '1 with ranks whose files are missing, 2 of an unknown kind or with an unknown peer'
    """
    counts = Counter(reason[reason != ABSENT].tolist())
    return ", ".join(f"{counts[why]:,} {words}" for why, words in _WORDS.items() if counts[why])


def number_peers(parts: Sequence[RankPart]) -> tuple[RankPart, ...]:
    """Number the peers of messages as the ranks are numbered in the report.

    A file of unknown rank is numbered by its place: messages that may be with it have no peer.
    """
    if all(part.is_rank_known for part in parts):
        return tuple(parts)
    known = [part.rank for part in parts if part.is_rank_known]
    is_kept = [part.is_rank_known & np.isin(part.peer_rank, known) for part in parts]
    return tuple(
        replace(part, peer_rank=np.where(kept, part.peer_rank, ABSENT))
        for part, kept in zip(parts, is_kept, strict=True)
    )


# --- how much later a recording begins ---


def _find_shift(one: _Operations, other: _Operations) -> int | None:
    """Find the shift at which ``other[i]`` is the same as ``one[i + shift]``; None if unclear."""
    by_step, has_steps = _shift_by_step(one, other)
    if by_step is not None:
        shifts = [by_step]
    else:
        is_alike = len(one) == len(other) and not has_steps
        shifts = [*_shift_by_clock(one, other), *([0] if is_alike else [])]
    fitting = (
        shift for shift in shifts if _agree(one, other, shift) and _end_together(one, other, shift)
    )
    return next(fitting, None)


def _overlap(one: _Operations, other: _Operations, shift: int) -> tuple[_Operations, _Operations]:
    first, end = max(0, shift), max(0, shift, min(len(one), len(other) + shift))
    return rows_at(one, slice(first, end)), rows_at(other, slice(first - shift, end - shift))


def _agree(one: _Operations, other: _Operations, shift: int) -> bool:
    here, there = _overlap(one, other, shift)
    is_same = _are_same(here.operation, there.operation)
    is_same &= _are_same(here.size_bytes, there.size_bytes)
    return len(here) > 0 and bool(is_same.all())


def _are_same(one: NDArray[Any], other: NDArray[Any]) -> BoolArray:
    return np.asarray((one == other) | (one == ABSENT) | (other == ABSENT))


def _shift_by_step(one: _Operations, other: _Operations) -> tuple[int | None, bool]:
    """Find the shift at which most steps that both recorded begin together; do both have steps."""
    tables = []
    for recorded in (one, other):
        index = np.flatnonzero(recorded.step_number != ABSENT)
        number, first, count = np.unique(
            recorded.step_number[index], return_index=True, return_counts=True
        )
        tables.append((number, index[first], count))
    (number, first, count), (other_number, other_first, other_count) = tables
    _, here, there = np.intersect1d(number, other_number, return_indices=True)
    is_known = (first[here] > 0) & (other_first[there] > 0) | (count[here] == other_count[there])
    shifts, votes = np.unique((first[here] - other_first[there])[is_known], return_counts=True)
    by_step = int(shifts[votes.argmax()]) if 2 * votes.max(initial=0) > votes.sum() else None
    return by_step, len(number) > 0 and len(other_number) > 0


def _shift_by_clock(one: _Operations, other: _Operations) -> list[int]:
    """Find the shift at which the operation in the middle of a recording ends clearly closest."""
    # A rank may end long before the others in other operations.
    if not (one.ends_together.all() and other.ends_together.all()):
        return []
    middle = len(other) // 2
    apart_ns = np.abs(one.end_ns - other.end_ns[middle])
    nearest = int(apart_ns.argmin())
    is_far = np.delete(apart_ns, nearest) > _MIN_CLEAR_FACTOR * apart_ns[nearest]
    is_clear = apart_ns[nearest] <= _MAX_CLOCK_DIFFERENCE_NS and is_far.all()
    return [nearest - middle] if is_clear else []


def _end_together(one: _Operations, other: _Operations, shift: int) -> bool:
    here, there = _overlap(one, other, shift)
    length_ns = np.minimum(here.end_ns - here.start_ns, there.end_ns - there.start_ns)
    chosen = np.flatnonzero(here.ends_together & there.ends_together)
    if not len(chosen):
        return True
    apart_ns = (here.end_ns - there.end_ns)[chosen]
    width = min(len(chosen), _MAX_NEIGHBORS)
    typical_ns = np.median(np.lib.stride_tricks.sliding_window_view(apart_ns, width), axis=1)
    typical_ns = np.pad(typical_ns, (width // 2, (width - 1) // 2), mode="edge")
    allowed_ns = _ENDS_APART_NS + np.maximum(length_ns[chosen], 0) // _ENDS_APART_DIVISOR
    is_outlier = np.abs(apart_ns - typical_ns) > allowed_ns
    return bool(is_outlier.mean() <= _MAX_OUTLIERS)
