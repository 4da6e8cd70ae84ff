"""The replay of a job: all ranks together, and what its step takes when some of them change.

Ranks do the same between the same collectives, so work is compared and made alike by stretch: what
the host launched from one collective to the next, or everything where ranks meet in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, IndexArray, Int64Array, Record, read_only
from tracelab.base.intervals import measure_within, union
from tracelab.job.joint_program import Joined, find_meetings, join
from tracelab.job.lateness import MoreWork
from tracelab.job.matching import Basis
from tracelab.job.operation_members import Members
from tracelab.job.part import RankPart, RankProgram
from tracelab.measures.measure import summed
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Bounds, StepBasis, gpu_chain
from tracelab.simulate.predict import bounds_ns
from tracelab.simulate.program import NEVER, NodeKind, Program, Via
from tracelab.simulate.replay import replay

MAX_RANKS = 16
TOO_MANY_RANKS = (
    f"A job of more than {MAX_RANKS} ranks is not replayed. Analyze the files of fewer ranks."
)
# Of the measured step.
_MAX_ERROR_SHARE = 0.02

# Compute beside a waiting NCCL kernel, whose 24 blocks take 24 of 132 multiprocessors: 1.14 to 1.39
# times as long in captures.
_SLOWED, _MAX_SLOWED_SHARE = 24 / 132, 0.28
# GPUs that wait less clock lower: the same products took up to 12 % longer.
_MARGIN = 0.08
# A step may be cut.
_MIN_MORE_CALLS_FACTOR = 1.02


_NONE = read_only(np.zeros(0, dtype=np.int64))


def _none() -> Int64Array:
    return np.zeros(0, dtype=np.int64)


class JobBaseline(Record):
    """Accuracy of the replay of all ranks, unchanged.

    Attributes:
        steps: the numbers of the steps that are replayed.
        step_ns: ns, the measured mean step. Ranks agree on it except for what they run ahead:
            of their lengths it is the nearest to the replayed one. None if nothing is replayed.
        replayed_ns: ns, what the replay says.
        basis: whether these are lengths with the profiler or without it, as of `SteadyMetrics`;
            without it where that is known of all ranks.
        error: by how much the replay is off, as a share of the measured step.
        not_replayed: why there are no predictions, a sentence; None where there are.
        printed: the step that predictions are of: that of the rank whose step is longest. None
            where nothing is replayed.
    """

    steps: tuple[int, ...] = ()
    step_ns: int | None = None
    replayed_ns: int | None = None
    basis: str = PROFILED
    error: float | None = None
    not_replayed: str | None = None
    printed: Annotated[StepBasis | None, {"added": True}] = None


class JobReplay(Arrays):
    """The ranks of a job as they are replayed; none and None where they are not.

    Attributes:
        surplus_ns: per rank that launches more than the others, the GPU's extra work in all steps,
            ns; else None.
        slowed_ns: int64[n], ns that each node computed beside a waiting kernel of its rank.
        waited_ns: int64[r], ns that each rank waits in the replay.
    """

    baseline: JobBaseline
    ranks: tuple[RankProgram, ...] = ()
    joined: Joined | None = None
    stretches: tuple[Stretches, ...] = ()
    surplus_ns: tuple[int | None, ...] = ()
    slowed_ns: Int64Array = _NONE
    waited_ns: Int64Array = _NONE


class Change(Record, eq=False):
    """A change of some ranks: the programs that they have with it, by their index.

    `low` is the faster bound; the margin is the shares by which a step may be shorter and longer.
    """

    programs: Mapping[int, Program]
    low: Mapping[int, Program]
    high: Mapping[int, Program]
    margin: tuple[float, float] = (0.0, 0.0)

    @property
    def all_programs(self) -> tuple[Mapping[int, Program], ...]:
        """The prediction and its bounds."""
        return self.programs, self.low, self.high


def replay_job(members: Members, more_of: Sequence[MoreWork | None]) -> JobReplay | None:
    """Replay the ranks of a job unchanged; None if not requested."""
    parts = members.parts
    if any(part.program is None for part in parts):
        return None
    if len(parts) > MAX_RANKS:
        return JobReplay(JobBaseline(not_replayed=TOO_MANY_RANKS))
    ranks = _common_steps(parts)
    if isinstance(ranks, str):
        return JobReplay(JobBaseline(not_replayed=ranks))
    programs = [rank.program for rank in ranks]
    meetings = find_meetings(members, programs)
    joined = join(programs, meetings)
    if joined is None:
        why = "The ranks' recorded orders of communication contradict each other. Record again."
        return JobReplay(JobBaseline(not_replayed=why))
    replayed = replay([joined.program])
    baseline = _baseline(ranks, int(replayed.step_ns[0]))
    if baseline.not_replayed is not None:
        return JobReplay(baseline)
    counts, in_pairs = {*map(len, joined.meeting_nodes)}, members.matches.basis == Basis.PEERS
    are_alike = len(counts) == 1 and not in_pairs.any()
    slowed_ns = _slowed_ns(members, joined)
    unslowed = [
        replace(
            program, cost_ns=program.cost_ns - np.rint(_SLOWED * slowed_ns[end]).astype(np.int64)
        )
        for program, end in zip(programs, joined.ends, strict=True)
    ]
    return JobReplay(
        baseline=baseline,
        ranks=ranks,
        joined=joined,
        stretches=tuple(
            _stretches(program, nodes if are_alike else nodes[:0])
            for program, nodes in zip(unslowed, joined.meeting_nodes, strict=True)
        ),
        surplus_ns=tuple(_surplus_ns(more, baseline) for more in more_of),
        slowed_ns=slowed_ns,
        waited_ns=_waited_ns(joined, joined.program, replayed.time_ns[:, 0]),
    )


def _common_steps(parts: Sequence[RankPart]) -> tuple[RankProgram, ...] | str:
    ranks = []
    for part in parts:
        if not isinstance(part.program, RankProgram):
            return f"Rank {part.rank}: {part.program}"
        ranks.append(part.program)
    if len({rank.steps for rank in ranks}) > 1:
        return "The ranks recorded different steps. Record the same steps on all ranks."
    return tuple(ranks)


def _baseline(ranks: Sequence[RankProgram], replayed_ns: int) -> JobBaseline:
    steps = ranks[0].steps
    basis = UNPROFILED if all(rank.basis == UNPROFILED for rank in ranks) else PROFILED
    measured_ns = [rank.step_ns for rank in ranks]
    step_ns = min(max(replayed_ns, min(measured_ns)), max(measured_ns))
    error = replayed_ns / step_ns - 1
    why = None
    if abs(error) > _MAX_ERROR_SHARE:
        longer = "longer" if error > 0 else "shorter"
        why = (
            f"The replay of the job's unchanged step is {100 * abs(error):.0f} % {longer} than "
            "recorded. Record more steps."
        )
    printed = _basis([rank.printed for rank in ranks])
    return JobBaseline(steps, step_ns, replayed_ns, basis, round(error, 6), why, printed)


def _basis(of_ranks: Sequence[StepBasis]) -> StepBasis:
    is_unprofiled = all(basis.is_unprofiled for basis in of_ranks)
    profiled_ns = max(basis.profiled_step_ns for basis in of_ranks)
    step_ns = max(basis.step_ns for basis in of_ranks) if is_unprofiled else profiled_ns
    return StepBasis(step_ns, profiled_ns, is_unprofiled)


# --- predictions ---


def predict_job(job: JobReplay, changes: Sequence[Change]) -> tuple[Bounds, ...]:
    """Predict the job's step with each change; nothing if the job is not replayed."""
    joined, step_ns, basis = job.joined, job.baseline.step_ns, job.baseline.printed
    if joined is None or step_ns is None or basis is None or not changes:
        return ()
    given = {id(one): one for change in changes for one in change.all_programs}
    position = {key: index for index, key in enumerate(given)}
    programs = [joined.edited(one) for one in given.values()]
    first = replay([joined.program, *programs])
    waited_ns = [
        _waited_ns(joined, program, first.time_ns[:, 1 + index])
        for index, program in enumerate(programs)
    ]
    freed = [
        [_freed(job, program, of_one, share) for share in (_SLOWED, _MAX_SLOWED_SHARE)]
        for program, of_one in zip(programs, waited_ns, strict=True)
    ]
    second = replay([joined.program, *(program for of_one in freed for program in of_one)])
    base_ns = int(first.step_ns[0])
    slow_ns, freed_ns = first.step_ns[1:], second.step_ns[1:].reshape(-1, 2)
    fastest = (freed[position[id(change.low)]][1] for change in changes)
    _, *remains_ns = replay([*map(gpu_chain, (joined.program, *fastest))]).step_ns.tolist()
    predicted = []
    for change, remain_ns in zip(changes, remains_ns, strict=True):
        middle, low, high = (position[id(one)] for one in change.all_programs)
        new_ns = np.array((freed_ns[middle, 0], freed_ns[low, 1], slow_ns[high]))
        scaled_ns = np.rint(step_ns / base_ns * new_ns).astype(np.int64)
        shorter, longer = (max(margin, _MARGIN) for margin in change.margin)
        bounds = bounds_ns(step_ns, scaled_ns, (shorter, longer))
        predicted.append(basis.carry(step_ns, step_ns, bounds, remain_ns))
    return tuple(predicted)


