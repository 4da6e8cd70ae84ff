"""For tests of pipelines: schedules carried out by their definition, in the columns of a job.

A stage does its passes in the order that it is given, each as soon as its input is there. Nothing
here knows how tracelab finds a pipeline again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tracelab.intervals import measure_within, subtract, union
from tracelab.job.collectives import Basis, Matches
from tracelab.job.passes import Passes
from tracelab.job.rank_part import PartSteps, RankPart, Work
from tracelab.model.call_sites import NO_CALL_SITE
from tracelab.model.collectives import Group, Operation
from tracelab.model.constraints import Constraint
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT

UNIT = 1_000_000
BYTES = 8_388_608


class Pass(NamedTuple):
    """A forward pass (F), a backward pass (B), or the half of one that nobody waits for (W)."""

    kind: str
    microbatch: int
    chunk: int = 0


def gpipe(stage: int, stages: int, microbatches: int) -> list[Pass]:
    return [Pass(kind, i) for kind in "FB" for i in range(microbatches)]


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[Pass]:
    warm_up = min(microbatches, stages - 1 - stage)
    forward = [Pass("F", i) for i in range(microbatches)]
    backward = [Pass("B", i) for i in range(microbatches)]
    steady = [x for pair in zip(forward[warm_up:], backward, strict=False) for x in pair]
    return [*forward[:warm_up], *steady, *backward[microbatches - warm_up :]]


def interleaved(chunks: int) -> Callable[[int, int, int], list[Pass]]:
    """The schedule of Megatron-LM; the microbatches are a multiple of the stages."""

    def schedule(stage: int, stages: int, microbatches: int) -> list[Pass]:
        count = chunks * microbatches
        group = stages * chunks

        def nth(kind: str, k: int) -> Pass:
            chunk = (k % group) // stages
            microbatch = (k // group) * stages + k % stages
            return Pass(kind, microbatch, chunk if kind == "F" else chunks - 1 - chunk)

        warm_up = min(count, 2 * (stages - 1 - stage) + (chunks - 1) * stages)
        if microbatches == stages:
            warm_up = count
        forward = [nth("F", k) for k in range(count)]
        backward = [nth("B", k) for k in range(count)]
        steady = [x for pair in zip(forward[warm_up:], backward, strict=False) for x in pair]
        return [*forward[:warm_up], *steady, *backward[count - warm_up :]]

    return schedule


def zero_bubble(stage: int, stages: int, microbatches: int) -> list[Pass]:
    """1F1B whose weight gradients are put off until nothing else is left, to the last ones."""
    passes = one_f_one_b(stage, stages, microbatches)
    put_off = min(microbatches, stages - 1)
    result, waiting = [], 0
    for one in passes:
        result.append(one)
        if one.kind == "B":
            waiting += 1
            if waiting > put_off:
                result.append(Pass("W", one.microbatch - put_off))
                waiting -= 1
    return [*result, *(Pass("W", microbatches - waiting + i) for i in range(waiting))]


@dataclass
class _Rank:
    """What one rank did, as it is simulated."""

    computes: list[tuple[int, int]] = field(default_factory=list)
    idle_by_host: list[tuple[int, int]] = field(default_factory=list)
    operations: list[_Operation] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    launched: int = 0


class _Operation(NamedTuple):
    start: int
    end: int
    operation: Operation
    peer: int
    message: tuple[object, ...]
    step: int
    launched_ns: int
    computes: int
    phase: Phase


@dataclass(frozen=True)
class Job:
    parts: list[RankPart]
    matches: Matches
    schedule_ns: int


def job(
    schedule: Callable[[int, int, int], list[Pass]],
    stages: int,
    microbatches: int,
    *,
    chunks: int = 1,
    steps: int = 1,
    ranks: Sequence[int] | None = None,
    length_ns: Callable[[int, Pass], int] = lambda stage, one: UNIT,
    transfer_ns: int = 0,
    optimizer_ns: int = 0,
    late_ns: Callable[[int, Pass], int] = lambda stage, one: 0,
    host_ns: int = 1_000,
    tensors: int = 1,
    has_phases: bool = True,
) -> Job:
    """Carry out a schedule.

    Args:
        schedule: what a stage does, of its number, the stages and the microbatches.
        stages, microbatches, chunks, steps: how many.
        ranks: the rank of each stage.
        length_ns: of each pass of a stage.
        transfer_ns: of each message.
        optimizer_ns: of each stage's optimizer, after its last pass.
        late_ns: how long a stage is idle because of its host before a pass.
        host_ns: how long the host takes to launch a pass.
        tensors: how many there are in a message, each sent by a kernel of its own.
        has_phases: whether the files say which pass a kernel is of.
    """
    ranks = list(range(stages)) if ranks is None else list(ranks)
    simulated = [_Rank() for _ in ranks]
    free = [0] * stages
    total = chunks * stages
    schedule_ns = 0
    for step in range(steps):
        orders = [schedule(stage, stages, microbatches) for stage in range(stages)]
        begun = list(free)
        done: dict[tuple[str, int, int], int] = {}
        spans = [[10**18, 0] for _ in ranks]
        position = [0] * stages
        while any(position[s] < len(orders[s]) for s in range(stages)):
            moved = False
            for stage, rank in enumerate(simulated):
                while position[stage] < len(orders[stage]):
                    one = orders[stage][position[stage]]
                    virtual = one.chunk * stages + stage
                    source = _source(one, virtual, total)
                    if source is not None and (one.kind, one.microbatch, source) not in done:
                        break
                    now = free[stage]
                    if source is not None:
                        sent = done[one.kind, one.microbatch, source]
                        arrived = max(now, sent) + transfer_ns
                        key = (step, one.kind, one.microbatch, source)
                        peer = ranks[source % stages]
                        _message(rank, now, arrived, Operation.RECV, peer, key, step, tensors)
                        now = arrived
                    late = late_ns(stage, one)
                    if late:
                        rank.idle_by_host.append((now, now + late))
                        now += late
                    end = now + length_ns(stage, one)
                    rank.computes.append((now, end))
                    rank.launched += host_ns
                    spans[stage] = [min(spans[stage][0], now), end]
                    free[stage] = end
                    done[one.kind, one.microbatch, virtual] = end
                    target = _target(one, virtual, total)
                    if target is not None:
                        key = (step, one.kind, one.microbatch, virtual)
                        peer = ranks[target % stages]
                        phase = Phase.FORWARD if one.kind == "F" else Phase.BACKWARD
                        _message(
                            rank, end, end + transfer_ns, Operation.SEND, peer, key, step, tensors,
                            phase,
                        )
                    position[stage] += 1
                    moved = True
            assert moved, "the stages wait for one another"
        schedule_ns += max(end for _, end in spans) - min(start for start, _ in spans)
        for stage, rank in enumerate(simulated):
            if optimizer_ns:
                rank.computes.append((free[stage], free[stage] + optimizer_ns))
                free[stage] += optimizer_ns
            rank.steps.append((spans[stage][0], spans[stage][1]))
        # The next step begins when all are done: what a rank does before others is not tested here.
        free = [max(free)] * stages
        assert begun is not None
    parts = [
        _part(number, rank, has_phases=has_phases)
        for number, rank in zip(ranks, simulated, strict=True)
    ]
    return Job(parts, _matches(simulated), schedule_ns)


def _source(one: Pass, virtual: int, total: int) -> int | None:
    """The virtual stage that a pass has its input from."""
    if one.kind == "F":
        return virtual - 1 if virtual else None
    return virtual + 1 if one.kind == "B" and virtual < total - 1 else None


def _target(one: Pass, virtual: int, total: int) -> int | None:
    if one.kind == "F":
        return virtual + 1 if virtual < total - 1 else None
    return virtual - 1 if one.kind == "B" and virtual else None


def _message(
    rank: _Rank,
    start: int,
    end: int,
    operation: Operation,
    peer: int,
    key: tuple[object, ...],
    step: int,
    tensors: int,
    phase: Phase = Phase.OTHER,
) -> None:
    for tensor in range(tensors):
        is_last = tensor == tensors - 1
        rank.operations.append(
            _Operation(
                start if tensor == 0 else end,
                end,
                operation,
                peer,
                (*key, tensor),
                step,
                rank.launched,
                len(rank.computes),
                phase,
            )
        )
        assert is_last or tensors > 1


def _part(number: int, rank: _Rank, *, has_phases: bool) -> RankPart:
    operations = rank.operations
    start = np.array([x.start for x in operations], dtype=np.int64)
    end = np.array([x.end for x in operations], dtype=np.int64)
    computes = union(*zip(*rank.computes, strict=True))
    late = union(*zip(*rank.idle_by_host, strict=True)) if rank.idle_by_host else union([], [])
    index, piece_start, piece_end = [], [], []
    taken = computes
    for i in range(len(operations)):
        own = subtract(union([start[i]], [end[i]]), taken)
        index += [i] * len(own)
        piece_start += own.starts.tolist()
        piece_end += own.ends.tolist()
        taken = union(np.append(taken.starts, start[i]), np.append(taken.ends, end[i]))
    exposed = union(piece_start, piece_end)
    order = np.argsort(piece_start, kind="stable")
    step_spans = np.array(rank.steps, dtype=np.int64)

    def work_before(times: np.ndarray) -> np.ndarray:
        zeros = np.zeros(len(times), dtype=np.int64)
        spent = np.zeros((len(times), len(Work)), dtype=np.int64)
        spent[:, Work.COMPUTE] = measure_within(computes, zeros, times)
        spent[:, Work.COMM] = measure_within(exposed, zeros, times)
        spent[:, Work.HOST_BUSY] = measure_within(late, zeros, times)
        spent[:, Work.OTHER_IDLE] = times - spent.sum(axis=1)
        return spent

    count = len(operations)
    phase = [x.phase if has_phases else Phase.UNKNOWN for x in operations]
    return RankPart(
        rank=number,
        path=f"rank{number}.json",
        origin_ns=0,
        device=0,
        groups=(Group("0", (), None),),
        sites=(NO_CALL_SITE,),
        culprits=(),
        steps=PartSteps(
            number=np.arange(len(rank.steps)),
            start_ns=step_spans[:, 0],
            end_ns=step_spans[:, 1],
            is_steady=np.ones(len(rank.steps), dtype=np.bool_),
        ),
        start_ns=start,
        end_ns=end,
        kernel_id=np.arange(count),
        stream_number=np.zeros(count, dtype=np.int64),
        operation=np.array([x.operation for x in operations], dtype=np.int8),
        group_index=np.zeros(count, dtype=np.int32),
        sequence=np.full(count, ABSENT),
        peer_rank=np.array([x.peer for x in operations], dtype=np.int64),
        in_bytes=np.full(count, BYTES),
        out_bytes=np.full(count, BYTES),
        step_index=np.array([x.step for x in operations], dtype=np.int32),
        site_index=np.zeros(count, dtype=np.int32),
        gates=np.ones(count, dtype=np.bool_),
        constraint=np.full(count, Constraint.STREAM, dtype=np.int8),
        delay_ns=np.full(count, ABSENT),
        exposed_index=np.array(index, dtype=np.int64)[order],
        exposed_start_ns=np.array(piece_start, dtype=np.int64)[order],
        exposed_end_ns=np.array(piece_end, dtype=np.int64)[order],
        work_at_start_ns=work_before(start),
        work_at_end_ns=work_before(end),
        culprit_index=np.full(count, ABSENT, dtype=np.int32),
        culprit_ns=np.zeros(count, dtype=np.int64),
        passes=Passes(
            start_ns=step_spans[:, 0],
            end_ns=step_spans[:, 1],
            work_at_start_ns=work_before(step_spans[:, 0]),
            work_at_end_ns=work_before(step_spans[:, 1]),
            launched_ns=np.array([x.launched_ns for x in operations], dtype=np.int64),
            waited_ns=np.zeros(count, dtype=np.int64),
            computes=np.array([x.computes for x in operations], dtype=np.int64),
            phase=np.array(phase, dtype=np.int8),
        ),
    )


def _matches(simulated: Sequence[_Rank]) -> Matches:
    members: Mapping[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for part_index, rank in enumerate(simulated):
        for operation_index, operation in enumerate(rank.operations):
            members[operation.message].append((part_index, operation_index))
    flat = [member for pair in members.values() for member in pair]
    return Matches(
        first=2 * np.arange(len(members) + 1),
        part_index=np.array([x for x, _ in flat], dtype=np.int32),
        operation_index=np.array([x for _, x in flat], dtype=np.int64),
        basis=np.full(len(members), Basis.PEERS, dtype=np.int8),
        unmatched=np.zeros(len(simulated), dtype=np.int64),
        unmatched_why=("",) * len(simulated),
    )
