"""Calibration: from the recorded program to the same one without the profiler.

The profiler's cost per operator, frame and driver call is fitted to the host's unprofiled time, not
to the step: where the GPU decides, any cost fits that. Where none fits the host, its pace is
changed.

The profiler delays nodes of CUDA graphs by 0.1 us each, and queued graphs by several us: as much of
these gaps goes as the step needs, or both ends are possible. Kernels and other gaps stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, rows_at
from tracelab.base.intervals import Intervals, contains, measure_within, union
from tracelab.measures.measure import summed
from tracelab.model.binding import Constraint
from tracelab.model.blocking_calls import is_inside
from tracelab.model.frames import MODULE_PREFIX
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, is_graph_launch
from tracelab.model.lookup import expand_ranges, groups_of, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import (
    NEVER,
    NodeKind,
    Program,
    Via,
    replace_cost,
    replace_latency,
    times,
)
from tracelab.simulate.recorded import host_steps
from tracelab.simulate.replay import REPETITIONS, replay
from tracelab.simulate.sites import other_work, stretches

# A Python function takes 0.24 us to record; an operator 0.66, a module 0.92
# (tests/benchmarks/event_costs.py).
_OF_FUNCTION, _OF_EVENT = 0.25, 1.0
# 19 of 20 bundled captures need at most 5.7 us an event (tests/benchmarks/calibrations.py).
_MAX_COST_NS = 10_000
_COSTS_NS = np.linspace(0, _MAX_COST_NS, 41)
# Half of 150 captures need 1.3 to 3.2 us an event, one in ten over 5 us
# (tests/benchmarks/calibrations.py). Below the first, other host work was slower when timed (numpy:
# 57 to 69 ms); above the last, the profiler slows all of the host.
_MIN_COST_NS, _TYPICAL_COST_NS, _LARGE_COST_NS = 1_000, 2_000, 5_000
_PACES = np.linspace(0.15, 2, 75)
_COARSE_PACES = np.append(np.arange(0, 74, 8), 74)  # indices of `_PACES`
# The share of a stretch of time that stays, however much is recorded in it.
MIN_LEFT_SHARE = 0.1
# From the end of the host's part to a wait that is over: the first recorders took 98 to 250 us.
_WAIT_NS = (5_000, 60_000)
_FIRST_BLOCK_STEPS, _FIRST_WAIT_NS = 2, (95_000, 250_000)
# Two blocks of steps without the profiler differ by as much.
_NOISE = 0.02
# Where the host waits for the GPU, all costs in a wide range fit.
_VAGUE_NS = 1_000
# As near a fitted cost comes to what the host took.
_FITTED = 0.005
# Then what the GPU still does at the end of a block depends on where in a step the host was slowed,
# and says nothing of its speed.
_HOST_DECIDES = 0.9
# The same products took up to 12 % longer than in the steps that were timed: other clocks.
_MAX_GPU_FACTOR = 1.15
# Of the gaps before the nodes of graphs, what may be the profiler's.
_GAP_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Recording(Arrays):
    """Work of the profiler during the host's part of a program: events, edge by edge, node by node.

    Begins and ends of events cut edges into pieces; a Python function counts as a quarter event.
    """

    of_edge: NDArray[np.float64]
    of_node: NDArray[np.float64]
    profiler_ns: Int64Array
    piece_edge: IndexArray
    piece_ns: Int64Array
    piece_functions: NDArray[np.float64]

    def edge_overheads_ns(self, event_ns: float) -> NDArray[np.float64]:
        """float64[e], ns, what the profiler took of each edge, if an event took so long.

        Functions take no more of a piece than it can lose.
        """
        most_ns = self.piece_ns * (1 - MIN_LEFT_SHARE)
        too_much_ns = np.maximum(self.piece_functions * event_ns - most_ns, 0)
        of_edge_ns = np.bincount(self.piece_edge, too_much_ns, len(self.of_edge))
        return np.asarray(self.of_edge * event_ns - of_edge_ns)


class Fit(Arrays):
    """A program whose host takes what it took without the profiler.

    Attributes:
        least, most: with the least and most cost that fit, where they differ much.
        event_ns: the cost of one recorded event, ns.
        host_ns: the host's time of a step, as the recorder times it.
        shortest_ns, longest_ns: the step, timed like that.
        time_ns: int64[n], ns, when each node is first reached.
    """

    program: Program
    least: Program
    most: Program
    event_ns: float
    host_ns: float
    shortest_ns: float
    longest_ns: float
    time_ns: Int64Array

    def nearest_ns(self, timed_ns: float) -> float:
        """The possible step length nearest to the timed one, ns."""
        return min(max(timed_ns, self.shortest_ns), self.longest_ns)

    def off_by(self, timed_ns: float) -> float:
        """Error as a share of the timed length."""
        return abs(self.nearest_ns(timed_ns) / timed_ns - 1)


class Calibration(Fit):
    """A program without the profiler, and how it compares with what the recorder timed.

    `step_ns` is the possible length nearest to the timed one; `ends` have the least and most cost.
    """

    step_ns: int
    ends: tuple[Program, ...]


def calibrate(graph: Graph, program: Program) -> Calibration | None:
    """Fit what the profiler took for each event.

    None where nothing was timed or launched, or the host does not go on to another step.
    """
    info = graph.host.timeline.trace.info
    timed_ns, measured_ns = info.unprofiled_step_ns, info.unprofiled_host_step_ns
    if timed_ns is None or measured_ns is None or not _calls_of_steps(graph, program).any():
        return None
    blocks = _Blocks(graph, program, info.unprofiled_block_steps)
    if not blocks.go_on:
        return None
    recording = count_recorded(graph, program)
    is_gap = _is_graph_gap(graph, program)
    is_other = other_work(graph.host.timeline, program)
    is_compute = (program.kind == NodeKind.ACTIVITY) & (program.activity_kind == Kind.COMPUTE)

    @functools.cache
    def fit(share: float, gpu: float = 1.0) -> Fit:
        shorter = replace_latency(program, is_gap, times(program.latency_ns, 1 - share))
        scaled = replace_cost(shorter, is_compute, times(program.cost_ns, gpu))
        return _fit(blocks, scaled, recording, timed_ns, measured_ns, is_other)

    shares = _GAP_SHARES if is_gap.any() else _GAP_SHARES[:1]
    least, most = _fitting_shares(list(map(fit, shares)), shares, timed_ns, measured_ns)
    middle = (least + most) / 2
    fitted, slow, fast = fit(middle), fit(least), fit(most)
    ends: tuple[Program, ...] = ()
    if most > least or fitted.least is not fitted.program:
        ends = (slow.least, fast.most)
    far = _MAX_GPU_FACTOR if fitted.longest_ns < timed_ns else 1 / _MAX_GPU_FACTOR
    # Kernels that wait for other ranks do not show the GPU's speed.
    if fitted.off_by(timed_ns) > _NOISE and not (program.activity_kind == Kind.COMM).any():
        gpu = _gpu_at(timed_ns, fitted, fit(middle, far), far)
        if (scaled := fit(middle, gpu)).off_by(timed_ns) <= _NOISE:
            ends = (*(ends or (fitted.program,)), scaled.program)
            fitted = scaled
    return Calibration(**asdict(fitted), step_ns=round(fitted.nearest_ns(timed_ns)), ends=ends)


def _fit(
    blocks: _Blocks,
    program: Program,
    recording: Recording,
    timed_ns: float,
    measured_ns: float,
    is_other: BoolArray,
) -> Fit:
    without = functools.partial(remove_profiler, program, recording)

    def times_of(candidates: Sequence[Program]) -> NDArray[np.float64]:
        return blocks.measure(candidates, blocks.replay(candidates))[0]

    host_ns = times_of([*map(without, _COSTS_NS.tolist())])
    wanted_ns = measured_ns * np.array((1 + _NOISE, 1, 1 - _NOISE))
    least_ns, event_ns, most_ns = np.interp(wanted_ns, host_ns[::-1], _COSTS_NS[::-1]).tolist()
    is_over = host_ns[-1] > (1 + _NOISE) * measured_ns  # no cost is enough
    fitted = least = most = without(event_ns)
    if most_ns - least_ns > _VAGUE_NS:
        least, most = without(least_ns), without(most_ns)
    is_under = event_ns < _MIN_COST_NS and is_other.any()
    if is_under or is_over:
        costs_ns = (event_ns if is_under else 0, _TYPICAL_COST_NS, _LARGE_COST_NS)
        left = [*map(without, costs_ns)]
        paced = _paced(times_of, left, is_other if is_under else None, measured_ns)
        if paced is not None:
            # What no cost explains is a guess: what the highest one leaves is possible, too.
            least, most = paced[0], paced[2] if is_under else fitted
            fitted, event_ns = paced[1], _TYPICAL_COST_NS
    time_ns = blocks.replay([fitted])
    [host_ns], [[shortest_ns, longest_ns]] = blocks.measure([fitted], time_ns)
    if host_ns >= _HOST_DECIDES * timed_ns:
        shortest_ns = min(shortest_ns, host_ns)
    return Fit(fitted, least, most, event_ns, host_ns, shortest_ns, longest_ns, time_ns[:, 0])


def _paced(
    times_of: Callable[[Sequence[Program]], NDArray[np.float64]],
    programs: Sequence[Program],
    slowed: BoolArray | None,
    measured_ns: float,
) -> list[Program] | None:
    """Give work of the host another pace, so that it takes what it took; None where none does."""
    paced = []
    for program in programs:
        paces = _PACES[_COARSE_PACES]
        for _ in range(2):  # then between the two that are nearest
            host_ns = times_of([set_pace(program, pace, slowed) for pace in paces.tolist()])
            if not host_ns[0] <= measured_ns <= host_ns[-1]:
                return None
            pace = float(np.interp(measured_ns, host_ns, paces))
            after = min(int(np.searchsorted(host_ns, measured_ns, "right")), len(paces) - 1)
            paces = _PACES[(paces[after - 1] <= _PACES) & (paces[after] >= _PACES)]
        paced.append(set_pace(program, pace, slowed))
    return paced


def set_pace(program: Program, pace: float, work: BoolArray | None = None) -> Program:
    """Scale the time of some work between calls (bool[e]), else of all the host does."""
    if work is not None:
        return replace_latency(program, work, times(program.latency_ns, pace))
    is_call, is_host = program.kind == NodeKind.CALL, np.isin(program.via, (Via.HOST, Via.THREAD))
    slower = replace_cost(program, is_call, times(program.cost_ns, pace))
    return replace_latency(slower, is_host, times(program.latency_ns, pace))


# --- what it took of the GPU ---


def _is_graph_gap(graph: Graph, program: Program) -> BoolArray:
    # Between two replays only where the recording shows it: one that was queued behind another.
    launch = program.launch_node[program.target]
    is_gap: BoolArray = (program.via == Via.STREAM) & (launch != ABSENT)
    launch_id = program.event_id[launch[is_gap]]
    is_gap[is_gap] = match_names(graph.host.timeline.trace, launch_id, is_graph_launch)
    is_between = is_gap & (program.launch_node[program.source] != launch)
    row = program.row[program.target[is_between]]
    if not (graph.binding.constraint[row] == Constraint.STREAM).any():
        is_gap &= ~is_between
    return is_gap & (program.latency_ns > 0)


def _gpu_at(timed_ns: float, fitted: Fit, far: Fit, far_scale: float) -> float:
    near_ns = fitted.nearest_ns(timed_ns)
    far_ns = far.longest_ns if far_scale > 1 else far.shortest_ns
    share = (timed_ns - near_ns) / (far_ns - near_ns) if far_ns != near_ns else 1.0
    return 1 + min(max(share, 0.0), 1.0) * (far_scale - 1)


def _fitting_shares(
    fits: Sequence[Fit], shares: Sequence[float], timed_ns: float, measured_ns: float
) -> tuple[float, float]:
    slower = [
        max(fit.shortest_ns / timed_ns / (1 + _NOISE), fit.host_ns / measured_ns / (1 + _FITTED))
        for fit in fits
    ]
    faster = [fit.longest_ns / timed_ns / (1 - _NOISE) for fit in fits]
    # A larger share is faster, as a rule: else the first not too slow, and the last not too fast.
    least = float(np.interp(1, np.minimum.accumulate(slower)[::-1], shares[::-1]))
    most = float(np.interp(1, np.maximum.accumulate(faster[::-1]), shares[::-1]))
    return least, max(least, most)


def remove_profiler(program: Program, recording: Recording, event_ns: float) -> Program:
    """Take the time of each event away, and all time of the profiler's own code."""
    latency_ns = program.latency_ns - recording.profiler_ns
    return replace(
        program,
        latency_ns=_shortened(latency_ns, recording.edge_overheads_ns(event_ns)),
        cost_ns=_shortened(program.cost_ns, recording.of_node * event_ns),
    )


