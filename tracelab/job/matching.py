"""Operations of several ranks that are one: collectives, and sends with their receives.

Process group and sequence number name a collective. Files without them (no release of PyTorch up
to 2.11 writes sequence numbers into its traces) are matched by order: ranks carry out the
operations of one group in one order. Sends and receives are matched by their peers and order. A
wrong match is worse than none: what does not agree in kind and size stays unmatched, and is counted
with the reason.

Two recordings may begin and end at different operations, and training repeats itself: several
shifts look alike. The numbers of the steps tell them apart, and so do the clocks, since the ends of
one collective are a few microseconds apart on all ranks, or on different clocks always equally far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, concatenated, rows_at
from tracelab.base.intervals import Int64Array
from tracelab.job.part import RankPart
from tracelab.model.collectives import Group, Operation
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.trace import ABSENT

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Basis(IntEnum):
    """Evidence of a match."""

    SEQUENCE = 0  # process group and sequence number
    ORDER = 1  # order within the process group
    PEERS = 2  # peers and order of sends and receives


class Reason(IntEnum):
    """Reason for which an operation has no match."""

    NO_FILE = 0
    NOT_RECORDED = 1
    ORDER = 2
    SIZE = 3
    OPERATION = 4
    UNKNOWN = 5
    RANKS = 6


_WORDS = {
    Reason.NO_FILE: "with ranks whose files are missing",
    Reason.NOT_RECORDED: "not in the recordings of the other ranks",
    Reason.ORDER: "in an order that fits no other rank's recording",
    Reason.SIZE: "whose sizes differ between ranks",
    Reason.OPERATION: "that other ranks recorded as another operation",
    Reason.RANKS: "with ranks whose files are not known",
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
# One recording is compared with the longest and with these.
_MAX_COMPARED_RECORDINGS = 3
_PROBE_OPERATIONS = 16
# Only the most likely shifts are compared in full.
_MAX_SHIFTS = 32
# Fewer operations say nothing about clocks.
_MIN_OVERLAP_OPERATIONS = 4
_SAMPLES = 256
# By how much the best shift is better than the next best one.
_MIN_CLEAR_FACTOR = 4
# Synchronized clocks of hosts are at least as close.
_MAX_CLOCK_DIFFERENCE_NS = 1_000_000
# Of bundled jobs the ends of one collective are at most 70 us apart on two ranks of one host.
_ENDS_APART_NS = 100_000
# Or a tenth of a long collective.
_ENDS_APART_DIVISOR = 10
_MAX_OUTLIERS = 0.2
# Neighboring operations show how far the clocks are apart.
_MAX_NEIGHBORS = 3


class Matches(Arrays):
    """Operations that several ranks carried out together; m matches of k members in all.

    Attributes:
        first: int64[m + 1]; the members of match i are ``first[i]`` to ``first[i + 1]``, at least
            two, by rank.
        part_index: int32[k], into the parts, of each member.
        operation_index: int64[k], into that part's operations.
        basis: int8[m], a `Basis`.
        unmatched: int64[parts], how many operations of each part have no match.
        unmatched_why: per part why, in words; empty where all have one.

    Matches are ascending by the recorded start of their first member.

    Example row: ``(first=0, basis=Basis.ORDER)`` with the members ``(part_index=0,
    operation_index=4)`` and ``(part_index=1, operation_index=3)``.
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
    def match_index(self) -> NDArray[np.intp]:
        """intp[k], the match that each member belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def member_values(self, columns: Sequence[NDArray[_Scalar]]) -> NDArray[_Scalar]:
        """One value per member, of one array over the operations of each part."""
        begin = np.cumsum([0, *(len(column) for column in columns)])
        return np.concatenate(columns)[begin[self.part_index] + self.operation_index]


class _Operations(Arrays):
    """The operations of all parts, part after part, each by start.

    Attributes:
        part_index: int64[n].
        operation: int8[n], an `Operation`; receives are sends here, the same thing seen from the
            other end.
        group_index: int64[n], into the process groups of all parts.
        sequence: int64[n], ABSENT where the file has none.
        source_rank, target_rank: int64[n], of sends and receives, else ABSENT.
        step_number: int64[n], the step that launched it, ABSENT outside all.
        size_bytes: int64[n], what is the same on all ranks, ABSENT where it need not be.
        start_ns, end_ns: int64[n], by the recorded clocks.

    Example row: ``(part_index=1, operation=Operation.SEND, group_index=0, sequence=ABSENT,
    source_rank=0, target_rank=1, step_number=3, size_bytes=16_777_216, start_ns=120_000,
    end_ns=190_000)``.
    """

    part_index: Int64Array
    operation: NDArray[np.int8]
    group_index: Int64Array
    sequence: Int64Array
    source_rank: Int64Array
    target_rank: Int64Array
    step_number: Int64Array
    size_bytes: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.part_index)

    @property
    def ends_together(self) -> NDArray[np.bool_]:
        """bool[n], no rank can end before all have begun."""
        return np.isin(self.operation, ENDS_TOGETHER)


def match(parts: Sequence[RankPart]) -> Matches:
    """Find which operations of several ranks are one.

    Args:
        parts: what the files of one job give to it, at least one, by rank and each of another one.

    The slow reference model is ``tests/reference/matches.py``.
    """
    operations, groups = _collect_operations(parts)
    unit, basis = _units(operations, len(groups))
    key = _keys(operations, unit, basis)
    placed = np.flatnonzero(key != ABSENT)
    member = placed[np.lexsort((operations.part_index[placed], key[placed], unit[placed]))]
    is_first = np.ones(len(member), dtype=np.bool_)
    is_first[1:] = (np.diff(unit[member]) != 0) | (np.diff(key[member]) != 0)
    first = np.flatnonzero(is_first)
    count = np.diff(first, append=len(member))
    doubt = _doubts(operations, member, first, count)

    reason = np.where(unit == ABSENT, Reason.UNKNOWN, Reason.ORDER).astype(np.int8)
    reason[member] = np.repeat(doubt, count)
    reason = _mark_missing(reason, parts, groups, operations, unit)

    matched = np.flatnonzero(doubt == ABSENT)
    matched = matched[np.argsort(operations.start_ns[member[first[matched]]], kind="stable")]
    _, position = expand_ranges(first[matched], first[matched] + count[matched])
    begin = np.cumsum([0, *(len(part) for part in parts)])
    part_index = operations.part_index[member[position]]
    return Matches(
        first=np.append(0, np.cumsum(count[matched])).astype(np.int64),
        part_index=part_index.astype(np.int32),
        operation_index=member[position] - begin[part_index],
        basis=basis[member[first[matched]]],
        unmatched=np.bincount(operations.part_index[reason != ABSENT], minlength=len(parts)).astype(
            np.int64
        ),
        unmatched_why=tuple(
            _describe(reason[begin[index] : begin[index + 1]]) for index in range(len(parts))
        ),
    )


def _collect_operations(parts: Sequence[RankPart]) -> tuple[_Operations, tuple[Group, ...]]:
    """The operations of all parts with the process groups they are in."""
    listed = {group for part in parts for group in part.groups if group.ranks}
    groups: dict[Group, int] = {}
    columns = []
    for part_index, part in enumerate(parts):
        of_part = [_fill_ranks(group, part, listed) for group in part.groups]
        group_index = np.array(
            [groups.setdefault(group, len(groups)) for group in of_part], dtype=np.int64
        )
        columns.append(_part_operations(part_index, part, group_index))
    return concatenated(columns), tuple(groups)


def _fill_ranks(group: Group, part: RankPart, listed: Collection[Group]) -> Group:
    """A group of which a part does not list the ranks, as others list them.

    That is where only one group of that name and size can have the part's rank.
    """
    if group.ranks:
        return group
    alike = [
        one
        for one in listed
        if (one.name, one.size) == (group.name, group.size)
        and (part.rank in one.ranks or not part.is_rank_known)
    ]
    return alike[0] if len(alike) == 1 else group


def _part_operations(part_index: int, part: RankPart, group_index: Int64Array) -> _Operations:
    """One part's operations, with the job's process group of each of the part's groups."""
    is_send, is_receive = part.operation == Operation.SEND, part.operation == Operation.RECV
    is_sized = np.isin(part.operation, _SYMMETRIC) | is_send
    step_number = np.full(len(part), ABSENT, dtype=np.int64)
    has_step = part.step_index != ABSENT
    step_number[has_step] = part.steps.number[part.step_index[has_step]]
    return _Operations(
        part_index=np.full(len(part), part_index, dtype=np.int64),
        operation=np.where(is_receive, np.int8(Operation.SEND), part.operation),
        group_index=group_index[part.group_index],
        sequence=part.sequence,
        source_rank=np.where(is_receive, part.peer_rank, np.where(is_send, part.rank, ABSENT)),
        target_rank=np.where(is_send, part.peer_rank, np.where(is_receive, part.rank, ABSENT)),
        step_number=step_number,
        size_bytes=np.where(is_sized, part.in_bytes, np.where(is_receive, part.out_bytes, ABSENT)),
        start_ns=part.origin_ns + part.start_ns,
        end_ns=part.origin_ns + part.end_ns,
    )


