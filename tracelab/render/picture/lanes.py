"""What a picture of a timeline shows: the chosen lanes, and what lies in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import numpy as np

from tracelab.errors import UsageError
from tracelab.intervals import Int64Array, Intervals, clip, gaps, measure, union
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.render.picture.coverage import Grid, split_by_width
from tracelab.render.words import ELLIPSIS, duration_text

_LONGEST_ID = 8


class Mark(Enum):
    """The sorts of things in a picture; the value is what the legend calls it."""

    COMPUTE = "compute"
    COMM = "communication"
    COPY = "copy"
    MEMSET = "memset"
    BLOCKING = "blocking call"
    LAUNCH = "launch call"
    HOST_STEP = "step on the host"
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
    """What to show: streams (indices of the timeline's lanes), kinds, threads of the trace."""

    streams: tuple[int, ...]
    kinds: tuple[Kind, ...]
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Things of one sort in a lane: the shown time that they cover, and their event ids."""

    mark: Mark
    covered: Intervals
    events: Int64Array


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
class Row:
    """A lane; `device` is None for a host thread, and then the busy time is what it blocked."""

    label: str
    device: int | None
    busy_ns: int
    bands: tuple[Band, ...]


def choose(timeline: Timeline, blocking_calls: Int64Array, names: Sequence[str] | None) -> Choice:
    """What the names of lanes stand for; without any it is everything.

    Raises:
        UsageError: a name stands for nothing, or nothing is left to draw.
    """
    threads = _host_threads(timeline, blocking_calls)
    kinds = tuple(Kind(kind) for kind in np.unique(timeline.kind))
    every = range(len(timeline.streams))
    if names is None:
        if not every:
            raise UsageError("the trace has no GPU activity to draw")
        return Choice(tuple(every), kinds, threads)
    places: dict[str, set[int]] = {}
    for index, lane in enumerate(timeline.streams):
        places.setdefault(f"device:{lane.device_number}", set()).add(index)
        places[f"stream:{lane.device_number}/{lane.stream_number}"] = {index}
    kind_names = {f"kind:{kind.name.lower()}": kind for kind in kinds}
    known = [*(["host"] if threads else []), *places, *kind_names]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no lane {name!r}; there are: {', '.join(known)}")
    asked_kinds = tuple(kind for name, kind in kind_names.items() if name in names)
    asked = {index for name in names for index in places.get(name, ())}
    if asked_kinds:
        asked = {i for i in asked or every if _works(timeline, i, asked_kinds)}
    asked_threads = threads if "host" in names else ()
    if not asked and not asked_threads:
        raise UsageError(f"nothing to draw in {', '.join(names) or 'no lane'}")
    return Choice(tuple(sorted(asked)), asked_kinds or kinds, asked_threads)


def build_rows(
    timeline: Timeline, blocking_calls: Int64Array, choice: Choice, grid: Grid
) -> list[Row]:
    """The chosen lanes with what lies in the grid's time: host threads, then streams."""
    return [
        *(_host_row(timeline, blocking_calls, thread, grid) for thread in choice.threads),
        *(_stream_row(timeline, stream, choice.kinds, grid) for stream in choice.streams),
    ]


def busiest(rows: Sequence[Row], most: int) -> list[Row]:
    """The rows, without the least busy ones where they are too many."""
    order = sorted(range(len(rows)), key=lambda i: -rows[i].busy_ns)
    return [rows[i] for i in sorted(order[:most])]


def device_busy(timeline: Timeline, device: int, grid: Grid) -> Intervals:
    """When any stream of a device works, chosen or not."""
    busy = timeline.busy(timeline.select(device=device))
    return clip(busy, grid.start_ns, grid.end_ns)


def visible_idle(busy: Intervals, grid: Grid) -> Intervals:
    """When a device that is busy then is idle for at least a pixel."""
    idle = gaps(busy, grid.start_ns, grid.end_ns)
    wide = idle.ends - idle.starts >= grid.pixel_ns
    return Intervals(idle.starts[wide], idle.ends[wide])


def marks_in(rows: Sequence[Row]) -> set[Mark]:
    """The sorts of things that lie in these lanes."""
    layers = (layer for row in rows for band in row.bands for layer in band.layers)
    return {layer.mark for layer in layers if len(layer.covered)}


def caption(rows: Sequence[Row], grid: Grid, names: Sequence[str] | None, of_rows: int) -> str:
    """What a picture shows and how to read it, in one line.

    Args:
        rows: the lanes in it.
        grid: its time.
        names: what the user chose, if anything.
        of_rows: how many lanes there are.
    """
    streams = [band for row in rows if row.device is not None for band in row.bands]
    layers = [layer for band in streams for layer in band.layers]
    length, start = duration_text(grid.length_ns), duration_text(grid.start_ns)
    parts = [f"{length} from {start} into the trace"]
    if streams:
        parts.append(f"{sum(len(layer.events) for layer in layers):,} GPU activities")
    if names is not None:
        parts.append(f"only {', '.join(names)}")
    if len(rows) < of_rows:
        parts.append(f"the {len(rows)} busiest of {of_rows:,} lanes")
    if any(len(split_by_width(layer.covered, grid)[1]) for layer in layers):
        pixel = duration_text(round(grid.pixel_ns))
        parts.append(f"low bars: busy share of one pixel ({pixel})")
    return "  ·  ".join(parts)


def _rows_of(timeline: Timeline, stream: int) -> slice:
    return slice(timeline.streams[stream].first_row, timeline.streams[stream].end_row)


def _works(timeline: Timeline, stream: int, kinds: Sequence[Kind]) -> bool:
    return bool(np.isin(timeline.kind[_rows_of(timeline, stream)], kinds).any())


def _launches(timeline: Timeline) -> Int64Array:
    """The host calls that put something on a GPU."""
    return np.unique(timeline.launch_id[timeline.launch_id != ABSENT])


def _host_threads(timeline: Timeline, blocking_calls: Int64Array) -> tuple[int, ...]:
    """The threads that launched or blocked, each process's main thread first."""
    trace = timeline.trace
    calls = np.concatenate((_launches(timeline), blocking_calls))
    threads = np.unique(trace.thread_index[calls]).tolist()
    return tuple(
        sorted(threads, key=lambda i: (trace.threads[i].process != trace.threads[i].thread, i))
    )


def _layer(timeline: Timeline, mark: Mark, events: Int64Array, grid: Grid) -> Layer:
    """These events, as far as they lie in the grid's time."""
    start, end = timeline.trace.start_ns[events], timeline.trace.end_ns[events]
    shown = (end > grid.start_ns) & (start < grid.end_ns)
    covered = clip(union(start[shown], end[shown]), grid.start_ns, grid.end_ns)
    return Layer(mark, covered, events[shown])


def _stream_row(timeline: Timeline, stream: int, kinds: Sequence[Kind], grid: Grid) -> Row:
    """A stream: its work by kind."""
    rows = _rows_of(timeline, stream)
    event, kind = timeline.event_id[rows], timeline.kind[rows]
    layers = tuple(_layer(timeline, KIND_MARKS[k], event[kind == k], grid) for k in kinds)
    busy = union(
        np.concatenate([layer.covered.starts for layer in layers]),
        np.concatenate([layer.covered.ends for layer in layers]),
    )
    lane = timeline.streams[stream]
    label = f"stream {_short_id(str(lane.stream_number))}"
    return Row(label, lane.device_number, measure(busy), (Band(0, 1, 0.16, layers),))


def _host_row(timeline: Timeline, blocking_calls: Int64Array, thread: int, grid: Grid) -> Row:
    """A host thread: its blocking calls and, in a strip below them, its steps and launches."""

    def layer(mark: Mark, events: Int64Array) -> Layer:
        return _layer(timeline, mark, events[timeline.trace.thread_index[events] == thread], grid)

    steps = np.array([step.event_id for step in timeline.steps], dtype=np.int64)
    launches = np.setdiff1d(_launches(timeline), blocking_calls)
    blocking = layer(Mark.BLOCKING, blocking_calls)
    bands = (
        Band(0, 0.64, 0.4, (blocking,)),
        Band(0.72, 1, 1, (layer(Mark.HOST_STEP, steps),)),
        Band(0.72, 1, 1, (layer(Mark.LAUNCH, launches),)),
    )
    label = f"host thread {_short_id(timeline.trace.threads[thread].thread)}"
    return Row(label, None, measure(blocking.covered), bands)


def _short_id(text: str) -> str:
    """A stream or thread; of an address the end, because addresses begin alike."""
    return text if len(text) <= _LONGEST_ID else ELLIPSIS + text[1 - _LONGEST_ID :]
