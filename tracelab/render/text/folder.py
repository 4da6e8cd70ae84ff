"""The first screen of files that are not one job: a line each, the most expensive first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.text import clean
from tracelab.findings.finding import INFO
from tracelab.render.document import PART, Line, Span, Tone
from tracelab.render.recordings import Recording, Recordings, recordings_of
from tracelab.render.text.hints import ONE_OF_THEM
from tracelab.render.text.wrapping import paragraph, shorten_middle, wrap
from tracelab.report.schema import Report

_MOST_ROWS = 16
_LONGEST_NAME = 32  # letters of a file's name


def folder_screen(report: Report, recordings: Sequence[Report], width: int) -> list[Line]:
    """A table of files and jobs, and how to see one of them.

    Args:
        report: of all files.
        recordings: each of a job or a file among them; the report itself where there is no job.
        width: columns of the terminal.
    """
    said = recordings_of(report, recordings)
    about = PART.join(said.about)
    notes = [f"{note.text}." for note in said.notes]
    why = [said.why] if said.why else []
    return [
        *(Line((Span(line, Tone.DIM),)) for line in paragraph(clean(about), width, 2)),
        *(Line((Span(line, Tone.WARNING),)) for text in notes for line in wrap(clean(text), width)),
        *(Line((Span(line),)) for text in why for line in wrap(clean(text), width)),
        Line(),
        *_table(said, width),
        Line(),
        Line((Span(f"Next: {ONE_OF_THEM}", Tone.DIM),)),
    ]


def _table(said: Recordings, width: int) -> Iterator[Line]:
    rows = said.rows
    shown = rows[:_MOST_ROWS]
    columns = [
        ("file", [shorten_middle(clean(row.name), _LONGEST_NAME) for row in shown], "<"),
        *(
            [("ranks", [str(len(row.ranks)) if len(row.ranks) > 1 else "" for row in shown], ">")]
            if said.has_jobs
            else []
        ),
        ("step", [row.step_text for row in shown], ">"),
        ("busy", [row.busy_text for row in shown], ">"),
        ("saves", [row.saves_text for row in shown], ">"),
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


def _first(row: Recording) -> Span:
    is_dim = row.first is None or row.first.finding.severity == INFO
    return Span(clean(row.title), Tone.DIM if is_dim else Tone.PLAIN)