def _shortened(length_ns: Int64Array, taken_ns: NDArray[np.float64]) -> Int64Array:
    left_ns = np.maximum(length_ns - taken_ns, length_ns * MIN_LEFT_SHARE)
    return np.where(taken_ns > 0, left_ns.round(), length_ns).astype(np.int64)


# --- what was recorded ---


def count_recorded(graph: Graph, program: Program) -> Recording:
    """Count what was recorded while the host worked: a half at an event's begin, one at its end."""
    begin_ns = graph.host.timeline.trace.start_ns[program.event_id]
    call = np.flatnonzero(program.kind == NodeKind.CALL)
    inside = program.thread_index[call], begin_ns[call], program.moment_ns[call] + 1
    recorded = RecordedEvents(graph)
    edge, thread_index, since_ns, until_ns = _between_calls(graph.host.timeline, recorded, program)
    of_node, of_edge = np.zeros(len(program)), np.zeros(len(program.source))
    # Recording its activities takes a call longer, that of a CUDA graph most of all.
    launch_node = program.launch_node[program.launch_node != ABSENT]
    of_node[call], *_ = recorded.measure(*inside)
    of_node += np.bincount(launch_node, minlength=len(program))
    count, in_profiler_ns, cut = recorded.measure(thread_index, since_ns, until_ns)
    of_stretch, length_ns, of_functions = cut
    np.add.at(of_edge, edge, count)
    profiler_ns = summed(edge, in_profiler_ns, len(program.source))
    wrap = (program.lag == 1) & (program.via == Via.HOST)
    profiler_ns[wrap] += recorded.between_steps_ns()
    is_segment = program.via == Via.HOST
    profiler_ns = np.where(is_segment, np.minimum(profiler_ns, program.latency_ns), 0)
    return Recording(of_edge, of_node, profiler_ns, edge[of_stretch], length_ns, of_functions)


