"""What changed between two recordings of a program: pure functions of their reports.

What is compared is the step: the median of a figure over the steps of each side, and how far
apart its middle half lies. Where a side has too few steps, it is the whole trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from os import PathLike
from typing import TypeVar

from tracelab.analysis import Analysis
from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    FIGURES,
    NUMBER,
    ORDER,
    SCHEMA,
    CallDiff,
    ComparedFile,
    DeviceDiff,
    Diff,
    FindingDiff,
    KernelDiff,
    RankDiff,
    Side,
    StreamDiff,
    TableDiff,
)
from tracelab.comparison.noise import FEWEST_STEPS, LEAST_PERCENT, Change, change, median
from tracelab.errors import UsageError
from tracelab.findings.finding import Finding
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.measures.kernel_times import NameTimes, kernel_times
from tracelab.measures.window_times import DeviceMetrics, WindowMetrics
from tracelab.options import DEFAULTS, Options
from tracelab.read.sources import find_sources, path_names
from tracelab.report.schema import Report
from tracelab.report.views import RankView, View, ranks_of
from tracelab.reports import FileResult, analyze_file, merge_results
from tracelab.version import __version__

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)

# The texts of a row, by column, to its times, by column, in every window.
_Times = dict[tuple[tuple[str, str], ...], dict[str, list[int]]]

# Tables that are compared in another way, or whose rows are not the same from run to run.
_NOT_COMPARED_BY_ROW = (
    "overlaps",
    "syncs",
    "holders",
    "critical_path",
    "starts",
    "latencies",
    "steady",
)

# What one side of a comparison may be given as.
Compared = Side | Report | str | PathLike[str] | Sequence[str | PathLike[str]]


def compare(before: Compared, after: Compared, options: Options = DEFAULTS) -> Diff:
    """What changed from one side to the other, rank by rank.

    One file is compared with one file whatever their ranks; of several, those with the same rank.

    Args:
        before: a trace, a saved report, a folder or a list of traces, or a `Report`.
        after: likewise.
        options: how traces are analyzed.

    Example:
        >>> before = "traces/prefetch_copy_stream_synchronize.pt.trace.json.gz"
        >>> after = "traces/prefetch_copy_stream_pinned.pt.trace.json.gz"
        >>> tracelab.compare(before, after).different
        True

    Raises:
        UsageError: no rank is on both sides, or a saved report stands among other files.
        TracelabError: a side cannot be analyzed.
    """
    return compare_sides(_side(before, options), _side(after, options))


def _side(given: Compared, options: Options) -> Side:
    if isinstance(given, Side):
        return given
    if isinstance(given, Report):
        return Side(given, None)
    names = path_names(given)
    read = partial(analyze_file, options=options, then=kernels_of, may_be_saved=True)
    return merge_side([read(source) for source in find_sources(names)], names, options)


def kernels_of(analysis: Analysis) -> tuple[NameTimes, ...]:
    """The times of a file's kernels: what a comparison needs beside the report."""
    return kernel_times(analysis.graph)


def merge_side(results: Sequence[FileResult], names: Sequence[str], options: Options) -> Side:
    """What was read of the files of one side as one; `FileResult.more` holds their kernels.

    Raises:
        UsageError: a saved report stands among other files.
        TracelabError: no file could be analyzed.
    """
    for result in results:
        if result.is_saved and result.report is not None:
            if len(results) > 1:
                raise UsageError(
                    f"{result.source.path}: a saved report cannot stand among other files"
                )
            return Side(result.report, None)
    kernels = tuple(result.more for result in results if result.report is not None)
    return Side(merge_results(results, names, options), kernels)


def compare_sides(before: Side, after: Side) -> Diff:
    """What changed from one side to the other; see `compare`.

    Raises:
        UsageError: no rank is on both sides.
    """
    files_before, files_after = _files(before), _files(after)
    if len(files_before) == len(files_after) == 1:
        pairs = [(files_before[0], files_after[0])]
        only_before: list[int] = []
        only_after: list[int] = []
    else:
        by_rank = {file.compared.rank: file for file in files_after}
        pairs = [
            (file, by_rank[file.compared.rank])
            for file in files_before
            if file.compared.rank in by_rank
        ]
        common = {file.compared.rank for file, _ in pairs}
        only_before = [
            file.compared.rank for file in files_before if file.compared.rank not in common
        ]
        only_after = [
            file.compared.rank for file in files_after if file.compared.rank not in common
        ]
    if not pairs:
        raise UsageError(
            f"nothing to compare: one side has rank {_listed(only_before)}, the other one "
            f"rank {_listed(only_after)}"
        )
    ranks = tuple(_compare_files(*pair) for pair in pairs)
    return Diff(
        schema=SCHEMA,
        version=__version__,
        different=any(rank.different for rank in ranks),
        saved_before=before.kernels is None,
        saved_after=after.kernels is None,
        same_options=_options(before.report) == _options(after.report),
        only_before=tuple(sorted(only_before)),
        only_after=tuple(sorted(only_after)),
        ranks=ranks,
    )


