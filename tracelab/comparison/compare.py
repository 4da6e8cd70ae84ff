"""Comparison of recordings of a program by their reports.

Figures are medians over the steady steps, or of whole traces if one side has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base import __version__
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.options import DEFAULTS, Options, require_types
from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    CALL_NAMES,
    CANNOT_TELL,
    CHANGED,
    DIFFERENT_PROGRAMS,
    FIGURES,
    GONE,
    LONGER,
    NEW,
    NUMBER,
    ORDER,
    SCHEMA,
    SHORTER,
    UNCHANGED,
    CallDiff,
    Change,
    DeviceDiff,
    Diff,
    FindingDiff,
    KernelDiff,
    PredictionDiff,
    RankDiff,
    Side,
    StreamDiff,
    TableDiff,
)
from tracelab.comparison.judge import is_same_program, judge
from tracelab.comparison.recordings import (
    MIN_PERCENT,
    Pair,
    Recording,
    Stretch,
    median,
    pair,
    recordings_of,
)
from tracelab.findings.finding import Finding
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.measures.window_times import PROFILED
from tracelab.measures.work import NameTimes, kernel_times
from tracelab.model.trace import Category
from tracelab.read.sources import Given as File, find_inputs, is_several
from tracelab.report.schema import Report, WhatIf

# One recording: a file or a folder, files of ranks, or what it became.
Given = Side | Report | File | Sequence[File]

_Row = TypeVar("_Row", bound=Hashable)
_FAILED = "{}: not compared, as a bug in tracelab cost parts of its analysis"


def compare(
    before: Given | Sequence[Given], after: Given | Sequence[Given], options: Options = DEFAULTS
) -> Diff:
    """Compare two sides rank by rank.

    One rank is compared with one rank whatever their numbers; of several, those with the same.
    Of a list, files of different ranks are one job; several of the same rank, or of none, are
    several recordings of one program, which say how much recordings differ.

    Args:
        before: a trace, a saved report, a folder of traces, or a `Report`; or a list of them. A
            list in that list is one recording of several ranks.
        after: likewise.
        options: how traces are analyzed.

    Example:
        >>> before = "traces/prefetch_copy_stream_synchronize.pt.trace.json.gz"
        >>> after = "traces/prefetch_copy_stream_pinned.pt.trace.json.gz"
        >>> tracelab.compare(before, after).verdict
        'shorter'

    Raises:
        UsageError: no rank is on both sides, or a saved report stands among other files.
        TracelabError: a side cannot be analyzed.
    """
    require_types(options=(options, Options))
    return compare_sides(_sides(before, "before", options), _sides(after, "after", options))


def _sides(given: object, name: str, options: Options) -> list[Side]:
    several = list(given) if is_several(given) else [given]
    if not several:
        raise UsageError(f"`{name}`: no file, folder or URL was given")
    return [_side(one, name, options) for one in several]


def _side(given: object, name: str, options: Options) -> Side:
    if isinstance(given, Side):
        return given
    if isinstance(given, Report):
        return Side(given, None)
    names, sources = find_inputs(given, name, options.max_unpacked_bytes)
    read = partial(
        analyze_file,
        options=options,
        then=launches_of,
        may_be_saved=True,
        is_alone=len(sources) == 1,
    )
    return merge_side([read(source) for source in sources], names, options)


# Times of a file's kernels, and calls of each operator.
Launches = tuple[tuple[NameTimes, ...], Mapping[str, int]]


def launches_of(analysis: Analysis) -> Launches:
    """Return the launches of a file, which its report lacks."""
    trace = analysis.graph.host.timeline.trace
    names, counts = np.unique(
        trace.name_index[trace.of_category(Category.OPERATOR)], return_counts=True
    )
    operators = {
        trace.strings[name_index]: count
        for name_index, count in zip(names.tolist(), counts.tolist(), strict=True)
    }
    return kernel_times(analysis.graph), operators


def merge_side(results: Sequence[FileResult], names: Sequence[str], options: Options) -> Side:
    """Merge the files of one recording; `FileResult.more` holds launches.

    Raises:
        UsageError: a saved report stands among other files.
        TracelabError: no file could be analyzed.
    """
    report = merge_results(results, names, options)
    if any(result.is_saved for result in results):
        return Side(report, None)
    launches: dict[str, Launches] = {
        result.report.traces[0].path: result.more for result in results if result.report is not None
    }
    of_files = [launches[trace.path] for trace in report.traces]
    return Side(report, tuple(x for x, _ in of_files), tuple(x for _, x in of_files))


def compare_sides(before: Side | Sequence[Side], after: Side | Sequence[Side]) -> Diff:
    """Compare two sides of one recording or several; see `compare`.

    Raises:
        UsageError: no rank is on both sides.
        UnreadableInputError: a bug in tracelab cost a part of a report.
    """
    sides_before = [before] if isinstance(before, Side) else list(before)
    sides_after = [after] if isinstance(after, Side) else list(after)
    for side in (*sides_before, *sides_after):
        if side.report.has_failed_parts:
            raise UnreadableInputError(_FAILED.format(side.report.traces[0].path))
    ranks_before, ranks_after = _group_by_rank(sides_before), _group_by_rank(sides_after)
    if len(ranks_before) == len(ranks_after) == 1:
        ranks_after = dict(zip(ranks_before, ranks_after.values(), strict=True))
    only_before = sorted(ranks_before.keys() - ranks_after)
    only_after = sorted(ranks_after.keys() - ranks_before)
    pairs = [pair(x, ranks_after[rank]) for rank, x in ranks_before.items() if rank in ranks_after]
    if not pairs:
        numbers = (", ".join(map(str, ranks)) for ranks in (only_before, only_after))
        raise UsageError(
            "nothing to compare: one side has rank {}, the other one rank {}".format(*numbers)
        )
    # One rank may idle while another works: programs of a job differ if all ranks' do.
    same = [is_same_program(x) for x in pairs]
    same_program = None if None in same else any(same)
    ranks = tuple(_compare_rank(both, same_program=same_program) for both in pairs)
    sides = [*sides_before, *sides_after]
    found = Diff(
        schema=SCHEMA,
        version=__version__,
        different=any(rank.different for rank in ranks),
        saved_before=any(side.kernels is None for side in sides_before),
        saved_after=any(side.kernels is None for side in sides_after),
        same_options=len({_options(side.report) for side in sides}) == 1,
        only_before=tuple(only_before),
        only_after=tuple(only_after),
        ranks=ranks,
        verdict=_verdict(ranks),
        same_program=same_program,
    )
    whatifs = [side.report.whatif for side in sides_before if side.report.whatif is not None]
    if len(whatifs) != 1:
        return found
    rank = found.slowest
    profiled_ns = rank.length.before_ns, rank.length.after_ns
    unprofiled_ns = rank.unprofiled_before_ns, rank.unprofiled_after_ns
    return replace(found, predictions=prediction_diffs(whatifs[0], profiled_ns, unprofiled_ns))


def prediction_diffs(
    whatif: WhatIf, profiled_ns: tuple[int, int], unprofiled_ns: tuple[int | None, int | None]
) -> tuple[PredictionDiff, ...]:
    """Compare saved predictions with measured steps, ns."""
    before_ns, after_ns = profiled_ns if whatif.basis == PROFILED else unprofiled_ns
    measured_ns = None if before_ns is None or after_ns is None else before_ns - after_ns
    return tuple(
        PredictionDiff(x.name, x.edits, whatif.basis, *x.saving_ns, measured_ns)
        for x in whatif.predictions
    )


def _group_by_rank(sides: Iterable[Side]) -> dict[int, list[Recording]]:
    ranks: dict[int, list[Recording]] = {}
    for side in sides:
        for recording in recordings_of(side):
            ranks.setdefault(recording.rank.trace.rank, []).append(recording)
    return ranks


def _verdict(ranks: Sequence[RankDiff]) -> str:
    if {SHORTER, LONGER} <= {rank.verdict for rank in ranks}:
        return CANNOT_TELL
    return max(ranks, key=lambda rank: rank.length.after_ns).verdict


def _options(report: Report) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(report.provenance.comm_patterns), frozenset(report.step_patterns)


def _compare_rank(both: Pair, *, same_program: bool | None) -> RankDiff:
    length, verdict, doubts, speed_percent = judge(both)
    places = _functions_tell_apart(both)
    differs = same_program is False
    before, after = (side.shown for side in both.sides)
    return RankDiff(
        before=before[0],
        after=after[0],
        basis="step" if both.per_step else "trace",
        length=length,
        devices=_device_diffs(both),
        findings=_finding_diffs(before[1], after[1], places=places),
        kernels=_kernel_diffs(both),
        calls=_call_diffs(both, places=places),
        places=places,
        tables=_table_diffs(both),
        verdict=DIFFERENT_PROGRAMS if differs else verdict,
        doubts=() if differs else doubts,
        speed_percent=speed_percent,
        unprofiled_before_ns=both.before.unprofiled_step_ns,
        unprofiled_after_ns=both.after.unprofiled_step_ns,
        before_recordings=both.before.files,
        after_recordings=both.after.files,
        before_scope=before[1].rank.main.scope.name,
        after_scope=after[1].rank.main.scope.name,
    )


def _changes_of_rows(
    both: Pair, cells_of: Callable[[Stretch], Mapping[tuple[_Row, str], int]]
) -> dict[_Row, dict[str, Change]]:
    rows: dict[_Row, dict[str, Change]] = {}
    for (row, column), change in both.changes(cells_of).items():
        rows.setdefault(row, {})[column] = change
    return rows


def match(
    before: Sequence[int], after: Sequence[int]
) -> tuple[tuple[int | None, int | None, str], ...]:
    """Pair equal numbers, then the others in the order given, then the rest.

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


