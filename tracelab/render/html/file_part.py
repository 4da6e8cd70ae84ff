"""What a page needs of one file: reduced to columns in whichever process the file is analyzed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.analysis.analysis import Analysis, predict_changes
from tracelab.base.arrays import OneLine
from tracelab.base.intervals import Int64Array, stacked, union
from tracelab.base.options import Options
from tracelab.base.text import visible
from tracelab.findings.fixes import ALL
from tracelab.measures.bubbles import Cause
from tracelab.measures.critical_path_links import PathKind
from tracelab.measures.graph_streams import graph_streams, graph_streams_label
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.measures.program_lines import LineName, ProgramLines
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import rows_of
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.model.wording import origin_texts
from tracelab.render.html.encode import Lane
from tracelab.render.html.evidence import Place, places_of_evidence
from tracelab.render.picture.lanes import main_threads_first
from tracelab.render.words import bare_name, shorten
from tracelab.report.glossary import BLOCKERS
from tracelab.report.schema import WhatIf
from tracelab.simulate.causal_profile import LINE, OPERATOR, CausalMetrics, causal_profile

_LONGEST_NAME, _LONGEST_LABEL = 300, 40
_MOST_STREAMS, _MOST_THREADS = 100, 40  # lanes of a file: nobody reads more
_MOST_LEVELS = 32  # of a lane that streams share
_STEP_KINDS = ("step", "step_left_out")
_EXPOSED_KINDS = ("exposed_comm", "exposed_copy")
_CALL_KINDS = ("launch_call", "blocking")


class Name(NamedTuple):
    """A name as a page shows it, and what stands in a narrow place; "" where that is the same.

    Example: ``Name("void at::native::reduce_kernel<512, 1>(float*)", "reduce_kernel")``.
    """

    text: str
    short: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FilePart(OneLine):
    """What a page needs of one file; all times are ns since the file's first event.

    A row is the place of an activity among those of all lanes of streams, one after another; a call
    likewise in the lanes of host threads.

    Attributes:
        path: the file.
        rank: its number in the file's own report.
        origin_ns: the file's first event by its own clock, ns.
        windows: the whole trace and every step, or one step.
        steps: the numbers of the steady ones.
        start_ns, end_ns: the time in which anything lies in a lane.
        device: the GPU that decides.
        names: of activities, operators, calls and the like.
        lines: of the program.
        lanes: steps, idle and exposed time and streams of each device, critical path, host threads.
        event_id: int64[rows], event ids.
        threads: index into `Trace.threads` of each lane of the host, in the order of the lanes.
        places: where what its findings cite lies, by event id; a row is one of the lanes'.
        streams_left_out, threads_left_out: how many have no lane, because they are very many.
        causal: what a step would take if a line, or an operator where no line is known, cost
            nothing; empty where nothing can be replayed.
        whatif: what the steps take with the fix of each finding alone, then with all of them.

    Example: ``FilePart(path="rank0.json", rank=0, origin_ns=0, windows=(Window(None, 0, 900), ...),
    steps=(2, 3), start_ns=0, end_ns=900, device=0, names=(Name("gemm"), ...), lines=(),
    lanes=(...), event_id=[17, ...], threads=(0,), places={},
    streams_left_out=0, threads_left_out=0, causal=(), whatif=None)``.
    """

    path: str
    rank: int
    origin_ns: int
    windows: tuple[Window, ...]
    steps: tuple[int, ...]
    start_ns: int
    end_ns: int
    device: int
    names: tuple[Name, ...]
    lines: tuple[LineName, ...]
    lanes: tuple[Lane, ...]
    event_id: Int64Array
    threads: tuple[int, ...]
    places: Mapping[int, Place]
    streams_left_out: int
    threads_left_out: int
    causal: tuple[CausalMetrics, ...]
    whatif: WhatIf | None

    def place_of(self, event_id: int) -> Place | None:
        """Where an event lies that a finding cites, of the file or of its job; None elsewhere."""
        if event_id in self.places:
            return self.places[event_id]
        [row] = np.flatnonzero(self.event_id == event_id)[:1].tolist() or [ABSENT]
        if row == ABSENT:
            return None
        start_ns = np.concatenate([x.start_ns for x in self.lanes if x.type == "stream"])
        end_ns = np.concatenate([x.end_ns for x in self.lanes if x.type == "stream"])
        return Place(int(start_ns[row]), int(end_ns[row]), row, ABSENT)


def file_part(analysis: Analysis) -> FilePart:
    """Reduce what was analyzed of a file to what its page needs."""
    timeline = analysis.timeline
    trace, findings = timeline.trace, analysis.report.findings
    shown = _Shown(analysis)
    lanes = tuple(map(_narrowed, shown.lanes()))
    filled = [lane for lane in lanes if len(lane)]
    steady = _steady_numbers(timeline)
    places = places_of_evidence(timeline, findings)
    return FilePart(
        path=trace.path,
        rank=analysis.report.traces[0].rank,
        origin_ns=trace.info.clock_base_ns + trace.origin_ns,
        windows=analysis.windows,
        steps=tuple(x.step for x in analysis.windows if x.step is not None and x.step in steady),
        start_ns=min(int(lane.start_ns[0]) for lane in filled),
        end_ns=max(int(lane.end_ns.max()) for lane in filled),
        device=analysis.part.device,
        names=shown.names.table,
        lines=tuple(map(_visible_line, shown.program_lines.names)),
        lanes=lanes,
        event_id=timeline.event_id[shown.rows],
        threads=shown.threads,
        places={
            event_id: replace(place, row=int(shown.row_of[place.row]))
            for event_id, place in places.items()
        },
        streams_left_out=shown.streams_left_out,
        threads_left_out=shown.threads_left_out,
        causal=_causal(analysis),
        whatif=predict_changes(analysis.baseline, analysis.sites, findings, Options(fixes=(ALL,))),
    )


def _causal(analysis: Analysis) -> tuple[CausalMetrics, ...]:
    """The causal profile by line; by operator where no line is known."""
    by = LINE if analysis.report.lines else OPERATOR
    return causal_profile(analysis.baseline, analysis.sites, by, analysis.report.findings)


class _Names:
    """The names of a trace that are used, and others.

    Attributes:
        table: the names.
    """

    def __init__(
        self, timeline: Timeline, used: Iterable[NDArray[Any]], others: Iterable[str]
    ) -> None:
        strings = timeline.trace.strings
        name_index = np.unique(np.concatenate([*used, np.array([ABSENT])]))[1:]
        self._index_of = np.full(len(strings) + 1, ABSENT, dtype=np.int64)  # the last is ABSENT's
        self._index_of[name_index] = np.arange(len(name_index))
        texts = dict.fromkeys(others)
        self._index_of_text = {text: len(name_index) + i for i, text in enumerate(texts)}
        self.table: tuple[Name, ...] = (
            *(_visible_name(strings[index]) for index in name_index.tolist()),
            *map(Name, texts),
        )

    def of_strings(self, name_index: NDArray[Any]) -> Int64Array:
        """int64[k], the place of each in the table, of indices into `Trace.strings` or ABSENT."""
        place: Int64Array = self._index_of[name_index]
        return place

    def of_text(self, text: str) -> int:
        """The place of another name."""
        return self._index_of_text[text]


class _Shown:
    """What of an analysis is shown: all of it, or what lies in the step that was asked for.

    Attributes:
        streams_left_out: as in `FilePart`.
        rows: intp[rows], the timeline's rows, lane after lane.
        row_of: int64[m + 1], the place of each row of the timeline, ABSENT of one not shown.
        threads, threads_left_out: as in `FilePart`.
        names: all names.
        program_lines: the lines.
    """

    def __init__(self, analysis: Analysis) -> None:
        timeline, calls = analysis.timeline, analysis.blocking_calls.calls
        self._analysis, self._timeline, self._trace = analysis, timeline, timeline.trace
        is_row = self._is_shown(timeline.start_ns, timeline.end_ns)
        lanes = _busiest_lanes(timeline)
        self.streams_left_out = len(timeline.streams) - sum(len(x.stream_index) for x in lanes)
        self._stream_lanes = [replace(lane, row=lane.row[is_row[lane.row]]) for lane in lanes]
        self.rows = np.concatenate([lane.row for lane in self._stream_lanes])
        self.row_of = np.full(len(timeline.event_id) + 1, ABSENT, dtype=np.int64)
        self.row_of[self.rows] = np.arange(len(self.rows))
        launch_id = timeline.launch_id[self.rows]
        blocking = np.flatnonzero(self._is_shown(calls.start_ns, calls.end_ns))
        call_ids = np.union1d(launch_id[launch_id != ABSENT], calls.event_id[blocking])
        thread_index = self._trace.thread_index[call_ids]
        threads, count = np.unique(thread_index, return_counts=True)
        chosen = threads[np.argsort(-count, kind="stable")[:_MOST_THREADS]]
        self.threads = tuple(main_threads_first(self._trace, chosen.tolist()))
        self.threads_left_out = len(threads) - len(chosen)
        is_chosen = np.isin(thread_index, chosen)
        call_ids, thread_index = call_ids[is_chosen], thread_index[is_chosen]
        order_of = np.zeros(len(self._trace.threads), dtype=np.int64)
        order_of[list(self.threads)] = np.arange(len(self.threads))
        start_ns, end_ns = self._trace.start_ns[call_ids], self._trace.end_ns[call_ids]
        order = np.lexsort((-end_ns, start_ns, order_of[thread_index]))
        self._call_id = call_ids[order]
        self._call_thread = thread_index[order]
        self._launch_call = _positions(self._call_id, launch_id)
        operators = timeline.operators
        self._operator = operators.names(operators.innermost(self._call_id))
        window = analysis.windows[0]
        first_ns = int(start_ns.min(initial=window.start_ns))
        self.program_lines = ProgramLines(
            timeline, analysis.lines, union([first_ns], [window.end_ns])
        )
        self._line = self.program_lines.of_events(self._call_id)
        texts, text_index = _origin_texts(analysis, self.rows)
        name_index = self._trace.name_index
        self.names = _Names(
            timeline,
            used=(
                name_index[timeline.event_id[self.rows]],
                name_index[self._call_id],
                self._operator,
            ),
            others=[*self._blocker_texts, *self._step_names(), *filter(None, texts)],
        )
        places = [self.names.of_text(text) if text else ABSENT for text in texts]
        self._captured = _taken(np.array(places, dtype=np.int64), text_index)

    def lanes(self) -> tuple[Lane, ...]:
        """All lanes, in the order in which they are shown."""
        devices = self._timeline.device_numbers
        return (
            *self._steps(),
            *(lane for device in devices for lane in self._of_device(device)),
            self._path(),
            *(self._host(thread) for thread in self.threads),
        )

    def _is_shown(self, start_ns: Int64Array, end_ns: Int64Array) -> NDArray[np.bool_]:
        """bool[k], what lies in the step that was asked for; everything without one."""
        window = self._analysis.windows[0]
        if window.step is None:
            return np.ones(len(start_ns), dtype=np.bool_)
        is_shown: NDArray[np.bool_] = (end_ns > window.start_ns) & (start_ns < window.end_ns)
        return is_shown

    @property
    def _blocker_texts(self) -> list[str]:
        """Why exposed work could not overlap other work, by `OverlapBlocker`; none without any."""
        meanings = BLOCKERS.meanings if len(self._analysis.exposed.row) else {}
        return [meanings[x.name.lower()] for x in OverlapBlocker if meanings]

    def _step_names(self) -> list[str]:
        left_out = self._timeline.steady.left_out if self._timeline.steady else ()
        why = {left.step: f", not steady: it {left.why}" for left in left_out}
        return [f"step {step}{why.get(step, '')}" for step in self._step_numbers]

    @property
    def _step_numbers(self) -> list[int]:
        """Those of the steps that are shown."""
        return [window.step for window in self._analysis.windows if window.step is not None]

    def _steps(self) -> list[Lane]:
        windows = [window for window in self._analysis.windows if window.step is not None]
        if not windows:
            return []
        steady = _steady_numbers(self._timeline)
        return [
            Lane(
                id="steps",
                type="steps",
                label="steps",
                device=None,
                summary=False,
                kinds=_STEP_KINDS,
                start_ns=np.array([window.start_ns for window in windows]),
                end_ns=np.array([window.end_ns for window in windows]),
                kind=np.array([window.step not in steady for window in windows], dtype=np.uint8),
                more={"name": np.array(list(map(self.names.of_text, self._step_names())))},
            )
        ]

    def _of_device(self, device: int) -> list[Lane]:
        """The lanes of a GPU: why it was idle, what ran exposed, its streams."""
        streams = [lane for lane in self._stream_lanes if lane.device == device]
        return [self._idle(device), *self._exposed(device), *map(self._stream, streams)]

    def _idle(self, device: int) -> Lane:
        bubbles = self._analysis.bubbles
        is_shown = self._is_shown(bubbles.start_ns, bubbles.end_ns)
        chosen = np.flatnonzero(is_shown & (bubbles.device_number == device))
        return Lane(
            id=f"idle:{device}",
            type="idle",
            label=f"GPU {device} idle",
            device=device,
            summary=device == self._analysis.part.device,
            kinds=tuple(cause.name.lower() for cause in Cause),
            start_ns=bubbles.start_ns[chosen],
            end_ns=bubbles.end_ns[chosen],
            kind=bubbles.cause[chosen].astype(np.uint8),
            more={"row": self._rows_of_events(bubbles.next_id[chosen])},
        )

    def _exposed(self, device: int) -> list[Lane]:
        exposed, timeline = self._analysis.exposed, self._timeline
        is_shown = self._is_shown(exposed.start_ns, exposed.end_ns)
        chosen = np.flatnonzero(is_shown & (timeline.device_number[exposed.row] == device))
        if not len(chosen):
            return []
        chosen = chosen[np.argsort(exposed.start_ns[chosen], kind="stable")]
        names = np.array(list(map(self.names.of_text, self._blocker_texts)))
        return [
            Lane(
                id=f"exposed:{device}",
                type="exposed",
                label=f"GPU {device} exposed",
                device=device,
                summary=False,
                kinds=_EXPOSED_KINDS,
                start_ns=exposed.start_ns[chosen],
                end_ns=exposed.end_ns[chosen],
                kind=(timeline.kind[exposed.row[chosen]] == Kind.COPY).astype(np.uint8),
                more={
                    "row": self.row_of[exposed.row[chosen]],
                    "name": names[exposed.blocker[chosen]],
                },
            )
        ]

    def _stream(self, of_streams: _StreamLane) -> Lane:
        timeline, binding = self._timeline, self._analysis.graph.binding
        rows, device = of_streams.row, of_streams.device
        call, captured = (
            column[self.row_of[rows]] for column in (self._launch_call, self._captured)
        )
        of_graphs = {"captured": captured} if (captured != ABSENT).any() else {}
        number = timeline.streams[of_streams.stream_index[0]].stream_number
        lane = Lane(
            id=f"stream:{device}/{number}",
            type="stream",
            label=f"GPU {device} stream {number}",
            device=device,
            summary=False,
            kinds=tuple(kind.name.lower() for kind in Kind),
            start_ns=timeline.start_ns[rows],
            end_ns=timeline.end_ns[rows],
            kind=timeline.kind[rows].astype(np.uint8),
            more={
                "name": self.names.of_strings(self._trace.name_index[timeline.event_id[rows]]),
                "op": self.names.of_strings(_taken(self._operator, call)),
                "line": _taken(self._line, call),
                "call": call,
                "why": binding.constraint[rows],
                "source": self.row_of[binding.source_row[rows]],
                **of_graphs,
            },
        )
        return lane if len(of_streams.stream_index) == 1 else _shared(lane, of_streams, timeline)

    def _path(self) -> Lane:
        path = self._analysis.critical_paths[0]
        return Lane(
            id="path",
            type="path",
            label="critical path",
            device=None,
            summary=False,
            kinds=tuple(kind.name.lower() for kind in PathKind),
            start_ns=path.start_ns,
            end_ns=path.end_ns,
            kind=path.kind.astype(np.uint8),
            more={"row": self._rows_of_events(path.event_id)},
        )

    def _host(self, thread: int) -> Lane:
        costs, trace = self._analysis.blocking_calls, self._trace
        chosen = np.flatnonzero(self._call_thread == thread)
        event_id = self._call_id[chosen]
        blocking = _positions(costs.calls.event_id, event_id)
        label = visible(f"CPU {trace.threads[thread].name or trace.threads[thread].thread}")
        return Lane(
            id=f"host:{thread}",
            type="host",
            label=shorten(label, _LONGEST_LABEL),
            device=None,
            summary=False,
            kinds=_CALL_KINDS,
            start_ns=trace.start_ns[event_id],
            end_ns=trace.end_ns[event_id],
            kind=(blocking != ABSENT).astype(np.uint8),
            more={
                "name": self.names.of_strings(trace.name_index[event_id]),
                "line": self._line[chosen],
                "cost": np.where(blocking == ABSENT, 0, _taken(costs.caused_idle_ns, blocking)),
                "row": self._rows_of_events(_taken(costs.awaited_id, blocking)),
            },
        )

    def _rows_of_events(self, event_id: Int64Array) -> Int64Array:
        """int64[k], the place of each event that is an activity, else ABSENT."""
        return self.row_of[_positions(self._timeline.event_id, event_id)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _StreamLane(OneLine):
    """A lane of one stream, or of the nearly empty streams of CUDA graphs of a device.

    Attributes:
        device: its number.
        stream_index: intp[s], indices of the timeline's streams in it, ascending.
        row: intp[k], the timeline's rows in it, by start.

    Example: ``_StreamLane(device=0, stream_index=[3], row=[40, 41, ...])``.
    """

    device: int
    stream_index: NDArray[np.intp]
    row: NDArray[np.intp]


def _origin_texts(
    analysis: Analysis, rows: NDArray[np.intp]
) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Where activities were captured into CUDA graphs, in words: the texts, and that of each row.

    A text may be "". The second is intp[k], indices of the texts; ABSENT where nothing is known.
    """
    origins = analysis.origins
    known = np.flatnonzero(origins.surest_basis[rows] != ABSENT)
    # Of all replays of a node the text is the same.
    columns = origins.event_id, origins.basis, origins.annotation_index
    keys = np.stack([column[rows[known]].astype(np.int64) for column in columns], axis=1)
    _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    texts = origin_texts(analysis.timeline, origins, rows[known[first]], analysis.lines)
    text_index = np.full(len(rows), ABSENT, dtype=np.intp)
    text_index[known] = index.reshape(-1)
    return tuple(shorten(visible(text), _LONGEST_NAME) for text in texts), text_index


