"""One clock for all ranks of a job, from operations that end together.

No rank leaves an all-reduce before all have entered it, and all leave it within some microseconds:
what their recorded ends are apart is what their clocks are apart. A receive ends only once its
message was sent, so messages in both directions hold the clocks of a pipeline's neighbors between
two bounds. Ranks of one host have one clock already: what the ends do not contradict is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen, OneLine
from tracelab.intervals import Int64Array
from tracelab.job.collectives import ENDS_TOGETHER, Matches
from tracelab.job.rank_part import RankPart
from tracelab.model.collectives import Operation

_Floats = NDArray[np.float64]

# Of bundled jobs of one host, whose clock is one, the ends of one rank's collectives are at the
# median up to 20 us earlier or later than those of the other.
_ENDS_DIFFER_NS = 25_000
# And single ones up to 70 us. A clock that is set (NTP steps are of 128 ms and more) moves further.
_ENDS_APART_NS = 100_000
_MOST_DRIFT = 200e-6  # crystals are within 100 ppm
_NARROWINGS = 40  # of the interval that holds the drift, to two thirds each
# Of many operations five neighbors say where the clock is, of fewer three; with what remains of
# outliers then, so many between two jumps would still be outliers.
_MANY = 16
_LEAST_OF_MANY, _LEAST_OF_FEW = 3, 2
_LEAST_FOR_DRIFT = 4
_OPERATIONS_PER_JUMP = 4  # at least; a clock that jumps more often is not known to jump
_ONE_WAY, _EXCHANGE, _MIXED = range(3)  # what a kernel does
_LATE_NS = 10_000_000  # by how much the least delayed message of one direction may seem to be late
_MESSAGES_PER_COLLECTIVE = 8  # that say as much of a clock as one collective


@dataclass(frozen=True, slots=True)
class Jump:
    """A moment at which a clock was set.

    Example: ``Jump(at_ns=4_000_000_000, by_ns=-130_000_000)``, 130 ms back.

    Attributes:
        at_ns: when, ns on the job's clock.
        by_ns: by how much, forward if positive.
    """

    at_ns: int
    by_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class RankClock(OneLine):
    """How the clock of one rank's file is related to the job's.

    Attributes:
        rank: the rank.
        offset_ns: by how much its recorded clock was ahead of the job's when its recording began.
        drift_ppm: by how much faster it runs, in millionths.
        jumps: when it was set while it recorded.
        matched: operations that this rests on.
        residual_ns: how far its ends are from those of the other ranks on the job's clock, or how
            far off its clock can be by its messages; None where there is nothing to tell that.
        basis: "reference", "collectives", "point_to_point", or "recorded clock" where the file's
            own clock had to be believed.

    Example: ``RankClock(rank=3, offset_ns=-1_204_000, drift_ppm=12.5, jumps=(), matched=840,
    residual_ns=9_200, basis="collectives")``.
    """

    rank: int
    offset_ns: int
    drift_ppm: float
    jumps: tuple[Jump, ...]
    matched: int
    residual_ns: int | None
    basis: str


@dataclass(frozen=True, slots=True, repr=False)
class Alignment(OneLine):
    """How well the clocks of a job are known.

    Attributes:
        residual_ns: the largest residual of a rank; None where no rank has one.
        reference_rank: the rank whose clock is the job's.
        per_rank: one per part.

    Example: ``Alignment(residual_ns=13_800, reference_rank=0, per_rank=(RankClock(...), ...))``.
    """

    residual_ns: int | None
    reference_rank: int
    per_rank: tuple[RankClock, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Correction(Frozen):
    """What has to be added to recorded times, in pieces between jumps.

    Times are ns since the reference's origin, by the recorded clock.

    Attributes:
        from_ns: int64[pieces], where each piece begins; the first one holds for all before it too.
        add_ns: int64[pieces], what to add in each piece, but for the drift.
        drift: what to add to that for each ns since the first piece began.

    Example row: ``(from_ns=0, add_ns=1_204_000)``.
    """

    from_ns: Int64Array
    add_ns: Int64Array
    drift: float = 0.0

    def at(self, recorded_ns: Int64Array) -> Int64Array:
        """int64[times], what to add to each."""
        piece = np.maximum(np.searchsorted(self.from_ns, recorded_ns, "right") - 1, 0)
        drifted_ns = np.rint(self.drift * (recorded_ns - self.from_ns[0]))
        return np.asarray(self.add_ns[piece] + drifted_ns.astype(np.int64))


_NOTHING = _Correction(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


@dataclass(frozen=True, slots=True, repr=False)
class Clocks(OneLine):
    """One clock for all parts of a job.

    Attributes:
        alignment: how well it is known.
    """

    alignment: Alignment
    _begin_ns: tuple[int, ...]
    _corrections: tuple[_Correction, ...]

    def to_job_ns(self, part_index: int, times_ns: Int64Array) -> Int64Array:
        """int64[times], ns on the job's clock, which is the reference rank's since its origin.

        Args:
            part_index: whose times these are.
            times_ns: int64[times], ns since that part's origin.
        """
        recorded_ns = times_ns + self._begin_ns[part_index]
        return recorded_ns + self._corrections[part_index].at(recorded_ns)


class _Role(IntEnum):
    """What the end of an operation says of the ends on other ranks."""

    TOGETHER = 0  # of a collective: they are the same
    EXCHANGED = 1  # of messages in both directions: they are the same
    SENT = 2  # the receive does not end before
    RECEIVED = 3  # the send does not end after
    LOOSE = 4  # usually they are the same, but some rank (a broadcast's root) may end long before
    NOTHING = 5  # the kernel ends when another of its operations does


# By how much each says more of a clock than what comes after it.
_WORTH = {
    _Role.TOGETHER: 1.0,
    _Role.EXCHANGED: 1.0 / _MESSAGES_PER_COLLECTIVE,
    _Role.SENT: 1.0 / _MESSAGES_PER_COLLECTIVE,
    _Role.RECEIVED: 1.0 / _MESSAGES_PER_COLLECTIVE,
    _Role.LOOSE: 1e-6,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Members(Frozen):
    """The ends of matched operations; k members.

    Attributes:
        match_index: intp[k], ascending.
        part_index: int32[k].
        recorded_ns: int64[k], ns since the reference's origin, by the recorded clock.
        role: int8[k], a `_Role`.

    Example row: ``(match_index=3, part_index=1, recorded_ns=190_000, role=_Role.TOGETHER)``.
    """

    match_index: NDArray[np.intp]
    part_index: NDArray[np.int32]
    recorded_ns: Int64Array
    role: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.role)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Bounds(Frozen):
    """What has to be added to the recorded times of one rank, between which bounds; o operations.

    Attributes:
        at_ns: float64[o], ns, ascending, the recorded end.
        low_ns, high_ns: float64[o], ns, equal for operations that end together; infinite for a
            side of which nothing is known.
        basis: of a `RankClock`.

    Example row: ``(at_ns=190_000.0, low_ns=-1_204_000.0, high_ns=-1_204_000.0)``.
    """

    at_ns: _Floats
    low_ns: _Floats
    high_ns: _Floats
    basis: str

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def is_together(self) -> bool:
        """Whether all operations end together."""
        return bool(np.array_equal(self.low_ns, self.high_ns))

    def part(self, chosen: slice | NDArray[np.bool_]) -> _Bounds:
        """Some of the operations."""
        return replace(
            self,
            at_ns=self.at_ns[chosen],
            low_ns=self.low_ns[chosen],
            high_ns=self.high_ns[chosen],
        )

    def without(self, done_ns: Int64Array | _Floats) -> _Bounds:
        """What is left to add once float64[o], ns, has been added."""
        return replace(self, low_ns=self.low_ns - done_ns, high_ns=self.high_ns - done_ns)

    def reversed(self) -> _Bounds:
        """The same operations in the opposite order of time."""
        return replace(
            self,
            at_ns=-self.at_ns[::-1],
            low_ns=-self.high_ns[::-1],
            high_ns=-self.low_ns[::-1],
        )

    def least_delays(self, add_ns: float) -> _Floats:
        """float64[o], ns, how far each operation is from its nearer bound."""
        return np.minimum(np.abs(add_ns - self.low_ns), np.abs(self.high_ns - add_ns))

    def widened(self) -> _Bounds:
        """The bounds with room for what ends of one operation are apart; without lone outliers."""
        low_ns, high_ns = self.low_ns, self.high_ns
        if self.is_together:
            low_ns = high_ns = _running_median(low_ns)
        return replace(self, low_ns=low_ns - _ENDS_APART_NS, high_ns=high_ns + _ENDS_APART_NS)


def align(parts: Sequence[RankPart], matches: Matches) -> Clocks:
    """Find the clock of each part relative to the one of the reference rank.

    One part after another is fitted to those that are aligned already, the one that has most in
    common with them first; so groups that do not span all ranks are joined through common members.
    A part whose ends do not contradict a clock that is known already has that clock, as all ranks
    of one host have. One that has nothing in common with the aligned ones keeps its recorded clock.

    Args:
        parts: at least one, by rank.
        matches: the operations that they have in common.
    """
    reference = _reference(matches, len(parts))
    begin_ns = tuple(part.origin_ns - parts[reference].origin_ns for part in parts)
    members = _members(parts, matches, begin_ns)
    corrections = {reference: _NOTHING}
    bounds: dict[int, _Bounds] = {}
    total_ns, count = np.zeros(len(matches)), np.zeros(len(matches), dtype=np.int64)
    part_index = reference
    while True:
        mine = np.flatnonzero(members.part_index == part_index)
        recorded_ns, match_index = members.recorded_ns[mine], members.match_index[mine]
        if part_index not in corrections:
            is_common = count[match_index] > 0
            shared = mine[is_common]
            shared_match = match_index[is_common]
            target_ns = total_ns[shared_match] / count[shared_match]
            bounds[part_index] = _bounds(members, shared, target_ns)
            corrections[part_index] = _fitted(bounds[part_index], corrections.values())
        total_ns[match_index] += recorded_ns + corrections[part_index].at(recorded_ns)
        count[match_index] += 1
        left = [index for index in range(len(parts)) if index not in corrections]
        if not left:
            break
        part_index = _next(members, left, count)
    found = [corrections[index] for index in range(len(parts))]
    alignment = _alignment(parts, members, found, bounds, begin_ns, reference)
    return Clocks(alignment, begin_ns, tuple(found))


def _reference(matches: Matches, part_count: int) -> int:
    """The part whose clock is the job's: the first of those that share most operations."""
    count = np.bincount(matches.part_index, minlength=part_count)
    return int(np.flatnonzero(2 * count >= count.max(initial=0))[0])


