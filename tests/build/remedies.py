"""Bundled captures of a pitfall: what a report tells of it, and what its fix was seen to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.bundled_traces import files_of, report_of
from tracelab import Report
from tracelab.findings.finding import Finding
from tracelab.workloads.catalog import find


@dataclass(frozen=True)
class Steps:
    """What a step of a variant takes without a profiler, in turns with its fix, in milliseconds.

    Example: ``Steps(2.661, 2.454, 2.981)``.

    Attributes:
        median, shortest, longest: of some turns.
    """

    median: float
    shortest: float
    longest: float


@dataclass(frozen=True)
class Interval:
    """A prediction, in milliseconds.

    Example: ``Interval(0.872, 0.529, 1.155)``.

    Attributes:
        value: what is likeliest.
        low, high: between which it lies.
    """

    value: float
    low: float
    high: float

    def holds(self, measured_ms: float) -> bool:
        """Whether what was measured lies in it.

        >>> Interval(0.872, 0.529, 1.155).holds(1.148)
        True
        """
        return self.low <= measured_ms <= self.high


@dataclass(frozen=True)
class Measured:
    """A pitfall: what is told of it, what is predicted of its fix, and what the fix saved.

    Attributes:
        told: the remedy that the finding names, else its rule.
        workload, pitfall, fix: which variants.
        before, after: what a step of the pitfall takes, and one of the fix.
        finding: what the report of the pitfall's capture says; the fix's is not analyzed.
        step_ms: the step that its saving is of; None where none is predicted.
    """

    told: str
    workload: str
    pitfall: str
    fix: str
    before: Steps
    after: Steps
    finding: Finding
    step_ms: float | None

    @property
    def saved_ms(self) -> float:
        """What the fix saves of a step, of the medians."""
        return self.before.median - self.after.median

    @property
    def predicted_ms(self) -> Interval | None:
        """What is predicted that it saves; None where nothing is."""
        one = self.finding
        if one.saves_ns is None or one.saves_low_ns is None or one.saves_high_ns is None:
            return None
        return Interval(one.saves_ns / 1e6, one.saves_low_ns / 1e6, one.saves_high_ns / 1e6)

    @property
    def fixed_ms(self) -> Interval | None:
        """The step that is predicted with the fix; None where none is."""
        if (saves := self.predicted_ms) is None or self.step_ms is None:
            return None
        step_ms = self.step_ms
        return Interval(step_ms - saves.value, step_ms - saves.high, step_ms - saves.low)


def measured(line: Mapping[str, Any]) -> Measured | None:
    """What a line of the manifest holds of a pitfall; None of any other line."""
    entry = find(line["workload"], line["arguments"][0])
    told = told_of(line)
    if not entry.fix or told is None or "without_profiler_ms" not in line:
        return None
    name = line["files"][0].split(".")[0].removesuffix("_rank0")
    report = report_of(*files_of(name))
    return Measured(
        told,
        entry.workload,
        entry.variant,
        entry.fix,
        Steps(*line["without_profiler_ms"][entry.variant]),
        Steps(*line["without_profiler_ms"][entry.fix]),
        finding := _finding(report, told),
        _step_ms(report, finding),
    )


def told_of(line: Mapping[str, Any]) -> str | None:
    """The remedy or rule that a line of the manifest expects; that of a straggler of a job."""
    told: str | None = line["expect"].get("tells")
    return told or ("TL304" if line.get("job", {}).get("stragglers") else None)


def _finding(report: Report, told: str) -> Finding:
    """The first finding that tells it: findings are sorted by what their fixes save."""
    return next(x for x in report.findings if told in (x.remedy, x.rule))


def _step_ms(report: Report, finding: Finding) -> float | None:
    lengths_ns = [row.step_ns for row in report.savings if row.rank == finding.rank]
    if finding.saves_ns is None or not lengths_ns or lengths_ns[0] is None:
        return None
    return lengths_ns[0] / 1e6