def _between_calls(
    timeline: Timeline, recorded: RecordedEvents, program: Program
) -> tuple[IndexArray, NDArray[np.int32], Int64Array, Int64Array]:
    """The time that edges of the host stand for: edges, threads, since and until, ns."""
    # A thread that was woken counts from its wake-up.
    source, target, via = program.source, program.target, program.via
    is_new = (program.event_id[source] != program.event_id[target]) & (program.lag == 0)
    is_wrap = (program.lag == 1) & (via == Via.HOST)
    edges = np.flatnonzero((is_new & np.isin(via, (Via.HOST, Via.THREAD))) | is_wrap)
    of, since_ns, until_ns = stretches(timeline, program, edges)
    handed = np.flatnonzero(via[edges] == Via.THREAD)
    helper = program.thread_index[source[edges[handed]]]
    woke_ns = recorded.next_ns(program.thread_index[target[edges[handed]]], since_ns[handed])
    return (
        edges[np.append(of, handed)],
        np.append(program.thread_index[target[edges[of]]], helper),
        np.append(since_ns, since_ns[handed]) + 1,
        np.append(until_ns, np.minimum(woke_ns, until_ns[handed])),
    )


# Per piece of stretches: the index of its stretch, its length, ns, and functions at its ends.
_Cut = tuple[IndexArray, Int64Array, NDArray[np.float64]]


