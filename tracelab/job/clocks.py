"""One clock for all ranks of a job, from operations that end together.

No rank leaves an all-reduce before all have entered it, and all leave it within some microseconds:
what their recorded ends are apart is what their clocks are apart. A receive ends only once its
message was sent, so messages in both directions hold the clocks of a pipeline's neighbors between
two bounds. Ranks of one host have one clock already: what the ends do not contradict is believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import OneLine
from tracelab.base.intervals import Int64Array
from tracelab.job.clock_fit import UNCHANGED, Bounds, Correction, fit_clock
from tracelab.job.collectives import Matches
from tracelab.job.ends import MESSAGES_PER_COLLECTIVE, Ends, Role, ends_of, most_telling
from tracelab.job.rank_part import RankPart
from tracelab.measures.measure import constrained

_SIGNED = constrained(minimum=-(2**63))
# By how much each says more of a clock than what comes after it.
_WORTH = {
    Role.TOGETHER: 1.0,
    Role.EXCHANGED: 1.0 / MESSAGES_PER_COLLECTIVE,
    Role.SENT: 1.0 / MESSAGES_PER_COLLECTIVE,
    Role.RECEIVED: 1.0 / MESSAGES_PER_COLLECTIVE,
    Role.LOOSE: 1e-6,
}
# Drift makes no step longer or shorter than recorded by more than this, and by this share of it.
_LEAST_SET_NS, _LEAST_SET_SHARE = 100_000, 1e-3


@dataclass(frozen=True, slots=True)
class Jump:
    """A moment at which a clock was set.

    Example: ``Jump(at_ns=4_000_000_000, by_ns=-130_000_000)``, 130 ms back.

    Attributes:
        at_ns: when the first operation after it ended, ns on the job's clock.
        by_ns: by how much, forward if positive.
    """

    at_ns: int = field(metadata=_SIGNED)
    by_ns: int = field(metadata=_SIGNED)


@dataclass(frozen=True, slots=True, repr=False)
class RankClock(OneLine):
    """How the clock of one rank's file is related to the job's.

    Attributes:
        rank: the rank.
        offset_ns: by how much its recorded clock was ahead of the job's when its recording began.
        drift_ppm: by how much faster it runs, in millionths.
        jumps: when it was set while it recorded.
        matched: how many of its operations other ranks have, too; the clock rests on those of them
            that say most.
        residual_ns: how far its ends are from those of the other ranks on the job's clock, or how
            far off its clock can be by its messages; None where there is nothing to tell that.
        basis: "reference", "collectives", "point_to_point", or "recorded clock" where the file's
            own clock had to be believed.

    Example: ``RankClock(rank=3, offset_ns=-1_204_000, drift_ppm=12.5, jumps=(), matched=840,
    residual_ns=9_200, basis="collectives")``.
    """

    rank: int
    offset_ns: int = field(metadata=_SIGNED)
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


@dataclass(frozen=True, slots=True, repr=False)
class Clocks(OneLine):
    """One clock for all parts of a job.

    Attributes:
        alignment: how well it is known.
    """

    alignment: Alignment
    _begin_ns: tuple[int, ...]
    _corrections: tuple[Correction, ...]

    def to_job_ns(self, part_index: int, times_ns: Int64Array) -> Int64Array:
        """int64[times], ns on the job's clock, which is the reference rank's since its origin.

        Args:
            part_index: whose times these are.
            times_ns: int64[times], ns since that part's origin.
        """
        recorded_ns = times_ns + self._begin_ns[part_index]
        return recorded_ns + self._corrections[part_index].at(recorded_ns)


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
    ends = ends_of(parts, matches, begin_ns)
    corrections = {reference: UNCHANGED}
    bases = {reference: "reference"}
    total_ns, count = np.zeros(len(matches)), np.zeros(len(matches), dtype=np.int64)
    part_index = reference
    while True:
        member = np.flatnonzero(ends.part_index == part_index)
        match_index, recorded_ns = ends.match_index[member], ends.recorded_ns[member]
        if part_index not in corrections:
            is_common = count[match_index] > 0
            common = match_index[is_common]
            bounds, bases[part_index] = _bounds(
                ends, member[is_common], total_ns[common] / count[common]
            )
            corrections[part_index] = fit_clock(bounds, corrections.values())
        total_ns[match_index] += recorded_ns + corrections[part_index].at(recorded_ns)
        count[match_index] += 1
        left = [index for index in range(len(parts)) if index not in corrections]
        if not left:
            break
        part_index = _next(ends, left, count)
    in_order = tuple(corrections[index] for index in range(len(parts)))
    alignment = _alignment(parts, ends, in_order, bases, reference)
    return Clocks(alignment, begin_ns, in_order)


def was_set_within(part: RankPart, part_index: int, clocks: Clocks) -> NDArray[np.bool_]:
    """bool[steps], in which steps of a rank its clock was set: their recorded times hold the jump.

    Args:
        part: the rank's file.
        part_index: its place among the parts of the job.
        clocks: the job's clock.
    """
    recorded_ns = (part.steps.start_ns, part.steps.end_ns)
    start_ns, end_ns = (clocks.to_job_ns(part_index, times_ns) for times_ns in recorded_ns)
    length_ns = end_ns - start_ns
    off_ns = np.abs(length_ns - (recorded_ns[1] - recorded_ns[0]))
    return np.asarray((off_ns > _LEAST_SET_NS) & (off_ns > _LEAST_SET_SHARE * np.abs(length_ns)))


def _reference(matches: Matches, part_count: int) -> int:
    """The part whose clock is the job's: the first of those that share most operations."""
    count = np.bincount(matches.part_index, minlength=part_count)
    return int(np.flatnonzero(2 * count >= count.max(initial=0))[0])


