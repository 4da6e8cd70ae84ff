"""The ranks of a job on the first screen: a line each, and which are unlike the others."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.render.document import Line, Span, Tone
from tracelab.render.ranks import Column, table_of_ranks
from tracelab.render.text.wrapping import paragraph
from tracelab.report.schema import Report

_SPARED = ("copies", "transfer", "waits for")  # columns, where there is no room for all


def ranks_table(report: Report, most: int, width: int) -> list[Line]:
    """So many ranks in a table, after an empty line; those that matter most are chosen."""
    table = table_of_ranks(report, most)
    columns = _fitting(table.columns, width)
    widths = _widths(columns)
    cells = [[title for title, _ in columns], *zip(*(x for _, x in columns), strict=True)]
    lines = [
        Line(
            (
                Span(
                    "  ".join(f"{cell:>{size}}" for cell, size in pairs),
                    Tone.PLAIN if i else Tone.DIM,
                ),
            )
        )
        for i, row in enumerate(cells)
        for pairs in [zip(row, widths, strict=True)]
    ]
    if table.more:
        lines.append(Line((Span(table.more, Tone.DIM),)))
    if table.unlike:
        lines += [Line((Span(line, Tone.WARNING),)) for line in paragraph(table.unlike, width, 2)]
    return [Line(), *lines]


def _widths(columns: Sequence[Column]) -> list[int]:
    return [max(map(len, [title, *cells])) for title, cells in columns]


def _fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """The columns without those that can be spared, where they need more room."""
    kept = list(columns)
    for spared in _SPARED:
        if sum(_widths(kept)) + 2 * len(kept) > room:
            kept = [(title, cells) for title, cells in kept if title != spared]
    return kept
