"""Work of the steady steps by the operator, phase, line and module that launched or did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int8Array,
    Int64Array,
    IntArray,
    concatenated,
    rows_at,
)
from tracelab.base.intervals import Intervals, contains, join, overlapping_pairs, union
from tracelab.measures.idle_causes import Bubbles
from tracelab.measures.measure import summed
from tracelab.measures.unprofiled_windows import HostClock
from tracelab.model.arithmetic import Products, products
from tracelab.model.cuda_graphs import Basis, Origins
from tracelab.model.graph import Graph
from tracelab.model.lookup import Nesting
from tracelab.model.phases import ModuleName, ModulePaths, Phase, Phases
from tracelab.model.program.call_sites import CallSite, call_sites, program_calls, waiting_threads
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# In a column of names: nothing that has one; no host in the file; a wait for other threads.
NO_NAME, NO_HOST, WAITED = -1, -2, -3
OUTSIDE_FUNCTIONS = "outside any function"


class LineName(NamedTuple):
    """Name and place of a line."""

    name: str
    where: str | None = None


def line_name(site: CallSite) -> LineName | None:
    """The line of a call site; None where no function of the program is known."""
    if site.function is None:
        return None
    if site.line is not None:
        return LineName(site.function, f"{site.file}:{site.line}")
    call = "" if site.call is None else f"{site.call} in "
    return LineName(f"{call}{site.function}", site.file)


class ProgramLines:
    """The line of the program's own code that the host was in, at any moment.

    It is the innermost one, also around a library's function. Autograd's threads are in the line
    that called the backward pass, threads without Python in the line that waits for them, unless
    two threads are in one together. `names` is empty where the file has no Python functions of the
    program.
    """

    def __init__(self, timeline: Timeline, lines: SourceLines, within: Intervals) -> None:
        trace, calls = timeline.trace, program_calls(timeline)
        is_there = trace.end_ns[calls.event_id] > (within.starts[0] if len(within) else 0)
        is_there &= trace.start_ns[calls.event_id] < (within.ends[-1] if len(within) else 0)
        event_id, site_id = calls.event_id[is_there], calls.site_id[is_there]
        self._timeline, self._trace, self._calls = timeline, trace, Nesting(trace, event_id)
        self._backward, self._autograd_threads = calls.backward, calls.autograd_threads
        names = list(map(line_name, call_sites(timeline, site_id, lines)))
        numbers = {name: number for number, name in enumerate(filter(None, dict.fromkeys(names)))}
        self.names = tuple(numbers)
        line_of_event = np.full(len(trace), ABSENT, dtype=np.int64)
        line_of_event[event_id] = [ABSENT if name is None else numbers[name] for name in names]
        self._line = np.append(line_of_event[self._calls.event_id], ABSENT)  # the last is ABSENT's

    def at(self, thread: int, moments_ns: Int64Array) -> Int64Array:
        """[k], index of the line that a thread was in at each ascending moment, else ABSENT."""
        return self._lines_of(self._calls.innermost_at(thread, moments_ns), thread, moments_ns)

    def of_events(self, events: Int64Array) -> Int64Array:
        """[k], index of the line in which each event (event id) began, else ABSENT."""
        by_start = np.argsort(self._trace.start_ns[events], kind="stable")
        events, line = events[by_start], np.empty(len(events), dtype=np.int64)
        start_ns = self._trace.start_ns[events]
        found = self._lines_at(self._trace.thread_index[events], start_ns)
        open_ = np.flatnonzero(found == ABSENT)
        waiting = waiting_threads(self._timeline, events[open_])
        found[open_] = self._lines_at(waiting, start_ns[open_])
        line[by_start] = found
        return line

    def boundaries_ns(self, thread: int) -> Int64Array:
        """Moments at which the line of a thread may change; in any order."""
        calls, threads = self._calls, [thread]
        boundaries_ns = []
        if thread in self._autograd_threads:
            threads += list(self._backward)
            boundaries_ns = [x for of in self._backward.values() for x in (of.starts, of.ends)]
        for one in threads:
            own = calls.entries_of(one)
            boundaries_ns += [calls.start_ns[own], calls.end_ns[own]]
        return np.concatenate(boundaries_ns)

    def _lines_at(self, threads: IntArray, moments_ns: Int64Array) -> Int64Array:
        return self._lines_of(self._calls.innermost_of(threads, moments_ns), threads, moments_ns)

    def _lines_of(
        self, index: Int64Array, threads: IntArray | int, moments_ns: Int64Array
    ) -> Int64Array:
        """The lines of calls; in autograd's threads else those of their callers."""
        line = self._line[index]
        is_alone = (line == ABSENT) & np.isin(threads, list(self._autograd_threads))
        line[is_alone] = self._find_caller_lines(moments_ns[is_alone])
        return line

    def _find_caller_lines(self, moments_ns: Int64Array) -> Int64Array:
        line, count = np.full((2, len(moments_ns)), 0, dtype=np.int64)
        for thread, backward in self._backward.items():
            inside = np.flatnonzero(contains(backward, moments_ns))
            line[inside] = self._line[self._calls.innermost_at(thread, moments_ns[inside])]
            count[inside] += 1
        return np.where(count == 1, line, ABSENT)