def match(
    before: Sequence[int], after: Sequence[int]
) -> tuple[tuple[int | None, int | None, str], ...]:
    """Pair numbers: the same ones, then the others in the order given, then what is left over.

    >>> match([7, 20], [7, 13, 24])
    ((7, 7, 'number'), (20, 13, 'order'), (None, 24, 'after only'))
    """
    same = [number for number in before if number in after]
    rest_before = [number for number in before if number not in same]
    rest_after = [number for number in after if number not in same]
    count = min(len(rest_before), len(rest_after))
    in_order = zip(rest_before[:count], rest_after[:count], strict=True)
    return (
        *((number, number, NUMBER) for number in sorted(same)),
        *((a, b, ORDER) for a, b in in_order),
        *((a, None, BEFORE) for a in rest_before[count:]),
        *((None, b, AFTER) for b in rest_after[count:]),
    )


@dataclass(frozen=True, slots=True)
class _File:
    """One file with what its report says of it."""

    compared: ComparedFile
    rank: RankView
    kernels: tuple[NameTimes, ...] | None

    @property
    def whole(self) -> WindowMetrics:
        return self.rank.main.window

    @property
    def steps(self) -> tuple[View, ...]:
        return self.rank.steps

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.rank.main.findings

    @property
    def syncs(self) -> tuple[BlockingCallMetrics, ...]:
        return tuple(call for view in self.rank.views for call in view.syncs)

    def views(self, *, per_step: bool) -> tuple[View, ...]:
        return self.steps if per_step else (self.rank.main,)


def _files(side: Side) -> list[_File]:
    ranks = ranks_of(side.report)
    kernels = side.kernels or (None,) * len(ranks)
    return [_file(rank, own) for rank, own in zip(ranks, kernels, strict=True)]


