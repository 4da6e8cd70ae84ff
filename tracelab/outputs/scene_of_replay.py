"""The scene of a replayed step, with the lanes of a recorded one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, Int64Array
from tracelab.base.intervals import stacked
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.phases import Phases
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.outputs.scene_of_file import (
    CALL_KINDS,
    KINDS,
    MAX_LEVELS_OF_LANE,
    lanes_of_streams,
    sort_threads,
    thread_labels,
    threads_of,
)
from tracelab.render.scene import Lane, Scene, Span
from tracelab.simulate.program import NEVER, NodeKind, Program, Via
from tracelab.simulate.replay import replay

# Beyond that share of a repetition in hand, the host does not decide.
_AHEAD = 0.01
# Of a step; closer steps of a stream are ahead.
_MIN_STEP_DISTANCE_SHARE = 0.9
_LATEST_NS = np.iinfo(np.int64).max


class ReplayedTimes(Arrays):
    """Times of the nodes of one program: int64[n], ns.

    Attributes:
        period_ns: length of a repetition, or None.
        runs_ahead: True if nothing holds the host back.
    """

    program: Program
    begun_ns: Int64Array
    time_ns: Int64Array
    period_ns: int | None
    runs_ahead: bool

    def step_window(self) -> tuple[int, int]:
        """Return a step, ns, that begins with the first compute of the busiest stream."""
        program, period_ns = self.program, self.period_ns
        if period_ns is None:
            return int(self.begun_ns.min()), int(self.time_ns.max())
        is_activity = program.kind == NodeKind.ACTIVITY
        is_compute = program.activity_kind == Kind.COMPUTE
        chosen = np.flatnonzero(is_compute if is_compute.any() else is_activity)
        stream = program.stream_index[chosen]
        busiest = np.bincount(stream, weights=program.cost_ns[chosen]).argmax()
        first = chosen[stream == busiest][0]
        start_ns = int(self.begun_ns[first])
        return start_ns, start_ns + period_ns // program.steps

    def events(self, start_ns: int, end_ns: int) -> tuple[Int64Array, Int64Array, NDArray[np.intp]]:
        """Return the events in a stretch of time of an endless steady repetition.

        Returns:
            start and end (int64[k], ns) and node (intp[k], repeated).
        """
        node = np.flatnonzero(self.program.kind != NodeKind.BEGIN)
        begun_ns, time_ns = self.begun_ns[node], self.time_ns[node]
        if self.period_ns is None:
            first, count = np.zeros(len(node), dtype=np.int64), np.ones(len(node), dtype=np.int64)
        else:
            first = (start_ns - time_ns) // self.period_ns + 1
            last = -((begun_ns - end_ns) // self.period_ns) - 1
            count = np.maximum(last - first + 1, 0)
        index = np.repeat(np.arange(len(node)), count)
        nth = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
        shift_ns = (first[index] + nth) * (self.period_ns or 0)
        return begun_ns[index] + shift_ns, time_ns[index] + shift_ns, node[index]


def replayed_times(
    timeline: Timeline, program: Program, time_ns: Int64Array, step_ns: int
) -> ReplayedTimes:
    """Return the times of the nodes of a replayed program, reached at `time_ns` (int64[n]).

    An activity takes its cost; a call begins once its thread gets there. A host or copies that get
    further ahead of the GPU with each step begin with the step.
    """
    period_ns = step_ns * program.steps if program.is_repeated else 0
    leads = np.isin(program.via, (Via.HOST, Via.THREAD)) & (program.latency_ns != NEVER)
    source, target, lag = program.source[leads], program.target[leads], program.lag[leads]
    alone_ns = time_ns - program.cost_ns
    since_ns = time_ns[source] + program.latency_ns[leads] - np.where(lag == 1, period_ns, 0)
    of_thread = (lag == 1) & (program.via[leads] == Via.HOST)
    slack_ns = (alone_ns[target] - since_ns)[of_thread]
    runs_ahead = bool(len(slack_ns)) and int(slack_ns.min()) > _AHEAD * period_ns
    counts = (lag == 0) | (not runs_ahead)
    begun_ns = np.full(len(program), NEVER, dtype=np.int64)
    np.maximum.at(begun_ns, target[counts], since_ns[counts])
    is_activity = program.kind == NodeKind.ACTIVITY
    begun_ns = np.where(is_activity | (begun_ns == NEVER), alone_ns, np.minimum(begun_ns, time_ns))
    times = ReplayedTimes(program, begun_ns, time_ns, period_ns or None, runs_ahead)
    return _each_step_anew(timeline, times) if program.is_repeated else times


def _each_step_anew(timeline: Timeline, times: ReplayedTimes) -> ReplayedTimes:
    program = times.program
    nth = _nth_step(timeline, program)
    start_ns, end_ns = times.step_window()
    shift_ns = np.zeros(len(program), dtype=np.int64)
    # The host, and each stream; activities moved out of one have their own.
    sequence = np.where(program.kind == NodeKind.ACTIVITY, stream_roots(program), ABSENT - 1)
    for of, nodes in groups_of(sequence - (ABSENT - 1)):
        first_ns = np.full(int(nth.max()) + 1, _LATEST_NS)
        np.minimum.at(first_ns, nth[nodes], times.begun_ns[nodes])
        known_ns = first_ns[first_ns != _LATEST_NS]
        apart_ns = (known_ns[-1] - known_ns[0]) / max(len(known_ns) - 1, 1)
        is_crowded = len(known_ns) > 1 and apart_ns < _MIN_STEP_DISTANCE_SHARE * (end_ns - start_ns)
        if times.runs_ahead if of == 0 else is_crowded:
            anew_ns = start_ns + nth[nodes] * (end_ns - start_ns)
            shift_ns[nodes] = anew_ns - first_ns[nth[nodes]]
    return replace(times, begun_ns=times.begun_ns + shift_ns, time_ns=times.time_ns + shift_ns)


def _nth_step(timeline: Timeline, program: Program) -> NDArray[np.intp]:
    start_ns = timeline.trace.start_ns
    event_id = np.array([step.event_id for step in timeline.steps], dtype=np.intp)
    launched = program.launch_node != ABSENT
    call_id = np.where(launched, program.event_id[program.launch_node], program.event_id)
    step_index = np.searchsorted(start_ns[event_id], start_ns[call_id], side="right")
    _, nth = np.unique(step_index, return_inverse=True)
    return nth.astype(np.intp)


def stream_roots(program: Program) -> NDArray[np.intp]:
    """intp[n], the first node of the sequence of each node; of calls themselves."""
    root = np.arange(len(program))
    follows = (program.via == Via.STREAM) & (program.lag == 0) & (program.latency_ns != NEVER)
    root[program.target[follows]] = program.source[follows]
    while (root[root] != root).any():
        root = root[root]
    return root


def moved_activities(before: Program, after: Program) -> NDArray[np.bool_]:
    """bool[n], the activities that an edit took out of their stream."""
    return _is_apart(after) & ~_is_apart(before)


def _is_apart(program: Program) -> NDArray[np.bool_]:
    """Return the activities out of order with their stream's compute: bool[n]."""
    root = stream_roots(program)
    is_apart = np.zeros(len(program), dtype=np.bool_)
    for _, nodes in groups_of(program.stream_index):
        roots, nth, counts = np.unique(root[nodes], return_inverse=True, return_counts=True)
        is_compute = program.activity_kind[nodes] == Kind.COMPUTE
        compute_counts = np.bincount(nth, weights=is_compute, minlength=len(roots))
        is_apart[nodes] = nth != np.lexsort((counts, compute_counts))[-1]
    return is_apart