def _members(parts: Sequence[RankPart], matches: Matches, begin_ns: Sequence[int]) -> _Members:
    """The ends of matched operations, and what they say."""
    return _Members(
        match_index=matches.match_index,
        part_index=matches.part_index,
        recorded_ns=matches.of_members(
            [part.end_ns + begin for part, begin in zip(parts, begin_ns, strict=True)]
        ),
        role=_roles(parts, matches),
    )


def _roles(parts: Sequence[RankPart], matches: Matches) -> NDArray[np.int8]:
    operation = matches.of_members([part.operation for part in parts])
    role = np.full(len(operation), _Role.LOOSE, dtype=np.int8)
    role[np.isin(operation, ENDS_TOGETHER)] = _Role.TOGETHER
    is_send = operation == Operation.SEND
    is_message = is_send | (operation == Operation.RECV)
    traffic = matches.of_members([_traffic(part) for part in parts])
    has_exchange, is_sent = np.ones(len(matches), np.bool_), np.zeros(len(matches), np.bool_)
    has_exchange[matches.match_index[traffic != _EXCHANGE]] = False
    is_sent[matches.match_index[is_send & (traffic == _ONE_WAY)]] = True
    has_exchange, is_sent = has_exchange[matches.match_index], is_sent[matches.match_index]
    role[is_message] = _Role.NOTHING
    role[is_message & is_sent] = np.where(is_send, _Role.SENT, _Role.RECEIVED)[is_message & is_sent]
    role[is_message & has_exchange] = _Role.EXCHANGED
    return role


