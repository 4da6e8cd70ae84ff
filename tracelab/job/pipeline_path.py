"""Time of a pipeline's stages, and the part of it that makes the schedule so long.

The path walks back from the end of the schedule: where a stage computed, was idle or received data,
it stays on that stage; where the stage waited for a neighbor, it goes on at the neighbor. So it
passes through all that has to become shorter for the schedule to become shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.job.members import Members
from tracelab.job.part import RankPart, Work
from tracelab.model.trace import ABSENT

_HOST = (Work.HOST_BLOCKED, Work.INPUT, Work.HOST_BUSY)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Line(Frozen):
    """One rank on the job's clock: what it had done by n moments, and e exposed pieces.

    Attributes:
        part: the rank's file, whose own times are by its own clock.
        moment_ns: int64[n], ascending.
        computed_ns, host_idle_ns: int64[n], ns, how long the GPU had computed by then, and been
            idle because of the host.
        piece_start_ns, piece_end_ns: int64[e], ascending and disjoint, when it sent or received and
            did not compute.
        piece_wait_ns: int64[e], until when it waited for the neighbor in it, from its start on.
        neighbor: int64[e], the rank that it waited for; ABSENT where it waited for none.
        passes_start_ns, passes_end_ns: int64[s], of each step of the part.
        operation_start_ns, operation_end_ns: int64[c], of each operation of the part.

    Example row of a piece: ``(piece_start_ns=184_000, piece_wait_ns=1_590_000,
    piece_end_ns=1_654_000, neighbor=0)``: it waited until rank 0 sent, and 64 us for the data.
    """

    part: RankPart
    moment_ns: Int64Array
    computed_ns: Int64Array
    host_idle_ns: Int64Array
    piece_start_ns: Int64Array
    piece_end_ns: Int64Array
    piece_wait_ns: Int64Array
    neighbor: Int64Array
    passes_start_ns: Int64Array
    passes_end_ns: Int64Array
    operation_start_ns: Int64Array
    operation_end_ns: Int64Array

    def computed_by(self, times_ns: Int64Array) -> Int64Array:
        """int64[k], ns, how long the GPU had computed by each of some times."""
        return _interpolated(times_ns, self.moment_ns, self.computed_ns)

    def host_idle_by(self, times_ns: Int64Array) -> Int64Array:
        """int64[k], ns, how long the GPU had been idle because of the host by then."""
        return _interpolated(times_ns, self.moment_ns, self.host_idle_ns)


class Path(NamedTuple):
    """Parts of the path through one schedule on one rank, without compute, ns.

    Attributes:
        transfer_ns: messages moved while the rank did not compute.
        host_ns: it was idle because of its host.
        rest_ns: anything else: copies, other communication, what came before its passes.

    Example: ``Path(transfer_ns=640_000, host_ns=120_000, rest_ns=0)``.
    """

    transfer_ns: int
    host_ns: int
    rest_ns: int


def line_of(members: Members, part_index: int) -> Line:
    """Put one rank of a job on the job's clock.

    There is no slow reference model: ``tests/unit/job/test_pipeline.py`` carries schedules out by
    their definitions.

    Args:
        members: the matched operations of the job.
        part_index: the rank's position among the parts.
    """
    part, neighbor = members.parts[part_index], _neighbors(members, part_index)
    wait_ns = members.wait_of_operations(part_index)
    is_message = part.peer_rank[part.exposed_index] != ABSENT
    of_piece = part.exposed_index[is_message]
    piece_start_ns, piece_end_ns = (
        part.exposed_start_ns[is_message],
        part.exposed_end_ns[is_message],
    )
    waited_ns = np.clip(part.start_ns[of_piece] + wait_ns[of_piece], piece_start_ns, piece_end_ns)

    passes = part.passes
    moment_ns = np.concatenate((part.start_ns, part.end_ns, passes.start_ns, passes.end_ns))
    spent_ns = np.concatenate(
        (
            part.work_at_start_ns,
            part.work_at_end_ns,
            passes.work_at_start_ns,
            passes.work_at_end_ns,
        )
    )
    moment_ns, index = np.unique(moment_ns, return_index=True)
    computed_ns, host_idle_ns = spent_ns[index, Work.COMPUTE], spent_ns[index][:, _HOST].sum(axis=1)
    # Inside an operation it computed except in the exposed pieces.
    bounds_ns = np.concatenate((part.exposed_start_ns, part.exposed_end_ns))
    before = np.maximum(np.searchsorted(moment_ns, bounds_ns, side="right") - 1, 0)
    exposed_ns = measure_within(
        union(part.exposed_start_ns, part.exposed_end_ns), moment_ns[before], bounds_ns
    )
    at_bounds_ns = computed_ns[before] + bounds_ns - moment_ns[before] - exposed_ns
    all_ns, order = np.unique(np.concatenate((moment_ns, bounds_ns)), return_index=True)

    def job_times(times_ns: Int64Array) -> Int64Array:
        return members.clocks.job_ns_of(part_index, times_ns)

    by_start = np.argsort(piece_start_ns, kind="stable")
    return Line(
        part=part,
        moment_ns=job_times(all_ns),
        computed_ns=np.concatenate((computed_ns, at_bounds_ns))[order],
        host_idle_ns=np.concatenate((host_idle_ns, host_idle_ns[before]))[order],
        piece_start_ns=job_times(piece_start_ns[by_start]),
        piece_end_ns=job_times(piece_end_ns[by_start]),
        piece_wait_ns=job_times(waited_ns[by_start]),
        neighbor=neighbor[of_piece][by_start],
        passes_start_ns=job_times(passes.start_ns),
        passes_end_ns=job_times(passes.end_ns),
        operation_start_ns=job_times(part.start_ns),
        operation_end_ns=job_times(part.end_ns),
    )


def walk_back(
    lines: Mapping[int, Line], passes: Mapping[int, tuple[int, int]], start_ns: int
) -> dict[int, Path]:
    """Walk back through one schedule.

    Args:
        lines: rank to its line, of the ranks of one pipeline.
        passes: rank to when its passes of this schedule began and ended, ns.
        start_ns: when the schedule began.

    Returns:
        rank to its part of the path.
    """
    parts = {rank: Path(0, 0, 0) for rank in passes}
    rank = max(passes, key=lambda rank: passes[rank][1])
    time_ns = passes[rank][1]
    seen = {rank}  # the ranks that the path has been on at this very moment
    while time_ns > start_ns:
        line = lines[rank]
        piece = int(np.searchsorted(line.piece_start_ns, time_ns)) - 1
        piece_end_ns = int(line.piece_end_ns[piece]) if piece >= 0 else start_ns
        following = rank
        if piece_end_ns < time_ns:
            reached_ns = max(start_ns, piece_end_ns)
            spent = _between(line, passes[rank], reached_ns, time_ns)
        else:
            piece_start_ns = max(start_ns, int(line.piece_start_ns[piece]))
            reached_ns = min(time_ns, max(piece_start_ns, int(line.piece_wait_ns[piece])))
            neighbor = int(line.neighbor[piece])
            spent = Path(time_ns - reached_ns, 0, 0)
            if reached_ns > piece_start_ns and neighbor in lines and neighbor not in seen:
                following = neighbor
            else:
                spent = spent._replace(rest_ns=reached_ns - piece_start_ns)
                reached_ns = piece_start_ns
        parts[rank] = Path(*(x + y for x, y in zip(parts[rank], spent, strict=True)))
        rank = following
        seen = seen | {rank} if reached_ns == time_ns else {rank}
        time_ns = reached_ns
    return parts


def computed_within(line: Line, passes: tuple[int, int], times_ns: Int64Array) -> Int64Array:
    """int64[k - 1], ns, what a stage computed in its passes between each two of some times."""
    return np.diff(line.computed_by(np.clip(times_ns, *passes)))


def _between(line: Line, passes: tuple[int, int], start_ns: int, end_ns: int) -> Path:
    """Measure what a stage did between two of its messages, without the compute of its passes."""
    times_ns = np.array([start_ns, end_ns])
    [computed_ns] = computed_within(line, passes, times_ns).tolist()
    [idle_ns] = np.diff(line.host_idle_by(times_ns)).tolist()
    return Path(0, idle_ns, end_ns - start_ns - computed_ns - idle_ns)


def _neighbors(members: Members, part_index: int) -> Int64Array:
    """int64[c], the rank whose message the kernel of each operation waited for, else ABSENT."""
    part, own = members.parts[part_index], members.select(part_index)
    own = own[members.wait_ns[own] > 0]
    awaited = members.awaited_member[own]
    until_ns = members.arrival_ns[own] + members.wait_ns[own]
    has_come = members.arrival_ns[awaited] == until_ns  # before the kernel ended, by the clocks
    index = members.operation_index[own[has_come]]
    ranks = np.array([one.rank for one in members.parts])
    kernel_index, neighbor = part.kernel_index, np.full(len(part), ABSENT)
    neighbor[kernel_index[index]] = ranks[members.part_index[awaited[has_come]]]
    return np.where(part.peer_rank == ABSENT, ABSENT, neighbor[kernel_index])


def _interpolated(times_ns: Int64Array, moment_ns: Int64Array, values_ns: Int64Array) -> Int64Array:
    """int64[k], ns, what is known at some moments, in between."""
    return np.rint(np.interp(times_ns, moment_ns, values_ns)).astype(np.int64)
