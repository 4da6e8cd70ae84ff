"""Wait and transfer: how long each rank of a collective waited for the last one to arrive.

A collective begins on a rank when its kernel starts there, and moves data once all ranks have come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.job.clocks import Clocks
from tracelab.job.collectives import ENDS_TOGETHER, Matches
from tracelab.job.rank_part import RankPart
from tracelab.model.trace import ABSENT


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Waits(Frozen):
    """Wait and transfer of matched operations; k members in the order of `Matches`, m matches.

    ``wait_ns + transfer_ns`` is the length of the operation's kernel on that rank, to the
    nanosecond. Operations that share a kernel share its times: it waits for the last of its peers.

    Attributes:
        match_index: int64[k], the match of each member.
        arrival_ns: int64[k], ns on the job's clock, the start of the kernel.
        wait_ns: int64[k], ns, until the last rank had arrived, at most the kernel's length.
        transfer_ns: int64[k], ns, the rest.
        last_member: int64[m], the member of each match that arrived last; ABSENT where all arrived
            within the error of their clocks, so that nobody can be said to be late.
        margin_ns: int64[m], ns, by how much the last member came after the one before it; 0 where
            there is no last one.

    Example: of two ranks that start an all-reduce at 0 and at 4,841 us and end at 4,907 us,
    ``arrival_ns=[0, 4_841_000], wait_ns=[4_841_000, 0], transfer_ns=[66_000, 66_000],
    last_member=[1], margin_ns=[4_841_000]``.
    """

    match_index: Int64Array
    arrival_ns: Int64Array
    wait_ns: Int64Array
    transfer_ns: Int64Array
    last_member: Int64Array
    margin_ns: Int64Array


def find_waits(parts: Sequence[RankPart], matches: Matches, clocks: Clocks) -> Waits:
    """Split the time of matched operations into wait and transfer.

    Clocks agree only to within their residuals, and so do the waits. They are given as measured,
    but a rank is late only if it came later than another by more than the two clocks' residuals.

    The slow reference model is ``tests/reference/waits.py``.

    Args:
        parts: the job's ranks.
        matches: which of their operations belong together.
        clocks: the job's clock.
    """
    first, match_index = matches.first, matches.match_index
    start_ns = matches.of_members([part.start_ns for part in parts])
    length_ns = matches.of_members([part.end_ns for part in parts]) - start_ns
    arrival_ns, error_ns = np.zeros_like(start_ns), np.zeros_like(start_ns)
    for part_index, rank_clock in enumerate(clocks.alignment.per_rank):
        is_of_part = matches.part_index == part_index
        arrival_ns[is_of_part] = clocks.to_job_ns(part_index, start_ns[is_of_part])
        error_ns[is_of_part] = rank_clock.residual_ns or 0
    awaited_ns = _awaited_ns(parts, matches, arrival_ns, length_ns)
    wait_ns = np.clip(awaited_ns - arrival_ns, 0, length_ns)

    by_arrival = np.lexsort((arrival_ns, match_index))
    last, earliest, before = (
        by_arrival[first[1:] - 1],
        by_arrival[first[:-1]],
        by_arrival[first[1:] - 2],
    )
    is_late = arrival_ns[last] - arrival_ns[earliest] > error_ns[last] + error_ns[earliest]
    return Waits(
        match_index=match_index,
        arrival_ns=arrival_ns,
        wait_ns=wait_ns,
        transfer_ns=length_ns - wait_ns,
        last_member=np.where(is_late, last, ABSENT),
        margin_ns=np.where(is_late, arrival_ns[last] - arrival_ns[before], 0),
    )


def waits_of_parts(
    parts: Sequence[RankPart], matches: Matches, waits: Waits
) -> tuple[Int64Array, ...]:
    """int64[c] of each part, ns, how long each kernel waited; ABSENT without a match."""
    of_parts = []
    for part_index, part in enumerate(parts):
        members = np.flatnonzero(matches.part_index == part_index)
        kernel_index = part.kernel_index
        wait_ns = np.full(len(part), ABSENT, dtype=np.int64)
        of_kernel = kernel_index[matches.operation_index[members]]
        np.maximum.at(wait_ns, of_kernel, waits.wait_ns[members])
        of_parts.append(wait_ns[kernel_index])
    return tuple(of_parts)


def kernels_of_members(parts: Sequence[RankPart], matches: Matches) -> NDArray[np.intp]:
    """intp[k], the kernel of each member, among those of all members."""
    kernel_id = matches.of_members([part.kernel_id for part in parts])
    kernels = matches.part_index.astype(np.int64) * (kernel_id.max(initial=0) + 1) + kernel_id
    kernel_index: NDArray[np.intp] = np.unique(kernels, return_inverse=True)[1]
    return kernel_index


def _awaited_ns(
    parts: Sequence[RankPart], matches: Matches, arrival_ns: Int64Array, length_ns: Int64Array
) -> Int64Array:
    """int64[k], ns on the job's clock, when the last rank that each member needed had arrived."""
    first, match_index = matches.first, matches.match_index
    if not len(match_index):
        return arrival_ns
    awaited_ns: Int64Array = np.maximum.reduceat(arrival_ns, first[:-1])[match_index]
    end_ns = arrival_ns + length_ns
    is_early = end_ns < awaited_ns
    # Of the others a rank that ended before the last one came needed only those before it: the root
    # of a broadcast, the sender of a message that a buffer holds.
    is_early &= ~np.isin(matches.of_members([part.operation for part in parts]), ENDS_TOGETHER)
    for member in np.flatnonzero(is_early).tolist():
        arrivals_ns = arrival_ns[first[match_index[member]] : first[match_index[member] + 1]]
        awaited_ns[member] = arrivals_ns[arrivals_ns <= end_ns[member]].max()
    # A kernel of several operations waits for the last of all their peers.
    kernel_index = kernels_of_members(parts, matches)
    by_kernel_ns = np.full(len(kernel_index), np.iinfo(np.int64).min)
    np.maximum.at(by_kernel_ns, kernel_index, awaited_ns)
    return by_kernel_ns[kernel_index]
