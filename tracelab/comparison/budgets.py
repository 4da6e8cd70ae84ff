"""Budgets: how much a trace may lose, and whether its report stays within them.

`parse_toml` and `parse_budgets` read what is allowed, `check` checks reports against it.
Percentages are of the window: of the whole trace, or of the one step that is checked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from statistics import median

from tracelab.arrays import OneLine
from tracelab.comparison.noise import interquartile
from tracelab.errors import UnreadableInputError, UsageError
from tracelab.findings.finding import INFO, Finding
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.measures.overlap import OverlapMetrics
from tracelab.measures.window_times import DeviceMetrics, WindowMetrics
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of

KINDS = ("compute", "comm", "copy", "memset")
EXPOSED_KINDS = ("comm", "copy")
NAMES = (
    "max-idle",
    "min-overlap",
    "max-exposed",
    "max-blocking-calls",
    "forbid",
    "max-step-ms",
    "max-regression",
    "baseline",
)
TABLE = "tool.tracelab.check"  # of a pyproject.toml
_MS = 1_000_000


@dataclass(frozen=True, slots=True, repr=False)
class Budgets(OneLine):
    """What is allowed; None or empty where a budget is not set.

    Example row: ``Budgets(max_idle=5.0, min_overlap={("comm", "compute"): 80.0}, forbid=("TL1",))``

    Attributes:
        max_idle: percent of the window, of the worst device.
        min_overlap: (first kind, second kind) to the percent of the first kind's time that must
            run while the second does.
        max_exposed: kind to percent of the window.
        max_blocking_calls: calls a step.
        forbid: rules, or how their ids begin.
        max_step_ms: the median step, ms.
        max_regression: percent by which the median step may be longer than the baseline's.
        baseline: a saved report or a trace.
    """

    max_idle: float | None = None
    min_overlap: Mapping[tuple[str, str], float] = field(default_factory=dict)
    max_exposed: Mapping[str, float] = field(default_factory=dict)
    max_blocking_calls: float | None = None
    forbid: tuple[str, ...] = ()
    max_step_ms: float | None = None
    max_regression: float | None = None
    baseline: str | None = None

    def updated(self, other: Budgets) -> Budgets:
        """These budgets with others, which win; what is set by kind or rule is joined.

        >>> Budgets(max_idle=5, forbid=("TL1",)).updated(Budgets(max_idle=9, forbid=("TL2",)))
        ... # doctest: +ELLIPSIS
        Budgets(max_idle=9, ... forbid=('TL1', 'TL2')…)
        """
        numbers = {
            name: value
            for name in ("max_idle", "max_blocking_calls", "max_step_ms", "max_regression")
            if (value := getattr(other, name)) is not None
        }
        return replace(
            self,
            **numbers,
            min_overlap={**self.min_overlap, **other.min_overlap},
            max_exposed={**self.max_exposed, **other.max_exposed},
            forbid=tuple(dict.fromkeys((*self.forbid, *other.forbid))),
            baseline=self.baseline if other.baseline is None else other.baseline,
        )


@dataclass(frozen=True, slots=True, repr=False)
class BudgetResult(OneLine):
    """One budget, checked against what was measured; the texts are for people.

    Example row: ``BudgetResult("max-idle", "6.8 %", "at most 5 %", passed=False, where="GPU 0")``

    Attributes:
        name: the budget, with its kinds or rule: "min-overlap comm:compute".
        measured, allowed: "6.8 %", "at most 5 %".
        passed: whether the budget is met.
        where: the worst device, call or finding, and what else is worth knowing.
        file, line: where that is in the program, where the trace says so.
    """

    name: str
    measured: str
    allowed: str
    passed: bool
    where: str = ""
    file: str | None = None
    line: int | None = None


# What a budget says of each device or rank: how bad it is, and the result if it is the worst.
_Candidates = Iterable[tuple[float, BudgetResult]]


# --- what is allowed ---


def known_names() -> str:
    """All budgets, for a sentence."""
    return ", ".join(NAMES)


def require_checkable(budgets: Budgets) -> None:
    """Refuse what cannot be checked.

    Raises:
        UsageError: nothing is allowed or forbidden, or one of two that need each other is missing.
    """
    if budgets.baseline is not None and budgets.max_regression is None:
        raise UsageError("a baseline needs max-regression, too")
    if budgets.baseline is None and budgets.max_regression is not None:
        raise UsageError("max-regression needs a baseline: a saved report or a trace")
    if budgets == Budgets():
        raise UsageError(
            f"no budget is given, either by a flag or in [{TABLE}] of a pyproject.toml; "
            f"the budgets are: {known_names()}"
        )


# --- what was measured ---


@dataclass(frozen=True, slots=True)
class _Part:
    """What a report says of one rank.

    Attributes:
        label: what tells it from the others; "" where there are none.
        steps_ns: the lengths of its steps.
        findings: None where the report has none of this window.
    """

    path: str
    label: str
    rank: int
    window: WindowMetrics
    steps_ns: tuple[int, ...]
    step_pattern: str
    overlaps: tuple[OverlapMetrics, ...]
    syncs: tuple[BlockingCallMetrics, ...]
    findings: tuple[Finding, ...] | None

    def named(self, device: DeviceMetrics) -> str:
        return ", ".join(filter(None, (self.label, f"GPU {device.device}")))


def check(
    budgets: Budgets,
    reports: Sequence[Report],
    *,
    step: int | None = None,
    baseline: Report | None = None,
) -> list[BudgetResult]:
    """Check reports against budgets; of several devices and ranks the worst is reported.

    Args:
        budgets: what is allowed.
        reports: what was measured, each of one rank or several.
        step: the number of the step to check; None for the whole trace.
        baseline: what to compare the steps with.

    Returns:
        a result for each budget.

    Raises:
        UsageError: a report does not have what a budget is about.
        UnreadableInputError: a report holds no figures.
    """
    require_checkable(budgets)
    parts = _parts(reports, step)
    results: list[BudgetResult] = []
    if budgets.max_idle is not None:
        limit = budgets.max_idle
        results.append(_share_of_window("max-idle", parts, limit, lambda device: device.idle_ns))
    for pair, share in budgets.min_overlap.items():
        results.append(_min_overlap(parts, pair, share))
    for kind, share in budgets.max_exposed.items():
        measure = partial(_exposed_ns, kind=kind)
        results.append(_share_of_window(f"max-exposed {kind}", parts, share, measure))
    if budgets.max_blocking_calls is not None:
        results.append(_max_blocking_calls(parts, budgets.max_blocking_calls))
    results += [_forbid(parts, rule) for rule in budgets.forbid]
    if budgets.max_step_ms is not None:
        results.append(_max_step_ms(parts, budgets.max_step_ms))
    if budgets.max_regression is not None:
        if baseline is None:
            raise UsageError("max-regression needs a baseline: a saved report or a trace")
        results.append(_max_regression(parts, baseline, budgets.max_regression))
    return results


def _parts(reports: Sequence[Report], step: int | None) -> list[_Part]:
    """Each rank of each report, in the window that is meant."""
    ranks = [trace.rank for report in reports for trace in report.traces]
    parts = [
        _part(report, rank, _label(ranks, rank.trace.path, rank.trace.rank), step)
        for report in reports
        for rank in ranks_of(report)
    ]
    if not parts or not all(part.window.devices for part in parts):
        raise UnreadableInputError("the report has no figures of any GPU")
    return parts


def _label(ranks: Sequence[int], path: str, rank: int) -> str:
    if len(ranks) == 1:
        return ""
    return f"rank {rank}" if len(set(ranks)) == len(ranks) else path


def _part(report: Report, rank: RankView, label: str, step: int | None) -> _Part:
    path = rank.trace.path
    views = [view for view in rank.views if view.step == step]
    if not views:
        numbers = [view.step for view in rank.steps if view.step is not None]
        if step is None and numbers:
            raise UsageError(
                f"{path}: this report covers only step {numbers[0]}: select it with `step`",
                option="step",
            )
        known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
        raise UsageError(f"{path}: there is no step {step}; the file's steps are: {known}")
    return _Part(
        path=path,
        label=label,
        rank=rank.trace.rank,
        window=views[0].window,
        steps_ns=tuple(view.length_ns for view in rank.steps if step in (None, view.step)),
        step_pattern=report.provenance.step_pattern,
        overlaps=views[0].overlaps,
        syncs=views[0].syncs,
        # A report of the whole trace has findings of the whole trace only.
        findings=None if rank.whole is not None and step is not None else views[0].findings,
    )


# --- one budget each ---


def _worst(candidates: _Candidates) -> BudgetResult:
    """The worst of the results that fail, or of all; the first of equals."""
    return max(candidates, key=lambda candidate: (not candidate[1].passed, candidate[0]))[1]


def _share_of_window(
    name: str, parts: Sequence[_Part], limit: float, measure: Callable[[DeviceMetrics], int]
) -> BudgetResult:
    def candidates() -> _Candidates:
        for part in parts:
            for device in part.window.devices:
                share = _percent(measure(device), part.window.length_ns)
                passed = share <= limit
                text = f"{_digits(share, limit, passed)} %"
                yield (
                    share,
                    BudgetResult(name, text, f"at most {limit:g} %", passed, part.named(device)),
                )

    return _worst(candidates())


def _exposed_ns(device: DeviceMetrics, kind: str) -> int:
    return device.exposed_comm_ns if kind == "comm" else device.exposed_copy_ns


def _min_overlap(parts: Sequence[_Part], pair: tuple[str, str], limit: float) -> BudgetResult:
    first, second = pair
    name, allowed = f"min-overlap {first}:{second}", f"at least {limit:g} %"

    def candidates() -> _Candidates:
        for part in parts:
            for device in part.window.devices:
                length_ns = getattr(device, f"{first}_ns")
                if not length_ns:
                    continue
                share = _percent(_overlap_ns(part, device.device, pair), length_ns)
                passed = share >= limit
                text = f"{_digits(share, limit, passed)} %"
                yield -share, BudgetResult(name, text, allowed, passed, part.named(device))

    measured = list(candidates())
    if not measured:
        return BudgetResult(name, "-", allowed, passed=True, where=f"no {first} ran")
    return _worst(measured)


def _overlap_ns(part: _Part, device: int, pair: tuple[str, str]) -> int:
    selections = {f"kind:{device}/{kind}" for kind in pair}
    return sum(
        overlap.overlap_ns for overlap in part.overlaps if {overlap.a, overlap.b} == selections
    )


def _max_blocking_calls(parts: Sequence[_Part], limit: float) -> BudgetResult:
    def candidates() -> _Candidates:
        for part in parts:
            count = sum(sync.count for sync in part.syncs)
            steps = len(part.steps_ns)
            rate = count / max(steps, 1)
            passed = rate <= limit
            site, at_site = _most_calls(part.syncs)
            where, file, line = "", None, None
            if site is not None:
                file, line = site.file, site.line
                of_all = f"{at_site} of {count}" + (f" in {steps} steps" if steps > 1 else "")
                where = f"most, {of_all}: {_call_site_text(site)}"
            yield (
                rate,
                BudgetResult(
                    "max-blocking-calls",
                    f"{_digits(rate, limit, passed)}{' a step' if steps else ''}",
                    f"at most {limit:g}",
                    passed,
                    ", ".join(filter(None, (part.label, where))),
                    file,
                    line,
                ),
            )

    return _worst(candidates())


def _most_calls(syncs: Sequence[BlockingCallMetrics]) -> tuple[BlockingCallMetrics | None, int]:
    """The call site with the most blocking calls, as its first row, and how many."""
    counts: Counter[tuple[str | int | None, ...]] = Counter()
    rows: dict[tuple[str | int | None, ...], BlockingCallMetrics] = {}
    for sync in syncs:
        site = (sync.file, sync.line, sync.function, sync.operator)
        counts[site] += sync.count
        rows.setdefault(site, sync)
    for most, count in counts.most_common(1):
        return rows[most], count
    return None, 0


def _call_site_text(sync: BlockingCallMetrics) -> str:
    file = sync.file if sync.line is None else f"{sync.file}:{sync.line}"
    inside = " ".join(filter(None, (sync.function, f"({file})" if file else "")))
    inside = inside or sync.operator or sync.annotation or ""
    return f"{sync.api} in {inside}" if inside else sync.api


def _forbid(parts: Sequence[_Part], rule: str) -> BudgetResult:
    forbidden: list[tuple[_Part, Finding]] = []
    for part in parts:
        if part.findings is None:
            raise UsageError(
                f"{part.path}: this report has the findings of the whole trace only; to hold a "
                "step to forbid, check the trace, or a report of that step"
            )
        forbidden += [
            (part, finding)
            for finding in part.findings
            if finding.rule.startswith(rule) and finding.severity != INFO
        ]
    name, allowed = f"forbid {rule}", "no finding"
    if not forbidden:
        return BudgetResult(name, "no finding", allowed, passed=True)
    part, worst = max(forbidden, key=lambda pair: (pair[1].bound_ns, pair[1].cost_ns))
    count = len(forbidden)
    more = f" (and {count - 1} more)" if count > 1 else ""
    of_rank = f"{part.label}, " if part.label else ""
    return BudgetResult(
        name,
        f"{count} finding{'s' if count > 1 else ''}",
        allowed,
        passed=False,
        where=f"{of_rank}{worst.rule}, {worst.severity}: {worst.title}{more}",
        file=worst.where.file,
        line=worst.where.line,
    )


def _max_step_ms(parts: Sequence[_Part], limit: float) -> BudgetResult:
    def candidates() -> _Candidates:
        for part in parts:
            steps = _steps(part.steps_ns, part.path, part.step_pattern, "max-step-ms")
            length = median(steps) / _MS
            passed = length <= limit
            count = "one step" if len(steps) == 1 else f"median of {len(steps)} steps"
            yield (
                length,
                BudgetResult(
                    "max-step-ms",
                    f"{_digits(length, limit, passed, 2)} ms",
                    f"at most {limit:g} ms",
                    passed,
                    ", ".join(filter(None, (part.label, count))),
                ),
            )

    return _worst(candidates())


def _max_regression(parts: Sequence[_Part], baseline: Report, limit: float) -> BudgetResult:
    name = "max-regression"
    steps_by_rank = _baseline_steps(baseline)
    path = baseline.traces[0].path if baseline.traces else "the baseline"
    pattern = baseline.provenance.step_pattern

    def candidates() -> _Candidates:
        for part in parts:
            if part.step_pattern != pattern:
                raise UsageError(
                    f"{part.path}: its steps are {part.step_pattern!r}, but those of the "
                    f"baseline {path} are {pattern!r}: only the same steps can be compared"
                )
            after_ns = _steps(part.steps_ns, part.path, part.step_pattern, name)
            # A rank is compared with itself, or with all ranks of a baseline that lacks it.
            before_ns = _steps(
                steps_by_rank.get(part.rank) or list(chain(*steps_by_rank.values())),
                f"the baseline {path}",
                pattern,
                name,
            )
            yield _regression(part.label, before_ns, after_ns, limit)

    return _worst(candidates())


def _regression(
    label: str, steps_before_ns: Sequence[int], steps_after_ns: Sequence[int], limit: float
) -> tuple[float, BudgetResult]:
    """How much longer the median step is, and whether that is too much.

    It is too much when it is above the limit and, with several steps on both sides, when the
    medians differ by more than the larger of the two interquartile ranges as well.
    """
    before_ns, after_ns = median(steps_before_ns), median(steps_after_ns)
    longer_ns = after_ns - before_ns
    percent = 0.0 if not longer_ns else 100 * longer_ns / before_ns if before_ns else math.inf
    sides = steps_before_ns, steps_after_ns
    spread_ns = max(map(interquartile, sides)) if min(map(len, sides)) > 1 else 0.0
    above = percent > limit
    inside = above and longer_ns <= spread_ns
    remarks = [label, f"median {after_ns / _MS:.2f} ms, baseline {before_ns / _MS:.2f} ms"]
    if inside:
        remarks.append(f"within the spread of the steps ({spread_ns / _MS:.2f} ms)")
    sign = "+" if longer_ns >= 0 else ""
    return percent, BudgetResult(
        "max-regression",
        f"{sign}{_digits(percent, limit, not above)} %",
        f"at most +{limit:g} %",
        not above or inside,
        ", ".join(filter(None, remarks)),
    )


def _baseline_steps(baseline: Report) -> dict[int, list[int]]:
    """The lengths of the baseline's steps, by rank."""
    return {
        rank.trace.rank: [view.length_ns for view in rank.steps]
        for rank in ranks_of(baseline)
        if rank.steps
    }


def _steps(lengths_ns: Sequence[int], path: str, pattern: str, budget: str) -> Sequence[int]:
    if not lengths_ns:
        raise UsageError(
            f"{path}: {budget} needs steps, and no annotation matches {pattern}; "
            "`step_pattern` selects other annotations",
            option="step_pattern",
        )
    return lengths_ns


def _percent(part_ns: int, whole_ns: int) -> float:
    return 100 * part_ns / whole_ns if whole_ns > 0 else 0.0


def _digits(value: float, limit: float, passed: bool, least: int = 1) -> str:
    """A number with as many digits as tell it from the limit that it breaks.

    >>> _digits(6.8123, 5, False), _digits(5.004, 5, False), _digits(5.004, 6, True)
    ('6.8', '5.004', '5.0')
    """
    if value.is_integer():
        return f"{value:.0f}"
    for digits in range(least, 9):
        text = f"{value:.{digits}f}"
        if passed or float(text) != limit:
            break
    return text
