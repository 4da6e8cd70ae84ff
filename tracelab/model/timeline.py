"""The GPU activities of a trace in order: lanes, launches, steps and windows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array, Intervals, union
from tracelab.model.kernel_kinds import CommTest, Kind, classify, comm_test
from tracelab.model.lookup import match_names
from tracelab.model.steps import Step, Window, find_steps
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Trace
from tracelab.options import PROFILER_STEP

_EXTENDED_LAUNCH = r"^cu(da)?LaunchKernelEx"
_GRAPH_LAUNCH = r"^cu(da)?GraphLaunch"


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of one device; its activities are rows ``first`` to ``last`` of the timeline."""

    device_number: int
    stream_number: int
    first_row: int
    end_row: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """A trace's GPU activities, ordered by device, stream, start, end and event id.

    Attributes:
        trace: where they come from.
        event: int64[m], the activities' event ids.
        kind: int8[m], a `Kind`.
        lanes: the streams, by device and stream; each one a slice of the rows.
        launch: int64[m], event id of the host call that launched each activity, else ABSENT.
        step: int32[m], index into `steps` of the step that launched each activity, else ABSENT.
        steps: the steps, by start.
        early: bool[m], which activities start before the previous one of their stream has ended,
            as their launch allows.
        overlapping: activities that start so though their launch does not allow it.
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

    @cached_property
    def start_ns(self) -> Int64Array:
        """int64[m], ns."""
        return self.trace.start_ns[self.event_id]

    @cached_property
    def end_ns(self) -> Int64Array:
        """int64[m], ns."""
        return self.trace.end_ns[self.event_id]

    @cached_property
    def device_number(self) -> NDArray[np.int32]:
        """int32[m]."""
        device: NDArray[np.int32] = self.trace.device_number[self.event_id]
        return device

    @cached_property
    def stream_index(self) -> NDArray[np.intp]:
        """intp[m], index into `lanes`."""
        return np.repeat(
            np.arange(len(self.streams)), [x.end_row - x.first_row for x in self.streams]
        )

    @property
    def device_numbers(self) -> tuple[int, ...]:
        """Every device that worked, ascending."""
        return tuple(dict.fromkeys(lane.device_number for lane in self.streams))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The whole trace, then each step."""
        whole = Window(None, int(self.start_ns.min()), int(self.end_ns.max()))
        return (whole, *(Window(s.number, s.start_ns, s.end_ns) for s in self.steps))

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


def build_timeline(
    trace: Trace, *, comm_patterns: Iterable[str] = (), step_pattern: str = PROFILER_STEP
) -> Timeline:
    """Order a trace's GPU activities.

    Args:
        trace: a trace, with or without GPU activities.
        comm_patterns: regular expressions of further communication kernels.
        step_pattern: regular expression of the host annotations that are the steps.

    Raises:
        UsageError: a pattern is no regular expression.
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
    device, stream = trace.device_number[events], trace.stream_number[events]
    start, end = trace.start_ns[events], trace.end_ns[events]
    order = np.lexsort((events, end, start, stream, device))
    events, device, stream = events[order], device[order], stream[order]
    start, end = start[order], end[order]
    changes = np.flatnonzero((np.diff(device) != 0) | (np.diff(stream) != 0)) + 1
    bounds = np.concatenate(([0], changes, [len(events)])) if len(events) else np.array([0])
    lanes = tuple(
        Stream(int(device[first]), int(stream[first]), int(first), int(last))
        for first, last in pairwise(bounds)
    )
    launch = _launches(trace, events)
    overlaps, allowed = _overlaps(start, end, lanes), _may_begin_early(trace, launch)
    steps, step = find_steps(trace, step_pattern, launch, end) if step_pattern else ((), None)
    return Timeline(
        trace=trace,
        event_id=events.astype(np.int64),
        kind=classify(trace, events, is_comm),
        streams=lanes,
        launch_id=launch,
        step_index=step if step is not None else np.full(len(events), ABSENT, dtype=np.int32),
        steps=steps,
        overlaps_previous=overlaps & allowed,
        overlapping_count=int((overlaps & ~allowed).sum()),
    )


def _overlaps(start: Int64Array, end: Int64Array, lanes: Iterable[Stream]) -> NDArray[np.bool_]:
    """bool[m], which activities start before all those before them in their lane have ended."""
    found = np.zeros(len(start), dtype=np.bool_)
    for lane in lanes:
        reach = np.maximum.accumulate(end[lane.first_row : lane.end_row - 1])
        found[lane.first_row + 1 : lane.end_row] = start[lane.first_row + 1 : lane.end_row] < reach
    return found


def _may_begin_early(trace: Trace, launch: Int64Array) -> NDArray[np.bool_]:
    """bool[m], which activities may start before the one before them in their lane has ended.

    Under programmatic dependent launch a kernel begins while the one before it still runs; only
    the extended launch calls can ask for that. Within one replay of a CUDA graph any node may: on
    an H200 plain kernels too began up to 0.5 us early there, and never across two replays.
    """
    in_graph = _launched_by(trace, launch, _GRAPH_LAUNCH)
    in_graph[1:] &= launch[1:] == launch[:-1]
    return in_graph | _launched_by(trace, launch, _EXTENDED_LAUNCH)


def _launched_by(trace: Trace, launch: Int64Array, pattern: str) -> NDArray[np.bool_]:
    """bool[m], which activities were launched by a call of such a name."""
    launched: NDArray[np.bool_] = launch != ABSENT
    return launched & match_names(trace, launch, re.compile(pattern).match)


def _launches(trace: Trace, events: NDArray[np.intp]) -> Int64Array:
    """The host call with each activity's correlation; the outermost where several share it."""
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[trace.correlation[calls] != ABSENT]
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    correlation, first = np.unique(trace.correlation[calls], return_index=True)
    launch = np.full(len(events), ABSENT, dtype=np.int64)
    if len(correlation) == 0:
        return launch
    wanted = trace.correlation[events]
    place = np.minimum(np.searchsorted(correlation, wanted), len(correlation) - 1)
    found = (correlation[place] == wanted) & (wanted != ABSENT)
    launch[found] = calls[first[place[found]]]
    return launch
