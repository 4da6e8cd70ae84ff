"""The report as text for a terminal: why the GPU is not busy, from the headline to the details."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.render.document import TOP, detailed, document_of
from tracelab.render.text.screen import screen
from tracelab.report.schema import Report

_NOTEBOOK_WIDTH = 110


def render_text(
    report: Report,
    *,
    width: int,
    color: bool,
    full: bool = False,
    every_step: bool = False,
    top: int = TOP,
    recordings: Sequence[Report] = (),
) -> str:
    """Return a report as text: a first screen, or all of it.

    Args:
        report: what was measured; no trace is needed.
        width: columns of the terminal; lines are at most this long, but at least 80.
        color: whether to use the terminal's colors.
        full: every table, not the first screen alone.
        every_step: the details of every step as well.
        top: how many kernels, lines, modules and operators the full text shows.
        recordings: of files that are not one job a report for each job among them, and for each
            other file.
    """
    from tracelab.render.text.terminal import console_width, draw

    if full or every_step:
        document = detailed(report, every_step=every_step, top=top)
        return draw(document.chapters, width=width, color=color)
    lines = screen(document_of(report, recordings), width=console_width(width))
    return draw(lines, width=width, color=color)


def render_notebook(report: Report, *, full: bool = False) -> str:
    """Return the text as HTML, for a notebook's cell: a first screen, or all of it."""
    from tracelab.render.text.terminal import draw_html

    if full:
        return draw_html(detailed(report).chapters, width=_NOTEBOOK_WIDTH)
    return draw_html(screen(document_of(report), width=_NOTEBOOK_WIDTH), width=_NOTEBOOK_WIDTH)