class Marks(Arrays):
    """Starts and ends of events: int64[m], ns, ascending."""

    moment_ns: Int64Array
    events: NDArray[np.float64]

    def count(self, since_ns: Int64Array, until_ns: Int64Array) -> NDArray[np.float64]:
        """float64[k], how many events were recorded in stretches, int64[k] since and until, ns."""
        first, end = np.searchsorted(self.moment_ns, (since_ns, until_ns))
        before = np.concatenate((np.zeros(1), np.cumsum(self.events)))
        count: NDArray[np.float64] = before[np.maximum(first, end)] - before[first]
        return count

    def cut(self, since_ns: Int64Array, until_ns: Int64Array) -> _Cut:
        """Cut stretches at these moments, without what comes before the first or after the last."""
        first, end = np.searchsorted(self.moment_ns, (since_ns, until_ns))
        stretch, mark = expand_ranges(first + 1, end)
        functions = np.where(self.events < _OF_EVENT / 2, self.events, 0)
        length_ns = self.moment_ns[mark] - self.moment_ns[mark - 1]
        return stretch, length_ns, (functions[mark - 1] + functions[mark]) / 2

    def inside(self, part: Intervals) -> Marks:
        """Select the marks inside some intervals."""
        return rows_at(self, contains(part, self.moment_ns))