class Labels(Arrays):
    """Labels of the host's work at some moments or calls ([k]).

    Operators index `Trace.strings`, lines and modules those of `WhatRan`; or NO_NAME, NO_HOST or
    WAITED.
    """

    operator: Int64Array
    phase: Int8Array
    line: Int64Array
    module: Int64Array

    def __len__(self) -> int:
        return len(self.phase)


class WhatRan(Arrays):
    """Launched work and host work of the steady steps.

    Attributes:
        step: the step that is requested alone, or None.
        steps, unprofiled_steps: how many steps, and how many of them the time without the profiler
            is of; None without any.
        length_ns, kernel, kind, products, occupancy_percent, launched_in: [r], of each GPU
            activity; `kernel` is an index into `strings`.
        came_from: [r], where nodes of a graph were captured, as far as known (`Origins`), else the
            launch. An annotation of the graph is a module, and where no call is known a line.
        basis: by column of `came_from` the `Basis` of each label; ABSENT for one of the launch.
        is_first: bool[r], the first activity of its launch here.
        host: [h], each combination that the host was in once.
        host_ns, host_unprofiled_ns, idle_ns: int64[h], how long it was in that in its own steps,
            the same without the profiler in the replayed steps or 0, and how long the devices were
            idle meanwhile, added up.
        calls: how often each "operator" and "module" began in the host's steps, on a thread that
            counted then.
    """

    strings: Sequence[str]
    step: int | None
    steps: int | None
    unprofiled_steps: int | None
    is_forward_inferred: bool
    lines: tuple[LineName, ...]
    modules: tuple[ModuleName, ...]
    length_ns: Int64Array
    kernel: Int64Array
    kind: Int8Array
    products: Products
    occupancy_percent: Int64Array
    launched_in: Labels
    came_from: Labels
    basis: Mapping[str, Int8Array]
    is_first: BoolArray
    host: Labels
    host_ns: Int64Array
    host_unprofiled_ns: Int64Array
    idle_ns: Int64Array
    calls: Mapping[str, Counter[int]]


def what_ran(
    graph: Graph,
    windows: Sequence[Window],
    phases: Phases,
    lines: SourceLines,
    bubbles: Bubbles,
    host_clock: HostClock | None,
    origins: Origins,
) -> WhatRan:
    """Label what the steady steps launched, and the host's time in them."""
    timeline = graph.host.timeline
    indices, on_host, within = _scope(timeline, windows[0])
    clock = host_clock if windows[0].step is None else None
    rows = (
        np.arange(len(timeline.event_id))
        if indices is None
        else np.flatnonzero(np.isin(timeline.step_index, indices))
    )
    trace, call_id = timeline.trace, origins.event_id[rows]
    call_id = call_id[call_id != ABSENT]
    called = union(trace.start_ns[call_id], trace.end_ns[call_id])
    host = _Host(timeline, phases, lines, join(join(on_host, within), called))
    launched_in = host.label_launches(timeline.launch_id[rows])
    came_from, basis = _origin_labels(timeline, host, origins, rows, launched_in)
    annotations = origins.annotations
    _, first = np.unique(timeline.launch_id[rows], return_index=True)
    is_first = np.zeros(len(rows), dtype=np.bool_)
    is_first[first] = True
    labels, host_ns, host_unprofiled_ns, idle_ns = _host_time(
        host, on_host, within, _idle(bubbles, within), clock
    )
    return WhatRan(
        strings=trace.strings,
        step=windows[0].step,
        steps=None if indices is None else len(indices),
        unprofiled_steps=None if clock is None else clock.steps,
        is_forward_inferred=phases.is_forward_inferred,
        lines=(*host.lines.names, *map(LineName, annotations)) if host.lines.names else (),
        modules=(*host.modules.names, *map(ModuleName, annotations)),
        length_ns=timeline.end_ns[rows] - timeline.start_ns[rows],
        kernel=trace.name_index[timeline.event_id[rows]].astype(np.int64),
        kind=timeline.kind[rows],
        products=products(timeline, rows, origins.call_id(timeline.launch_id)[rows]),
        occupancy_percent=trace.occupancy_percent[timeline.event_id[rows]],
        launched_in=launched_in,
        came_from=came_from,
        basis=basis,
        is_first=is_first & (timeline.launch_id[rows] != ABSENT),
        host=labels,
        host_ns=host_ns,
        host_unprofiled_ns=host_unprofiled_ns,
        idle_ns=idle_ns,
        calls=host.calls(on_host),
    )


