"""The GPU activities of a trace in order: streams, launches, steps and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import BoolArray, IndexArray, Int64Array
from tracelab.base.options import PROFILER_STEP
from tracelab.model.activities import Activities, Stream
from tracelab.model.driver_api import is_extended_launch, is_graph_launch
from tracelab.model.kernel_kinds import CommTest, classify, comm_test
from tracelab.model.lookup import match_names
from tracelab.model.lost_work import LostWork, find_lost_work, missing_work
from tracelab.model.steady import SteadySteps, find_steady
from tracelab.model.steps import choose_pattern, find_steps
from tracelab.model.trace import ABSENT, HOST_CALLS, Trace


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

    `step_pattern` is a regular expression of the host annotations that are the steps. By default
    they are the profiler's, and where it has marked none those of a known framework.
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


def _may_begin_early(trace: Trace, launch_id: Int64Array) -> BoolArray:
    # Under programmatic dependent launch, which only extended launch calls can ask for, a kernel
    # begins while the one before it runs. Within one replay of a graph any node may: on an H200 up
    # to 0.5 us early, and never across two replays.
    in_replay = _launched_by(trace, launch_id, is_graph_launch)
    in_replay[1:] &= launch_id[1:] == launch_id[:-1]
    return in_replay | _launched_by(trace, launch_id, is_extended_launch)


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
