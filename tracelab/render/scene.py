"""Scenes: plain data of one file, for pictures, pages and Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Arrays, Int64Array, Record, read_only
from tracelab.base.intervals import Intervals, clip, measure_within, union

# Columns that index `Scene.names`, `Scene.texts` and rows of other lanes.
NAME_COLUMNS = ("name", "op", "next", "could", "awaited")
TEXT_COLUMNS = ("captured", "text", "why_left_out", "why_unknown", "operator", "function", "place")
WIDE_COLUMNS = ("cost", "after", "bound", "value")  # all others fit into four bytes

PLAIN, DELTA = "plain", "delta"  # numbers, or differences in an order


class Column(NamedTuple):
    """Column of a lane on a page: ``Column("call", 4, DELTA)``, of four bytes."""

    name: str
    size: int
    code: str = PLAIN


class LaneType(NamedTuple):
    """A type of lanes on the page, and its columns besides times and kind."""

    height_px: int
    columns: tuple[Column, ...]


_ROW = Column("row", 4, DELTA)
_NAME = Column("name", 2)
# By type, as in ids of lanes; other types are of pictures or Perfetto alone.
LANE_TYPES: Mapping[str, LaneType] = {
    "steps": LaneType(18, (_NAME,)),
    "idle": LaneType(22, (_ROW, Column("line", 2), Column("op", 2))),
    "exposed": LaneType(16, (_ROW, _NAME)),
    "stream": LaneType(
        26,
        (
            _NAME,
            Column("op", 2),
            Column("line", 2),
            Column("call", 4, DELTA),
            Column("why", 1),
            Column("source", 4, DELTA),
            Column("stream", 2),
            Column("level", 1),
            Column("captured", 2),
        ),
    ),
    "path": LaneType(16, (_ROW,)),
    "counter": LaneType(28, (Column("value", 8),)),
    "phase": LaneType(14, (_NAME, Column("level", 1))),
    "module": LaneType(14, (_NAME, Column("level", 1))),
    "operator": LaneType(14, (_NAME, Column("level", 1))),
    "host": LaneType(22, (_NAME, Column("line", 2), Column("cost", 4), _ROW)),
    "wait": LaneType(18, (_NAME,)),
}

_MAX_EVIDENCE_OF_FINDING = 50

NOTHING: NDArray[Any] = read_only(np.zeros(0, dtype=np.int64))


class Thread(NamedTuple):
    """A thread of the file: ``Thread("4211", "4211", "thread 4211 (python)")``."""

    process: str
    thread: str
    name: str


class Line(NamedTuple):
    """A line of the program: ``Line("train_epoch", "train.py:40")``; None without a place."""

    name: str
    where: str | None


class Span(NamedTuple):
    """A stretch of time, ns: ``Span(400, 900)``."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.end_ns - self.start_ns


class Lane(Record, eq=False):
    """Spans of one lane, by start.

    Attributes:
        id: type and owner: "idle:0", "stream:0/7", "host:2", "path".
        device: None for a lane of the host or file.
        start_ns, end_ns: int64[n], ns since the file's first event.
        kind: uint8[n], index into `kinds`.
        more: further columns of its type, int[n], or ABSENT; "value" is a number over time.
        terms: of columns of codes in `more`, the keys.
        streams: if several, `more` has "stream", index into these, and "level", for the height.
        thread: of a host's lane, index into `Scene.threads`.
        unit: of a "value": "bytes", "streams".
        summary: True if it stays when its file's other lanes are hidden.
    """

    id: str
    label: str
    kinds: tuple[str, ...]
    start_ns: Int64Array
    end_ns: Int64Array
    kind: NDArray[np.uint8]
    more: Mapping[str, NDArray[Any]]
    device: int | None = None
    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    streams: tuple[int, ...] = ()
    thread: int = ABSENT
    unit: str = ""
    summary: bool = False

    def __post_init__(self) -> None:
        columns: tuple[NDArray[Any], ...] = (self.start_ns, self.end_ns, self.kind)
        for column in (*columns, *self.more.values()):
            read_only(column)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def type(self) -> str:
        """Type, which decides how it is drawn."""
        return self.id.partition(":")[0]

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Lane:
        """Return the lane with chosen spans: bool[n] or indices."""
        return replace(
            self,
            start_ns=self.start_ns[chosen],
            end_ns=self.end_ns[chosen],
            kind=self.kind[chosen],
            more={name: column[chosen] for name, column in self.more.items()},
        )

    def covered(self, kind: str, within: Span) -> Intervals:
        """Return the times of a kind in a stretch of time."""
        chosen = self.kind == self.kinds.index(kind)
        return clip(union(self.start_ns[chosen], self.end_ns[chosen]), *within)


