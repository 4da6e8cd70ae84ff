"""Rows of a picture: the chosen lanes of a scene."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import groupby
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Int64Array, Record
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Intervals, clip, measure, union
from tracelab.base.safe_text import counted
from tracelab.render.picture.coverage import FloatArray, Grid, column_heights
from tracelab.render.scene import NOTHING, Lane, Scene, Span, evidence_of
from tracelab.render.words import ELLIPSIS, UNITS, count_text, duration_text

MAX_ID_LETTERS = 8
# Thinner bars are not lower.
MIN_BAND_HEIGHT_SHARE = 0.16
_MIN_BAND_PX = 8
_LEVEL_GAP_SHARE = 0.1
# In a host thread's row, from above: phases and regions, blocking calls, steps and launches.
_PHASE_PX, _BLOCKING_PX, _CALLS_PX, _STRIP_GAP_PX = 15, 24, 9, 3
_MAX_PHASE_LEVELS = 3
# Idle time, of a step and of the call, for a strong color.
_MIN_STEP_SHARE, _MIN_CALL_SHARE = 0.003, 0.05
MARK_PX, _MIN_MARK_DISTANCE_PX, _MAX_PLACES_OF_MARK = 18, 60, 3
# Longer evidence is everywhere.
_MAX_EVIDENCE_SHARE = 0.9
_LANE_NAME = re.compile(
    r"host|device:\d+|stream:\d+/(\d+|graphs)|counter:\d+/\w+|kind:(compute|comm|copy|memset)"
)


class Choice(Record, eq=False):
    """The chosen lanes and kinds of GPU activities."""

    lanes: tuple[Lane, ...]
    kinds: tuple[str, ...]


class Layer(Record, eq=False):
    """Spans of one kind in a row.

    Attributes:
        start_ns, end_ns: int64[k], ns, of the shown spans.
        name: int32[k], index into the scene's names, ABSENT for the kind; empty if unnamed.
        cost_ns: int64[k], idle time caused by blocking calls; else empty.
        next: int32[k], the name of the end of idle time; else empty.
    """

    kind: str
    covered: Intervals
    start_ns: Int64Array
    end_ns: Int64Array
    name: NDArray[np.int32]
    cost_ns: Int64Array = NOTHING
    next: NDArray[np.int32] = NOTHING


class Band(Record, eq=False):
    """Layers of a part of a row; heights are shares, `least` that of the thinnest."""

    upper: float
    lower: float
    least: float
    layers: tuple[Layer, ...]


class Row(Record, eq=False):
    """A row of the picture.

    Attributes:
        device: None for a host thread.
        busy_ns: shown time in which its stream worked, or its host thread was blocked.
        streams: number that share it; else 0.
        min_px: the least visible height.
        heights: float64[columns], a number over time, as shares of the row's height.
    """

    label: str
    device: int | None
    busy_ns: int
    bands: tuple[Band, ...]
    streams: int = 1
    min_px: int = 0
    id: str = ""
    heights: FloatArray | None = None


class PlacedMark(Record):
    """A finding's number in a row, and the span that it cites."""

    number: int
    row: int
    span: Span
    middle_px: float


def choose(scene: Scene, names: Sequence[str] | None) -> Choice:
    """Choose lanes by name, by default all."""
    hosts, lanes = tuple(scene.lanes_of_type("host")), tuple(scene.lanes_of_type("stream"))
    counters, kinds = tuple(scene.lanes_of_type("counter")), _occurring_kinds(lanes)
    if names is None:
        return Choice((*hosts, *_add_idle(scene, lanes), *counters), kinds)
    places = dict.fromkeys(name for lane in lanes for name in _stream_names(lane))
    kind_names = {f"kind:{kind}": kind for kind in kinds}
    known = [*(["host"] if hosts else []), *places, *kind_names, *(x.id for x in counters)]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no lane {name!r}; there are: {', '.join(known)}")
    chosen_kinds = tuple(kind for name, kind in kind_names.items() if name in names)
    chosen = set(names) & places.keys() or (set(places) if chosen_kinds else set())
    parts = (part for lane in lanes for part in _parts(lane, chosen, names, chosen_kinds))
    named = (x for x in counters if x.id in names)
    shown = (*(hosts if "host" in names else ()), *_add_idle(scene, parts), *named)
    if not shown:
        raise UsageError(f"nothing to draw in {', '.join(names) or 'no lane'}")
    return Choice(shown, chosen_kinds or kinds)


