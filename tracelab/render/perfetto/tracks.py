"""What an analysis shows in Perfetto: rows of slices, counters, and where arrows lead.

It is reduced to what is shown, so that a process that analyzed a file can hand it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracelab.analysis.analysis import Analysis
from tracelab.base.arrays import Frozen, OneLine
from tracelab.base.intervals import Int64Array, clip
from tracelab.base.names import short_kernel_name
from tracelab.base.text import clean
from tracelab.measures.bubbles import Cause
from tracelab.measures.critical_path_links import PathKind
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.blocking_calls import Blocking
from tracelab.model.constraints import REASONS, Reason
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Trace
from tracelab.read.event_array import Selection
from tracelab.render.words import shorten
from tracelab.report.glossary import BLOCKERS, BLOCKING_KINDS, CAUSES, PATH_KINDS

_LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Texts(Frozen):
    """One of a few texts for each slice.

    Example row: ``(index=0)``, with ``table=("host_blocked", "launch")``.

    Attributes:
        index: intp[k], into the table; ABSENT for none.
        table: the texts.
    """

    index: NDArray[np.intp]
    table: tuple[str, ...]

    def __iter__(self) -> Iterator[str | None]:
        return (None if i == ABSENT else self.table[i] for i in self.index.tolist())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Track(Frozen):
    """Slices that are shown in one row, or in more where they overlap; by start.

    Example row: ``(start_ns=400, end_ns=900, name="host_blocked")``.

    Attributes:
        label: what the row is called.
        category: what sort of slices they are, in a word.
        start_ns, end_ns: int64[k], ns since the file's first event.
        name: what each slice is: equal names have equal colors.
        arguments: what is shown of a slice that is selected, by its name there: texts, or int64[k].
    """

    label: str
    category: str
    start_ns: Int64Array
    end_ns: Int64Array
    name: Texts
    arguments: Mapping[str, Texts | Int64Array]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Counter(Frozen):
    """A number that changes over time.

    Example row: ``(time_ns=400, value=2)``: from there on 2 of the GPU's streams were busy.

    Attributes:
        label: what it is a number of.
        unit: what is counted; viewers write it after the label.
        time_ns: int64[k], ns, ascending.
        value: int64[k], from each time on.
    """

    label: str
    unit: str
    time_ns: Int64Array
    value: Int64Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Places(Frozen):
    """Where events of the file are, which arrows lead to.

    Example row: ``(event_id=17, start_ns=400, end_ns=900, thread_index=2, name="gemm")``.

    Attributes:
        event_id: int64[k].
        start_ns, end_ns: int64[k], ns.
        thread_index: int32[k], into `Tracks.threads`.
        name: what each is called.
    """

    event_id: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    thread_index: NDArray[np.int32]
    name: Texts


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tracks(OneLine):
    """All that is put into one file's trace, but the findings, which the job may change.

    Attributes:
        origin_ns: the file's own time of 0.
        devices: the numbers of the GPUs.
        threads: process and thread of what has a place, as texts.
        window: where a finding is shown that cites nothing.
        tracks: in the order in which they are shown, below the findings.
        counters: below the tracks.
        path: the events on the critical path, in their order.
        places: of what findings may cite, by event id.
        selection: the events of the file to keep; None for all.
        jumps: how often the file's clock jumped: what is behind a jump is shown elsewhere.
    """

    origin_ns: int
    devices: tuple[int, ...]
    threads: tuple[tuple[str, str], ...]
    window: Window
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...]
    path: Places
    places: Places
    selection: Selection | None
    jumps: int


def tracks_of(analysis: Analysis) -> Tracks:
    """What an analysis shows in Perfetto; of one step, if it is of one."""
    timeline, [window, *_] = analysis.timeline, analysis.windows
    trace = timeline.trace
    is_cut = window.step is not None
    # Windows of steps reach beyond the GPU's first and last activity: all of it is shown.
    shown = window if is_cut else Window(None, -(2**62), 2**62)
    path = analysis.critical_paths[0]
    steady = timeline.steady
    return Tracks(
        origin_ns=trace.origin_ns,
        devices=timeline.device_numbers,
        threads=tuple((thread.process, thread.thread) for thread in trace.threads),
        window=window if is_cut or steady is None else steady.window,
        tracks=(
            _steps(timeline, shown),
            *_idle(analysis, shown),
            *_exposed(analysis, shown),
            _critical_path(analysis),
            *_blocking_calls(analysis, shown),
        ),
        counters=tuple(_busy_streams(timeline, window)),
        path=_places(trace, _changes(path.event_id[path.event_id != ABSENT])),
        places=_places(trace, _may_be_cited(analysis)),
        selection=_selection(timeline, window) if is_cut else None,
        jumps=trace.losses.get("clock_jumps", 0),
    )


# --- the tracks ---


def _steps(timeline: Timeline, shown: Window) -> Track:
    """The steps, by number, and whether each is steady."""
    steps = [step for step in timeline.steps if shown.step in (None, step.number)]
    steady = timeline.steady
    left_out = {one.step: one.why for one in steady.left_out} if steady else {}
    names = [f"step {step.number}" for step in steps]
    return Track(
        label="Steps",
        category="step",
        start_ns=np.array([step.start_ns for step in steps], dtype=np.int64),
        end_ns=np.array([step.end_ns for step in steps], dtype=np.int64),
        name=texts_of(
            f"{name} (left out)" if step.number in left_out else name
            for name, step in zip(names, steps, strict=True)
        ),
        arguments={
            "steady": texts_of(
                f"no: {left_out[step.number]}" if step.number in left_out else "yes"
                for step in steps
            )
        },
    )


def _idle(analysis: Analysis, shown: Window) -> Iterator[Track]:
    """Why each GPU was idle."""
    bubbles = analysis.bubbles
    next_name = _names(analysis.timeline.trace, bubbles.next_id)
    for device in analysis.timeline.device_numbers:
        kept = np.flatnonzero(bubbles.device_number == device)
        kept, start_ns, end_ns = _within(kept, bubbles.start_ns, bubbles.end_ns, shown)
        yield Track(
            label=f"GPU {device} idle by cause",
            category="idle",
            start_ns=start_ns,
            end_ns=end_ns,
            name=Texts(bubbles.cause[kept].astype(np.intp), _by_member(Cause, CAUSES.names)),
            arguments={
                "cause": Texts(
                    bubbles.cause[kept].astype(np.intp), _by_member(Cause, CAUSES.meanings)
                ),
                "why unknown": Texts(
                    np.where(bubbles.reason[kept] == Reason.NONE, ABSENT, bubbles.reason[kept]),
                    tuple(REASONS.get(reason, "") for reason in Reason),
                ),
                "until": _take(next_name, kept),
            },
        )


def _exposed(analysis: Analysis, shown: Window) -> Iterator[Track]:
    """Communication, then copies, that nothing overlapped, by what prevents the overlap."""
    timeline, exposed = analysis.timeline, analysis.exposed
    trace = timeline.trace
    for kind, what in ((Kind.COMM, "communication"), (Kind.COPY, "copies")):
        for device in timeline.device_numbers:
            kept = np.flatnonzero(timeline.select(device=device, kind=kind)[exposed.row])
            kept, start_ns, end_ns = _within(kept, exposed.start_ns, exposed.end_ns, shown)
            blocker = exposed.blocker[kept].astype(np.intp)
            blocked_row = exposed.blocked_row[kept]
            yield Track(
                label=f"GPU {device} exposed {what}",
                category=f"exposed_{kind.name.lower()}",
                start_ns=start_ns,
                end_ns=end_ns,
                name=Texts(blocker, _by_member(OverlapBlocker, BLOCKERS.names)),
                arguments={
                    "activity": _names(trace, timeline.event_id[exposed.row[kept]]),
                    "not overlapped because": Texts(
                        blocker, _by_member(OverlapBlocker, BLOCKERS.meanings)
                    ),
                    "could overlap": _names(
                        trace,
                        np.where(blocked_row == ABSENT, ABSENT, timeline.event_id[blocked_row]),
                    ),
                    "at most overlapped ns": exposed.bound_ns[kept],
                },
            )


def _critical_path(analysis: Analysis) -> Track:
    """What decided how long the window took."""
    path = analysis.critical_paths[0]
    kind = path.kind.astype(np.intp)
    return Track(
        label="Critical path",
        category="critical_path",
        start_ns=path.start_ns,
        end_ns=path.end_ns,
        name=Texts(kind, _by_member(PathKind, PATH_KINDS.names)),
        arguments={
            "what": Texts(kind, _by_member(PathKind, PATH_KINDS.meanings)),
            "event": _names(analysis.timeline.trace, path.event_id),
        },
    )


def _blocking_calls(analysis: Analysis, shown: Window) -> Iterator[Track]:
    """The blocking calls of each host thread, with the idle time that each caused."""
    costs, trace = analysis.blocking_calls, analysis.timeline.trace
    calls = costs.calls
    thread_index = trace.thread_index[calls.event_id]
    for thread, indices in groups_of(thread_index):
        is_shown = (calls.start_ns[indices] < shown.end_ns) & (
            calls.end_ns[indices] > shown.start_ns
        )
        kept = indices[is_shown]
        kind = calls.kind[kept].astype(np.intp)
        sites = [costs.call_sites[i] for i in kept.tolist()]
        lines = (
            None if site.file is None else f"{site.file}:{site.line}" if site.line else site.file
            for site in sites
        )
        name = trace.threads[thread].name or f"thread {trace.threads[thread].thread}"
        yield Track(
            label=f"Blocking calls of {clean(name)}",
            category="blocking_call",
            start_ns=calls.start_ns[kept],
            end_ns=calls.end_ns[kept],
            name=_names(trace, calls.event_id[kept]),
            arguments={
                "caused idle ns": costs.caused_idle_ns[kept],
                "of it after the call ns": costs.idle_after_ns[kept],
                "why it blocks": Texts(kind, _by_member(Blocking, BLOCKING_KINDS.meanings)),
                "waited for": _names(trace, costs.awaited_id[kept]),
                "operator": texts_of(site.operator for site in sites),
                "function": texts_of(site.function for site in sites),
                "line": texts_of(lines),
            },
        )


def _busy_streams(timeline: Timeline, window: Window) -> Iterator[Counter]:
    """How many streams of each GPU ran something."""
    for device in timeline.device_numbers:
        busy = [
            clip(timeline.busy(slice(x.first_row, x.end_row)), window.start_ns, window.end_ns)
            for x in timeline.streams
            if x.device_number == device
        ]
        starts, ends = ([getattr(one, side) for one in busy] for side in ("starts", "ends"))
        time_ns = np.concatenate(([window.start_ns], *starts, *ends))
        change = np.repeat((0, 1, -1), (1, sum(map(len, starts)), sum(map(len, ends))))
        at_ns, index = np.unique(time_ns, return_inverse=True)
        value = np.cumsum(np.bincount(index, weights=change)).astype(np.int64)
        changes = np.flatnonzero(np.diff(value, prepend=ABSENT))
        yield Counter(f"GPU {device} busy", "streams", at_ns[changes], value[changes])


# --- where arrows lead ---


def _may_be_cited(analysis: Analysis) -> NDArray[np.int64]:
    """int64[k], ascending: what the file's findings cite, and what the findings of its job may."""
    timeline = analysis.timeline
    cited = [event_id for x in analysis.report.findings for event_id in x.evidence]
    is_comm = timeline.select(kind=Kind.COMM)
    return np.unique(np.concatenate((np.array(cited, np.int64), timeline.event_id[is_comm])))