def is_blocked(program: Program) -> NDArray[np.bool_]:
    """bool[n], the calls that wait for GPU work."""
    blocked = np.zeros(len(program), dtype=np.bool_)
    blocked[program.target[(program.via == Via.WAIT) & (program.latency_ns != NEVER)]] = True
    return blocked


def scenes_of_replay(phases: Phases, before: Program, after: Program) -> tuple[Scene, Scene]:
    """Make the scenes of a replayed step without and with a change."""
    timeline, replayed = phases.timeline, replay([before, after])
    nothing_moved = np.zeros(len(before), dtype=np.bool_)
    moved = (nothing_moved, moved_activities(before, after))
    first, second = (
        scene_of_replay(
            phases, replayed_times(timeline, program, replayed.time_ns[:, i], step_ns), is_moved
        )
        for i, (program, is_moved, step_ns) in enumerate(
            zip((before, after), moved, replayed.step_ns.tolist(), strict=True)
        )
    )
    return first, second


def scene_of_replay(phases: Phases, times: ReplayedTimes, is_moved: NDArray[np.bool_]) -> Scene:
    """Make the scene of a replayed step: host threads, then streams.

    Activities that left their stream (`is_moved`, bool[n]) have a lane of their own.
    """
    program, timeline = times.program, phases.timeline
    trace = timeline.trace
    start_ns, end_ns = times.step_window()
    window = Span(start_ns, max(end_ns, start_ns + 1))
    events = times.events(*window)
    order = np.lexsort((events[1], events[0]))
    starts_ns, ends_ns, node = (column[order] for column in events)
    event_id = program.event_id[node]
    launches = np.zeros(len(program), dtype=np.bool_)
    launches[program.launch_node[program.launch_node != ABSENT]] = True
    blocks = is_blocked(program)
    used_names, name_index = np.unique(trace.name_index[event_id], return_inverse=True)

    def lane(chosen: NDArray[np.bool_], kind: NDArray[Any], **facts: Any) -> Lane:
        index = np.flatnonzero(chosen[node])
        span_start_ns, span_end_ns = starts_ns[index], ends_ns[index]
        more: dict[str, NDArray[Any]] = {"name": name_index[index].astype(np.int32)}
        if len(facts.get("streams", ())) > 1:
            more["level"] = stacked(span_start_ns, span_end_ns, MAX_LEVELS_OF_LANE)
        kinds = kind[node[index]].astype(np.uint8)
        return Lane(start_ns=span_start_ns, end_ns=span_end_ns, kind=kinds, more=more, **facts)

    threads = sort_threads(trace, _used(program.thread_index))
    labels = thread_labels(trace, threads, phases)
    lanes = [
        lane(
            (program.thread_index == thread) & (blocks | launches),
            blocks,
            id=f"host:{thread}",
            label=labels[thread],
            kinds=CALL_KINDS,
            thread=thread,
        )
        for thread in threads
    ]
    used = _used(program.stream_index)
    for of_streams in lanes_of_streams(timeline):
        members = [i for i in of_streams.stream_index.tolist() if i in used]
        of_stream = np.isin(program.stream_index, members)
        numbers = tuple(timeline.streams[i].stream_number for i in members)
        for name, chosen in (("", of_stream & ~is_moved), (", new", of_stream & is_moved)):
            if chosen.any():
                lanes.append(
                    lane(
                        chosen,
                        program.activity_kind,
                        id=f"stream:{of_streams.device_number}/{numbers[0]}{name}",
                        label=f"stream {numbers[0]}{name}",
                        device=of_streams.device_number,
                        kinds=KINDS,
                        streams=numbers,
                    )
                )
    return Scene(
        path=trace.path,
        window=window,
        focus=window,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        threads=threads_of(trace),
        names=tuple(trace.strings[index] for index in used_names.tolist()),
        lanes=tuple(lanes),
        notes=("the CPU runs ahead of the GPU",) if times.runs_ahead else (),
    )


def _used(index: NDArray[np.integer[Any]]) -> list[int]:
    used: list[int] = np.unique(index[index != ABSENT]).tolist()
    return used
