"""The report as text for a terminal: why the GPU is not busy, from the headline to the details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracelab.base.text import counted
from tracelab.render.document import PART, Chapter, Section, Tone
from tracelab.render.facts import Fact, facts_of_file, facts_of_job
from tracelab.render.sections.files import (
    all_losses,
    file_facts,
    for_details,
    losses,
    machines,
    ranks,
)
from tracelab.render.sections.findings import about_the_trace, findings, of_all_ranks
from tracelab.render.sections.job import job_sections
from tracelab.render.sections.registry import Subject, text_sections
from tracelab.render.sections.times import headlines
from tracelab.render.text.screen import screen
from tracelab.report.finding_groups import finding_groups
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of, views_of

TOP = 10  # kernels, lines, modules and operators that are shown
_NOTEBOOK_WIDTH = 110
MOST_RANKS = 4  # the details of more would be a wall


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
    """The report as text: a first screen, or all of it.

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
        return draw(chapters(report, every_step=every_step, top=top), width=width, color=color)
    lines = screen(report, width=console_width(width), recordings=recordings)
    return draw(lines, width=width, color=color)


def render_notebook(report: Report, *, full: bool = False) -> str:
    """The text as HTML, for a notebook's cell: a first screen, or all of it."""
    from tracelab.render.text.terminal import draw_html

    parts = chapters(report) if full else screen(report, width=_NOTEBOOK_WIDTH)
    return draw_html(parts, width=_NOTEBOOK_WIDTH)


def chapters(report: Report, *, every_step: bool = False, top: int = TOP) -> list[Chapter]:
    """Everything that the full text says, in order."""
    views, all_ranks = views_of(report), ranks_of(report)
    numbers = [trace.rank for trace in report.traces]
    told_apart = len(set(numbers)) == len(numbers)
    opening = _opening(report)
    if report.job:
        opening[0] = replace(opening[0], lines=(*opening[0].lines, *machines(all_ranks)))
        opening += [_said(facts_of_job(report, all_ranks)), *job_sections(report)]
    if len(numbers) > 1:
        opening.append(ranks(report, views))
    if told_apart and len(numbers) <= MOST_RANKS:
        details = [
            chapter for rank in all_ranks for chapter in _rank(rank, report, every_step, top)
        ]
        return [Chapter("", tuple(opening)), *details]
    if report.job:
        opening += of_all_ranks(finding_groups(report, all_ranks))
    opening += all_losses(report.traces)
    opening.append(for_details(report))
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


def _rank(rank: RankView, report: Report, every_step: bool, top: int) -> list[Chapter]:
    """One file: the whole trace, or the one step that was asked for, then its steps."""
    trace, in_job = rank.trace, report.job is not None
    sections = [file_facts(trace, rank.views, in_job=in_job), *losses(trace)]
    if rank.views:
        view = rank.main
        sections.append(_said(facts_of_file(rank)))
        sections += [*findings(view), *about_the_trace(view)]
        sections += text_sections(Subject(rank, view, top, report.provenance.step_pattern))
    name = f"Rank {trace.rank}{PART}" if in_job else ""
    rank_chapters = [Chapter(f"{name}{trace.path}", tuple(sections))]
    if every_step and rank.whole:
        rank_chapters += [
            Chapter(
                f"{name}{view.name}",
                (_strong(headlines(view)), *text_sections(Subject(rank, view, top))),
            )
            for view in rank.steps
        ]
    return rank_chapters


def _said(facts: Sequence[Fact]) -> Section:
    """The facts of the first screen."""
    return _strong(tuple(f"{fact.label}: {fact.text}" for fact in facts))


def _strong(lines: tuple[str, ...]) -> Section:
    return Section("", lines, tone=Tone.STRONG)
