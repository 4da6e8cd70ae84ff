"""Budgets that were checked, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.comparison.budgets import BudgetResult
from tracelab.render.markdown.blocks import cell, comment, table
from tracelab.render.text.budgets import detail, verdict, windows

_TITLES = ("budget", "found", "allowed", "", "where")


def render_budgets(results: Sequence[BudgetResult]) -> str:
    """Return the budgets as a comment: how many failed, then each, those that failed first."""
    several = len(windows(results)) > 1
    rows = (
        (
            cell(result.name),
            cell(result.measured),
            cell(result.allowed),
            "passed" if result.passed else "**FAILED**",
            cell(detail(result, several_windows=several)),
        )
        for result in sorted(results, key=lambda result: result.passed)
    )
    measured = f"Measured over {cell(windows(results)[0])}." if len(windows(results)) == 1 else ""
    heading = f"### tracelab check: {verdict(results).rstrip('.')}"
    return comment("check", [heading, table(_TITLES, rows), measured])
