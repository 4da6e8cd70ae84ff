"""Results as text for a terminal, or as HTML for a notebook, drawn with rich.

Text of files is cleaned here, and never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from tracelab.base.arrays import Record
from tracelab.base.safe_text import clean
from tracelab.findings.finding import Finding
from tracelab.render.document import MAX_WORK_ROWS, Document, detailed, document_of
from tracelab.render.first_screen import FirstScreen
from tracelab.render.section import (
    NONE,
    PART,
    Chapter,
    Column,
    Fit,
    Line,
    Section,
    Tone,
    table_section,
)
from tracelab.render.sections.findings import causal_section, finding_section, prediction_sections
from tracelab.render.text.hints import COMPARE_WITH_PREDICTION
from tracelab.render.text.screen import screen
from tracelab.render.words import Quantity, shorten_middle, wrap
from tracelab.report.schema import Report, Table, WhatIf

if TYPE_CHECKING:
    from tracelab.comparison.diff import Diff

# A narrower report would cut numbers, which misleads more than long lines.
_MIN_WIDTH = 80
_INDENT = 2
# Tables need unwrapped lines of one font, which pages would style.
_PAGE_PART = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:1.3;font-size:13px;'
    "font-family:Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;"
    'font-variant-ligatures:none;letter-spacing:0">{code}</pre>'
)
_TONES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.DIM: "dim",
    Tone.WARNING: "yellow",
    Tone.CRITICAL: "red",
}
_NOTEBOOK_WIDTH = 110
_PAGE = "report.show()"
_RECORD = "with tracelab.capture() as cap (records steps)"
_CELL = "<{0} style='text-align:{1};white-space:nowrap;padding:2px 8px' title='{2}'>{3}</{0}>"


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
        report: no trace is needed.
        width: of the lines, at least 80.
        color: use the terminal's colors.
        full: every table, not the first screen alone.
        every_step: the details of every step as well.
        top: rows of kernels, lines, modules and operators.
        recordings: a report of each file that is not of one job.
    """
    if full or every_step:
        document = detailed(report, every_step=every_step, top=top)
        return draw(document.chapters, width=width, color=color)
    lines = screen(document_of(report, recordings), width=max(width, _MIN_WIDTH))
    return draw(lines, width=width, color=color)


def render_result(result: Diff | WhatIf | Finding | Table[Any], *, width: int, color: bool) -> str:
    """Return any other result as text."""
    return draw(parts_of(result, width), width=width, color=color)


def parts_of(result: Diff | WhatIf | Finding | Table[Any], width: int) -> Sequence[Chapter]:
    """Return the parts of a result."""
    match result:
        case WhatIf():
            return [Chapter("", tuple(prediction_sections(result)))]
        case Finding():
            return [Chapter("", (finding_section(result),))]
        case Table():
            return [Chapter("", (table_section(result, room=max(width, _MIN_WIDTH)),))]
    from tracelab.render.sections.diff import chapters

    return chapters(result)


def render_predictions(report: Report, *, width: int, color: bool) -> str:
    """Return the output of ``tracelab whatif``."""
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


# --- drawing ---


def draw(parts: Iterable[Chapter | Line], *, width: int, color: bool) -> str:
    """Draw lines of this width, but at least 80 columns."""
    console = _console(width, color=color)
    with console.capture() as captured:
        _draw(console, parts)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n") + "\n"


def html_of(parts: Iterable[Chapter | Line], width: int) -> str:
    """Return HTML of one font, for a part of a page."""
    console = _console(width, color=True, record=True)
    _draw(console, parts)
    return console.export_html(code_format=_PAGE_PART, inline_styles=True)


def _console(width: int, *, color: bool, record: bool = False) -> Console:
    return Console(
        file=StringIO(),
        record=record,
        width=max(width, _MIN_WIDTH),
        height=100,
        color_system="standard" if color else None,
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )


def _draw(console: Console, parts: Iterable[Chapter | Line]) -> None:
    for part in parts:
        if isinstance(part, Chapter):
            _draw_chapter(console, part)
        else:
            spans = [(clean(span.text), _TONES[span.tone]) for span in part.spans]
            console.print(Text.assemble(*spans), no_wrap=True, overflow="ellipsis", crop=True)


class _Label(Record):
    """A shortened name; parts beyond a line go below or are left out."""

    text: str
    style: str
    brief: bool

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = cell_len(self.text)
        return Measurement(min(longest, 8), longest)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = _packed(self.text.split(PART), options.max_width)
        for line in lines[:1] if self.brief else lines:
            yield Text(line, style=self.style, no_wrap=True, overflow="crop")


