"""Tracks: the lanes and findings of a scene as rows of slices for Perfetto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import ABSENT, Frozen, dataclass
from tracelab.base.intervals import Int64Array, union
from tracelab.base.names import short_kernel_name
from tracelab.base.safe_text import clean
from tracelab.render.scene import NOTHING, Lane, Mark, Scene
from tracelab.render.words import shorten
from tracelab.report.glossary import BLOCKERS, BLOCKING_KINDS, CAUSES, PATH_KINDS

MAX_TEXT_LETTERS, MAX_LABEL_LETTERS = 300, 120


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Texts(Frozen):
    """One of a few texts for each slice.

    Example row: ``(index=0)``, with ``table=("host_blocked", "launch")``.

    Attributes:
        index: intp[k], into the table; ABSENT for none.
        table: the texts.
    """

    index: NDArray[Any]
    table: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Track(Frozen):
    """Slices that are shown in one row, or in more where they overlap; by start.

    Example row: ``(start_ns=400, end_ns=900, name="host_blocked")``.

    Attributes:
        label: the name of the row.
        category: the sort of its slices, in a word.
        start_ns, end_ns: int64[k], ns since the file's first event.
        name: the name of each slice: equal names have equal colors.
        arguments: what is shown of a selected slice, by its name there: texts, or int64[k].
        place: intp[m], the rows of `Scene.places` that arrows lead to.
        slice_index: intp[m], the slice that each arrow leads from.
    """

    label: str
    category: str
    start_ns: Int64Array
    end_ns: Int64Array
    name: Texts
    arguments: Mapping[str, Texts | Int64Array]
    place: NDArray[np.intp] = field(default_factory=lambda: NOTHING)
    slice_index: NDArray[np.intp] = field(default_factory=lambda: NOTHING)


def finding_tracks(scene: Scene) -> list[Track]:
    """List the rows of findings; those about the trace itself are nowhere in time."""
    return [_finding(scene, mark) for mark in scene.marks if mark.about == "program"]


def _finding(scene: Scene, mark: Mark) -> Track:
    """Make the row of a finding: slices where its evidence is."""
    start_ns, end_ns = scene.places.start_ns[mark.place], scene.places.end_ns[mark.place]
    if not len(mark.place):
        start_ns, end_ns = np.array(scene.focus).reshape(2, 1)
    # Events without a length are evidence, too.
    shown = union(start_ns, np.maximum(end_ns, start_ns + 1))
    slice_index = np.searchsorted(shown.starts, scene.places.start_ns[mark.place], "right") - 1
    count = len(shown)
    arguments: dict[str, Texts | Int64Array] = {
        key: _repeated(clean(text), count) for key, text in mark.texts.items()
    }
    arguments |= {key: np.full(count, figure) for key, figure in mark.figures.items()}
    if len(mark.place):  # where Perfetto drops the event itself, its name is still said
        _, first = np.unique(slice_index, return_index=True)
        names = [scene.names[i] for i in scene.places.name[mark.place[first]].tolist()]
        arguments["cites"] = Texts(np.arange(len(names)), list(map(_name, names)))
    return Track(
        label=shorten(clean(mark.label), MAX_LABEL_LETTERS),
        category="finding",
        start_ns=shown.starts,
        end_ns=shown.ends,
        name=_repeated(mark.name, count),
        arguments=arguments,
        place=mark.place,
        slice_index=slice_index,
    )


def note_track(scene: Scene, notes: Sequence[str]) -> Track:
    """Make the row of what a reader of the file should know, over all of it."""
    return Track(
        label="Notes",
        category="note",
        start_ns=np.full(len(notes), scene.focus.start_ns),
        end_ns=np.full(len(notes), scene.focus.end_ns),
        name=Texts(np.arange(len(notes)), notes),
        arguments={},
    )


def lane_tracks(scene: Scene) -> list[Track]:
    """List the rows of a scene's lanes, in the order in which they are shown."""
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
    """Makes rows of lanes, with the names of events and other texts as Perfetto shows them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._names, self._texts = list(map(_name, scene.names)), list(map(_shown, scene.texts))

    def steps(self, lane: Lane) -> Track:
        """Make the row of the steps, by number, and whether each is steady."""
        why = [self._texts[i] if i != ABSENT else "" for i in lane.more["why_left_out"].tolist()]
        numbers = zip(lane.more["number"].tolist(), why, strict=True)
        names = [f"step {number} (left out)" if x else f"step {number}" for number, x in numbers]
        every = np.arange(len(lane))
        steady = Texts(every, [f"no: {x}" if x else "yes" for x in why])
        return _track("Steps", "step", lane, Texts(every, names), {"steady": steady})

    def idle(self, lane: Lane) -> Track:
        """Make the row of why a GPU was idle."""
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
        """Make the row of communication, or copies, by what prevents their overlap."""
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
        """Make the row of the critical path: what decided how long the window took."""
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
        """Make the row of a host thread's blocking calls, with the idle time that each caused."""
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
        """Cut a lane to the step that is shown."""
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
    """Return the words of terms, by codes that stand for their keys."""
    return Texts(code, [words[key] for key in keys])


def _repeated(text: str, count: int) -> Texts:
    return Texts(np.zeros(count, dtype=np.intp), [_shown(text)])


def _name(name: str) -> str:
    return _shown(short_kernel_name(name))


def _shown(text: str) -> str:
    return shorten(clean(text), MAX_TEXT_LETTERS)