# --- tables of any measure ---


def _table_diffs(both: Pair) -> dict[str, tuple[TableDiff, ...]]:
    views = (*both.before.views, *both.after.views)
    keys = dict.fromkeys(key for view in views for key in view.other_tables)
    return {key: _table_diff(both, key) for key in keys}


def _table_diff(both: Pair, key: str) -> tuple[TableDiff, ...]:
    rows = _changes_of_rows(both, lambda x: _times(x.view.tables.get(key, ())))
    diffs = [TableDiff(dict(names), times) for names, times in rows.items()]
    return tuple(
        sorted(diffs, key=lambda row: -max(abs(x.difference_ns) for x in row.times.values()))
    )


def _times(rows: Sequence[Any]) -> Counter[tuple[tuple[tuple[str, str], ...], str]]:
    times = Counter[tuple[tuple[tuple[str, str], ...], str]]()
    for row in rows:
        values = {x.name: getattr(row, x.name) for x in fields(row)}
        names = tuple((name, value) for name, value in values.items() if type(value) is str)
        for column, value in values.items():
            if column.endswith("_ns") and isinstance(value, int):
                times[names, column] += value
    return times


# --- devices ---


def _device_diffs(both: Pair) -> tuple[DeviceDiff, ...]:
    numbers = (
        sorted({device.device for view in side.views for device in view.window.devices})
        for side in both.sides
    )
    return tuple(_device_diff(both, *matched) for matched in match(*numbers))


