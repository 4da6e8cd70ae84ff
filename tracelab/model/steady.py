"""The steady steps: those that the beginning and the end of the recording left whole."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from functools import partial
from itertools import groupby

import numpy as np

from tracelab.base.arrays import Record
from tracelab.base.intervals import BoolArray, Int64Array, measure_within
from tracelab.model.activities import Activities
from tracelab.model.lost_work import LostWork
from tracelab.model.steps import MIN_STEPS, Step, Window, bounds_of
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

BACKLOG = "holds work launched before the recording, or whose launch was lost"
CUT = "lacks work that it launched: the recording ended first, or lost it"
APART = "is apart from the steady ones: a step between them lacks work"
STOPPED = "ends with nothing recorded, as while a profiler stops"
# Of 80 captures in which something is recorded until a step ends, the last one ends within 0.1 ms
# of it. With 4.2 and 4.4 ms all steps of a trace end whose launches were thinned out; with 80 ms,
# and none in the five before it, the last step of a V100 in which its profiler stopped.
_MIN_SILENCE_SHARE = 0.02
_MIN_SILENCE_RATIO = 2


class LeftOut(Record):
    """A step that is not steady, and why."""

    step: int
    why: str


class SteadySteps(Record):
    """The steady steps of a file; they decide what is typical.

    Attributes:
        indices: into `Timeline.steps`, ascending, at least one; no step between them lacks work.
        window: from the start of the first to the end of the last; its `step` is None.
        left_out: the other steps; the only step of a file as well, if it would be left out.
    """

    indices: tuple[int, ...]
    window: Window
    left_out: tuple[LeftOut, ...]


def _longest_run(indices: Sequence[int], cut: Sequence[int]) -> tuple[int, ...]:
    """The most of these steps that have no cut one between them, the last ones of as many."""
    runs = [tuple(run) for _, run in groupby(indices, key=partial(bisect, cut))]
    return max(reversed(runs), key=len, default=())


def spread_ns(lengths_ns: Int64Array) -> float:
    """The spread of the lengths of steps: twice their median deviation.

    That is the interquartile range of what varies evenly; an outlier hardly moves it.
    """
    return 2 * float(np.median(np.abs(lengths_ns - np.median(lengths_ns))))


def find_steady(timeline: Activities, lost: LostWork) -> SteadySteps | None:
    """The steps that hold no work launched before the recording and lack none of their own.

    Nor is the last step one of them where it ends with the profiler that stops. The only step of a
    file is steady, whatever it holds or lacks.
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

    A stream runs its work in order: they are those without a launch before its first with one, and
    in a stream without any those that started before the first with one on the device.
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
