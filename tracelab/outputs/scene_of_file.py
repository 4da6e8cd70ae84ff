"""The scene of one file: its streams, its host calls, and all about them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.analysis.analysis import Analysis
from tracelab.base.arrays import ABSENT, Int64Array
from tracelab.base.intervals import clip, contains, stacked, union
from tracelab.measures.critical_path import PathKind
from tracelab.measures.idle_causes import Cause
from tracelab.measures.measure import summed
from tracelab.measures.memory import find_retries
from tracelab.measures.overlap import GraphStreams, graph_streams
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.measures.what_ran import ProgramLines
from tracelab.model.arithmetic import products
from tracelab.model.binding import REASONS, Constraint, Reason
from tracelab.model.blocking_calls import Blocking
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import Nesting, map_names, rows_of
from tracelab.model.phases import Phase, Phases, module_calls, phase_of_annotation
from tracelab.model.steps import Step
from tracelab.model.timeline import Timeline
from tracelab.model.trace import Category, Trace
from tracelab.model.wording import origin_texts
from tracelab.render.scene import (
    NAME_COLUMNS,
    WIDE_COLUMNS,
    Lane,
    Line,
    Places,
    Scene,
    Span,
    Thread,
)

KINDS = tuple(kind.name.lower() for kind in Kind)
CALL_KINDS = ("launch_call", "blocking")
PHASES = tuple(phase.name.lower() for phase in Phase if phase < Phase.OTHER)
# "thread 4211 (python)", as Kineto writes it.
_NUMBERED_THREAD = re.compile(r"^thread \S+(?: \((.*)\))?$")
_INTERPRETER = re.compile(r"(?:python|pt_main)[\w.]*|\d*")
# A GPU rarely runs more activities at a time.
MAX_LEVELS_OF_LANE = 32
_MAX_MODULE_LEVELS, _MAX_OPERATOR_LEVELS = 5, 1
_MIN_SHARE_OF_GAP = 0.5  # of the host's work


def lanes_of_streams(timeline: Timeline) -> list[GraphStreams]:
    """List the streams of each lane by device; those of CUDA graphs share the last one."""
    together = graph_streams(timeline)
    shared = {index for lane in together for index in lane.stream_index.tolist()}
    lanes = [
        *(
            GraphStreams(x.device_number, np.array([index]), np.arange(x.first_row, x.end_row))
            for index, x in enumerate(timeline.streams)
            if index not in shared
        ),
        *together,
    ]
    return sorted(lanes, key=lambda lane: lane.device_number)


def sort_threads(trace: Trace, threads: Iterable[int]) -> list[int]:
    """Sort indices of threads, main threads of processes first."""
    return sorted(threads, key=lambda i: (trace.threads[i].process != trace.threads[i].thread, i))


def thread_labels(trace: Trace, threads: Iterable[int], phases: Phases) -> dict[int, str]:
    """Name threads by their work or as the file does, with an id if two are alike."""
    runs = dict.fromkeys(phases.autograd_threads.tolist(), "autograd")
    runs |= {phases.main_thread: "main thread"}
    labels = {}
    for index in threads:
        thread = trace.threads[index]
        own = _NUMBERED_THREAD.sub(r"\1", thread.name).strip()
        main = "main thread" if thread.process == thread.thread else ""
        named = "" if _INTERPRETER.fullmatch(own) else own
        labels[index] = runs.get(index) or main or named or "thread"
    alike = Counter([*labels.values(), "thread"])  # needs an id
    return {
        index: f"{label} {trace.threads[index].thread}" if alike[label] > 1 else label
        for index, label in labels.items()
    }


def threads_of(trace: Trace) -> tuple[Thread, ...]:
    """List the threads of a file."""
    return tuple(Thread(x.process, x.thread, x.name) for x in trace.threads)


def scene_of_file(analysis: Analysis) -> Scene:
    """Make the scene of an analyzed file or step."""
    return _Maker(analysis).scene()


class _Maker:
    """Lanes of an analysis; names are at first indices of the trace's strings."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis, self.costs = analysis, analysis.blocking_calls
        self.timeline, self.trace = analysis.timeline, analysis.timeline.trace
        self.window = analysis.windows[0]
        self.device = self.timeline.busiest_device(self.timeline.windows[0])
        timeline = self.timeline
        self.is_shown = self.overlaps_window(timeline.start_ns, timeline.end_ns)
        self.stream_rows = [
            replace(lane, row=lane.row[self.is_shown[lane.row]])
            for lane in lanes_of_streams(timeline)
        ]
        none = np.zeros(0, dtype=np.intp)
        self.rows = np.concatenate([none, *(lane.row for lane in self.stream_rows)])
        self.row_of = np.full(len(timeline.event_id) + 1, ABSENT, dtype=np.int64)
        self.row_of[self.rows] = np.arange(len(self.rows))
        launch_id = timeline.launch_id
        launched = self.is_shown & (launch_id != ABSENT)
        in_window = self._shown_events(
            np.concatenate((launch_id[launch_id != ABSENT], self.costs.calls.event_id))
        )
        call_id = np.union1d(launch_id[launched], in_window)
        thread = self.trace.thread_index[call_id]
        self.threads = sort_threads(self.trace, np.unique(thread).tolist())
        self.labels = thread_labels(self.trace, self.threads, analysis.phases)
        order_of = np.zeros(len(self.trace.threads), dtype=np.int64)
        order_of[self.threads] = np.arange(len(self.threads))
        start_ns, end_ns = self.trace.start_ns[call_id], self.trace.end_ns[call_id]
        order = np.lexsort((-end_ns, start_ns, order_of[thread]))
        self.call_id, self.call_thread = call_id[order], thread[order]
        self._texts: dict[str, int] = {}
        operators = timeline.operators
        self._operator = operators.names(operators.innermost(self.call_id))
        first_ns = int(start_ns.min(initial=self.window.start_ns))
        within = union([first_ns], [self.window.end_ns])
        self.program_lines = ProgramLines(timeline, analysis.lines, within)
        self._line = self.program_lines.of_events(self.call_id)
        self.modules = module_calls(timeline)
        self._captured = self._origins()

    def scene(self) -> Scene:
        trace, shown, path_id = self.trace, tuple(self.lanes()), self.path_id()
        places = self._places(np.union1d(self.cited_id(), path_id))
        columns = [x for lane in shown for key, x in lane.more.items() if key in NAME_COLUMNS]
        used = np.unique(np.concatenate([*columns, places.name, [ABSENT]]))[1:]
        index_of = np.full(len(trace.strings) + 1, ABSENT, dtype=np.int64)  # the last is ABSENT's
        index_of[used] = np.arange(len(used))
        whole = self.timeline.windows[0]
        steady = self.timeline.steady if self.window.step is None else None
        focus = self.window if steady is None else steady.window
        return Scene(
            path=trace.path,
            window=Span(self.window.start_ns, self.window.end_ns),
            start_ns=whole.start_ns,
            end_ns=whole.end_ns,
            threads=threads_of(trace),
            names=tuple(trace.strings[index] for index in used.tolist()),
            lanes=tuple(_compact(lane, index_of) for lane in shown),
            step=self.window.step,
            focus=Span(focus.start_ns, focus.end_ns),
            device=self.device,
            origin_ns=trace.origin_ns,
            base_ns=trace.info.clock_base_ns,
            texts=tuple(self._texts),
            lines=tuple(Line(*name) for name in self.program_lines.names),
            places=replace(places, name=index_of[places.name]),
            critical_path=np.searchsorted(places.event_id, path_id),
            usual_steps=self._usual_steps(),
        )

    def lanes(self) -> Iterator[Lane]:
        yield from self.steps()
        for device in self.timeline.device_numbers:
            yield self._idle(device)
            yield from self._exposed(device)
            yield from (
                self.stream(lane) for lane in self.stream_rows if lane.device_number == device
            )
        yield self._path()
        for thread in self.threads:
            yield from self.phases(thread)
            yield from self._nested("module", self.modules, thread, _MAX_MODULE_LEVELS)
            operators = self.timeline.operators
            yield from self._nested("operator", operators, thread, _MAX_OPERATOR_LEVELS)
            yield self.host(thread)
            yield self.annotations(thread)
        yield from map(self._busy, self.timeline.device_numbers)
        if len(self.trace.memory):
            yield from self._memory()
        if len(self.trace.operator_inputs):
            yield from self._product_rates()

    def path_id(self) -> Int64Array:
        event_id = self.analysis.critical_paths[0].event_id
        event_id = event_id[event_id != ABSENT]
        changed: Int64Array = event_id[np.flatnonzero(np.diff(event_id, prepend=ABSENT))]
        return changed

    def cited_id(self) -> Int64Array:
        cited = [event_id for x in self.analysis.findings for event_id in x.evidence]
        is_comm = self.timeline.select(kind=Kind.COMM)
        return np.concatenate((np.array(cited, np.int64), self.timeline.event_id[is_comm]))

    def _places(self, event_id: Int64Array) -> Places:
        return Places(
            event_id=event_id,
            start_ns=self.trace.start_ns[event_id],
            end_ns=self.trace.end_ns[event_id],
            thread=self.trace.thread_index[event_id],
            name=self.name_index(event_id),
            row=self.rows_of_events(event_id),
        )

    def overlaps_window(self, start_ns: Int64Array, end_ns: Int64Array) -> NDArray[np.bool_]:
        if self.window.step is None:
            return np.ones(len(start_ns), dtype=np.bool_)
        is_inside: NDArray[np.bool_] = (end_ns > self.window.start_ns) & (
            start_ns < self.window.end_ns
        )
        return is_inside

    def _shown_events(self, event_id: Int64Array) -> Int64Array:
        start_ns, end_ns = self.trace.start_ns[event_id], self.trace.end_ns[event_id]
        return event_id[self.overlaps_window(start_ns, end_ns)]

    def text_index(self, texts: Iterable[str | None]) -> NDArray[np.int64]:
        """int64[k], index of each text in the scene's; ABSENT for None and ""."""
        index = [self._texts.setdefault(x, len(self._texts)) if x else ABSENT for x in texts]
        return np.array(index, dtype=np.int64)

    def name_index(self, event_id: Int64Array) -> Int64Array:
        """int64[k], index of each event's name; ABSENT for ABSENT."""
        return np.where(event_id == ABSENT, ABSENT, self.trace.name_index[event_id])

    def rows_of_events(self, event_id: Int64Array) -> Int64Array:
        """int64[k], the row of each event that is a shown activity, else ABSENT."""
        return self.row_of[_positions(self.timeline.event_id, event_id)]

    # --- lanes ---

    def steps(self) -> Iterator[Lane]:
        steps = self._shown_steps()
        if not steps:
            return
        left_out = self.timeline.steady.left_out if self.timeline.steady else ()
        reasons = {left.step: left.why for left in left_out}
        why = [reasons.get(x.number) for x in steps]
        texts = [
            f"step {x.number}, not steady: it {reason}" if reason else f"step {x.number}"
            for x, reason in zip(steps, why, strict=True)
        ]
        usual = self._usual_steps()
        yield Lane(
            id="steps",
            label="steps",
            kinds=("step", "step_left_out"),
            start_ns=np.array([x.start_ns for x in steps]),
            end_ns=np.array([x.end_ns for x in steps]),
            kind=np.array([x.number not in usual for x in steps], dtype=np.uint8),
            more={
                "number": np.array([x.number for x in steps]),
                "why_left_out": self.text_index(why),
                "text": self.text_index(texts),
            },
        )

    def _shown_steps(self) -> list[Step]:
        return [x for x in self.timeline.steps if self.window.step in (None, x.number)]

    def _usual_steps(self) -> tuple[int, ...]:
        indices = self.timeline.steady.indices if self.timeline.steady else ()
        steady = {self.timeline.steps[index].number for index in indices}
        return tuple(x.number for x in self._shown_steps() if x.number in steady)

    def stream(self, of_streams: GraphStreams) -> Lane:
        timeline, rows = self.timeline, of_streams.row
        index, binding = of_streams.stream_index, self.analysis.graph.binding
        numbers = tuple(timeline.streams[i].stream_number for i in index.tolist())
        start_ns, end_ns = timeline.start_ns[rows], timeline.end_ns[rows]
        call = _positions(self.call_id, timeline.launch_id[rows])
        captured = self._captured[self.row_of[rows]]
        more: dict[str, NDArray[Any]] = {
            "name": self.name_index(timeline.event_id[rows]),
            "op": _take(self._operator, call),
            "line": _take(self._line, call),
            "call": call,
            "why": binding.constraint[rows],
            "source": self.row_of[binding.source_row[rows]],
        }
        if several := len(numbers) > 1:
            more["stream"] = np.searchsorted(index, timeline.stream_index[rows])
            more["level"] = stacked(start_ns, end_ns, MAX_LEVELS_OF_LANE)
        if (captured != ABSENT).any():
            more["captured"] = captured
        return Lane(
            id=f"stream:{of_streams.device_number}/{'graphs' if several else numbers[0]}",
            label=f"{len(numbers):,} graph streams" if several else f"stream {numbers[0]}",
            device=of_streams.device_number,
            kinds=KINDS,
            start_ns=start_ns,
            end_ns=end_ns,
            kind=timeline.kind[rows].astype(np.uint8),
            more=more,
            terms={"why": _keys(Constraint)},
            streams=numbers,
        )

    def host(self, thread: int) -> Lane:
        costs = self.costs
        chosen = np.flatnonzero(self.call_thread == thread)
        event_id = self.call_id[chosen]
        call = _positions(costs.calls.event_id, event_id)
        awaited_id = _take(costs.awaited_id, call)
        sites = [None if i == ABSENT else costs.call_sites[i] for i in call.tolist()]
        lines = (
            site and site.file and (f"{site.file}:{site.line}" if site.line else site.file)
            for site in sites
        )
        return Lane(
            id=f"host:{thread}",
            label=self.labels[thread],
            kinds=CALL_KINDS,
            start_ns=self.trace.start_ns[event_id],
            end_ns=self.trace.end_ns[event_id],
            kind=(call != ABSENT).astype(np.uint8),
            more={
                "name": self.name_index(event_id),
                "line": self._line[chosen],
                "cost": np.where(call == ABSENT, 0, _take(costs.caused_idle_ns, call)),
                "row": self.rows_of_events(awaited_id),
                "after": _take(costs.idle_after_ns, call),
                "why": _take(costs.calls.kind, call),
                "awaited": self.name_index(awaited_id),
                "operator": self.text_index(site and site.operator for site in sites),
                "function": self.text_index(site and site.function for site in sites),
                "place": self.text_index(lines),
            },
            terms={"why": _keys(Blocking)},
            thread=thread,
        )

    def phases(self, thread: int) -> Iterator[Lane]:
        trace, ids = self.trace, self.timeline.ids_except_steps(Category.ANNOTATION)
        ids = self._shown_events(ids[trace.thread_index[ids] == thread])
        ids = ids[map_names(trace, ids, phase_of_annotation, np.int8) == ABSENT]
        ids = ids[np.lexsort((-trace.end_ns[ids], trace.start_ns[ids]))]
        level = 1 + stacked(trace.start_ns[ids], trace.end_ns[ids], MAX_LEVELS_OF_LANE)
        start_ns, end_ns, phase = self.analysis.phases.spans_of(thread)
        shown = np.flatnonzero(self.overlaps_window(start_ns, end_ns))
        absent = np.full(len(shown), ABSENT)
        lane = Lane(
            id=f"phase:{thread}",
            label="phases",
            kinds=(*PHASES, "annotation"),
            start_ns=np.concatenate((start_ns[shown], trace.start_ns[ids])),
            end_ns=np.concatenate((end_ns[shown], trace.end_ns[ids])),
            kind=np.concatenate((phase[shown], np.full(len(ids), len(PHASES)))).astype(np.uint8),
            more={
                "name": np.concatenate((absent, self.name_index(ids))),
                "level": np.concatenate((absent - ABSENT, level)),
            },
            thread=thread,
        )
        if len(lane):
            yield lane.select(np.argsort(lane.start_ns, kind="stable"))

    def _nested(self, kind: str, nesting: Nesting, thread: int, levels: int) -> Iterator[Lane]:
        own = nesting.entries_of(thread)
        index = own.start + np.flatnonzero(nesting.parent_index[own] == ABSENT)
        of_levels = []
        for level in range(levels):
            of_levels.append(np.stack((index, np.full(len(index), level))))
            index = nesting.children(index)
        index, level = np.concatenate(of_levels, axis=1)
        order = np.argsort(index)
        order = order[
            self.overlaps_window(*(x[index[order]] for x in (nesting.start_ns, nesting.end_ns)))
        ]
        index = index[order]
        if len(index):
            yield Lane(
                id=f"{kind}:{thread}",
                label=f"{kind}s",
                kinds=(kind,),
                start_ns=nesting.start_ns[index],
                end_ns=nesting.end_ns[index],
                kind=np.zeros(len(index), dtype=np.uint8),
                more={"name": self.name_index(nesting.event_id[index]), "level": level[order]},
                thread=thread,
            )

    def annotations(self, thread: int) -> Lane:
        event_id = np.array([x.event_id for x in self.timeline.steps], dtype=np.int64)
        event_id = self._shown_events(event_id[self.trace.thread_index[event_id] == thread])
        return Lane(
            id=f"annotation:{thread}",
            label="steps",
            kinds=("host_step",),
            start_ns=self.trace.start_ns[event_id],
            end_ns=self.trace.end_ns[event_id],
            kind=np.zeros(len(event_id), dtype=np.uint8),
            more={"name": self.name_index(event_id)},
            thread=thread,
        )

    def _idle(self, device: int) -> Lane:
        bubbles = self.analysis.bubbles
        is_shown = self.overlaps_window(bubbles.start_ns, bubbles.end_ns)
        bubble, chosen = bubbles.pieces_of(bubbles.rows_of(device), is_shown)
        next_id = bubbles.next_id[bubble]
        line, operator = self._ran_during(bubbles.start_ns[chosen], bubbles.end_ns[chosen])
        return Lane(
            id=f"idle:{device}",
            label=f"GPU {device} idle",
            device=device,
            kinds=_keys(Cause),
            start_ns=bubbles.start_ns[chosen],
            end_ns=bubbles.end_ns[chosen],
            kind=bubbles.cause[chosen].astype(np.uint8),
            more={
                "row": self.rows_of_events(next_id),
                "next": self.name_index(next_id),
                "line": line,
                "op": operator,
                "why_unknown": self.text_index(map(REASONS.get, Reason))[bubbles.reason[chosen]],
            },
            summary=device == self.device,
        )

    def _ran_during(
        self, start_ns: Int64Array, end_ns: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the line, else the operator (a string's index), that the host ran in each gap.

        It is of the function with most time; ABSENT below half. Gaps (int64[k], ns) are in order.
        """
        lines, operators = self.program_lines, self.timeline.operators
        places = [(x.name, x.where and x.where.rpartition(":")[0]) for x in lines.names]
        function_of_line = np.array([places.index(x) for x in places], dtype=np.int64)
        pieces = [np.zeros((3, 0), dtype=np.int64)]  # the gap, what ran, ns; operators after lines
        for thread, part in self.analysis.phases.threads_in_charge(union(start_ns, end_ns)):
            if thread == ABSENT:
                continue
            own = operators.entries_of(thread)
            cuts_ns = [part.starts, part.ends, start_ns, lines.boundaries_ns(thread)]
            cuts_ns += [operators.start_ns[own], operators.end_ns[own]]
            at_ns = np.unique(np.concatenate(cuts_ns))
            is_inside = np.flatnonzero(contains(part, at_ns[:-1]))
            length_ns, at_ns = np.diff(at_ns)[is_inside], at_ns[is_inside]
            line = lines.at(thread, at_ns)
            operator = operators.names(operators.innermost_at(thread, at_ns))
            ran = np.where(operator == ABSENT, ABSENT, len(lines.names) + operator)
            ran = np.where(line == ABSENT, ran, line)
            gap = np.searchsorted(start_ns, at_ns, side="right") - 1
            pieces.append(np.stack((gap, ran, length_ns))[:, ran != ABSENT])
        gap, ran, length_ns = np.concatenate(pieces, axis=1)
        function = ran.copy()
        is_line = ran < len(lines.names)
        function[is_line] = function_of_line[ran[is_line]]
        most, most_ns = _largest(gap, function, length_ns, len(start_ns))
        most[most_ns < _MIN_SHARE_OF_GAP * (end_ns - start_ns)] = ABSENT
        chosen = function == most[gap]
        most, _ = _largest(gap[chosen], ran[chosen], length_ns[chosen], len(start_ns))
        is_operator = most >= len(lines.names)
        return np.where(is_operator, ABSENT, most), np.where(
            is_operator, most - len(lines.names), ABSENT
        )

    def _exposed(self, device: int) -> Iterator[Lane]:
        exposed, timeline = self.analysis.exposed, self.timeline
        is_shown = self.overlaps_window(exposed.start_ns, exposed.end_ns)
        chosen = np.flatnonzero(is_shown & (timeline.device_number[exposed.row] == device))
        chosen = chosen[np.argsort(exposed.start_ns[chosen], kind="stable")]
        row, blocked = exposed.row[chosen], exposed.blocked_row[chosen]
        if len(chosen):
            yield Lane(
                id=f"exposed:{device}",
                label=f"GPU {device} exposed",
                device=device,
                kinds=("exposed_comm", "exposed_copy"),
                start_ns=exposed.start_ns[chosen],
                end_ns=exposed.end_ns[chosen],
                kind=(timeline.kind[row] == Kind.COPY).astype(np.uint8),
                more={
                    "row": self.row_of[row],
                    "blocker": exposed.blocker[chosen],
                    "name": self.name_index(timeline.event_id[row]),
                    "could": self.name_index(_take(timeline.event_id, blocked)),
                    "bound": exposed.bound_ns[chosen],
                },
                terms={"blocker": _keys(OverlapBlocker)},
            )

    def _path(self) -> Lane:
        path = self.analysis.critical_paths[0]
        return Lane(
            id="path",
            label="critical path",
            kinds=_keys(PathKind),
            start_ns=path.start_ns,
            end_ns=path.end_ns,
            kind=path.kind.astype(np.uint8),
            more={
                "row": self.rows_of_events(path.event_id),
                "name": self.name_index(path.event_id),
            },
        )

    def _busy(self, device: int) -> Lane:
        timeline, window = self.timeline, self.window
        busy = [
            clip(timeline.busy(slice(x.first_row, x.end_row)), window.start_ns, window.end_ns)
            for x in timeline.streams
            if x.device_number == device
        ]
        starts, ends = ([getattr(one, side) for one in busy] for side in ("starts", "ends"))
        time_ns = np.concatenate(([window.start_ns], *starts, *ends))
        change = np.repeat((0, 1, -1), (1, sum(map(len, starts)), sum(map(len, ends))))
        start_ns, value = _sums(time_ns, change)
        return Lane(
            id=f"busy:{device}",
            label=f"GPU {device} busy",
            device=device,
            kinds=("counter",),
            start_ns=start_ns,
            end_ns=np.append(start_ns[1:], time_ns.max()),
            kind=np.zeros(len(value), dtype=np.uint8),
            more={"value": value},
            unit="streams",
        )

    def _memory(self) -> Iterator[Lane]:
        memory, retries = self.trace.memory, find_retries(self.timeline)
        for device in self.timeline.device_numbers:
            own = np.flatnonzero(memory.device_number == device)
            time_ns, retried_ns = memory.time_ns[own], retries[device]
            count = np.arange(1, len(retried_ns) + 1)
            for name, unit, start_ns, value in (
                ("allocated", "bytes", time_ns, memory.allocated_bytes[own]),
                ("reserved", "bytes", time_ns, memory.reserved_bytes[own]),
                ("retries", "retries", retried_ns, count),
            ):
                yield from self._counter(device, name, unit, start_ns, value)

    def _product_rates(self) -> Iterator[Lane]:
        timeline = self.timeline
        call_id = self.analysis.origins.call_id(timeline.launch_id)
        for device in timeline.device_numbers:
            rows = np.flatnonzero(timeline.device_number == device)
            flops = products(timeline, rows, call_id[rows]).flops
            rows, flops = rows[flops > 0], flops[flops > 0]
            start_ns, end_ns = timeline.start_ns[rows], timeline.end_ns[rows]
            rate = 1e9 * flops / np.maximum(1, end_ns - start_ns)
            sums = _sums(np.append(start_ns, end_ns), np.append(rate, -rate))
            yield from self._counter(device, "FLOP/s", "FLOP/s", *sums)

    def _counter(
        self, device: int, name: str, unit: str, start_ns: Int64Array, value: Int64Array
    ) -> Iterator[Lane]:
        end_ns = np.append(start_ns[1:], self.window.end_ns)
        shown = self.overlaps_window(start_ns, end_ns) & (end_ns > start_ns) & (value != ABSENT)
        if shown.any():
            yield Lane(
                id=f"counter:{device}/{''.join(filter(str.isalnum, name)).lower()}",
                label=f"GPU {device} {name}",
                device=device,
                kinds=("counter",),
                start_ns=start_ns[shown],
                end_ns=end_ns[shown],
                kind=np.zeros(int(shown.sum()), dtype=np.uint8),
                more={"value": value[shown]},
                unit=unit,
            )

    def _origins(self) -> NDArray[np.int64]:
        origins, rows = self.analysis.origins, self.rows
        known = np.flatnonzero(origins.surest_basis[rows] != ABSENT)
        # All replays of a node share a text.
        columns = origins.event_id, origins.basis, origins.annotation_index
        keys = np.stack([column[rows[known]].astype(np.int64) for column in columns], axis=1)
        _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        texts = origin_texts(self.timeline, origins, rows[known[first]], self.analysis.lines)
        captured = np.full(len(rows), ABSENT, dtype=np.int64)
        captured[known] = self.text_index(texts)[index.reshape(-1)]
        return captured


def _sums(time_ns: Int64Array, change: NDArray[Any]) -> tuple[Int64Array, Int64Array]:
    """Return the times at which the sum of changes differs, and that sum, rounded."""
    at_ns, index = np.unique(time_ns, return_inverse=True)
    value = np.rint(np.cumsum(np.bincount(index, weights=change))).astype(np.int64)
    changes = np.flatnonzero(np.diff(value, prepend=ABSENT))
    return at_ns[changes], value[changes]


def _keys(members: Iterable[IntEnum]) -> tuple[str, ...]:
    return tuple(member.name.lower() for member in members)


def _largest(
    group: Int64Array, key: Int64Array, size: Int64Array, groups: int
) -> tuple[Int64Array, Int64Array]:
    """Return each group's key with the largest sum of sizes, and that; else ABSENT."""
    pairs, index = np.unique(np.stack((group, key)), axis=1, return_inverse=True)
    total = summed(index.reshape(-1), size, pairs.shape[1])
    order = np.lexsort((total, pairs[0]))  # the largest of each group is its last
    largest, sums = np.full((2, groups), ABSENT, dtype=np.int64)
    largest[pairs[0, order]], sums[pairs[0, order]] = pairs[1, order], total[order]
    return largest, sums


def _positions(event_id: Int64Array, wanted_id: Int64Array) -> NDArray[np.intp]:
    """Return the position of each event in a column without repeats, or ABSENT."""
    if not len(event_id):
        return np.full(len(wanted_id), ABSENT, dtype=np.intp)
    position = rows_of(event_id, wanted_id)
    return np.where(event_id[position] == wanted_id, position, ABSENT)


def _take(values: NDArray[Any], index: NDArray[Any]) -> Int64Array:
    taken: Int64Array = np.append(values.astype(np.int64), ABSENT)[index]
    return taken


def _compact(lane: Lane, index_of: Int64Array) -> Lane:
    more = {
        key: index_of[column] if key in NAME_COLUMNS else column
        for key, column in lane.more.items()
    }
    narrow = {key: x if key in WIDE_COLUMNS else x.astype(np.int32) for key, x in more.items()}
    return replace(lane, more=narrow)