def _marks_of(trace: Trace, event_id: IndexArray) -> Marks:
    is_function = trace.category[event_id] == Category.PYTHON
    is_function &= ~match_names(trace, event_id, lambda name: name.startswith(MODULE_PREFIX))
    events = np.tile(np.where(is_function, _OF_FUNCTION, _OF_EVENT) / 2, 2)
    moment_ns = np.concatenate((trace.start_ns[event_id], trace.end_ns[event_id]))
    order = np.argsort(moment_ns, kind="stable")
    return Marks(moment_ns[order], events[order])


class RecordedEvents:
    """Recorded events of each thread except steps, and the intervals in the profiler.

    Attributes:
        step_start_ns, step_end_ns: int64[steps], ns, the host's part of the steps.
    """

    def __init__(self, graph: Graph) -> None:
        trace, self._host = graph.host.timeline.trace, graph.host
        step_id = np.array([step.event_id for step in graph.host.timeline.steps], dtype=np.intp)
        self.step_start_ns, self.step_end_ns = trace.start_ns[step_id], trace.end_ns[step_id]
        event_id = trace.of_category(
            *HOST_CALLS, Category.OPERATOR, Category.PYTHON, Category.ANNOTATION
        )
        is_left_out = is_inside(trace, event_id, graph.host.profiler_calls)
        is_step = np.zeros(len(trace), dtype=np.bool_)
        is_step[step_id] = True
        event_id = event_id[~is_left_out & ~is_step[event_id]]
        thread = trace.thread_index[event_id]
        self._marks = {
            index: _marks_of(trace, event_id[thread == index])
            for index in graph.host.launching_threads
        }

    def marks(self, thread_index: int) -> Marks:
        """Return the starts and ends of a thread's events."""
        return self._marks.get(thread_index, Marks(np.zeros(0, dtype=np.int64), np.zeros(0)))

    def profiler_calls(self, thread_index: int) -> Intervals:
        """Return when a thread was in the profiler's own code."""
        return self._host.profiler_calls.get(thread_index, union([], []))

    def measure(
        self, thread_index: NDArray[np.int32], since_ns: Int64Array, until_ns: Int64Array
    ) -> tuple[NDArray[np.float64], Int64Array, _Cut]:
        """Measure what the profiler did in stretches of threads, int64[k] since and until, ns."""
        count = np.zeros(len(thread_index))
        profiler_ns = np.zeros(len(thread_index), dtype=np.int64)
        cuts = []
        for thread, index in groups_of(thread_index):
            marks, since, until = self.marks(thread), since_ns[index], until_ns[index]
            count[index] = marks.count(since, until)
            profiler_calls = self.profiler_calls(thread)
            profiler_ns[index] = measure_within(profiler_calls, since, np.maximum(since, until))
            piece, length_ns, of_functions = marks.cut(since, until)
            cuts.append((index[piece], length_ns, of_functions))
        stretch, length_ns, of_functions = map(np.concatenate, zip(*cuts, strict=True))
        return count, profiler_ns, (stretch, length_ns, of_functions)

    def next_ns(self, thread_index: NDArray[np.int32], since_ns: Int64Array) -> Int64Array:
        """int64[k], ns, when the next event begins or ends after some moments."""
        next_ns = since_ns.copy()
        for thread, index in groups_of(thread_index):
            moment_ns = self.marks(thread).moment_ns
            next_index = np.searchsorted(moment_ns, since_ns[index])
            is_there = next_index < len(moment_ns)
            next_ns[index[is_there]] = moment_ns[next_index[is_there]]
        return next_ns

    def between_steps_ns(self) -> int:
        """Typical time of the thread in the profiler between two steps, ns."""
        timeline = self._host.timeline
        if len(timeline.steps) < 2:
            return 0
        thread = int(timeline.trace.thread_index[timeline.steps[0].event_id])
        calls, since_ns = self.profiler_calls(thread), self.step_end_ns[:-1]
        until_ns = np.maximum(since_ns, self.step_start_ns[1:])
        return int(np.median(measure_within(calls, since_ns, until_ns)))


# --- how long blocks of steps take ---


def _calls_of_steps(graph: Graph, program: Program) -> BoolArray:
    if not program.is_repeated:
        return np.zeros(len(program), dtype=np.bool_)
    timeline = graph.host.timeline
    return np.isin(program.thread_index, timeline.trace.thread_index[timeline.steps[0].event_id])