class Places(Arrays):
    """Targets of links and marks: int64[k] each, times in ns.

    Attributes:
        thread, name: index into `Scene.threads` and `Scene.names`.
        row: of a shown GPU activity among the spans of all streams, lane after lane; else ABSENT.
    """

    event_id: Int64Array = NOTHING
    start_ns: Int64Array = NOTHING
    end_ns: Int64Array = NOTHING
    thread: NDArray[np.int32] = NOTHING
    name: Int64Array = NOTHING
    row: Int64Array = NOTHING

    def __len__(self) -> int:
        return len(self.event_id)


class Mark(Record, eq=False):
    """A finding, and the places that it cites.

    Attributes:
        number: in the report, from 1.
        about: "program" or "trace".
        label: "2 saves 9 %: TL101 the host waits".
        name: of its spans; findings of one cause share it.
        texts, figures: details, by name.
        place: intp[k], rows of `Scene.places`, the worst first.
        since_ns: from the start of a cited span until others waited for it, ns.
    """

    number: int
    about: str
    label: str
    name: str
    texts: Mapping[str, str]
    figures: Mapping[str, int]
    place: NDArray[np.intp]
    device: int
    since_ns: Mapping[int, int]
    cause: str = ""


class Evidence(NamedTuple):
    """A cited place: ``Evidence("host:2", 400, 900)``, ns."""

    lane: str
    start_ns: int
    end_ns: int


