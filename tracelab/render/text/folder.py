"""The first screen of files that are not one job: a line each, the most expensive first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracelab.arrays import OneLine
from tracelab.findings.finding import INFO
from tracelab.read.file_names import short_names
from tracelab.read.rank_names import without_rank
from tracelab.render.notes import unread
from tracelab.render.text.cells import PART, counted
from tracelab.render.text.files import machines
from tracelab.render.text.hints import JOB, ONE_OF_THEM
from tracelab.render.text.savings import amount, percent
from tracelab.render.text.sections import Line, Span, Tone
from tracelab.render.text.wrapping import paragraph, shorten_middle, wrap
from tracelab.render.words import duration_text
from tracelab.report.finding_groups import FindingGroup, finding_groups
from tracelab.report.headline import headline_of
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of
from tracelab.safe_text import clean

_MOST_ROWS = 16
_LONGEST_NAME = 32  # letters of a file's name
_NONE = "-"


@dataclass(frozen=True, slots=True, repr=False)
class _Row(OneLine):
    """A file, or the files of a job.

    Attributes:
        report: of which they are.
        ranks: the files.
        first: its first finding that is worth a place; None without one.
    """

    report: Report
    ranks: tuple[RankView, ...]
    first: FindingGroup | None

    @property
    def longest(self) -> RankView:
        """The file whose step takes longest."""
        return max(self.ranks, key=lambda rank: rank.main.scope.printed_ns)

    @property
    def saves(self) -> float:
        """What all fixes save of a step, 0 to 1; what the first finding is about without prices."""
        shares = [headline_of(rank).saves_share for rank in self.ranks]
        known = [share for share in shares if share is not None]
        if known or self.first is None:
            return max(known, default=0.0)
        return self.first.scope.share_of(self.first.finding)


def folder_screen(report: Report, recordings: Sequence[Report], width: int) -> list[Line]:
    """A table of files and jobs, and how to see one of them.

    Args:
        report: of all files.
        recordings: each of a job or a file among them; the report itself where there is no job.
        width: columns of the terminal.
    """
    rows = sorted((row for one in recordings for row in _rows(one)), key=lambda x: -x.saves)
    ranks = [rank for row in rows for rank in row.ranks]
    about = PART.join((counted(len(ranks), "file", "files"), *machines(ranks)))
    decision = report.provenance.job
    why = [] if decision is None else [f"Not one job: {decision.why} ({JOB})."]
    notes = [f"{note.text}." for note in unread(report.provenance)]
    return [
        *(Line((Span(line, Tone.DIM),)) for line in paragraph(clean(about), width, 2)),
        *(Line((Span(line, Tone.WARNING),)) for text in notes for line in wrap(clean(text), width)),
        *(Line((Span(line),)) for text in why for line in wrap(clean(text), width)),
        Line(),
        *_table(rows, width),
        Line(),
        Line((Span(f"Next: {ONE_OF_THEM}", Tone.DIM),)),
    ]


def _rows(report: Report) -> Iterator[_Row]:
    ranks = [rank for rank in ranks_of(report) if rank.views]
    for some in [ranks] if report.job is not None else [[rank] for rank in ranks]:
        groups = finding_groups(report, some)
        first = next((group for group in groups if group.is_worth_showing), None)
        yield _Row(report, tuple(some), first)


def _table(rows: Sequence[_Row], width: int) -> Iterator[Line]:
    shown = rows[:_MOST_ROWS]
    names = _names(rows)[: len(shown)]
    is_with_jobs = any(len(row.ranks) > 1 for row in rows)
    columns = [
        ("file", [shorten_middle(clean(name), _LONGEST_NAME) for name in names], "<"),
        *(
            [("ranks", [str(len(row.ranks)) if len(row.ranks) > 1 else "" for row in shown], ">")]
            if is_with_jobs
            else []
        ),
        ("step", [_step(row) for row in shown], ">"),
        ("busy", [percent(headline_of(row.longest).busy_share) for row in shown], ">"),
        ("saves", [_saves(row) for row in shown], ">"),
    ]
    widths = [max(map(len, [title, *cells])) for title, cells, _ in columns]

    def line(cells: Sequence[str], last: Span, tone: Tone) -> Line:
        padded = (
            f"{cell:{align}{size}}"
            for cell, size, (_, _, align) in zip(cells, widths, columns, strict=True)
        )
        before = "  ".join(padded) + "  "
        [text, *_] = paragraph(last.text, max(10, width - len(before)), 1)
        return Line((Span(before, tone), Span(text, last.tone)))

    yield line([title for title, _, _ in columns], Span("first finding", Tone.DIM), Tone.DIM)
    for row, *cells in zip(shown, *(cells for _, cells, _ in columns), strict=True):
        yield line(cells, _first(row), Tone.PLAIN)
    if len(shown) < len(rows):
        yield Line((Span(f"… and {len(rows) - len(shown)} more", Tone.DIM),))


def _step(row: _Row) -> str:
    """What a step takes; of a file without steps that is all of it."""
    scope = row.longest.main.scope
    return duration_text(scope.printed_ns) if scope.steps else _NONE


def _saves(row: _Row) -> str:
    """What all fixes save; where nothing is predicted, what the first finding is about."""
    if row.first is None:
        return _NONE
    priced = any(headline_of(rank).saves_share is not None for rank in row.ranks)
    return percent(row.saves) if priced else amount(row.first.finding, row.first.scope)


def _first(row: _Row) -> Span:
    if row.first is None:
        return Span(_NONE, Tone.DIM)
    finding = row.first.finding
    return Span(clean(finding.title), Tone.DIM if finding.severity == INFO else Tone.PLAIN)


def _names(rows: Sequence[_Row]) -> list[str]:
    """The files' names; what those of a job have in common."""
    paths = [rank.trace.path for row in rows for rank in row.ranks]
    short = dict(zip(paths, short_names(paths), strict=True))
    return [
        short[row.ranks[0].trace.path]
        if len(row.ranks) == 1
        else without_rank(short[row.ranks[0].trace.path])
        for row in rows
    ]
