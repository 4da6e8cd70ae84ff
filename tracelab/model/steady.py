"""The steady steps: those that the beginning and the end of the recording left whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array, measure_within
from tracelab.model.captures import find_captures
from tracelab.model.driver_api import begins_capture, ends_capture, is_kernel_launch
from tracelab.model.lookup import calls_of_name, groups_of
from tracelab.model.nesting import is_nested
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT

if TYPE_CHECKING:
    from tracelab.model.timeline import Timeline

FEWEST_STEPS = 3  # that say what is typical: fewer have no spread to speak of

BACKLOG = "holds work launched before the recording, or whose launch was lost"
CUT = "lacks work that it launched: the recording ended first, or lost it"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A step that is not steady, and why.

    Example: ``LeftOut(step=2, why="holds work launched before the recording")``.
    """

    step: int
    why: str


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """The steady steps of a file; they decide what is typical.

    Example: ``SteadySteps(indices=(1, 2), window=Window(None, 9_000, 29_000),
    left_out=(LeftOut(2, "holds work launched before the recording"),))``: of three steps the first
    is left out.

    Attributes:
        indices: into `Timeline.steps`, ascending, at least one.
        window: from the start of the first to the end of the last; its `step` is None.
        left_out: the other steps; the only step of a file as well, if it would be left out.
    """

    indices: tuple[int, ...]
    window: Window
    left_out: tuple[LeftOut, ...]


def spread_ns(lengths_ns: Int64Array) -> float:
    """By how much the lengths of steps differ, ns: twice their median deviation.

    That is the interquartile range of what varies evenly, and one step that is longer than all
    others hardly moves it.

    >>> spread_ns(np.array([100, 104, 102, 900, 98]))
    4.0
    """
    return 2 * float(np.median(np.abs(lengths_ns - np.median(lengths_ns))))


def find_steady(timeline: Timeline) -> SteadySteps | None:
    """The steps that hold no work launched before the recording and lack none of their own.

    A file of one step has that step as its steady step, whatever it holds or lacks. There is no
    slow reference model: ``tests/unit/model/test_steady.py`` has traces made by hand.

    Args:
        timeline: the GPU activities in order.

    Returns:
        the steady steps; None without any.
    """
    steps = timeline.steps
    why = dict.fromkeys(_cut_steps(timeline), CUT)
    why |= dict.fromkeys(_steps_with_backlog(timeline), BACKLOG)
    indices = tuple(index for index in range(len(steps)) if index not in why)
    if len(steps) == 1:
        indices = (0,)
    if not indices:
        return None
    return SteadySteps(
        indices=indices,
        window=Window(None, steps[indices[0]].start_ns, steps[indices[-1]].end_ns),
        left_out=tuple(LeftOut(steps[index].number, text) for index, text in sorted(why.items())),
    )


def launched_before_recording(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], the activities that were launched before the recording began.

    A stream runs its work in order: they are those without a launch that stand before its first
    activity with one. In a stream without any they are those that started before the first
    activity with a launch on the device.
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


def launches_without_activity(timeline: Timeline) -> Int64Array:
    """int64[k], event ids of the calls that launched a kernel of which the file has nothing.

    By start. Without those that were captured into a CUDA graph, which launched nothing: by the
    thread that was capturing, and by others meanwhile, as autograd's.
    """
    trace = timeline.trace
    calls = calls_of_name(trace, is_kernel_launch)
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~is_nested(trace, calls)]  # the runtime's call launches by one of the driver
    has_activity = np.isin(calls, timeline.launch_id)
    has_activity |= np.isin(trace.correlation[calls], trace.correlation[timeline.event_id])
    lost = calls[~has_activity]
    if not len(lost):
        return lost.astype(np.int64)
    begins, ends = calls_of_name(trace, begins_capture), calls_of_name(trace, ends_capture)
    is_capturing = np.zeros(len(lost), dtype=np.bool_)
    for thread, indices in groups_of(trace.thread_index[lost]):
        begun, ended = (
            np.searchsorted(
                trace.start_ns[bounds[trace.thread_index[bounds] == thread]],
                trace.start_ns[lost[indices]],
            )
            for bounds in (begins, ends)
        )
        is_capturing[indices] = begun > ended
    captures = find_captures(trace, trace.correlation[timeline.event_id])
    return lost[~is_capturing & ~np.isin(lost, captures.launch_id)].astype(np.int64)


def _steps_with_backlog(timeline: Timeline) -> list[int]:
    """The indices of the steps in whose window work runs that was launched before the recording."""
    backlog_ns = measure_within(
        timeline.busy(launched_before_recording(timeline)),
        [step.start_ns for step in timeline.steps],
        [step.end_ns for step in timeline.steps],
    )
    indices: list[int] = np.flatnonzero(backlog_ns).tolist()
    return indices


def _cut_steps(timeline: Timeline) -> list[int]:
    """The indices of the steps that launched a kernel of which the file has nothing."""
    trace = timeline.trace
    event_ids = np.array([step.event_id for step in timeline.steps], dtype=np.intp)
    lost_ns = trace.start_ns[timeline.lost_launches]
    first, end = np.searchsorted(lost_ns, (trace.start_ns[event_ids], trace.end_ns[event_ids]))
    indices: list[int] = np.flatnonzero(end > first).tolist()
    return indices
