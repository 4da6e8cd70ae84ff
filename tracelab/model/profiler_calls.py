"""Time of a thread in the profiler's own code, or in that of tracelab's recorder.

Without Python's stacks it was in the profiler's step call between two ``ProfilerStep``: that call
ends the one and begins the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import BoolArray, IndexArray, Intervals, contains, union
from tracelab.base.options import PROFILER_STEP
from tracelab.model.frames import is_profiler_frame
from tracelab.model.latencies import MAX_STEP_CALL_NS
from tracelab.model.lookup import match_names, unions
from tracelab.model.trace import HOST_CALLS, Category, Trace


def find_profiler_calls(trace: Trace) -> dict[int, Intervals]:
    """Per thread that was in the profiler (index into `Trace.threads`) when.

    The slow reference model is ``tests/reference/ticks.py``.
    """
    frames = trace.of_category(Category.PYTHON)
    of_profiler = frames[match_names(trace, frames, is_profiler_frame)]
    return _between_steps(trace, np.unique(trace.thread_index[frames])) | unions(
        trace.thread_index[of_profiler], trace.start_ns[of_profiler], trace.end_ns[of_profiler]
    )


def is_inside(trace: Trace, events: IndexArray, calls: Mapping[int, Intervals]) -> BoolArray:
    """[k], which events begin while their thread is in one of these calls."""
    inside = np.zeros(len(events), dtype=np.bool_)
    for thread, of_thread in calls.items():
        indices = np.flatnonzero(trace.thread_index[events] == thread)
        inside[indices] = contains(of_thread, trace.start_ns[events[indices]])
    return inside


def _between_steps(trace: Trace, has_stacks: NDArray[np.int32]) -> dict[int, Intervals]:
    # Per thread without Python's stacks: the time between two steps, where nothing else begins.
    events = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.ANNOTATION)
    events = events[~np.isin(trace.thread_index[events], has_stacks)]
    is_step = match_names(trace, events, re.compile(PROFILER_STEP).search)
    threads = np.unique(trace.thread_index[events[is_step]]).tolist()
    return {
        thread: _empty_gaps(trace, events[is_step & of_thread], events[~is_step & of_thread])
        for thread in threads
        for of_thread in [trace.thread_index[events] == thread]
    }


def _empty_gaps(trace: Trace, steps: IndexArray, others: IndexArray) -> Intervals:
    start_ns = np.sort(trace.start_ns[steps])
    end_ns = np.maximum.accumulate(trace.end_ns[steps][np.argsort(trace.start_ns[steps])])
    gap_start_ns, gap_end_ns = end_ns[:-1], start_ns[1:]
    other_ns = np.sort(trace.start_ns[others])
    is_empty = np.searchsorted(other_ns, gap_start_ns) >= np.searchsorted(other_ns, gap_end_ns)
    is_call = is_empty & (gap_end_ns > gap_start_ns)
    is_call &= gap_end_ns - gap_start_ns <= MAX_STEP_CALL_NS
    return union(gap_start_ns[is_call], gap_end_ns[is_call])
