"""Reports by window and rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tracelab.base.arrays import Record
from tracelab.findings.finding import Finding, Savings, is_worth_showing
from tracelab.measures.registry import MEASURES
from tracelab.measures.window_times import DeviceMetrics, SteadyMetrics, WindowMetrics
from tracelab.model.losses import LOSSES, Loss, listed_names, merged_loss_names
from tracelab.model.lost_work import KINDS
from tracelab.report.schema import Report, StepTimes, Table, Tables, TraceInfo

# Shown columns, by table.
FIGURES = {measure.key: measure.figures for measure in MEASURES}
_JUDGED_ALONE = (
    *KINDS,
    "arrows_without_end",
    "activities_without_launch",
    "overlapping_activities",
    "waits_without_record",
)


class Scope(Record):
    """The time that a window's findings are about, ns.

    Attributes:
        name: as in "5.9 % of the steady steps".
        step_ns: one step of it, or else all of it.
        printed_ns: the same without the profiler if that was timed; of a replayed job the job's
            step. Savings are a share of that.
        base_ns: base of shares: its length, without the profiler if that makes a tenth.
        device: the GPU that decides, the busiest, or None.
        steps: number of steady steps.
        savings: of all fixes together, or None.
    """

    name: str
    step_ns: int
    printed_ns: int
    length_ns: int
    base_ns: int
    device: int | None
    devices: tuple[DeviceMetrics, ...]
    steps: int = 0
    savings: Savings | None = None

    def share_of(self, finding: Finding) -> float:
        """Share of a step that a fix saves, or that is attributed to its finding, 0 to 1."""
        saves_ns = finding.saves_high_ns if finding.saves_ns is None else finding.saves_ns
        if saves_ns is not None and self.savings is not None:
            return min(1.0, saves_ns / max(1, self.savings.step_ns or 0))
        return min(1.0, finding.bound_ns / max(1, self.base_ns))

    def cost_share_of(self, finding: Finding) -> float:
        """Share of a step that is lost there, 0 to 1."""
        return min(1.0, finding.cost_ns / max(1, self.length_ns))

    def is_worth_showing(self, finding: Finding) -> bool:
        """Tell whether a finding is worth a place among the first."""
        return is_worth_showing(finding, self.share_of(finding), self.cost_share_of(finding))

    @property
    def is_slowed(self) -> bool:
        """True if the profiler made it longer: shares are of its length without that."""
        return self.base_ns < self.length_ns

    @property
    def busy_ns(self) -> int:
        """Busy time of the GPU that decides, ns; 0 without one."""
        return min(self.deciding.busy_ns, self.base_ns) if self.deciding else 0

    @property
    def idle_ns(self) -> int:
        """The rest of the base of shares, ns."""
        return self.base_ns - self.busy_ns

    @property
    def deciding(self) -> DeviceMetrics | None:
        """The GPU that decides."""
        return next((x for x in self.devices if x.device == self.device), None)


class View(Record, Tables):
    """Rows and findings of one window of a rank."""

    window: WindowMetrics
    tables: Mapping[str, Table[Any]]
    findings: tuple[Finding, ...]
    savings: Savings | None = None

    @property
    def other_tables(self) -> dict[str, Table[Any]]:
        """Tables without a property, section or comparison."""
        return {key: rows for key, rows in self.tables.items() if not hasattr(Report, key)}

    @property
    def step(self) -> int | None:
        """Number; None for the whole trace."""
        return self.window.step

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.window.length_ns

    @property
    def steady_row(self) -> SteadyMetrics | None:
        """The steady steps, or None."""
        return next(iter(self.steady), None)

    @property
    def scope(self) -> Scope:
        """Scope of the findings: the steady steps if there are some, else the window."""
        row, savings = self.steady_row, self.savings
        of = row or self.window
        step_ns = printed_ns = self.length_ns
        if row is not None:
            name = "the steady steps" if len(row.steps) > 1 else "the steady step"
            name += "" if row.unprofiled_ns is None else " without the profiler"
            step_ns, printed_ns = row.step_ns, row.unprofiled_step_ns or row.step_ns
            device: int | None = row.device
        else:
            name = "the trace" if self.step is None else f"step {self.step}"
            busiest = busiest_of(self.window)
            device = busiest.device if busiest else None
        if savings and savings.is_of_job and savings.step_ns:
            printed_ns = savings.step_ns
        return Scope(
            name=name,
            step_ns=step_ns,
            printed_ns=printed_ns,
            length_ns=of.length_ns,
            base_ns=of.unprofiled_ns or of.length_ns,
            device=device,
            devices=of.devices,
            steps=len(row.steps) if row else 0,
            savings=savings,
        )

    @property
    def several(self) -> bool:
        """True if several devices worked in the file."""
        return len(self.window.devices) > 1

    @property
    def name(self) -> str:
        """Name of the window."""
        return "Whole trace" if self.step is None else f"Step {self.step}"


class RankView(Record):
    """Windows of one rank.

    Attributes:
        whole: None in a report of one step.
        steady: None without steady steps.
    """

    trace: TraceInfo
    whole: View | None
    steps: tuple[View, ...]
    steady: SteadyMetrics | None = None

    @property
    def main(self) -> View:
        """The whole trace, or the only step."""
        return self.steps[0] if self.whole is None else self.whole

    @property
    def steady_steps(self) -> tuple[View, ...]:
        """The windows of the steady steps."""
        numbers = self.steady.steps if self.steady else ()
        return tuple(view for view in self.steps if view.step in numbers)

    @property
    def views(self) -> tuple[View, ...]:
        """The whole trace, if reported, and the steps."""
        return self.steps if self.whole is None else (self.whole, *self.steps)


def views_of(report: Report) -> list[View]:
    """The windows of a report in order, with their tables."""
    tables = {key: _grouped(rows) for key, rows in report.tables.items() if key != "windows"}
    findings = _grouped(report.findings)
    savings = {(row.rank, row.step): row for row in report.savings}
    return [
        View(
            window=window,
            tables=MappingProxyType({key: Table(rows.get(at, ())) for key, rows in tables.items()}),
            findings=tuple(findings.get(at, ())),
            savings=savings.get(at),
        )
        for window in report.windows
        for at in [(window.rank, window.step)]
    ]


def ranks_of(report: Report) -> list[RankView]:
    """The ranks of a report in the order of its files."""
    steady = {row.rank: row for row in report.steady}
    by_rank: dict[int, list[View]] = defaultdict(list)
    for view in views_of(report):
        by_rank[view.window.rank].append(view)
    return [
        RankView(
            trace=trace,
            whole=next((view for view in by_rank[trace.rank] if view.step is None), None),
            steps=tuple(view for view in by_rank[trace.rank] if view.step is not None),
            steady=steady.get(trace.rank),
        )
        for trace in report.traces
    ]


def busiest_of(window: WindowMetrics) -> DeviceMetrics | None:
    """The busiest device of a window, or None."""
    return max(window.devices, key=lambda device: device.busy_ns, default=None)


def step_times_of(report: Report) -> Iterator[StepTimes]:
    """The steps of each rank, each on its busiest GPU."""
    for window in report.windows:
        if window.step is not None:
            device = busiest_of(window)
            yield StepTimes(
                rank=window.rank,
                step=window.step,
                device=device.device if device else None,
                length_ns=window.length_ns,
                unprofiled_ns=window.unprofiled_ns,
                busy_ns=device.busy_ns if device else 0,
                idle_ns=device.idle_ns if device else window.length_ns,
                exposed_comm_ns=device.exposed_comm_ns if device else 0,
                exposed_copy_ns=device.exposed_copy_ns if device else 0,
                bubbles_ns=device.bubbles if device else {},
            )


def _grouped(rows: Iterable[Any]) -> dict[tuple[int, int | None], list[Any]]:
    groups: dict[tuple[int, int | None], list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.rank, row.step].append(row)
    return groups


class LossCount(Record):
    """A kind of loss, its count in some files, and their names for it."""

    loss: Loss
    count: int
    files: int
    names: str

    @property
    def has_rule(self) -> bool:
        """True if a finding is about it."""
        return self.loss.group is not None or self.loss.name in _JUDGED_ALONE


def losses_of(traces: Sequence[TraceInfo]) -> list[LossCount]:
    """Add up losses, in the order of their table."""
    counts, files = Counter[str](), Counter[str]()
    for trace in traces:
        counts.update(trace.losses)
        files.update(trace.losses.keys())
    names = [name for trace in traces for name in trace.loss_names]
    shown = merged_loss_names(names) if len(traces) > 1 else names
    unknown = {x: Loss(x, "info", "reader", x, group="unknown") for x in counts if x not in LOSSES}
    return [
        LossCount(
            loss,
            counts[name],
            files[name],
            listed_names([x for x in shown if x.loss == name], counts[name]),
        )
        for name, loss in {**LOSSES, **unknown}.items()
        if name in counts
    ]
