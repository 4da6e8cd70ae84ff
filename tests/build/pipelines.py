"""For tests of pipelines: schedules carried out by their definition, in the columns of a job.

A stage does its passes in the order that it is given, each as soon as its input is there. Nothing
here knows how tracelab finds a pipeline again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tracelab.base.intervals import gaps, join, subtract, union
from tracelab.job.matching import Basis, Matches
from tracelab.job.part import PartSteps, Passes, RankPart, Work
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.collectives import Group, Operation
from tracelab.model.phases import Phase
from tracelab.model.program.call_sites import NO_CALL_SITE
from tracelab.model.trace import ABSENT

UNIT = 1_000_000
BYTES = 8_388_608


class Pass(NamedTuple):
    """A forward pass (F) or a backward pass (B)."""

    kind: str
    microbatch: int
    chunk: int = 0


Schedule = Callable[[int, int, int], list[Pass]]  # of stage, stages, microbatches to its passes


def gpipe(_stage: int, _stages: int, microbatches: int) -> list[Pass]:
    return [Pass(kind, i) for kind in "FB" for i in range(microbatches)]


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[Pass]:
    warm_up = min(microbatches, stages - 1 - stage)
    forward = [Pass("F", i) for i in range(microbatches)]
    backward = [Pass("B", i) for i in range(microbatches)]
    steady = [x for pair in zip(forward[warm_up:], backward, strict=False) for x in pair]
    return [*forward[:warm_up], *steady, *backward[microbatches - warm_up :]]


def interleaved(chunks: int) -> Schedule:
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


class Done(NamedTuple):
    """A pass that was carried out, ns: one row of the account of a schedule.

    Attributes:
        stage: by whom.
        free: when the stage had done the pass before.
        source: the stage that its input came from, None for a pass without.
        sent: when that stage had computed the input.
        start, end: when it computed.
    """

    stage: int
    free: int
    source: int | None
    sent: int
    start: int
    end: int


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


@dataclass
class _Rank:
    """What one rank did."""

    free: int = 0
    launched: int = 0
    computes: list[tuple[int, int]] = field(default_factory=list)
    late: list[tuple[int, int]] = field(default_factory=list)
    operations: list[_Operation] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """How a schedule is carried out.

    Attributes:
        chunks, steps: how many.
        ranks: the rank of each stage; those from 0 on where it is empty.
        length_ns: of each pass of a stage.
        transfer_ns: of each message, once its receiver is there; to send it takes no time.
        optimizer_ns: of each stage's optimizer, after its last pass.
        late_ns: how long a stage is idle because of its host before a pass.
        host_ns: how long the host takes to launch a pass.
        tensors: how many there are in a message, each sent by a kernel of its own.
        has_phases: whether the files say which pass a kernel is of.
    """

    chunks: int = 1
    steps: int = 1
    ranks: tuple[int, ...] = ()
    length_ns: Callable[[int, Pass], int] = lambda _stage, _pass: UNIT
    transfer_ns: int = 0
    optimizer_ns: int = 0
    late_ns: Callable[[int, Pass], int] = lambda _stage, _pass: 0
    host_ns: int = 1_000
    tensors: int = 1
    has_phases: bool = True


@dataclass(frozen=True)
class Job:
    """What came of it: the files' columns, and the passes of each step."""

    parts: list[RankPart]
    matches: Matches
    steps: list[list[Done]]

    @property
    def schedule_ns(self) -> int:
        return sum(max(x.end for x in step) - min(x.start for x in step) for step in self.steps)


def job(schedule: Schedule, stages: int, microbatches: int, **settings: Any) -> Job:
    """Carry out a schedule; `settings` are those of `Settings`."""
    how = Settings(**settings)
    numbers = how.ranks or tuple(range(stages))
    ranks = [_Rank() for _ in numbers]
    steps = []
    for step in range(how.steps):
        orders = [schedule(stage, stages, microbatches) for stage in range(stages)]
        done: dict[tuple[str, int, int], Done] = {}
        while any(orders):
            before = len(done)
            for stage, order in enumerate(orders):
                while order and _is_ready(order[0], stage, stages, how, done):
                    _carry_out(order.pop(0), stage, ranks, numbers, step, how, done)
            assert len(done) > before, "the stages wait for one another"
        for stage, rank in enumerate(ranks):
            own = [x for x in done.values() if x.stage == stage]
            rank.steps.append((min(x.start for x in own), max(x.end for x in own)))
            rank.computes.append((rank.free, rank.free + how.optimizer_ns))
        end = max(rank.free for rank in ranks) + how.optimizer_ns
        for rank in ranks:
            rank.free = end
        steps.append(list(done.values()))
    parts = [
        _part(number, rank, has_phases=how.has_phases)
        for number, rank in zip(numbers, ranks, strict=True)
    ]
    return Job(parts, _matches(ranks), steps)


def rank_that(number: int, *kernels: Sequence[tuple[Operation, int]], phase=Phase.FORWARD):
    """A rank that computes for a unit before each of some kernels, which send or receive.

    Each kernel is given by its operations and their peers: ``[(Operation.SEND, 1)]``.
    """
    rank = _Rank(steps=[(0, 2 * UNIT * len(kernels))])
    shared = []
    for i, kernel in enumerate(kernels):
        start = (2 * i + 1) * UNIT
        rank.computes.append((start - UNIT, start))
        for operation, peer in kernel:
            rank.operations.append(
                _Operation(
                    start, start + UNIT, operation, peer, (), 0, start, len(rank.computes), phase
                )
            )
            shared.append(i)
    part = _part(number, rank, has_phases=phase != Phase.UNKNOWN)
    return replace(part, kernel_id=np.array(shared, dtype=np.int64))