def leveled(job: JobReplay, programs: Mapping[int, Program], rank: int) -> dict[int, Program]:
    """Let one rank work as the median rank does, where it works more."""
    assert job.joined is not None
    own, usual, surplus_ns = job.stretches[rank], _usual(job.stretches, rank), job.surplus_ns[rank]
    too_much_ns = np.maximum(own.gpu_ns - usual["gpu_ns"], 0)
    if surplus_ns is not None:
        too_much_ns = too_much_ns * min(1.0, surplus_ns / max(1, int(too_much_ns.sum())))
    program = programs.get(rank, job.joined.programs[rank])
    program = _scaled(program, own, 1 - too_much_ns / np.maximum(own.gpu_ns, 1))
    program = _remove_waits(_capped(program, own, usual["host_ns"]), own, usual["waits"])
    return {**programs, rank: program}


def balanced(job: JobReplay, programs: Mapping[int, Program]) -> dict[int, Program]:
    """Let all ranks do the mean of the GPU work; as of `leveled`."""
    assert job.joined is not None
    mean_ns = np.mean([own.gpu_ns for own in job.stretches], axis=0)
    return {
        rank: _scaled(programs.get(rank, program), own, mean_ns / np.maximum(own.gpu_ns, 1))
        for rank, (program, own) in enumerate(zip(job.joined.programs, job.stretches, strict=True))
    }


