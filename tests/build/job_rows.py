"""For tests that begin with what the ranks of a job do together: rows, with defaults."""

from __future__ import annotations

import numpy as np

from tracelab.job.clocks import Alignment, RankClock
from tracelab.job.collective_metrics import CollectiveMetrics
from tracelab.job.merge import Job
from tracelab.job.operation_members import RankStep, RankTimes
from tracelab.job.path import JobPath, PathSegment, PathStretch, RankOnPath
from tracelab.job.pipeline import BubbleParts, Pipeline, StageMetrics
from tracelab.job.stragglers import Straggler
from tracelab.measures.critical_path import PathKind

MS = 1_000_000


def rank_step(step, start_ms=0, **times_ms):
    """A step of 10 ms, of which the rank computes whatever is not said to be anything else."""
    rest_ms = dict.fromkeys(("wait", "transfer", "copy", "idle"), 0) | times_ms
    length_ms = rest_ms.pop("length", 10)
    times = {f"{name}_ns": round(ms * MS) for name, ms in rest_ms.items()}
    return RankStep(
        step=step,
        start_ns=round(start_ms * MS),
        end_ns=round((start_ms + length_ms) * MS),
        compute_ns=round(length_ms * MS) - sum(times.values()),
        **times,
    )


def rank_times(rank, steps=(1, 2), **times_ms):
    """A rank whose steps are alike and follow each other."""
    return RankTimes(rank, tuple(rank_step(x, 10 * i, **times_ms) for i, x in enumerate(steps)))


def collective(*arrival_ms, end_ms, last=None, **facts):
    """A collective of the ranks 0, 1, ... that arrive at these times and leave together."""
    awaited_ms = max(arrival_ms)
    defaults = {
        "group": "0",
        "operation": "all_reduce",
        "sequence": None,
        "step": 1,
        "message_bytes": 1 << 20,
        "ranks": tuple(range(len(arrival_ms))),
        "arrival_ns": tuple(round(ms * MS) for ms in arrival_ms),
        "wait_ns": tuple(round((awaited_ms - ms) * MS) for ms in arrival_ms),
        "transfer_ns": (round((end_ms - awaited_ms) * MS),) * len(arrival_ms),
        "last_rank": last,
        "cause": None if last is None else "more_work",
        "why": "",
        "algorithm_gbps": None,
        "bus_gbps": None,
    }
    return CollectiveMetrics(**defaults | facts)


def straggler(rank=1, *, cost_ms=2.4, waiting=(0, 2, 3), **facts):
    defaults = {
        "cause": "more_work",
        "what": "has more work in `linear`",
        "why": "has 1.5 times the work in `linear`",
        "cost_ns": round(cost_ms * MS),
        "shared_out_ns": round(cost_ms * MS * len(waiting) / (len(waiting) + 1)),
        "share": cost_ms / 10,
        "waiting_ranks": waiting,
        "spread_ns": 0,
        "wait_ns": (round(cost_ms * MS),) * len(waiting),
        "steps": 2,
        "steps_seen": 2,
        "operator": None,
        "function": None,
        "file": None,
        "line": None,
        "call": None,
        "evidence": (),
    }
    return Straggler(rank, **defaults | facts)


def clock(rank, **facts):
    defaults = {
        "offset_ns": 0,
        "drift_ppm": 0.0,
        "matched": 20,
        "residual_ns": 5_000,
        "basis": "collectives",
    }
    return RankClock(rank, **defaults | facts)


def job(*per_rank, alignment=None, **facts):
    """The job of these ranks, whose clocks agree within 5 us."""
    ranks = tuple(times.rank for times in per_rank)
    clocks = alignment or Alignment(5_000, ranks[0], tuple(map(clock, ranks)))
    return Job(ranks, alignment=clocks, per_rank=per_rank, **facts)


def segment(rank, kind, ms, name="gemm", **site):
    """What the critical path spends on one thing."""
    nowhere = dict.fromkeys(("operator", "function", "file", "line", "call"))
    return PathSegment(rank, kind, name=name, **nowhere | site, count=1, total_ns=round(ms * MS))


def critical_path(*segments, steps=(1, 2)):
    """The critical path that these segments make up, one after the other from 0."""
    total_ns = sum(x.total_ns for x in segments)

    def by_kind(some):
        return {
            kind.name.lower(): sum(x.total_ns for x in some if x.kind == kind.name.lower())
            for kind in PathKind
        }

    of_rank = {
        rank: [x for x in segments if x.rank == rank] for rank in {x.rank: 0 for x in segments}
    }
    by_rank = tuple(
        RankOnPath(rank, sum(x.total_ns for x in some), by_kind(some))
        for rank, some in sorted(of_rank.items())
    )
    ends_ns = np.cumsum([x.total_ns for x in by_rank]).tolist()
    stretches = tuple(
        PathStretch(x.rank, end_ns - x.total_ns, end_ns)
        for x, end_ns in zip(by_rank, ends_ns, strict=True)
    )
    return JobPath(steps, 0, total_ns, total_ns, by_kind(segments), by_rank, segments, stretches)


def stage(number, **figures):
    """A stage that computes for 6 ms of two schedules of 5 ms."""
    defaults = {
        "pipeline": 0,
        "rank": number,
        "compute_ns": 6 * MS,
        "wait_ns": 3 * MS,
        "transfer_ns": 1 * MS,
        "host_idle_ns": 0,
        "other_ns": 0,
        "before_ns": 0,
        "after_ns": 0,
        "bubble": 0.4,
        "warm_up_ns": 4 * MS,
        "steady_ns": 2 * MS,
        "drain_ns": 4 * MS,
        "warm_up_bubble_ns": 2 * MS,
        "steady_bubble_ns": 0,
        "drain_bubble_ns": 2 * MS,
        "critical_transfer_ns": 0,
        "critical_host_ns": 0,
        "critical_other_ns": 0,
        "microbatch_ns": 750_000,
        "host_microbatch_ns": None,
        "evidence": (),
    }
    return StageMetrics(stage=number, **defaults | figures)


def pipeline(stages=4, **facts):
    defaults = {
        "stages": stages,
        "microbatches": 4,
        "chunks": 1,
        "schedule": "1f1b",
        "why": "",
        "pipelines": 1,
        "other_pipelines": 0,
        "steps": 2,
        "other_steps": 0,
        "schedule_ns": 10 * MS,
        "theory_bubble": 3 / 7,
        "measured_bubble": 0.51,
        "parts": BubbleParts(theory=0.4, imbalance=0.08, transfer=0.03, host=0.0, rest=0.0),
        "smallest_microbatch": None,
        "smallest_microbatch_rank": None,
        "per_stage": tuple(map(stage, range(stages))),
    }
    return Pipeline(**defaults | facts)