class Scene(Record, eq=False):
    """Contents of one file, in ns since its first event, or on a job's clock.

    Attributes:
        window: the measured time: all of the file, or one step.
        focus: the time of the findings: the steady steps if there are any.
        start_ns, end_ns: the time in which its spans are known.
        step: the only one; None for all of the file.
        device: the GPU that decides.
        origin_ns: the file's own time of its first event.
        base_ns: from the file's own times to the machine's clock.
        critical_path: intp[k], rows of `places`, in order.
        usual_steps: numbers of the steady steps.
        label: heading of its lanes: "rank 3".
        clock: of a job, pairs of one moment on the lanes' clock and since the first event, ns.
    """

    path: str
    window: Span
    focus: Span
    start_ns: int
    end_ns: int
    threads: tuple[Thread, ...]
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    step: int | None = None
    device: int = 0
    origin_ns: int = 0
    base_ns: int = 0
    texts: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    places: Places = field(default_factory=Places)
    critical_path: NDArray[np.intp] = NOTHING
    usual_steps: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    label: str = ""
    rank: int = 0
    marks: tuple[Mark, ...] = ()
    clock: tuple[tuple[int, int], ...] = ()

    def lanes_of_type(self, lane_type: str) -> Iterator[Lane]:
        """Yield the lanes of a type, in order."""
        return (lane for lane in self.lanes if lane.type == lane_type)

    def lane(self, lane_id: str) -> Lane | None:
        """Return a lane by id, or None."""
        return next((lane for lane in self.lanes if lane.id == lane_id), None)

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of the GPUs, ascending."""
        return tuple(sorted({x.device for x in self.lanes if x.device is not None}))

    @property
    def steps(self) -> dict[int, Span]:
        """The steps by number."""
        lane = self.lane("steps")
        if lane is None:
            return {}
        columns = lane.more["number"].tolist(), lane.start_ns.tolist(), lane.end_ns.tolist()
        return {number: Span(start, end) for number, start, end in zip(*columns, strict=True)}

    def busy(self, device: int, within: Span) -> Intervals:
        """Return when any stream of a GPU works in a stretch of time."""
        lanes = [lane for lane in self.lanes_of_type("stream") if lane.device == device]
        starts = np.concatenate([lane.start_ns for lane in lanes])
        return clip(union(starts, np.concatenate([lane.end_ns for lane in lanes])), *within)

    def moved_to_clock(self, pairs: tuple[tuple[int, int], ...]) -> Scene:
        """Return the scene on its `clock`, linear between pairs."""
        other_ns, own_ns = np.array(pairs, dtype=np.int64).T

        def clock(moments_ns: Int64Array) -> Int64Array:
            shift_ns: Int64Array = np.rint(np.interp(moments_ns, own_ns, other_ns - own_ns)).astype(
                np.int64
            )
            return moments_ns + shift_ns

        def spans(*moments_ns: int) -> Span:
            return Span(*clock(np.array(moments_ns, dtype=np.int64)).tolist())

        start_ns, end_ns = spans(self.start_ns, self.end_ns)
        places = self.places
        return replace(
            self,
            window=spans(*self.window),
            focus=spans(*self.focus),
            start_ns=start_ns,
            end_ns=end_ns,
            lanes=tuple(
                replace(x, start_ns=clock(x.start_ns), end_ns=clock(x.end_ns)) for x in self.lanes
            ),
            places=replace(places, start_ns=clock(places.start_ns), end_ns=clock(places.end_ns)),
            clock=pairs,
        )


def evidence_of(scene: Scene, mark: Mark) -> tuple[Evidence, ...]:
    """Sort evidence: steady steps first, then by the idle time that its calls caused.

    Then by the GPU's idle time during it and in the gap that covers its end, and by its length.
    """
    steps = [scene.steps[number] for number in scene.usual_steps]
    idle = scene.lane(f"idle:{mark.device}")

    def badness(one: Evidence) -> tuple[bool, int, int, int]:
        lane, idle_ns, cost_ns = scene.lane(one.lane), 0, 0
        if lane is not None and "cost" in lane.more:
            calls = slice(*np.searchsorted(lane.start_ns, (one.start_ns, one.end_ns + 1)))
            cost_ns = int(lane.more["cost"][calls].sum())
        if idle is not None and len(idle):
            gap = min(int(np.searchsorted(idle.end_ns, one.end_ns, "right")), len(idle) - 1)
            until_ns = idle.end_ns[gap] if idle.start_ns[gap] <= one.end_ns else one.end_ns
            of_gaps = Intervals(idle.start_ns, idle.end_ns)
            [idle_ns] = measure_within(of_gaps, [one.start_ns], [until_ns]).tolist()
        is_usual = any(one.start_ns < x.end_ns and one.end_ns >= x.start_ns for x in steps)
        return is_usual, cost_ns, idle_ns, one.end_ns - one.start_ns

    return tuple(sorted(_evidence(scene, mark), key=badness, reverse=True))


def _evidence(scene: Scene, mark: Mark) -> Iterator[Evidence]:
    places, streams = scene.places, list(scene.lanes_of_type("stream"))
    first_rows = [0, *accumulate(map(len, streams))]
    known = {lane.id for lane in scene.lanes}
    for place in mark.place[:_MAX_EVIDENCE_OF_FINDING].tolist():
        lane_id = f"host:{places.thread[place]}"
        if places.row[place] != ABSENT:
            row = int(places.row[place])
            lane_id = streams[int(np.searchsorted(first_rows, row, side="right")) - 1].id
        lane_id = lane_id if lane_id in known else f"idle:{mark.device}"
        if lane_id in known:
            yield Evidence(lane_id, int(places.start_ns[place]), int(places.end_ns[place]))
