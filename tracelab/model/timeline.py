"""The GPU activities of a trace in order: streams, launches, steps and windows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen, read_only
from tracelab.intervals import Int64Array, Intervals, clip, measure, union
from tracelab.model.driver_api import is_extended_launch, is_graph_launch
from tracelab.model.kernel_kinds import CommTest, Kind, classify, comm_test
from tracelab.model.lookup import match_names
from tracelab.model.lost_work import LostWork, find_lost_work
from tracelab.model.nesting import Nesting
from tracelab.model.steady import SteadySteps, find_steady
from tracelab.model.step_names import choose_pattern
from tracelab.model.steps import Step, UnusedSteps, Window, find_steps
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category, Trace
from tracelab.options import PROFILER_STEP


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of one device; its activities are the timeline's rows [first_row, end_row).

    Example: ``Stream(device_number=0, stream_number=7, first_row=0, end_row=340)``.
    """

    device_number: int
    stream_number: int
    first_row: int
    end_row: int


@dataclass(frozen=True, eq=False, repr=False)
class Timeline(Frozen):
    """A trace's GPU activities, ordered by device, stream, start, end and event id.

    Example row: ``(event_id=812, kind=Kind.COMPUTE, launch_id=640, step_index=1,
    overlaps_previous=False)``: a kernel that the call 640 launched in the second step.

    Attributes:
        trace: where they come from.
        event_id: int64[m], the activities' event ids.
        kind: int8[m], a `Kind`.
        streams: by device and stream; each one a slice of the rows.
        launch_id: int64[m], event id of the host call that launched each activity, else ABSENT.
        step_index: int32[m], index into `steps` of the step that launched each activity, else
            ABSENT.
        steps: the steps, by start.
        overlaps_previous: bool[m], which activities start before the previous one of their stream
            has ended, as their launch allows.
        overlapping_count: activities that start so though their launch does not allow it.
        unused_steps: the annotations that match the pattern of the steps and are not in `steps`:
            they lie inside one, or an earlier one has their number.
        step_pattern: regular expression of the annotations that are the steps; None where none
            were looked for.
    """

    trace: Trace
    event_id: Int64Array
    kind: NDArray[np.int8]
    streams: tuple[Stream, ...]
    launch_id: Int64Array
    step_index: NDArray[np.int32]
    steps: tuple[Step, ...]
    overlaps_previous: NDArray[np.bool_]
    overlapping_count: int
    unused_steps: tuple[UnusedSteps, ...]
    step_pattern: str | None

    @cached_property
    def start_ns(self) -> Int64Array:
        """int64[m], ns."""
        return read_only(self.trace.start_ns[self.event_id])

    @cached_property
    def end_ns(self) -> Int64Array:
        """int64[m], ns."""
        return read_only(self.trace.end_ns[self.event_id])

    @cached_property
    def device_number(self) -> NDArray[np.int32]:
        """int32[m]."""
        device: NDArray[np.int32] = self.trace.device_number[self.event_id]
        return read_only(device)

    @cached_property
    def stream_index(self) -> NDArray[np.intp]:
        """intp[m], index into `streams`."""
        lengths = [stream.end_row - stream.first_row for stream in self.streams]
        return read_only(np.repeat(np.arange(len(self.streams)), lengths))

    @cached_property
    def first_start_of_launch_ns(self) -> Int64Array:
        """int64[m], ns, when the first of all activities of each one's launch started."""
        launch_ids, launch_index = np.unique(self.launch_id, return_inverse=True)
        first_start_ns = np.full(len(launch_ids), np.iinfo(np.int64).max)
        np.minimum.at(first_start_ns, launch_index, self.start_ns)
        is_launched = self.launch_id != ABSENT
        return read_only(np.where(is_launched, first_start_ns[launch_index], self.start_ns))

    @property
    def device_numbers(self) -> tuple[int, ...]:
        """Every device that worked, ascending."""
        return tuple(dict.fromkeys(stream.device_number for stream in self.streams))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The whole trace, then each step."""
        whole = Window(None, int(self.start_ns.min()), int(self.end_ns.max()))
        return (whole, *(Window(step.number, step.start_ns, step.end_ns) for step in self.steps))

    @cached_property
    def lost_work(self) -> LostWork:
        """The calls that put work on the GPU, and which of them lost it."""
        return find_lost_work(self)

    @cached_property
    def steady(self) -> SteadySteps | None:
        """The steps that the recording left whole, which decide what is typical."""
        return find_steady(self)

    @cached_property
    def operators(self) -> Nesting:
        """The operators of every thread as trees; the steps are none."""
        return Nesting(self.trace, self.without_steps(Category.OPERATOR))

    def without_steps(self, category: Category) -> NDArray[np.intp]:
        """Event ids of one category, without the steps, which old files write as operators."""
        is_step = np.zeros(len(self.trace), dtype=np.bool_)
        is_step[[step.event_id for step in self.steps]] = True
        events = self.trace.of_category(category)
        has_name = match_names(self.trace, events, re.compile(PROFILER_STEP).search)
        return events[~is_step[events] & ~has_name]

    @property
    def typical_lengths_ns(self) -> tuple[int, ...]:
        """How long each steady step is, ns; of all steps where none is steady."""
        indices = self.steady.indices if self.steady else range(len(self.steps))
        return tuple(self.steps[i].end_ns - self.steps[i].start_ns for i in indices)

    def busy(self, rows: NDArray[np.bool_] | slice = slice(None)) -> Intervals:
        """When at least one of these activities ran; all of them by default."""
        return union(self.start_ns[rows], self.end_ns[rows])

    def select(self, *, device: int | None = None, kind: Kind | None = None) -> NDArray[np.bool_]:
        """bool[m], which activities are of this device and kind."""
        chosen = np.ones(len(self.event_id), dtype=np.bool_)
        if device is not None:
            chosen &= self.device_number == device
        if kind is not None:
            chosen &= self.kind == kind
        return chosen

    def busiest_device(self, window: Window) -> int:
        """The device that decides how long a window takes: the one that works longest in it.

        Of several the one with the lowest number.
        """
        busy_ns = {
            device: measure(
                clip(self.busy(self.select(device=device)), window.start_ns, window.end_ns)
            )
            for device in self.device_numbers
        }
        return max(busy_ns, key=lambda device: busy_ns[device])


def build_timeline(
    trace: Trace, *, comm_patterns: Iterable[str] = (), step_pattern: str = PROFILER_STEP
) -> Timeline:
    """Order a trace's GPU activities.

    Args:
        trace: a trace, with or without GPU activities.
        comm_patterns: regular expressions of further communication kernels.
        step_pattern: regular expression of the host annotations that are the steps. By default
            they are the profiler's, and where it has marked none those of a known framework.

    Raises:
        UsageError: a pattern is not a valid regular expression.
    """
    return order_activities(
        trace, trace.of_category(*GPU_ACTIVITIES), comm_test(comm_patterns), step_pattern
    )


def only_launched(timeline: Timeline, comm_patterns: Iterable[str] = ()) -> Timeline:
    """The same timeline without the activities whose launch is not in the file."""
    launched = np.sort(timeline.event_id[timeline.launch_id != ABSENT])
    return order_activities(timeline.trace, launched, comm_test(comm_patterns), None)


def order_activities(
    trace: Trace, events: NDArray[np.intp], is_comm: CommTest, step_pattern: str | None
) -> Timeline:
    """Order the given activities of a trace; without a pattern there are no steps."""
    device_number, stream_number = trace.device_number[events], trace.stream_number[events]
    start_ns, end_ns = trace.start_ns[events], trace.end_ns[events]
    order = np.lexsort((events, end_ns, start_ns, stream_number, device_number))
    events, start_ns, end_ns = events[order], start_ns[order], end_ns[order]
    streams = _streams(device_number[order], stream_number[order])
    launch_id = _launches(trace, events)
    overlaps = _overlaps_previous(start_ns, end_ns, streams)
    allowed = _may_begin_early(trace, launch_id)
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


def _streams(device_number: NDArray[np.int32], stream_number: Int64Array) -> tuple[Stream, ...]:
    """The streams of rows that are ordered by device and stream (int32[m] and int64[m])."""
    changes = (np.diff(device_number) != 0) | (np.diff(stream_number) != 0)
    bounds = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(device_number)]))
    return tuple(
        Stream(int(device_number[first]), int(stream_number[first]), int(first), int(end))
        for first, end in (pairwise(bounds) if len(device_number) else ())
    )


def _overlaps_previous(
    start_ns: Int64Array, end_ns: Int64Array, streams: Iterable[Stream]
) -> NDArray[np.bool_]:
    """bool[m], which activities start before all those before them in their stream have ended."""
    overlaps = np.zeros(len(start_ns), dtype=np.bool_)
    for stream in streams:
        reach_ns = np.maximum.accumulate(end_ns[stream.first_row : stream.end_row - 1])
        later = slice(stream.first_row + 1, stream.end_row)
        overlaps[later] = start_ns[later] < reach_ns
    return overlaps


def _may_begin_early(trace: Trace, launch_id: Int64Array) -> NDArray[np.bool_]:
    """bool[m], which activities may start before the one before them in their stream has ended.

    Under programmatic dependent launch a kernel begins while the one before it still runs; only
    the extended launch calls can ask for that. Within one replay of a graph any node may: on an
    H200 plain kernels too began up to 0.5 us early there, and never across two replays.
    """
    in_replay = _launched_by(trace, launch_id, is_graph_launch)
    in_replay[1:] &= launch_id[1:] == launch_id[:-1]
    return in_replay | _launched_by(trace, launch_id, is_extended_launch)


def _launched_by(
    trace: Trace, launch_id: Int64Array, is_such: Callable[[str], bool]
) -> NDArray[np.bool_]:
    """bool[m], which activities were launched by a call whose name passes a test."""
    launched: NDArray[np.bool_] = launch_id != ABSENT
    return launched & match_names(trace, launch_id, is_such)


def _launches(trace: Trace, events: NDArray[np.intp]) -> Int64Array:
    """The host call with each activity's correlation; the outermost where several share it."""
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