class _Blocks:
    """The steps of a program as the recorder timed them: some in a row, from empty queues on.

    A program of fewer steps is repeated.
    """

    def __init__(self, graph: Graph, program: Program, block_steps: int | None) -> None:
        self._wait_ns = np.array(_FIRST_WAIT_NS if block_steps is None else _WAIT_NS)
        # The first recorders timed two; of a single recorded step it is one, which differs little.
        block_steps = block_steps or min(_FIRST_BLOCK_STEPS, program.steps)
        timeline, start_ns = graph.host.timeline, graph.host.timeline.trace.start_ns
        step_index = host_steps(timeline, program)
        block = (step_index - step_index.min()) // block_steps
        on_thread = np.flatnonzero(_calls_of_steps(graph, program))
        _, first = np.unique(block[on_thread], return_index=True)
        self._whole_blocks = max(1, program.steps // block_steps)
        self._whole_block_steps = block_steps
        self._repeated_steps = max(0, block_steps - program.steps)
        self._steps = program.steps + self._repeated_steps
        self._order = np.argsort(block, kind="stable")
        self._starts = np.searchsorted(block[self._order], np.unique(block[on_thread]))
        self._entry = on_thread[first]
        by_host = np.isin(program.via, (Via.HOST, Via.THREAD))
        self._is_cut = ~by_host & (block[program.source] != block[program.target])
        onward = by_host & (program.lag == 1) & (program.target == self._entry[0])
        self._onward = np.flatnonzero(onward)
        self.go_on = bool(onward.any())
        step_id = timeline.steps[step_index[self._entry[0]]].event_id
        head_ns = start_ns[program.event_id[self._entry[0]]] - start_ns[step_id]
        self._wrap = np.flatnonzero(onward & (program.via == Via.HOST))
        wrap_ns = int(program.latency_ns[self._wrap].sum())
        self._head_share = min(1.0, head_ns / wrap_ns) if wrap_ns > 0 else 0.0

    def replay(self, programs: Sequence[Program]) -> Int64Array:
        """Replay programs of the same edges: int64[n, p], ns, when each node is reached."""
        if self._repeated_steps:
            return replay(programs, repetitions=1).time_ns
        latencies = (np.where(self._is_cut, NEVER, program.latency_ns) for program in programs)
        alone = [
            replace(program, latency_ns=latency_ns, is_repeated=False)
            for program, latency_ns in zip(programs, latencies, strict=True)
        ]
        return replay(alone).time_ns

    def measure(
        self, programs: Sequence[Program], time_ns: Int64Array
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Measure a step: float64[p], ns, of the host; float64[p, 2], the least and the most."""
        latency_ns = np.stack([program.latency_ns for program in programs], axis=1)
        cost_ns = np.stack([program.cost_ns[self._entry] for program in programs], axis=1)
        begun_ns = time_ns[self._entry] - cost_ns
        ends_ns = self._ends(programs[0], latency_ns, time_ns)
        if self._repeated_steps:
            ends_ns = self._ends_of_repeated(programs, latency_ns, ends_ns)
        until_ns = np.concatenate((begun_ns[1:], ends_ns[:1]))
        host_ns = (until_ns[-1] - begun_ns[0]) / self._steps
        left_ns = (ends_ns[1:] - until_ns)[: self._whole_blocks, :, np.newaxis]
        left_ns = np.maximum(left_ns, self._wait_ns).mean(axis=0)
        return host_ns, host_ns[:, np.newaxis] + left_ns / self._whole_block_steps

    def _ends(
        self, program: Program, latency_ns: Int64Array, time_ns: Int64Array
    ) -> NDArray[np.float64]:
        """float64[1 + blocks, p], ns: when the host goes on after all, and when a block is done."""
        onward_ns = time_ns[program.source[self._onward]] + latency_ns[self._onward]
        head_ns = self._head_share * latency_ns[self._wrap].sum(axis=0)
        done_ns = np.maximum.reduceat(time_ns[self._order], self._starts) + head_ns
        return np.concatenate((onward_ns.max(axis=0, keepdims=True), done_ns))

    def _ends_of_repeated(
        self, programs: Sequence[Program], latency_ns: Int64Array, ends_ns: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        # The pace stays from the first repetition to the block's last: exact if the block ends with
        # a repetition.
        steps = programs[0].steps
        repetitions = min(REPETITIONS, 1 + -(-self._repeated_steps // steps))
        time_ns = replay(programs, repetitions).time_ns
        pace_ns = self._ends(programs[0], latency_ns, time_ns) - ends_ns
        return ends_ns + pace_ns * (self._repeated_steps / (steps * (repetitions - 1)))
