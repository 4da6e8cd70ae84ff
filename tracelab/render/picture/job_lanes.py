"""What the picture of a job shows: which steps of which ranks, and a lane for each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from statistics import median

import numpy as np

from tracelab.base.intervals import (
    Intervals,
    clip,
    intersect,
    join,
    measure,
    subtract,
    union,
)
from tracelab.job.merge import Job
from tracelab.job.waits import RankTimes
from tracelab.render.job_clock import JobTime, collective_times
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.lanes import Band, Lane, Layer, Mark
from tracelab.render.picture.rank_work import RankWork

_NO_EVENTS = np.zeros(0, dtype=np.int64)
_COMPUTE = (Mark.FORWARD, Mark.BACKWARD, Mark.OTHER_COMPUTE, Mark.COMPUTE)
_OTHER_WORK = (Mark.COPY, Mark.MEMSET)


@dataclass(frozen=True, slots=True, eq=False)
class RankLane:
    """A rank in the picture of its job.

    Attributes:
        rank: its number.
        lane: its work, above, and its communication, below.
        idle: when it did neither.
        bounds_ns: where its steps begin and end, ns on the job's clock.
    """

    rank: int
    lane: Lane
    idle: Intervals
    bounds_ns: tuple[int, ...]


def choose_steps(job: Job, works: Mapping[int, RankWork]) -> tuple[int, ...]:
    """Two steps in a row whose lengths are nearest the median, of those that all ranks have.

    Args:
        job: the steps of its ranks.
        works: what is known of each rank, by its number.

    Returns:
        their numbers; one where there is no more, none without any.
    """
    length_ns: dict[int, int] = {}
    seen = Counter[int]()
    for times in job.per_rank:
        for x in times.steps:
            if x.step in works[times.rank].steps:
                seen[x.step] += 1
                length_ns[x.step] = max(length_ns.get(x.step, 0), x.end_ns - x.start_ns)
    numbers = sorted(number for number, count in seen.items() if count == len(job.per_rank))
    if not numbers:
        return ()
    usual_ns = median(length_ns[number] for number in numbers)
    choices: list[tuple[int, ...]] = list(pairwise(numbers)) or [(numbers[0],)]
    return min(choices, key=lambda steps: sum(abs(length_ns[x] - usual_ns) for x in steps))


def lanes_of(
    job: Job,
    ranks: Sequence[int],
    works: Mapping[int, RankWork],
    times: Mapping[int, JobTime],
    grid: Grid,
) -> list[RankLane]:
    """A lane for each rank.

    Args:
        job: its ranks' steps, and which part of the communication waited.
        ranks: those that are shown.
        works: what each rank did, by its number.
        times: brings it to the job's clock.
        grid: the time that is shown, on the job's clock.
    """
    waits, transfers = _waits(job, grid)
    steps = {x.rank: x for x in job.per_rank}
    return [
        _lane_of(works[rank], times[rank], steps[rank], grid, waits[rank], transfers[rank])
        for rank in ranks
    ]


def _lane_of(
    work: RankWork,
    to_job_ns: JobTime,
    times: RankTimes,
    grid: Grid,
    waits: Intervals,
    transfers: Intervals,
) -> RankLane:
    def shown(a: Intervals) -> Intervals:
        on_job_clock = union(to_job_ns(a.starts), to_job_ns(a.ends))
        return clip(on_job_clock, grid.start_ns, grid.end_ns)

    on_job_clock = {mark: shown(covered) for mark, covered in work.work.items()}
    nothing = union([], [])
    comm = on_job_clock.get(Mark.COMM, nothing)
    busy = reduce(join, on_job_clock.values(), nothing)
    # Where one kernel waits while another one transfers, both are seen.
    communication = (
        Layer(Mark.TRANSFER, join(transfers, subtract(comm, waits)), _NO_EVENTS),
        Layer(Mark.WAIT, subtract(waits, transfers), _NO_EVENTS),
    )
    beside = (Layer(Mark.WAIT, intersect(waits, transfers), _NO_EVENTS),)
    work_layers = tuple(
        Layer(mark, on_job_clock.get(mark, nothing), _NO_EVENTS)
        for mark in (*_COMPUTE, *_OTHER_WORK)
    )
    bands = (
        Band(0, 0.6, 0.16, work_layers),
        Band(0.66, 1, 0.3, communication),
        Band(0.66, 0.83, 0.3, beside),
    )
    known = shown(union([work.start_ns], [work.end_ns]))
    return RankLane(
        rank=times.rank,
        lane=Lane(f"rank {times.rank}", times.rank, measure(busy), bands),
        idle=_wide(subtract(known, busy), grid),
        bounds_ns=tuple(sorted({ns for x in times.steps for ns in (x.start_ns, x.end_ns)})),
    )


def _wide(a: Intervals, grid: Grid) -> Intervals:
    """The intervals of at least a pixel."""
    wide = a.ends - a.starts >= grid.pixel_ns
    return Intervals(a.starts[wide], a.ends[wide])


def _waits(job: Job, grid: Grid) -> tuple[dict[int, Intervals], dict[int, Intervals]]:
    """For each rank when it waited in communication and when it transferred, in the shown time."""
    rows: dict[int, list[tuple[int, int, int]]] = {rank: [] for rank in job.ranks}
    for _, rank, start_ns, arrived_ns, end_ns in collective_times(job):
        if start_ns < grid.end_ns and end_ns > grid.start_ns:
            rows[rank].append((start_ns, arrived_ns, end_ns))
    waits, transfers = {}, {}
    for rank, of_rank in rows.items():
        start, arrived, end = np.array(of_rank, dtype=np.int64).reshape(-1, 3).T
        waits[rank] = clip(union(start, arrived), grid.start_ns, grid.end_ns)
        transfers[rank] = clip(union(arrived, end), grid.start_ns, grid.end_ns)
    return waits, transfers
