"""Rows of a picture: the chosen lanes of a scene, and what lies in each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from enum import Enum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import dataclass
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Int64Array, Intervals, clip, gaps, measure, union
from tracelab.render.picture.coverage import Grid
from tracelab.render.scene import Lane, Scene, Thread
from tracelab.render.words import ELLIPSIS, duration_text

MAX_ID_LETTERS = 8
# Bars that are thinner than a pixel are not lower.
MIN_BAND_HEIGHT_SHARE = 0.16
_LEVEL_GAP_SHARE = 0.1
_LANE_NAME = re.compile(r"host|device:\d+|stream:\d+/(\d+|graphs)|kind:(compute|comm|copy|memset)")


class Mark(Enum):
    """Sorts of things in a picture; the value is the word of the legend."""

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


_CALLS = MappingProxyType({"launch_call": Mark.LAUNCH, "step": Mark.HOST_STEP})


def mark_of(kind: str) -> Mark:
    """Return the mark of a kind of a lane's spans.

    >>> mark_of("compute"), mark_of("launch_call")
    (<Mark.COMPUTE: 'compute'>, <Mark.LAUNCH: 'launch call'>)
    """
    return _CALLS.get(kind) or Mark[kind.upper()]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The chosen lanes, and the kinds of GPU activities that are shown in them.

    Example: ``Choice(lanes=(Lane("host:0", ...), Lane("stream:0/7", ...)), kinds=("compute",))``.
    """

    lanes: tuple[Lane, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Spans of one sort in a row.

    Attributes:
        mark: the sort.
        covered: the shown time that they cover.
        start_ns, end_ns: int64[k], ns, of those that lie in it.
        name: int32[k], index into the names of the scene; empty if they have none.
    """

    mark: Mark
    covered: Intervals
    start_ns: Int64Array
    end_ns: Int64Array
    name: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Layers that share a part of a row.

    Attributes:
        upper, lower: the part, as shares of the row's height from its upper edge.
        least: the smallest height of what is thinner than a pixel, as a share of the band's.
        layers: what lies in it.
    """

    upper: float
    lower: float
    least: float
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row of the picture.

    Attributes:
        label: the text to its left: "stream 7".
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


def choose(scene: Scene, names: Sequence[str] | None) -> Choice:
    """Choose lanes by name; all of them without any name.

    Raises:
        UsageError: a name stands for nothing, or nothing is left to draw.
    """
    hosts, lanes = tuple(scene.lanes_of_type("host")), tuple(scene.lanes_of_type("stream"))
    kinds = _occurring_kinds(lanes)
    if names is None:
        if not lanes:
            raise UsageError("the trace has no GPU activity to draw")
        return Choice((*hosts, *lanes), kinds)
    streams = _streams_by_name(lanes)
    kind_names = {f"kind:{kind}": kind for kind in kinds}
    known = [*(["host"] if hosts else []), *streams, *kind_names]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no lane {name!r}; there are: {', '.join(known)}")
    chosen_kinds = tuple(kind for name, kind in kind_names.items() if name in names)
    chosen = {stream for name in names for stream in streams.get(name, ())}
    if chosen_kinds:
        having = {x for lane in lanes for x in _streams_with(lane, chosen_kinds)}
        chosen = (chosen or having) & having
    apart = {x for name in names if len(streams.get(name, ())) == 1 for x in streams[name]}
    parts = (part for lane in lanes for part in _parts(lane, chosen, apart))
    shown = (*(hosts if "host" in names else ()), *parts)
    if not shown:
        raise UsageError(f"nothing to draw in {', '.join(names) or 'no lane'}")
    return Choice(shown, chosen_kinds or kinds)


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


_Stream = tuple[int | None, int]  # numbers of the device and of the stream


def _occurring_kinds(lanes: Iterable[Lane]) -> tuple[str, ...]:
    """List the kinds that occur in lanes of one type, in the order of their kinds."""
    found = {(i, lane.kinds[i]) for lane in lanes for i in np.unique(lane.kind).tolist()}
    return tuple(kind for _, kind in sorted(found))


def _streams_by_name(lanes: Iterable[Lane]) -> dict[str, list[_Stream]]:
    """List the streams that each name stands for: those of a device, one, or those of graphs."""
    streams: dict[str, list[_Stream]] = {}
    for lane in lanes:
        members = [(lane.device, number) for number in lane.streams]
        streams.setdefault(f"device:{lane.device}", []).extend(members)
        streams |= {f"stream:{device}/{number}": [(device, number)] for device, number in members}
        if len(members) > 1:
            streams[lane.id] = members
    return streams


def _streams_with(lane: Lane, kinds: Sequence[str]) -> Iterator[_Stream]:
    """Yield the streams of a lane that have spans of some kinds."""
    has_kind = np.isin(lane.kind, [lane.kinds.index(kind) for kind in kinds])
    index = lane.more["stream"][has_kind] if len(lane.streams) > 1 else [0] * int(has_kind.any())
    yield from ((lane.device, lane.streams[i]) for i in np.unique(index).tolist())


def _parts(lane: Lane, chosen: Set[_Stream], apart: Set[_Stream]) -> Iterator[Lane]:
    """Yield the chosen streams of a lane: those that stand apart alone, then the others."""
    if len(lane.streams) == 1:
        yield from [lane] * ((lane.device, lane.streams[0]) in chosen)
        return
    members = [x for x in lane.streams if (lane.device, x) in chosen]
    alone = [x for x in members if (lane.device, x) in apart]
    for streams in (*((x,) for x in alone), tuple(x for x in members if x not in alone)):
        if streams:
            index = [lane.streams.index(x) for x in streams]
            part = lane.select(np.isin(lane.more["stream"], index))
            yield replace(part, streams=streams, label=f"stream {streams[0]}")


def build_rows(scene: Scene, choice: Choice, grid: Grid) -> list[Row]:
    """Build the row of each chosen lane, with what lies in the grid's time."""
    return [
        _stream_row(lane, choice.kinds, grid)
        if lane.type == "stream"
        else _host_row(lane, scene.lane(f"annotation:{lane.thread}"), scene.threads, grid)
        for lane in choice.lanes
    ]


def _layer(lane: Lane, kind: str, grid: Grid) -> Layer:
    """Return the spans of a kind, as far as they lie in the grid's time."""
    is_kind = lane.kind == lane.kinds.index(kind)
    part = lane.select(is_kind & (lane.end_ns > grid.start_ns) & (lane.start_ns < grid.end_ns))
    covered = clip(union(part.start_ns, part.end_ns), grid.start_ns, grid.end_ns)
    return Layer(mark_of(kind), covered, part.start_ns, part.end_ns, part.more["name"])


def _stream_row(lane: Lane, kinds: Sequence[str], grid: Grid) -> Row:
    """Build the row of a stream, or of several that share a lane, with their work by kind."""
    layers = tuple(_layer(lane, kind, grid) for kind in kinds)
    busy = union(
        np.concatenate([layer.covered.starts for layer in layers]),
        np.concatenate([layer.covered.ends for layer in layers]),
    )
    bands: tuple[Band, ...] = (Band(0, 1, MIN_BAND_HEIGHT_SHARE, layers),)
    label = f"{len(lane.streams):,} graph streams"
    if len(lane.streams) > 1:
        bands = _levels(lane, kinds, grid)
    else:
        number = str(lane.streams[0])
        label = lane.label.replace(number, _short_id(number))
    return Row(label, lane.device, measure(busy), bands, len(lane.streams))


def _levels(lane: Lane, kinds: Sequence[str], grid: Grid) -> tuple[Band, ...]:
    """Build as many bands as activities of several streams overlap, so that each is seen."""
    is_shown = (lane.end_ns > grid.start_ns) & (lane.start_ns < grid.end_ns)
    levels = np.unique(lane.more["level"][is_shown]).tolist() or [0]
    count = len(levels)
    return tuple(
        Band(
            i / count,
            (i + 1 - _LEVEL_GAP_SHARE) / count if count > 1 else 1,
            MIN_BAND_HEIGHT_SHARE,
            tuple(_layer(part, kind, grid) for kind in kinds),
        )
        for i, level in enumerate(levels)
        for part in [lane.select(lane.more["level"] == level)]
    )


def _host_row(lane: Lane, annotations: Lane | None, threads: Sequence[Thread], grid: Grid) -> Row:
    """Build the row of a thread: its blocking calls, below them its steps and launches."""
    blocking = _layer(lane, "blocking", grid)
    steps = [] if annotations is None else [_layer(annotations, "step", grid)]
    strip = [*steps, _layer(lane, "launch_call", grid)]
    bands = (Band(0, 0.64, 0.4, (blocking,)), *(Band(0.72, 1, 1, (layer,)) for layer in strip))
    label = f"CPU thread {_short_id(threads[lane.thread].thread)}"
    return Row(label, None, measure(blocking.covered), bands)


def busiest(rows: Sequence[Row], most: int) -> list[Row]:
    """List the rows without the least busy ones, at most this many."""
    order = sorted(range(len(rows)), key=lambda i: -rows[i].busy_ns)
    return [rows[i] for i in sorted(order[:most])]


def visible_idle(busy: Intervals, grid: Grid) -> Intervals:
    """Return when a device that is busy then is idle for at least a pixel."""
    idle = gaps(busy, grid.start_ns, grid.end_ns)
    wide = idle.ends - idle.starts >= grid.pixel_ns
    return Intervals(idle.starts[wide], idle.ends[wide])


def marks_in(rows: Sequence[Row]) -> set[Mark]:
    """List the sorts of things that lie in these rows."""
    layers = (layer for row in rows for band in row.bands for layer in band.layers)
    return {layer.mark for layer in layers if len(layer.covered)}


def caption(rows: Sequence[Row], grid: Grid, names: Sequence[str] | None, available: int) -> str:
    """Say what a picture shows and how to read it, in one line.

    Args:
        rows: the rows in it.
        grid: its time.
        names: what the user chose, if anything.
        available: how many rows there are.
    """
    bands = [band for row in rows if row.device is not None for band in row.bands]
    layers = [layer for band in bands for layer in band.layers]
    length, start = duration_text(grid.length_ns), duration_text(grid.start_ns)
    parts = [f"{length} from {start} into the trace"]
    if bands:
        parts.append(f"{sum(len(layer.start_ns) for layer in layers):,} GPU activities")
    if any(row.streams > 1 for row in rows):
        parts.append("graph streams: nearly empty ones of CUDA graphs, in one lane")
    if names is not None:
        parts.append(f"only {', '.join(names)}")
    if len(rows) < available:
        parts.append(f"the {len(rows)} busiest of {available:,} lanes")
    return "  ·  ".join(parts)


def _short_id(text: str) -> str:
    """Cut a stream or thread to its end, because addresses begin alike."""
    return text if len(text) <= MAX_ID_LETTERS else ELLIPSIS + text[1 - MAX_ID_LETTERS :]
