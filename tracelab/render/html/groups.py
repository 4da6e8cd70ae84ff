"""Groups of lanes of a page: the scene of each file, with names as a page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, OneLine, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.base.safe_text import visible
from tracelab.render.html.encode import CAPTURED, COLUMNS, OF_SEVERAL
from tracelab.render.scene import Lane, Scene
from tracelab.render.words import bare_name, shorten
from tracelab.report.glossary import BLOCKERS

MAX_NAME_LETTERS, MAX_LABEL_LETTERS = 300, 40
MAX_STREAM_LANES, MAX_THREADS = 100, 40
_SHOWN = {column.name for columns in COLUMNS.values() for column in columns} | {
    column.name for column in (*OF_SEVERAL, CAPTURED)
}


class Name(NamedTuple):
    """A name as a page shows it, and its form in a narrow place; "" if that is the same.

    Example: ``Name("void at::native::reduce_kernel<512, 1>(float*)", "reduce_kernel")``.
    """

    text: str
    short: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Group(OneLine):
    """The lanes of one file, on the page's clock.

    Attributes:
        scene: the file.
        lanes: its lanes; their names, operators and lines are indices into `names`.
        names: all its names.
        streams_left_out, threads_left_out: how many have no lane, because they are very many.

    Example: ``Group(scene=Scene(...), lanes=(Lane("steps", ...), ...), names=(Name("gemm"), ...),
    streams_left_out=0, threads_left_out=0)``.
    """

    scene: Scene
    lanes: tuple[Lane, ...]
    names: tuple[Name, ...]
    streams_left_out: int
    threads_left_out: int

    @property
    def start_ns(self) -> int:
        """Start of the first item in its lanes, ns."""
        return min(int(lane.start_ns.min()) for lane in self.lanes if len(lane))

    @property
    def end_ns(self) -> int:
        """End of the last item in its lanes, ns."""
        return max(int(lane.end_ns.max()) for lane in self.lanes if len(lane))

    def lane_index(self, lane_id: str) -> int:
        """Return the place of a lane, ABSENT if no lane has that id."""
        ids = [lane.id for lane in self.lanes]
        return ids.index(lane_id) if lane_id in ids else ABSENT


def group_of(scene: Scene) -> Group:
    """Make the group of a file: its lanes that a page shows."""
    streams, hosts = tuple(scene.lanes_of_type("stream")), tuple(scene.lanes_of_type("host"))
    busy_ns = [int((lane.end_ns - lane.start_ns).sum()) for lane in streams]
    left_out = {
        *_least(streams, busy_ns, MAX_STREAM_LANES),
        *_least(hosts, list(map(len, hosts)), MAX_THREADS),
    }
    lanes = tuple(lane for lane in scene.lanes if lane.type in COLUMNS)
    if left_out:
        is_kept = {x.id: np.full(len(x), x.id not in left_out) for x in lanes}
        places = new_places(lanes, is_kept)
        lanes = tuple(renumbered(x, places) for x in lanes if x.id not in left_out)
    names, lanes = _named(scene, lanes)
    return Group(
        scene=scene,
        lanes=lanes,
        names=tuple(names),
        streams_left_out=sum(len(lane.streams) for lane in streams if lane.id in left_out),
        threads_left_out=sum(lane.id in left_out for lane in hosts),
    )


def _least(lanes: Sequence[Lane], weights: Sequence[int], most: int) -> list[str]:
    """List the ids of the lanes with the least weight, of those that are too many."""
    order = sorted(range(len(lanes)), key=lambda i: -weights[i])
    return [lanes[i].id for i in order[most:]]


def new_places(
    lanes: Iterable[Lane], is_kept: Mapping[str, NDArray[np.bool_]]
) -> dict[str, Int64Array]:
    """New place of each activity or call, by column that refers to it, int64[n + 1]; else ABSENT.

    Args:
        lanes: of a file, with all activities and calls.
        is_kept: bool[n] of each by its id, those that are kept.
    """
    kept: dict[str, list[NDArray[np.bool_]]] = {"stream": [], "host": []}
    for lane in lanes:
        if lane.type in kept:
            kept[lane.type].append(is_kept[lane.id])
    row, call = (
        np.append(np.where(is_of_type, np.cumsum(is_of_type) - 1, ABSENT), ABSENT)
        for is_of_type in (np.concatenate([np.zeros(0, np.bool_), *x]) for x in kept.values())
    )
    return {"row": row, "source": row, "call": call}


def renumbered(lane: Lane, places: Mapping[str, Int64Array]) -> Lane:
    """Return a lane that refers to the new places of activities and calls."""
    more = {key: places[key][x] if key in places else x for key, x in lane.more.items()}
    return replace(lane, more=more)


def _named(scene: Scene, lanes: Sequence[Lane]) -> tuple[list[Name], tuple[Lane, ...]]:
    """List the names of all lanes, and the lanes with the columns and labels of a page."""
    names: list[Name] = []

    def places(shown: Iterable[Name]) -> Int64Array:
        """int64[n + 1], the place of each name, which is added; ABSENT for ABSENT."""
        first = len(names)
        names.extend(shown)
        return np.append(np.arange(first, len(names)), ABSENT)

    def used(lane_type: str, column: str) -> NDArray[Any]:
        columns = [x.more[column] for x in lanes if x.type == lane_type and column in x.more]
        return np.unique(np.concatenate([np.array([ABSENT]), *columns]))[1:]

    def used_places(index: NDArray[Any], shown: Iterable[Name], count: int) -> Int64Array:
        place = np.full(count + 1, ABSENT, dtype=np.int64)
        place[index] = places(shown)[:-1]
        return place

    events = np.unique(
        np.concatenate([used("stream", "name"), used("stream", "op"), used("host", "name")])
    )
    event = used_places(events, (_visible_name(scene.names[i]) for i in events), len(scene.names))
    blockers = next((x.terms["blocker"] for x in lanes if x.type == "exposed"), ())
    blocker = places(Name(BLOCKERS.meanings[key]) for key in blockers)
    step = places(map(Name, _step_names(scene)))
    texts = used("stream", "captured")
    captured = used_places(texts, (Name(_cut(scene.texts[i])) for i in texts), len(scene.texts))
    line = places(_line_name(_cut(name), where and _cut(where)) for name, where in scene.lines)
    texts = used("wait", "text")
    wait = used_places(texts, (Name(scene.texts[i]) for i in texts), len(scene.texts))

    def columns_of(lane: Lane) -> Mapping[str, NDArray[Any]]:
        more = {key: column for key, column in lane.more.items() if key in _SHOWN}
        more |= {key: event[more[key]] for key in ("name", "op") if key in more}
        more |= {
            key: of[more[key]]
            for key, of in (("line", line), ("captured", captured))
            if key in more
        }
        if lane.type == "steps":
            more["name"] = step[:-1]
        elif lane.type == "exposed":
            more["name"] = blocker[lane.more["blocker"]]
        elif lane.type == "wait":
            more["name"] = wait[lane.more["text"]]
        return more

    return names, tuple(replace(x, label=_label(x), more=columns_of(x)) for x in lanes)


def _step_names(scene: Scene) -> Iterable[str]:
    """Yield the name of each step, with why it is left out."""
    for lane in scene.lanes_of_type("steps"):
        columns = zip(lane.more["number"].tolist(), lane.more["why_left_out"].tolist(), strict=True)
        for number, why in columns:
            yield f"step {number}" + (
                "" if why == ABSENT else f", not steady: it {scene.texts[why]}"
            )


def _label(lane: Lane) -> str:
    """Return the text beside a lane."""
    if lane.type == "host":
        return shorten(visible(lane.label), MAX_LABEL_LETTERS)
    if len(lane.streams) > 1:
        return f"GPU {lane.device}: {len(lane.streams):,} streams of CUDA graphs"
    return f"GPU {lane.device} {lane.label}" if lane.type == "stream" else lane.label


def _line_name(name: str, where: str | None) -> Name:
    return Name(f"{where} · {name}" if where else name, where or "")


def _visible_name(text: str) -> Name:
    cut, short = _cut(text[: 2 * MAX_NAME_LETTERS]), visible(bare_name(text))
    return Name(cut, "" if short == cut else short)


def _cut(text: str) -> str:
    return shorten(visible(text), MAX_NAME_LETTERS)
