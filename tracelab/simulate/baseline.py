"""What predictions start from: the replay of the steady steps as they were."""

from __future__ import annotations

from dataclasses import dataclass

from tracelab.arrays import OneLine
from tracelab.measures.steady import PROFILED
from tracelab.simulate.program import Program


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Baseline(OneLine):
    """The program that edits start from, and what is known of it."""

    program: Program | None = None
    loose: tuple[Program, ...] = ()
    steps: tuple[int, ...] = ()
    step_ns: int | None = None
    replayed_ns: int | None = None
    basis: str = PROFILED
    error: float | None = None
    not_replayed: str | None = None
    is_share: bool = False
