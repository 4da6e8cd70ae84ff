"""What the host did: which calls blocked, and what each thread was recorded doing when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array, Intervals, join, measure, union
from tracelab.model.kernel_kinds import copies_pageable_memory
from tracelab.model.lookup import expand_ranges, groups_of, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace


class Blocking(IntEnum):
    """Why a host call returns only when GPU work has finished."""

    DEVICE = 0  # it waits for everything on a device
    STREAM = 1
    EVENT = 2
    COPY = 3  # a synchronous copy, or one with pageable host memory
    ALLOCATION = 4  # an allocator call, which may have to wait for the device


# The same calls in CUDA's runtime, CUDA's driver and HIP. Asynchronous variants end in "Async" and
# must not match; `cudaEventQuery` and `cudaStreamWaitEvent` block nobody on the host.
_API = r"^(?:cuda|cu|hip)"
_VERSION = r"(?:_v\d+)?(?:_ptds|_ptsz)?$"
_BLOCKING_NAMES = {
    Blocking.DEVICE: re.compile(rf"{_API}(?:Device|Ctx|Thread)Synchronize{_VERSION}"),
    Blocking.STREAM: re.compile(rf"{_API}StreamSynchronize{_VERSION}"),
    Blocking.EVENT: re.compile(rf"{_API}EventSynchronize{_VERSION}"),
    Blocking.COPY: re.compile(rf"{_API}Memcpy(?!\w*Async)\w*$"),
    Blocking.ALLOCATION: re.compile(
        rf"{_API}(?:Malloc|MallocHost|MallocPitch|MallocManaged|Free|FreeHost|HostAlloc|HostMalloc"
        rf"|HostFree|HostRegister|HostUnregister|MemAlloc|MemAllocHost|MemHostAlloc|MemFree"
        rf"|MemFreeHost|MemUnmap){_VERSION}"
    ),
}
_ASYNC_COPY = re.compile(rf"{_API}Memcpy\w*Async")

# Threads of libraries that only look whether work has finished, and wait for nobody's sake.
_WATCHDOG = re.compile(r"nccl|rccl|watchd|heartbeat|monitor", re.IGNORECASE)
# A launch takes some microseconds. While a thread allocates it holds the driver's lock, and what
# other threads ask of the driver returns only after it: 7 and 40 ms were seen beside the
# cudaHostAlloc of a DataLoader's pin_memory thread.
_HELD_UP_NS = 100_000
_INPUT = re.compile(
    r"enumerate\(DataLoader\)|torch/utils/data/(?!_utils/pin_memory)|DataLoader\w*\.__next__"
    r"|dataloader_next"
    r"|\bfetch_next\b|\b_?next_batch\b|\bdata_?loading\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, eq=False)
class BlockingCalls:
    """The host calls that blocked, by start; the profiler's own and watchdogs' left out.

    Attributes:
        call: int64[k], event ids.
        kind: int8[k], a `Blocking`.
        thread: int32[k], index into `Trace.threads`.
        start_ns, end_ns: int64[k], ns.
    """

    event_id: Int64Array
    kind: NDArray[np.int8]
    thread_index: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return len(self.event_id)


@dataclass(frozen=True, slots=True, eq=False)
class StalledCalls:
    """The calls that got no further while other threads allocated; by start, holder and call.

    A call was held up if it lasted for more than 100 us, at least half of which lies in allocations
    of other threads of its process that returned before it did. Calls that block by themselves
    are none, nor are watchdogs' and what runs inside another call.

    Attributes:
        call: int64[h], event ids; a call is there once for each allocation that held it up.
        holder: intp[h], index into the blocking calls: the allocation.
        thread: int32[h], index into `Trace.threads` of the call's thread.
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


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What one host thread was recorded doing when.

    Attributes:
        blocked: it sat in a blocking call, or in one that another thread's allocation held up.
        input: it was in a data loader.
        recorded: it was in anything: a call, an operator, a Python function, a data loader.
        annotated: it was in a region that somebody named, a step for one, whatever it did there.
    """

    blocked: Intervals
    input: Intervals
    recorded: Intervals
    annotated: Intervals


NOTHING_RECORDED = ThreadState(*[union([], [])] * 4)


@dataclass(frozen=True, eq=False)
class Host:
    """The host side of a timeline.

    Attributes:
        timeline: whose host it is.
        blocking: the blocking calls.
        held: the calls that another thread's allocation held up.
    """

    timeline: Timeline
    blocking_calls: BlockingCalls
    stalled_calls: StalledCalls

    @cached_property
    def launched_ns(self) -> Int64Array:
        """int64[n], ns, per event when it got to launch, if it is a call that launches.

        That is its start, or its end where another thread's allocation held it up till then.
        """
        launched = self.timeline.trace.start_ns.copy()
        launched[self.stalled_calls.event_id] = self.stalled_calls.end_ns
        return launched

    @cached_property
    def states(self) -> dict[int, ThreadState]:
        """Per thread that ran the program: index into `Trace.threads` to its state."""
        trace = self.timeline.trace
        told = trace.of_category(
            *HOST_CALLS, Category.OPERATOR, Category.PYTHON, Category.ANNOTATION
        )
        is_region = trace.category[told] == Category.ANNOTATION
        is_input = match_names(trace, told, _INPUT.search)
        states = {}
        for thread, own in groups_of(trace.thread_index[told]):
            if _WATCHDOG.search(trace.threads[thread].name):
                continue
            rows, waits = told[own[~is_region[own] | is_input[own]]], told[own[is_input[own]]]
            regions = told[own[is_region[own]]]
            blocking, held = (
                self.blocking_calls.thread_index == thread,
                self.stalled_calls.thread_index == thread,
            )
            states[thread] = ThreadState(
                blocked=join(
                    union(
                        self.blocking_calls.start_ns[blocking], self.blocking_calls.end_ns[blocking]
                    ),
                    union(self.stalled_calls.start_ns[held], self.stalled_calls.end_ns[held]),
                ),
                input=union(trace.start_ns[waits], trace.end_ns[waits]),
                recorded=union(trace.start_ns[rows], trace.end_ns[rows]),
                annotated=union(trace.start_ns[regions], trace.end_ns[regions]),
            )
        return states

    @cached_property
    def launching_threads(self) -> frozenset[int]:
        """Index into `Trace.threads` of those that put work on a GPU."""
        launch = self.timeline.launch_id[self.timeline.launch_id != ABSENT]
        return frozenset(self.timeline.trace.thread_index[launch].tolist())

    def other_threads(self, thread: int) -> ThreadState:
        """The state of all threads that launch work, but one, taken together.

        A thread that launches nothing, a logger for one, holds up nobody who does.
        """
        if thread not in self._others:
            self._others[thread] = ThreadState(*(x.without(thread) for x in self._crowds))
        return self._others[thread]

    @cached_property
    def _others(self) -> dict[int, ThreadState]:
        """What `others` has found so far: it is asked of each thread again for every device."""
        return {}

    @cached_property
    def _crowds(self) -> tuple[_Crowd, ...]:
        """The threads that launch work, together: one for each field of a `ThreadState`."""
        states = {x: state for x, state in self.states.items() if x in self.launching_threads}
        return tuple(
            _Crowd({thread: getattr(state, field.name) for thread, state in states.items()})
            for field in fields(ThreadState)
        )


class _Crowd:
    """When how many of some threads were doing something, to leave out any one of them at once."""

    def __init__(self, doing: Mapping[int, Intervals]) -> None:
        sizes = [len(x) for x in doing.values()]
        thread = np.repeat(np.array(list(doing), dtype=np.int64), sizes)
        moments = [*(x.starts for x in doing.values()), *(x.ends for x in doing.values())]
        moment = np.concatenate(moments) if doing else np.zeros(0, dtype=np.int64)
        order = np.argsort(moment, kind="stable")
        self._moment = moment[order]
        # From each moment on: how many threads, and the sum of their numbers, which is the number
        # of a thread that is alone.
        self._count = np.cumsum(np.repeat((1, -1), len(thread))[order])
        self._sum = np.cumsum(np.concatenate((thread, -thread))[order])

    def without(self, thread: int) -> Intervals:
        """When any of them but this one did it."""
        others = (self._count > 1) | ((self._count == 1) & (self._sum != thread))
        return union(self._moment[:-1][others[:-1]], self._moment[1:][others[:-1]])


def observe_host(timeline: Timeline) -> Host:
    """Find the blocking calls of a timeline's trace, and those that they held up."""
    trace = timeline.trace
    calls = trace.of_category(*HOST_CALLS)
    kind = np.full(len(calls), ABSENT, dtype=np.int8)
    for blocking, pattern in _BLOCKING_NAMES.items():
        kind[match_names(trace, calls, pattern.search)] = blocking
    kind[np.isin(calls, _pageable_copies(timeline))] = Blocking.COPY
    kind[np.isin(trace.thread_index[calls], _watchdogs(trace))] = ABSENT
    blocks = kind != ABSENT
    calls, kind = calls[blocks], kind[blocks]
    order = np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))
    calls, kind = calls[order], kind[order]
    outer = ~_nested(trace, calls)
    calls, kind = calls[outer], kind[outer]
    programs = calls != _profilers_own(timeline, calls, kind)
    calls, kind = calls[programs], kind[programs]
    found = BlockingCalls(
        event_id=calls.astype(np.int64),
        kind=kind,
        thread_index=trace.thread_index[calls],
        start_ns=trace.start_ns[calls],
        end_ns=trace.end_ns[calls],
    )
    return Host(timeline, found, _held_calls(trace, found))


