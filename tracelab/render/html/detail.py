"""Lanes of a page in the detail that fits: all, or activities of some steps.

The measured size of the compressed columns decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Int64Array, Record
from tracelab.base.safe_text import visible
from tracelab.render.html.encode import BINS, EncodedLane, bin_grid, compress, encode, rows_of
from tracelab.render.picture.coverage import Grid
from tracelab.render.scene import LANE_TYPES, Lane, Line, Scene
from tracelab.render.words import bare_name, duration_text, shorten
from tracelab.report.glossary import BLOCKERS

# Of the columns: 3.0 MB in base64, in a page of 3.5 MB.
MAX_BYTES = 2_250_000
# Keeps the page of up to eight ranks below 2 MB.
MAX_BYTES_OF_JOB = 1_050_000
# In a job of more than eight.
_MAX_BYTES_OF_RANK = 131_000
# A lower bound: lanes far too large are not encoded.
_MIN_BYTES_OF_SPAN = 3
_MIN_BINS, _MAX_BINS_OF_ALL_LANES = 512, 65_536
_MAX_TRIES = 6
MAX_NAME_LETTERS, MAX_LABEL_LETTERS = 300, 40
# The last number stands for no name.
MAX_NAMES = 0xFFFF
# Outside the detail only the longest spans have names.
_NAMES_ALONE = ("phase", "module", "operator")
# Column that names spans, by type of lane; by default that of events.
_NAMING: Mapping[str, str] = {"steps": "text", "exposed": "blocker", "wait": "text"}


class Name(NamedTuple):
    """A name, and its short form or ""."""

    text: str
    short: str = ""


class Group(Record, eq=False):
    """The lanes of one file on the page's clock; names index the page's."""

    scene: Scene
    lanes: tuple[Lane, ...]

    @property
    def start_ns(self) -> int:
        """Start of its lanes, ns."""
        return min(int(lane.start_ns.min()) for lane in self.lanes if len(lane))

    @property
    def end_ns(self) -> int:
        """End of its lanes, ns."""
        return max(int(lane.end_ns.max()) for lane in self.lanes if len(lane))

    def lane_index(self, lane_id: str) -> int:
        """Return the place of a lane by id, or ABSENT."""
        ids = [lane.id for lane in self.lanes]
        return ids.index(lane_id) if lane_id in ids else ABSENT


class Cited(NamedTuple):
    """Evidence of a finding, and its weight in choosing the detail."""

    group_index: int
    start_ns: int
    end_ns: int
    weight: float


class Fitted(Record, eq=False):
    """Groups of lanes as a page has them.

    Attributes:
        details: of each group, start and end, ns, of the fully known time.
        note: sentences on omissions, or "".
    """

    lanes: tuple[tuple[EncodedLane, ...], ...]
    details: tuple[tuple[int, int], ...]
    columns: bytes
    note: str


# --- lanes of a file ---


def group_of(scene: Scene, names: dict[Name, int]) -> Group:
    """Make the group of a file, and add its names to the page's."""
    tables: dict[str, tuple[Sequence[Any], Callable[[Any], Name]]] = {
        "name": (scene.names, _visible_name),
        "op": (scene.names, _visible_name),
        "line": (scene.lines, _line_name),
        "captured": (scene.texts, lambda text: Name(_shown(text))),
        "text": (scene.texts, Name),
        "blocker": ((), lambda key: Name(BLOCKERS.meanings[key])),
    }

    def places(lane: Lane, column: str) -> Int64Array:
        """int64[n], the place of each name among the page's, within two bytes."""
        texts, name_of = tables[column]
        texts = lane.terms.get(column, texts)
        index, nth = np.unique(lane.more[column], return_inverse=True)
        place = np.full(len(index), ABSENT, dtype=np.int64)
        for i in np.flatnonzero(index != ABSENT).tolist():
            place[i] = names.setdefault(name_of(texts[index[i]]), len(names))
        return np.where(place < MAX_NAMES, place, ABSENT)[nth]

    def columns(lane: Lane) -> dict[str, NDArray[Any]]:
        more: dict[str, NDArray[Any]] = {}
        for column in (x.name for x in LANE_TYPES[lane.type].columns):
            source = _NAMING.get(lane.type, column) if column == "name" else column
            if source in lane.more:
                more[column] = places(lane, source) if source in tables else lane.more[source]
        return more

    shown = (lane for lane in scene.lanes if lane.type in LANE_TYPES)
    return Group(scene, tuple(replace(x, label=_label(x), more=columns(x)) for x in shown))


def _label(lane: Lane) -> str:
    if lane.type == "host":
        return shorten(visible(lane.label), MAX_LABEL_LETTERS)
    if len(lane.streams) > 1:
        return f"GPU {lane.device}: {len(lane.streams):,} streams of CUDA graphs"
    return f"GPU {lane.device} {lane.label}" if lane.type == "stream" else lane.label


def _line_name(line: Line) -> Name:
    name, where = _shown(line.name), _shown(line.where or "")
    return Name(f"{where} · {name}" if where else name, where)


def _visible_name(text: str) -> Name:
    cut, short = _shown(text[: 2 * MAX_NAME_LETTERS]), visible(bare_name(text))
    return Name(cut, "" if short == cut else short)


def _shown(text: str) -> str:
    return shorten(visible(text), MAX_NAME_LETTERS)


# --- what fits ---