def _packed(parts: Sequence[str], room: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{PART}{part}" if lines else part
        if lines and cell_len(longer) <= room:
            lines[-1] = longer
        else:
            lines.append(shorten_middle(part, room))
    return lines


def _draw_chapter(console: Console, chapter: Chapter) -> None:
    if chapter.title:
        title = shorten_middle(clean(chapter.title), console.width - 8)
        rest = "─" * (console.width - cell_len(title) - 4)
        console.print()
        console.print(Text.assemble(("── ", "dim"), (title, "bold"), (f" {rest}", "dim")))
    for section in chapter.sections:
        console.print()
        _draw_section(console, section)


def _draw_section(console: Console, section: Section) -> None:
    style = _TONES[section.tone]
    if section.title:
        console.print(
            Text(clean(section.title), style=f"bold {style}", no_wrap=True, overflow="ellipsis")
        )
    indent = _INDENT if section.title else 0
    room = console.width - indent
    parts: list[RenderableType] = []
    if section.lines:
        parts.append(_sentences(section.lines, room, style))
    if section.lines and section.rows:
        parts.append("")
    if section.rows:
        parts.append(_table(section, style))
    if section.notes:
        parts.append(_sentences(section.notes, room, "dim"))
    console.print(Padding(Group(*parts), (0, 0, 0, indent)))


def _sentences(sentences: Iterable[str], room: int, style: str) -> Text:
    lines = [line for text in sentences for line in wrap(clean(text), room)]
    return Text("\n".join(lines), style=style, no_wrap=True)


def _table(section: Section, style: str) -> Grid:
    table = Grid(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
        border_style="dim",
        show_header=any(column.title for column in section.columns),
    )
    for column in section.columns:
        table.add_column(
            Text(column.title),
            justify="right" if column.fit is Fit.NUMBER else "left",
            no_wrap=column.fit is Fit.NUMBER,
            vertical="top",
        )
    for row in section.rows:
        cells = zip(section.columns, row, strict=True)
        table.add_row(*(_cell(column, clean(text), style) for column, text in cells))
    return table


def _cell(column: Column, text: str, style: str) -> RenderableType:
    if column.fit in (Fit.LABEL, Fit.BRIEF):
        return _Label(text, style, brief=column.fit is Fit.BRIEF)
    if column.fit is Fit.PROSE:
        return Text(text, style=style or "dim", overflow="fold")
    return Text(text, style="yellow" if text == NONE else style)


def render_notebook(result: Report | WhatIf | Diff | Finding, *, full: bool = False) -> str:
    """Return a result as HTML; of a report a first screen, or all of it."""
    if not isinstance(result, Report):
        return html_of(parts_of(result, _NOTEBOOK_WIDTH), _NOTEBOOK_WIDTH)
    if full:
        return html_of(detailed(result).chapters, _NOTEBOOK_WIDTH)
    return html_of(
        screen(_name_calls(document_of(result)), width=_NOTEBOOK_WIDTH, full=_PAGE), _NOTEBOOK_WIDTH
    )


def _name_calls(document: Document) -> Document:
    said = document.said
    if not isinstance(said, FirstScreen) or not said.next:
        return document
    calls = [_RECORD]
    if said.items:
        number, is_priced = said.items[0].number, said.items[0].finding.saves_ns is not None
        calls = [f"{_PAGE} (page)", f"report.findings[{number - 1}]"]
        calls += [f"tracelab.whatif(FILE, fixes={number})"] if is_priced else []
    return replace(document, said=replace(said, next=tuple(calls)))


def render_table(table: Table[Any]) -> str:
    """Return the first rows of a table as HTML, with exact figures as tooltips."""
    section = table_section(table)
    head = "".join(_html_cell("th", column.title, column.fit) for column in section.columns)
    rows = "".join(f"<tr>{_html_row(section, row)}</tr>" for row in section.rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in (*section.lines, *section.notes))
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div style='overflow-x:auto'>{shown if section.rows else ''}{notes}</div>"


def _html_row(section: Section, texts: tuple[str, ...]) -> str:
    columns = zip(section.columns, texts, strict=True)
    return "".join(_html_cell("td", text, column.fit) for column, text in columns)


def _html_cell(tag: str, text: str, fit: Fit) -> str:
    side = "right" if fit is Fit.NUMBER else "left"
    exact = text.exact if isinstance(text, Quantity) else ""
    return _CELL.format(tag, side, escape(exact), escape(text))
