"""Budgets that were checked, as text."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.comparison.budgets import BudgetResult
from tracelab.render.text.cells import counted
from tracelab.render.text.sections import Chapter, Column, Fit, Section, Tone


def render_budgets(results: Sequence[BudgetResult], *, width: int, color: bool) -> str:
    """The budgets, each with what was found, and how many failed.

    Args:
        results: of `check`.
        width: columns of the terminal; lines are at most this long, but at least 80.
        color: whether to use the terminal's colors.
    """
    from tracelab.render.text.terminal import draw

    return draw([chapter(results)], width=width, color=color)


def chapter(results: Sequence[BudgetResult]) -> Chapter:
    """Everything that the text says."""
    failed = sum(not result.passed for result in results)
    count = counted(len(results), "budget", "budgets")
    table = Section(
        "",
        columns=(
            Column("budget", Fit.PROSE),
            Column("found"),
            Column("allowed"),
            Column(""),
            Column("where", Fit.PROSE),
        ),
        rows=tuple(
            (
                result.name,
                result.measured,
                result.allowed,
                "passed" if result.passed else "FAILED",
                result.where,
            )
            for result in results
        ),
    )
    verdict = f"{failed} of {count} FAILED." if failed else f"{count}, passed."
    summary = Section("", (verdict,), tone=Tone.WARNING if failed else Tone.STRONG)
    return Chapter("", (table, summary))
