"""Matched operations as one table, on the job's clock: a row for each rank of each operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record
from tracelab.base.intervals import intersect, measure_within, subtract, union
from tracelab.job.clocks import Clocks
from tracelab.job.matching import ENDS_TOGETHER, Matches
from tracelab.job.part import RankPart
from tracelab.measures.measure import constrained
from tracelab.measures.window_times import WindowMetrics
from tracelab.model.trace import ABSENT

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Members(Arrays):
    """Members of matched operations; k rows in the order of `Matches`, m matches.

    ``wait_ns + transfer_ns`` is the length of the kernel, whose operations share its times.

    Attributes:
        operation: int8[k], an `Operation`.
        kernel_index: intp[k], among the kernels of all members.
        is_shared: bool[k], the kernel carries out other operations, too.
        arrival_ns: int64[k], ns on the job's clock, the start of the kernel.
        awaited_member: int64[k], the last to arrive of those that its kernel needed.
        wait_ns: int64[k], ns until then, at most the kernel's length.
        error_ns: int64[k], ns, the residual of the rank's clock.
        last_member: int64[m], by `margin_ns`; ABSENT if all arrived within the clocks' error.
        last_arrival_ns: int64[m], ns on the job's clock.
        of_part: per rank intp, its members, ascending.
    """

    parts: tuple[RankPart, ...]
    clocks: Clocks
    matches: Matches
    match_index: Int64Array
    operation: NDArray[np.int8]
    kernel_index: IndexArray
    is_shared: BoolArray
    arrival_ns: Int64Array
    awaited_member: Int64Array
    wait_ns: Int64Array
    transfer_ns: Int64Array
    error_ns: Int64Array
    last_member: Int64Array
    last_arrival_ns: Int64Array
    margin_ns: Int64Array
    of_part: tuple[IndexArray, ...]

    def __len__(self) -> int:
        return len(self.match_index)

    @property
    def first(self) -> Int64Array:
        """int64[m + 1], as of `Matches`."""
        return self.matches.first

    @property
    def part_index(self) -> NDArray[np.int32]:
        """int32[k], as of `Matches`."""
        return self.matches.part_index

    @property
    def operation_index(self) -> Int64Array:
        """int64[k], as of `Matches`."""
        return self.matches.operation_index

    @property
    def steady_numbers(self) -> list[int]:
        """The numbers of the steps that are steady on all ranks, ascending."""
        steady = (set(part.steps.number[part.steps.is_steady].tolist()) for part in self.parts)
        return sorted(set.intersection(*steady))

    @property
    def length_ns(self) -> Int64Array:
        """int64[k], ns, the length of the kernel."""
        return self.wait_ns + self.transfer_ns

    def column(self, name: str) -> NDArray[Any]:
        """Gather a column of `RankPart` that has one value for each operation; any[k]."""
        return self.matches.member_values([getattr(part, name) for part in self.parts])

    def reduce(self, function: np.ufunc, values: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Reduce one value for each member to one for each match, as ``function.reduceat``."""
        return np.asarray(function.reduceat(values, self.first[:-1]) if len(values) else values)

    def place(self, member: int) -> tuple[RankPart, int]:
        """Return the part of a member, and the index of its operation there."""
        return self.parts[self.part_index[member]], int(self.operation_index[member])

    def wait_of_operations(self, part_index: int) -> Int64Array:
        """int64[c], ns, how long the kernel of each operation of a rank waited, or ABSENT."""
        part, members = self.parts[part_index], self.of_part[part_index]
        kernel_index = part.kernel_index
        wait_ns = np.full(len(part), ABSENT, dtype=np.int64)
        of_kernel = kernel_index[self.operation_index[members]]
        np.maximum.at(wait_ns, of_kernel, self.wait_ns[members])
        return wait_ns[kernel_index]


def find_members(parts: Sequence[RankPart], matches: Matches, clocks: Clocks) -> Members:
    """Put matched operations on the job's clock, and split their time into wait and transfer.

    The slow reference model is ``tests/reference/waits.py``.
    """
    first, match_index = matches.first, matches.match_index
    start_ns = matches.member_values([part.start_ns for part in parts])
    length_ns = matches.member_values([part.end_ns for part in parts]) - start_ns
    operation = matches.member_values([part.operation for part in parts])
    arrival_ns, error_ns = np.zeros_like(start_ns), np.zeros_like(start_ns)
    of_part = matches.members_of(len(parts))
    for part_index, (own, clock) in enumerate(zip(of_part, clocks.alignment.per_rank, strict=True)):
        arrival_ns[own] = clocks.job_ns_of(part_index, start_ns[own])
        error_ns[own] = clock.residual_ns or 0
    by_arrival = np.lexsort((arrival_ns, match_index))
    earliest, last = by_arrival[first[:-1]], by_arrival[first[1:] - 1]
    late_ns = arrival_ns[last] - arrival_ns[by_arrival[first[1:] - 2]]
    kernel_id = matches.member_values([part.kernel_id for part in parts])
    kernels = matches.part_index.astype(np.int64) * (kernel_id.max(initial=0) + 1) + kernel_id
    kernel_index = np.unique(kernels, return_inverse=True)[1]
    awaited_member = _awaited_member(
        first, match_index, operation, kernel_index, arrival_ns, length_ns
    )
    wait_ns = np.clip(arrival_ns[awaited_member] - arrival_ns, 0, length_ns)
    is_late = arrival_ns[last] - arrival_ns[earliest] > error_ns[last] + error_ns[earliest]
    return Members(
        parts=tuple(parts),
        clocks=clocks,
        matches=matches,
        match_index=match_index,
        operation=operation,
        kernel_index=kernel_index,
        is_shared=matches.member_values([part.is_shared for part in parts]),
        arrival_ns=arrival_ns,
        awaited_member=awaited_member,
        wait_ns=wait_ns,
        transfer_ns=length_ns - wait_ns,
        error_ns=error_ns,
        last_member=np.where(is_late, last, ABSENT),
        last_arrival_ns=arrival_ns[last],
        margin_ns=np.where(is_late, late_ns, 0),
        of_part=of_part,
    )


