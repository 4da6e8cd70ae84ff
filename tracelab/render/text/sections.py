"""The text report as data: chapters of sections, and the windows that they are made from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tracelab.base.arrays import OneLine
from tracelab.findings.finding import CRITICAL, INFO, WARNING
from tracelab.measures.window_times import DeviceMetrics
from tracelab.render.text.cells import PART
from tracelab.report.views import View

NONE = "none"  # an overlap that is missing


class Fit(Enum):
    """How a column behaves where there is little room."""

    NUMBER = "to the right, never cut"
    LABEL = "its parts may stand below each other, each shortened in the middle"
    BRIEF = "its later parts may be left out"
    PROSE = "wrapped between words"


class Tone(Enum):
    """How loudly a section or a part of a line speaks."""

    PLAIN = "plain"
    STRONG = "strong"
    DIM = "dim"
    WARNING = "warning"
    CRITICAL = "critical"


TONES = {CRITICAL: Tone.CRITICAL, WARNING: Tone.WARNING, INFO: Tone.DIM}  # of findings


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, repr=False)
class Line(OneLine):
    """One line, drawn as it is: it is neither wrapped nor indented, and cut where it is too long.

    Example: ``Line((Span("1. up to 5.9 %", Tone.WARNING), Span("  `item` makes the host wait")))``.
    """

    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(span.text for span in self.spans)


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


def section_title(view: View, title: str, device: DeviceMetrics) -> str:
    """The title of a section about a device, which it names where there are several."""
    return f"{title}{PART}GPU {device.device}" if view.several else title
