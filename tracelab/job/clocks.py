"""One clock for all ranks of a job, from operations that end together.

All ranks leave an all-reduce within some microseconds: the rest of the distance of its recorded
ends is that of the clocks. Messages in both directions bound the clocks of a pipeline's neighbors.
Ranks of one host have one clock: it is believed unless the ends contradict it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import compress
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record
from tracelab.job.matching import ENDS_TOGETHER, Matches
from tracelab.job.part import RankPart
from tracelab.measures.measure import constrained, summed
from tracelab.model.collectives import Operation
from tracelab.model.lookup import expand_ranges
from tracelab.model.trace import ABSENT

_Floats = NDArray[np.float64]
_SIGNED = constrained(minimum=-(2**63))

# One host, one clock: ends are up to 20 us apart at the median, 98 us (a fifth of the transfer)
# where a GPU works meanwhile.
_MIN_APART_NS, _APART_SHARE = 30_000, 4
_MAX_PRECISE_FACTOR = 2
# Crystals are within 100 ppm.
_MAX_DRIFT = 200e-6
_MIN_DRIFT_OPERATIONS = 4
# Of the least delayed message, if only one direction is known.
_MAX_DELAY_NS = 10_000_000


class Role(IntEnum):
    """Relation of an operation's end to the ends on other ranks."""

    TOGETHER = 0  # of a collective: they are the same
    EXCHANGED = 1  # of messages in both directions: they are the same
    SENT = 2  # the receive does not end before
    RECEIVED = 3  # the send does not end after
    LOOSE = 4  # usually they are the same, but some rank (a broadcast's root) may end long before
    NOTHING = 5  # the kernel ends when another of its operations does


class RankClock(Record):
    """Relation of the clock of one rank's file to the job's.

    Attributes:
        offset_ns: by how much its recorded clock was ahead of the job's when its recording began.
        drift_ppm: by how much faster it runs, in millionths.
        matched: how many of its operations other ranks have, too; the clock rests on those of them
            that say most.
        residual_ns: how far its ends are from those of the other ranks on the job's clock, or how
            far off its clock can be by its messages; None where there is nothing to tell that.
        basis: "reference", "collectives", "point_to_point", or "recorded clock" where the file's
            own clock had to be believed.
    """

    rank: int
    offset_ns: Annotated[int, _SIGNED]
    drift_ppm: float
    matched: int
    residual_ns: int | None
    basis: str


class Alignment(Record):
    """Accuracy of the clocks of a job.

    Attributes:
        residual_ns: the largest residual of a rank; None where no rank has one.
        reference_rank: the rank whose clock is the job's.
        per_rank: one per part.
    """

    residual_ns: int | None
    reference_rank: int
    per_rank: tuple[RankClock, ...]


class _Correction(Record):
    """Time to add to recorded times, ns: `add_ns` at `since_ns`, and `drift` for each ns after."""

    add_ns: int = 0
    drift: float = 0.0
    since_ns: int = 0

    def offset_ns_at(self, recorded_ns: Int64Array) -> Int64Array:
        """int64[times], ns, to add to each."""
        drifted_ns = np.rint(self.drift * (recorded_ns - self.since_ns))
        return np.asarray(self.add_ns + drifted_ns.astype(np.int64))


class Clocks(Record):
    """One clock for all parts of a job; the alignment tells how well it is known."""

    alignment: Alignment
    _begin_ns: tuple[int, ...]
    _corrections: tuple[_Correction, ...]

    def job_ns_of(self, part_index: int, times_ns: Int64Array) -> Int64Array:
        """int64[times], ns since the reference rank's origin, of times since that of a part."""
        recorded_ns = times_ns + self._begin_ns[part_index]
        return recorded_ns + self._corrections[part_index].offset_ns_at(recorded_ns)


