"""Budgets that were checked, as text."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.base.safe_text import counted
from tracelab.comparison.budgets import BudgetResult
from tracelab.render.section import PROSE, Chapter, Section, Tone, table

_MAX_LETTERS_BESIDE = (
    24  # characters that fit beside the figures at 80 columns; more stands below them
)


def render_budgets(results: Sequence[BudgetResult], *, width: int, color: bool) -> str:
    """Return the budgets as text, each with what was found, and how many failed.

    Args:
        results: of `check`.
        width: columns of the terminal; lines are at most this long, but at least 80.
        color: whether to use the terminal's colors.
    """
    from tracelab.render.text.terminal import draw

    return draw([chapter(results)], width=width, color=color)


def chapter(results: Sequence[BudgetResult]) -> Chapter:
    """Make the table of budgets, and how many failed."""
    measured_over = windows(results)
    details = [detail(result, several_windows=len(measured_over) > 1) for result in results]
    listed = table(
        "",
        zip(results, details, strict=True),
        ("budget", lambda row: row[0].name, PROSE),
        ("found", lambda row: row[0].measured),
        ("allowed", lambda row: row[0].allowed),
        ("", lambda row: "passed" if row[0].passed else "FAILED"),
        ("where", lambda row: row[1] if len(row[1]) <= _MAX_LETTERS_BESIDE else "see below", PROSE),
    )
    below = tuple(
        f"{result.name}: {where}."
        for result, where in zip(results, details, strict=True)
        if len(where) > _MAX_LETTERS_BESIDE
    )
    measured = (f"Measured over {measured_over[0]}.",) if len(measured_over) == 1 else ()
    tone = Tone.STRONG if all(result.passed for result in results) else Tone.WARNING
    summary = Section("", (verdict(results),), tone=tone)
    return Chapter("", (listed, Section("", (*below, *measured)), summary))


def verdict(results: Sequence[BudgetResult]) -> str:
    """Say how many budgets failed."""
    failed = sum(not result.passed for result in results)
    count = counted(len(results), "budget", "budgets")
    return f"{failed} of {count} FAILED." if failed else f"{count} passed."


def windows(results: Sequence[BudgetResult]) -> list[str]:
    """Name the windows that were measured, each once."""
    return list(dict.fromkeys(result.window for result in results if result.window))


def detail(result: BudgetResult, *, several_windows: bool) -> str:
    """Say where it is, and in which window if several were measured."""
    window = result.window if several_windows else ""
    return ", ".join(filter(None, (result.where, window)))
