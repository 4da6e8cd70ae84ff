"""How busy each device and stream was, and what ran at the same time.

Overlap of A and B is the time in which some activity of A and some activity of B ran. Exposed time
of A is the time in which A ran and what should hide it did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline


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
class Overlap:
    """Two selections of activities in one window, ns."""

    a: str
    b: str
    a_ns: int
    b_ns: int
    overlap_ns: int


def device_times(timeline: Timeline, windows: Sequence[Window]) -> list[list[DeviceTime]]:
    """What each device did: per window, per device."""
    spans = _Spans(windows)
    columns = [_device_columns(timeline, device, spans) for device in timeline.device_numbers]
    return [[column[i] for column in columns] for i in range(len(windows))]


def overlaps(timeline: Timeline, windows: Sequence[Window]) -> list[list[Overlap]]:
    """What ran together: per window, every pair of kinds of a device, of streams and of devices.

    Pairs of which one side did nothing in the window are left out. A selection is written
    ``kind:DEVICE/KIND``, ``stream:DEVICE/STREAM`` or ``device:DEVICE``.
    """
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
    found: list[list[Overlap]] = [[] for _ in windows]
    for group in groups:
        lengths = {name: spans.measure(busy) for name, busy in group.items()}
        for a, b in combinations(group, 2):
            worked = np.flatnonzero((lengths[a] > 0) & (lengths[b] > 0)).tolist()
            if not worked:
                continue
            both = spans.measure(intersect(group[a], group[b]))
            for i in worked:
                one = Overlap(a, b, int(lengths[a][i]), int(lengths[b][i]), int(both[i]))
                found[i].append(one)
    return found


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