def require_lane_names(names: Iterable[str]) -> None:
    """Refuse names that no lane of any trace has."""
    for name in names:
        if not _LANE_NAME.fullmatch(name):
            raise UsageError(
                f"there is no lane {name!r}; lanes are host, device:0, stream:0/7, "
                "counter:0/allocated or kind:comm"
            )


def _add_idle(scene: Scene, streams: Iterable[Lane]) -> Iterator[Lane]:
    for device, of_device in groupby(streams, key=lambda lane: lane.device):
        idle = scene.lane(f"idle:{device}")
        if idle is not None:
            yield idle
        yield from of_device


def _occurring_kinds(lanes: Iterable[Lane]) -> tuple[str, ...]:
    found = {(i, lane.kinds[i]) for lane in lanes for i in np.unique(lane.kind).tolist()}
    return tuple(kind for _, kind in sorted(found))


def _stream_names(lane: Lane) -> list[str]:
    streams = [f"stream:{lane.device}/{number}" for number in lane.streams]
    return [f"device:{lane.device}", *streams, lane.id]


def _parts(
    lane: Lane, chosen: Set[str], names: Sequence[str], kinds: Sequence[str]
) -> Iterator[Lane]:
    """Yield the chosen streams of a lane with `kinds`: those named alone, then the others."""
    device, *streams, own = _stream_names(lane)
    stream = lane.more.get("stream", np.zeros(len(lane), dtype=np.intp))
    has_kind = np.isin(lane.kind, [lane.kinds.index(kind) for kind in kinds])
    index = np.unique(stream[has_kind]).tolist() if kinds else list(range(len(streams)))
    alone = [i for i in index if streams[i] in names and len(streams) > 1]
    others = [i for i in index if i not in alone and not chosen.isdisjoint((device, own))]
    for part in (*([i] for i in alone), others):
        if len(part) == len(streams):
            yield lane
        elif part:
            numbers = tuple(lane.streams[i] for i in part)
            shown = lane.select(np.isin(stream, part))
            yield replace(shown, streams=numbers, label=f"stream {numbers[0]}")


def build_rows(scene: Scene, choice: Choice, grid: Grid) -> list[Row]:
    """Build the row of each chosen lane, in the grid's time."""
    rows = (_row(scene, lane, choice.kinds, grid) for lane in choice.lanes)
    return [replace(row, id=lane.id) for row, lane in zip(rows, choice.lanes, strict=True)]


def _row(scene: Scene, lane: Lane, kinds: Sequence[str], grid: Grid) -> Row:
    if lane.type == "stream":
        return _stream_row(lane, kinds, grid)
    if lane.type == "counter":
        return _counter_row(lane, grid)
    return _idle_row(lane, grid) if lane.type == "idle" else _host_row(scene, lane, grid)


def _layer(lane: Lane, kind: str, grid: Grid) -> Layer:
    is_kind = lane.kind == lane.kinds.index(kind)
    part = lane.select(is_kind & (lane.end_ns > grid.start_ns) & (lane.start_ns < grid.end_ns))
    covered = clip(union(part.start_ns, part.end_ns), grid.start_ns, grid.end_ns)
    name = part.more.get("name", np.full(len(part), ABSENT, dtype=np.int32))
    extra = (part.more.get(column, NOTHING) for column in ("cost", "next"))
    return Layer(kind, covered, part.start_ns, part.end_ns, name, *extra)


def _layers(lane: Lane, grid: Grid) -> tuple[Layer, ...]:
    return tuple(_layer(lane, kind, grid) for kind in lane.kinds)


