"""How busy each device and stream was, and what ran at the same time.

Overlap of A and B is the time in which some activity of A and some activity of B ran. Exposed time
of A is the time in which A ran and what should hide it did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from tracelab.intervals import (
    Int64Array,
    Intervals,
    intersect,
    join,
    measure_within,
    subtract,
)
from tracelab.measures.measure import Measure, constrained
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline

# How a selection of activities is written.
_SELECTION = r"^(stream:\d+/\d+|kind:\d+/(compute|comm|copy|memset)|device:\d+)$"


@dataclass(frozen=True, slots=True)
class StreamTime:
    """One stream in one window, ns."""

    stream: int
    busy_ns: int
    activities: int


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One device in one window, ns; ``busy_ns + idle_ns`` is the window's length.

    Exposed communication is not hidden by compute; an exposed copy not by compute or
    communication.
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


@dataclass(frozen=True, slots=True)
class OverlapMetrics:
    """Two selections of activities in one window, ns.

    Attributes:
        a, b: the selections: ``kind:DEVICE/KIND``, ``stream:DEVICE/STREAM`` or ``device:DEVICE``.
        a_ns, b_ns: how long any activity of each ran.
        overlap_ns: how long activities of both ran at the same time.

    Example:
        ``OverlapMetrics(rank=0, step=3, a="kind:0/compute", b="kind:0/copy", a_ns=900, b_ns=300,
        overlap_ns=250)``: 250 of the copies' 300 ns ran beside compute.
    """

    rank: int
    step: int | None
    a: str = field(metadata=constrained(pattern=_SELECTION))
    b: str = field(metadata=constrained(pattern=_SELECTION))
    a_ns: int
    b_ns: int
    overlap_ns: int


def device_times(graph: Graph, windows: Sequence[Window] | None = None) -> list[list[DeviceTime]]:
    """What each device did: per window, per device.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    timeline = graph.host.timeline
    spans = _Spans(timeline.windows if windows is None else windows)
    columns = [_device_columns(timeline, device, spans) for device in timeline.device_numbers]
    return [[column[i] for column in columns] for i in range(len(spans.starts))]


def overlaps(graph: Graph, windows: Sequence[Window] | None = None) -> tuple[OverlapMetrics, ...]:
    """What ran together: per window, every pair of kinds of a device, of streams and of devices.

    Pairs of which one side did nothing in the window are left out.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    timeline = graph.host.timeline
    windows = timeline.windows if windows is None else windows
    spans = _Spans(windows)
    groups: list[dict[str, Intervals]] = []
    for device in timeline.device_numbers:
        kinds = {kind: timeline.busy(timeline.select(device=device, kind=kind)) for kind in Kind}
        groups.append({f"kind:{device}/{kind.name.lower()}": busy for kind, busy in kinds.items()})
    groups.append(
        {
            f"stream:{lane.device_number}/{lane.stream_number}": timeline.busy(
                slice(lane.first_row, lane.end_row)
            )
            for lane in timeline.streams
        }
    )
    groups.append(
        {f"device:{x}": timeline.busy(timeline.select(device=x)) for x in timeline.device_numbers}
    )
    pairs: list[list[OverlapMetrics]] = [[] for _ in windows]
    for group in groups:
        lengths = {name: spans.measure(busy) for name, busy in group.items()}
        for a, b in combinations(group, 2):
            window_indices = np.flatnonzero((lengths[a] > 0) & (lengths[b] > 0)).tolist()
            if not window_indices:
                continue
            both = spans.measure(intersect(group[a], group[b]))
            for i in window_indices:
                times = int(lengths[a][i]), int(lengths[b][i]), int(both[i])
                pairs[i].append(OverlapMetrics(0, windows[i].step, a, b, *times))
    return tuple(pair for of_window in pairs for pair in of_window)


class _Spans:
    """Measures a set inside every window at once."""

    def __init__(self, windows: Iterable[Window]) -> None:
        bounds = [(window.start_ns, window.end_ns) for window in windows]
        self.starts, self.ends = np.array(bounds, dtype=np.int64).reshape(-1, 2).T

    def measure(self, busy: Intervals) -> Int64Array:
        """int64[windows], ns."""
        if not len(busy):  # of many streams, most pairs never meet
            return np.zeros(len(self.starts), dtype=np.int64)
        return measure_within(busy, self.starts, self.ends)


def _device_columns(timeline: Timeline, device: int, spans: _Spans) -> list[DeviceTime]:
    """One device, per window."""
    compute, comm, copy, memset = (
        timeline.busy(timeline.select(device=device, kind=kind)) for kind in Kind
    )
    busy = spans.measure(timeline.busy(timeline.select(device=device)))
    times = {
        "busy_ns": busy,
        "idle_ns": spans.ends - spans.starts - busy,
        "compute_ns": spans.measure(compute),
        "comm_ns": spans.measure(comm),
        "copy_ns": spans.measure(copy),
        "memset_ns": spans.measure(memset),
        "exposed_comm_ns": spans.measure(subtract(comm, compute)),
        "exposed_copy_ns": spans.measure(subtract(copy, join(compute, comm))),
        "comm_compute_overlap_ns": spans.measure(intersect(comm, compute)),
        "copy_compute_overlap_ns": spans.measure(intersect(copy, compute)),
    }
    return [
        DeviceTime(
            device=device,
            streams=streams,
            **{name: int(column[i]) for name, column in times.items()},
        )
        for i, streams in enumerate(_stream_columns(timeline, device, spans))
    ]


def _stream_columns(timeline: Timeline, device: int, spans: _Spans) -> list[tuple[StreamTime, ...]]:
    """Each stream of one device, per window; an activity is counted wherever it is seen."""
    columns: list[list[StreamTime]] = [[] for _ in spans.starts]
    for lane in timeline.streams:
        if lane.device_number != device:
            continue
        rows = slice(lane.first_row, lane.end_row)
        busy = spans.measure(timeline.busy(rows))
        start, end = timeline.start_ns[rows], timeline.end_ns[rows]
        # An activity of no length is over one nanosecond later, so that it is seen where it is.
        over = np.sort(np.maximum(end, start + 1))
        begun = np.searchsorted(np.sort(start), spans.ends)
        seen = begun - np.searchsorted(over, spans.starts, side="right")
        for i, column in enumerate(columns):
            column.append(StreamTime(lane.stream_number, int(busy[i]), int(seen[i])))
    return [tuple(column) for column in columns]


MEASURE = Measure("overlaps", OverlapMetrics, overlaps)