def _device_diff(both: Pair, before: int | None, after: int | None, matched: str) -> DeviceDiff:
    tables = [
        side.table(partial(_device_cells, number=number))
        for side, number in zip(both.sides, (before, after), strict=True)
    ]

    def changed(sort: str, *names: str | int | None) -> Change:
        return both.change(
            *(table.get((sort, x), ()) for table, x in zip(tables, names, strict=True))
        )

    # The busiest first, which pairs those without a namesake.
    streams = [
        sorted(
            (number for sort, number in table if sort == "stream" and isinstance(number, int)),
            key=lambda number: (-sum(table["stream", number]), number),
        )
        for table in tables
    ]
    causes = dict.fromkeys(str(name) for x in tables for sort, name in x if sort == "idle")
    return DeviceDiff(
        before=before,
        after=after,
        matched=matched,
        figures={name: changed("time", name, name) for name in FIGURES},
        bubbles={cause: changed("idle", cause, cause) for cause in causes},
        streams=tuple(
            StreamDiff(a, b, how, changed("stream", a, b)) for a, b, how in match(*streams)
        ),
    )


def _device_cells(x: Stretch, number: int | None) -> dict[tuple[str, str | int | None], int]:
    cells: dict[tuple[str, str | int | None], int] = {}
    for device in x.view.window.devices:
        if device.device == number:
            as_one = device.graph_streams.streams if device.graph_streams else ()
            cells |= {("time", name): getattr(device, name) for name in FIGURES}
            cells |= {("idle", cause): ns for cause, ns in device.bubbles.items()}
            cells |= {
                ("stream", stream.stream): stream.busy_ns
                for stream in device.streams
                if stream.stream not in as_one
            }
    return cells


# --- kernels ---


