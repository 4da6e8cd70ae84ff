"""The text report as data: chapters of sections, and the windows that they are made from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum

from tracelab.findings.finding import Finding
from tracelab.render.text.cells import PART
from tracelab.report.schema import (
    BlockingCallMetrics,
    CriticalPathMetrics,
    CulpritMetrics,
    DeviceMetrics,
    OverlapMetrics,
    Report,
    WindowMetrics,
)

NONE = "none"  # an overlap that is missing


class Fit(Enum):
    """How a column behaves where there is little room."""

    NUMBER = "to the right, never cut"
    LABEL = "its parts may stand below each other, each shortened in the middle"
    BRIEF = "its later parts may be left out"
    PROSE = "wrapped between words"


class Tone(Enum):
    """How loudly a section speaks."""

    PLAIN = "plain"
    STRONG = "strong"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; in its title a line may end."""

    title: str
    fit: Fit = Fit.NUMBER


@dataclass(frozen=True, slots=True)
class Section:
    """Sentences, a table and notes below it, under a title; each may be missing."""

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections about one file or one step."""

    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Everything that the report says of one window."""

    window: WindowMetrics
    overlaps: tuple[OverlapMetrics, ...]
    syncs: tuple[BlockingCallMetrics, ...]
    path: CriticalPathMetrics | None
    findings: tuple[Finding, ...]
    holders: tuple[CulpritMetrics, ...]

    @property
    def length_ns(self) -> int:
        """Length of the window, ns."""
        return self.window.length_ns

    @property
    def unprofiled_ns(self) -> int:
        """Its length without the profiler, where known, ns: what can be won is a share of it."""
        return self.window.unprofiled_ns or self.length_ns

    @property
    def several(self) -> bool:
        """Whether more than one device worked in the file."""
        return len(self.window.devices) > 1

    @property
    def name(self) -> str:
        """What the window is called."""
        return "Whole trace" if self.window.step is None else f"Step {self.window.step}"


def section_title(view: View, title: str, device: DeviceMetrics) -> str:
    """The title of a section about a device, which it names where there are several."""
    return f"{title}{PART}GPU {device.device}" if view.several else title


def views_of(report: Report) -> list[View]:
    """The windows of a report, each with what was measured in it."""
    overlaps: dict[tuple[int, int | None], list[OverlapMetrics]] = defaultdict(list)
    syncs: dict[tuple[int, int | None], list[BlockingCallMetrics]] = defaultdict(list)
    findings: dict[tuple[int, int | None], list[Finding]] = defaultdict(list)
    holders: dict[tuple[int, int | None], list[CulpritMetrics]] = defaultdict(list)
    for overlap in report.overlaps:
        overlaps[overlap.rank, overlap.step].append(overlap)
    for sync in report.syncs:
        syncs[sync.rank, sync.step].append(sync)
    for finding in report.findings:
        findings[finding.rank, finding.step].append(finding)
    for holder in report.holders:
        holders[holder.rank, holder.step].append(holder)
    paths = {(path.rank, path.step): path for path in report.critical_path}
    return [
        View(
            window=x,
            overlaps=tuple(overlaps[key]),
            syncs=tuple(syncs[key]),
            path=paths.get(key),
            findings=tuple(findings[key]),
            holders=tuple(holders[key]),
        )
        for x in report.windows
        for key in [(x.rank, x.step)]
    ]
