"""Results as HTML for a notebook's cell: text as in a terminal, and tables that can be copied."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from tracelab.findings.finding import Finding
from tracelab.render.document import Document, detailed, document_of
from tracelab.render.first_screen import FirstScreen
from tracelab.render.section import Fit, Section, table_section
from tracelab.render.text.report import html_of, parts_of
from tracelab.render.text.screen import screen
from tracelab.render.words import Quantity
from tracelab.report.schema import Report, Table, WhatIf

if TYPE_CHECKING:
    from tracelab.comparison.diff import Diff

_WIDTH = 110
_PAGE = "report.show()"
_RECORD = "with tracelab.capture() as cap (records steps)"
_CELL = "<{0} style='text-align:{1};white-space:nowrap;padding:2px 8px' title='{2}'>{3}</{0}>"


def render_notebook(result: Report | WhatIf | Diff | Finding, *, full: bool = False) -> str:
    """Return the text of a result as HTML; of a report a first screen, or all of it."""
    if not isinstance(result, Report):
        return html_of(parts_of(result, _WIDTH), _WIDTH)
    if full:
        return html_of(detailed(result).chapters, _WIDTH)
    return html_of(screen(_name_calls(document_of(result)), width=_WIDTH, full=_PAGE), _WIDTH)


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
    """Return the first rows of a table as HTML, with exact figures where the mouse rests."""
    section = table_section(table)
    head = "".join(_cell("th", column.title, column.fit) for column in section.columns)
    rows = "".join(f"<tr>{_row(section, row)}</tr>" for row in section.rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in (*section.lines, *section.notes))
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div style='overflow-x:auto'>{shown if section.rows else ''}{notes}</div>"


def _row(section: Section, texts: tuple[str, ...]) -> str:
    columns = zip(section.columns, texts, strict=True)
    return "".join(_cell("td", text, column.fit) for column, text in columns)


def _cell(tag: str, text: str, fit: Fit) -> str:
    side = "right" if fit is Fit.NUMBER else "left"
    exact = text.exact if isinstance(text, Quantity) else ""
    return _CELL.format(tag, side, escape(exact), escape(text))