def _stream_row(lane: Lane, kinds: Sequence[str], grid: Grid) -> Row:
    layers = tuple(_layer(lane, kind, grid) for kind in kinds)
    busy = union(
        np.concatenate([layer.covered.starts for layer in layers]),
        np.concatenate([layer.covered.ends for layer in layers]),
    )
    bands: tuple[Band, ...] = (Band(0, 1, MIN_BAND_HEIGHT_SHARE, layers),)
    if len(lane.streams) > 1:
        bands = _levels(lane, kinds, grid)
    min_px = _MIN_BAND_PX * len(bands)
    label = _short_label(lane.label)
    return Row(label, lane.device, measure(busy), bands, len(lane.streams), min_px)


def _idle_row(lane: Lane, grid: Grid) -> Row:
    band = Band(0, 1, MIN_BAND_HEIGHT_SHARE, _layers(lane, grid))
    return Row("idle by cause", lane.device, grid.length_ns, (band,), streams=0)


def _levels(lane: Lane, kinds: Sequence[str], grid: Grid) -> tuple[Band, ...]:
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


def _host_row(scene: Scene, lane: Lane, grid: Grid) -> Row:
    strips: list[tuple[int, float, list[tuple[Layer, ...]]]] = []  # px, least share, layers
    phases = scene.lane(f"phase:{lane.thread}")
    for level in range(_MAX_PHASE_LEVELS):
        if phases is None:
            break
        layers = _layers(phases.select(phases.more["level"] == level), grid)
        if any(len(layer.start_ns) for layer in layers):
            strips.append((_PHASE_PX, MIN_BAND_HEIGHT_SHARE, [layers]))
    annotations = scene.lane(f"annotation:{lane.thread}")
    blocking = _blocking(scene, lane, grid)
    steps = [] if annotations is None else [(_layer(annotations, "host_step", grid),)]
    strips.append((_BLOCKING_PX, 0.4, [blocking]))
    strips.append((_CALLS_PX, 1, [*steps, (_layer(lane, "launch_call", grid),)]))
    height_px = sum(px for px, _, _ in strips) + _STRIP_GAP_PX * (len(strips) - 1)
    bands, top_px = [], 0
    for px, least, parts in strips:
        upper, lower = top_px / height_px, (top_px + px) / height_px
        bands += [Band(upper, lower, least, layers) for layers in parts]
        top_px += px + _STRIP_GAP_PX
    blocked_ns = sum(measure(layer.covered) for layer in blocking)
    label = _short_label(lane.label)
    return Row(label, None, blocked_ns, tuple(bands), min_px=height_px)


def _blocking(scene: Scene, lane: Lane, grid: Grid) -> tuple[Layer, ...]:
    if "cost" not in lane.more:
        return (_layer(lane, "blocking", grid),)
    # Of a long wait for a busy GPU, the call that reads the result is left.
    steps = [scene.steps[number].length_ns for number in scene.usual_steps]
    least_ns = _MIN_STEP_SHARE * (median(steps) if steps else scene.window.length_ns)
    cost_ns, length_ns = lane.more["cost"], lane.end_ns - lane.start_ns
    is_harmless = (cost_ns < least_ns) & (cost_ns <= _MIN_CALL_SHARE * length_ns)
    layer = _layer(lane.select(is_harmless), "blocking", grid)
    costly = _layer(lane.select(~is_harmless), "blocking", grid)
    return replace(layer, kind="harmless"), costly


def _counter_row(lane: Lane, grid: Grid) -> Row:
    value = lane.more["value"]
    shown = value[(lane.end_ns > grid.start_ns) & (lane.start_ns < grid.end_ns)]
    most = UNITS.get(lane.unit, count_text)(int(shown.max(initial=0)))
    heights = column_heights(lane.start_ns, lane.end_ns, value, grid)
    label = f"{lane.label.removeprefix(f'GPU {lane.device} ')}, at most {most}"
    return Row(label, lane.device, 0, (), streams=0, heights=heights)


def busiest(rows: Sequence[Row], most: int) -> list[Row]:
    """List the busiest streams and threads, and all other rows."""
    order = sorted(range(len(rows)), key=lambda i: (rows[i].streams > 0, -rows[i].busy_ns))
    most += sum(row.streams == 0 for row in rows)
    return [rows[i] for i in sorted(order[:most])]