def _busiest_lanes(timeline: Timeline) -> list[_StreamLane]:
    """The lanes of all streams, of very many the busiest; by device, that of graphs last."""
    of_graphs = graph_streams(timeline)
    shared = {index for together in of_graphs for index in together.stream_index.tolist()}
    lanes = [
        *(
            _StreamLane(x.device_number, np.array([index]), np.arange(x.first_row, x.end_row))
            for index, x in enumerate(timeline.streams)
            if index not in shared
        ),
        *(_StreamLane(x.device_number, x.stream_index, x.row) for x in of_graphs),
    ]
    length_ns = timeline.end_ns - timeline.start_ns
    busy_ns = [int(length_ns[lane.row].sum()) for lane in lanes]
    busiest = sorted(range(len(lanes)), key=lambda i: -busy_ns[i])[:_MOST_STREAMS]
    return sorted((lanes[i] for i in sorted(busiest)), key=lambda lane: lane.device)


def _shared(lane: Lane, of_streams: _StreamLane, timeline: Timeline) -> Lane:
    """A lane as that of several streams, whose activities lie at as many levels as they overlap."""
    stream_index = timeline.stream_index[of_streams.row]
    level = stacked(lane.start_ns, lane.end_ns, _MOST_LEVELS)
    streams = [timeline.streams[index].stream_number for index in of_streams.stream_index.tolist()]
    return replace(
        lane,
        id=f"stream:{lane.device}/graphs",
        label=f"GPU {lane.device}: {graph_streams_label(len(streams))}",
        more={
            **lane.more,
            "stream": np.searchsorted(of_streams.stream_index, stream_index),
            "level": level,
        },
        streams=tuple(streams),
        levels=int(level.max(initial=0)) + 1,
    )


