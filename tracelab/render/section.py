"""Sections of a document as data, for text, page and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from enum import Enum
from itertools import accumulate
from typing import Any, TypeVar

from tracelab.base.arrays import Record
from tracelab.base.safe_text import clean, counted
from tracelab.findings.finding import CRITICAL, INFO, WARNING
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.words import UNITS, Quantity, shorten
from tracelab.report.schema import JOINT, Figure, Table

NONE = "none"  # a missing overlap
PART = " · "  # separates parts of a cell

_MAX_ROWS = 10
_MAX_SHOWN_ROWS = 20
_MAX_CELL_LETTERS, _MAX_NARROW_LETTERS = 60, 24
_EMPTY = ("", "-")
_KEYS = ("rank", "step")

_Row = TypeVar("_Row")


class Fit(Enum):
    """Behavior of a column in little room."""

    NUMBER = "to the right, never cut"
    LABEL = "its parts may stand below each other, each shortened in the middle"
    BRIEF = "its later parts may be left out"
    PROSE = "wrapped between words"


class Tone(Enum):
    """Loudness of a section or of a part of a line."""

    PLAIN = "plain"
    STRONG = "strong"
    DIM = "dim"
    WARNING = "warning"
    CRITICAL = "critical"


LABEL, BRIEF, PROSE = Fit.LABEL, Fit.BRIEF, Fit.PROSE
TONES = {CRITICAL: Tone.CRITICAL, WARNING: Tone.WARNING, INFO: Tone.DIM}


class Column(Record):
    """A column of a table; its title may break into lines."""

    title: str
    fit: Fit = Fit.NUMBER


class Section(Record):
    """Optional sentences, table and notes; sections of one key are one part of the page."""

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    tone: Tone = Tone.PLAIN
    key: str = ""


class Chapter(Record):
    """Sections about one file or step."""

    title: str
    sections: tuple[Section, ...]


class Span(Record):
    """A part of a line."""

    text: str
    tone: Tone = Tone.PLAIN


class Line(Record):
    """One line, neither wrapped nor indented, and cut if too long."""

    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(span.text for span in self.spans)


# Title, text of a cell (or a field), behavior of a column.
Text = Callable[[_Row], str]
Cell = tuple[str, Text[_Row] | str, Fit] | tuple[str, Text[_Row] | str]


def table(
    title: str,
    rows: Iterable[_Row],
    *columns: Cell[_Row] | bool,
    most: int | None = None,
    noun: str = "row",
    lines: Iterable[str] = (),
    notes: Iterable[str] = (),
    tone: Tone = Tone.PLAIN,
) -> Section:
    """Make a section with a table of any rows.

    False columns are left out; beyond `most` rows a note counts the others.
    """
    kept = [column for column in columns if not isinstance(column, bool)]
    texts = [_text_of(text) if isinstance(text, str) else text for _, text, *_ in kept]
    shown = list(rows)
    left_out = 0 if most is None else len(shown[most:])
    more = f"… and {counted(left_out, noun, f'{noun}s')} more {ALL_IN_JSON}."
    return Section(
        title,
        tuple(lines),
        tuple(Column(heading, *fit) for heading, _, *fit in kept),
        tuple(tuple(text(row) for text in texts) for row in shown[:most]),
        (*([more] if left_out else []), *notes),
        tone,
    )


def keyed(key: str, sections: Iterable[Section]) -> list[Section]:
    """Give sections a key."""
    return [replace(section, key=key) for section in sections]


# --- tables by the names of their columns ---


def table_of_rows(key: str, rows: Sequence[Any]) -> Section:
    """Make a table of dataclass rows, without rank and step."""
    names = [x.name for x in fields(rows[0]) if x.name not in _KEYS]
    fits = [cell(name, getattr(rows[0], name))[1] for name in names]
    columns = [
        (column_title(name), _text_of(name), fit) for name, fit in zip(names, fits, strict=True)
    ]
    return table(table_title(key), rows, *columns, most=_MAX_ROWS)


def table_section(rows: Table[Any], room: int | None = None) -> Section:
    """Make a table of the first rows; columns beyond `room` letters are only named."""
    cells = {
        name: [_cell_of(name, value) for value in values]
        for name, values in rows[:_MAX_SHOWN_ROWS].columns.items()
    }
    cells = {name: some for name, some in cells.items() if any(x not in _EMPTY for x, _ in some)}
    longest = ([name, *(x[:_MAX_NARROW_LETTERS] for x, _ in some)] for name, some in cells.items())
    ends = accumulate(max(map(len, texts)) + 1 for texts in longest)
    names = [name for name, end in zip(cells, ends, strict=True) if room is None or end <= room]
    left_out, others = len(rows[_MAX_SHOWN_ROWS:]), list(cells)[len(names) :]
    return Section(
        "",
        lines=() if rows else ("no rows",),
        columns=tuple(Column(name, _fit_of(cells[name])) for name in names),
        rows=tuple(zip(*([text for text, _ in cells[name]] for name in names), strict=True)),
        notes=(
            *([f"… and {counted(left_out, 'row', 'rows')} more"] if left_out else []),
            *([f"further columns: {', '.join(others)}"] if others else []),
        ),
    )


def _fit_of(cells: Iterable[tuple[str, Fit]]) -> Fit:
    return Fit.LABEL if any(fit is Fit.LABEL for _, fit in cells) else Fit.NUMBER


def _cell_of(name: str, value: Any) -> tuple[str, Fit]:
    if not isinstance(value, str | list):
        units = (part.rpartition("_")[2] for part in reversed(name.split(".")))
        return cell(name, value, next((unit for unit in units if unit in UNITS), ""))
    items = [value] if isinstance(value, str) else [_cell_of(name, item)[0] for item in value]
    text = clean(JOINT.join(items))
    return Quantity(shorten(text, _MAX_CELL_LETTERS), text), Fit.LABEL


def figure_columns(rows: Sequence[_Row], figures: Iterable[Figure]) -> list[Cell[_Row]]:
    """Make the columns of figures that any row knows."""
    known = [x for x in figures if any(getattr(row, x.name) is not None for row in rows)]
    return [(figure.title, _text_of(figure.name, figure.unit)) for figure in known]


def _text_of(name: str, unit: str = "") -> Callable[[Any], str]:
    return lambda row: cell(name, getattr(row, name), unit)[0]


def table_title(key: str) -> str:
    """Write the key of a table as words."""
    return key.replace("_", " ").capitalize()


def column_title(name: str) -> str:
    """Write a name as words, without its unit."""
    start, _, unit = name.rpartition("_")
    return (start if start and unit in UNITS else name).replace("_", " ")


def cell(name: str, value: Any, unit: str = "") -> tuple[str, Fit]:
    """Format a value by its type and the unit in its column's name."""
    unit = unit or name.rpartition("_")[2]
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value], Fit.NUMBER
    if isinstance(value, int | float):
        is_written = unit in UNITS and math.isfinite(1e6 * value)
        return UNITS[unit](value) if is_written else f"{value:,}", Fit.NUMBER
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(name, part)[0]}" for key, part in value.items()), Fit.PROSE
    return value if isinstance(value, str) else str(value), Fit.LABEL