def visible(idle: Intervals, grid: Grid) -> Intervals:
    """Return the intervals of at least a pixel."""
    wide = idle.ends - idle.starts >= grid.pixel_ns
    return Intervals(idle.starts[wide], idle.ends[wide])


def kinds_in(rows: Sequence[Row]) -> set[str]:
    """List the kinds of spans in these rows."""
    layers = (layer for row in rows for band in row.bands for layer in band.layers)
    return {layer.kind for layer in layers if len(layer.covered)}


def place_marks(
    scene: Scene, numbers: Iterable[int], rows: Sequence[Row], grid: Grid
) -> list[PlacedMark]:
    """Number the worst shown evidence."""
    index_of = {row.id: index for index, row in enumerate(rows)}
    placed: list[PlacedMark] = []
    for mark in (mark for number in numbers for mark in scene.marks if mark.number == number):
        idle = index_of.get(f"idle:{mark.device}", ABSENT)
        own: list[PlacedMark] = []
        for lane, *times in evidence_of(scene, mark):
            index = index_of.get(lane, idle)
            start_ns, end_ns = times
            if (
                min(end_ns, grid.end_ns) - max(start_ns, grid.start_ns)
                > _MAX_EVIDENCE_SHARE * grid.length_ns
            ):
                index, (start_ns, end_ns) = idle, _longest_idle(scene, mark.device, grid)
            if index == ABSENT or start_ns >= grid.end_ns or end_ns <= grid.start_ns:
                continue
            middle_ns = (max(start_ns, grid.start_ns) + min(end_ns, grid.end_ns)) / 2
            middle_px = (middle_ns - grid.start_ns) / grid.pixel_ns
            beside = [x.middle_px for x in own if x.row == index]
            if all(abs(middle_px - x) >= _MIN_MARK_DISTANCE_PX for x in beside):
                middle_px = _free_px(middle_px, [x.middle_px for x in placed if x.row == index])
                own.append(PlacedMark(mark.number, index, Span(start_ns, end_ns), middle_px))
            if len(own) == _MAX_PLACES_OF_MARK:
                break
        placed += own
    return placed


def _longest_idle(scene: Scene, device: int, grid: Grid) -> Span:
    idle = scene.lane(f"idle:{device}")
    if idle is None or not len(idle):
        return Span(grid.start_ns, grid.start_ns)
    start_ns, end_ns = np.clip((idle.start_ns, idle.end_ns), grid.start_ns, grid.end_ns)
    longest = int((end_ns - start_ns).argmax())
    return Span(int(idle.start_ns[longest]), int(idle.end_ns[longest]))


def _free_px(middle_px: float, taken_px: Sequence[float]) -> float:
    for other_px in sorted(taken_px):
        if abs(middle_px - other_px) < MARK_PX:
            middle_px = other_px + MARK_PX
    return middle_px


def caption(
    rows: Sequence[Row], grid: Grid, names: Sequence[str] | None, available: int
) -> list[str]:
    """Name the shown time and contents, in parts of one line."""
    bands = [band for row in rows if row.device is not None and row.streams for band in row.bands]
    layers = [layer for band in bands for layer in band.layers]
    length, start = duration_text(grid.length_ns), duration_text(grid.start_ns)
    parts = [f"{length} from {start} into the trace"]
    if bands:
        count = sum(len(layer.start_ns) for layer in layers)
        parts.append(counted(count, "GPU activity", "GPU activities"))
    if any(row.streams > 1 for row in rows):
        parts.append("graph streams: nearly empty ones of CUDA graphs, in one lane")
    if names is not None:
        parts.append(f"only {', '.join(names)}")
    if len(rows) < available:
        beside = sum(row.streams == 0 for row in rows)
        parts.append(f"the {len(rows) - beside} busiest of {available - beside:,} lanes")
    return parts


def _short_label(label: str) -> str:
    """Cut a long number at a label's end to its own end: addresses begin alike."""
    words, _, number = label.rpartition(" ")
    if number.isdigit() and len(number) > MAX_ID_LETTERS:
        return f"{words} {ELLIPSIS}{number[1 - MAX_ID_LETTERS :]}"
    return label
