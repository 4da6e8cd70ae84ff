"""Sections of a document as data: sentences, tables and notes, in chapters.

Makers in `tracelab.render.sections` fill them from a report; text, page and Markdown draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.safe_text import counted
from tracelab.findings.finding import CRITICAL, INFO, WARNING

NONE = "none"  # an overlap that is missing
PART = " · "  # between the parts of a cell that may stand on lines of their own

_Row = TypeVar("_Row")


class Fit(Enum):
    """Behavior of a column where there is little room."""

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
TONES = {CRITICAL: Tone.CRITICAL, WARNING: Tone.WARNING, INFO: Tone.DIM}  # of findings


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; in its title a line may end."""

    title: str
    fit: Fit = Fit.NUMBER


@dataclass(frozen=True, slots=True, repr=False)
class Section(OneLine):
    """Sentences, a table and notes below it, under a title; each may be missing."""

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, repr=False)
class Chapter(OneLine):
    """Sections about one file or one step."""

    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, repr=False)
class Line(OneLine):
    """One line, drawn as it is: neither wrapped nor indented, and cut where it is too long."""

    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(span.text for span in self.spans)


# A column's title, the text of its cell in a row, and how the column behaves.
Cell = tuple[str, Callable[[_Row], str], Fit] | tuple[str, Callable[[_Row], str]]


def table(
    title: str,
    rows: Iterable[_Row],
    *columns: Cell[_Row] | bool,
    lines: Iterable[str] = (),
    notes: Iterable[str] = (),
    tone: Tone = Tone.PLAIN,
) -> Section:
    """Make a section with a table of rows of any type; a column that is False is left out.

    Example:
        >>> rows = [("item", 2)]
        >>> table("Calls", rows, ("name", lambda x: x[0]), ("count", lambda x: str(x[1]))).rows
        (('item', '2'),)
    """
    shown = [column for column in columns if not isinstance(column, bool)]
    return Section(
        title,
        tuple(lines),
        tuple(Column(heading, *fit) for heading, _, *fit in shown),
        tuple(tuple(text(row) for _, text, *_ in shown) for row in rows),
        tuple(notes),
        tone,
    )


def more_rows(left_out: int, one: str, many: str, where: str) -> list[str]:
    """Note how many rows a table leaves out; nothing if it leaves out none."""
    return [f"… and {counted(left_out, one, many)} more {where}."] if left_out else []
