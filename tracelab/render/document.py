"""Documents: plain data of a report that every output draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from tracelab.base.arrays import Record
from tracelab.base.safe_text import counted
from tracelab.render.first_screen import (
    Fact,
    FirstScreen,
    facts_of,
    first_screen,
)
from tracelab.render.ranks import Ranks, ranks_of_job
from tracelab.render.recordings import Recordings, are_recordings, recordings_of
from tracelab.render.section import PART, Chapter, Section, Tone, keyed, table_of_rows
from tracelab.render.sections.files import (
    details_hint,
    file_facts,
    losses,
    machines,
    ranks,
    steps,
    unrecognised,
)
from tracelab.render.sections.findings import about_the_trace, findings, findings_of_all_ranks
from tracelab.render.sections.job import job_sections
from tracelab.render.sections.times import (
    blocking_calls,
    critical_path,
    culprits,
    graph_idle,
    idle,
    latencies,
    memory,
    overlap,
    served_steps,
    starts,
    streams,
    times,
)
from tracelab.render.sections.work import note_graphs, phases, rates, work
from tracelab.report.finding_groups import finding_groups
from tracelab.report.schema import Report
from tracelab.report.views import RankView, View, ranks_of, views_of

MAX_WORK_ROWS = 10
MAX_DETAILED_RANKS = 4


class Document(Record):
    """Verdict, findings and tables of a report, in words; `chapters` may be empty."""

    version: str
    said: FirstScreen | Recordings
    ranks: Ranks | None = None
    chapters: tuple[Chapter, ...] = ()


def document_of(report: Report, recordings: Sequence[Report] = ()) -> Document:
    """Make a document without tables."""
    if are_recordings(report):
        return Document(report.version, recordings_of(report, recordings))
    said = first_screen(report)
    return Document(report.version, said, ranks_of_job(report) if len(said.paths) > 1 else None)


def detailed(report: Report, *, every_step: bool = False, top: int = MAX_WORK_ROWS) -> Document:
    """Make a document with tables."""
    chapters = _chapters(report, every_step=every_step, top=top)
    return replace(document_of(report), chapters=tuple(chapters))


def _chapters(report: Report, *, every_step: bool, top: int) -> list[Chapter]:
    views, all_ranks = views_of(report), ranks_of(report)
    numbers = [trace.rank for trace in report.traces]
    told_apart = len(set(numbers)) == len(numbers)
    sections = opening(report)
    if report.job:
        sections[0] = replace(sections[0], lines=(*sections[0].lines, *machines(all_ranks)))
        sections.append(_said(facts_of(report, all_ranks)))
        sections += keyed("ranks", job_sections(report))
    if len(numbers) > 1:
        sections += keyed("ranks", [ranks(report, views)])
    if told_apart and len(numbers) <= MAX_DETAILED_RANKS:
        details = [
            chapter for rank in all_ranks for chapter in _rank(rank, report, every_step, top)
        ]
        return [Chapter("", tuple(sections)), *details]
    if report.job:
        sections += findings_of_all_ranks(finding_groups(report, all_ranks))
    sections += keyed("losses", losses(report.traces))
    sections += keyed("ranks", [details_hint(report)])
    return [Chapter("", tuple(sections))]


def opening(report: Report) -> list[Section]:
    """Say what was analyzed, and what could not be."""
    provenance = report.provenance
    lines = [f"tracelab {report.version}{PART}{counted(len(report.traces), 'file', 'files')}"]
    if provenance.comm_patterns:
        patterns = PART.join(provenance.comm_patterns)
        lines.append(f"Counted as communication as well: kernels that match {patterns}")
    sections = [Section("", tuple(lines))]
    if provenance.unread:
        unread = tuple(file.text for file in provenance.unread)
        sections.append(Section("Files that could not be used", unread, tone=Tone.WARNING))
    return sections


def _rank(rank: RankView, report: Report, every_step: bool, top: int) -> list[Chapter]:
    trace, in_job = rank.trace, report.job is not None
    sections = [
        file_facts(trace, rank.views, in_job=in_job),
        *keyed("losses", losses([trace])),
    ]
    if rank.views:
        view = rank.main
        sections.append(_said(facts_of(report, [rank])))
        sections += [*findings(view), *about_the_trace(view)]
        sections += text_sections(rank, view, top, report.provenance.step_pattern)
    name = f"Rank {trace.rank}{PART}" if in_job else ""
    rank_chapters = [Chapter(f"{name}{trace.path}", tuple(sections))]
    if every_step and rank.whole:
        for view in rank.steps:
            of_step = RankView(trace, None, (view,), rank.steady)
            facts = _said(facts_of(report, [of_step], with_savings=False))
            tables = text_sections(rank, view, top)
            rank_chapters.append(Chapter(f"{name}{view.name}", (facts, *tables)))
    return rank_chapters


def _said(facts: Sequence[Fact]) -> Section:
    lines = tuple(f"{fact.label}: {fact.text}" for fact in facts)
    return Section("", lines, tone=Tone.STRONG)


def text_sections(rank: RankView, view: View, top: int, pattern: str = "") -> list[Section]:
    """Make the sections about a window."""
    sections: list[tuple[str, Iterable[Section]]] = [
        ("times", times(view)),
        ("bubbles", idle(view)),
        ("bubbles", culprits(view)),
        ("bubbles", graph_idle(view)),
        ("phases", phases(view)),
        *(
            (key, chain(work(view, key, top), rates(rank, view, key, top)))
            for key in ("kernels", "lines", "modules", "operators")
        ),
        ("times", streams(view)),
        ("overlap", [overlap(view)]),
        ("blocking-calls", [blocking_calls(view)]),
        ("critical-path", critical_path(view)),
        ("starts", starts(view)),
        ("starts", latencies(view)),
        ("other", (table_of_rows(key, rows) for key, rows in view.other_tables.items() if rows)),
    ]
    if view is rank.main:
        sections += [
            ("unrecognized", unrecognised(rank.trace)),
            ("bubbles", steps(rank, pattern)),
            ("times", served_steps(rank)),
            ("memory", memory(rank)),
        ]
    made = [(key, list(some)) for key, some in sections]
    note_graphs(view, made)
    return [section for key, some in made for section in keyed(key, some)]
