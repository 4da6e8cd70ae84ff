"""A report joined again: what it says of each window, and of each rank.

The only place that brings together the rows of the report's tables. Every renderer, comparison and
budget looks at a report through these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tracelab.arrays import OneLine
from tracelab.findings.finding import Finding
from tracelab.measures.critical_path import CriticalPathMetrics
from tracelab.measures.window_times import WindowMetrics
from tracelab.report.schema import Report, Tables, TraceInfo


@dataclass(frozen=True, slots=True, repr=False)
class View(OneLine, Tables):
    """Everything that a report says of one window of one rank.

    Attributes:
        window: its times.
        tables: the rows of each table, by key; empty where a table says nothing of the window.
        findings: those of this window.
    """

    window: WindowMetrics
    tables: Mapping[str, tuple[Any, ...]]
    findings: tuple[Finding, ...]

    @property
    def path(self) -> CriticalPathMetrics | None:
        """How long the critical path is, by kind."""
        return next(iter(self.tables.get("critical_path", ())), None)

    @property
    def step(self) -> int | None:
        """The step's number, None for the whole trace."""
        return self.window.step

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
        return "Whole trace" if self.step is None else f"Step {self.step}"


@dataclass(frozen=True, slots=True, repr=False)
class RankView(OneLine):
    """Everything that a report says of one rank.

    Attributes:
        trace: the file.
        whole: the whole trace; None in a report of one step alone.
        steps: its steps, by start.
    """

    trace: TraceInfo
    whole: View | None
    steps: tuple[View, ...]

    @property
    def main(self) -> View:
        """The whole trace, or the step that the report is about."""
        return self.steps[0] if self.whole is None else self.whole

    @property
    def views(self) -> tuple[View, ...]:
        """The whole trace, if the report has it, and the steps."""
        return self.steps if self.whole is None else (self.whole, *self.steps)


def views_of(report: Report) -> list[View]:
    """The windows of a report, each with what was measured in it, in the report's order."""
    tables = {key: _by_window(rows) for key, rows in report.tables.items() if key != "windows"}
    findings = _by_window(report.findings)
    return [
        View(
            window=window,
            tables=MappingProxyType({key: tuple(rows.get(at, ())) for key, rows in tables.items()}),
            findings=tuple(findings.get(at, ())),
        )
        for window in report.windows
        for at in [(window.rank, window.step)]
    ]


def ranks_of(report: Report) -> list[RankView]:
    """The ranks of a report, each with its windows, in the order of its files."""
    by_rank: dict[int, list[View]] = defaultdict(list)
    for view in views_of(report):
        by_rank[view.window.rank].append(view)
    return [
        RankView(
            trace=trace,
            whole=next((view for view in by_rank[trace.rank] if view.step is None), None),
            steps=tuple(view for view in by_rank[trace.rank] if view.step is not None),
        )
        for trace in report.traces
    ]


def _by_window(rows: tuple[Any, ...]) -> dict[tuple[int, int | None], list[Any]]:
    groups: dict[tuple[int, int | None], list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.rank, row.step].append(row)
    return groups
