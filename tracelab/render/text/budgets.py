"""Budgets that were checked, as text."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.comparison.budgets import Result
from tracelab.system.console import output_in_color, output_width


def budgets_text(results: Sequence[Result]) -> str:
    """The budgets, each with what was found, and how many are broken."""
    from tracelab.render.text.sections import Chapter, Column, Fit, Section, Tone
    from tracelab.render.text.terminal import draw

    broken = sum(not result.kept for result in results)
    count = f"{len(results)} budget{'s' if len(results) != 1 else ''}"
    verdict = f"{broken} of {count} BROKEN." if broken else f"{count}, kept."
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
            (x.name, x.found, x.allowed, "kept" if x.kept else "BROKEN", x.where) for x in results
        ),
    )
    head = Section("", (verdict,), tone=Tone.WARNING if broken else Tone.STRONG)
    return draw([Chapter("", (table, head))], width=output_width(), color=output_in_color())
