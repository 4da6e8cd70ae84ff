"""Busy time of each device and stream, and the overlap between them.

Exposed time of A is the time in which A ran and what should overlap it did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby
from typing import Annotated

import numpy as np

from tracelab.base.arrays import Arrays, IndexArray, Int64Array, Record
from tracelab.base.intervals import (
    Intervals,
    intersect,
    join,
    measure,
    measure_within,
    subtract,
    union,
)
from tracelab.base.options import Options
from tracelab.measures.measure import Measure, constrained
from tracelab.model.activities import Stream
from tracelab.model.cuda_graphs import replayed
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window, bounds_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_Bounds = tuple[Int64Array, Int64Array]
_SELECTION = r"^(stream:\d+/(\d+|graphs)|kind:\d+/(compute|comm|copy|memset)|device:\d+)$"


class StreamTime(Record):
    """One stream in one window, ns."""

    stream: int
    busy_ns: int
    activities: int


class GraphStreamsTime(Record):
    """The nearly empty streams of CUDA graphs of a device in one window; they are shown as one.

    Attributes:
        streams: the numbers of those that did anything in the window; each is among the device's
            streams, too.
        busy_ns: how long at least one of them worked, ns.
        activities: how many of theirs are seen in the window.
    """

    streams: tuple[int, ...]
    busy_ns: int
    activities: int


class DeviceTime(Record):
    """One device in one window, ns; ``busy_ns + idle_ns`` is the window's length.

    Exposed communication is not overlapped with compute; an exposed copy not with compute or
    communication. `graph_streams` is None unless some streams are shown as one.
    """

    device: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int
    memset_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    comm_compute_overlap_ns: int
    copy_compute_overlap_ns: int
    streams: tuple[StreamTime, ...]
    graph_streams: GraphStreamsTime | None = None


class OverlapMetrics(Record):
    """Two selections of activities in one window, ns.

    Attributes:
        a, b: the selections: ``kind:DEVICE/KIND``, ``stream:DEVICE/STREAM`` or ``device:DEVICE``;
            ``stream:DEVICE/graphs`` are the nearly empty streams of CUDA graphs together.
        a_ns, b_ns: how long any activity of each ran.
        overlap_ns: how long activities of both ran at the same time.
    """

    rank: int
    step: int | None
    a: Annotated[str, constrained(pattern=_SELECTION)]
    b: Annotated[str, constrained(pattern=_SELECTION)]
    a_ns: int
    b_ns: int
    overlap_ns: int


def device_times(
    graph: Graph, windows: Sequence[Window] | None = None
) -> tuple[tuple[DeviceTime, ...], ...]:
    """Measure the times of each device: per window, per device."""
    timeline = graph.host.timeline
    bounds_ns = bounds_of(timeline.windows if windows is None else windows)
    as_one = {x.device_number: x for x in graph_streams(timeline)}
    columns = [
        _device_columns(timeline, device, tuple(streams), as_one.get(device), bounds_ns)
        for device, streams in groupby(timeline.streams, lambda stream: stream.device_number)
    ]
    return tuple(zip(*columns, strict=True))


def overlaps(
    graph: Graph, windows: Sequence[Window] | None = None, *, all_pairs: bool = False
) -> tuple[OverlapMetrics, ...]:
    """Measure overlap per window: every pair of kinds of a device, of streams and of devices.

    Pairs of which one side did nothing in the window are left out; streams are `compared_streams`,
    unless `all_pairs` is set.
    """
    timeline = graph.host.timeline
    windows = timeline.windows if windows is None else windows
    bounds_ns = bounds_of(windows)
    pairs: list[list[OverlapMetrics]] = [[] for _ in windows]
    streams = compared_streams(timeline, all_pairs=all_pairs)
    as_one = () if all_pairs else graph_streams(timeline)
    for group in _selections(timeline, streams, as_one):
        lengths_ns = {name: measure_within(busy, *bounds_ns) for name, busy in group.items()}
        for a, b in combinations(group, 2):
            window_indices = np.flatnonzero((lengths_ns[a] > 0) & (lengths_ns[b] > 0)).tolist()
            if not window_indices:
                continue
            overlap_ns = measure_within(intersect(group[a], group[b]), *bounds_ns)
            for i in window_indices:
                times_ns = int(lengths_ns[a][i]), int(lengths_ns[b][i]), int(overlap_ns[i])
                pairs[i].append(OverlapMetrics(0, windows[i].step, a, b, *times_ns))
    return tuple(pair for of_window in pairs for pair in of_window)


def _selections(
    timeline: Timeline, streams: Sequence[Stream], as_one: Sequence[GraphStreams]
) -> Iterator[dict[str, Intervals]]:
    """The groups of which each pair is compared: selections by name, and when any of each ran."""
    for device in timeline.device_numbers:
        yield {
            f"kind:{device}/{kind.name.lower()}": busy
            for kind, busy in _busy_by_kind(timeline, device).items()
        }
    yield {
        f"stream:{stream.device_number}/{stream.stream_number}": timeline.busy(
            slice(stream.first_row, stream.end_row)
        )
        for stream in streams
    } | {together.selection: together.busy(timeline) for together in as_one}
    devices = sorted({x.device_number for x in streams} | {x.device_number for x in as_one})
    yield {f"device:{device}": timeline.busy(timeline.select(device=device)) for device in devices}


def _busy_by_kind(timeline: Timeline, device: int) -> dict[Kind, Intervals]:
    own = timeline.rows_of(device)
    kind, start_ns, end_ns = timeline.kind[own], timeline.start_ns[own], timeline.end_ns[own]
    return {x: union(start_ns[kind == x], end_ns[kind == x]) for x in Kind}


def _device_columns(
    timeline: Timeline,
    device: int,
    streams: Sequence[Stream],
    as_one: GraphStreams | None,
    bounds_ns: _Bounds,
) -> list[DeviceTime]:
    compute, comm, copy, memset = _busy_by_kind(timeline, device).values()
    measured = {
        "busy_ns": timeline.busy(timeline.rows_of(device)),
        "compute_ns": compute,
        "comm_ns": comm,
        "copy_ns": copy,
        "memset_ns": memset,
        "exposed_comm_ns": subtract(comm, compute),
        "exposed_copy_ns": subtract(copy, join(compute, comm)),
        "comm_compute_overlap_ns": intersect(comm, compute),
        "copy_compute_overlap_ns": intersect(copy, compute),
    }
    times_ns = {name: measure_within(times, *bounds_ns) for name, times in measured.items()}
    times_ns["idle_ns"] = bounds_ns[1] - bounds_ns[0] - times_ns["busy_ns"]
    of_streams = _stream_columns(timeline, streams, bounds_ns)
    of_graphs = _graph_columns(timeline, as_one, of_streams, bounds_ns)
    return [
        DeviceTime(
            device=device,
            streams=of_streams[i],
            graph_streams=of_graphs[i],
            **{name: int(column[i]) for name, column in times_ns.items()},
        )
        for i in range(len(of_streams))
    ]


def _graph_columns(
    timeline: Timeline,
    as_one: GraphStreams | None,
    of_streams: Sequence[Sequence[StreamTime]],
    bounds_ns: _Bounds,
) -> list[GraphStreamsTime | None]:
    if as_one is None:
        return [None] * len(of_streams)
    numbers = {timeline.streams[index].stream_number for index in as_one.stream_index.tolist()}
    columns: list[GraphStreamsTime | None] = []
    for busy_ns, streams in zip(
        measure_within(as_one.busy(timeline), *bounds_ns).tolist(), of_streams, strict=True
    ):
        seen = [x for x in streams if x.stream in numbers and x.activities]
        activities = sum(x.activities for x in seen)
        together = GraphStreamsTime(tuple(x.stream for x in seen), busy_ns, activities)
        columns.append(together if seen else None)
    return columns


def _stream_columns(
    timeline: Timeline, streams: Sequence[Stream], bounds_ns: _Bounds
) -> list[tuple[StreamTime, ...]]:
    """Each of some streams, per window; an activity is counted wherever it is seen."""
    columns: list[list[StreamTime]] = [[] for _ in bounds_ns[0]]
    are_many = len(timeline.streams) > MAX_COMPARED_STREAMS
    for stream in streams:
        rows = slice(stream.first_row, stream.end_row)
        busy_ns = measure_within(timeline.busy(rows), *bounds_ns)
        start_ns, end_ns = timeline.start_ns[rows], timeline.end_ns[rows]
        # An activity of no length is over one nanosecond later, so that it is seen where it is.
        over_ns = np.sort(np.maximum(end_ns, start_ns + 1))
        begun = np.searchsorted(np.sort(start_ns), bounds_ns[1])
        seen = begun - np.searchsorted(over_ns, bounds_ns[0], side="right")
        listed = np.flatnonzero(seen) if are_many else np.arange(len(columns))
        for i in listed.tolist():
            columns[i].append(StreamTime(stream.stream_number, int(busy_ns[i]), int(seen[i])))
    return [tuple(column) for column in columns]


def _rows(graph: Graph, windows: Sequence[Window], options: Options) -> tuple[OverlapMetrics, ...]:
    return overlaps(graph, windows, all_pairs=options.all_pairs)


MEASURE = Measure("overlaps", OverlapMetrics, _rows)


MIN_STREAMS = 16
# Of all activities of a stream.
_MIN_REPLAYED_SHARE = 0.9
# Of the time in which the device is busy. Where six nodes run at a time, each of 64 streams has
# about a tenth.
_MAX_BUSY_SHARE = 0.1
# Their pairs are 496; real programs use a handful, and a few dozen with many collectives at a time.
MAX_COMPARED_STREAMS = 32


class GraphStreams(Arrays):
    """The nearly empty streams of CUDA graphs of one device, and the rows of their activities."""

    device_number: int
    stream_index: IndexArray
    row: IndexArray

    @property
    def selection(self) -> str:
        """Their activities together, as a selection of the overlap table."""
        return f"stream:{self.device_number}/graphs"

    def busy(self, timeline: Timeline) -> Intervals:
        """Intervals in which at least one of them worked."""
        is_theirs = np.zeros(len(timeline.event_id), dtype=np.bool_)
        is_theirs[self.row] = True
        return timeline.busy(is_theirs)


def graph_streams(timeline: Timeline) -> tuple[GraphStreams, ...]:
    """Return, per device, the streams that are shown as one if they are at least `MIN_STREAMS`.

    Nearly all their activities in the trace are from replays, in less than a tenth of the busy
    time.
    """
    streams = timeline.streams
    if len(streams) < MIN_STREAMS:
        return ()
    is_replayed = replayed(timeline)
    is_replayed |= timeline.trace.graph_node_row[timeline.event_id] != ABSENT
    first_row = np.array([stream.first_row for stream in streams])
    count = np.array([stream.end_row - stream.first_row for stream in streams])
    device_number = np.array([stream.device_number for stream in streams])
    replayed_count = np.add.reduceat(is_replayed.astype(np.int64), first_row)
    are_of_graphs = replayed_count >= _MIN_REPLAYED_SHARE * count
    found = []
    for device in timeline.device_numbers:
        candidates = np.flatnonzero(are_of_graphs & (device_number == device))
        if len(candidates) < MIN_STREAMS:
            continue
        most_ns = _MAX_BUSY_SHARE * measure(timeline.busy(timeline.select(device=device)))
        busy_ns = [
            measure(timeline.busy(slice(streams[index].first_row, streams[index].end_row)))
            for index in candidates.tolist()
        ]
        chosen = candidates[np.array(busy_ns) < most_ns]
        if len(chosen) >= MIN_STREAMS:
            row = np.flatnonzero(np.isin(timeline.stream_index, chosen))
            by_start = np.lexsort((timeline.end_ns[row], timeline.start_ns[row]))
            found.append(GraphStreams(device, chosen, row[by_start]))
    return tuple(found)


def compared_streams(timeline: Timeline, *, all_pairs: bool = False) -> tuple[Stream, ...]:
    """The streams that are compared with each other: all of them, or of very many the busiest.

    Nearly empty streams of CUDA graphs (`graph_streams`) are compared together instead.
    """
    if all_pairs:
        return timeline.streams
    shown_as_one = {index for x in graph_streams(timeline) for index in x.stream_index.tolist()}
    streams = tuple(x for i, x in enumerate(timeline.streams) if i not in shown_as_one)
    if len(streams) <= MAX_COMPARED_STREAMS:
        return streams
    busy_ns = [measure(timeline.busy(slice(x.first_row, x.end_row))) for x in streams]
    busiest_first = np.argsort(-np.array(busy_ns), kind="stable")
    return tuple(streams[i] for i in np.sort(busiest_first[:MAX_COMPARED_STREAMS]).tolist())
