"""The report as text for a terminal: why the GPU is not busy, from the headline to the details."""

from __future__ import annotations

from tracelab.render.text.cells import PART, counted
from tracelab.render.text.files import (
    all_losses,
    file_facts,
    launched_only,
    losses,
    ranks,
    steps,
    unrecognised,
)
from tracelab.render.text.findings import about_the_trace, findings, of_all_ranks, verdict
from tracelab.render.text.sections import Chapter, Section, Tone
from tracelab.render.text.window import window_sections
from tracelab.render.text.window_times import headlines
from tracelab.report.schema import Report, TraceInfo
from tracelab.report.views import View, views_of

TOP = 10  # kernels and operators that are shown
_NOTEBOOK_WIDTH = 110
_MOST_RANKS = 4  # the details of more would be a wall


def render_text(
    report: Report, *, width: int, color: bool, every_step: bool = False, top: int = TOP
) -> str:
    """The report as text.

    Args:
        report: what was measured; no trace is needed.
        width: columns of the terminal; lines are at most this long, but at least 80.
        color: whether to use the terminal's colors.
        every_step: show the details of every step, not of the whole trace alone.
        top: how many kernels and operators to show.
    """
    from tracelab.render.text.terminal import draw

    return draw(chapters(report, every_step=every_step, top=top), width=width, color=color)


def render_notebook(report: Report) -> str:
    """The text as HTML, for a notebook's cell."""
    from tracelab.render.text.terminal import draw_html

    return draw_html(chapters(report), width=_NOTEBOOK_WIDTH)


def chapters(report: Report, *, every_step: bool = False, top: int = TOP) -> list[Chapter]:
    """Everything that the text says, in order."""
    views = views_of(report)
    numbers = [trace.rank for trace in report.traces]
    told_apart = len(set(numbers)) == len(numbers)
    opening = _opening(report)
    if len(numbers) > 1:
        opening.append(ranks(report, views))
    if told_apart and len(numbers) <= _MOST_RANKS:
        details = [
            chapter
            for trace in report.traces
            for chapter in _rank(trace, report, views, every_step, top)
        ]
        return [Chapter("", tuple(opening)), *details]
    if report.job:
        opening += of_all_ranks(views)
    opening += all_losses(report.traces)
    if told_apart:
        whose = "rank, analyze its file" if report.job else "file, analyze it"
        opening.append(Section("", (f"For the details of one {whose} alone.",)))
    else:
        warning = "Several files say that they are the same rank: analyze them one by one."
        opening.append(Section("", (warning,), tone=Tone.WARNING))
    return [Chapter("", tuple(opening))]


def _opening(report: Report) -> list[Section]:
    """What was analyzed, and what could not be."""
    provenance = report.provenance
    lines = [f"tracelab {report.version}{PART}{counted(len(report.traces), 'file', 'files')}"]
    if provenance.comm_patterns:
        patterns = PART.join(provenance.comm_patterns)
        lines.append(f"Counted as communication as well: kernels that match {patterns}")
    sections = [Section("", tuple(lines))]
    if provenance.unread:
        unread = tuple(
            file.reason if file.path in file.reason else f"{file.path}: {file.reason}"
            for file in provenance.unread
        )
        sections.append(Section("Files that could not be used", unread, tone=Tone.WARNING))
    return sections


def _rank(
    trace: TraceInfo, report: Report, views: list[View], every_step: bool, top: int
) -> list[Chapter]:
    """One file: the whole trace, or the one step that was asked for, then its steps."""
    of_rank = [view for view in views if view.window.rank == trace.rank]
    whole = [view for view in of_rank if view.window.step is None]
    of_steps = [view for view in of_rank if view.window.step is not None]
    sections = [file_facts(trace, of_rank, in_job=report.job is not None), *losses(trace)]
    for view in (whole or of_rank)[:1]:
        summary = [verdict(view)] if view.length_ns > 0 else []
        sections.append(_strong((*summary, *headlines(view))))
        sections += [*findings(view), *about_the_trace(view)]
        sections += [*window_sections(view, top), *unrecognised(trace)]
        sections += launched_only(trace, view)
        if whole:
            sections.append(steps(of_steps, report.provenance.step_pattern))
    name = f"Rank {trace.rank}{PART}" if report.job else ""
    rank_chapters = [Chapter(f"{name}{trace.path}", tuple(sections))]
    if every_step and whole:
        rank_chapters += [
            Chapter(f"{name}{view.name}", (_strong(headlines(view)), *window_sections(view, top)))
            for view in of_steps
        ]
    return rank_chapters


def _strong(lines: tuple[str, ...]) -> Section:
    return Section("", lines, tone=Tone.STRONG)
