"""What a picture of a timeline shows: the chosen lanes, and what lies in each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol

import numpy as np

from tracelab.base.errors import UsageError
from tracelab.base.intervals import Int64Array, Intervals, clip, gaps, measure, stacked, union
from tracelab.measures.graph_streams import graph_streams
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Thread, Trace
from tracelab.render.picture.coverage import Grid
from tracelab.render.words import ELLIPSIS, duration_text

_LONGEST_ID = 8
_LEAST = 0.16  # of a band's height: what is thinner than a pixel is not lower
_MOST_LEVELS = 64  # of one lane: a device rarely runs more activities at a time
_BETWEEN_LEVELS = 0.1  # of a level's height
_LANE_NAME = re.compile(r"host|device:\d+|stream:\d+/(\d+|graphs)|kind:(compute|comm|copy|memset)")


class Mark(Enum):
    """The sorts of things in a picture; the value is what the legend calls it."""

    COMPUTE = "compute"
    FORWARD = "forward"
    BACKWARD = "backward"
    OTHER_COMPUTE = "other compute"
    COMM = "communication"
    WAIT = "wait for other ranks"
    TRANSFER = "transfer"
    COPY = "copy"
    MEMSET = "memset"
    BLOCKING = "blocking call"
    LAUNCH = "launch call"
    HOST_STEP = "step on the CPU"
    IDLE = "idle (no stream busy)"


KIND_MARKS: Mapping[Kind, Mark] = MappingProxyType(
    {
        Kind.COMPUTE: Mark.COMPUTE,
        Kind.COMM: Mark.COMM,
        Kind.COPY: Mark.COPY,
        Kind.MEMSET: Mark.MEMSET,
    }
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to show: streams, kinds and host threads.

    Example row: ``Choice(streams=((0,), (1,), (2, 3, ...)), kinds=(Kind.COMPUTE,), threads=(3,))``

    Attributes:
        streams: of each lane the indices of the timeline's streams in it: one, or the nearly empty
            streams of CUDA graphs of a device.
        kinds: of GPU activities.
        threads: indices of the trace's threads.
    """

    streams: tuple[tuple[int, ...], ...]
    kinds: tuple[Kind, ...]
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Things of one sort in a lane: the shown time that they cover, and their event ids."""

    mark: Mark
    covered: Intervals
    event_ids: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Layers that share a part of a lane.

    Attributes:
        upper, lower: the part, as shares of the lane's height from its upper edge.
        least: the smallest height of what is thinner than a pixel, as a share of the band's.
        layers: what lies in it.
    """

    upper: float
    lower: float
    least: float
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """A lane of the picture.

    Attributes:
        label: what is written beside it: "stream 7".
        device: None for a host thread.
        busy_ns: how much of the shown time its stream worked; of a host thread, was blocked.
        bands: what lies in it.
        streams: how many streams share it.
    """

    label: str
    device: int | None
    busy_ns: int
    bands: tuple[Band, ...]
    streams: int = 1


class Events(Protocol):
    """What the lanes' event ids stand for: a trace, or what a replay makes of its events."""

    @property
    def start_ns(self) -> Int64Array:
        """int64[n], ns."""

    @property
    def end_ns(self) -> Int64Array:
        """int64[n], ns."""

    def name_of(self, event_id: int) -> str:
        """The name of one event."""


def choose(timeline: Timeline, blocking_calls: Int64Array, names: Sequence[str] | None) -> Choice:
    """What the names of lanes stand for; without any it is everything.

    Raises:
        UsageError: a name stands for nothing, or nothing is left to draw.
    """
    threads = _host_threads(timeline, blocking_calls)
    kinds = tuple(Kind(kind) for kind in np.unique(timeline.kind))
    all_streams = range(len(timeline.streams))
    if names is None:
        if not all_streams:
            raise UsageError("the trace has no GPU activity to draw")
        return Choice(in_lanes(timeline, all_streams), kinds, threads)
    streams_by_name = _stream_names(timeline)
    kinds_by_name = {f"kind:{kind.name.lower()}": kind for kind in kinds}
    known = [*(["host"] if threads else []), *streams_by_name, *kinds_by_name]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no lane {name!r}; there are: {', '.join(known)}")
    chosen_kinds = tuple(kind for name, kind in kinds_by_name.items() if name in names)
    chosen = {index for name in names for index in streams_by_name.get(name, ())}
    if chosen_kinds:
        candidates = chosen or all_streams
        chosen = {index for index in candidates if _has_kind(timeline, index, chosen_kinds)}
    chosen_threads = threads if "host" in names else ()
    if not chosen and not chosen_threads:
        raise UsageError(f"nothing to draw in {', '.join(names) or 'no lane'}")
    by_itself = {
        index
        for name in names
        if name.startswith("stream:") and len(streams_by_name.get(name, ())) == 1
        for index in streams_by_name[name]
    }
    return Choice(in_lanes(timeline, chosen, by_itself), chosen_kinds or kinds, chosen_threads)


