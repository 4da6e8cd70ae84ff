"""What was predicted of each remedy, and what it saved: ``python -m tests.benchmarks.remedies``.

Every bundled capture of a pitfall whose fix was timed beside it: both in turns, without a profiler,
in the run of the capture. The table is that of ``tracelab/docs/evidence/remedies_measured.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tests.build.remedies import Interval, Measured, Steps, measured
from tests.bundled_traces import MANIFEST

HEAD = (
    "| remedy, or rule | program and fix | a step, ms | fixed | saves | predicted: saves | "
    "a step, fixed | edit |"
)


def main() -> None:
    found = outcomes()
    print("\n".join(table(found)))
    print()
    print(summary(found))


def outcomes() -> list[Measured]:
    """All that the manifest has, in its order."""
    return [one for line in MANIFEST if (one := measured(line)) is not None]


def table(some: Sequence[Measured]) -> list[str]:
    """The lines of a table in Markdown."""
    return [HEAD, "|---" * (HEAD.count("|") - 1) + "|", *map(_row, some)]


def _row(one: Measured) -> str:
    digits = 2 if one.before.median >= 1 else 3
    cells = (
        f"`{one.told}`",
        f"`{one.workload}`: `{one.pitfall}`, `{one.fix}`",
        _steps(one.before, digits),
        _steps(one.after, digits),
        f"{one.saved_ms:.{digits}f}, {one.saved_ms / one.before.median:.0%}",
        _predicted(one.predicted_ms, one.saved_ms, digits),
        _predicted(one.fixed_ms, one.after.median, digits),
        f"`{one.finding.edit}`" if one.finding.edit else "-",
    )
    return f"| {' | '.join(cells)} |"


def _steps(steps: Steps, digits: int) -> str:
    return _between(steps.median, steps.shortest, steps.longest, digits)


def _predicted(interval: Interval | None, measured_ms: float, digits: int) -> str:
    if interval is None:
        return "-"
    held = "" if interval.holds(measured_ms) else " outside"
    return f"{_between(interval.value, interval.low, interval.high, digits)}{held}"


def _between(value: float, low: float, high: float, digits: int) -> str:
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def summary(some: Sequence[Measured]) -> str:
    """How far predictions are off, in a line."""
    replayed = [
        (one, saves, fixed)
        for one in some
        if (saves := one.predicted_ms) is not None and (fixed := one.fixed_ms) is not None
    ]
    errors = [abs(saves.value - one.saved_ms) / one.before.median for one, saves, _ in replayed]
    remedies = {one.finding.remedy for one in some} - {None}
    saved = sum(saves.holds(one.saved_ms) for one, saves, _ in replayed)
    taken = sum(fixed.holds(one.after.median) for one, _, fixed in replayed)
    either = sum(
        saves.holds(one.saved_ms) or fixed.holds(one.after.median) for one, saves, fixed in replayed
    )
    return (
        f"{len(some)} pitfalls, {len(remedies)} remedies; half of {len(replayed)} predictions are "
        f"within {median(errors):.0%} of the step. {saved} intervals hold what the fix saves, "
        f"{taken} the step with it, {either} one of both."
    )


if __name__ == "__main__":
    main()