def _origin_labels(
    timeline: Timeline, host: _Host, origins: Origins, rows: IndexArray, launched_in: Labels
) -> tuple[Labels, Mapping[str, Int8Array]]:
    annotation, by_call = origins.annotation_index[rows], origins.basis[rows]
    has_annotation = annotation != ABSENT
    labels = launched_in
    if (by_call != ABSENT).any():
        labels = host.label_launches(origins.call_id(timeline.launch_id)[rows])
    by_annotation = np.where(has_annotation, Basis.ANNOTATION, by_call).astype(np.int8)
    basis = {"operator": by_call, "phase": by_call, "module": by_annotation, "line": by_call}
    line, module = labels.line, labels.module
    module = np.where(has_annotation, len(host.modules.names) + annotation, module)
    if host.lines.names:
        is_line = has_annotation & (by_call == ABSENT)
        line = np.where(is_line, len(host.lines.names) + annotation, line)
        basis["line"] = np.where(is_line, Basis.ANNOTATION, by_call).astype(np.int8)
    return replace(labels, line=line, module=module), basis


def _scope(timeline: Timeline, window: Window) -> tuple[Sequence[int] | None, Intervals, Intervals]:
    """Return the steps that count, as indices into `Timeline.steps`, and their intervals."""
    trace, steps = timeline.trace, timeline.steps
    if window.step is not None:
        indices: Sequence[int] = [i for i in range(len(steps)) if steps[i].number == window.step]
    elif timeline.steady is not None:
        indices = timeline.steady.indices
    else:
        launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
        host_start_ns = trace.start_ns[launch_id].min(initial=window.start_ns)
        within = union([window.start_ns], [window.end_ns])
        return None, union([host_start_ns], [window.end_ns]), within
    chosen = [steps[i] for i in indices]
    event_ids = np.array([step.event_id for step in chosen], dtype=np.intp)
    return (
        indices,
        union(trace.start_ns[event_ids], trace.end_ns[event_ids]),
        union([step.start_ns for step in chosen], [step.end_ns for step in chosen]),
    )


class _Host:
    def __init__(
        self, timeline: Timeline, phases: Phases, source: SourceLines, within: Intervals
    ) -> None:
        self.phases, self.operators = phases, timeline.operators
        self.lines = ProgramLines(timeline, source, within)
        self.modules = ModulePaths(timeline)

    def label_launches(self, launch_id: Int64Array) -> Labels:
        launch_ids, index = np.unique(launch_id, return_inverse=True)
        is_launched = launch_ids != ABSENT
        launched = launch_ids[is_launched]
        found = Labels(
            operator=self.operators.names(self.operators.innermost(launched)),
            phase=self.phases.phases_of(launched),
            line=self.lines.of_events(launched),
            module=self.modules.modules_of(launched),
        )
        unknown = _unknown(len(launch_ids) - len(launched))
        # ABSENT is the first of the launches.
        return rows_at(concatenated([unknown, found]), index)

    def labels_at(self, thread: int, moments_ns: Int64Array) -> Labels:
        """Label a thread's work at each moment (int64[k], ns, ascending); ABSENT is no thread."""
        if thread == ABSENT:
            return _unknown(len(moments_ns))
        operator = self.operators.names(self.operators.innermost_at(thread, moments_ns))
        phase = self.phases.phases_at(thread, moments_ns)
        return Labels(
            operator=np.where(phase == Phase.WAITING, WAITED, operator),
            phase=phase,
            line=self.lines.at(thread, moments_ns),
            module=self.modules.modules_at(thread, moments_ns),
        )

    def boundaries_ns(self, thread: int) -> Int64Array:
        if thread == ABSENT:
            return np.zeros(0, dtype=np.int64)
        own = self.operators.entries_of(thread)
        return np.concatenate(
            (
                self.operators.start_ns[own],
                self.operators.end_ns[own],
                self.phases.boundaries_ns(thread),
                self.lines.boundaries_ns(thread),
                self.modules.boundaries_ns(thread),
            )
        )

    def calls(self, on_host: Intervals) -> Mapping[str, Counter[int]]:
        counts: Mapping[str, Counter[int]] = {"operator": Counter(), "module": Counter()}
        for thread, part in self.phases.threads_in_charge(on_host):
            if thread == ABSENT:
                continue
            own = self.operators.entries_of(thread)
            operator = self.operators.names(np.arange(own.start, own.stop))
            for name, start_ns, label in (
                ("operator", self.operators.start_ns[own], operator),
                ("module", *self.modules.begun(thread)),
            ):
                labels, times = np.unique(label[contains(part, start_ns)], return_counts=True)
                counts[name].update(dict(zip(labels.tolist(), times.tolist(), strict=True)))
        return counts