def input_regions(trace: Trace) -> NDArray[np.intp]:
    """Event ids of the regions and functions in which a thread was in a data loader."""
    told = trace.of_category(Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)
    return told[match_names(trace, told, _INPUT.search)]


def _pageable_copies(timeline: Timeline) -> Int64Array:
    """Asynchronous copy calls that the driver had to make wait: one side is pageable memory."""
    trace = timeline.trace
    launched = timeline.launch_id != ABSENT
    pageable = match_names(trace, timeline.event_id[launched], copies_pageable_memory)
    copies: Int64Array = timeline.launch_id[launched][pageable]
    return copies[match_names(trace, copies, _ASYNC_COPY.search)]


def _watchdogs(trace: Trace) -> list[int]:
    """Index into `Trace.threads` of those that only look whether work has finished."""
    return [i for i, x in enumerate(trace.threads) if _WATCHDOG.search(x.name)]


def _held_calls(trace: Trace, blocking: BlockingCalls) -> StalledCalls:
    """The calls that other threads' allocations held up.

    An allocation that returned later than a call cannot have held it up. Rather it was the call
    that held the lock, to load a module for one, and the allocation waited.
    """
    allocations = np.flatnonzero(blocking.kind == Blocking.ALLOCATION)
    allocations = allocations[np.argsort(blocking.end_ns[allocations], kind="stable")]
    calls = _long_calls(trace, blocking) if len(allocations) else np.zeros(0, dtype=np.intp)
    ends = blocking.end_ns[allocations]
    first = np.searchsorted(ends, trace.start_ns[calls], side="right")
    last = np.searchsorted(ends, trace.end_ns[calls], side="right")
    number, place = expand_ranges(first, last)
    call, holder = calls[number], allocations[place]
    process = np.array([x.process for x in trace.threads])
    mine, others = trace.thread_index[call], blocking.thread_index[holder]
    possible = (mine != others) & (process[mine] == process[others])
    possible &= blocking.end_ns[holder] > blocking.start_ns[holder]
    call, holder = call[possible], holder[possible]
    start_ns = np.maximum(trace.start_ns[call], blocking.start_ns[holder])
    held = _mostly_covered(trace, call, start_ns, blocking.end_ns[holder])
    call, holder, start_ns = call[held], holder[held], start_ns[held]
    order = np.lexsort((call, holder, start_ns))
    call, holder = call[order], holder[order]
    return StalledCalls(
        event_id=call.astype(np.int64),
        allocation_index=holder,
        thread_index=trace.thread_index[call],
        start_ns=start_ns[order],
        end_ns=trace.end_ns[call],
    )