def require_lane_names(names: Iterable[str]) -> None:
    """Refuse names that no lane of any trace has.

    Raises:
        UsageError: one of them.
    """
    for name in names:
        if not _LANE_NAME.fullmatch(name):
            raise UsageError(
                f"there is no lane {name!r}; lanes are host, device:0, stream:0/7 or kind:comm"
            )


def in_lanes(
    timeline: Timeline, chosen: Iterable[int], by_itself: Set[int] = frozenset()
) -> tuple[tuple[int, ...], ...]:
    """Which streams are in which lane: one each, or those of CUDA graphs together, which come last.

    Args:
        timeline: the GPU activities.
        chosen: indices of its streams.
        by_itself: those that have a lane of their own in any case.
    """
    alone = set(chosen)
    lanes: list[tuple[int, ...]] = []
    for together in graph_streams(timeline):
        members = (alone - by_itself).intersection(together.stream_index.tolist())
        lanes.append(tuple(sorted(members)))
        alone -= members
    lanes += [(index,) for index in alone]

    def place(lane: tuple[int, ...]) -> tuple[int, bool, int]:
        return timeline.streams[lane[0]].device_number, len(lane) > 1, lane[0]

    return tuple(sorted(filter(None, lanes), key=place))


def _stream_names(timeline: Timeline) -> dict[str, set[int]]:
    """What streams can be called, alone or by device: name to indices of the streams."""
    streams: dict[str, set[int]] = {}
    for index, stream in enumerate(timeline.streams):
        streams.setdefault(f"device:{stream.device_number}", set()).add(index)
        streams[f"stream:{stream.device_number}/{stream.stream_number}"] = {index}
    for together in graph_streams(timeline):
        streams[together.selection] = set(together.stream_index.tolist())
    return streams


def new_lane(
    timeline: Timeline, streams: Sequence[int], layers: Sequence[Layer], events: Events, grid: Grid
) -> Lane:
    """The lane of a stream, or of several of a device, with their work by kind.

    Args:
        timeline: of the streams.
        streams: their indices.
        layers: their work.
        events: when what the layers refer to ran.
        grid: the time that is shown.
    """
    stream = timeline.streams[streams[0]]
    if len(streams) == 1:
        label = f"stream {_short_id(str(stream.stream_number))}"
        bands: tuple[Band, ...] = (Band(0, 1, _LEAST, tuple(layers)),)
    else:
        label, bands = f"{len(streams):,} graph streams", _levels(layers, events, grid)
    busy = union(
        np.concatenate([layer.covered.starts for layer in layers]),
        np.concatenate([layer.covered.ends for layer in layers]),
    )
    return Lane(label, stream.device_number, measure(busy), bands, len(streams))


def _levels(layers: Sequence[Layer], events: Events, grid: Grid) -> tuple[Band, ...]:
    """Layers of several streams in as many bands as activities overlap, so that each is seen."""
    event_ids = np.concatenate([layer.event_ids for layer in layers])
    by_start = np.lexsort((events.end_ns[event_ids], events.start_ns[event_ids]))
    event_ids = event_ids[by_start]
    level = stacked(events.start_ns[event_ids], events.end_ns[event_ids], _MOST_LEVELS)
    count = int(level.max(initial=0)) + 1

    def part(layer: Layer, of_level: Int64Array) -> Layer:
        ids = np.intersect1d(layer.event_ids, of_level)
        covered = clip(union(events.start_ns[ids], events.end_ns[ids]), grid.start_ns, grid.end_ns)
        return Layer(layer.mark, covered, ids)

    return tuple(
        Band(
            i / count,
            (i + 1 - _BETWEEN_LEVELS) / count if count > 1 else 1,
            _LEAST,
            tuple(part(layer, event_ids[level == i]) for layer in layers),
        )
        for i in range(count)
    )


def new_host_lane(thread: Thread, blocking: Layer, *strip: Layer) -> Lane:
    """The lane of a host thread with its blocking calls, and in a strip below them other things."""
    bands = (Band(0, 0.64, 0.4, (blocking,)), *(Band(0.72, 1, 1, (layer,)) for layer in strip))
    label = f"CPU thread {_short_id(thread.thread)}"
    return Lane(label, None, measure(blocking.covered), bands)


def build_lanes(
    timeline: Timeline, blocking_calls: Int64Array, choice: Choice, grid: Grid
) -> list[Lane]:
    """The chosen lanes with what lies in the grid's time: host threads, then streams."""
    return [
        *(_host_lane(timeline, blocking_calls, thread, grid) for thread in choice.threads),
        *(_stream_lane(timeline, streams, choice.kinds, grid) for streams in choice.streams),
    ]


def busiest(lanes: Sequence[Lane], most: int) -> list[Lane]:
    """The lanes, without the least busy ones where they are too many."""
    order = sorted(range(len(lanes)), key=lambda i: -lanes[i].busy_ns)
    return [lanes[i] for i in sorted(order[:most])]