def align(parts: Sequence[RankPart], matches: Matches) -> Clocks:
    """Find the clock of each part relative to the one of the reference rank.

    The part that has most in common with the aligned ones is fitted next. One whose ends do not
    contradict a known clock has that; one without anything in common keeps its recorded clock.
    """
    matched = np.bincount(matches.part_index, minlength=len(parts))
    reference = int(np.flatnonzero(2 * matched >= matched.max(initial=0))[0])
    begin_ns = tuple(part.origin_ns - parts[reference].origin_ns for part in parts)
    ends = _find_ends(parts, matches, begin_ns)
    corrections = {reference: _Correction()}
    bases = {reference: "reference"}
    total_ns, count = np.zeros(len(matches)), np.zeros(len(matches), dtype=np.int64)
    shared = np.zeros(len(parts), dtype=np.int64)
    part_index = reference
    while True:
        member = ends.of_part[part_index]
        match_index, recorded_ns = ends.match_index[member], ends.recorded_ns[member]
        is_common = count[match_index] > 0
        if part_index not in corrections:
            common = match_index[is_common]
            bounds, bases[part_index] = _bounds(
                ends, member[is_common], total_ns[common] / count[common]
            )
            corrections[part_index] = _fit(bounds, dict.fromkeys(corrections.values()))
        total_ns[match_index] += recorded_ns + corrections[part_index].offset_ns_at(recorded_ns)
        count[match_index] += 1
        if len(corrections) == len(parts):
            break
        new = match_index[~is_common]
        joined = expand_ranges(matches.first[new], matches.first[new + 1])[1]
        joined = joined[ends.role[joined] != Role.NOTHING]
        shared += np.bincount(ends.part_index[joined], minlength=len(parts))
        shared[[*corrections]] = ABSENT
        part_index = int(shared.argmax())
    in_order = tuple(corrections[index] for index in range(len(parts)))
    alignment = _alignment(parts, ends, in_order, bases, reference)
    return Clocks(alignment, begin_ns, in_order)


# --- what the ends of matched operations say ---


class _Ends(Arrays):
    """The ends of matched operations by the recorded clock, ns since the reference's origin.

    The ends of one operation may be `apart_ns` apart by nature.
    """

    match_index: IndexArray
    part_index: NDArray[np.int32]
    of_part: tuple[IndexArray, ...]
    recorded_ns: Int64Array
    role: NDArray[np.int8]
    apart_ns: Int64Array


