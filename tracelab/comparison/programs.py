"""Whether two recordings are of one program, by what they launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracelab.comparison.noise import median
from tracelab.comparison.recordings import Pair, Recording

# What two recordings have in common, 0 to 1; between variants of one bundled program it is at least
# 0.68, whatever was done to it. A program in another precision launches other kernels by the same
# operators; a compiled one has other operators, and spends most of its time in the same kernels.
_LEAST_LAUNCHES = 0.5
_LEAST_TIME = 0.5
_LEAST_OPERATORS = 0.7


def is_same_program(both: Pair) -> bool | None:
    """Whether both sides launch much the same: kernels by count or time, or operators.

    None where a side does not say: a saved report holds no names.
    """
    before, after = both.before.recordings[0], both.after.recordings[0]
    if before.kernels is None or after.kernels is None:
        return None
    per_step = both.per_step
    counts, times = (
        [_per_name(recording, column, per_step=per_step) for recording in (before, after)]
        for column in (0, 1)
    )
    operators = [_operators(recording, per_step=per_step) for recording in (before, after)]
    return (
        common(*counts) >= _LEAST_LAUNCHES
        or common(*map(_shares, times)) >= _LEAST_TIME
        or (all(operators) and common(*operators) >= _LEAST_OPERATORS)
    )


def common(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """How much two multisets have in common: the intersection's share of the union.

    >>> common({"gemm": 4, "copy": 1}, {"gemm": 4, "fill": 3})
    0.5
    """
    names = {**before, **after}
    both = sum(min(before.get(name, 0), after.get(name, 0)) for name in names)
    either = sum(max(before.get(name, 0), after.get(name, 0)) for name in names)
    return both / either if either else 1.0


def _per_name(recording: Recording, column: int, *, per_step: bool) -> dict[str, float]:
    """Launches (column 0) or time (column 1) of each name: medians per step, or in all."""
    return {
        times.name: median(values[column]) if per_step else totals[column]
        for times in recording.kernels or ()
        for values in [steps_of(recording, times.step_counts, times.steps_ns)]
        for totals in [(times.count, times.total_ns)]
    }


def steps_of(recording: Recording, *columns: Sequence[int]) -> list[list[int]]:
    """The values of the compared steps, out of those of all steps."""
    return [[column[index] for index in recording.step_indices] for column in columns]


def _operators(recording: Recording, *, per_step: bool) -> dict[str, float]:
    steps = len(recording.rank.steps) if per_step else 1
    return {name: count / steps for name, count in (recording.operators or {}).items()}


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values()) or 1
    return {name: value / total for name, value in values.items()}
