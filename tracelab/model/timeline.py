"""The GPU activities of a trace in order: streams, launches, steps and windows."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import groupby, pairwise

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Int32Array, Int64Array, Record
from tracelab.base.intervals import measure_within
from tracelab.base.options import PROFILER_STEP
from tracelab.model.activities import Activities, Stream
from tracelab.model.kernel_kinds import (
    CommTest,
    classify,
    comm_test,
    is_extended_launch,
    is_graph_launch,
)
from tracelab.model.lookup import match_names
from tracelab.model.lost_work import LostWork, find_lost_work, missing_work
from tracelab.model.steps import MIN_STEPS, Step, Window, bounds_of, choose_pattern, find_steps
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace


class Timeline(Activities, dict=True, weakref=True):
    """A trace's GPU activities, with what of them was lost and which steps are typical."""

    @cached_property
    def lost_work(self) -> LostWork:
        """The calls that put work on the GPU, and which of them lost it."""
        return find_lost_work(self)

    @cached_property
    def steady(self) -> SteadySteps | None:
        """The steps that the recording left whole, which decide what is typical."""
        return find_steady(self, self.lost_work)

    @property
    def missing_work(self) -> tuple[str, bool]:
        """The work that the figures miss, in words, and True if that makes them wrong."""
        left_out = (
            set(range(len(self.steps))).difference(self.steady.indices) if self.steady else ()
        )
        return missing_work(self, self.lost_work, [self.steps[i] for i in sorted(left_out)])

    @property
    def typical_lengths_ns(self) -> tuple[int, ...]:
        """Lengths of the steady steps, ns; of all steps if none is steady."""
        indices = self.steady.indices if self.steady else range(len(self.steps))
        return tuple(self.steps[i].end_ns - self.steps[i].start_ns for i in indices)


def build_timeline(
    trace: Trace, *, comm_patterns: Iterable[str] = (), step_pattern: str = PROFILER_STEP
) -> Timeline:
    """Order a trace's GPU activities.

    `step_pattern` matches the host annotations that are the steps: by default the profiler's, else
    those of a known framework.
    """
    return order_activities(trace, trace.activities, comm_test(comm_patterns), step_pattern)


def only_launched(timeline: Timeline, comm_patterns: Iterable[str] = ()) -> Timeline:
    """The same timeline without the activities whose launch is not in the file."""
    launched = np.sort(timeline.event_id[timeline.launch_id != ABSENT])
    return order_activities(timeline.trace, launched, comm_test(comm_patterns), None)


def order_activities(
    trace: Trace, events: IndexArray, is_comm: CommTest, step_pattern: str | None
) -> Timeline:
    """Order the given activities of a trace; without a pattern there are no steps."""
    device_number, stream_number = trace.device_number[events], trace.stream_number[events]
    start_ns, end_ns = trace.start_ns[events], trace.end_ns[events]
    order = np.lexsort((events, end_ns, start_ns, stream_number, device_number))
    events, start_ns, end_ns = events[order], start_ns[order], end_ns[order]
    streams = _streams(device_number[order], stream_number[order])
    launch_id = _launches(trace, events)
    overlaps = _overlaps_previous(start_ns, end_ns, streams)
    # Within one replay of a graph any node may begin early: up to 0.5 us on an H200.
    allowed = _launched_by(trace, launch_id, is_graph_launch)
    allowed[1:] &= launch_id[1:] == launch_id[:-1]
    # Under programmatic dependent launch a kernel begins while the one before it runs.
    allowed |= _launched_by(trace, launch_id, is_extended_launch)
    step_pattern = choose_pattern(trace, step_pattern, launch_id, end_ns - start_ns)
    steps, step_index, unused_steps = find_steps(trace, step_pattern, launch_id, end_ns)
    return Timeline(
        trace=trace,
        event_id=events.astype(np.int64),
        kind=classify(trace, events, is_comm),
        streams=streams,
        launch_id=launch_id,
        step_index=step_index,
        steps=steps,
        overlaps_previous=overlaps & allowed,
        overlapping_count=int((overlaps & ~allowed).sum()),
        unused_steps=unused_steps,
        step_pattern=step_pattern,
    )


def _streams(device_number: Int32Array, stream_number: Int64Array) -> tuple[Stream, ...]:
    changes = (np.diff(device_number) != 0) | (np.diff(stream_number) != 0)
    bounds = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(device_number)]))
    return tuple(
        Stream(int(device_number[first]), int(stream_number[first]), int(first), int(end))
        for first, end in (pairwise(bounds) if len(device_number) else ())
    )


def _overlaps_previous(
    start_ns: Int64Array, end_ns: Int64Array, streams: Iterable[Stream]
) -> BoolArray:
    overlaps = np.zeros(len(start_ns), dtype=np.bool_)
    for stream in streams:
        reach_ns = np.maximum.accumulate(end_ns[stream.first_row : stream.end_row - 1])
        later = slice(stream.first_row + 1, stream.end_row)
        overlaps[later] = start_ns[later] < reach_ns
    return overlaps


def _launched_by(trace: Trace, launch_id: Int64Array, is_such: Callable[[str], bool]) -> BoolArray:
    launched: BoolArray = launch_id != ABSENT
    return launched & match_names(trace, launch_id, is_such)


