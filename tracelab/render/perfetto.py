"""Tracks for Perfetto: lanes and findings as events of the trace event format.

Rows of slices are threads of a process of our own, and arrows have their own category and name,
so nothing of ours meets the file's.

Perfetto reads a time in microseconds as a double, multiplies it by 1,000 and rounds; whole ones it
multiplies as integers. Below 2**42 us that gives every nanosecond back; below 2**43 us a
neighboring double does where the nearest one does not; above, times are up to 256 ns off. There a
duration reaches to where Perfetto reads its end: slices that touch still do and none overlap, which
Perfetto 51 to 56 would drop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Arrays, Int64Array
from tracelab.base.intervals import Intervals, clip, intersect, measure, stacked, union
from tracelab.base.names import short_kernel_name
from tracelab.base.safe_text import clean
from tracelab.render.scene import NOTHING, Lane, Mark, Scene
from tracelab.render.words import paragraph, shorten
from tracelab.report.glossary import BLOCKERS, BLOCKING_KINDS, CAUSES, PATH_KINDS

Id = int | float | str | None  # of a process or thread
Threads = Mapping[tuple[str, str], tuple[Id, Id]]  # ids in a file, by their texts

_NUMBERS = 2**32  # ids in Perfetto
# From the file's.
_ID_DISTANCE = 1000
FIRST_SORT_INDEX = -1000
_MAX_ARROWS_OF_PROCESS = 10**6
_POSSIBLE_BELOW_NS = 2**43 * 1000
MAX_TEXT_LETTERS, MAX_LABEL_LETTERS, _MAX_SENTENCE_LETTERS = 300, 200, 2000
# Beyond that share of the window, evidence is shown by its longest idle times.
_MAX_EVIDENCE_SHARE, _MAX_PLACES = 0.5, 20
_CAUSES_OF_IDLE = {"launch_bound": ("launch", "host_busy")}  # by finding; else any


class Texts(Arrays):
    """Texts of slices, by place in a table (intp[k]), or ABSENT."""

    index: NDArray[Any]
    table: Sequence[str]


class Track(Arrays):
    """Slices of one row, or of more where they overlap; by start.

    Attributes:
        start_ns, end_ns: int64[k], ns since the file's first event.
        name: decides the color.
        arguments: details: texts, or int64[k].
        place: intp[m], the rows of `Scene.places` that arrows lead to.
        slice_index: intp[m], the slice that each arrow leads from.
    """

    label: str
    category: str
    start_ns: Int64Array
    end_ns: Int64Array
    name: Texts
    arguments: Mapping[str, Texts | Int64Array]
    place: NDArray[np.intp] = NOTHING
    slice_index: NDArray[np.intp] = NOTHING


def event_lines(name: str, scene: Scene, threads: Threads, notes: Sequence[str]) -> Iterator[str]:
    """Yield the events to add to a file with these threads, without commas."""
    findings = finding_tracks(scene)
    tracks = (*findings, *lane_tracks(scene), note_track(scene, notes))
    rows = [(x, lane) for x in tracks for lane in lanes(x.start_ns, x.end_ns) if len(lane)]
    process = free_process(threads.values(), len(rows))
    yield _metadata("process_name", process, 0, name=name)
    yield _metadata("process_sort_index", process, 0, sort_index=FIRST_SORT_INDEX + scene.rank)
    for order, (track, lane) in enumerate(rows, 1):
        yield _metadata("thread_name", process, process + order, name=track.label)
        yield _metadata("thread_sort_index", process, process + order, sort_index=order)
        yield from _slices(track, lane, process, process + order, scene.origin_ns)
    for numbers in scene.lanes:
        if "value" in numbers.more:
            yield from _values(numbers, process, scene.origin_ns)
    ends = _Ends(scene, threads)
    pairs = [*_evidence(process, findings, scene.origin_ns, ends), *_along(scene, ends)]
    for number, (kind, source, target) in enumerate(pairs, process * _MAX_ARROWS_OF_PROCESS):
        begun = f'"cat":"tracelab.{kind}","name":"{kind.replace("_", " ")}","id":{number}'
        yield f'{{"ph":"s",{begun},{source}}}'
        yield f'{{"ph":"f","bp":"e",{begun},{target}}}'


def lanes(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Yield rows of slices that do not overlap: intp[k], by start."""
    order = np.lexsort((end_ns, start_ns))
    if not len(order) or (start_ns[order[1:]] >= np.maximum.accumulate(end_ns[order])[:-1]).all():
        yield order
        return
    level = stacked(start_ns[order], end_ns[order], len(order))
    yield from (order[level == number] for number in range(level.max() + 1))