def _traffic(part: RankPart) -> NDArray[np.int8]:
    """int8[c], what else the kernel of each send or receive does.

    `_ONE_WAY` if it only sends to one rank, or only receives from one; `_EXCHANGE` if it sends to
    one rank and receives from it; else `_MIXED`.
    """
    _, kernel = np.unique(part.kernel_id, return_inverse=True)
    count = int(kernel.max(initial=-1)) + 1
    sends, receives = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    sends[kernel[part.operation == Operation.SEND]] = True
    receives[kernel[part.operation == Operation.RECV]] = True
    peer = np.zeros(count, dtype=np.int64)
    peer[kernel] = part.peer_rank
    has_others = np.zeros(count, np.bool_)
    has_others[kernel[peer[kernel] != part.peer_rank]] = True
    traffic = np.where(sends & receives, _EXCHANGE, _ONE_WAY)
    return np.where(has_others, _MIXED, traffic)[kernel].astype(np.int8)


def _next(members: _Members, left: Sequence[int], count: Int64Array) -> int:
    """The part to fit next: that has most in common with aligned ones, of the best sort."""
    is_common = count[members.match_index] > 0
    worth = np.zeros(max(left) + 1)
    for role, value in _WORTH.items():
        of_part = members.part_index[is_common & (members.role == role)]
        worth += value * np.bincount(of_part, minlength=len(worth))[: len(worth)]
    return max(left, key=lambda index: float(worth[index]))