def _file(rank: RankView, kernels: tuple[NameTimes, ...] | None) -> _File:
    shown = rank.main
    if len(rank.steps) >= FEWEST_STEPS:
        by_length = sorted(rank.steps, key=lambda view: view.length_ns)
        shown = by_length[(len(by_length) - 1) // 2]
    window, trace = shown.window, rank.trace
    compared = ComparedFile(
        trace.path, trace.rank, len(rank.steps), window.step, window.start_ns, window.end_ns
    )
    return _File(compared, rank, kernels)


def _whole_shown(file: _File) -> ComparedFile:
    whole = file.whole
    return replace(file.compared, shown=None, start_ns=whole.start_ns, end_ns=whole.end_ns)


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _options(report: Report) -> tuple[frozenset[str], str]:
    return frozenset(report.provenance.comm_patterns), report.provenance.step_pattern


def _compare_files(before: _File, after: _File) -> RankDiff:
    per_step = min(len(before.steps), len(after.steps)) >= FEWEST_STEPS
    views_before = before.views(per_step=per_step)
    views_after = after.views(per_step=per_step)
    windows_before = [view.window for view in views_before]
    windows_after = [view.window for view in views_after]
    lengths_before = [view.length_ns for view in views_before]
    lengths_after = [view.length_ns for view in views_after]
    length_ns = median(lengths_before)
    places = _functions_tell_apart(before, after)
    both_kernels = None
    if before.kernels is not None and after.kernels is not None:
        both_kernels = _kernel_diffs(before.kernels, after.kernels, length_ns, per_step=per_step)
    return RankDiff(
        before=before.compared if per_step else _whole_shown(before),
        after=after.compared if per_step else _whole_shown(after),
        basis="step" if per_step else "trace",
        length=change(lengths_before, lengths_after, length_ns),
        devices=_device_diffs(windows_before, windows_after, length_ns),
        findings=_finding_diffs(before, after, places=places),
        kernels=both_kernels,
        calls=_call_diffs(
            (before, windows_before), (after, windows_after), length_ns, places=places
        ),
        places=places,
        tables=_table_diffs(views_before, views_after, length_ns),
    )


def _table_diffs(
    before: Sequence[View], after: Sequence[View], length_ns: int
) -> dict[str, tuple[TableDiff, ...]]:
    """The tables that have no comparison of their own, row by row."""
    keys = dict.fromkeys(key for view in (*before, *after) for key in view.tables)
    return {
        key: _table_diff(_times(before, key), _times(after, key), length_ns)
        for key in keys
        if key not in _NOT_COMPARED_BY_ROW
    }


def _table_diff(before: _Times, after: _Times, length_ns: int) -> tuple[TableDiff, ...]:
    rows = []
    for names in {**before, **after}:
        first, second = before.get(names, {}), after.get(names, {})
        changes = {
            column: change(first.get(column, ()), second.get(column, ()), length_ns)
            for column in {**first, **second}
        }
        rows.append(TableDiff(dict(names), changes))
    return tuple(
        sorted(rows, key=lambda row: -max(abs(x.difference_ns) for x in row.times.values()))
    )


def _times(views: Sequence[View], key: str) -> _Times:
    """The times of each row, distinguished by its texts, in every window; 0 where it is not."""
    times: _Times = {}
    for i, view in enumerate(views):
        for row in view.tables.get(key, ()):
            values = {x.name: getattr(row, x.name) for x in fields(row)}
            names = tuple((name, value) for name, value in values.items() if type(value) is str)
            for column, value in values.items():
                if column.endswith("_ns") and isinstance(value, int):
                    of_row = times.setdefault(names, {}).setdefault(column, [0] * len(views))
                    of_row[i] += value
    return times


def _device_diffs(
    windows_before: Sequence[WindowMetrics], windows_after: Sequence[WindowMetrics], length_ns: int
) -> tuple[DeviceDiff, ...]:
    """The devices, matched by number, else in the order of their numbers."""
    before, after = _by_device(windows_before), _by_device(windows_after)
    return tuple(
        _device_diff(a, b, matched, before.get(a, []), after.get(b, []), length_ns)
        for a, b, matched in match(_numbers(before), _numbers(after))
    )


def _by_device(windows: Iterable[WindowMetrics]) -> dict[int | None, list[DeviceMetrics]]:
    by_number: dict[int | None, list[DeviceMetrics]] = defaultdict(list)
    for window in windows:
        for device in window.devices:
            by_number[device.device].append(device)
    return dict(by_number)


def _numbers(by_number: Iterable[int | None]) -> list[int]:
    return sorted(number for number in by_number if number is not None)


def _device_diff(
    number_before: int | None,
    number_after: int | None,
    matched: str,
    before: Sequence[DeviceMetrics],
    after: Sequence[DeviceMetrics],
    length_ns: int,
) -> DeviceDiff:
    causes = dict.fromkeys(cause for device in (*before, *after) for cause in device.bubbles)
    busy_before, busy_after = _stream_times(before), _stream_times(after)
    return DeviceDiff(
        before=number_before,
        after=number_after,
        matched=matched,
        figures={
            name: change(
                [getattr(device, name) for device in before],
                [getattr(device, name) for device in after],
                length_ns,
            )
            for name in FIGURES
        },
        bubbles={
            cause: change(
                [device.bubbles.get(cause, 0) for device in before],
                [device.bubbles.get(cause, 0) for device in after],
                length_ns,
            )
            for cause in causes
        },
        streams=tuple(
            StreamDiff(a, b, how, change(busy_before.get(a, []), busy_after.get(b, []), length_ns))
            for a, b, how in match(_busiest_first(busy_before), _busiest_first(busy_after))
        ),
    )


def _stream_times(windows: Sequence[DeviceMetrics]) -> dict[int | None, list[int]]:
    """Stream to its busy time in every window, 0 where it did not work."""
    busy_by_stream: dict[int | None, list[int]] = {}
    for i, window in enumerate(windows):
        for stream in window.streams:
            busy_by_stream.setdefault(stream.stream, [0] * len(windows))[i] = stream.busy_ns
    return busy_by_stream


def _busiest_first(times: Mapping[int | None, Sequence[int]]) -> list[int]:
    return sorted(_numbers(times), key=lambda number: (-sum(times[number]), number))


def _functions_tell_apart(before: _File, after: _File) -> bool:
    """Whether functions can tell calls apart: not where one side alone lacks them all."""
    known = [
        [call.function is not None for call in file.syncs]
        + [
            finding.where.function is not None
            for finding in file.findings
            if finding.about != "trace"
        ]
        for file in (before, after)
    ]
    return not all(known) or any(known[0]) == any(known[1])


def _finding_diffs(before: _File, after: _File, *, places: bool) -> tuple[FindingDiff, ...]:
    """The findings of both sides, what changed most first."""

    def key(finding: Finding) -> tuple[str | None, ...]:
        where = finding.where
        if not places:
            return finding.rule, finding.cause
        name = where.call or where.operator or where.activity
        return finding.rule, finding.cause, where.function, where.file, name

    groups_before, groups_after = _grouped(before.findings, key), _grouped(after.findings, key)
    lengths_ns = before.whole.length_ns, after.whole.length_ns
    diffs = [
        _finding_diff(groups_before.get(group, []), groups_after.get(group, []), *lengths_ns)
        for group in {**groups_before, **groups_after}
    ]
    return tuple(
        sorted(diffs, key=lambda diff: (-abs(diff.after_share - diff.before_share), diff.rule))
    )


def _finding_diff(
    before: Sequence[Finding], after: Sequence[Finding], before_ns: int, after_ns: int
) -> FindingDiff:
    """The same finding on both sides; bounds of one window may be added."""
    bounds = (
        sum(finding.bound_ns for finding in before),
        sum(finding.bound_ns for finding in after),
    )
    shares = bounds[0] / max(before_ns, 1), bounds[1] / max(after_ns, 1)
    real = abs(shares[1] - shares[0]) * 100 > LEAST_PERCENT
    shown = (*after, *before)[0]
    where = shown.where
    state = "gone" if not after else "new" if not before else "changed" if real else "same"
    return FindingDiff(
        rule=shown.rule,
        cause=shown.cause,
        state=state,
        name=where.call or where.operator or where.api or where.activity or "",
        title=shown.title,
        where=where,
        before_ns=bounds[0],
        after_ns=bounds[1],
        before_share=shares[0],
        after_share=shares[1],
        about_the_trace=shown.about == "trace",
        beyond_noise=real,
    )


def _kernel_diffs(
    before: Sequence[NameTimes], after: Sequence[NameTimes], length_ns: int, *, per_step: bool
) -> tuple[KernelDiff, ...]:
    times_before = {times.name: times for times in before}
    times_after = {times.name: times for times in after}

    def lengths_ns(times: NameTimes | None) -> Sequence[int]:
        if times is None:
            return ()
        return times.steps_ns if per_step else (times.total_ns,)

    def count(times: NameTimes | None) -> int:
        if times is None:
            return 0
        return median(times.step_counts) if per_step else times.count

    diffs = [
        KernelDiff(name, count(a), count(b), change(lengths_ns(a), lengths_ns(b), length_ns))
        for name in {**times_before, **times_after}
        for a, b in [(times_before.get(name), times_after.get(name))]
    ]
    return tuple(sorted(diffs, key=lambda diff: (-abs(diff.total.difference_ns), diff.name)))


def _call_diffs(
    before: tuple[_File, Sequence[WindowMetrics]],
    after: tuple[_File, Sequence[WindowMetrics]],
    length_ns: int,
    *,
    places: bool,
) -> tuple[CallDiff, ...]:
    """The blocking calls of both sides, what changed most first."""

    def key(call: BlockingCallMetrics) -> tuple[str | None, ...]:
        where = (call.function, call.file) if places else ()
        return call.api, call.kind, call.operator, *where

    groups_before, groups_after = (
        _grouped(_calls_in(windows, file.syncs), key) for file, windows in (before, after)
    )
    diffs = [
        _call_diff(
            (groups_before.get(group, []), before[1]),
            (groups_after.get(group, []), after[1]),
            length_ns,
        )
        for group in {**groups_before, **groups_after}
    ]

    def size(diff: CallDiff) -> tuple[int, int, str]:
        idle_ns, blocked_ns = diff.caused_idle.difference_ns, diff.blocked.difference_ns
        return -abs(idle_ns), -abs(blocked_ns), diff.api

    return tuple(sorted(diffs, key=size))


def _calls_in(
    windows: Sequence[WindowMetrics], calls: Iterable[BlockingCallMetrics]
) -> list[BlockingCallMetrics]:
    """The calls in the windows compared; others lie outside all steps, or are there twice."""
    steps = {window.step for window in windows}
    return [call for call in calls if call.step in steps]


def _call_diff(
    before: tuple[Sequence[BlockingCallMetrics], Sequence[WindowMetrics]],
    after: tuple[Sequence[BlockingCallMetrics], Sequence[WindowMetrics]],
    length_ns: int,
) -> CallDiff:
    """The calls of one API at one place."""

    def compared(name: str) -> Change:
        return change(_per_window(*before, name), _per_window(*after, name), length_ns)

    shown = (*after[0], *before[0])[0]
    return CallDiff(
        api=shown.api,
        kind=shown.kind,
        operator=shown.operator,
        function=shown.function,
        file=shown.file,
        line=shown.line,
        before_count=median(_per_window(*before, "count")),
        after_count=median(_per_window(*after, "count")),
        blocked=compared("blocked_ns"),
        caused_idle=compared("caused_idle_ns"),
    )


def _per_window(
    calls: Iterable[BlockingCallMetrics], windows: Sequence[WindowMetrics], name: str
) -> list[int]:
    """One figure of these calls, added up in each window."""
    totals = {window.step: 0 for window in windows}
    for call in calls:
        totals[call.step] += getattr(call, name)
    return [totals[window.step] for window in windows]


def _grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
