"""Merge of what the ranks' files give into one job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from tracelab.base.arrays import Int64Array, Record
from tracelab.job.clocks import Alignment, align
from tracelab.job.collective_metrics import (
    BandwidthMetrics,
    CollectiveMetrics,
    bandwidths,
    collective_rows,
    find_transfers,
)
from tracelab.job.lateness import Tables, find_lateness, more_work
from tracelab.job.matching import match, number_peers
from tracelab.job.operation_members import RankTimes, find_members, rank_times
from tracelab.job.part import RankPart
from tracelab.job.path import JobPath, find_job_path
from tracelab.job.pipeline import Pipeline, find_pipeline
from tracelab.job.replay import JobBaseline, JobReplay, replay_job
from tracelab.job.stragglers import MIN_SLOWDOWN, Straggler, find_stragglers, slowdown
from tracelab.measures.measure import Table, Tabled
from tracelab.measures.window_times import PROFILED

_ADDED: Mapping[str, Any] = {"added": True}  # reports of before have no such key

_NOT_JUDGED = (
    "Recording made the steps {:.1f} times as long, and which rank is late without it is not "
    "known. Record without Python functions (`with_stack=False`)."
)


class Unmatched(Record):
    """Communication of one rank that has no counterpart in the files of the others.

    Attributes:
        count: how many operations.
        why: what they lack, a clause.
    """

    rank: int
    count: int
    why: str


class Job(Tabled):
    """Ranks of one job, and what they do together.

    Attributes:
        ranks: those whose files are here.
        alignment: how their clocks became one; None in a job of saved reports.
        collectives: those of several ranks, by time.
        stragglers: the ranks that make the job wait, the most expensive first.
        pipeline: None where the ranks are no stages of one.
        bandwidths: how fast collectives move data, by group, operation and size.
        per_rank: how each rank spent its steps.
        unmatched: communication that only one of the files has.
        critical_path: which work on which rank its steps took so long for; None where the ranks
            have no operation in common, and in a job of saved reports.
        baseline: how well the job replays unchanged, all ranks together; None where nothing was to
            be predicted.
        not_judged: why it is not known which rank is late, a sentence; null where that is known.
    """

    ranks: tuple[int, ...]
    alignment: Alignment | None = None
    collectives: Table[CollectiveMetrics] = Table()
    stragglers: Table[Straggler] = Table()
    pipeline: Pipeline | None = None
    bandwidths: Annotated[Table[BandwidthMetrics], _ADDED] = Table()
    per_rank: Annotated[Table[RankTimes], _ADDED] = Table()
    unmatched: Annotated[Table[Unmatched], _ADDED] = Table()
    critical_path: Annotated[JobPath | None, _ADDED] = None
    baseline: Annotated[JobBaseline | None, _ADDED] = None
    not_judged: Annotated[str | None, _ADDED] = None


class Merged(Record, eq=False):
    """Files of a job, merged: what was known of each by rank, and int64[c], ns, as of the members.

    Unless `is_by_recording`, the profiler changed who waits, and only stragglers decide the step.
    """

    job: Job
    parts: tuple[RankPart, ...]
    wait_ns: tuple[Int64Array, ...]
    replay: JobReplay | None = None
    is_by_recording: bool = True


def merge(parts: Sequence[RankPart], tables: Tables) -> Merged:
    """Find what ranks of one job do together: of at least two, by rank, and of all their tables."""
    parts = number_peers(parts)
    matches = match(parts)
    clocks = align(parts, matches)
    members = find_members(parts, matches, clocks)
    rows_of = _group_by_rank(tables)
    by_rank = [rows_of[part.rank] for part in parts]
    more_of = more_work(by_rank, parts)
    lateness = find_lateness(members)
    transfers = find_transfers(members)
    wait_ns = tuple(map(members.wait_of_operations, range(len(parts))))
    pipeline = find_pipeline(members)
    replayed = replay_job(members, more_of)
    per_rank = Table(
        rank_times(part, index, clocks, wait_ns[index], of_rank["windows"])
        for index, (part, of_rank) in enumerate(zip(parts, by_rank, strict=True))
    )
    steady = [next(iter(of_rank["steady"]), None) for of_rank in by_rank]
    slower = slowdown(steady)
    is_slowed = pipeline is None and slower > MIN_SLOWDOWN
    overhead_ns = [
        0 if row is None else max(0, int(row.step_ns - (row.unprofiled_step_ns or row.step_ns)))
        for row in steady
    ]
    in_pipeline = pipeline is not None
    stragglers = find_stragglers(
        members, more_of, lateness, overhead_ns, in_pipeline=in_pipeline, is_slowed=is_slowed
    )
    is_by_recording = bool(stragglers) or not is_slowed
    not_judged = None if is_by_recording else _NOT_JUDGED.format(slower)
    if not is_by_recording and replayed is not None and replayed.baseline.basis == PROFILED:
        replayed = JobReplay(JobBaseline(not_replayed=not_judged))
    reasons = zip(parts, matches.unmatched.tolist(), matches.unmatched_why, strict=True)
    job = Job(
        ranks=tuple(part.rank for part in parts),
        alignment=clocks.alignment,
        collectives=Table(collective_rows(members, more_of, lateness, transfers)),
        stragglers=Table(stragglers),
        pipeline=pipeline,
        bandwidths=Table(bandwidths(members, transfers)),
        per_rank=per_rank,
        unmatched=Table(Unmatched(part.rank, n, why) for part, n, why in reasons if n),
        critical_path=find_job_path(members),
        baseline=None if replayed is None else replayed.baseline,
        not_judged=not_judged,
    )
    return Merged(job, parts, wait_ns, replayed, is_by_recording)


def _group_by_rank(tables: Tables) -> Mapping[int, Tables]:
    by_rank: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for key, rows in tables.items():
        for row in rows:
            by_rank[row.rank][key].append(row)
    return by_rank
