"""The figures that are said first of a file: of one step, in shares that add up as printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracelab.arrays import OneLine
from tracelab.report.views import RankView

TENTHS = 1_000  # of a percent: shares are printed in them


@dataclass(frozen=True, slots=True, repr=False)
class Headline(OneLine):
    """What a step takes, how busy the GPU is that decides, and what the fixes save of the step.

    Example: ``Headline(rank=0, step=None, step_ns=31_600_000, profiled_step_ns=32_400_000,
    device=0, busy_share=0.68, idle_share=0.32, causes={"host_blocked": 0.24, "launch": 0.08},
    predicted_step_ns=22_900_000, saves_share=0.275, ...)``.

    Attributes:
        step: None, as of the steady steps; else the number of the only step that is reported.
        step_ns: a step without the profiler where that was timed, else the median steady step, and
            the whole trace where it has no steps, ns.
        profiled_step_ns: the same with the profiler, ns.
        device: the GPU that decides; None where none worked.
        busy_share, idle_share: of the steady window, both means; they add up to 1.
        causes: by cause of idle time its share; they add up to `idle_share`.
        predicted_step_ns: a step with all fixes, ns; None where nothing is predicted.
        saves_share: what all fixes save together, as a share of `step_ns`; None likewise.
        saves_low_share, saves_high_share: the interval in which it lies.
    """

    rank: int
    step: int | None
    step_ns: int
    profiled_step_ns: int
    device: int | None
    busy_share: float
    idle_share: float
    causes: Mapping[str, float]
    predicted_step_ns: int | None
    saves_share: float | None
    saves_low_share: float | None
    saves_high_share: float | None


def headline_of(rank: RankView) -> Headline:
    """The figures of a file's steady steps, else of the whole trace, or of the step asked for."""
    scope, savings = rank.main.scope, rank.main.scope.savings
    timed_ns = rank.steady.unprofiled_step_ns if rank.steady and scope.steps else None
    busy, idle = in_parts([scope.busy_ns, scope.idle_ns], TENTHS)
    bubbles = scope.deciding.bubbles if scope.deciding else {}
    causes = in_parts(list(bubbles.values()), idle)
    of_ns = (savings and savings.step_ns) or 0
    saves_ns, *bounds_ns = (
        (savings.saves_ns, savings.saves_low_ns, savings.saves_high_ns)
        if savings and of_ns
        else (None, None, None)
    )
    saves, low, high = (None if ns is None else ns / of_ns for ns in (saves_ns, *bounds_ns))
    return Headline(
        rank=rank.trace.rank,
        step=rank.main.step,
        step_ns=timed_ns or scope.step_ns,
        profiled_step_ns=scope.step_ns,
        device=scope.device,
        busy_share=busy / TENTHS,
        idle_share=idle / TENTHS,
        causes={cause: part / TENTHS for cause, part in zip(bubbles, causes, strict=True) if part},
        predicted_step_ns=None if saves_ns is None else of_ns - saves_ns,
        saves_share=saves,
        saves_low_share=low,
        saves_high_share=high,
    )


def in_parts(amounts: Sequence[int], whole: int) -> list[int]:
    """Whole numbers in the proportion of some amounts that add up: by largest remainder.

    >>> in_parts([2, 1], 1_000), in_parts([1, 1, 1], 100), in_parts([0, 0], 10)
    ([667, 333], [34, 33, 33], [0, 0])
    """
    total = sum(amounts)
    if not total:
        return [0] * len(amounts)
    parts = [amount * whole // total for amount in amounts]
    by_rest = sorted(range(len(parts)), key=lambda i: -(amounts[i] * whole % total))
    for i in by_rest[: whole - sum(parts)]:
        parts[i] += 1
    return parts