def _unknown(count: int) -> Labels:
    no_host = np.full(count, NO_HOST, dtype=np.int64)
    return Labels(no_host, np.full(count, Phase.UNKNOWN, dtype=np.int8), no_host, no_host)


def _idle(bubbles: Bubbles, within: Intervals) -> Intervals:
    """The idle time of every device within some time, one device after the other."""
    idle = bubbles.all_idle
    of_idle, part = overlapping_pairs(Intervals(idle.start_ns, idle.end_ns), within)
    return Intervals(
        np.maximum(idle.start_ns[of_idle], within.starts[part]),
        np.minimum(idle.end_ns[of_idle], within.ends[part]),
    )


def _host_time(
    host: _Host, on_host: Intervals, within: Intervals, idle: Intervals, clock: HostClock | None
) -> tuple[Labels, Int64Array, Int64Array, Int64Array]:
    """All that the host was in, with its time in that, and the devices' idle time."""
    labels = [_unknown(0)]
    lengths_ns = [np.zeros((3, 0), dtype=np.int64)]
    for thread, part in host.phases.threads_in_charge(join(on_host, within)):
        pieces = _pieces(host, thread, part, on_host)
        labels.append(host.labels_at(thread, pieces.starts))
        of_piece_ns = np.zeros((3, len(pieces)), dtype=np.int64)
        is_host = contains(on_host, pieces.starts)
        of_piece_ns[0] = np.where(is_host, pieces.ends - pieces.starts, 0)
        if clock is not None:
            unprofiled_ns = clock.lengths_ns(pieces.starts, pieces.ends)
            of_piece_ns[1] = np.where(is_host, unprofiled_ns, 0)
        of_piece_ns[2] = _sum_before(idle, pieces.ends) - _sum_before(idle, pieces.starts)
        lengths_ns.append(of_piece_ns)
    of_pieces = concatenated(labels)
    key = np.zeros(len(of_pieces), dtype=np.int64)
    for column in (of_pieces.operator, of_pieces.phase, of_pieces.line, of_pieces.module):
        key = key * (column.max(initial=0) - WAITED + 1) + (column - WAITED)
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    host_ns, unprofiled_ns, idle_ns = (
        summed(index, of_piece_ns, len(first)) for of_piece_ns in np.concatenate(lengths_ns, axis=1)
    )
    return rows_at(of_pieces, first), host_ns, unprofiled_ns, idle_ns


def _sum_before(intervals: Intervals, times_ns: Int64Array) -> Int64Array:
    """int64[k], ns, how much of all intervals, which may overlap, lies before each time."""
    # A time before an end and a start counts in both sums.
    sum_ns = np.zeros(len(times_ns), dtype=np.int64)
    for bound_ns, sign in ((intervals.ends, 1), (intervals.starts, -1)):
        before_ns = np.concatenate(([0], np.cumsum(np.sort(bound_ns))))
        count = np.searchsorted(np.sort(bound_ns), times_ns)
        sum_ns += sign * (before_ns[count] + (len(bound_ns) - count) * times_ns)
    return sum_ns


def _pieces(host: _Host, thread: int, part: Intervals, on_host: Intervals) -> Intervals:
    """The time of a thread, cut wherever what it is in changes, or a step of the host."""
    cuts_ns = [part.starts, part.ends, on_host.starts, on_host.ends, host.boundaries_ns(thread)]
    moments_ns = np.sort(np.concatenate(cuts_ns))
    is_piece = contains(part, moments_ns)[:-1] & (np.diff(moments_ns) > 0)
    return Intervals(moments_ns[:-1][is_piece], moments_ns[1:][is_piece])