def _bounds(members: _Members, shared: NDArray[np.intp], target_ns: _Floats) -> _Bounds:
    """What the operations that a part shares with aligned ones say of its clock.

    Args:
        members: all.
        shared: intp[o], the part's members of such matches.
        target_ns: float64[o], ns, the end on the job's clock by the aligned members.
    """
    role = members.role[shared]
    chosen, basis = _most_telling(role)
    recorded_ns = members.recorded_ns[shared[chosen]]
    order = np.argsort(recorded_ns, kind="stable")
    at_ns, role = recorded_ns[order].astype(np.float64), role[chosen][order]
    add_ns = target_ns[chosen][order] - at_ns
    return _Bounds(
        at_ns,
        np.where(role == _Role.SENT, -np.inf, add_ns),
        np.where(role == _Role.RECEIVED, np.inf, add_ns),
        basis,
    )


def _most_telling(role: NDArray[np.int8]) -> tuple[NDArray[np.bool_], str]:
    """bool[o], the operations of the sort that says most of a clock, and which basis that is."""
    is_together, is_exchange = role == _Role.TOGETHER, role == _Role.EXCHANGED
    is_message = (role == _Role.SENT) | (role == _Role.RECEIVED)
    exchanges, messages = int(is_exchange.sum()), int(is_message.sum())
    collectives = int(is_together.sum())
    if collectives and _MESSAGES_PER_COLLECTIVE * collectives >= exchanges + messages:
        return is_together, "collectives"
    if exchanges or messages:
        return is_exchange if exchanges >= messages else is_message, "point_to_point"
    is_loose = role == _Role.LOOSE
    return is_loose, "collectives" if is_loose.any() else "recorded clock"


def _fitted(bounds: _Bounds, known: Iterable[_Correction]) -> _Correction:
    """The correction that fits the bounds: one that is known already, or a new one."""
    if not len(bounds):
        return _NOTHING
    for correction in known:
        if _is_believable(bounds.without(correction.at(bounds.at_ns.astype(np.int64)))):
            return correction
    pieces = _pieces(bounds)
    drift = _drift(pieces)
    first_ns = bounds.at_ns[0]
    begin_ns = [
        first_ns,
        *((one.at_ns[-1] + next_one.at_ns[0]) / 2 for one, next_one in pairwise(pieces)),
    ]
    add_ns = [_middle(piece.without(drift * (piece.at_ns - first_ns))) for piece in pieces]
    return _Correction(np.array(begin_ns).astype(np.int64), np.rint(add_ns).astype(np.int64), drift)