def _next(ends: Ends, left: Sequence[int], count: Int64Array) -> int:
    """The part to fit next: what it has in common with aligned ones says most."""
    is_common = count[ends.match_index] > 0
    worth = np.zeros(max(left) + 1)
    for role, value in _WORTH.items():
        of_part = ends.part_index[is_common & (ends.role == role)]
        worth += value * np.bincount(of_part, minlength=len(worth))[: len(worth)]
    return max(left, key=lambda index: float(worth[index]))


def _bounds(
    ends: Ends, member: NDArray[np.intp], target_ns: NDArray[np.float64]
) -> tuple[Bounds, str]:
    """What the operations that a part shares with aligned ones say of its clock, and the basis.

    Args:
        ends: all.
        member: intp[o], the part's members of these operations.
        target_ns: float64[o], ns, their ends on the job's clock, by the aligned parts.
    """
    index, basis = most_telling(ends.role[member], ends.apart_ns[member])
    index = index[np.argsort(ends.recorded_ns[member[index]], kind="stable")]
    chosen = member[index]
    role, at_ns = ends.role[chosen], ends.recorded_ns[chosen].astype(np.float64)
    add_ns = target_ns[index] - at_ns
    low_ns = np.where(role == Role.SENT, -np.inf, add_ns)
    high_ns = np.where(role == Role.RECEIVED, np.inf, add_ns)
    apart_ns = float(np.median(ends.apart_ns[chosen])) if len(chosen) else 0.0
    return Bounds(at_ns, low_ns, high_ns, apart_ns), basis


def _alignment(
    parts: Sequence[RankPart],
    ends: Ends,
    corrections: Sequence[Correction],
    bases: Mapping[int, str],
    reference: int,
) -> Alignment:
    """What the report says of the clocks."""
    residuals_ns = _residuals(ends, corrections)
    matched = np.bincount(ends.part_index, minlength=len(parts)).tolist()
    per_rank = []
    for index, (part, correction) in enumerate(zip(parts, corrections, strict=True)):
        begin_ns = part.origin_ns - parts[reference].origin_ns
        per_rank.append(
            RankClock(
                rank=part.rank,
                offset_ns=-int(correction.at(np.array([begin_ns]))[0]),
                drift_ppm=0.0 - 1e6 * correction.drift,
                jumps=_jumps(correction, begin_ns, part),
                matched=matched[index],
                residual_ns=residuals_ns[index],
                basis=bases[index],
            )
        )
    known = [residual for residual in residuals_ns if residual is not None]
    return Alignment(max(known, default=None), parts[reference].rank, tuple(per_rank))


def _jumps(correction: Correction, begin_ns: int, part: RankPart) -> tuple[Jump, ...]:
    """When a clock was set while its rank recorded."""
    end_ns = np.sort(begin_ns + part.end_ns)
    first = np.searchsorted(end_ns, correction.from_ns[1:])
    is_recorded = (correction.from_ns[1:] > begin_ns) & (first < len(end_ns))
    at_ns = end_ns[first[is_recorded]]
    return tuple(
        Jump(at_ns=int(at), by_ns=-int(by))
        for at, by in zip(
            at_ns + correction.at(at_ns), np.diff(correction.add_ns)[is_recorded], strict=True
        )
    )


def _residuals(ends: Ends, corrections: Sequence[Correction]) -> list[int | None]:
    """How well each part's clock is known, ns.

    Where ends come together that is the 90th percentile of how far they are from the median end of
    their operation, of the operations that the clock rests on. Where messages bound the clock it is
    how far it can be moved until the least delayed message, of either direction, arrives as it is
    sent.
    """
    job_ns = ends.recorded_ns.copy()
    of_part = [np.flatnonzero(ends.part_index == index) for index in range(len(corrections))]
    for member, correction in zip(of_part, corrections, strict=True):
        job_ns[member] += correction.at(job_ns[member])
    off_ns = np.abs(job_ns - _medians(job_ns, ends.match_index))
    total_ns = np.zeros(len(job_ns), dtype=np.int64)
    np.add.at(total_ns, ends.match_index, job_ns)
    later_ns = total_ns[ends.match_index] - 2 * job_ns  # of messages: by how much the peer ends
    residuals: list[int | None] = []
    for member in of_part:
        chosen, _ = most_telling(ends.role[member], ends.apart_ns[member])
        index = member[chosen]
        role = ends.role[index]
        sent_ns, received_ns = (
            later_ns[index[role == each]] for each in (Role.SENT, Role.RECEIVED)
        )
        if len(sent_ns) and len(received_ns):
            residuals.append(max(abs(int(sent_ns.min())), abs(int(received_ns.max()))))
        elif len(sent_ns) or len(received_ns) or not len(index):
            residuals.append(None)
        else:
            residuals.append(round(float(np.percentile(off_ns[index], 90))))
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
