"""The one step that everything printed is a share of, and what can be saved of it at most."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.measures.steady import PROFILED, UNPROFILED
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import Timeline
from tracelab.simulate.program import NodeKind, Program


class Bounds(NamedTuple):
    """A step with a change: what is predicted, at least and at most, ns."""

    predicted_ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class StepBasis(OneLine):
    """The length of the step that is printed, of which every saving is a share.

    Example: ``StepBasis(step_ns=31_600_000, profiled_step_ns=32_400_000, is_unprofiled=True)``.

    Attributes:
        step_ns: without the profiler where that was timed, of a step that follows another one
            where the replay says that; else the median of the steady steps, and the whole trace
            where it has no steps, ns.
        profiled_step_ns: the same with the profiler, ns.
        is_unprofiled: True if `step_ns` is without the profiler.
    """

    step_ns: int
    profiled_step_ns: int
    is_unprofiled: bool = False

    @property
    def name(self) -> str:
        """With the profiler or without it, as of `SteadyMetrics`."""
        return UNPROFILED if self.is_unprofiled else PROFILED

    def carry(self, replayed_ns: int, start_ns: int, bounds: Bounds, remains_ns: int) -> Bounds:
        """Carry a prediction of the replay's own step over to this one, within what can be saved.

        The share that is saved stays. By how much the two lengths differ, it may be more or less:
        what the profiler slowed may be all that a change takes away, or nothing of it.

        Args:
            replayed_ns: the step that was replayed, as it is, ns.
            start_ns: that step before the change: `replayed_ns`, less what comes before it, ns.
            bounds: that step with the change.
            remains_ns: what remains of any step with it, ns, as of `gpu_chain`.
        """
        share = self.step_ns / replayed_ns
        differs = abs(1 / share - 1)
        from_ns = round(start_ns * share)
        most_ns = max(0, from_ns - remains_ns)
        saves_ns, low_ns, high_ns = (
            (start_ns - ns) * share for ns in (bounds.predicted_ns, bounds.high_ns, bounds.low_ns)
        )
        if low_ns > 0:
            slowed_ns = max(0, replayed_ns - self.step_ns)  # that may be all that is saved
            least_ns = max(0, start_ns - bounds.high_ns - slowed_ns)
            low_ns = min(low_ns * max(0.0, 1 - differs), least_ns)
        else:
            low_ns *= 1 + differs
        high_ns *= 1 + differs if high_ns > 0 else max(0.0, 1 - differs)
        saved = [min(most_ns, round(ns)) for ns in (saves_ns, high_ns, low_ns)]
        return Bounds(*(from_ns - ns for ns in saved))


def find_basis(timeline: Timeline, follows_ns: int | None = None) -> StepBasis:
    """The length of a file's step; there is no slow reference model: it is a median.

    The recorder times few steps in a row, from empty queues on, and waits for the GPU behind them:
    where the host is ahead, that is up to a third more than a step among others takes. Recording
    makes no step shorter: without a replay, it is no longer than the recorded ones.

    Args:
        timeline: the GPU activities in order.
        follows_ns: what the recorder timed, as that of a step which follows another one; None
            where no replay says that.
    """
    whole_ns = timeline.windows[0].length_ns
    if timeline.steady is None:
        return StepBasis(whole_ns, whole_ns)
    lengths_ns = timeline.typical_lengths_ns
    # Steps that launch nothing may be without any length: then their mean is.
    profiled_ns = int(median(lengths_ns)) or max(1, sum(lengths_ns) // len(lengths_ns))
    timed_ns = timeline.trace.info.unprofiled_step_ns
    if timed_ns is None:
        return StepBasis(profiled_ns, profiled_ns)
    plain_ns = follows_ns or min(round(timed_ns), profiled_ns)
    return StepBasis(plain_ns, profiled_ns, is_unprofiled=True)


def gpu_chain(program: Program) -> Program:
    """The same with a host that needs no time: its step is the longest chain of GPU work.

    No step takes less. How long communication takes depends on the other ranks, so that nothing of
    it is sure to remain.
    """
    is_work = (program.kind == NodeKind.ACTIVITY) & (program.activity_kind != Kind.COMM)
    return replace(
        program,
        cost_ns=np.where(is_work, program.cost_ns, 0),
        latency_ns=np.minimum(program.latency_ns, 0),
    )
