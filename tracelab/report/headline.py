"""The first figures of a file, in whole percents that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracelab.base.arrays import Record
from tracelab.measures.window_times import DeviceMetrics
from tracelab.report.views import RankView

PERCENTS = 100
_BLOCKING, _INPUT = "host_blocked", "input"
_PROFILER_CAUSES = ("profiler", "host_busy")  # longer with the profiler


class Headline(Record):
    """Length of a step, busy share of the GPU that decides, and savings of the fixes.

    Shares are whole percents, as they are printed.

    Attributes:
        step: None, as of the steady steps; else the number of the only step that is reported.
        step_ns: a step without the profiler where that was timed, else the median steady step, and
            the whole trace where it has no steps, ns.
        profiled_step_ns: the same with the profiler, ns.
        device: the GPU that decides; None where none worked.
        busy_share, idle_share: of the steady window, both means; they add up to 1.
        causes: by cause of idle time its share, the largest first; they add up to `idle_share`.
            What blocking calls delayed behind them is theirs, unless data was loaded then.
        predicted_step_ns: a step with all fixes, ns; None where nothing is predicted.
        saves_ns: what all fixes save together of `step_ns`, ns; None likewise.
        saves_share, saves_low_share, saves_high_share: the same as a share, and the interval in
            which it lies.
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
    saves_ns: int | None
    saves_share: float | None
    saves_low_share: float | None
    saves_high_share: float | None


def headline_of(rank: RankView) -> Headline:
    """The figures of a file's steady steps, else of the whole trace or the requested step."""
    scope, savings = rank.main.scope, rank.main.scope.savings
    step_ns = scope.printed_ns
    busy, idle = apportion([scope.busy_ns, scope.idle_ns], PERCENTS)
    causes_ns = _causes_ns(scope.deciding, scope.idle_ns) if scope.deciding else {}
    parts = apportion(list(causes_ns.values()), idle)
    saved: list[float | None] = [None, None, None]
    if savings and savings.step_ns:
        all_ns = (savings.saves_ns, savings.saves_low_ns, savings.saves_high_ns)
        saved = [None if ns is None else ns / savings.step_ns for ns in all_ns]
    # Convert a share of the replayed step to the printed one.
    saves_ns = None if saved[0] is None else round(saved[0] * step_ns)
    share, low, high = (None if x is None else round(x * PERCENTS) / PERCENTS for x in saved)
    return Headline(
        rank=rank.trace.rank,
        step=rank.main.step,
        step_ns=step_ns,
        profiled_step_ns=scope.step_ns,
        device=scope.device,
        busy_share=busy / PERCENTS,
        idle_share=idle / PERCENTS,
        causes={x: n / PERCENTS for x, n in zip(causes_ns, parts, strict=True) if n},
        predicted_step_ns=None if saves_ns is None else step_ns - saves_ns,
        saves_ns=saves_ns,
        saves_share=share,
        saves_low_share=low,
        saves_high_share=high,
    )


def _causes_ns(device: DeviceMetrics, idle_ns: int) -> dict[str, int]:
    """Return idle time by cause, the largest first, ns; together `idle_ns`."""
    delayed = {x: ns for x, ns in device.bubbles_by_calls.items() if x != _INPUT}
    causes_ns = {x: ns - delayed.get(x, 0) for x, ns in device.bubbles.items()}
    causes_ns[_BLOCKING] = causes_ns.get(_BLOCKING, 0) + sum(delayed.values())
    excess_ns = sum(causes_ns.values()) - idle_ns
    for cause in _PROFILER_CAUSES:
        taken_ns = max(0, min(causes_ns.get(cause, 0), excess_ns))
        causes_ns[cause] = causes_ns.get(cause, 0) - taken_ns
        excess_ns -= taken_ns
    shares = apportion(list(causes_ns.values()), idle_ns)
    return dict(sorted(zip(causes_ns, shares, strict=True), key=lambda item: -item[1]))


def apportion(amounts: Sequence[int], whole: int) -> list[int]:
    """Apportion a whole by largest remainder.

    >>> apportion([1, 1, 1], 100)
    [34, 33, 33]
    """
    total = sum(amounts)
    if not total:
        return [0] * len(amounts)
    parts = [amount * whole // total for amount in amounts]
    by_rest = sorted(range(len(parts)), key=lambda i: -(amounts[i] * whole % total))
    for i in by_rest[: whole - sum(parts)]:
        parts[i] += 1
    return parts
