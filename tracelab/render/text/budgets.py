"""Budgets that were checked, as text."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.comparison.budgets import BudgetResult
from tracelab.render.text.cells import counted
from tracelab.render.text.sections import Chapter, Column, Fit, Section, Tone

_MOST_BESIDE = 24  # characters that fit beside the figures at 80 columns; more stands below them


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
    windows = list(dict.fromkeys(result.window for result in results if result.window))
    details = [_detail(result, several_windows=len(windows) > 1) for result in results]
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
                detail if len(detail) <= _MOST_BESIDE else "see below",
            )
            for result, detail in zip(results, details, strict=True)
        ),
    )
    below = tuple(
        f"{result.name}: {detail}."
        for result, detail in zip(results, details, strict=True)
        if len(detail) > _MOST_BESIDE
    )
    verdict = f"{failed} of {count} FAILED." if failed else f"{count} passed."
    measured = (f"Measured over {windows[0]}.",) if len(windows) == 1 else ()
    summary = Section("", (verdict,), tone=Tone.WARNING if failed else Tone.STRONG)
    return Chapter("", (table, Section("", (*below, *measured)), summary))


def _detail(result: BudgetResult, *, several_windows: bool) -> str:
    """Where it is, and in which window where not all were measured in the same."""
    window = result.window if several_windows else ""
    return ", ".join(filter(None, (result.where, window)))