def _steady_numbers(timeline: Timeline) -> frozenset[int]:
    """The numbers of the steady steps."""
    indices = timeline.steady.indices if timeline.steady else ()
    return frozenset(timeline.steps[index].number for index in indices)


def _positions(event_id: Int64Array, wanted_id: Int64Array) -> NDArray[np.intp]:
    """intp[k], where each event stands in a column without repeats, ABSENT where it does not."""
    if not len(event_id):
        return np.full(len(wanted_id), ABSENT, dtype=np.intp)
    position = rows_of(event_id, wanted_id)
    return np.where(event_id[position] == wanted_id, position, ABSENT)


def _taken(values: Int64Array, index: NDArray[Any]) -> Int64Array:
    """int64[k], the values at these places, ABSENT for ABSENT."""
    taken: Int64Array = np.append(values, ABSENT)[index]
    return taken


def _narrowed(lane: Lane) -> Lane:
    """The same lane with places of four bytes, for it may travel from process to process."""
    return replace(
        lane,
        more={
            key: column if key == "cost" else column.astype(np.int32)
            for key, column in lane.more.items()
        },
    )


def _visible_name(text: str) -> Name:
    cut = shorten(visible(text[: 2 * _LONGEST_NAME]), _LONGEST_NAME)
    short = visible(bare_name(text))
    return Name(cut, "" if short == cut else short)


def _visible_line(line: LineName) -> LineName:
    name, where = shorten(visible(line.name), _LONGEST_NAME), line.where
    return LineName(name, None if where is None else shorten(visible(where), _LONGEST_NAME))
