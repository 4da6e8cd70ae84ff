"""Lanes of a page, and the detail of them that fits: all, or single activities of some steps.

A page is read by mail and in browsers of laptops. What decides is the size of the compressed
columns, which differs from trace to trace: so it is measured.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Record
from tracelab.base.intervals import Int64Array
from tracelab.base.safe_text import visible
from tracelab.render.html.encode import (
    BINS,
    EncodedLane,
    Rows,
    bin_grid,
    compress,
    encode,
    rows_of,
)
from tracelab.render.scene import LANE_TYPES, Lane, Scene
from tracelab.render.words import bare_name, duration_text, shorten
from tracelab.report.glossary import BLOCKERS

# Of the columns: base64 makes 3.0 MB of them, of a page of 3.5 MB.
MAX_BYTES = 2_250_000
# The page of up to eight ranks stays below 2 MB.
MAX_BYTES_OF_JOB = 1_250_000
# Of each rank of a job of more than eight.
_MAX_BYTES_OF_RANK = 156_000
_MAX_SAMPLE = 50_000
_MIN_BINS, _MAX_BINS_OF_ALL_LANES = 512, 65_536
_MIN_DETAIL_SHARE = 1e-4
# Without steps, less of all lanes is worth less than more of them in a detail.
_MIN_FILE_SHARE = 0.02
# The first estimate is mostly right.
_MAX_TRIES = 5
_WITHOUT_SOURCE = ("launch", "unknown", "callback")
# What else is known of an activity.
_DETAILS = ("op", "line", "call", "why", "source", "captured")
_MAX_BYTE_SHARE_OF_STREAMS = 0.8
MAX_NAME_LETTERS, MAX_LABEL_LETTERS = 300, 40
MAX_STREAM_LANES, MAX_THREADS = 100, 40
# The last number of two bytes stands for no name.
MAX_NAMES = 0xFFFF
# The types of lanes whose activities stay at all times: without a detail, and with one.
_ALL = frozenset(LANE_TYPES)
_ALWAYS = frozenset(("steps",))
_WITH_STREAMS = frozenset(("steps", "stream"))


class Name(NamedTuple):
    """A name as a page shows it, and its form in a narrow place; "" if that is the same.

    Example: ``Name("void at::native::reduce_kernel<512, 1>(float*)", "reduce_kernel")``.
    """

    text: str
    short: str = ""


class Group(Record, eq=False):
    """The lanes of one file, on the page's clock.

    Attributes:
        scene: the file.
        lanes: its lanes; their names, operators and lines are indices into those of the page.
        streams_left_out, threads_left_out: how many have no lane, because they are very many.

    Example: ``Group(scene=Scene(...), lanes=(Lane("steps", ...), ...), streams_left_out=0,
    threads_left_out=0)``.
    """

    scene: Scene
    lanes: tuple[Lane, ...]
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


class Cited(NamedTuple):
    """Evidence that a finding cites, and the weight of showing it in detail.

    Example: ``Cited(group_index=0, start_ns=400, end_ns=900, weight=0.5)``.
    """

    group_index: int
    start_ns: int
    end_ns: int
    weight: float


class Fitted(Record, eq=False):
    """Groups of lanes as a page has them.

    Attributes:
        lanes: of each group.
        details: of each group the start and end, ns, of the time in which all is known.
        columns: the bytes of all.
        note: what is left out, sentences; "" where that is nothing.

    Example: ``Fitted(lanes=((EncodedLane(...), ...),), details=((0, 9_000),), columns=b"...",
    note="")``.
    """

    lanes: tuple[tuple[EncodedLane, ...], ...]
    details: tuple[tuple[int, int], ...]
    columns: bytes
    note: str


# --- lanes of a file ---


def group_of(scene: Scene, names: dict[Name, int]) -> Group:
    """Make the group of a file: its lanes that a page shows.

    Args:
        scene: the file.
        names: the names of the page, to which those of the file are added.
    """
    streams, hosts = tuple(scene.lanes_of_type("stream")), tuple(scene.lanes_of_type("host"))
    busy_ns = [int((lane.end_ns - lane.start_ns).sum()) for lane in streams]
    left_out = {
        *_least(streams, busy_ns, MAX_STREAM_LANES),
        *_least(hosts, list(map(len, hosts)), MAX_THREADS),
    }
    lanes = tuple(lane for lane in scene.lanes if lane.type in LANE_TYPES)
    if left_out:
        is_kept = {x.id: np.full(len(x), x.id not in left_out) for x in lanes}
        places = new_places(lanes, is_kept)
        lanes = tuple(renumbered(x, places) for x in lanes if x.id not in left_out)
    return Group(
        scene=scene,
        lanes=_named(scene, lanes, names),
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


def _named(scene: Scene, lanes: Sequence[Lane], names: dict[Name, int]) -> tuple[Lane, ...]:
    """List the lanes as a page has them; add their names to those of the page."""

    def places(shown: Iterable[Name]) -> Int64Array:
        """int64[n + 1], the place of each name, if two bytes can tell it; ABSENT for ABSENT."""
        index = [names.setdefault(name, len(names)) for name in shown]
        return np.array([*(x if x < MAX_NAMES else ABSENT for x in index), ABSENT])

    def used_places(
        texts: Sequence[str], name_of: Callable[[str], Name], *columns: tuple[str, str]
    ) -> Int64Array:
        """int64[n + 1], the place of each text that these columns of types of lanes refer to."""
        of_lanes = [
            lane.more[column]
            for lane_type, column in columns
            for lane in lanes
            if lane.type == lane_type and column in lane.more
        ]
        index = np.unique(np.concatenate([np.array([ABSENT]), *of_lanes]))[1:]
        place = np.full(len(texts) + 1, ABSENT, dtype=np.int64)
        place[index] = places(name_of(texts[i]) for i in index.tolist())[:-1]
        return place

    of_events = (("stream", "name"), ("stream", "op"), ("host", "name"))
    event = used_places(scene.names, _visible_name, *of_events)
    blockers = next((x.terms["blocker"] for x in lanes if x.type == "exposed"), ())
    blocker = places(Name(BLOCKERS.meanings[key]) for key in blockers)
    step = used_places(scene.texts, Name, ("steps", "text"))
    captured = used_places(scene.texts, lambda text: Name(_shown(text)), ("stream", "captured"))
    line = places(_line_name(_shown(name), where and _shown(where)) for name, where in scene.lines)
    wait = used_places(scene.texts, Name, ("wait", "text"))
    place_of = {"name": event, "op": event, "line": line, "captured": captured}
    # The columns that are names of spans instead of their events.
    names_of = {"steps": ("text", step), "exposed": ("blocker", blocker), "wait": ("text", wait)}

    def columns_of(lane: Lane) -> Mapping[str, NDArray[Any]]:
        columns = [column.name for column in LANE_TYPES[lane.type].columns]
        more = {key: lane.more[key] for key in columns if key in lane.more}
        more |= {key: place_of[key][x] for key, x in more.items() if key in place_of}
        if lane.type in names_of:
            column, place = names_of[lane.type]
            more["name"] = place[lane.more[column]]
        return more

    return tuple(replace(x, label=_label(x), more=columns_of(x)) for x in lanes)


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
    cut, short = _shown(text[: 2 * MAX_NAME_LETTERS]), visible(bare_name(text))
    return Name(cut, "" if short == cut else short)


def _shown(text: str) -> str:
    return shorten(visible(text), MAX_NAME_LETTERS)


# --- what fits ---


def fit(groups: Sequence[Group], cited: Sequence[Cited], *, on_one_clock: bool) -> Fitted | None:
    """Choose as much as fits; None where a short detail of each group is too much.

    Where all is too much, the activities of streams stay at all times if they fit; what else is
    known is cut to the detail. Else all is.

    Args:
        groups: with all that is known; their names are those of the page.
        cited: what findings cite.
        on_one_clock: they are ranks of a job.
    """
    most_bytes = MAX_BYTES
    if on_one_clock:
        most_bytes = min(MAX_BYTES, max(MAX_BYTES_OF_JOB, _MAX_BYTES_OF_RANK * len(groups)))
    lanes = [
        (lane, rows) for group in groups for rows in [rows_of(group.lanes)] for lane in group.lanes
    ]
    all_bytes = sum(_estimated_bytes(lane, rows) for lane, rows in lanes)
    if all_bytes <= most_bytes:
        whole = _fitted(groups, [(group.start_ns, group.end_ns) for group in groups], whole=_ALL)
        if len(whole.columns) <= most_bytes:
            return whole
    streams_bytes = sum(
        _estimated_bytes(_bare(lane), rows) for lane, rows in lanes if lane.type == "stream"
    )
    clocks = [range(len(groups))] if on_one_clock else [[index] for index in range(len(groups))]
    choices = [(_ALWAYS, 0.0, _MIN_DETAIL_SHARE)]
    if streams_bytes <= _MAX_BYTE_SHARE_OF_STREAMS * most_bytes:
        steps = min(len(_steps([groups[index] for index in indices])[0]) for indices in clocks)
        choices.insert(0, (_WITH_STREAMS, streams_bytes, 1 / steps if steps else _MIN_FILE_SHARE))
    for whole_types, base_bytes, least_share in choices:
        share = min(0.9, 0.8 * (most_bytes - base_bytes) / max(1.0, all_bytes - base_bytes))
        for _ in range(_MAX_TRIES):
            if share < least_share:
                break
            details, words = _details(groups, clocks, cited, share)
            fitted = _fitted(groups, details, whole=whole_types, words=words)
            if len(fitted.columns) <= most_bytes:
                return fitted
            share *= 0.7 * most_bytes / len(fitted.columns)
    return None


def _fitted(
    groups: Sequence[Group],
    details: Sequence[tuple[int, int]],
    *,
    whole: frozenset[str],
    words: Sequence[str] = (),
) -> Fitted:
    """Groups with a detail each.

    Args:
        groups: with all that is known.
        details: their details.
        whole: the types of the lanes whose activities stay at all times.
        words: what the details are, where they are not all the time.
    """
    start_ns = min(group.start_ns for group in groups)
    cut = [_cut(*pair, whole) for pair in zip(groups, details, strict=True)] if words else groups
    binned = sum(
        lane.type not in whole and len(lane) > 0 for group in groups for lane in group.lanes
    )
    bins = min(BINS, max(_MIN_BINS, _MAX_BINS_OF_ALL_LANES // max(1, binned)))
    grid = bin_grid(start_ns, max(group.end_ns for group in groups), bins)
    encoded = tuple(
        tuple(
            encode(
                _filled(lane, row),
                start_ns,
                rows,
                *((all_of, grid) if _is_cut(lane, all_of) else ()),
            )
            for (lane, row), all_of in zip(_lanes_and_rows(of_cut.lanes), group.lanes, strict=True)
        )
        for of_cut, group in zip(cut, groups, strict=True)
        for rows in [rows_of(of_cut.lanes)]
    )
    columns = compress(lane for of_group in encoded for lane in of_group)
    return Fitted(encoded, tuple(details), columns, _note(words, whole, grid.columns))


def _is_cut(lane: Lane, all_of: Lane) -> bool:
    return len(lane) < len(all_of)


def _note(words: Sequence[str], whole: frozenset[str], bins: int) -> str:
    """Return the note on what is left out."""
    if not words:
        return ""
    shown = "; ".join(dict.fromkeys(words))
    if "stream" in whole:
        return (
            "This is too much for one page: launch and blocking calls, idle causes, the critical "
            f"path and what each activity waited for are complete in {shown}. Elsewhere the lanes "
            f"of these show how busy they were in each of {bins:,} parts of the time."
        )
    return (
        f"This is too much for one page: single activities are shown in {shown}. Elsewhere the "
        f"lanes show how busy they were in each of {bins:,} parts of the time."
    )


# --- which part of the time ---


def _details(
    groups: Sequence[Group], clocks: Sequence[Sequence[int]], cited: Sequence[Cited], share: float
) -> tuple[list[tuple[int, int]], list[str]]:
    """The details of all groups, and what they are called.

    Args:
        groups: the groups.
        clocks: the indices of those that have a clock in common.
        cited: what findings cite.
        share: how much of the time a detail may be.
    """
    details, words = [(0, 0)] * len(groups), []
    for indices in clocks:
        together = [groups[index] for index in indices]
        of_clock = [one for one in cited if one.group_index in indices]
        detail, name = _detail(together, of_clock, share)
        label = f"{groups[indices[0]].scene.label}: " if len(clocks) > 1 else ""
        words.append(f"{label}{name}")
        for index in indices:
            details[index] = detail
    return details, words


def _detail(
    groups: Sequence[Group], cited: Sequence[Cited], share: float
) -> tuple[tuple[int, int], str]:
    """Steps in a row, those that findings cite most; where a step is too much, a part of one."""
    numbers, bounds_ns = _steps(groups)
    start_ns = min(group.start_ns for group in groups)
    end_ns = max(group.end_ns for group in groups)
    count = int(share * len(numbers))
    if count:
        first = _first_step(bounds_ns, cited, count)
        last = first + count - 1
        name = f"step {numbers[first]}"
        if count > 1:
            name = f"steps {numbers[first]} to {numbers[last]}"
        detail = int(bounds_ns[first, 0]), int(bounds_ns[first : last + 1, 1].max())
        return detail, f"{name} of {len(numbers)}"
    length_ns = max(1, int(share * (end_ns - start_ns)))
    center_ns = (start_ns + end_ns) // 2
    if cited:
        most = max(cited, key=lambda one: one.weight)
        center_ns = (most.start_ns + min(most.end_ns, most.start_ns + length_ns)) // 2
    first_ns = max(start_ns, min(center_ns - length_ns // 2, end_ns - length_ns))
    name = f"the {duration_text(length_ns)} from {duration_text(first_ns)} on"
    return (first_ns, first_ns + length_ns), name


def _steps(groups: Sequence[Group]) -> tuple[list[int], Int64Array]:
    """The steady steps that all have, any step where none is: their numbers, and int64[n, 2], ns.

    A step of several groups lasts from its first start to its last end.
    """
    common = set.intersection(*(set(group.scene.usual_steps) for group in groups))
    numbers = sorted(common or set.intersection(*(set(group.scene.steps) for group in groups)))
    bounds_ns = np.array(
        [[steps[x] for x in numbers] for steps in (group.scene.steps for group in groups)],
        dtype=np.int64,
    )
    bounds_ns = bounds_ns.reshape(len(groups), len(numbers), 2)
    return numbers, np.stack((bounds_ns[..., 0].min(axis=0), bounds_ns[..., 1].max(axis=0)), axis=1)


def _first_step(bounds_ns: Int64Array, cited: Sequence[Cited], count: int) -> int:
    """The first of N steps in a row that findings cite most; of equal ones the most usual."""
    length_ns = bounds_ns[:, 1] - bounds_ns[:, 0]
    weight = np.array(
        [
            sum(one.weight for one in cited if one.start_ns >= first and one.end_ns <= last)
            for first, last in bounds_ns.tolist()
        ]
    )
    unusual = np.abs(length_ns - np.median(length_ns)) / max(1, int(length_ns.max()))
    worth = np.convolve(weight - 1e-6 * unusual, np.ones(count), "valid")
    return int(np.argmax(worth))


# --- cutting to it ---


def _cut(group: Group, detail: tuple[int, int], whole: frozenset[str]) -> Group:
    """A group without what is not kept.

    Lanes of other types than `whole` have what lies in the detail, and the calls that launched the
    activities in it. Of activities outside the detail no more is kept than when they ran.
    """
    streams = [lane for lane in group.lanes if lane.type == "stream"]
    hosts = [lane for lane in group.lanes if lane.type == "host"]
    in_detail = {lane.id: _lies_in(lane, detail) for lane in group.lanes}
    is_everything = {x.id: np.ones(len(x), np.bool_) for x in group.lanes if x.type in whole}
    call = np.concatenate([np.zeros(0, np.int64), *(lane.more["call"] for lane in streams)])
    launches = call[_joined(streams, in_detail) & (call != ABSENT)]
    is_call = _joined(hosts, in_detail)
    is_call[launches] = True
    bounds = np.cumsum([len(lane) for lane in hosts])[:-1]
    is_call_of = dict(zip([x.id for x in hosts], np.split(is_call, bounds), strict=False))
    kept = {**in_detail, **is_call_of, **is_everything}
    places = new_places(group.lanes, kept)
    return replace(
        group,
        lanes=tuple(
            _cut_lane(lane, kept[lane.id], ~in_detail[lane.id], places) for lane in group.lanes
        ),
    )


def _cut_lane(
    lane: Lane,
    is_kept: NDArray[np.bool_],
    is_bare: NDArray[np.bool_],
    places: Mapping[str, Int64Array],
) -> Lane:
    """A lane with what is kept of it.

    Args:
        lane: all of it.
        is_kept: bool[n].
        is_bare: bool[n], of which no more is kept than when it ran.
        places: by column int64[m + 1], the new place of each thing that it refers to, else ABSENT.
    """
    lane = renumbered(lane, places)
    more = dict(lane.more)
    if lane.type == "stream":
        more |= {key: np.where(is_bare, ABSENT, more[key]) for key in _DETAILS if key in more}
    return replace(lane, more=more).select(is_kept)


def _lies_in(lane: Lane, detail: tuple[int, int]) -> NDArray[np.bool_]:
    """bool[n], what overlaps the detail."""
    is_inside: NDArray[np.bool_] = (lane.end_ns >= detail[0]) & (lane.start_ns < detail[1])
    return is_inside


def _joined(lanes: Sequence[Lane], columns: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """The columns of some lanes, by their ids, one after another."""
    return np.concatenate([np.zeros(0, np.bool_), *(columns[lane.id] for lane in lanes)])


# --- sizes ---


def _estimated_bytes(lane: Lane, rows: Rows) -> float:
    """About how much a lane takes, compressed."""
    sample = lane.select(np.arange(len(lane)) < _MAX_SAMPLE) if len(lane) > _MAX_SAMPLE else lane
    columns = encode(sample, 0, rows).columns
    return len(zlib.compress(columns, 6)) * len(lane) / max(1, len(sample))


def _bare(lane: Lane) -> Lane:
    """A stream's lane in which only when each activity ran is known, and its name."""
    nothing = np.full(len(lane), ABSENT)
    return replace(
        lane,
        more={key: nothing if key in _DETAILS else column for key, column in lane.more.items()},
    )


def _lanes_and_rows(lanes: Sequence[Lane]) -> Iterator[tuple[Lane, int]]:
    """Each lane with the place of its first activity among those of its group."""
    row = 0
    for lane in lanes:
        yield lane, row
        row += len(lane) if lane.type == "stream" else 0


def _filled(lane: Lane, first_row: int) -> Lane:
    """The same with what means nothing in a form that takes no place.

    Where an activity did not wait for another one, its source is written as that before it.
    """
    if lane.type != "stream":
        return lane
    before = np.arange(first_row - 1, first_row - 1 + len(lane))
    codes = [lane.terms["why"].index(key) for key in _WITHOUT_SOURCE]
    has_none = np.isin(lane.more["why"], codes)
    source = np.where(has_none, before, lane.more["source"])
    return replace(lane, more={**lane.more, "source": source})
