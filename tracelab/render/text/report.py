"""Results as text for a terminal: reports, predictions, differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracelab.render.document import MAX_WORK_ROWS, detailed, document_of
from tracelab.render.section import PART, Chapter, Section
from tracelab.render.sections.predictions import causal_section, prediction_sections
from tracelab.render.text.hints import COMPARE_WITH_PREDICTION
from tracelab.render.text.screen import screen
from tracelab.report.schema import Report, WhatIf

if TYPE_CHECKING:  # what a difference is made of is not needed to show one trace
    from tracelab.comparison.diff import Diff

_NOTEBOOK_WIDTH = 110


def render_text(
    report: Report,
    *,
    width: int,
    color: bool,
    full: bool = False,
    every_step: bool = False,
    top: int = MAX_WORK_ROWS,
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


def render_diff(diff: Diff, *, width: int, color: bool) -> str:
    """Return what changed as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.sections.diff import chapters
    from tracelab.render.text.terminal import draw

    return draw(chapters(diff), width=width, color=color)


def render_whatif(whatif: WhatIf, *, width: int, color: bool) -> str:
    """Return predictions as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.text.terminal import draw

    return draw([Chapter("", tuple(prediction_sections(whatif)))], width=width, color=color)


def render_predictions(report: Report, *, width: int, color: bool) -> str:
    """Return all that ``tracelab whatif`` prints of a report: predictions, then the profile."""
    from tracelab.render.text.terminal import draw

    first, *others = report.traces
    what = f"a job of {len(report.traces)} ranks{PART}{first.path}" if others else first.path
    shown = [Section("", (f"tracelab {report.version}{PART}{what}",))]
    if report.whatif is not None:
        shown += prediction_sections(report.whatif)
        if report.whatif.predictions:
            shown.append(Section("", notes=(COMPARE_WITH_PREDICTION,)))
    if report.causal or report.whatif is None:
        shown.append(causal_section(report.causal, next(iter(report.savings), None)))
    return draw([Chapter("", tuple(shown))], width=width, color=color)
