"""Savings of the fixes of a file's findings together."""

from __future__ import annotations

from dataclasses import field

from tracelab.base.arrays import OneLine, dataclass
from tracelab.measures.measure import constrained
from tracelab.measures.steady import PROFILED, UNPROFILED


@dataclass(frozen=True, slots=True, repr=False)
class Savings(OneLine):
    """Savings of the fixes of one file's findings together, by one replay with all of them.

    Example row: ``Savings(rank=0, step=None, step_ns=12_400_000, basis="profiled",
    is_of_trace=False, saves_ns=4_100_000, saves_low_ns=3_500_000, saves_high_ns=4_400_000,
    edits=("unblock:train.py:40", "load=0"), not_replayed=None)``.

    Attributes:
        step: None, as of the whole trace.
        step_ns: the mean length of the steps that were replayed, ns; None without a replay.
        basis: whether that is with the profiler or without it.
        is_of_trace: whether it is the whole trace, which has no steps.
        saves_ns: what all edits together save of it, ns; None without any. It is not the sum of
            what the findings save one by one.
        saves_low_ns, saves_high_ns: the interval in which it lies.
        edits: those of the findings, each once.
        not_replayed: why nothing is predicted, a sentence; None where it is.
        is_of_job: whether the step is the job's, replayed with all its ranks.
    """

    rank: int
    step: int | None
    step_ns: int | None
    basis: str = field(metadata=constrained(enum=[PROFILED, UNPROFILED]))
    is_of_trace: bool
    saves_ns: int | None
    saves_low_ns: int | None
    saves_high_ns: int | None
    edits: tuple[str, ...]
    not_replayed: str | None
    is_of_job: bool = field(default=False, metadata={"added": True})