def device_busy(timeline: Timeline, device: int, grid: Grid) -> Intervals:
    """When any stream of a device works, chosen or not."""
    busy = timeline.busy(timeline.select(device=device))
    return clip(busy, grid.start_ns, grid.end_ns)


def visible_idle(busy: Intervals, grid: Grid) -> Intervals:
    """When a device that is busy then is idle for at least a pixel."""
    idle = gaps(busy, grid.start_ns, grid.end_ns)
    wide = idle.ends - idle.starts >= grid.pixel_ns
    return Intervals(idle.starts[wide], idle.ends[wide])


def marks_in(lanes: Sequence[Lane]) -> set[Mark]:
    """The sorts of things that lie in these lanes."""
    layers = (layer for lane in lanes for band in lane.bands for layer in band.layers)
    return {layer.mark for layer in layers if len(layer.covered)}


def caption(lanes: Sequence[Lane], grid: Grid, names: Sequence[str] | None, available: int) -> str:
    """What a picture shows and how to read it, in one line.

    Args:
        lanes: the lanes in it.
        grid: its time.
        names: what the user chose, if anything.
        available: how many lanes there are.
    """
    bands = [band for lane in lanes if lane.device is not None for band in lane.bands]
    layers = [layer for band in bands for layer in band.layers]
    length, start = duration_text(grid.length_ns), duration_text(grid.start_ns)
    parts = [f"{length} from {start} into the trace"]
    if bands:
        parts.append(f"{sum(len(layer.event_ids) for layer in layers):,} GPU activities")
    if any(lane.streams > 1 for lane in lanes):
        parts.append("graph streams: nearly empty ones of CUDA graphs, in one lane")
    if names is not None:
        parts.append(f"only {', '.join(names)}")
    if len(lanes) < available:
        parts.append(f"the {len(lanes)} busiest of {available:,} lanes")
    return "  ·  ".join(parts)


def _rows_of(timeline: Timeline, stream_index: int) -> slice:
    stream = timeline.streams[stream_index]
    return slice(stream.first_row, stream.end_row)


def _has_kind(timeline: Timeline, stream_index: int, kinds: Sequence[Kind]) -> bool:
    return bool(np.isin(timeline.kind[_rows_of(timeline, stream_index)], kinds).any())


def _launches(timeline: Timeline) -> Int64Array:
    """The host calls that put something on a GPU."""
    return np.unique(timeline.launch_id[timeline.launch_id != ABSENT])


def _host_threads(timeline: Timeline, blocking_calls: Int64Array) -> tuple[int, ...]:
    """The threads that launched or blocked, each process's main thread first."""
    trace = timeline.trace
    calls = np.concatenate((_launches(timeline), blocking_calls))
    return tuple(main_threads_first(trace, np.unique(trace.thread_index[calls]).tolist()))


def main_threads_first(trace: Trace, threads: Iterable[int]) -> list[int]:
    """Indices of threads in the order in which they are shown."""
    return sorted(threads, key=lambda i: (trace.threads[i].process != trace.threads[i].thread, i))


def _layer(timeline: Timeline, mark: Mark, event_ids: Int64Array, grid: Grid) -> Layer:
    """These events, as far as they lie in the grid's time."""
    start, end = timeline.trace.start_ns[event_ids], timeline.trace.end_ns[event_ids]
    shown = (end > grid.start_ns) & (start < grid.end_ns)
    covered = clip(union(start[shown], end[shown]), grid.start_ns, grid.end_ns)
    return Layer(mark, covered, event_ids[shown])


def _stream_lane(
    timeline: Timeline, streams: Sequence[int], kinds: Sequence[Kind], grid: Grid
) -> Lane:
    """A stream, or several that share a lane: their work by kind."""
    rows = np.flatnonzero(np.isin(timeline.stream_index, streams))
    event_ids, row_kinds = timeline.event_id[rows], timeline.kind[rows]
    layers = tuple(
        _layer(timeline, KIND_MARKS[kind], event_ids[row_kinds == kind], grid) for kind in kinds
    )
    return new_lane(timeline, streams, layers, timeline.trace, grid)


def _host_lane(
    timeline: Timeline, blocking_calls: Int64Array, thread_index: int, grid: Grid
) -> Lane:
    """A host thread: its blocking calls and, in a strip below them, its steps and launches."""

    def layer(mark: Mark, event_ids: Int64Array) -> Layer:
        on_thread = timeline.trace.thread_index[event_ids] == thread_index
        return _layer(timeline, mark, event_ids[on_thread], grid)

    steps = np.array([step.event_id for step in timeline.steps], dtype=np.int64)
    launches = np.setdiff1d(_launches(timeline), blocking_calls)
    return new_host_lane(
        timeline.trace.threads[thread_index],
        layer(Mark.BLOCKING, blocking_calls),
        layer(Mark.HOST_STEP, steps),
        layer(Mark.LAUNCH, launches),
    )


def _short_id(text: str) -> str:
    """A stream or thread; of an address the end, because addresses begin alike."""
    return text if len(text) <= _LONGEST_ID else ELLIPSIS + text[1 - _LONGEST_ID :]