def _find_ends(parts: Sequence[RankPart], matches: Matches, begin_ns: Sequence[int]) -> _Ends:
    # The rank that came last to an operation did not wait in it: that took as long as the transfer.
    match_index = matches.match_index
    length_ns = matches.member_values([part.end_ns - part.start_ns for part in parts])
    shortest_ns = np.full(len(matches), np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, match_index, length_ns)
    apart_ns = np.maximum(shortest_ns // _APART_SHARE, _MIN_APART_NS)
    recorded_ns = [part.end_ns + begin for part, begin in zip(parts, begin_ns, strict=True)]
    return _Ends(
        match_index,
        matches.part_index,
        matches.members_of(len(parts)),
        matches.member_values(recorded_ns),
        _roles(parts, matches),
        apart_ns[match_index],
    )


def _roles(parts: Sequence[RankPart], matches: Matches) -> NDArray[np.int8]:
    operation = matches.member_values([part.operation for part in parts])
    role = np.where(np.isin(operation, ENDS_TOGETHER), Role.TOGETHER, Role.LOOSE).astype(np.int8)
    is_send = operation == Operation.SEND
    is_message = is_send | (operation == Operation.RECV)
    has_one_peer = matches.member_values([_has_one_peer(part) for part in parts])
    exchanges = matches.member_values([part.is_exchange for part in parts])
    # Both kernels of a message only exchange messages with each other; or the sender's only sends.
    is_exchanged, is_sent = np.ones(len(matches), np.bool_), np.zeros(len(matches), np.bool_)
    is_exchanged[matches.match_index[~(exchanges & has_one_peer)]] = False
    is_sent[matches.match_index[is_send & has_one_peer & ~exchanges]] = True
    is_exchanged, is_sent = is_exchanged[matches.match_index], is_sent[matches.match_index]
    role[is_message] = Role.NOTHING
    role[is_message & is_sent] = np.where(is_send, Role.SENT, Role.RECEIVED)[is_message & is_sent]
    role[is_message & is_exchanged] = Role.EXCHANGED
    return role


def _has_one_peer(part: RankPart) -> BoolArray:
    kernel = part.kernel_index
    peer = np.zeros(len(part), dtype=np.int64)
    peer[kernel] = part.peer_rank
    has_others = np.bincount(kernel, peer[kernel] != part.peer_rank, len(part)) > 0
    return np.asarray(~has_others[kernel])


def _most_telling(role: NDArray[np.int8], apart_ns: Int64Array) -> tuple[IndexArray, str]:
    is_exchange = role == Role.EXCHANGED
    is_message = (role == Role.SENT) | (role == Role.RECEIVED)
    if (role == Role.TOGETHER).any():
        chosen, basis = role == Role.TOGETHER, "collectives"
    elif is_message.sum() > is_exchange.sum():
        return np.flatnonzero(is_message), "point_to_point"
    elif is_exchange.any():
        chosen, basis = is_exchange, "point_to_point"
    else:
        chosen = role == Role.LOOSE
        basis = "collectives" if chosen.any() else "recorded clock"
    index = np.flatnonzero(chosen)
    if len(index):
        index = index[apart_ns[index] <= _MAX_PRECISE_FACTOR * np.percentile(apart_ns[index], 25)]
    return index, basis


# --- one rank's clock ---


class _Bounds(Arrays):
    """Bounds of the time to add to the recorded ends of one rank, float64[o], ns.

    Equal for operations that end together; infinite on an unknown side.
    """

    at_ns: Int64Array
    low_ns: _Floats
    high_ns: _Floats
    apart_ns: float

    @property
    def is_together(self) -> bool:
        return bool(np.array_equal(self.low_ns, self.high_ns))

    def shift(self, done_ns: Int64Array | _Floats) -> _Bounds:
        return replace(self, low_ns=self.low_ns - done_ns, high_ns=self.high_ns - done_ns)


def _bounds(ends: _Ends, member: IndexArray, target_ns: _Floats) -> tuple[_Bounds, str]:
    index, basis = _most_telling(ends.role[member], ends.apart_ns[member])
    index = index[np.argsort(ends.recorded_ns[member[index]], kind="stable")]
    chosen = member[index]
    role, at_ns = ends.role[chosen], ends.recorded_ns[chosen]
    add_ns = target_ns[index] - at_ns
    low_ns = np.where(role == Role.SENT, -np.inf, add_ns)
    high_ns = np.where(role == Role.RECEIVED, np.inf, add_ns)
    apart_ns = float(np.median(ends.apart_ns[chosen])) if len(chosen) else 0.0
    return _Bounds(at_ns, low_ns, high_ns, apart_ns), basis


def _fit(bounds: _Bounds, known: Collection[_Correction]) -> _Correction:
    if not len(bounds.at_ns):
        return _Correction()
    for correction in _candidates(bounds, known):
        if _is_believable(bounds.shift(correction.offset_ns_at(bounds.at_ns))):
            return correction
    drift, since_ns = _drift(bounds), int(bounds.at_ns[0])
    drifted_ns = drift * (bounds.at_ns - since_ns).astype(np.float64)
    return _Correction(round(_middle(bounds.shift(drifted_ns))), drift, since_ns)


def _candidates(bounds: _Bounds, known: Collection[_Correction]) -> Iterator[_Correction]:
    """Leave out corrections that two of the ends contradict: of a thousand clocks nearly all."""
    add_ns, drift, since_ns = np.array([(x.add_ns, x.drift, x.since_ns) for x in known]).T
    chosen = [bounds.low_ns.argmax(), bounds.high_ns.argmin()]
    at_ns = bounds.at_ns[chosen, None].astype(np.float64)
    offset_ns = add_ns + drift * (at_ns - since_ns)
    spread_ns = np.ptp(bounds.low_ns) if bounds.is_together else 0.0
    moved_ns = spread_ns + np.abs(drift) * np.ptp(bounds.at_ns)
    most_ns = 2 * (_MIN_APART_NS + bounds.apart_ns + moved_ns)
    is_possible = bounds.low_ns[chosen[0]] - offset_ns[0] <= most_ns
    is_possible &= bounds.high_ns[chosen[1]] - offset_ns[1] >= -most_ns
    return compress(known, is_possible)


def _is_believable(left: _Bounds) -> bool:
    """Return True if ends do not contradict a correction, by what would still have to be added.

    They do if the clock would drift, a message would arrive before it was sent, or the difference
    exceeds `apart_ns` and the usual scatter.
    """
    low_ns, high_ns = float(left.low_ns.max()), float(left.high_ns.min())
    middle_ns = _middle(left)
    if not left.is_together:
        is_possible = low_ns <= _MIN_APART_NS and high_ns >= -_MIN_APART_NS
        return is_possible and (np.isfinite(high_ns - low_ns) or abs(middle_ns) <= _MAX_DELAY_NS)
    spread_ns = float(np.percentile(np.abs(left.low_ns - middle_ns), 90))
    return abs(middle_ns) <= max(left.apart_ns, spread_ns) and _drift(left) == 0


def _middle(bounds: _Bounds) -> float:
    if bounds.is_together:
        return float(np.median(bounds.low_ns))
    low_ns, high_ns = float(bounds.low_ns.max()), float(bounds.high_ns.min())
    if np.isfinite(low_ns) and np.isfinite(high_ns):
        return (low_ns + high_ns) / 2
    return low_ns if np.isfinite(low_ns) else high_ns


def _drift(bounds: _Bounds) -> float:
    """Return the time to add for each ns that passes, by operations that end together.

    The median slope between operations half a recording apart; 0 if it is within the scatter.
    """
    at_ns, add_ns = bounds.at_ns.astype(np.float64), bounds.low_ns
    if len(at_ns) < _MIN_DRIFT_OPERATIONS or not bounds.is_together:
        return 0.0
    half = len(at_ns) // 2
    length_ns, rise_ns = at_ns[half:] - at_ns[:-half], add_ns[half:] - add_ns[:-half]
    is_apart = length_ns > 0
    if not is_apart.any():
        return 0.0
    slope = float(np.median(rise_ns[is_apart] / length_ns[is_apart]))
    slope = float(np.clip(slope, -_MAX_DRIFT, _MAX_DRIFT))
    flat_ns = add_ns - slope * (at_ns - at_ns[0])
    apart_ns = 2 * float(np.percentile(np.abs(flat_ns - np.median(flat_ns)), 90))
    moved_ns = abs(slope) * float(np.ptp(at_ns))
    return slope if moved_ns > max(_MIN_APART_NS, apart_ns) else 0.0


# --- what is reported ---


def _alignment(
    parts: Sequence[RankPart],
    ends: _Ends,
    corrections: Sequence[_Correction],
    bases: Mapping[int, str],
    reference: int,
) -> Alignment:
    residuals_ns = _residuals(ends, corrections)
    matched = np.bincount(ends.part_index, minlength=len(parts)).tolist()
    per_rank = []
    for index, (part, correction) in enumerate(zip(parts, corrections, strict=True)):
        begin_ns = part.origin_ns - parts[reference].origin_ns
        per_rank.append(
            RankClock(
                rank=part.rank,
                offset_ns=-int(correction.offset_ns_at(np.array([begin_ns]))[0]),
                drift_ppm=0.0 - 1e6 * correction.drift,
                matched=matched[index],
                residual_ns=residuals_ns[index],
                basis=bases[index],
            )
        )
    known = [residual for residual in residuals_ns if residual is not None]
    return Alignment(max(known, default=None), parts[reference].rank, tuple(per_rank))


def _residuals(ends: _Ends, corrections: Sequence[_Correction]) -> list[int | None]:
    """Measure how well each part's clock is known, ns.

    The 90th percentile of distances to the median end; by messages, how far the clock can move
    until the least delayed one arrives as it is sent.
    """
    job_ns = ends.recorded_ns.copy()
    for member, correction in zip(ends.of_part, corrections, strict=True):
        job_ns[member] += correction.offset_ns_at(job_ns[member])
    off_ns = np.abs(job_ns - _medians(job_ns, ends.match_index))
    total_ns = summed(ends.match_index, job_ns, len(job_ns))
    later_ns = total_ns[ends.match_index] - 2 * job_ns  # of messages: by how much the peer ends
    residuals: list[int | None] = []
    for member in ends.of_part:
        chosen, _ = _most_telling(ends.role[member], ends.apart_ns[member])
        index = member[chosen]
        role = ends.role[index]
        sent_ns, received_ns = (later_ns[index[role == x]] for x in (Role.SENT, Role.RECEIVED))
        if len(sent_ns) and len(received_ns):
            residuals.append(max(abs(int(sent_ns.min())), abs(int(received_ns.max()))))
        elif len(sent_ns) or len(received_ns) or not len(index):
            residuals.append(None)
        else:
            residuals.append(round(float(np.percentile(off_ns[index], 90))))
    return residuals


def _medians(values: Int64Array, group: IndexArray) -> Int64Array:
    """int64[k], the median of each value's group; groups are ascending.

    >>> _medians(np.array([30, 10, 20, 7, 9]), np.array([0, 0, 0, 1, 1])).tolist()
    [20, 20, 20, 8, 8]
    """
    ordered = values[np.lexsort((values, group))]
    first = np.searchsorted(group, group)
    last = np.searchsorted(group, group, "right") - 1
    lower, upper = ordered[(first + last) // 2], ordered[(first + last + 1) // 2]
    return np.asarray(lower + (upper - lower) // 2)
