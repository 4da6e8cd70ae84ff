"""Host calls that waited: for GPU work, or for the driver's lock, which another thread held."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int32Array, Int64Array
from tracelab.base.intervals import Intervals, contains, measure, union
from tracelab.base.options import PROFILER_STEP
from tracelab.model.frames import is_profiler_frame
from tracelab.model.kernel_kinds import (
    copies_pageable_memory,
    is_allocation,
    is_asynchronous_copy,
    is_device_sync,
    is_event_sync,
    is_stream_sync,
    is_synchronous_copy,
)
from tracelab.model.latencies import MAX_CALL_NS, MAX_STEP_CALL_NS
from tracelab.model.lookup import expand_ranges, groups_of, is_nested, match_names, unions
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace


class Blocking(IntEnum):
    """Reason why a host call returns only when GPU work has finished."""

    DEVICE = 0  # it waits for everything on a device
    STREAM = 1
    EVENT = 2
    COPY = 3  # a synchronous copy, or one with pageable host memory
    ALLOCATION = 4  # an allocator call, which may have to wait for the device


RETURNS_WHEN_DONE = (Blocking.DEVICE, Blocking.STREAM, Blocking.EVENT)  # they do nothing but wait

_BLOCKS: Mapping[Blocking, Callable[[str], bool]] = MappingProxyType(
    {
        Blocking.DEVICE: is_device_sync,
        Blocking.STREAM: is_stream_sync,
        Blocking.EVENT: is_event_sync,
        Blocking.COPY: is_synchronous_copy,
        Blocking.ALLOCATION: is_allocation,
    }
)
# Threads of libraries that only check whether work has finished; nothing waits for them.
_WATCHDOG = re.compile(r"nccl|rccl|watchd|heartbeat|monitor", re.IGNORECASE)


class BlockingCalls(Arrays):
    """The host calls that blocked ([k]), by start; but the profiler's own and watchdogs'."""

    event_id: Int64Array
    kind: Int8Array
    thread_index: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.event_id)


def find_blocking_calls(
    timeline: Timeline, profiler_calls: Mapping[int, Intervals]
) -> BlockingCalls:
    """Find the calls that blocked, outside the profiler; of nested ones the outermost counts."""
    trace = timeline.trace
    calls = trace.of_category(*HOST_CALLS)
    kind = np.full(len(calls), ABSENT, dtype=np.int8)
    for blocking, is_such in _BLOCKS.items():
        kind[match_names(trace, calls, is_such)] = blocking
    kind[np.isin(calls, _pageable_copies(timeline))] = Blocking.COPY
    kind[np.isin(trace.thread_index[calls], watchdog_threads(trace))] = ABSENT
    kind[is_inside(trace, calls, profiler_calls)] = ABSENT
    blocks = kind != ABSENT
    calls, kind = calls[blocks], kind[blocks]
    order = np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))
    calls, kind = calls[order], kind[order]
    is_outermost = ~is_nested(trace, calls)
    calls, kind = calls[is_outermost], kind[is_outermost]
    of_program = calls != _final_sync(timeline, calls, kind)
    calls, kind = calls[of_program], kind[of_program]
    return BlockingCalls(
        event_id=calls.astype(np.int64),
        kind=kind,
        thread_index=trace.thread_index[calls],
        start_ns=trace.start_ns[calls],
        end_ns=trace.end_ns[calls],
    )


def watchdog_threads(trace: Trace) -> list[int]:
    """Index into `Trace.threads` of those that only check whether work has finished."""
    return [i for i, thread in enumerate(trace.threads) if _WATCHDOG.search(thread.name)]


def _pageable_copies(timeline: Timeline) -> Int64Array:
    """Asynchronous copy calls that the driver had to make wait: one side is pageable memory."""
    trace = timeline.trace
    launched = timeline.launch_id != ABSENT
    pageable = match_names(trace, timeline.event_id[launched], copies_pageable_memory)
    copies: Int64Array = timeline.launch_id[launched][pageable]
    return copies[match_names(trace, copies, is_asynchronous_copy)]


def _final_sync(timeline: Timeline, calls: IndexArray, kind: Int8Array) -> int:
    """The device synchronize with which the profiler ends, after the last launch and step."""
    device_syncs = calls[kind == Blocking.DEVICE]
    if len(device_syncs) == 0:
        return ABSENT
    trace = timeline.trace
    last = int(device_syncs[-1])
    launched = timeline.launch_id[timeline.launch_id != ABSENT]
    after_launches = not len(launched) or trace.start_ns[last] > trace.start_ns[launched].max()
    in_step = any(
        trace.start_ns[step.event_id] <= trace.start_ns[last] < trace.end_ns[step.event_id]
        for step in timeline.steps
    )
    return last if after_launches and not in_step else ABSENT


class StalledCalls(Arrays):
    """The calls that got no further while other threads allocated; by start, allocation and call.

    A call was stalled if it lasted for more than 100 us, at least half of which lies in allocations
    of other threads of its process that returned before it did. Blocking calls, watchdogs' calls
    and those inside another call do not count.

    Attributes:
        event_id: [h], a call is there once for each allocation that stalled it.
        allocation_index: index into the blocking calls.
        start_ns, end_ns: from when both had begun until the call returned.
    """

    event_id: Int64Array
    allocation_index: IndexArray
    thread_index: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.event_id)


def find_stalled_calls(trace: Trace, blocking: BlockingCalls) -> StalledCalls:
    """Find the calls that other threads' allocations stalled.

    An allocation that returned later than a call cannot have stalled it: the call had the lock.
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


def _long_calls(trace: Trace, blocking: BlockingCalls) -> IndexArray:
    """The outermost calls that took long and do not block by themselves, without watchdogs'."""
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[trace.duration_ns[calls] > MAX_CALL_NS]
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~is_nested(trace, calls)]
    is_blocking = np.isin(calls, blocking.event_id)
    of_watchdog = np.isin(trace.thread_index[calls], watchdog_threads(trace))
    return calls[~(is_blocking | of_watchdog)]


def _mostly_covered(
    trace: Trace, call_id: IndexArray, start_ns: Int64Array, end_ns: Int64Array
) -> BoolArray:
    covered = np.zeros(len(call_id), dtype=np.bool_)
    for event_id, of_call in groups_of(call_id):
        inside = measure(union(start_ns[of_call], end_ns[of_call]))
        covered[of_call] = 2 * inside >= trace.duration_ns[event_id]
    return covered


def find_profiler_calls(trace: Trace) -> dict[int, Intervals]:
    """Per thread that was in the profiler (index into `Trace.threads`) when."""
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


def _between_steps(trace: Trace, has_stacks: Int32Array) -> dict[int, Intervals]:
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
