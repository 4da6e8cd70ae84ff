"""Checks of budgets in the window that decides.

That is the steady steps, the whole trace if none is known, or the one step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from tracelab.base.arrays import Record
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.names import short_names
from tracelab.base.safe_text import counted
from tracelab.comparison.budgets import BudgetResult, Budgets, require_checkable
from tracelab.comparison.recordings import interquartile
from tracelab.findings.finding import INFO, Finding
from tracelab.findings.places import sentence_of
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.report.schema import Report
from tracelab.report.views import RankView, View, ranks_of

_MS = 1_000_000


def check(
    budgets: Budgets,
    reports: Sequence[Report],
    *,
    step: int | None = None,
    baseline: Report | None = None,
) -> list[BudgetResult]:
    """Check reports against budgets; the worst device or rank is reported.

    Args:
        budgets: the limits.
        reports: each of one rank or several.
        step: the only one to check.
        baseline: the report to compare the steps with.

    Raises:
        UsageError: a report lacks the subject of a budget.
        UnreadableInputError: a report holds no figures.
    """
    require_checkable(budgets)
    files = list(_measured_in(reports, step))
    if not files or not all(file.view.scope.devices for file in files):
        raise UnreadableInputError("the report has no figures of any GPU")
    results: list[BudgetResult] = []
    if budgets.max_idle is not None:
        idle = _shares(files, "idle_ns", with_profiler=True)
        results.append(_worst("max-idle", budgets.max_idle, idle))
    for pair, share in budgets.min_overlap.items():
        results.append(_min_overlap(files, pair, share))
    for kind, share in budgets.max_exposed.items():
        exposed = _shares(files, f"exposed_{kind}_ns", with_profiler=False)
        results.append(_worst(f"max-exposed {kind}", share, exposed))
    if budgets.max_blocking_calls is not None:
        calls = map(_blocking_calls, files)
        results.append(_worst("max-blocking-calls", budgets.max_blocking_calls, calls, "{:g}"))
    results += [_forbid(files, rule) for rule in budgets.forbid]
    if budgets.max_step_ms is not None:
        steps = map(_step, files)
        results.append(_worst("max-step-ms", budgets.max_step_ms, steps, "{:g} ms", digits=2))
    if budgets.max_regression is not None:
        if baseline is None:
            raise UsageError("max-regression needs a baseline: a saved report or a trace")
        results.append(_max_regression(files, baseline, budgets.max_regression))
    return results


# --- what was measured ---


class MeasuredFile(Record):
    """Figures of one file in the window of budgets.

    Attributes:
        label: name of the file among several, or "".
        view: the whole trace, or the one step.
        views: those of the steady steps, or the only one.
        lengths_ns: of typical steps.
        steps: their name: "5 steady steps", "step 3".
        window: the same, or the whole trace.
    """

    label: str
    rank: RankView
    view: View
    views: tuple[View, ...]
    lengths_ns: tuple[int, ...]
    steps: str
    window: str
    step_pattern: str


def _measured_in(reports: Sequence[Report], step: int | None) -> Iterator[MeasuredFile]:
    labels = iter(_labels(reports))
    pairs = ((report, rank) for report in reports for rank in ranks_of(report))
    for of, rank in pairs:
        view = _view_of(rank, step)
        lengths_ns, steps = step_lengths(rank, step)
        is_whole = view.step is None and view.steady_row is None
        yield MeasuredFile(
            label=next(labels),
            rank=rank,
            view=view,
            views=(rank.steady_steps if view.steady_row else ()) or (view,),
            lengths_ns=lengths_ns,
            steps=steps,
            window="the whole trace (no step is known to be steady)" if is_whole else steps,
            step_pattern=rank.trace.step_pattern or of.provenance.step_pattern,
        )


def step_lengths(rank: RankView, step: int | None = None) -> tuple[tuple[int, ...], str]:
    """Return the lengths and name of the one step, the steady steps, or all steps."""
    views = rank.steady_steps
    of_all = f" of {len(rank.steps)}" if len(views) < len(rank.steps) else ""
    name = f"{counted(len(views), 'steady step', 'steady steps')}{of_all}"
    if step is not None or rank.whole is None:
        views = tuple(view for view in rank.steps if step in (None, view.step))
        name = f"step {views[0].step}"
    elif not views:
        views = rank.steps
        name = f"{counted(len(views), 'step', 'steps')}, none known to be steady"
    return tuple(view.length_ns for view in views), name


def _labels(reports: Sequence[Report]) -> list[str]:
    traces = [trace for report in reports for trace in report.traces]
    if len(traces) == 1:
        return [""]
    if len(reports) == 1 and reports[0].job is not None:
        return [f"rank {trace.rank}" for trace in traces]
    return list(short_names([trace.path for trace in traces]))


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


# --- one budget each ---


class _Figure(Record):
    """A limited figure of a device or file, and its noise."""

    value: float
    where: Sequence[str]
    window: str = ""
    unit: str = " %"
    is_noise: bool = False
    file: str | None = None
    line: int | None = None


def _worst(
    name: str,
    limit: float,
    figures: Iterable[_Figure],
    allowed: str = "{:g} %",
    *,
    is_lower: bool = False,
    digits: int = 1,
) -> BudgetResult:

    def is_within(x: _Figure) -> bool:
        return x.value >= limit if is_lower else x.value <= limit

    def badness(x: _Figure) -> tuple[bool, float]:
        return not (is_within(x) or x.is_noise), -x.value if is_lower else x.value

    worst = max(figures, key=badness)
    found = _digits(worst.value, limit, is_within(worst), digits)
    sign = "+" if allowed.startswith("+") and worst.value >= 0 else ""
    return BudgetResult(
        name,
        f"{sign}{found}{worst.unit}",
        f"at {'least' if is_lower else 'most'} {allowed.format(limit)}",
        passed=not badness(worst)[0],
        where=", ".join(filter(None, worst.where)),
        file=worst.file,
        line=worst.line,
        window=worst.window,
    )


def _shares(
    files: Sequence[MeasuredFile], column: str, *, with_profiler: bool
) -> Iterator[_Figure]:
    for measured in files:
        scope = measured.view.scope
        base_ns = scope.length_ns if with_profiler else scope.base_ns
        of = f"of the time {'with' if with_profiler else 'without'} the profiler"
        for device in scope.devices:
            where = measured.label, f"GPU {device.device}", of if scope.is_slowed else ""
            percent = 100 * getattr(device, column) / max(1, base_ns)
            yield _Figure(percent, where, measured.window)


def _min_overlap(
    files: Sequence[MeasuredFile], pair: tuple[str, str], limit: float
) -> BudgetResult:
    name, first = f"min-overlap {':'.join(pair)}", pair[0]
    figures = []
    for measured in files:
        for number in (device.device for device in measured.view.scope.devices):
            devices = [x for v in measured.views for x in v.window.devices if x.device == number]
            kinds = {f"kind:{number}/{kind}" for kind in pair}
            both = [x for v in measured.views for x in v.overlaps if {x.a, x.b} == kinds]
            if first_ns := sum(getattr(x, f"{first}_ns") for x in devices):
                percent = 100 * sum(x.overlap_ns for x in both) / first_ns
                where = measured.label, f"GPU {number}"
                figures.append(_Figure(percent, where, measured.window))
    if figures:
        return _worst(name, limit, figures, is_lower=True)
    window = "; ".join(dict.fromkeys(measured.window for measured in files))
    return BudgetResult(
        name, "-", f"at least {limit:g} %", passed=True, where=f"no {first} ran", window=window
    )


def _blocking_calls(measured: MeasuredFile) -> _Figure:
    counts: Counter[tuple[str | int | None, ...]] = Counter()
    rows: dict[tuple[str | int | None, ...], BlockingCallMetrics] = {}
    for sync in (sync for view in measured.views for sync in view.syncs if sync.count):
        site = (sync.file, sync.line, sync.function, sync.operator)
        counts[site] += sync.count
        rows.setdefault(site, sync)
    steps, others, most, row = len(measured.lengths_ns), 0, "", None
    for busiest, count in counts.most_common(1):
        row = rows[busiest]
        of_all = f"{count} of {counts.total()}" + (f" in {steps} steps" if steps > 1 else "")
        most = f"most, {of_all}: {_call_site_text(row)}"
    if measured.view.scope.steps:
        of_steps = sum(sync.count for view in measured.rank.steps for sync in view.syncs)
        others = sum(sync.count for sync in measured.view.syncs) - of_steps
    return _Figure(
        counts.total() / max(steps, 1),
        (measured.label, most, f"{others} more outside the steps, not counted" if others else ""),
        measured.window,
        unit=" a step" if steps else "",
        file=row.file if row else None,
        line=row.line if row else None,
    )


def _call_site_text(sync: BlockingCallMetrics) -> str:
    file = sync.file if sync.line is None else f"{sync.file}:{sync.line}"
    inside = " ".join(filter(None, (sync.function, f"({file})" if file else "")))
    inside = inside or sync.operator or sync.annotation or ""
    return f"{sync.api} in {inside}" if inside else sync.api


def _forbid(files: Sequence[MeasuredFile], rule: str) -> BudgetResult:
    found: list[tuple[MeasuredFile, Finding]] = []
    for measured in files:
        if measured.rank.whole is not None and measured.view.step is not None:
            raise UsageError(
                f"{measured.rank.trace.path}: this report has the findings of the whole "
                "trace only; for those of a step, check the trace, or a report of that step"
            )
        found += [(measured, x) for x in measured.view.findings if x.rule.startswith(rule)]
    name, allowed = f"forbid {rule}", "none above info"
    if not found:
        return BudgetResult(name, "no finding", allowed, passed=True)
    forbidden = [pair for pair in found if pair[1].severity != INFO]
    reported = forbidden or found
    measured, worst = max(reported, key=lambda pair: (pair[1].bound_ns, pair[1].cost_ns))
    count, text = len(reported), sentence_of(worst.title, worst.where)
    label = f"{measured.label}, " if measured.label else ""
    more = f" (and {count - 1} more)" if count > 1 else ""
    return BudgetResult(
        name,
        counted(count, "finding", "findings") if forbidden else f"{count}, info only",
        allowed,
        passed=not forbidden,
        where=f"{label}{worst.rule}, {worst.severity}: {text}{more}",
        file=worst.where.file,
        line=worst.where.line,
    )


def _step(measured: MeasuredFile) -> _Figure:
    _require_steps(measured.lengths_ns, measured.rank.trace.path, measured, "max-step-ms")
    row = measured.rank.steady
    name = f"median of {measured.steps}" if len(measured.lengths_ns) > 1 else measured.steps
    where = [measured.label, name]
    is_slowed = measured.view.scope.is_slowed and measured.view.step is None
    if row and row.unprofiled_step_ns and is_slowed:
        where.append(f"{row.unprofiled_step_ns / _MS:.2f} ms without the profiler")
    return _Figure(median(measured.lengths_ns) / _MS, where, unit=" ms")


def _max_regression(files: Sequence[MeasuredFile], baseline: Report, limit: float) -> BudgetResult:
    """Compare median steps with the baseline's; the spread of several is noise."""
    name = "max-regression"
    by_rank = {rank.trace.rank: step_lengths(rank) for rank in ranks_of(baseline) if rank.steps}
    all_ns = tuple(length_ns for lengths_ns, _ in by_rank.values() for length_ns in lengths_ns)
    of_all = all_ns, f"all {len(all_ns)} steps"
    path = baseline.traces[0].path if baseline.traces else "the baseline"
    patterns = baseline.step_patterns
    figures = []
    for measured in files:
        _require_steps(measured.lengths_ns, measured.rank.trace.path, measured, name)
        if measured.step_pattern not in patterns:
            raise UsageError(
                f"{measured.rank.trace.path}: its steps are {measured.step_pattern!r}, but those "
                f"of the baseline {path} are {' or '.join(map(repr, patterns))}: "
                "only the same steps can be compared"
            )
        # A rank is compared with itself, or with all of a baseline that lacks it.
        lengths_ns, steps = by_rank.get(measured.rank.trace.rank, of_all)
        _require_steps(lengths_ns, f"the baseline {path}", measured, name)
        before_ns, after_ns = median(lengths_ns), median(measured.lengths_ns)
        longer_ns = after_ns - before_ns
        percent = 0.0 if not longer_ns else 100 * longer_ns / before_ns if before_ns else math.inf
        sides = lengths_ns, measured.lengths_ns
        spread_ns = max(map(interquartile, sides)) if min(map(len, sides)) > 1 else 0.0
        is_noise = percent > limit and longer_ns <= spread_ns
        after = f"{after_ns / _MS:.2f} ms ({measured.steps})"
        before = f"{before_ns / _MS:.2f} ms ({steps})"
        where = (
            measured.label,
            f"{after}; baseline {before}",
            f"within the spread of the steps ({spread_ns / _MS:.2f} ms)" if is_noise else "",
        )
        figures.append(_Figure(percent, where, is_noise=is_noise))
    return _worst(name, limit, figures, "+{:g} %")


def _require_steps(
    lengths_ns: Sequence[int], path: str, measured: MeasuredFile, budget: str
) -> None:
    if not lengths_ns:
        raise UsageError(
            f"{path}: {budget} needs steps, and no annotation matches {measured.step_pattern}; "
            "`step_on` selects other annotations",
            option="step_on",
        )


def _digits(value: float, limit: float, passed: bool, least: int = 1) -> str:
    if value.is_integer():
        return f"{value:.0f}"
    for digits in range(least, 9):
        text = f"{value:.{digits}f}"
        if passed or float(text) != limit:
            break
    return text
