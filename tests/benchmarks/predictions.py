"""What was predicted of each fix, and what it took: ``python -m tests.benchmarks.predictions``.

Every bundled capture of a defect is replayed with the edit that its fix is. The predicted step
stands beside that of the captured fix: without the profiler where both captures know that. Nothing
is fitted on these pairs. The table is that of ``tracelab/docs/evidence/predictions.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from tests.build.pairs import Outcome, outcomes

HEAD = "| fix | defect | a step | edit | predicted | fixed | error | saved, predicted | saved |"


def main() -> None:
    found = outcomes()
    print("\n".join(table(found)))
    print()
    print("\n".join(summary(found)))


def table(some: Sequence[Outcome]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    for one in some:
        predicted = one.prediction
        interval = f"{_ms(predicted.low_ns)} to {_ms(predicted.high_ns)}"
        cells = (
            one.pair.sort,
            f"`{one.pair.defect}`",
            f"{_ms(predicted.step_ns)} ms" + ("" if one.basis == "unprofiled" else "*"),
            " ".join(f"`{edit}`" for edit in one.pair.edits),
            f"{_ms(predicted.predicted_ns)} ({interval})",
            _ms(one.measured_ns) + ("" if one.holds else " outside"),
            f"{one.error:+.1%}",
            _ms(predicted.step_ns - predicted.predicted_ns),
            _ms(predicted.step_ns - one.measured_ns),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def summary(some: Sequence[Outcome]) -> list[str]:
    """One line for each sort of fix, and one for all."""
    sorts = dict.fromkeys(one.pair.sort for one in some)
    groups = {sort: [one for one in some if one.pair.sort == sort] for sort in sorts}
    return [_summed(sort, group) for sort, group in {**groups, "all": list(some)}.items()]


def _summed(name: str, group: Sequence[Outcome]) -> str:
    errors = [abs(one.error) for one in group]
    held = sum(one.holds for one in group)
    return (
        f"{name}: {len(group)} fixes, mean error {mean(errors):.1%}, largest {max(errors):.1%}; "
        f"{held} in the interval, whose mean width is {mean(x.width for x in group):.0%}"
    )


def _ms(length_ns: float) -> str:
    return f"{length_ns / 1e6:.2f}"


if __name__ == "__main__":
    main()