def _is_believable(left: _Bounds) -> bool:
    """Whether the ends of operations contradict a correction nowhere in the recording.

    They do where they differ from it by more than the ends of one operation differ anyway, and by
    more than most of them differ among themselves; where the clock would drift or jump; and where
    a message would have arrived before it was sent.

    Args:
        left: what would still have to be added.
    """
    low_ns, high_ns = float(left.low_ns.max()), float(left.high_ns.min())
    if not left.is_together:
        is_possible = low_ns <= _ENDS_DIFFER_NS and high_ns >= -_ENDS_DIFFER_NS
        return is_possible and (
            np.isfinite(high_ns - low_ns) or -_LATE_NS <= _middle(left) <= _LATE_NS
        )
    pieces = _pieces(left)
    if len(pieces) > 1 or _drift(pieces) != 0:
        return False
    middle_ns = _middle(left)
    spread_ns = float(np.percentile(np.abs(left.low_ns - middle_ns), 90))
    return abs(middle_ns) <= max(_ENDS_DIFFER_NS, spread_ns)


def _middle(bounds: _Bounds) -> float:
    """What has to be added, ns, if it is always the same."""
    if bounds.is_together:
        return float(np.median(bounds.low_ns))
    low_ns, high_ns = float(bounds.low_ns.max()), float(bounds.high_ns.min())
    if np.isfinite(low_ns) and np.isfinite(high_ns):
        return (low_ns + high_ns) / 2
    return low_ns if np.isfinite(low_ns) else high_ns


def _pieces(bounds: _Bounds) -> list[_Bounds]:
    """The bounds between the jumps of the clock, each piece within reach of one straight line.

    Each is as long as it can be. What no line reaches with its neighbors is an outlier and left
    out; where there would be jumps all the time, there is none.
    """
    least = _LEAST_OF_MANY if len(bounds) >= _MANY else _LEAST_OF_FEW
    wide = bounds.widened()
    pieces = _straight(wide)
    if len(pieces) > 1 and any(end - begin < least for begin, end in pieces):
        is_kept = np.zeros(len(bounds), dtype=np.bool_)
        for begin, end in pieces:
            is_kept[begin:end] = end - begin >= least
        if not is_kept.any():
            return [bounds]
        bounds, wide = bounds.part(is_kept), wide.part(is_kept)
        pieces = _straight(wide)
    if (len(pieces) - 1) * _OPERATIONS_PER_JUMP > len(bounds):
        return [bounds]
    ends = _jump_indices(bounds, pieces, wide)
    return [bounds.part(slice(*ends_of)) for ends_of in pairwise((0, *ends, len(bounds)))]


def _jump_indices(bounds: _Bounds, pieces: Sequence[tuple[int, int]], wide: _Bounds) -> list[int]:
    """The operations before which the clock jumps.

    Of messages only those of one direction contradict the clock before at once, so the pieces may
    be too long. Cut from the end they are too short: between the two it is where the messages, by
    the clocks before and after, are least delayed in all.
    """
    backward = _straight(wide.reversed())
    if len(backward) != len(pieces):
        return [end for _, end in pieces[:-1]]
    earliest = [0, *(len(bounds) - begin for begin, _ in backward[::-1])]
    indices = []
    for (begin, latest), (_, end), first in zip(pieces, pieces[1:], earliest[1:], strict=False):
        early = max(first, begin + 1)
        late = max(latest, early)
        before_ns = _middle(bounds.part(slice(begin, early)))
        after_ns = _middle(bounds.part(slice(late, end)))
        open_bounds = bounds.part(slice(early, late))
        delay_ns = [open_bounds.least_delays(add_ns) for add_ns in (before_ns, after_ns)]
        total_ns = np.append(0, np.cumsum(delay_ns[0] - delay_ns[1]))
        indices.append(early + int(total_ns.argmin()))
    return indices