def _kernel_diffs(both: Pair) -> tuple[KernelDiff, ...] | None:
    if any(x.kernels is None for side in both.sides for x in side.recordings):
        return None
    samples = both.samples(
        lambda x: {(name, i): row[i] for name, row in x.launched.items() for i in (0, 1)}
    )
    diffs = []
    for name in dict.fromkeys(name for name, _ in samples):
        before, after = samples[name, 0]
        if any(before) or any(after):
            state = NEW if not any(before) else GONE if not any(after) else ""
            total = both.change(*samples[name, 1])
            diffs.append(KernelDiff(name, median(before), median(after), total, state))
    return tuple(sorted(diffs, key=lambda diff: (-abs(diff.total.difference_ns), diff.name)))


# --- blocking calls ---

_CallKey = tuple[str | None, ...]


def _call_diffs(both: Pair, *, places: bool) -> tuple[CallDiff, ...]:
    def key(call: BlockingCallMetrics) -> _CallKey:
        where = (call.function, call.file) if places else ()
        return call.api, call.kind, call.operator, *where

    def cells(x: Stretch) -> Counter[tuple[_CallKey, str]]:
        figures = Counter[tuple[_CallKey, str]]()
        for call in x.view.syncs:
            for column in ("count", "blocked_ns", "caused_idle_ns"):
                figures[key(call), column] += getattr(call, column)
        return figures

    rows = _changes_of_rows(both, cells)
    views = (*both.after.views, *both.before.views)
    calls = {key(call): call for call in reversed([call for view in views for call in view.syncs])}
    diffs = [
        CallDiff(
            **{name: getattr(call, name) for name in CALL_NAMES},
            before_count=rows[group]["count"].before_ns,
            after_count=rows[group]["count"].after_ns,
            blocked=rows[group]["blocked_ns"],
            caused_idle=rows[group]["caused_idle_ns"],
        )
        for group, call in calls.items()
    ]

    def size(diff: CallDiff) -> tuple[int, int, str]:
        idle_ns, blocked_ns = diff.caused_idle.difference_ns, diff.blocked.difference_ns
        return -abs(idle_ns), -abs(blocked_ns), diff.api

    return tuple(sorted(diffs, key=size))


def _functions_tell_apart(both: Pair) -> bool:
    """True if functions distinguish calls, unless one side lacks them all."""
    known = [
        {call.function is not None for view in side.views for call in view.syncs}
        | {
            finding.where.function is not None
            for recording in side.recordings
            for finding in recording.findings
            if finding.about != "trace"
        }
        for side in both.sides
    ]
    return not all(known) or (True in known[0]) == (True in known[1])


# --- findings ---


def _finding_diffs(before: Recording, after: Recording, *, places: bool) -> tuple[FindingDiff, ...]:
    groups: dict[tuple[str | None, ...], tuple[list[Finding], list[Finding]]] = {}
    for index, recording in enumerate((before, after)):
        for finding in recording.findings:
            groups.setdefault(_key(finding, places=places), ([], []))[index].append(finding)
    bases_ns = [max(1, recording.rank.main.scope.base_ns) for recording in (before, after)]
    diffs = [_finding_diff(*sides, *bases_ns) for sides in groups.values()]
    return tuple(
        sorted(diffs, key=lambda diff: (-abs(diff.after_share - diff.before_share), diff.rule))
    )


def _key(finding: Finding, *, places: bool) -> tuple[str | None, ...]:
    where = finding.where
    if not places:
        return finding.rule, finding.cause
    name = where.call or where.operator or where.activity
    return finding.rule, finding.cause, finding.remedy, where.function, where.file, name


def _finding_diff(
    before: Sequence[Finding], after: Sequence[Finding], before_base_ns: int, after_base_ns: int
) -> FindingDiff:
    before_ns, after_ns = (sum(x.bound_ns for x in side) for side in (before, after))
    shares = before_ns / before_base_ns, after_ns / after_base_ns
    real = abs(shares[1] - shares[0]) * 100 > MIN_PERCENT
    shown = (*after, *before)[0]
    where = shown.where
    return FindingDiff(
        rule=shown.rule,
        cause=shown.cause,
        state=GONE if not after else NEW if not before else CHANGED if real else UNCHANGED,
        name=where.call or where.operator or where.api or where.activity or "",
        title=shown.title,
        where=where,
        before_ns=before_ns,
        after_ns=after_ns,
        before_share=shares[0],
        after_share=shares[1],
        about_the_trace=shown.about == "trace",
        beyond_noise=real,
        before_count=len(before),
        after_count=len(after),
    )