def _places(trace: Trace, event_id: Int64Array) -> Places:
    return Places(
        event_id=event_id,
        start_ns=trace.start_ns[event_id],
        end_ns=trace.end_ns[event_id],
        thread_index=trace.thread_index[event_id],
        name=_names(trace, event_id),
    )


def _changes(event_id: Int64Array) -> Int64Array:
    """The same ids, each run of one of them once."""
    return event_id[np.flatnonzero(np.diff(event_id, prepend=ABSENT))]


def _selection(timeline: Timeline, window: Window) -> Selection:
    """What overlaps a window, and the launches of the activities that do."""
    trace, launch_id = timeline.trace, timeline.launch_id
    is_kept = (trace.start_ns < window.end_ns) & (
        (trace.end_ns > window.start_ns) | (trace.start_ns >= window.start_ns)
    )
    launched = (launch_id != ABSENT) & is_kept[timeline.event_id]
    is_kept[launch_id[launched]] = True
    correlation = np.unique(np.asarray(trace.correlation[launch_id[launched]], dtype=np.int64))
    return Selection(
        file_index=np.sort(trace.file_index[is_kept]).astype(np.int64),
        correlation=correlation,
        start_us=(trace.origin_ns + window.start_ns) / 1000,
        end_us=(trace.origin_ns + window.end_ns) / 1000,
    )