def _running_median(values: _Floats) -> _Floats:
    """float64[o], the median of each value and its neighbors.

    >>> _running_median(np.array([0.0, 0.0, 70.0, 0.0, 9.0, 9.0])).tolist()
    [0.0, 0.0, 0.0, 9.0, 9.0, 9.0]
    """
    width = 3 if len(values) < _MANY else 5
    padded = np.pad(values, width // 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    return np.asarray(np.median(windows, axis=1))


def _straight(wide: _Bounds) -> list[tuple[int, int]]:
    """Ranges of operations, each the longest through whose bounds a straight line fits."""
    ranges, begin = [], 0
    while begin < len(wide):
        least, most = begin + 1, len(wide)
        if _steepness(wide.part(slice(begin, most)))[1] >= 0:
            least = most
        while least < most:
            middle = (least + most) // 2 + (least + most) % 2
            if _steepness(wide.part(slice(begin, middle)))[1] >= 0:
                least = middle
            else:
                most = middle - 1
        ranges.append((begin, least))
        begin = least
    return ranges


def _steepness(bounds: _Bounds) -> tuple[float, float]:
    """The drift of the line that is farthest from all bounds, and that distance (twice), ns.

    The distance is a concave function of the drift: the interval around its maximum is narrowed.
    """
    at_ns = bounds.at_ns - bounds.at_ns[0]

    def room(drift: float) -> float:
        line_ns = drift * at_ns
        return float((bounds.high_ns - line_ns).min() - (bounds.low_ns - line_ns).max())

    if room(0.0) >= 0:
        return 0.0, room(0.0)
    low, high = -_MOST_DRIFT, _MOST_DRIFT
    for _ in range(_NARROWINGS):
        third = (high - low) / 3
        if room(low + third) < room(high - third):
            low += third
        else:
            high -= third
    return (low + high) / 2, room((low + high) / 2)


def _drift(pieces: Sequence[_Bounds]) -> float:
    """How much has to be added for each ns that passes; 0 where the ends do not show any.

    That is where it would not move the clock by more than ends of one operation differ anyway.
    """
    if pieces[0].is_together:
        slopes, lengths_ns = zip(*(_slopes(piece) for piece in pieces), strict=True)
        drift = _weighted_median(np.concatenate(slopes), np.concatenate(lengths_ns))
        off_ns = np.concatenate([_off(piece, drift) for piece in pieces])
        apart_ns = 2 * float(np.percentile(np.abs(off_ns), 90))
    else:
        longest = max(pieces, key=len)
        drift, room_ns = _steepness(longest)
        apart_ns = room_ns if np.isfinite(room_ns) else np.inf
    if sum(map(len, pieces)) < _LEAST_FOR_DRIFT:
        return 0.0
    span_ns = max(float(np.ptp(piece.at_ns)) for piece in pieces)
    drift = float(np.clip(drift, -_MOST_DRIFT, _MOST_DRIFT))
    return drift if abs(drift) * span_ns > max(_ENDS_DIFFER_NS, apart_ns) else 0.0


def _off(piece: _Bounds, drift: float) -> _Floats:
    """float64[o], ns, how far operations that end together are from the line through them."""
    flat = piece.without(drift * (piece.at_ns - piece.at_ns[0]))
    return flat.low_ns - _middle(flat)


def _slopes(piece: _Bounds) -> tuple[_Floats, _Floats]:
    """The slopes between operations half a recording apart, and how long that is, ns."""
    half = len(piece) // 2
    length_ns = piece.at_ns[half:] - piece.at_ns[: len(piece) - half]
    rise_ns = piece.low_ns[half:] - piece.low_ns[: len(piece) - half]
    is_apart = length_ns > 0
    return rise_ns[is_apart] / length_ns[is_apart], length_ns[is_apart]


def _weighted_median(values: _Floats, weights: _Floats) -> float:
    """The value with half of the weight on either side; 0 without any.

    >>> _weighted_median(np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0]))
    3.0
    """
    if not len(values):
        return 0.0
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def _alignment(
    parts: Sequence[RankPart],
    members: _Members,
    corrections: Sequence[_Correction],
    bounds: Mapping[int, _Bounds],
    begin_ns: Sequence[int],
    reference: int,
) -> Alignment:
    """What the report says of the clocks."""
    residuals_ns = _residuals(members, corrections)
    per_rank = []
    for index, (part, correction) in enumerate(zip(parts, corrections, strict=True)):
        begin = np.array([begin_ns[index]])
        basis = "reference" if index == reference else bounds[index].basis
        per_rank.append(
            RankClock(
                rank=part.rank,
                offset_ns=-int(correction.at(begin)[0]),
                drift_ppm=0.0 - 1e6 * correction.drift,
                jumps=_jumps(correction, begin_ns[index], part),
                matched=int((members.part_index == index).sum()),
                residual_ns=residuals_ns[index],
                basis=basis,
            )
        )
    known = [residual for residual in residuals_ns if residual is not None]
    return Alignment(max(known, default=None), parts[reference].rank, tuple(per_rank))


def _jumps(correction: _Correction, begin_ns: int, part: RankPart) -> tuple[Jump, ...]:
    """When a clock was set while its rank recorded."""
    last_ns = begin_ns + int(part.end_ns.max(initial=0))
    at_ns = correction.from_ns[1:]
    return tuple(
        Jump(at_ns=int(at + added), by_ns=-int(by))
        for at, added, by in zip(
            at_ns.tolist(), correction.at(at_ns), np.diff(correction.add_ns), strict=True
        )
        if begin_ns < at < last_ns
    )


def _residuals(members: _Members, corrections: Sequence[_Correction]) -> list[int | None]:
    """How well each part's clock is known, ns.

    Where ends come together that is the 90th percentile of how far they are from the median end of
    their operation. Where messages bound the clock it is how far it can be moved until the least
    delayed message, of either direction, arrives as it is sent.
    """
    job_ns = members.recorded_ns.copy()
    for index, correction in enumerate(corrections):
        mine = members.part_index == index
        job_ns[mine] += correction.at(job_ns[mine])
    off_ns = np.abs(job_ns - _medians(job_ns, members.match_index))
    total_ns = np.zeros(len(job_ns), dtype=np.int64)
    np.add.at(total_ns, members.match_index, job_ns)
    later_ns = total_ns[members.match_index] - 2 * job_ns  # of messages: by how much the peer ends
    residuals: list[int | None] = []
    for index in range(len(corrections)):
        mine = np.flatnonzero(members.part_index == index)
        chosen, _ = _most_telling(members.role[mine])
        role = members.role[mine][chosen]
        sent_ns = later_ns[mine][chosen][role == _Role.SENT]
        received_ns = later_ns[mine][chosen][role == _Role.RECEIVED]
        residual_ns: float | None = None
        if len(sent_ns) and len(received_ns):
            residual_ns = max(abs(int(sent_ns.min())), abs(int(received_ns.max())))
        elif len(role) and not len(sent_ns) and not len(received_ns):
            residual_ns = float(np.percentile(off_ns[mine][chosen], 90))
        residuals.append(None if residual_ns is None else round(residual_ns))
    return residuals


def _medians(values: Int64Array, group: NDArray[np.intp]) -> Int64Array:
    """int64[k], of each value the median of its group; groups are ascending.

    >>> _medians(np.array([30, 10, 20, 7, 9]), np.array([0, 0, 0, 1, 1])).tolist()
    [20, 20, 20, 8, 8]
    """
    ordered = values[np.lexsort((values, group))]
    first = np.searchsorted(group, group)
    last = np.searchsorted(group, group, "right") - 1
    lower, upper = ordered[(first + last) // 2], ordered[(first + last + 1) // 2]
    return np.asarray(lower + (upper - lower) // 2)