def fit(groups: Sequence[Group], cited: Sequence[Cited], *, on_one_clock: bool) -> Fitted | None:
    """Encode as much as fits; None if even short details do not."""
    most_bytes, clocks = MAX_BYTES, [[index] for index in range(len(groups))]
    if on_one_clock:
        most_bytes = min(MAX_BYTES, max(MAX_BYTES_OF_JOB, _MAX_BYTES_OF_RANK * len(groups)))
        clocks = [[*range(len(groups))]]
    spans = sum(len(lane) for group in groups for lane in group.lanes)
    share = most_bytes / (_MIN_BYTES_OF_SPAN * max(1, spans))
    for _ in range(_MAX_TRIES):
        fitted = _fitted(groups, *_details(groups, clocks, cited, share))
        if len(fitted.columns) <= most_bytes:
            return fitted
        share = 0.8 * min(1.0, share) * most_bytes / len(fitted.columns)
    return None


def _fitted(
    groups: Sequence[Group], details: Sequence[tuple[int, int]], words: Sequence[str]
) -> Fitted:

    def is_cut(lane: Lane, all_of: Lane) -> bool:
        return len(lane) < len(all_of) and has_bins(lane)

    def has_bins(lane: Lane) -> bool:
        return "value" not in lane.more and lane.type not in {"steps", *_NAMES_ALONE}

    start_ns = min(group.start_ns for group in groups)
    binned = sum(has_bins(lane) and len(lane) > 0 for group in groups for lane in group.lanes)
    bins = min(BINS, max(_MIN_BINS, _MAX_BINS_OF_ALL_LANES // max(1, binned)))
    grid = bin_grid(start_ns, max(group.end_ns for group in groups), bins)
    cut = groups
    if words:
        cut = [_cut(*pair, grid) for pair in zip(groups, details, strict=True)]
    encoded = tuple(
        tuple(
            encode(lane, start_ns, rows, *((all_of, grid) if is_cut(lane, all_of) else ()))
            for lane, all_of in zip(of_cut.lanes, group.lanes, strict=True)
        )
        for of_cut, group in zip(cut, groups, strict=True)
        for rows in [rows_of(of_cut.lanes)]
    )
    columns = compress(lane for of_group in encoded for lane in of_group)
    note = (
        "This is too much for one page: single activities are shown in "
        f"{'; '.join(dict.fromkeys(words))}. Elsewhere the lanes show how busy they were in each "
        f"of {grid.columns:,} parts of the time, and of phases, modules and operators those that "
        "last longer than such a part."
    )
    return Fitted(encoded, tuple(details), columns, note if words else "")


# --- which part of the time ---


def _details(
    groups: Sequence[Group], clocks: Sequence[Sequence[int]], cited: Sequence[Cited], share: float
) -> tuple[list[tuple[int, int]], list[str]]:
    """Choose and name details, one for groups of the same `clocks`; from share 1 on all time."""
    details, words = [(group.start_ns, group.end_ns) for group in groups], list[str]()
    for indices in clocks if share < 1 else ():
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
    """Choose the consecutive steps that findings cite most, or a part of a large step."""
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
    zero_ns = start_ns if len(groups) > 1 else 0  # start of a job's time
    name = f"the {duration_text(length_ns)} from {duration_text(first_ns - zero_ns)} on"
    return (first_ns, first_ns + length_ns), name


def _steps(groups: Sequence[Group]) -> tuple[list[int], Int64Array]:
    """Return the numbers and bounds (int64[n, 2], ns) of steady steps of all groups, else of any.

    A step lasts from its first start to its last end.
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
    weight = [
        sum(one.weight for one in cited if one.start_ns >= first and one.end_ns <= last)
        for first, last in bounds_ns.tolist()
    ]
    return int(np.argmax(np.convolve(weight, np.ones(count), "valid")))


# --- cutting to it ---


def _cut(group: Group, detail: tuple[int, int], grid: Grid) -> Group:
    """Return all steps of a group, spans in the detail, and the calls that launched them.

    Elsewhere columns keep the highest number, and named spans longer than one.
    """
    kept = {
        x.id: ((x.end_ns >= detail[0]) & (x.start_ns < detail[1]))
        | (x.type == "steps")
        | ((x.type in _NAMES_ALONE) & (x.end_ns - x.start_ns > grid.pixel_ns))
        for x in group.lanes
    }
    streams = [lane for lane in group.lanes if lane.type == "stream"]
    hosts = [lane for lane in group.lanes if lane.type == "host"]
    is_row, is_call = (
        np.concatenate([np.zeros(0, np.bool_), *(kept[lane.id] for lane in lanes)])
        for lanes in (streams, hosts)
    )
    launch = np.concatenate([np.zeros(0, np.int64), *(lane.more["call"] for lane in streams)])
    is_call[launch[is_row & (launch != ABSENT)]] = True
    bounds = np.cumsum([len(lane) for lane in hosts])[:-1]
    kept |= dict(zip([x.id for x in hosts], np.split(is_call, bounds), strict=False))
    row, call = (
        np.append(np.where(is_kept, np.cumsum(is_kept) - 1, ABSENT), ABSENT)
        for is_kept in (is_row, is_call)
    )
    place = {"row": row, "source": row, "call": call}  # the last is ABSENT's

    def cut(lane: Lane) -> Lane:
        if "value" in lane.more:
            return _coarse(lane, kept[lane.id], grid)
        more = {key: place[key][x] if key in place else x for key, x in lane.more.items()}
        return replace(lane, more=more).select(kept[lane.id])

    return replace(group, lanes=tuple(map(cut, group.lanes)))


def _coarse(lane: Lane, is_fine: NDArray[np.bool_], grid: Grid) -> Lane:
    part = np.where(is_fine, grid.columns + np.arange(len(lane)), grid.column_of(lane.start_ns))
    first = np.flatnonzero(np.diff(part, prepend=ABSENT))
    if not len(first):
        return lane
    highest = np.maximum.reduceat(lane.more["value"], first)
    last = np.append(first[1:], len(lane)) - 1
    return replace(lane.select(first), end_ns=lane.end_ns[last], more={"value": highest})