def _units(operations: _Operations, group_count: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Choose within what each operation is matched, ABSENT for nothing, and by what.

    Collectives are matched within their process group, sends and receives of a group within those
    from one rank to another.
    """
    unit = operations.group_index.copy()
    unit[operations.operation == Operation.UNKNOWN] = ABSENT
    basis = np.full(len(unit), Basis.ORDER, dtype=np.int8)
    has_sequence = np.ones(group_count, dtype=np.bool_)
    is_paired = operations.operation == Operation.SEND
    has_sequence[operations.group_index[~is_paired & (operations.sequence == ABSENT)]] = False
    basis[has_sequence[operations.group_index]] = Basis.SEQUENCE
    basis[is_paired] = Basis.PEERS
    pair = np.flatnonzero(is_paired)
    source, target = operations.source_rank[pair], operations.target_rank[pair]
    ends = np.stack((operations.group_index[pair], source, target))
    of_pair = np.unique(ends, axis=1, return_inverse=True)[1].reshape(-1)
    is_known = (source != ABSENT) & (target != ABSENT) & (source != target)
    unit[pair] = np.where(is_known, group_count + of_pair, ABSENT)
    return unit, basis


def _keys(operations: _Operations, unit: Int64Array, basis: NDArray[np.int8]) -> NDArray[np.int64]:
    """int64[n], the same for what is one operation of its unit; ABSENT where that is not known."""
    key = np.full(len(operations), ABSENT, dtype=np.int64)
    for _, index in groups_of(unit):
        if basis[index[0]] == Basis.SEQUENCE:
            key[index] = _sequence_keys(operations, index)
        else:
            key[index] = _order_keys(operations, index)
    return key


def _sequence_keys(operations: _Operations, index: NDArray[np.intp]) -> NDArray[np.int64]:
    """Keys by sequence number; where operations of one part share one, with their order."""
    _, number = np.unique(operations.sequence[index], return_inverse=True)
    of_part = operations.part_index[index] * len(index) + number
    order = np.argsort(of_part, kind="stable")
    ordered = of_part[order]
    occurrence = np.empty(len(index), dtype=np.int64)
    occurrence[order] = np.arange(len(index)) - np.searchsorted(ordered, ordered)
    return np.asarray(number * len(index) + occurrence)


def _order_keys(operations: _Operations, index: NDArray[np.intp]) -> NDArray[np.int64]:
    """Keys by order: of all operations of a unit, or else of those of each kind and size.

    Where no process group is known, operations of several can come in another order on each rank.
    """
    key, is_whole = _shift_keys(operations, index)
    if is_whole:
        return key
    columns = np.stack((operations.operation[index], operations.size_bytes[index]), axis=1)
    _, of_kind = np.unique(columns, axis=0, return_inverse=True)
    key_of_kind, next_key = np.full(len(index), ABSENT, dtype=np.int64), 0
    for _, chosen in groups_of(of_kind.reshape(-1)):
        chosen_key, _ = _shift_keys(operations, index[chosen])
        key_of_kind[chosen] = np.where(chosen_key == ABSENT, ABSENT, chosen_key + next_key)
        next_key = max(next_key, int(key_of_kind[chosen].max()) + 1)
    is_better = (key_of_kind != ABSENT).sum() > (key != ABSENT).sum()
    return key_of_kind if is_better else key


def _shift_keys(operations: _Operations, index: NDArray[np.intp]) -> tuple[NDArray[np.int64], bool]:
    """Keys of operations whose order is that of other parts, and whether no part is left over.

    Parts that agree with each other but not with the longest one are put together on their own.
    """
    key, next_key = np.full(len(index), ABSENT, dtype=np.int64), 0
    of_part = [chosen for _, chosen in groups_of(operations.part_index[index])]
    left = sorted(of_part, key=len, reverse=True)
    is_whole = True
    while left:
        placed = [(left[0], rows_at(operations, index[left[0]]), 0)]
        others, left = left[1:], []
        for chosen in others:
            other = rows_at(operations, index[chosen])
            begin = _begin_among(placed, other)
            if begin is None:
                left.append(chosen)
            else:
                placed.append((chosen, other, begin))
        if len(placed) == 1:
            is_whole = False
            continue
        next_key -= min(begin for _, _, begin in placed)
        for chosen, _, begin in placed:
            key[chosen] = next_key + begin + np.arange(len(chosen))
        next_key = int(key.max()) + 1
    return key, is_whole


def _begin_among(
    placed: Sequence[tuple[NDArray[np.intp], _Operations, int]], other: _Operations
) -> int | None:
    """Find where a recording begins on the scale of those that have their place on it."""
    for _, one, begin in (placed[0], *placed[1:][-_MAX_COMPARED_RECORDINGS:]):
        shift = _find_shift(one, other)
        if shift is not None:
            return begin + shift
    return None


def _doubts(
    operations: _Operations,
    member: NDArray[np.intp],
    first: NDArray[np.intp],
    count: NDArray[np.intp],
) -> NDArray[np.int8]:
    """int8[m], why what has one key is no match, ABSENT where it is one."""
    doubt = np.full(len(first), ABSENT, dtype=np.int8)
    if not len(first):
        return doubt
    size_bytes, operation = operations.size_bytes[member], operations.operation[member]
    largest = np.maximum.reduceat(size_bytes, first)
    known = np.where(size_bytes == ABSENT, np.repeat(largest, count), size_bytes)
    doubt[np.minimum.reduceat(known, first) != largest] = Reason.SIZE
    is_mixed = np.minimum.reduceat(operation, first) != np.maximum.reduceat(operation, first)
    doubt[is_mixed] = Reason.OPERATION
    doubt[count == 1] = Reason.NOT_RECORDED
    return doubt


def _mark_missing(
    reason: NDArray[np.int8],
    parts: Sequence[RankPart],
    groups: Sequence[Group],
    operations: _Operations,
    unit: Int64Array,
) -> NDArray[np.int8]:
    """The reasons, which now say too where no other rank recorded an operation, or has a file."""
    reason, ranks = reason.copy(), {part.rank for part in parts}
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
    if not all(part.is_rank_known for part in parts):
        is_message = operations.operation == Operation.SEND
        reason[(reason == Reason.NO_FILE) | is_message & (reason == Reason.UNKNOWN)] = Reason.RANKS
    return reason


def _describe(reason: NDArray[np.int8]) -> str:
    """Count the operations of one part without a match, by the reason.

    >>> _describe(np.array([ABSENT, Reason.SIZE, Reason.NO_FILE, Reason.SIZE]))
    '1 with ranks whose files are missing, 2 whose sizes differ between ranks'
    """
    counts = Counter(reason[reason != ABSENT].tolist())
    return ", ".join(f"{counts[why]:,} {words}" for why, words in _WORDS.items() if counts[why])


def number_peers(parts: Sequence[RankPart]) -> tuple[RankPart, ...]:
    """Number the peers of messages as the ranks are numbered in the report.

    A file that does not say which rank it is has the number of its place in the report, but the
    messages of others name it by its rank: by that number they would be with the wrong file. So a
    message from or to a file whose rank is not known, or that could be with one, has no known peer.

    Args:
        parts: what the files of one job give to it, by their numbers.
    """
    if all(part.is_rank_known for part in parts):
        return tuple(parts)
    known = [part.rank for part in parts if part.is_rank_known]
    return tuple(
        replace(
            part,
            peer_rank=np.where(
                part.is_rank_known & np.isin(part.peer_rank, known), part.peer_rank, ABSENT
            ),
        )
        for part in parts
    )


# --- order without numbers ---


def _find_shift(one: _Operations, other: _Operations) -> int | None:
    """The shift at which ``other[i]`` is the same operation as ``one[i + shift]``; None if unclear.

    All operations that both recorded agree at it, in kind and in size. Of several such shifts the
    clocks decide where they are clear, then the numbers of the steps; two recordings without
    steps that are alike from end to end begin with the same operation.
    """
    numbers = one.step_number[one.step_number != ABSENT]
    other_numbers = other.step_number[other.step_number != ABSENT]
    has_steps = len(numbers) > 0 and len(other_numbers) > 0
    if has_steps and not np.isin(numbers, other_numbers).any():
        return None  # no step that both recorded
    by_step = _shift_by_step(one, other)
    if by_step == 0 and np.array_equal(one.step_number, other.step_number):
        shifts = [0]
    else:
        shifts = _candidates(one, other, by_step)
    shifts = [shift for shift in shifts if _agree(one, other, shift)]
    shift = _choose(one, other, shifts, by_step, has_steps=has_steps)
    return shift if shift is not None and _end_together(one, other, shift) else None


def _overlap(one: _Operations, other: _Operations, shift: int) -> tuple[_Operations, _Operations]:
    """Select the operations of each that both recorded."""
    first, end = max(0, shift), max(0, shift, min(len(one), len(other) + shift))
    return rows_at(one, slice(first, end)), rows_at(other, slice(first - shift, end - shift))


def _agree(one: _Operations, other: _Operations, shift: int) -> bool:
    """Return true if both recorded some operations, all of the same kind and size."""
    here, there = _overlap(one, other, shift)
    is_same = _are_same(here.operation, there.operation)
    is_same &= _are_same(here.size_bytes, there.size_bytes)
    return len(here) > 0 and bool(is_same.all())


def _are_same(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((one == other) | (one == ABSENT) | (other == ABSENT))


def _shift_by_step(one: _Operations, other: _Operations) -> int | None:
    """The shift at which most steps that both recorded begin together, if any.

    The first step of a recording may lack operations: it counts where both have equally many of it.
    """
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
    return int(shifts[votes.argmax()]) if 2 * votes.max(initial=0) > votes.sum() else None


def _candidates(one: _Operations, other: _Operations, by_step: int | None) -> list[int]:
    """Shifts at which a few operations of each recording agree, the most likely ones."""
    width = min(_PROBE_OPERATIONS, (1 + min(len(one), len(other))) // 2)
    likely = {0} if by_step is None else {by_step}
    found: set[int] = set()
    for first in {0, (len(other) - width) // 2, len(other) - width}:
        probe = slice(first, first + width)
        is_hit = _find_windows(one.operation, other.operation[probe])
        is_hit &= _find_windows(one.size_bytes, other.size_bytes[probe])
        found.update((np.flatnonzero(is_hit) - first).tolist())
    nearest = np.searchsorted(one.end_ns, other.end_ns[len(other) // 2]) - len(other) // 2
    near = np.array([*likely, int(nearest)])
    ordered = sorted(found, key=lambda shift: int(np.abs(near - shift).min()))
    return sorted({*ordered[:_MAX_SHIFTS], *likely})


def _find_windows(values: NDArray[Any], probe: NDArray[Any]) -> NDArray[np.bool_]:
    windows = np.lib.stride_tricks.sliding_window_view(values, len(probe))
    return np.asarray(_are_same(windows, probe).all(axis=1))


def _choose(
    one: _Operations, other: _Operations, shifts: list[int], by_step: int | None, *, has_steps: bool
) -> int | None:
    """Choose the right one of the shifts that agree; None if nothing tells."""
    by_clock = _shifts_by_clock(one, other, shifts)
    if by_step is not None and by_step in shifts:
        return by_step if by_clock <= {by_step} else None
    if by_clock:
        return min(by_clock) if len(by_clock) == 1 else None
    is_alike = len(one) == len(other) and 0 in shifts
    if len(shifts) == 1 and (is_alike or min(len(one), len(other)) >= _MIN_OVERLAP_OPERATIONS):
        return shifts[0]
    return 0 if is_alike and not has_steps else None


def _shifts_by_clock(one: _Operations, other: _Operations, shifts: list[int]) -> set[int]:
    """The shift at which ends are clearly closest, and the one at which they are most evenly apart.

    None where nothing is clear or a rank may end long before the others.
    """
    if not (one.ends_together.all() and other.ends_together.all()):
        return set()
    apart_ns = [_ends_apart(one, other, shift) for shift in shifts]
    nearest = _clearly_least(
        [abs(float(np.median(apart))) for apart in apart_ns], _MAX_CLOCK_DIFFERENCE_NS
    )
    evenest = _clearly_least([_spread(apart) for apart in apart_ns], _ENDS_APART_NS)
    return {shifts[index] for index in (nearest, evenest) if index is not None}


def _ends_apart(one: _Operations, other: _Operations, shift: int) -> Int64Array:
    """int64[samples], ns, how much later each operation ended on one rank."""
    here, there = _overlap(one, other, shift)
    apart_ns = here.end_ns - there.end_ns
    return apart_ns[:: 1 + len(apart_ns) // _SAMPLES]


def _spread(apart_ns: Int64Array) -> float:
    """Measure how unevenly ends are apart, ns, however the two clocks differ and drift."""
    if len(apart_ns) < _MIN_OVERLAP_OPERATIONS:
        return np.inf
    position = np.linspace(-1, 1, len(apart_ns))
    moved = (apart_ns - apart_ns[0]).astype(np.float64)
    slope = (position @ moved) / (position @ position)
    ordered = np.sort(moved - slope * position)
    tenth = len(ordered) // 10
    return float(ordered[-1 - tenth] - ordered[tenth])


def _clearly_least(values: list[float], most: float) -> int | None:
    """The index of the value that is far less than all others, None without any."""
    if len(values) < 2:
        return None
    least, second = sorted(range(len(values)), key=values.__getitem__)[:2]
    is_clear = values[least] <= most and _MIN_CLEAR_FACTOR * values[least] < values[second] < np.inf
    return least if is_clear else None


def _end_together(one: _Operations, other: _Operations, shift: int) -> bool:
    """Return true if the ends are apart as those of one operation on two ranks can be.

    They differ by what the clocks differ, which changes slowly, and otherwise by little.
    """
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
