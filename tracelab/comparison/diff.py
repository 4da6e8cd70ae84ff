"""Result of a comparison as data: the keys of ``diff --json``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from tracelab.base.arrays import Record
from tracelab.base.printing import Shown
from tracelab.base.safe_text import json_bytes
from tracelab.findings.finding import Where
from tracelab.measures.measure import constrained
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.measures.work import NameTimes
from tracelab.report.schema import Report

SCHEMA = "tracelab.diff/1"
FIGURES = (
    "busy_ns",
    "idle_ns",
    "compute_ns",
    "comm_ns",
    "copy_ns",
    "memset_ns",
    "exposed_comm_ns",
    "exposed_copy_ns",
)
NUMBER, ORDER, BEFORE, AFTER = "number", "order", "before only", "after only"  # kinds of matches
SHORTER, LONGER, NO_CHANGE, CANNOT_TELL = "shorter", "longer", "no change", "cannot tell"
DIFFERENT_PROGRAMS = "different programs"
CALL_NAMES = ("api", "kind", "operator", "function", "file", "line")
# Of a finding; a kernel has one of the first two.
GONE, NEW, CHANGED, UNCHANGED = "gone", "new", "changed", "same"


class Doubt(StrEnum):
    """Reason why a comparison is inconclusive."""

    FEW_STEPS = "few steps"  # one steady step on a side
    NO_STEPS = "no steps"  # whole traces
    SPREAD = "spread"  # the steps, or the recordings, differ by as much
    SPEED = "speed"  # the same kernels ran faster or slower, and that makes the difference
    RECORDED_DIFFERENTLY = "recorded differently"  # idle time under different profilers
    PROFILER = "profiler"  # different without it
    INFLATED = "inflated"  # by Python stacks: idle time that waits for the host


class Side(Record):
    """One side of a comparison.

    Attributes:
        kernels: launched in each trace; None of a saved report.
        operators: likewise, counts of calls by operator.
    """

    report: Report
    kernels: tuple[tuple[NameTimes, ...], ...] | None
    operators: tuple[Mapping[str, int], ...] | None = None


class ComparedFile(Record):
    """One file of one side.

    Attributes:
        shown: the steady step of median length; None for the whole trace.
        start_ns, end_ns: of that step, or of the whole trace.
        steady_steps: of an old saved report all.
        length_ns: the median length of those steps, or the length of the whole trace.
    """

    path: str
    rank: int
    steps: int
    shown: int | None
    start_ns: int
    end_ns: int
    steady_steps: int = 0
    length_ns: int = 0


class Change(Record):
    """A length on both sides, ns: medians over steps or recordings, or of the whole trace.

    Attributes:
        before_spread_ns, after_spread_ns: the `spread` of steps or of the medians of recordings;
            None
            of a single one.
        noise_ns: expected difference without a cause.
    """

    before_ns: int
    after_ns: int
    difference_ns: int
    before_spread_ns: int | None
    after_spread_ns: int | None
    noise_ns: int
    beyond_noise: bool

    @property
    def percent(self) -> float:
        """The difference in percent of the time before; 0 if that was 0."""
        return 100 * self.difference_ns / self.before_ns if self.before_ns else 0.0


class StreamDiff(Record):
    """Busy time of a matched stream on both sides, or None."""

    before: int | None
    after: int | None
    matched: str
    busy: Change


class DeviceDiff(Record):
    """A matched device on both sides.

    Attributes:
        figures: its times by their name in the report: ``idle_ns``.
        bubbles: its idle time by cause.
        streams: without the nearly empty ones of CUDA graphs.
    """

    before: int | None
    after: int | None
    matched: str
    figures: Mapping[str, Change]
    bubbles: Mapping[str, Change]
    streams: tuple[StreamDiff, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """Changes of its times, idle time by cause, and streams."""
        busy = (stream.busy for stream in self.streams)
        return (*self.figures.values(), *self.bubbles.values(), *busy)


class FindingDiff(Record):
    """A finding of a file on both sides, or all findings of one rule and cause at one call site.

    Attributes:
        state: "gone", "new", "changed" or "same".
        name: its call, operator or activity.
        title: of the side after, if it is there.
        before_ns, after_ns: the time attributed to it, ns.
        before_share, after_share: as `tracelab analyze` prints, 0 to 1.
        about_the_trace: it says what the file lacks.
        beyond_noise: the shares differ by more than 1 %.
    """

    rule: str
    cause: str
    state: str
    name: str
    title: str
    where: Where
    before_ns: int
    after_ns: int
    before_share: float
    after_share: float
    about_the_trace: bool
    beyond_noise: bool
    before_count: int
    after_count: int


class KernelDiff(Record):
    """The GPU activities of one name: summed time, and count (medians per step).

    Attributes:
        state: "new" or "gone" if the other side launched none; else "".
    """

    name: str
    before_count: int
    after_count: int
    total: Change
    state: str


class CallDiff(Record):
    """The blocking calls of one API at one place (counts are medians per step)."""

    api: str
    kind: str
    operator: str | None
    function: str | None
    file: str | None
    line: int | None
    before_count: int
    after_count: int
    blocked: Change
    caused_idle: Change


class TableDiff(Record):
    """Rows of a further table with the same texts, and their times by column."""

    names: Mapping[str, str]
    times: Mapping[str, Change]


class RankDiff(Record):
    """One rank on both sides: one file against one, or several recordings against several.

    Attributes:
        before, after: of several recordings the one of median length.
        basis: "step" if steady steps are compared, else "trace".
        length: beyond the noise only if the verdict is "shorter" or "longer".
        places: True if findings and calls were matched by function and file, recorded on both
            sides.
        kernels: None if a side is a saved report. By the size of the change, as `calls` are.
        tables: further tables of the report, by key.
        verdict: "shorter", "longer", "no change", "cannot tell" or "different programs".
        speed_percent: how much longer the same kernels took, or None.
        unprofiled_before_ns, unprofiled_after_ns: a step without the profiler, if measured.
        before_scope, after_scope: base of the findings' shares: "the steady steps".
    """

    before: ComparedFile
    after: ComparedFile
    basis: str
    length: Change
    devices: tuple[DeviceDiff, ...]
    findings: tuple[FindingDiff, ...]
    kernels: tuple[KernelDiff, ...] | None
    calls: tuple[CallDiff, ...]
    places: bool
    tables: Mapping[str, tuple[TableDiff, ...]]
    verdict: str
    doubts: tuple[Doubt, ...]
    speed_percent: float | None
    unprofiled_before_ns: int | None
    unprofiled_after_ns: int | None
    before_recordings: tuple[ComparedFile, ...]
    after_recordings: tuple[ComparedFile, ...]
    before_scope: str
    after_scope: str

    @property
    def has_repeats(self) -> bool:
        """True if several recordings say how much recordings differ."""
        return len(self.before_recordings) + len(self.after_recordings) > 2

    @property
    def different(self) -> bool:
        """True if any time or finding changed by more than the noise."""
        changes = (
            self.length,
            *(change for device in self.devices for change in device.changes),
            *(kernel.total for kernel in self.kernels or ()),
            *(call.caused_idle for call in self.calls),
            *(
                change
                for rows in self.tables.values()
                for row in rows
                for change in row.times.values()
            ),
        )
        return any(change.beyond_noise for change in changes) or any(
            finding.beyond_noise for finding in self.findings
        )


class PredictionDiff(Record):
    """The predicted saving of a change, and the measured one.

    Attributes:
        basis: with the profiler or without it.
        saves_ns, saves_low_ns, saves_high_ns: the predicted saving and its interval, ns.
        measured_ns: how much shorter the step is, ns, or None.
    """

    name: str
    edits: tuple[str, ...]
    basis: Annotated[str, constrained(enum=[PROFILED, UNPROFILED])]
    saves_ns: int
    saves_low_ns: int
    saves_high_ns: int
    measured_ns: int | None

    @property
    def holds(self) -> bool | None:
        """True if the interval holds the measured saving; None if that is unknown."""
        if self.measured_ns is None:
            return None
        return self.saves_low_ns <= self.measured_ns <= self.saves_high_ns


class Diff(Record, Shown):
    """Result of a comparison.

    Attributes:
        different: any difference is beyond the noise, on any rank.
        verdict: of the slowest rank; "cannot tell" if ranks contradict each other.
        same_program: both sides launch much the same; None if a side is a saved report.
        only_before, only_after: ranks without a partner.
        saved_before, saved_after: the side is a saved report.
        same_options: both sides took the same kernels as communication and the same steps.
        predictions: of a saved report before, on the slowest rank.
    """

    schema: str
    version: str
    different: bool
    saved_before: bool
    saved_after: bool
    same_options: bool
    only_before: tuple[int, ...]
    only_after: tuple[int, ...]
    ranks: tuple[RankDiff, ...]
    verdict: str
    same_program: bool | None
    predictions: tuple[PredictionDiff, ...] = ()

    @property
    def slowest(self) -> RankDiff:
        """The rank with the longest step afterward."""
        return max(self.ranks, key=lambda rank: rank.length.after_ns)

    def regressed(self, percent: float) -> tuple[RankDiff, ...]:
        """The ranks whose step got longer by more than a percentage and beyond the noise.

        None if other ranks got shorter.
        """
        if SHORTER in {rank.verdict for rank in self.ranks}:
            return ()
        return tuple(
            rank for rank in self.ranks if rank.verdict == LONGER and rank.length.percent > percent
        )

    def to_json(self) -> bytes:
        """The difference as one JSON object, indented."""
        return json_bytes(self)
