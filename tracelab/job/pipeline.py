"""Pipelines: their schedule, how long their stages had nothing to compute, and why.

A schedule lasts from the first compute of any stage in a step to the last, without the optimizer.
Its ideal bubble is ``(p-1)/(m+p-1)`` for p stages and m microbatches, with GPipe (Huang et al.,
arXiv 1811.06965, section 2.3) and 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2.1).

The path through a schedule walks back from its end, to the neighbor where a stage waited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracelab.base.arrays import Arrays, Int64Array, Record
from tracelab.base.intervals import Intervals, clip, join, measure, measure_within, union
from tracelab.job.operation_members import Members
from tracelab.job.part import RankPart, Work
from tracelab.job.pipeline_stages import Chain, Message, find_chains
from tracelab.model.trace import ABSENT

_MAX_EVIDENCE = 20
_OF_HOST = (Work.HOST_BLOCKED, Work.INPUT, Work.HOST_BUSY)


class StageMetrics(Record):
    """One stage of a pipeline; times are added up over the pipeline's steps, ns.

    Attributes:
        pipeline: which of the job's pipelines, from 0.
        stage: from 0.
        rank: who runs it.
        compute_ns: compute of its passes.
        wait_ns: it waited for a neighbor between its passes, and did not compute.
        transfer_ns: messages moved, and it did not compute.
        host_idle_ns: it was idle between its passes because of the host.
        other_ns: anything else between its passes: copies, other communication, unexplained idle.
        before_ns: from the start of the schedule until its first pass began.
        after_ns: from the end of its last pass to the end of the schedule. These seven add up to
            the schedule.
        bubble: the share of the schedule in which it computed nothing of its passes.
        warm_up_ns: from the start of the schedule until the first gradient reaches it; on the last
            stage, until it has sent its own first one.
        steady_ns: from there until the last activation reaches it; on the first stage, until it has
            sent its own last one. 0 where that comes first.
        drain_ns: the rest of the schedule.
        warm_up_bubble_ns, steady_bubble_ns, drain_bubble_ns: how much of each it computed nothing.
        critical_transfer_ns, critical_host_ns, critical_other_ns: what the path through the
            schedule consists of on this stage beside compute: messages, idle because of the host,
            anything else. The schedule is longer by that.
        microbatch_ns: its compute of one microbatch, forward and backward, on average.
        host_microbatch_ns: what its host took to launch that, with the profiler; None where the
            file does not say.
        evidence: event ids, in the rank's file, of the kernels that sent or received longest while
            it did not compute.
    """

    pipeline: int
    stage: int
    rank: int
    compute_ns: int
    wait_ns: int
    transfer_ns: int
    host_idle_ns: int
    other_ns: int
    before_ns: int
    after_ns: int
    bubble: float
    warm_up_ns: int
    steady_ns: int
    drain_ns: int
    warm_up_bubble_ns: int
    steady_bubble_ns: int
    drain_bubble_ns: int
    critical_transfer_ns: int
    critical_host_ns: int
    critical_other_ns: int
    microbatch_ns: int
    host_microbatch_ns: int | None
    evidence: tuple[int, ...]


_TIMES = [x for x in StageMetrics.__struct_fields__ if x[-3:] == "_ns" and "microbatch" not in x]


class BubbleParts(Record):
    """Causes of stages that compute nothing, as shares of the schedule; they add up to its bubble.

    All but the first two are what the path through the schedule consists of beside compute: what
    messages or hosts cost elsewhere is hidden behind other waiting.

    Attributes:
        theory: what remains if all stages take equally long and nothing but compute takes time. It
            is a smaller share than `theory_bubble` where the schedule takes longer than that.
        imbalance: stages, or microbatches, take longer than others.
        transfer: the next stage waited for a message that was on its way.
        host: a stage was idle because its host launched late or was blocked.
        rest: anything else: copies, other communication, a stage late from the step before.
    """

    theory: float
    imbalance: float
    transfer: float
    host: float
    rest: float


class Pipeline(Record):
    """The pipelines of a job; several where it has replicas of one.

    Attributes:
        stages: ranks in one pipeline.
        microbatches: per step; None where the schedule is unknown.
        chunks: of the model on each rank; always 1.
        schedule: "gpipe", "1f1b" or "unknown". With one microbatch both are the same: "gpipe".
        why: what was seen instead, where the schedule is unknown.
        pipelines: how many of them.
        other_pipelines: how many have another schedule; they are left out.
        steps: the steady steps of one pipeline that are counted.
        other_steps: those that have another order of messages; they are left out.
        schedule_ns: length of the schedules, added up over steps and pipelines, ns.
        theory_bubble: the share that no stage can use with this schedule; None for an unknown one.
        measured_bubble: the share in which a stage computed nothing, on average.
        parts: why.
        smallest_microbatch: how small a microbatch may become, as a share of what it is, until a
            stage's host takes as long to launch it (with the profiler) as the GPU to compute it:
            smaller ones make the schedule longer. None where the files do not say.
        smallest_microbatch_rank: of which stage.
        per_stage: its stages, by pipeline and stage.
    """

    stages: int
    microbatches: int | None
    chunks: int
    schedule: str
    why: str
    pipelines: int
    other_pipelines: int
    steps: int
    other_steps: int
    schedule_ns: int
    theory_bubble: float | None
    measured_bubble: float | None
    parts: BubbleParts | None
    smallest_microbatch: float | None
    smallest_microbatch_rank: int | None
    per_stage: tuple[StageMetrics, ...]


def find_pipeline(members: Members) -> Pipeline | None:
    """Measure the pipelines of a job; None where its sends and receives are not those of one."""
    chains = find_chains(members.parts)
    if not chains:
        return None
    lines = {
        part.rank: _line_of(members, index)
        for index, part in enumerate(members.parts)
        if any(part.rank in chain.ranks and chain.messages for chain in chains)
    }
    [(order, count)] = Counter(chain.order for chain in chains).most_common(1)
    alike = [chain for chain in chains if chain.order == order]
    measured = [
        _measure(lines, chain, number) for number, chain in enumerate(alike) if chain.messages
    ]
    per_stage = [stage for _, stages in measured for stage in stages]
    schedule_ns = sum(length_ns for length_ns, _ in measured)
    theory = theory_bubble(order.stages, order.microbatches)
    bubble, parts = None, None
    if schedule_ns:
        bubble, parts = _bubbles(per_stage, order.stages, schedule_ns, theory or 0.0)
    launches = [
        (stage.host_microbatch_ns / stage.microbatch_ns, stage.rank)
        for stage in per_stage
        if stage.host_microbatch_ns is not None and stage.microbatch_ns
    ]
    smallest, smallest_rank = max(launches, default=(None, None))
    return Pipeline(
        stages=order.stages,
        microbatches=order.microbatches,
        chunks=1,
        schedule=order.schedule,
        why=order.why,
        pipelines=count,
        other_pipelines=len(chains) - count,
        steps=len(alike[0].steps),
        other_steps=sum(chain.other_steps for chain in alike),
        schedule_ns=schedule_ns,
        theory_bubble=theory,
        measured_bubble=bubble,
        parts=parts,
        smallest_microbatch=smallest,
        smallest_microbatch_rank=smallest_rank,
        per_stage=tuple(per_stage),
    )


def theory_bubble(stages: int, microbatches: int | None) -> float | None:
    """Return the share of a schedule that no stage can use; None for an unknown one.

    >>> theory_bubble(4, 4)
    0.42857142857142855
    """
    return None if microbatches is None else (stages - 1) / (microbatches + stages - 1)


def _measure(
    lines: Mapping[int, _Line], chain: Chain, pipeline: int
) -> tuple[int, list[StageMetrics]]:
    length_ns = 0
    rows = np.zeros((len(chain.ranks), len(_TIMES)), dtype=np.int64)
    of_chain = {rank: lines[rank] for rank in chain.ranks}
    for step, messages in zip(chain.steps, chain.messages, strict=True):
        passes = {
            rank: _passes(line, step, messages[stage], stage)
            for stage, (rank, line) in enumerate(of_chain.items())
        }
        start_ns = min(start_ns for start_ns, _ in passes.values())
        end_ns = max(end_ns for _, end_ns in passes.values())
        length_ns += end_ns - start_ns
        path = _walk_back(of_chain, passes, start_ns)
        for stage, (rank, line) in enumerate(of_chain.items()):
            bounds_ns = _bounds(line, messages[stage], passes[rank], stage, len(rows))
            own_ns = _stage_times(line, passes[rank], (start_ns, end_ns), bounds_ns)
            rows[stage] += (*own_ns, *path[rank])
    count = (chain.order.microbatches or 1) * len(chain.steps)
    stages = []
    for stage, rank in enumerate(chain.ranks):
        times = dict[str, Any](zip(_TIMES, rows[stage].tolist(), strict=True))
        compute_ns = times["compute_ns"]
        stages.append(
            StageMetrics(
                pipeline=pipeline,
                stage=stage,
                rank=rank,
                bubble=1 - compute_ns / length_ns if length_ns else 0.0,
                microbatch_ns=compute_ns // count,
                host_microbatch_ns=_host_microbatch_ns(lines[rank].part, chain, stage),
                evidence=_evidence(lines[rank].part, chain, stage),
                **times,
            )
        )
    return length_ns, stages


def _passes(line: _Line, step: int, messages: Sequence[Message], stage: int) -> tuple[int, int]:
    # What a later stage computes before its first activation has arrived is not of the schedule.
    [index] = np.flatnonzero(line.part.steps.number == step)
    start_ns, end_ns = line.passes_ns[index].tolist()
    if stage == 0:
        return start_ns, end_ns
    first = next(x.operation_index for x in messages if x.is_forward and not x.is_send)
    return min(end_ns, max(start_ns, int(line.operations_ns[first, 1]))), end_ns


def _stage_times(
    line: _Line, passes: tuple[int, int], schedule: tuple[int, int], bounds: tuple[int, int]
) -> tuple[int, ...]:
    piece_ns = line.piece_start_ns, line.piece_wait_ns, line.piece_end_ns
    start_ns, waited_ns, end_ns = (np.clip(times_ns, *passes) for times_ns in piece_ns)
    wait_ns, transfer_ns = int((waited_ns - start_ns).sum()), int((end_ns - waited_ns).sum())
    [compute_ns] = _computed_within(line, passes, passes).tolist()
    host_ns = measure(clip(line.host_idle, *passes))
    other_ns = passes[1] - passes[0] - compute_ns - wait_ns - transfer_ns - host_ns
    outside_ns = passes[0] - schedule[0], schedule[1] - passes[1]
    moments_ns = np.maximum.accumulate(np.clip((schedule[0], *bounds, schedule[1]), *schedule))
    spans_ns = np.diff(moments_ns)
    bubbles_ns = spans_ns - _computed_within(line, passes, moments_ns)
    inside_ns = compute_ns, wait_ns, transfer_ns, host_ns, other_ns
    return *inside_ns, *outside_ns, *spans_ns.tolist(), *bubbles_ns.tolist()


def _bounds(
    line: _Line, messages: Sequence[Message], passes: tuple[int, int], stage: int, stages: int
) -> tuple[int, int]:
    """Find when the first backward pass of a stage and its last forward pass could begin, ns."""
    # Only messages tell: where none arrives for a pass, it has begun by the time of its send.
    sends = stage == stages - 1
    backward = [x.operation_index for x in messages if not x.is_forward and x.is_send == sends]
    if not backward:
        return passes
    first_ns = line.operations_ns[backward[0], 0 if sends else 1]
    sends = stage == 0
    forward = [x.operation_index for x in messages if x.is_forward and x.is_send == sends]
    last_ns = line.operations_ns[forward[-1], 0 if sends else 1]
    return int(first_ns), int(last_ns)


def _host_microbatch_ns(part: RankPart, chain: Chain, stage: int) -> int | None:
    # Between its first and last message a stage launches all of them; the first stage all but one.
    assert chain.order.microbatches is not None
    count = chain.order.microbatches - (stage == 0)
    total_ns = 0
    for messages in chain.messages:
        ends = [messages[stage][0].operation_index, messages[stage][-1].operation_index]
        launched_ns = part.passes.launched_ns[ends]
        if count == 0 or (launched_ns == ABSENT).any():
            return None
        total_ns += int(np.diff(launched_ns)[0] - np.diff(part.passes.waited_ns[ends])[0])
    return total_ns // (count * len(chain.messages))


def _evidence(part: RankPart, chain: Chain, stage: int) -> tuple[int, ...]:
    counted = [x.operation_index for messages in chain.messages for x in messages[stage]]
    is_message = np.isin(part.exposed_index, counted)
    length_ns = (part.exposed_end_ns - part.exposed_start_ns)[is_message]
    longest = part.exposed_index[is_message][np.argsort(-length_ns, kind="stable")]
    return tuple(dict.fromkeys(part.kernel_id[longest].tolist()))[:_MAX_EVIDENCE]


def _bubbles(
    per_stage: Sequence[StageMetrics], stages: int, schedule_ns: int, theory: float
) -> tuple[float, BubbleParts]:
    total_ns = stages * schedule_ns
    compute_ns = sum(stage.compute_ns for stage in per_stage)
    left_ns = total_ns - compute_ns
    taken_ns = {}
    for name, part_ns in (
        ("transfer", stages * sum(x.critical_transfer_ns for x in per_stage)),
        ("host", stages * sum(x.critical_host_ns for x in per_stage)),
        ("rest", stages * sum(x.critical_other_ns for x in per_stage)),
        ("theory", round(compute_ns * theory / (1 - theory))),
        ("imbalance", left_ns),
    ):
        taken_ns[name] = min(part_ns, left_ns)
        left_ns -= taken_ns[name]
    parts = BubbleParts(**{name: ns / total_ns for name, ns in taken_ns.items()})
    return 1 - compute_ns / total_ns, parts


# --- one rank on the job's clock, and the path ---


class _Line(Arrays):
    """One rank on the job's clock; e pieces of messages that were exposed, in order and disjoint.

    A piece is a wait for the neighbor (else ABSENT) until `piece_wait_ns`. Passes are int64[steps,
    2], operations int64[c, 2], start and end.
    """

    part: RankPart
    compute: Intervals
    host_idle: Intervals
    piece_start_ns: Int64Array
    piece_end_ns: Int64Array
    piece_wait_ns: Int64Array
    neighbor: Int64Array
    passes_ns: Int64Array
    operations_ns: Int64Array


def _line_of(members: Members, part_index: int) -> _Line:
    def job_times(times_ns: Int64Array) -> Int64Array:
        return members.clocks.job_ns_of(part_index, times_ns)

    def job_union(time: Intervals) -> Intervals:
        return union(job_times(time.starts), job_times(time.ends))

    part = members.parts[part_index]
    piece = np.flatnonzero(part.peer_rank[part.exposed_index] != ABSENT)
    of_piece = part.exposed_index[piece]
    waited_ns = part.start_ns[of_piece] + members.wait_of_operations(part_index)[of_piece]
    start_ns, end_ns = part.exposed_start_ns[piece], part.exposed_end_ns[piece]
    host_idle = reduce(join, (part.work[work] for work in _OF_HOST))
    return _Line(
        part=part,
        compute=job_union(part.work[Work.COMPUTE]),
        host_idle=job_union(host_idle),
        piece_start_ns=job_times(start_ns),
        piece_end_ns=job_times(end_ns),
        piece_wait_ns=job_times(np.clip(waited_ns, start_ns, end_ns)),
        neighbor=_neighbors(members, part_index)[of_piece],
        passes_ns=job_times(np.stack((part.passes.start_ns, part.passes.end_ns), axis=1)),
        operations_ns=job_times(np.stack((part.start_ns, part.end_ns), axis=1)),
    )


def _walk_back(
    lines: Mapping[int, _Line], passes: Mapping[int, tuple[int, int]], start_ns: int
) -> dict[int, tuple[int, ...]]:
    """Walk back through one schedule, from the latest end of the passes of a rank.

    Returns ns without compute by rank: messages, idle because of its host, else.
    """
    spent = {rank: np.zeros(3, dtype=np.int64) for rank in passes}
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
            [computed_ns] = _computed_within(line, passes[rank], (reached_ns, time_ns))
            idle_ns = measure(clip(line.host_idle, reached_ns, time_ns))
            spent[rank] += (0, idle_ns, time_ns - reached_ns - computed_ns - idle_ns)
        else:
            piece_start_ns = max(start_ns, int(line.piece_start_ns[piece]))
            reached_ns = min(time_ns, max(piece_start_ns, int(line.piece_wait_ns[piece])))
            spent[rank] += (time_ns - reached_ns, 0, 0)
            neighbor = int(line.neighbor[piece])
            if reached_ns > piece_start_ns and neighbor in lines and neighbor not in seen:
                following = neighbor
            else:
                spent[rank] += (0, 0, reached_ns - piece_start_ns)
                reached_ns = piece_start_ns
        rank = following
        seen = seen | {rank} if reached_ns == time_ns else {rank}
        time_ns = reached_ns
    return {rank: tuple(of_rank.tolist()) for rank, of_rank in spent.items()}


def _computed_within(line: _Line, passes: tuple[int, int], times_ns: ArrayLike) -> Int64Array:
    times_ns = np.clip(times_ns, *passes)
    return measure_within(line.compute, times_ns[:-1], times_ns[1:])


def _neighbors(members: Members, part_index: int) -> Int64Array:
    """int64[c], the rank whose message the kernel of each operation waited for, else ABSENT."""
    part, own = members.parts[part_index], members.of_part[part_index]
    own = own[members.wait_ns[own] > 0]
    awaited = members.awaited_member[own]
    until_ns = members.arrival_ns[own] + members.wait_ns[own]
    has_come = members.arrival_ns[awaited] == until_ns  # before the kernel ended, by the clocks
    index = members.operation_index[own[has_come]]
    ranks = np.array([one.rank for one in members.parts])
    kernel_index, neighbor = part.kernel_index, np.full(len(part), ABSENT)
    neighbor[kernel_index[index]] = ranks[members.part_index[awaited[has_come]]]
    return np.where(part.peer_rank == ABSENT, ABSENT, neighbor[kernel_index])