def _awaited_member(
    first: Int64Array,
    match_index: IndexArray,
    operation: NDArray[np.int8],
    kernel_index: IndexArray,
    arrival_ns: Int64Array,
    length_ns: Int64Array,
) -> Int64Array:
    member = np.arange(len(arrival_ns))
    last = np.lexsort((-member, arrival_ns, match_index))[first[1:] - 1]
    awaited = last[match_index]
    end_ns = arrival_ns + length_ns
    # A rank that ended before the last one came needed only those before it: a broadcast's root, a
    # buffered send.
    is_early = (end_ns < arrival_ns[awaited]) & ~np.isin(operation, ENDS_TOGETHER)
    for early in np.flatnonzero(is_early).tolist():
        begin = first[match_index[early]]
        arrivals_ns = arrival_ns[begin : first[match_index[early] + 1]]
        in_time_ns = np.where(arrivals_ns <= end_ns[early], arrivals_ns, np.iinfo(np.int64).min)
        awaited[early] = begin + in_time_ns.argmax()
    # A kernel of several operations waits for the last of all their peers.
    by_kernel = np.lexsort((-awaited, arrival_ns[awaited], kernel_index))
    of_kernel = np.empty(len(awaited), dtype=np.int64)
    of_kernel[kernel_index[by_kernel]] = awaited[by_kernel]
    return of_kernel[kernel_index]


# --- how ranks spend their steps ---


class RankStep(Record):
    """One step of one rank, on the device that decides; the times after `end_ns` add up to it.

    Attributes:
        step: its number.
        start_ns, end_ns: ns, on the job's clock.
        compute_ns: compute ran.
        wait_ns: communication waited for another rank, and no compute ran beside it.
        transfer_ns: communication only moved data, and no compute ran beside it.
        copy_ns: only copies and memsets ran.
        idle_ns: nothing ran.
    """

    step: int
    start_ns: int
    end_ns: Annotated[int, constrained(minimum=-(2**63))]
    compute_ns: int
    wait_ns: int
    transfer_ns: int
    copy_ns: int
    idle_ns: int
    unmatched_ns: int = 0


class RankTimes(Record):
    """The steps of one rank."""

    rank: int
    steps: tuple[RankStep, ...]


def rank_times(
    part: RankPart,
    part_index: int,
    clocks: Clocks,
    wait_ns: Int64Array,
    windows: Sequence[WindowMetrics],
) -> RankTimes:
    """Split each step of a rank into compute, wait, transfer, copies and idle."""
    exposed = union(part.exposed_start_ns, part.exposed_end_ns)
    waiting = intersect(union(part.start_ns, part.start_ns + np.maximum(wait_ns, 0)), exposed)
    is_unmatched = wait_ns[part.exposed_index] == ABSENT
    unmatched = subtract(
        union(part.exposed_start_ns[is_unmatched], part.exposed_end_ns[is_unmatched]), waiting
    )
    steps_ns = (part.steps.start_ns, part.steps.end_ns)
    job_ns = (clocks.job_ns_of(part_index, times_ns) for times_ns in steps_ns)
    exposed_ns = (measure_within(time, *steps_ns) for time in (waiting, unmatched))
    columns = (part.steps.number, *job_ns, *exposed_ns)
    of_step = {number: times for number, *times in zip(*(x.tolist() for x in columns), strict=True)}
    steps = []
    for window in windows:
        if window.step is None:
            continue
        start_ns, end_ns, waited_ns, unmatched_ns = of_step[window.step]
        [device] = [x for x in window.devices if x.device == part.device]
        steps.append(
            RankStep(
                step=window.step,
                start_ns=start_ns,
                end_ns=end_ns,
                compute_ns=device.compute_ns,
                wait_ns=waited_ns,
                transfer_ns=device.exposed_comm_ns - waited_ns - unmatched_ns,
                copy_ns=device.busy_ns - device.compute_ns - device.exposed_comm_ns,
                idle_ns=device.idle_ns,
                unmatched_ns=unmatched_ns,
            )
        )
    return RankTimes(part.rank, tuple(steps))
