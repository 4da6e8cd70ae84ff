"""What changed in one rank's parts: devices, streams, kernels, blocking calls, findings, tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from typing import TypeVar

from tracelab.comparison.diff import (
    AFTER,
    BEFORE,
    CHANGED,
    FIGURES,
    GONE,
    NEW,
    NUMBER,
    ORDER,
    SAME,
    CallDiff,
    DeviceDiff,
    FindingDiff,
    GraphStreamsDiff,
    KernelDiff,
    StreamDiff,
    TableDiff,
)
from tracelab.comparison.noise import LEAST_PERCENT, median
from tracelab.comparison.programs import steps_of
from tracelab.comparison.recordings import Compared, Pair, Recording
from tracelab.findings.finding import Finding
from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.measures.kernel_times import NameTimes
from tracelab.measures.window_times import DeviceMetrics
from tracelab.report.views import TREATED_APART, View

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)

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


def table_diffs(both: Pair) -> dict[str, tuple[TableDiff, ...]]:
    """The tables that have no comparison of their own, row by row."""
    views = (*both.before.views, *both.after.views)
    keys = dict.fromkeys(key for view in views for key in view.tables)
    return {key: _table_diff(both, key) for key in keys if key not in TREATED_APART}


def _table_diff(both: Pair, key: str) -> tuple[TableDiff, ...]:
    columns: dict[_Names, dict[str, None]] = {}
    for view in (*both.before.views, *both.after.views):
        for names, times in _times(view, key).items():
            columns.setdefault(names, {}).update(dict.fromkeys(times))

    def time(names: _Names, column: str) -> Callable[[View], int]:
        return lambda view: _times(view, key).get(names, {}).get(column, 0)

    rows = [
        TableDiff(
            dict(names), {column: both.change_of_views(time(names, column)) for column in of_row}
        )
        for names, of_row in columns.items()
    ]
    return tuple(
        sorted(rows, key=lambda row: -max(abs(x.difference_ns) for x in row.times.values()))
    )


def _times(view: View, key: str) -> dict[_Names, dict[str, int]]:
    """The times of each row, by column; rows are distinguished by their texts."""
    times: dict[_Names, dict[str, int]] = {}
    for row in view.tables.get(key, ()):
        values = {x.name: getattr(row, x.name) for x in fields(row)}
        names = tuple((name, value) for name, value in values.items() if type(value) is str)
        for column, value in values.items():
            if column.endswith("_ns") and isinstance(value, int):
                of_row = times.setdefault(names, {})
                of_row[column] = of_row.get(column, 0) + value
    return times


def device_diffs(both: Pair) -> tuple[DeviceDiff, ...]:
    """The devices, matched by number, else in the order of their numbers."""
    before, after = (
        sorted({device.device for view in side.views for device in view.window.devices})
        for side in (both.before, both.after)
    )
    return tuple(_device_diff(both, *numbers) for numbers in match(before, after))


def _device_diff(
    both: Pair, number_before: int | None, number_after: int | None, matched: str
) -> DeviceDiff:
    sides = (both.before, number_before), (both.after, number_after)
    causes = dict.fromkeys(
        cause
        for side, number in sides
        for view in side.views
        for device in _devices(view, number)
        for cause in device.bubbles
    )

    def sample(side: Compared, number: int | None, of: Callable[[DeviceMetrics], int]) -> list[int]:
        if number is None:
            return []
        return side.sample_of_views(lambda view: sum(map(of, _devices(view, number))))

    def busy(number: int | None) -> Callable[[DeviceMetrics], int]:
        return lambda device: sum(x.busy_ns for x in device.streams if x.stream == number)

    def streams(side: Compared, number: int | None) -> list[int]:
        """Their numbers, the busiest first, without those that are shown as one."""
        times: dict[int, int] = defaultdict(int)
        for view in side.views:
            for device in _devices(view, number):
                for stream in device.streams:
                    times[stream.stream] += stream.busy_ns
        as_one = _graph_streams(side, number)
        return sorted(times.keys() - as_one, key=lambda stream: (-times[stream], stream))

    def busy_of_graphs(device: DeviceMetrics) -> int:
        return device.graph_streams.busy_ns if device.graph_streams else 0

    graph_streams = [len(_graph_streams(*side)) for side in sides]

    def figure(name: str) -> Callable[[DeviceMetrics], int]:
        return lambda device: getattr(device, name)

    def idle(cause: str) -> Callable[[DeviceMetrics], int]:
        return lambda device: device.bubbles.get(cause, 0)

    return DeviceDiff(
        before=number_before,
        after=number_after,
        matched=matched,
        figures={
            name: both.change(*(sample(*side, figure(name)) for side in sides)) for name in FIGURES
        },
        bubbles={
            cause: both.change(*(sample(*side, idle(cause)) for side in sides)) for cause in causes
        },
        streams=tuple(
            StreamDiff(
                a,
                b,
                how,
                both.change(
                    *(
                        [] if stream is None else sample(*side, busy(stream))
                        for side, stream in zip(sides, (a, b), strict=True)
                    )
                ),
            )
            for a, b, how in match(*(streams(*side) for side in sides))
        ),
        graph_streams=(
            GraphStreamsDiff(
                before=graph_streams[0],
                after=graph_streams[1],
                busy=both.change(*(sample(*side, busy_of_graphs) for side in sides)),
            )
            if any(graph_streams)
            else None
        ),
    )


def _graph_streams(side: Compared, number: int | None) -> set[int]:
    """The numbers of the streams of a device that are shown as one."""
    return {
        stream
        for view in side.views
        for device in _devices(view, number)
        if device.graph_streams
        for stream in device.graph_streams.streams
    }


def _devices(view: View, number: int | None) -> list[DeviceMetrics]:
    return [device for device in view.window.devices if device.device == number]


def functions_tell_apart(both: Pair) -> bool:
    """Whether functions can tell calls apart: not where one side alone lacks them all."""
    known = [
        [call.function is not None for view in side.views for call in view.syncs]
        + [
            finding.where.function is not None
            for recording in side.recordings
            for finding in recording.findings
            if finding.about != "trace"
        ]
        for side in (both.before, both.after)
    ]
    return not all(known) or any(known[0]) == any(known[1])


def finding_diffs(both: Pair, *, places: bool) -> tuple[FindingDiff, ...]:
    """The findings of both sides, what changed most first; of several recordings the median one.

    That is the recording that stands for the others.
    """
    before, after = both.before.shown_recording, both.after.shown_recording

    def key(finding: Finding) -> tuple[str | None, ...]:
        where = finding.where
        if not places:
            return finding.rule, finding.cause
        name = where.call or where.operator or where.activity
        return finding.rule, finding.cause, finding.remedy, where.function, where.file, name

    groups_before, groups_after = _grouped(before.findings, key), _grouped(after.findings, key)
    bases_ns = before.scope.base_ns, after.scope.base_ns
    diffs = [
        _finding_diff(groups_before.get(group, []), groups_after.get(group, []), *bases_ns)
        for group in {**groups_before, **groups_after}
    ]
    return tuple(
        sorted(diffs, key=lambda diff: (-abs(diff.after_share - diff.before_share), diff.rule))
    )


def _finding_diff(
    before: Sequence[Finding], after: Sequence[Finding], before_base_ns: int, after_base_ns: int
) -> FindingDiff:
    """The same finding on both sides; bounds of one window may be added."""
    bounds = (
        sum(finding.bound_ns for finding in before),
        sum(finding.bound_ns for finding in after),
    )
    shares = bounds[0] / max(before_base_ns, 1), bounds[1] / max(after_base_ns, 1)
    real = abs(shares[1] - shares[0]) * 100 > LEAST_PERCENT
    shown = (*after, *before)[0]
    where = shown.where
    state = GONE if not after else NEW if not before else CHANGED if real else SAME
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
        before_count=len(before),
        after_count=len(after),
    )


def kernel_diffs(both: Pair) -> tuple[KernelDiff, ...] | None:
    """The GPU activities by name, what changed most first; None where a side does not know them."""
    sides = both.before, both.after
    if any(recording.kernels is None for side in sides for recording in side.recordings):
        return None
    tables = [
        {
            id(recording): {times.name: times for times in recording.kernels or ()}
            for recording in side.recordings
        }
        for side in sides
    ]
    names = dict.fromkeys(name for side in tables for rows in side.values() for name in rows)

    def sample(
        index: int, name: str, column: Callable[[NameTimes, Recording], Sequence[int]]
    ) -> list[int]:
        side, rows = sides[index], tables[index]
        if not any(name in of_recording for of_recording in rows.values()):
            return []

        def values_of(recording: Recording) -> Sequence[int]:
            times = rows[id(recording)].get(name)
            if times is None:
                return [0] * len(recording.views(per_step=both.per_step))
            return column(times, recording)

        return side.sample(values_of)

    def lengths_ns(times: NameTimes, recording: Recording) -> Sequence[int]:
        return steps_of(recording, times.steps_ns)[0] if both.per_step else (times.total_ns,)

    def counts(times: NameTimes, recording: Recording) -> Sequence[int]:
        return steps_of(recording, times.step_counts)[0] if both.per_step else (times.count,)

    diffs = [
        KernelDiff(
            name=name,
            before_count=median(before),
            after_count=median(after),
            total=both.change(sample(0, name, lengths_ns), sample(1, name, lengths_ns)),
            state=NEW if not any(before) else GONE if not any(after) else "",
        )
        for name in names
        for before, after in [(sample(0, name, counts), sample(1, name, counts))]
        if any(before) or any(after)
    ]
    return tuple(sorted(diffs, key=lambda diff: (-abs(diff.total.difference_ns), diff.name)))


def call_diffs(both: Pair, *, places: bool) -> tuple[CallDiff, ...]:
    """The blocking calls of both sides, what changed most first."""

    def key(call: BlockingCallMetrics) -> tuple[str | None, ...]:
        where = (call.function, call.file) if places else ()
        return call.api, call.kind, call.operator, *where

    calls = [
        call for side in (both.after, both.before) for view in side.views for call in view.syncs
    ]
    shown = {key(call): call for call in reversed(calls)}

    def total(group: tuple[str | None, ...], name: str) -> Callable[[View], int]:
        return lambda view: sum(getattr(call, name) for call in view.syncs if key(call) == group)

    diffs = []
    for group, call in shown.items():
        counts = [
            median(side.sample_of_views(total(group, "count")))
            for side in (both.before, both.after)
        ]
        diffs.append(
            CallDiff(
                api=call.api,
                kind=call.kind,
                operator=call.operator,
                function=call.function,
                file=call.file,
                line=call.line,
                before_count=counts[0],
                after_count=counts[1],
                blocked=both.change_of_views(total(group, "blocked_ns")),
                caused_idle=both.change_of_views(total(group, "caused_idle_ns")),
            )
        )

    def size(diff: CallDiff) -> tuple[int, int, str]:
        idle_ns, blocked_ns = diff.caused_idle.difference_ns, diff.blocked.difference_ns
        return -abs(idle_ns), -abs(blocked_ns), diff.api

    return tuple(sorted(diffs, key=size))


def _grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
