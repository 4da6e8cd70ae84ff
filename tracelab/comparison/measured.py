"""Figures that budgets are checked against: those of each file in the window that decides."""

from __future__ import annotations

from collections.abc import Sequence

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.file_names import short_names
from tracelab.base.safe_text import counted
from tracelab.findings.finding import Finding
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.report.schema import Report
from tracelab.report.views import RankView, Scope, View, ranks_of


@dataclass(frozen=True, slots=True, repr=False)
class StepLengths(OneLine):
    """Lengths of the typical steps of a file.

    Attributes:
        lengths_ns: of the steady steps; of all steps where none is known to be steady, and of the
            one step where the report is about one.
        name: what they are called: "5 steady steps".

    """

    lengths_ns: tuple[int, ...]
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredFile(OneLine):
    """Figures of one file in the window that budgets are about.

    Attributes:
        label: what tells the file from the others; "" where it is the only one.
        scope: the steady steps; the whole trace where none is known to be steady, or the one step.
        views: the windows that make it up: those of the steady steps, or the only one.
        steps: how long a step takes.
        unprofiled_step_ns: what a step takes without the profiler, where that is at least a tenth
            less; else None.
        calls_elsewhere: blocking calls that no step of the file made, and that are not counted.
        findings: None where the report has none of this window.
    """

    path: str
    label: str
    rank: int
    scope: Scope
    views: tuple[View, ...]
    steps: StepLengths
    step_pattern: str
    unprofiled_step_ns: int | None
    calls_elsewhere: int
    findings: tuple[Finding, ...] | None

    @property
    def window(self) -> str:
        """Name of the window: "5 steady steps", "step 3"."""
        is_whole = not self.scope.steps and self.views[0].step is None
        return "the whole trace (no step is known to be steady)" if is_whole else self.steps.name

    @property
    def syncs(self) -> tuple[BlockingCallMetrics, ...]:
        """The blocking calls that its windows made, by window."""
        return tuple(sync for view in self.views for sync in view.syncs if sync.count)

    def kind_ns(self, device: int, kind: str) -> int:
        """Return the time of a kind of work in its windows, ns."""
        return sum(
            getattr(metrics, f"{kind}_ns")
            for view in self.views
            for metrics in view.window.devices
            if metrics.device == device
        )

    def overlap_ns(self, device: int, pair: tuple[str, str]) -> int:
        """Return the time in which two kinds of work overlap in its windows, ns."""
        selections = {f"kind:{device}/{kind}" for kind in pair}
        return sum(
            overlap.overlap_ns
            for view in self.views
            for overlap in view.overlaps
            if {overlap.a, overlap.b} == selections
        )


def measured_in(reports: Sequence[Report], step: int | None) -> list[MeasuredFile]:
    """Each file of each report.

    Args:
        reports: what was measured, each of one file or several.
        step: the number of the step that is meant; None for the steady steps.

    Raises:
        UsageError: a report does not have that window.
        UnreadableInputError: a report holds no figures.
    """
    labels = iter(_labels(reports))
    files = [
        _measured(report, rank, next(labels), step)
        for report in reports
        for rank in ranks_of(report)
    ]
    if not files or not all(file.scope.devices for file in files):
        raise UnreadableInputError("the report has no figures of any GPU")
    return files


def step_lengths(rank: RankView, step: int | None = None) -> StepLengths:
    """Return the lengths of the steps of a file.

    Args:
        rank: the file.
        step: the number of the only step that is meant, if any.

    Returns:
        of a file without steps nothing.
    """
    if step is not None or rank.whole is None:
        views = tuple(view for view in rank.steps if step in (None, view.step))
        return StepLengths(tuple(view.length_ns for view in views), f"step {views[0].step}")
    views = rank.steady_steps
    of_all = f" of {len(rank.steps)}" if len(views) < len(rank.steps) else ""
    name = f"{counted(len(views), 'steady step', 'steady steps')}{of_all}"
    if not views:
        steps = counted(len(rank.steps), "step", "steps")
        views, name = rank.steps, f"{steps}, none known to be steady"
    return StepLengths(tuple(view.length_ns for view in views), name)


def all_of(sides: Sequence[StepLengths]) -> StepLengths:
    """The steps of several files together."""
    lengths_ns = tuple(length_ns for steps in sides for length_ns in steps.lengths_ns)
    of_several = f"{len(lengths_ns)} steps of {len(sides)} files"
    return StepLengths(lengths_ns, sides[0].name if len(sides) == 1 else of_several)


def _labels(reports: Sequence[Report]) -> list[str]:
    """Label the files: by their ranks in a job, else by their names; "" for a single file."""
    traces = [trace for report in reports for trace in report.traces]
    if len(traces) == 1:
        return [""]
    if len(reports) == 1 and reports[0].job is not None:
        return [f"rank {trace.rank}" for trace in traces]
    return list(short_names([trace.path for trace in traces]))


def _measured(report: Report, rank: RankView, label: str, step: int | None) -> MeasuredFile:
    view = _view_of(rank, step)
    scope = view.scope
    row = rank.steady if scope.is_slowed else None
    return MeasuredFile(
        path=rank.trace.path,
        label=label,
        rank=rank.trace.rank,
        scope=scope,
        views=(rank.steady_steps if view.steady_row else ()) or (view,),
        steps=step_lengths(rank, step),
        step_pattern=rank.trace.step_pattern or report.provenance.step_pattern,
        unprofiled_step_ns=None if row is None or step is not None else row.unprofiled_step_ns,
        calls_elsewhere=_calls([view]) - _calls(rank.steps) if scope.steps else 0,
        # A report of the whole trace has findings of the whole trace only.
        findings=None if rank.whole is not None and step is not None else view.findings,
    )


def _view_of(rank: RankView, step: int | None) -> View:
    views = [view for view in rank.views if view.step == step]
    if views:
        return views[0]
    path = rank.trace.path
    numbers = [view.step for view in rank.steps if view.step is not None]
    if step is None and numbers:
        raise UsageError(
            f"{path}: this report covers only step {numbers[0]}: select it with `step`",
            option="step",
        )
    known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
    raise UsageError(f"{path}: there is no step {step}; the file's steps are: {known}")


def _calls(views: Sequence[View]) -> int:
    return sum(sync.count for view in views for sync in view.syncs)