def _long_calls(trace: Trace, blocking: BlockingCalls) -> NDArray[np.intp]:
    """The outermost calls that took long and do not block by themselves, without watchdogs'."""
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[trace.duration_ns[calls] > _HELD_UP_NS]
    calls = calls[np.lexsort((-trace.end_ns[calls], trace.start_ns[calls]))]
    calls = calls[~_nested(trace, calls)]
    others = np.isin(calls, blocking.event_id) | np.isin(
        trace.thread_index[calls], _watchdogs(trace)
    )
    return calls[~others]


def _mostly_covered(
    trace: Trace, call: NDArray[np.intp], start_ns: Int64Array, end_ns: Int64Array
) -> NDArray[np.bool_]:
    """bool[k], whether all stretches of the same call make up at least half of it."""
    covered = np.zeros(len(call), dtype=np.bool_)
    for event, own in groups_of(call):
        inside = measure(union(start_ns[own], end_ns[own]))
        covered[own] = 2 * inside >= trace.duration_ns[event]
    return covered


def _nested(trace: Trace, calls: NDArray[np.intp]) -> NDArray[np.bool_]:
    """bool[k], which calls (by start, longest first) run inside another of their thread."""
    nested = np.zeros(len(calls), dtype=np.bool_)
    for _, own in groups_of(trace.thread_index[calls]):
        reach = np.maximum.accumulate(trace.end_ns[calls[own]])
        nested[own[1:]] = trace.end_ns[calls[own[1:]]] <= reach[:-1]
        # A call that merely begins where the one before ended is no part of it.
        nested[own[1:]] &= trace.start_ns[calls[own[1:]]] < reach[:-1]
    return nested


def _profilers_own(timeline: Timeline, calls: NDArray[np.intp], kind: NDArray[np.int8]) -> int:
    """The device synchronize with which the profiler ends: after the last launch and step."""
    devices = calls[kind == Blocking.DEVICE]
    if len(devices) == 0:
        return ABSENT
    trace = timeline.trace
    last = int(devices[-1])
    launched = timeline.launch_id[timeline.launch_id != ABSENT]
    after_launches = not len(launched) or trace.start_ns[last] > trace.start_ns[launched].max()
    in_step = any(
        trace.start_ns[x.event_id] <= trace.start_ns[last] < trace.end_ns[x.event_id]
        for x in timeline.steps
    )
    return last if after_launches and not in_step else ABSENT