def _surplus_ns(more: MoreWork | None, baseline: JobBaseline) -> int | None:
    """Return the surplus of `JobReplay`: GPUs that wait clock higher, so others are no measure."""
    if more is None or more.calls <= _MIN_MORE_CALLS_FACTOR * more.usual_calls:
        return None
    return more.surplus_ns * len(baseline.steps)


def _slowed_ns(members: Members, joined: Joined) -> Int64Array:
    """int64[n], ns, how long each node computed beside a kernel of its rank that waited."""
    slowed_ns = np.zeros(len(joined.program), dtype=np.int64)
    for index, (part, program) in enumerate(zip(members.parts, joined.programs, strict=True)):
        own = members.of_part[index]
        start_ns = part.start_ns[members.operation_index[own]]
        waiting = union(start_ns, start_ns + members.wait_ns[own])
        node = np.flatnonzero(program.activity_kind == Kind.COMPUTE)
        end_ns = program.moment_ns[node]
        slowed_ns[joined.ends[index][node]] = measure_within(
            waiting, end_ns - program.cost_ns[node], end_ns
        )
    return slowed_ns


def _waited_ns(joined: Joined, program: Program, time_ns: Int64Array) -> Int64Array:
    waited_ns = []
    for nodes, ends, entries in zip(joined.meeting_nodes, joined.ends, joined.entries, strict=True):
        end = ends[nodes]
        waited_ns.append(int((time_ns[end] - program.cost_ns[end] - time_ns[entries[nodes]]).sum()))
    return np.array(waited_ns, dtype=np.int64)


def _freed(job: JobReplay, program: Program, waited_ns: Int64Array, slowed: float) -> Program:
    assert job.joined is not None
    less = 1 - np.clip(waited_ns / np.maximum(job.waited_ns, 1), 0, 1)
    of_rank = np.where(job.joined.rank_index == ABSENT, 0.0, less[job.joined.rank_index])
    beside = job.slowed_ns / np.maximum(job.joined.program.cost_ns, 1)
    cost_ns = program.cost_ns * (1 - slowed * beside * of_rank)
    return replace(program, cost_ns=np.rint(cost_ns).astype(np.int64))


# --- edits that compare ranks ---


class Stretches(Arrays):
    """The work of one rank by stretch; s stretches, the same on all ranks.

    Attributes:
        node_stretch: intp[n], ABSENT for communication.
        edge_stretch: intp[e], for host work or waits of blocking calls, else ABSENT.
        gpu_ns, host_ns: int64[s], ns, activities; the host between and in its calls.
        waits: int64[s], calls that wait for the GPU.
    """

    node_stretch: IndexArray
    edge_stretch: IndexArray
    gpu_ns: Int64Array
    host_ns: Int64Array
    waits: Int64Array