def free_process(taken: Iterable[tuple[Id, Id]], rows: int) -> int:
    """Return a process id below 2**32 before enough free ones."""
    pairs = list(taken)
    processes = [one for one, _ in pairs if isinstance(one, int) and 0 <= one < _NUMBERS // 2]
    numbers = {one % _NUMBERS for pair in pairs for one in pair if isinstance(one, int)}
    process = max(processes, default=0) + _ID_DISTANCE
    while not numbers.isdisjoint(range(process, process + rows + 1)):
        process += _ID_DISTANCE
    return process


def _metadata(what: str, process: int, thread: int, **arguments: str | int) -> str:
    return (
        f'{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"ts":0,'
        f'"args":{_json(arguments)}}}'
    )


def _slices(
    track: Track, lane: NDArray[np.intp], process: int, thread: int, origin_ns: int
) -> Iterator[str]:
    names = _quoted(track.name, lane)
    columns = [_arguments(key, column, lane) for key, column in track.arguments.items()]
    start_ns = (track.start_ns[lane] + origin_ns).tolist()
    end_ns = (track.end_ns[lane] + origin_ns).tolist()
    begun = f'{{"ph":"X","cat":"tracelab.{track.category}","pid":{process},"tid":{thread},"name":'
    for name, start, end, *values in zip(names, start_ns, end_ns, *columns, strict=True):
        time, duration = slice_times(start, end)
        arguments = ",".join(filter(None, values))
        yield f'{begun}{name},"ts":{time},"dur":{duration},"args":{{{arguments}}}}}'


def _quoted(texts: Texts, lane: NDArray[np.intp]) -> list[str]:
    index = texts.index[lane]
    quoted = {i: _json(texts.table[i]) for i in np.unique(index).tolist() if i != ABSENT}
    return [quoted.get(i, "") for i in index.tolist()]


def _arguments(key: str, column: Texts | NDArray[np.int64], lane: NDArray[np.intp]) -> list[str]:
    begun = f"{_json(key)}:"
    if isinstance(column, Texts):
        return [f"{begun}{text}" if text else "" for text in _quoted(column, lane)]
    return [f"{begun}{number}" for number in column[lane].tolist()]


def _values(numbers: Lane, process: int, origin_ns: int) -> Iterator[str]:
    begun = f'{{"ph":"C","pid":{process},"tid":0,"name":{_json(numbers.label)},"ts":'
    unit = _json(numbers.unit)
    times_ns = (numbers.start_ns + origin_ns).tolist()
    for time_ns, value in zip(times_ns, numbers.more["value"].tolist(), strict=True):
        yield f'{begun}{microseconds(time_ns)},"args":{{{unit}:{value}}}}}'


def _evidence(
    process: int, findings: Sequence[Track], origin_ns: int, ends: _Ends
) -> Iterator[tuple[str, str, str]]:
    for order, finding in enumerate(findings, 1):
        start_ns = finding.start_ns + origin_ns
        for index, row in zip(finding.slice_index.tolist(), finding.place.tolist(), strict=True):
            time = microseconds(int(start_ns[index]))
            yield "evidence", f'"pid":{process},"tid":{process + order},"ts":{time}', ends.json(row)


def _along(scene: Scene, ends: _Ends) -> Iterator[tuple[str, str, str]]:
    """Yield arrows along the critical path; to a call that waits, at the start of its cause."""
    starts_ns, ends_ns = scene.places.start_ns.tolist(), scene.places.end_ns.tolist()
    for source, target in pairwise(scene.critical_path.tolist()):
        time_ns = max(starts_ns[source], starts_ns[target])
        if time_ns == starts_ns[target] or time_ns < ends_ns[target]:
            yield "critical_path", ends.json(source), ends.json(target, time_ns)


class _Ends:
    """Ends of arrows: process, thread and time of the last slice to begin there."""

    def __init__(self, scene: Scene, threads: Threads) -> None:
        written = [_written(*threads.get(x[:2], (None, None))) for x in scene.threads]
        self._thread = [written[thread] for thread in scene.places.thread.tolist()]
        self._start_ns = scene.places.start_ns.tolist()
        self._origin_ns = scene.origin_ns

    def json(self, row: int, time_ns: int | None = None) -> str:
        start_ns = self._start_ns[row] if time_ns is None else time_ns
        return f'{self._thread[row]}"ts":{microseconds(start_ns + self._origin_ns)}'


def _written(process: Id, thread: Id) -> str:
    fields: dict[str, Any] = {"pid": process, "tid": thread}
    return "".join(f'"{key}":{_json(one)},' for key, one in fields.items() if one is not None)


def _json(value: Any) -> str:
    """Keep letters beyond ASCII: Perfetto 52 shows escapes as such."""
    return json.dumps(value, ensure_ascii=False)


# --- tracks ---


def finding_tracks(scene: Scene) -> list[Track]:
    """List the rows of findings, without those about the trace itself."""
    return [_finding(scene, mark) for mark in scene.marks if mark.about == "program"]


def _finding(scene: Scene, mark: Mark) -> Track:
    start_ns, end_ns = scene.places.start_ns[mark.place], scene.places.end_ns[mark.place]
    if not len(mark.place):
        start_ns, end_ns = np.array(scene.focus).reshape(2, 1)
    # Events without a length are evidence, too.
    cited = union(start_ns, np.maximum(end_ns, start_ns + 1))
    idle, idle_in_all = _longest_idle(scene, mark, cited)
    shown, place = (idle, NOTHING) if idle_in_all else (cited, mark.place)
    slice_index = np.searchsorted(shown.starts, scene.places.start_ns[place], "right") - 1
    count = len(shown)
    arguments: dict[str, Texts | Int64Array] = {
        key: _repeated(text, count) for key, text in mark.texts.items()
    }
    arguments |= {key: np.full(count, figure) for key, figure in mark.figures.items()}
    if len(mark.place):  # even if Perfetto drops the event
        nearest = np.searchsorted(cited.starts, shown.starts, "right") - 1
        of_cited = np.searchsorted(cited.starts, scene.places.start_ns[mark.place], "right") - 1
        _, first = np.unique(of_cited, return_index=True)
        names = [scene.names[i] for i in scene.places.name[mark.place[first]].tolist()]
        arguments["cites"] = Texts(nearest, list(map(_name, names)))
    if idle_in_all:
        some = f"{count:,} of {idle_in_all:,} places: the longest idle times in what it cites"
        arguments["shown"] = _repeated(some, count)
    return Track(
        label=paragraph(clean(mark.label), MAX_LABEL_LETTERS, 1)[0],
        category="finding",
        start_ns=shown.starts,
        end_ns=shown.ends,
        name=_repeated(mark.name, count),
        arguments=arguments,
        place=place,
        slice_index=slice_index,
    )


def _longest_idle(scene: Scene, mark: Mark, cited: Intervals) -> tuple[Intervals, int]:
    """Return the longest idle times of evidence that fills most of the window, and the number."""
    nothing = Intervals(NOTHING, NOTHING), 0
    start_ns, end_ns = scene.focus
    lane = scene.lane(f"idle:{mark.device}")
    is_wide = measure(clip(cited, start_ns, end_ns)) > _MAX_EVIDENCE_SHARE * (end_ns - start_ns)
    if lane is None or not is_wide:
        return nothing
    causes = _CAUSES_OF_IDLE.get(mark.cause, lane.kinds)
    lane = lane.select(np.isin(lane.kind, [i for i, x in enumerate(lane.kinds) if x in causes]))
    idle = clip(intersect(cited, union(lane.start_ns, lane.end_ns)), start_ns, end_ns)
    if len(idle) <= _MAX_PLACES:
        return nothing
    longest = np.sort(np.argsort(idle.starts - idle.ends, kind="stable")[:_MAX_PLACES])
    return Intervals(idle.starts[longest], idle.ends[longest]), len(idle)


def note_track(scene: Scene, notes: Sequence[str]) -> Track:
    """Make a row of notes over all of the file."""
    return Track(
        label="Notes",
        category="note",
        start_ns=np.full(len(notes), scene.focus.start_ns),
        end_ns=np.full(len(notes), scene.focus.end_ns),
        name=Texts(np.arange(len(notes)), notes),
        arguments={},
    )


def lane_tracks(scene: Scene) -> list[Track]:
    """List the rows of a scene's lanes."""
    makers = _LaneTracks(scene)
    calls = sorted(scene.lanes_of_type("host"), key=lambda lane: lane.thread)
    return [
        *map(makers.steps, scene.lanes_of_type("steps")),
        *map(makers.idle, scene.lanes_of_type("idle")),
        *(makers.exposed(lane, "comm", "communication") for lane in scene.lanes_of_type("exposed")),
        *(makers.exposed(lane, "copy", "copies") for lane in scene.lanes_of_type("exposed")),
        *map(makers.path, scene.lanes_of_type("path")),
        *map(makers.blocking_calls, calls),
    ]


class _LaneTracks:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._names, self._texts = list(map(_name, scene.names)), list(map(_shown, scene.texts))

    def steps(self, lane: Lane) -> Track:
        why = [self._texts[i] if i != ABSENT else "" for i in lane.more["why_left_out"].tolist()]
        numbers = zip(lane.more["number"].tolist(), why, strict=True)
        names = [f"step {number} (left out)" if x else f"step {number}" for number, x in numbers]
        every = np.arange(len(lane))
        steady = Texts(every, [f"no: {x}" if x else "yes" for x in why])
        return _track("Steps", "step", lane, Texts(every, names), {"steady": steady})

    def idle(self, lane: Lane) -> Track:
        lane = self._cut(lane)
        return _track(
            f"GPU {lane.device} idle by cause",
            "idle",
            lane,
            _terms(lane.kind, lane.kinds, CAUSES.names),
            {
                "cause": _terms(lane.kind, lane.kinds, CAUSES.meanings),
                "why unknown": Texts(lane.more["why_unknown"], self._texts),
                "until": Texts(lane.more["next"], self._names),
            },
        )

    def exposed(self, lane: Lane, kind: str, what: str) -> Track:
        lane = self._cut(lane.select(lane.kind == lane.kinds.index(f"exposed_{kind}")))
        blocker = lane.more["blocker"], lane.terms["blocker"]
        return _track(
            f"GPU {lane.device} exposed {what}",
            f"exposed_{kind}",
            lane,
            _terms(*blocker, BLOCKERS.names),
            {
                "activity": Texts(lane.more["name"], self._names),
                "not overlapped because": _terms(*blocker, BLOCKERS.meanings),
                "could overlap": Texts(lane.more["could"], self._names),
                "at most overlapped ns": lane.more["bound"],
            },
        )

    def path(self, lane: Lane) -> Track:
        return _track(
            "Critical path",
            "critical_path",
            lane,
            _terms(lane.kind, lane.kinds, PATH_KINDS.names),
            {
                "what": _terms(lane.kind, lane.kinds, PATH_KINDS.meanings),
                "event": Texts(lane.more["name"], self._names),
            },
        )

    def blocking_calls(self, lane: Lane) -> Track:
        thread = self._scene.threads[lane.thread]
        calls = lane.select(lane.kind == lane.kinds.index("blocking"))
        return _track(
            f"Blocking calls of {clean(thread.name or f'thread {thread.thread}')}",
            "blocking_call",
            calls,
            Texts(calls.more["name"], self._names),
            {
                "caused idle ns": calls.more["cost"],
                "of it after the call ns": calls.more["after"],
                "why it blocks": _terms(
                    calls.more["why"], calls.terms["why"], BLOCKING_KINDS.meanings
                ),
                "waited for": Texts(calls.more["awaited"], self._names),
                "operator": Texts(calls.more["operator"], self._texts),
                "function": Texts(calls.more["function"], self._texts),
                "line": Texts(calls.more["place"], self._texts),
            },
        )

    def _cut(self, lane: Lane) -> Lane:
        if self._scene.step is None:
            return lane
        start_ns, end_ns = self._scene.window
        shown = lane.select((lane.end_ns > start_ns) & (lane.start_ns < end_ns))
        return replace(
            shown,
            start_ns=np.maximum(shown.start_ns, start_ns),
            end_ns=np.minimum(shown.end_ns, end_ns),
        )


def _track(
    label: str, category: str, lane: Lane, name: Texts, arguments: Mapping[str, Texts | Int64Array]
) -> Track:
    return Track(label, category, lane.start_ns, lane.end_ns, name, arguments)


def _terms(code: NDArray[Any], keys: Sequence[str], words: Mapping[str, str]) -> Texts:
    return Texts(code, [words[key] for key in keys])


def _repeated(text: str, count: int) -> Texts:
    return Texts(np.zeros(count, dtype=np.intp), [shorten(clean(text), _MAX_SENTENCE_LETTERS)])


def _name(name: str) -> str:
    return _shown(short_kernel_name(name))


def _shown(text: str) -> str:
    return shorten(clean(text), MAX_TEXT_LETTERS)


# --- times ---


def microseconds(time_ns: int) -> str:
    """A time as a JSON number of microseconds."""
    text = _decimal(time_ns)
    if abs(time_ns) < _POSSIBLE_BELOW_NS and perfetto_ns(text) != time_ns:
        for toward in (-math.inf, math.inf):
            neighbor = repr(math.nextafter(float(text), toward))
            if perfetto_ns(neighbor) == time_ns:
                return neighbor
    return text


def slice_times(start_ns: int, end_ns: int) -> tuple[str, str]:
    """Return the texts of a slice's start and length."""
    start = microseconds(start_ns)
    return start, _decimal(perfetto_ns(microseconds(end_ns)) - perfetto_ns(start))


def perfetto_ns(text: str) -> int:
    """Return Perfetto's nanoseconds of a number of microseconds."""
    us = float(text)
    if us.is_integer():
        return int(us) * 1000
    scaled = abs(us) * 1000.0
    whole = math.floor(scaled)
    return int(math.copysign(whole + (scaled - whole >= 0.5), us))


def _decimal(time_ns: int) -> str:
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"
