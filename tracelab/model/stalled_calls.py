"""Which host calls other threads' allocations stalled: contention for the driver's lock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array, measure, union
from tracelab.model.blocking_calls import Blocking, BlockingCalls, watchdog_threads
from tracelab.model.latencies import LONGEST_CALL_NS
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.nesting import is_nested
from tracelab.model.trace import HOST_CALLS, Trace


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StalledCalls(Frozen):
    """The calls that got no further while other threads allocated; by start, allocation and call.

    A call was stalled if it lasted for more than 100 us, at least half of which lies in allocations
    of other threads of its process that returned before it did. Calls that block by themselves
    are none, nor are watchdogs' and what runs inside another call.

    Example row: ``(event_id=310, allocation_index=2, thread_index=0, start_ns=50_000,
    end_ns=7_050_000)``: a launch that could not go on for 7 ms while another thread made the third
    of the blocking calls.

    Attributes:
        event_id: int64[h], event ids; a call is there once for each allocation that stalled it.
        allocation_index: intp[h], index into the blocking calls: the allocation.
        thread_index: int32[h], index into `Trace.threads` of the call's thread.
        start_ns: int64[h], ns, when both the call and the allocation had begun.
        end_ns: int64[h], ns, when the call returned.
    """

    event_id: Int64Array
    allocation_index: NDArray[np.intp]
    thread_index: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.event_id)


def find_stalled_calls(trace: Trace, blocking: BlockingCalls) -> StalledCalls:
    """Find the calls that other threads' allocations stalled.

    An allocation that returned later than a call cannot have stalled it. Rather it was the call
    that had the lock, to load a module for one, and the allocation waited.
    """
    allocations = np.flatnonzero(blocking.kind == Blocking.ALLOCATION)
    allocations = allocations[np.argsort(blocking.end_ns[allocations], kind="stable")]
    calls = _long_calls(trace, blocking) if len(allocations) else np.zeros(0, dtype=np.intp)
    ends = blocking.end_ns[allocations]
    first = np.searchsorted(ends, trace.start_ns[calls], side="right")
    last = np.searchsorted(ends, trace.end_ns[calls], side="right")
    call_index, by_end = expand_ranges(first, last)
    call_id, allocation_index = calls[call_index], allocations[by_end]
    process = np.array([thread.process for thread in trace.threads])
    thread, allocating = trace.thread_index[call_id], blocking.thread_index[allocation_index]
    possible = (thread != allocating) & (process[thread] == process[allocating])
    possible &= blocking.end_ns[allocation_index] > blocking.start_ns[allocation_index]
    call_id, allocation_index = call_id[possible], allocation_index[possible]
    start_ns = np.maximum(trace.start_ns[call_id], blocking.start_ns[allocation_index])
    is_stalled = _mostly_covered(trace, call_id, start_ns, blocking.end_ns[allocation_index])
    call_id, allocation_index = call_id[is_stalled], allocation_index[is_stalled]
    start_ns = start_ns[is_stalled]
    order = np.lexsort((call_id, allocation_index, start_ns))
    call_id = call_id[order]
    return StalledCalls(
        event_id=call_id.astype(np.int64),
        allocation_index=allocation_index[order],
        thread_index=trace.thread_index[call_id],
        start_ns=start_ns[order],
        end_ns=trace.end_ns[call_id],
    )


def _long_calls(trace: Trace, blocking: BlockingCalls) -> NDArray[np.intp]:
    """The outermost calls that took long and do not block by themselves, without watchdogs'."""
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[trace.duration_ns[calls] > LONGEST_CALL_NS]
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~is_nested(trace, calls)]
    is_blocking = np.isin(calls, blocking.event_id)
    of_watchdog = np.isin(trace.thread_index[calls], watchdog_threads(trace))
    return calls[~(is_blocking | of_watchdog)]


def _mostly_covered(
    trace: Trace, call_id: NDArray[np.intp], start_ns: Int64Array, end_ns: Int64Array
) -> NDArray[np.bool_]:
    """bool[k], whether all stretches of the same call make up at least half of it."""
    covered = np.zeros(len(call_id), dtype=np.bool_)
    for event_id, of_call in groups_of(call_id):
        inside = measure(union(start_ns[of_call], end_ns[of_call]))
        covered[of_call] = 2 * inside >= trace.duration_ns[event_id]
    return covered