def _input(one: Pass, stage: int, stages: int, how: Settings) -> int | None:
    """The place in the model, counted from its first layers, that a pass has its input from."""
    place = one.chunk * stages + stage
    if one.kind == "F":
        return place - 1 if place else None
    return place + 1 if place < how.chunks * stages - 1 else None


def _output(one: Pass, stage: int, stages: int, how: Settings) -> int | None:
    place = one.chunk * stages + stage
    if one.kind == "F":
        return place + 1 if place < how.chunks * stages - 1 else None
    return place - 1 if place else None


def _is_ready(
    one: Pass, stage: int, stages: int, how: Settings, done: Mapping[tuple[str, int, int], Done]
) -> bool:
    source = _input(one, stage, stages, how)
    return source is None or (one.kind, one.microbatch, source) in done


def _carry_out(
    one: Pass,
    stage: int,
    ranks: Sequence[_Rank],
    numbers: Sequence[int],
    step: int,
    how: Settings,
    done: dict[tuple[str, int, int], Done],
) -> None:
    """Receive the input of a pass, compute, and send what comes of it."""
    rank, stages = ranks[stage], len(ranks)
    place = one.chunk * stages + stage
    source, target = _input(one, stage, stages, how), _output(one, stage, stages, how)
    free = now = rank.free
    sent = 0
    if source is not None:
        sent = done[one.kind, one.microbatch, source].end
        now = max(free, sent) + how.transfer_ns
        key = (step, one.kind, one.microbatch, source)
        _message(rank, (free, now), Operation.RECV, numbers[source % stages], key, how)
    late = how.late_ns(stage, one)
    rank.late.append((now, now + late))
    start = now + late
    rank.free = end = start + how.length_ns(stage, one)
    rank.computes.append((start, end))
    rank.launched += how.host_ns
    came_from = None if source is None else source % stages
    done[one.kind, one.microbatch, place] = Done(stage, free, came_from, sent, start, end)
    if target is not None:
        key = (step, one.kind, one.microbatch, place)
        phase = Phase.FORWARD if one.kind == "F" else Phase.BACKWARD
        _message(rank, (end, end), Operation.SEND, numbers[target % stages], key, how, phase)


def _message(
    rank: _Rank,
    span: tuple[int, int],
    operation: Operation,
    peer: int,
    key: tuple[int, str, int, int],
    how: Settings,
    phase: Phase = Phase.OTHER,
) -> None:
    """The kernels of a message; all tensors but the first take no time."""
    for tensor in range(how.tensors):
        start = span[1] if tensor else span[0]
        rank.operations.append(
            _Operation(
                start,
                span[1],
                operation,
                peer,
                (*key, tensor),
                key[0],
                rank.launched,
                len(rank.computes),
                phase,
            )
        )


def _part(number: int, rank: _Rank, *, has_phases: bool) -> RankPart:
    operations = rank.operations
    start = np.array([x.start for x in operations], dtype=np.int64)
    end = np.array([x.end for x in operations], dtype=np.int64)
    computes = union(*zip(*rank.computes, strict=True))
    late = union([start for start, _ in rank.late], [end for _, end in rank.late])
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

    work = [union([], [])] * len(Work)
    work[Work.COMPUTE], work[Work.COMM] = computes, exposed
    work[Work.HOST_BUSY] = subtract(subtract(late, exposed), computes)
    work[Work.OTHER_IDLE] = gaps(reduce(join, work), 0, int(step_spans.max(initial=0)))

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
        kernel_names=("ncclDevKernel_SendRecv",),
        work_sites=(),
        work_site_ns=np.zeros(0, np.int64),
        steps=PartSteps(
            number=np.arange(len(rank.steps)),
            start_ns=step_spans[:, 0],
            end_ns=step_spans[:, 1],
            is_steady=np.ones(len(rank.steps), dtype=np.bool_),
        ),
        start_ns=start,
        end_ns=end,
        kernel_id=np.arange(count),
        kernel_name_index=np.zeros(count, dtype=np.int32),
        operation=np.array([x.operation for x in operations], dtype=np.int8),
        group_index=np.zeros(count, dtype=np.int32),
        sequence=np.full(count, ABSENT),
        peer_rank=np.array([x.peer for x in operations], dtype=np.int64),
        in_bytes=np.full(count, BYTES),
        out_bytes=np.full(count, BYTES),
        step_index=np.array([x.step for x in operations], dtype=np.int32),
        site_index=np.zeros(count, dtype=np.int32),
        exposed_index=np.array(index, dtype=np.int64)[order],
        exposed_start_ns=np.array(piece_start, dtype=np.int64)[order],
        exposed_end_ns=np.array(piece_end, dtype=np.int64)[order],
        exposed_blocker=np.full(len(order), OverlapBlocker.UNKNOWN, dtype=np.int8),
        work=tuple(work),
        culprit_index=np.full(count, ABSENT, dtype=np.int32),
        culprit_ns=np.zeros(count, dtype=np.int64),
        passes=Passes(
            start_ns=step_spans[:, 0],
            end_ns=step_spans[:, 1],
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
