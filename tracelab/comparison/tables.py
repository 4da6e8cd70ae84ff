"""Compare the tables of one rank: devices, streams, kernels, blocking calls, findings, others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    CHANGED,
    FIGURES,
    GONE,
    NEW,
    NUMBER,
    ORDER,
    UNCHANGED,
    CallDiff,
    DeviceDiff,
    FindingDiff,
    GraphStreamsDiff,
    KernelDiff,
    StreamDiff,
    TableDiff,
)
from tracelab.comparison.noise import MIN_PERCENT, Change, median
from tracelab.comparison.recordings import Compared, Pair
from tracelab.findings.finding import Finding
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.measures.window_times import DeviceMetrics
from tracelab.report.views import View

# The texts of a row, by column.
_Names = tuple[tuple[str, str], ...]


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


# --- tables of any measure ---


def table_diffs(both: Pair) -> dict[str, tuple[TableDiff, ...]]:
    """Compare the tables that have no comparison of their own, the largest change first."""
    views = (*both.before.views, *both.after.views)
    keys = dict.fromkeys(key for view in views for key in view.other_tables)
    return {key: _table_diff(both, key) for key in keys}


def _table_diff(both: Pair, key: str) -> tuple[TableDiff, ...]:
    rows: dict[_Names, dict[str, Change]] = {}
    changes = both.changes(lambda view: _times(view.tables.get(key, ())))
    for (names, column), change in changes.items():
        rows.setdefault(names, {})[column] = change
    diffs = [TableDiff(dict(names), times) for names, times in rows.items()]
    return tuple(
        sorted(diffs, key=lambda row: -max(abs(x.difference_ns) for x in row.times.values()))
    )


def _times(rows: Sequence[Any]) -> Counter[tuple[_Names, str]]:
    """Add up the times of rows with the same texts, by column."""
    times = Counter[tuple[_Names, str]]()
    for row in rows:
        values = {x.name: getattr(row, x.name) for x in fields(row)}
        names = tuple((name, value) for name, value in values.items() if type(value) is str)
        for column, value in values.items():
            if column.endswith("_ns") and isinstance(value, int):
                times[names, column] += value
    return times


# --- devices ---


def device_diffs(both: Pair) -> tuple[DeviceDiff, ...]:
    """Compare the devices, matched by number, else in the order of their numbers."""
    numbers = (
        sorted({device.device for view in side.views for device in view.window.devices})
        for side in both.sides
    )
    return tuple(_device_diff(both, *matched) for matched in match(*numbers))


def _device_diff(both: Pair, before: int | None, after: int | None, matched: str) -> DeviceDiff:
    numbered = list(zip(both.sides, (before, after), strict=True))
    tables = [side.table_of_views(partial(_device_cells, number)) for side, number in numbered]
    streams = [_streams(side, number) for side, number in numbered]
    counts = [len(as_one) for _, as_one in streams]

    def changed(*keys: tuple[str, str | int | None]) -> Change:
        return both.change(*(table.get(key, ()) for table, key in zip(tables, keys, strict=True)))

    return DeviceDiff(
        before=before,
        after=after,
        matched=matched,
        figures={name: changed(("time", name), ("time", name)) for name in FIGURES},
        bubbles={
            str(key[1]): changed(key, key) for key in {**tables[0], **tables[1]} if key[0] == "idle"
        },
        streams=tuple(
            StreamDiff(a, b, how, changed(("stream", a), ("stream", b)))
            for a, b, how in match(*(alone for alone, _ in streams))
        ),
        graph_streams=(
            GraphStreamsDiff(counts[0], counts[1], changed(("graphs", None), ("graphs", None)))
            if any(counts)
            else None
        ),
    )


def _device_cells(number: int | None, view: View) -> dict[tuple[str, str | int | None], int]:
    """Return the times of a device in a window, ns."""
    cells: dict[tuple[str, str | int | None], int] = {}
    for device in _devices(view, number):
        cells |= {("time", name): getattr(device, name) for name in FIGURES}
        cells |= {("idle", cause): time_ns for cause, time_ns in device.bubbles.items()}
        cells |= {("stream", stream.stream): stream.busy_ns for stream in device.streams}
        if device.graph_streams:
            cells["graphs", None] = device.graph_streams.busy_ns
    return cells


def _streams(side: Compared, number: int | None) -> tuple[list[int], set[int]]:
    """Return the streams of a device, the busiest first, and those that are shown as one."""
    devices = [device for view in side.views for device in _devices(view, number)]
    as_one = {x for device in devices if device.graph_streams for x in device.graph_streams.streams}
    times = Counter[int]()
    for device in devices:
        times.update({stream.stream: stream.busy_ns for stream in device.streams})
    alone = times.keys() - as_one
    return sorted(alone, key=lambda stream: (-times[stream], stream)), as_one


def _devices(view: View, number: int | None) -> list[DeviceMetrics]:
    return [device for device in view.window.devices if device.device == number]


# --- kernels ---


def kernel_diffs(both: Pair) -> tuple[KernelDiff, ...] | None:
    """Compare the GPU activities by name, the largest change first; None if a side lacks them."""
    if any(x.kernels is None for side in both.sides for x in side.recordings):
        return None
    before, after = (
        side.table(
            lambda x: [
                {(name, i): figures[i] for name, figures in window.items() for i in (0, 1)}
                for window in x.launches(per_step=both.per_step)
            ]
        )
        for side in both.sides
    )
    diffs = []
    for name in dict.fromkeys(name for name, _ in {**before, **after}):
        counts, times = ((before.get((name, i), ()), after.get((name, i), ())) for i in (0, 1))
        if any(map(any, counts)):
            state = NEW if not any(counts[0]) else GONE if not any(counts[1]) else ""
            a, b = map(median, counts)
            diffs.append(KernelDiff(name, a, b, both.change(*times), state))
    return tuple(sorted(diffs, key=lambda diff: (-abs(diff.total.difference_ns), diff.name)))


# --- blocking calls ---


def call_diffs(both: Pair, *, places: bool) -> tuple[CallDiff, ...]:
    """Compare the blocking calls, the largest change first."""

    def key(call: BlockingCallMetrics) -> tuple[str | None, ...]:
        where = (call.function, call.file) if places else ()
        return call.api, call.kind, call.operator, *where

    def cells(view: View) -> Counter[tuple[tuple[str | None, ...], str]]:
        figures = Counter[tuple[tuple[str | None, ...], str]]()
        for call in view.syncs:
            for column in ("count", "blocked_ns", "caused_idle_ns"):
                figures[key(call), column] += getattr(call, column)
        return figures

    changes = both.changes(cells)
    views = (*both.after.views, *both.before.views)
    calls = [call for view in views for call in view.syncs]
    diffs = [
        CallDiff(
            api=call.api,
            kind=call.kind,
            operator=call.operator,
            function=call.function,
            file=call.file,
            line=call.line,
            before_count=changes[group, "count"].before_ns,
            after_count=changes[group, "count"].after_ns,
            blocked=changes[group, "blocked_ns"],
            caused_idle=changes[group, "caused_idle_ns"],
        )
        for group, call in {key(call): call for call in reversed(calls)}.items()
    ]

    def size(diff: CallDiff) -> tuple[int, int, str]:
        idle_ns, blocked_ns = diff.caused_idle.difference_ns, diff.blocked.difference_ns
        return -abs(idle_ns), -abs(blocked_ns), diff.api

    return tuple(sorted(diffs, key=size))


def functions_tell_apart(both: Pair) -> bool:
    """True if functions distinguish calls: not if one side alone lacks them all."""
    known = [
        [call.function is not None for view in side.views for call in view.syncs]
        + [
            finding.where.function is not None
            for recording in side.recordings
            for finding in recording.findings
            if finding.about != "trace"
        ]
        for side in both.sides
    ]
    return not all(known) or any(known[0]) == any(known[1])


# --- findings ---


def finding_diffs(both: Pair, *, places: bool) -> tuple[FindingDiff, ...]:
    """Compare the findings, the largest change first; of several recordings the median one."""
    groups: dict[tuple[str | None, ...], tuple[list[Finding], list[Finding]]] = {}
    shown = [side.shown[1] for side in both.sides]
    for index, recording in enumerate(shown):
        for finding in recording.findings:
            groups.setdefault(_key(finding, places=places), ([], []))[index].append(finding)
    before_ns, after_ns = (recording.rank.main.scope.base_ns for recording in shown)
    diffs = [_finding_diff(*pair, before_ns, after_ns) for pair in groups.values()]
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
    """Compare a finding of both sides; bounds of one window may be added."""
    before_ns, after_ns = (sum(x.bound_ns for x in side) for side in (before, after))
    shares = before_ns / max(before_base_ns, 1), after_ns / max(after_base_ns, 1)
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
