"""The captures of CUDA graphs that a file holds: which calls were captured, in which order.

What the program launches in a capture does not run, and has no activity: it becomes nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import IndexArray, Int64Array
from tracelab.model.driver_api import (
    begins_capture,
    ends_capture,
    is_asynchronous_copy,
    is_asynchronous_memset,
    is_kernel_launch,
)
from tracelab.model.lookup import calls_of_name, match_names
from tracelab.model.nesting import is_nested
from tracelab.model.trace import ABSENT, Category, Trace

_LAUNCHES = (
    (Category.KERNEL, is_kernel_launch),
    (Category.MEMCPY, is_asynchronous_copy),
    (Category.MEMSET, is_asynchronous_memset),
)


class Captures(Arrays):
    """The captures of a file, by start, and what was launched into each, in order.

    Attributes:
        begin_id, end_id: [c], the calls that began and ended each capture.
        launch_id: [l], the captured calls, capture after capture, by start.
        category: [l], the `Category` of the activity that each one asks for.
        first: [c + 1], the captured calls of capture *i* are ``first[i]`` to ``first[i + 1]``.
    """

    begin_id: Int64Array
    end_id: Int64Array
    launch_id: Int64Array
    category: NDArray[np.int8]
    first: IndexArray

    def __len__(self) -> int:
        return len(self.begin_id)


def find_captures(trace: Trace, activity_correlation: Int64Array) -> Captures:
    """The captures that are in a file from begin to end, and what was captured in each.

    Every thread of the process counts, as autograd's; captures that overlap others are left out.
    Calls with one of `activity_correlation` put something on the GPU and were not captured. The
    slow reference model is ``tests/reference/origins.py``.
    """
    begin_id, end_id = _pairs(trace)
    process = np.unique([thread.process for thread in trace.threads], return_inverse=True)[1]
    calls, category = _launches(trace, activity_correlation)
    begin_ns, end_ns = trace.start_ns[begin_id], trace.start_ns[end_id]
    index = np.searchsorted(begin_ns, trace.start_ns[calls], side="right") - 1
    is_captured = index != ABSENT
    is_captured[is_captured] = (trace.start_ns[calls[is_captured]] < end_ns[index[is_captured]]) & (
        process[trace.thread_index[calls[is_captured]]]
        == process[trace.thread_index[begin_id[index[is_captured]]]]
    )
    return Captures(
        begin_id=begin_id,
        end_id=end_id,
        launch_id=calls[is_captured].astype(np.int64),
        category=category[is_captured],
        first=np.searchsorted(index[is_captured], np.arange(len(begin_id) + 1)),
    )


def _pairs(trace: Trace) -> tuple[Int64Array, Int64Array]:
    # A capture ends on the thread on which it began.
    begins, ends = calls_of_name(trace, begins_capture), calls_of_name(trace, ends_capture)
    calls = np.concatenate((begins, ends)).astype(np.int64)
    is_end = np.arange(len(calls)) >= len(begins)
    order = np.lexsort((trace.start_ns[calls], trace.thread_index[calls]))
    calls, is_end = calls[order], is_end[order]
    is_pair = ~is_end[:-1] & is_end[1:]
    is_pair &= trace.thread_index[calls[:-1]] == trace.thread_index[calls[1:]]
    begin_id, end_id = calls[:-1][is_pair], calls[1:][is_pair]
    by_start = np.argsort(trace.start_ns[begin_id], kind="stable")
    begin_id, end_id = begin_id[by_start], end_id[by_start]
    begin_ns, end_ns = trace.start_ns[begin_id], trace.start_ns[end_id]
    overlaps = np.zeros(len(begin_id), dtype=np.bool_)
    overlaps[1:] = begin_ns[1:] < np.maximum.accumulate(end_ns)[:-1]
    overlaps[:-1] |= end_ns[:-1] > begin_ns[1:]
    return begin_id[~overlaps], end_id[~overlaps]


def _launches(
    trace: Trace, activity_correlation: Int64Array
) -> tuple[IndexArray, NDArray[np.int8]]:
    """The calls that requested an activity and have none in the file, by start, and which kind."""
    calls = calls_of_name(trace, lambda name: any(is_one(name) for _, is_one in _LAUNCHES))
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~is_nested(trace, calls)]  # the runtime's call launches by one of the driver
    calls = calls[~np.isin(trace.correlation[calls], activity_correlation)]
    category = np.full(len(calls), ABSENT, dtype=np.int8)
    for value, is_one in _LAUNCHES:
        category[match_names(trace, calls, is_one)] = value
    return calls, category