# --- texts ---


def _within(
    kept: NDArray[np.intp], start_ns: Int64Array, end_ns: Int64Array, shown: Window
) -> tuple[NDArray[np.intp], Int64Array, Int64Array]:
    """Those of some pieces that lie in a window, cut to it: their indices, starts and ends."""
    start = np.maximum(start_ns[kept], shown.start_ns)
    end = np.minimum(end_ns[kept], shown.end_ns)
    is_inside = end > start
    return kept[is_inside], start[is_inside], end[is_inside]


def _by_member(members: Iterable[IntEnum], texts: Mapping[str, str]) -> tuple[str, ...]:
    """The text of each member of an enumeration, whose names are keys in capitals."""
    return tuple(texts[member.name.lower()] for member in members)


def texts_of(texts: Iterable[str | None]) -> Texts:
    """Texts with each different one once."""
    rows: dict[str, int] = {}
    index = [ABSENT if text is None else rows.setdefault(text, len(rows)) for text in texts]
    return Texts(np.array(index, dtype=np.intp), tuple(map(_shown, rows)))


def _names(trace: Trace, event_id: ArrayLike) -> Texts:
    """The names of events; none where the id is ABSENT."""
    event_ids = np.asarray(event_id, dtype=np.int64)
    name_index = np.where(event_ids == ABSENT, ABSENT, trace.name_index[event_ids])
    used, index = np.unique(name_index, return_inverse=True)
    table = tuple(
        "" if i == ABSENT else _shown(short_kernel_name(trace.strings[i])) for i in used.tolist()
    )
    return Texts(np.where(name_index == ABSENT, ABSENT, index).astype(np.intp), table)


def _take(texts: Texts, kept: NDArray[np.intp]) -> Texts:
    return Texts(texts.index[kept], texts.table)


def _shown(text: str) -> str:
    return shorten(clean(text), _LONGEST_TEXT)