def _launches(trace: Trace, events: IndexArray) -> Int64Array:
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[trace.correlation[calls] != ABSENT]
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    correlation, first = np.unique(trace.correlation[calls], return_index=True)
    launch_id = np.full(len(events), ABSENT, dtype=np.int64)
    if len(correlation) == 0:
        return launch_id
    wanted = trace.correlation[events]
    index = np.minimum(np.searchsorted(correlation, wanted), len(correlation) - 1)
    has_call = (correlation[index] == wanted) & (wanted != ABSENT)
    launch_id[has_call] = calls[first[index[has_call]]]
    return launch_id


BACKLOG = "holds work launched before the recording, or whose launch was lost"
CUT = "lacks work that it launched: the recording ended first, or lost it"
APART = "is apart from the steady ones: a step between them lacks work"
STOPPED = "ends with nothing recorded, as while a profiler stops"
# Of 80 captures recorded until a step ends, the last activity ends within 0.1 ms of it. With 4.2 ms
# all steps end whose launches were thinned out; with 80 ms the last step of a V100 in which its
# profiler stopped.
_MIN_SILENCE_SHARE = 0.02
_MIN_SILENCE_RATIO = 2


class LeftOut(Record):
    """A step that is not steady, and why."""

    step: int
    why: str


class SteadySteps(Record):
    """The steady steps of a file, `indices` into `Timeline.steps` (ascending, at least one).

    They decide what is typical. `left_out` has the other steps; the only step of a file as well, if
    it would be left out.
    """

    indices: tuple[int, ...]
    window: Window
    left_out: tuple[LeftOut, ...]


def _longest_run(indices: Sequence[int], cut: Sequence[int]) -> tuple[int, ...]:
    """The most of these steps that have no cut one between them, the last ones of as many."""
    runs = [tuple(run) for _, run in groupby(indices, key=partial(bisect, cut))]
    return max(reversed(runs), key=len, default=())


def spread_ns(lengths_ns: Int64Array) -> float:
    """The spread of the lengths of steps: twice their median deviation."""
    return 2 * float(np.median(np.abs(lengths_ns - np.median(lengths_ns))))


def find_steady(timeline: Activities, lost: LostWork) -> SteadySteps | None:
    """The steps that hold no work launched before the recording and lack none of their own.

    A last step that ends with the profiler is left out. The only step of a file is steady always.
    """
    steps = timeline.steps
    cut = _cut_steps(timeline, lost)
    why = dict.fromkeys(_stopped_steps(timeline), STOPPED)
    why |= dict.fromkeys(cut, CUT)
    why |= dict.fromkeys(_steps_with_backlog(timeline), BACKLOG)
    whole = [index for index in range(len(steps)) if index not in why]
    indices = (0,) if len(steps) == 1 else _longest_run(whole, cut)
    why |= dict.fromkeys(set(whole).difference(indices), APART)
    if not indices:
        return None
    return SteadySteps(
        indices=indices,
        window=Window(None, steps[indices[0]].start_ns, steps[indices[-1]].end_ns),
        left_out=tuple(LeftOut(steps[index].number, text) for index, text in sorted(why.items())),
    )


def launched_before_recording(timeline: Activities) -> BoolArray:
    """[m], the activities that were launched before the recording began.

    Those are the ones before a stream's first with a launch, and in a stream without any before the
    first with one on the device.
    """
    is_launched = timeline.launch_id != ABSENT
    is_before = np.zeros(len(is_launched), dtype=np.bool_)
    for stream in timeline.streams:
        rows = slice(stream.first_row, stream.end_row)
        if is_launched[rows].any():
            first_row = stream.first_row + int(np.argmax(is_launched[rows]))
            is_before[stream.first_row : first_row] = True
            continue
        on_device = is_launched & (timeline.device_number == stream.device_number)
        first_start_ns = timeline.start_ns[on_device].min(initial=np.iinfo(np.int64).max)
        is_before[rows] = timeline.start_ns[rows] < first_start_ns
    return is_before if is_launched.any() else np.zeros_like(is_before)


def _steps_with_backlog(timeline: Activities) -> list[int]:
    backlog_ns = measure_within(
        timeline.busy(launched_before_recording(timeline)), *bounds_of(timeline.steps)
    )
    indices: list[int] = np.flatnonzero(backlog_ns).tolist()
    return indices


def _stopped_steps(timeline: Activities) -> list[int]:
    trace, steps = timeline.trace, timeline.steps
    if len(steps) < MIN_STEPS:
        return []
    events = np.concatenate(
        (
            trace.of_category(*HOST_CALLS, Category.PYTHON),
            *map(timeline.ids_except_steps, (Category.OPERATOR, Category.ANNOTATION)),
            timeline.event_id,
        )
    )
    start_ns, end_ns = trace.start_ns[events], trace.end_ns[events]

    def silence_ns(step: Step) -> int:
        last_ns = end_ns[start_ns < step.end_ns].max(initial=step.start_ns)
        return step.end_ns - min(int(last_ns), step.end_ns)

    *others, last = steps
    at_end_ns = silence_ns(last)
    if at_end_ns <= _MIN_SILENCE_SHARE * (last.end_ns - last.start_ns):
        return []
    is_usual = at_end_ns < _MIN_SILENCE_RATIO * max(map(silence_ns, others))
    return [] if is_usual else [len(others)]


def _cut_steps(timeline: Activities, lost: LostWork) -> list[int]:
    trace = timeline.trace
    event_ids = np.array([step.event_id for step in timeline.steps], dtype=np.intp)
    lost_ns = trace.start_ns[lost.call_id[lost.is_lost]]
    first, end = np.searchsorted(lost_ns, (trace.start_ns[event_ids], trace.end_ns[event_ids]))
    indices: list[int] = np.flatnonzero(end > first).tolist()
    return indices
