"""Program of one rank, and edits of it, for the replay of its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.model.lookup import groups_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline, StepBasis
from tracelab.simulate.program import NODE_COLUMNS, Edited, NodeKind, Program


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RankProgram(Frozen):
    """The steady steps of one rank as they are replayed.

    Attributes:
        program: them.
        steps: their numbers.
        node_step: int16[n], the step of each node, an index into `steps`.
        step_ns: ns, their measured mean length.
        basis: whether that is with the profiler or without it, as of `SteadyMetrics`.
        printed: the step of the rank that is printed.
        changes: the program with changes of this rank, by what they are called.
    """

    program: Program
    steps: tuple[int, ...]
    node_step: NDArray[np.int16]
    step_ns: int
    basis: str
    printed: StepBasis
    changes: Mapping[str, Edited] = field(default_factory=dict)


def rank_program(
    timeline: Timeline, baseline: Baseline, changes: Mapping[str, Edited]
) -> RankProgram | str | None:
    """A rank's program, or the reason it has no program; None if not requested.

    Args:
        timeline: the GPU activities in order.
        baseline: its steady steps, replayed unchanged.
        changes: as of `RankProgram`.
    """
    program, step_ns = baseline.program, baseline.step_ns
    if program is None or step_ns is None:
        return baseline.not_replayed
    if not baseline.steps:
        return "The file has no steps. Call `profiler.step()` after each."
    trace = timeline.trace
    by_number = {step.number: trace.start_ns[step.event_id] for step in timeline.steps}
    starts_ns = [by_number[number] for number in baseline.steps]
    is_activity = program.kind == NodeKind.ACTIVITY
    launch_id = np.where(is_activity, timeline.launch_id[program.row], program.event_id)
    begun_ns = np.where(launch_id == ABSENT, 0, trace.start_ns[launch_id])
    node_step = np.searchsorted(starts_ns, begun_ns, side="right") - 1
    return RankProgram(
        program=program,
        steps=baseline.steps,
        node_step=np.maximum(node_step, 0).astype(np.int16),
        step_ns=step_ns,
        basis=baseline.basis,
        printed=baseline.printed_basis,
        changes=changes,
    )


def first_steps(rank: RankProgram, count: int) -> RankProgram:
    """Only the first of a rank's steps.

    What the first of them waited for at the end of the last one, they now wait for at the end of
    their own last one.
    """
    if count >= len(rank.steps):
        return rank
    is_kept = rank.node_step < count
    stands_in = _stand_ins(rank.program, is_kept)

    def cut(program: Program) -> Program:
        return _cut(program, is_kept, stands_in, count)

    return replace(
        rank,
        program=cut(rank.program),
        steps=rank.steps[:count],
        node_step=rank.node_step[is_kept],
        changes={
            name: replace(
                edited, program=cut(edited.program), low=cut(edited.low), high=cut(edited.high)
            )
            for name, edited in rank.changes.items()
        },
    )


def _stand_ins(program: Program, is_kept: NDArray[np.bool_]) -> NDArray[np.intp]:
    """intp[n], the kept node as far from the end of its thread or stream as each node now is."""
    stands_in = np.full(len(program), ABSENT, dtype=np.intp)
    for sequence in (program.thread_index, program.stream_index):
        for _, members in groups_of(sequence):
            kept = members[is_kept[members]]
            count = min(len(kept), len(members))
            stands_in[members[len(members) - count :]] = kept[len(kept) - count :]
    return stands_in


def _cut(
    program: Program, is_kept: NDArray[np.bool_], stands_in: NDArray[np.intp], count: int
) -> Program:
    node = np.full(len(program), ABSENT, dtype=np.intp)
    node[is_kept] = np.arange(int(is_kept.sum()))
    source = np.where(program.lag == 1, stands_in[program.source], program.source)
    edge = is_kept[program.target] & (source != ABSENT) & is_kept[source]
    launch = program.launch_node[is_kept]
    return replace(
        program,
        **{name: getattr(program, name)[is_kept] for name in NODE_COLUMNS},
        launch_node=np.where(launch == ABSENT, ABSENT, node[launch]),
        source=node[source[edge]],
        target=node[program.target[edge]],
        via=program.via[edge],
        lag=program.lag[edge],
        latency_ns=program.latency_ns[edge],
        steps=count,
        length_ns=program.length_ns * count // program.steps,
    )
