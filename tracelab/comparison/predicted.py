"""What was predicted of a change, beside what was measured once it was made."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracelab.base.arrays import OneLine
from tracelab.measures.measure import constrained
from tracelab.measures.steady import PROFILED, UNPROFILED
from tracelab.report.schema import WhatIf
from tracelab.simulate.predict import Prediction


@dataclass(frozen=True, slots=True, repr=False)
class PredictionDiff(OneLine):
    """What a change was predicted to save of a step, and what the step afterward saves of it.

    Example row: ``PredictionDiff(name="TL101", edits=("unblock:train.py:40",), basis="profiled",
    saves_ns=2_200_000, saves_low_ns=1_900_000, saves_high_ns=2_400_000, measured_ns=2_300_000)``.

    Attributes:
        name, edits: of the prediction.
        basis: whether steps are compared with the profiler or without it, as was predicted.
        saves_ns: what was predicted to be saved, ns; negative where the step was to get longer.
        saves_low_ns, saves_high_ns: the interval in which it was expected.
        measured_ns: how much shorter the step is, ns; None where a side does not know it on that
            basis.
    """

    name: str
    edits: tuple[str, ...]
    basis: str = field(metadata=constrained(enum=[PROFILED, UNPROFILED]))
    saves_ns: int
    saves_low_ns: int
    saves_high_ns: int
    measured_ns: int | None

    @property
    def holds(self) -> bool | None:
        """Whether the interval holds what was measured; None where that is not known."""
        if self.measured_ns is None:
            return None
        return self.saves_low_ns <= self.measured_ns <= self.saves_high_ns


def prediction_diffs(
    whatif: WhatIf | None,
    profiled_ns: tuple[int, int],
    unprofiled_ns: tuple[int | None, int | None],
) -> tuple[PredictionDiff, ...]:
    """What became of each saved prediction, in their order.

    Args:
        whatif: the predictions; None for none.
        profiled_ns: the step before and after, with the profiler, ns.
        unprofiled_ns: the same without it, where a side knows it.
    """
    if whatif is None:
        return ()
    before_ns, after_ns = profiled_ns if whatif.basis == PROFILED else unprofiled_ns
    measured_ns = None if before_ns is None or after_ns is None else before_ns - after_ns
    return tuple(_prediction_diff(x, whatif.basis, measured_ns) for x in whatif.predictions)


def _prediction_diff(prediction: Prediction, basis: str, measured_ns: int | None) -> PredictionDiff:
    step_ns = prediction.step_ns
    return PredictionDiff(
        name=prediction.name,
        edits=prediction.edits,
        basis=basis,
        saves_ns=step_ns - prediction.predicted_ns,
        saves_low_ns=step_ns - prediction.high_ns,
        saves_high_ns=step_ns - prediction.low_ns,
        measured_ns=measured_ns,
    )