def _stretches(program: Program, meeting_nodes: Int64Array) -> Stretches:
    launched = np.sort(program.launch_node[meeting_nodes])
    is_comm = program.activity_kind == Kind.COMM
    is_activity = program.kind == NodeKind.ACTIVITY
    call = np.where(is_activity, program.launch_node, np.arange(len(program)))
    stretch = np.searchsorted(launched, call, side="left")
    node_stretch = np.where(is_comm, ABSENT, stretch)
    is_host = (program.via == Via.HOST) & (program.latency_ns != NEVER)
    is_wait = (program.via == Via.WAIT) & (program.latency_ns != NEVER)
    edge_stretch = np.where(is_host | is_wait, stretch[program.target], ABSENT)
    waiting = np.unique(program.target[is_wait])
    count = len(launched) + 1
    work = is_activity & ~is_comm
    calls_ns = summed(stretch[~is_activity], program.cost_ns[~is_activity], count)
    between_ns = summed(stretch[program.target[is_host]], program.latency_ns[is_host], count)
    return Stretches(
        node_stretch,
        edge_stretch,
        gpu_ns=summed(stretch[work], program.cost_ns[work], count),
        host_ns=calls_ns + between_ns,
        waits=np.bincount(stretch[waiting], minlength=count).astype(np.int64),
    )


def _usual(stretches: Sequence[Stretches], rank: int) -> Mapping[str, Int64Array]:
    """The median of the other ranks by stretch, the lower of two; by name of the column."""
    others = [of_rank for index, of_rank in enumerate(stretches) if index != rank]
    middle = (len(others) - 1) // 2
    return {
        name: np.sort([getattr(of_rank, name) for of_rank in others], axis=0)[middle]
        for name in ("gpu_ns", "host_ns", "waits")
    }


def _scaled(program: Program, own: Stretches, share: NDArray[np.float64]) -> Program:
    is_work = (program.kind == NodeKind.ACTIVITY) & (own.node_stretch != ABSENT)
    cost_ns = np.rint(program.cost_ns * share[own.node_stretch]).astype(np.int64)
    return replace(program, cost_ns=np.where(is_work, cost_ns, program.cost_ns))


def _capped(program: Program, own: Stretches, most_ns: Int64Array) -> Program:
    """Let the host work no longer than so, by stretch: its longest pieces are shortened."""
    call = np.flatnonzero(program.kind != NodeKind.ACTIVITY)
    shared = len(own.edge_stretch)  # an edit may have added further ones
    edge = np.flatnonzero((program.via[:shared] == Via.HOST) & (own.edge_stretch != ABSENT))
    stretch = np.concatenate((own.node_stretch[call], own.edge_stretch[edge]))
    piece_ns = np.concatenate((program.cost_ns[call], program.latency_ns[edge]))
    is_longer = own.host_ns[stretch] > most_ns[stretch]
    for index, pieces in groups_of(np.where(is_longer, stretch, ABSENT)):
        piece_ns[pieces] = np.minimum(piece_ns[pieces], _cap_ns(piece_ns[pieces], most_ns[index]))
    cost_ns, latency_ns = program.cost_ns.copy(), program.latency_ns.copy()
    cost_ns[call], latency_ns[edge] = piece_ns[: len(call)], piece_ns[len(call) :]
    return replace(program, cost_ns=cost_ns, latency_ns=latency_ns)


def _cap_ns(piece_ns: Int64Array, most_ns: int) -> int:
    """Return the longest piece, ns, with which all fit a limit together.

    >>> _cap_ns(np.array([10, 2, 7]), 12), _cap_ns(np.array([10, 2, 7]), 3)
    (5, 1)
    """
    ordered = np.sort(piece_ns)
    left = np.arange(len(ordered), 0, -1)
    shorter_ns = np.cumsum(ordered) - ordered
    first = int(np.argmax(shorter_ns + left * ordered > most_ns))
    return max(0, int(most_ns - shorter_ns[first]) // int(left[first]))


def _remove_waits(program: Program, own: Stretches, usual: Int64Array) -> Program:
    latency_ns = program.latency_ns.copy()
    is_wait = (program.via[: len(own.edge_stretch)] == Via.WAIT) & (own.edge_stretch != ABSENT)
    for stretch, edges in groups_of(np.where(is_wait, own.edge_stretch, ABSENT)):
        calls = np.unique(program.target[edges])
        kept = calls[max(0, len(calls) - int(usual[stretch])) :]
        latency_ns[edges[~np.isin(program.target[edges], kept)]] = NEVER
    return replace(program, latency_ns=latency_ns)
