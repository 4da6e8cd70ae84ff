"""Host activity: blocking and stalled calls, and the recorded state of each thread."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int8Array,
    Int32Array,
    Int64Array,
    IntArray,
    Record,
    read_only,
)
from tracelab.base.intervals import (
    Intervals,
    contains,
    gaps,
    intersect,
    join,
    measure_within,
    subtract,
    union,
)
from tracelab.model.blocking_calls import (
    Blocking,
    BlockingCalls,
    StalledCalls,
    find_blocking_calls,
    find_profiler_calls,
    find_stalled_calls,
    watchdog_threads,
)
from tracelab.model.frames import (
    MODULE_PREFIX,
    is_of_torch,
    is_program_frame,
    is_source_function,
    is_thread_wait,
)
from tracelab.model.latencies import MAX_SILENCE_NS
from tracelab.model.lookup import Nesting, counts_inside, groups_of, match_names, unions
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace

_LOADS = re.compile(
    r"enumerate\(DataLoader\)|torch/utils/data/(?!_utils/pin_memory)|DataLoader\w*\.__next__"
    r"|dataloader_next"
    r"|\bfetch_next\b|\b_?next_batch\b|\bdata_?loading\b",
    re.IGNORECASE,
)
# Makers of samples or batches without a data loader around them. Work on the GPU under such a name
# does not count, nor what takes less than 0.1 ms (it looks things up).
_PREPARES = re.compile(r"\): (\w*collate\w*|__getitems?__|preprocess\w*)$")
_OF_LIBRARIES = re.compile(
    r"(^|/)(albumentations|datasets|PIL|tokenizers|torchaudio|torchvision/(datasets|io|transforms)"
    r"|webdataset)/"
    r"|(^|/)(feature_extraction|image_processing|processing)_\w+\.py\(\d+\): (?!post_process)"
    r"|(^|/)tokenization_\w+\.py\(\d+\): (?!\w*decode)"
)
_MIN_PREPARATION_NS = 100_000
_MIN_WAIT_NS = 10_000
# The loader of a DataLoader without workers, and what fetches samples, which workers do otherwise.
_IN_THREAD = ("_SingleProcess", "torch/utils/data/_utils/fetch.py")


class ThreadState(Record):
    """Recorded states of one host thread over time.

    Attributes:
        blocked: in a blocking call, or in one that another thread's allocation stalled.
        profiler: in the profiler's own code, or in that of tracelab's recorder.
        input: it loaded data, in a data loader or without one.
        recorded: in a call, an operator, a Python function or a data loader, waiting for no thread.
        waiting: it waited for another thread of its process: in a lock, a join, a queue.
    """

    blocked: Intervals
    profiler: Intervals
    input: Intervals
    recorded: Intervals
    waiting: Intervals
    annotated: Intervals


_NEVER = union([], [])
NOTHING_RECORDED = ThreadState(*[_NEVER] * 6)


def find_thread_states(
    trace: Trace,
    *,
    blocking_calls: BlockingCalls,
    stalled_calls: StalledCalls,
    profiler_calls: Mapping[int, Intervals],
    loading_id: IndexArray,
) -> dict[int, ThreadState]:
    """Per thread that ran the program (index into `Trace.threads`) its state."""
    events = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)
    is_region = trace.category[events] == Category.ANNOTATION
    is_input = np.isin(events, loading_id)
    loading, recorded, regions, waiting = (
        unions(trace.thread_index[chosen], trace.start_ns[chosen], trace.end_ns[chosen])
        for chosen in (
            events[is_input],
            events[~is_region | is_input],
            events[is_region],
            thread_waits(trace),
        )
    )
    calls = blocking_calls, stalled_calls
    columns = ("thread_index", "start_ns", "end_ns")
    blocked = unions(*(np.concatenate([getattr(of, name) for of in calls]) for name in columns))
    watchdogs = watchdog_threads(trace)
    return {
        thread: ThreadState(
            blocked=blocked.get(thread, _NEVER),
            profiler=profiler_calls.get(thread, _NEVER),
            input=loading.get(thread, _NEVER),
            recorded=subtract(recorded.get(thread, _NEVER), waiting.get(thread, _NEVER)),
            waiting=waiting.get(thread, _NEVER),
            annotated=regions.get(thread, _NEVER),
        )
        for thread in np.unique(trace.thread_index[events]).tolist()
        if thread not in watchdogs
    }


def thread_waits(trace: Trace) -> IndexArray:
    """Event ids of the functions in which a thread waited for another one for at least 10 us."""
    functions = trace.of_category(Category.PYTHON)
    functions = functions[trace.duration_ns[functions] >= _MIN_WAIT_NS]
    return functions[match_names(trace, functions, is_thread_wait)]


def loading_regions(timeline: Timeline) -> IndexArray:
    """Event ids of the regions and functions that loaded data."""
    trace = timeline.trace
    event_id = trace.of_category(Category.OPERATOR, Category.PYTHON, Category.ANNOTATION)
    loads = event_id[match_names(trace, event_id, _LOADS.search)]
    return np.union1d(loads, _preparing_functions(timeline)).astype(np.intp)


def is_in_launching_thread(name: str) -> bool:
    """Return True if a region that loads data does it in the thread that waits for it."""
    return any(mark in name for mark in _IN_THREAD) or _prepares(name)


def _prepares(name: str) -> bool:
    is_own = _PREPARES.search(name) is not None and is_program_frame(name)
    return is_own or _OF_LIBRARIES.search(name) is not None


def _preparing_functions(timeline: Timeline) -> IndexArray:
    trace = timeline.trace
    function_id = trace.of_category(Category.PYTHON)
    prepares = function_id[trace.duration_ns[function_id] >= _MIN_PREPARATION_NS]
    prepares = prepares[match_names(trace, prepares, _prepares)]
    if not len(prepares):
        return prepares
    is_module = match_names(trace, function_id, lambda name: name.startswith(MODULE_PREFIX))
    module_id = function_id[is_module]
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    is_alone = np.ones(len(prepares), dtype=np.bool_)
    for thread, index in groups_of(trace.thread_index[prepares]):
        start_ns, end_ns = trace.start_ns[prepares[index]], trace.end_ns[prepares[index]]
        of_thread = module_id[trace.thread_index[module_id] == thread]
        in_module = union(trace.start_ns[of_thread], trace.end_ns[of_thread])
        launch_ns = np.sort(trace.start_ns[launch_id[trace.thread_index[launch_id] == thread]])
        first, end = np.searchsorted(launch_ns, start_ns), np.searchsorted(launch_ns, end_ns)
        is_alone[index] = (first == end) & (measure_within(in_module, start_ns, end_ns) == 0)
    return prepares[is_alone]


class _Together:
    """Intervals in which any of some threads did something, or one of them alone."""

    def __init__(self, doing: Mapping[int, Intervals]) -> None:
        sizes = [len(intervals) for intervals in doing.values()]
        thread = np.repeat(np.array(list(doing), dtype=np.int64), sizes)
        bounds = [*(i.starts for i in doing.values()), *(i.ends for i in doing.values())]
        moment_ns = np.concatenate(bounds) if doing else np.zeros(0, dtype=np.int64)
        order = np.argsort(moment_ns, kind="stable")
        start_ns, end_ns = moment_ns[order][:-1], moment_ns[order][1:]
        # From each moment on: how many threads, and the sum of their indexes, or the only one's.
        count = np.cumsum(np.repeat((1, -1), len(thread))[order])[:-1]
        index_sum = np.cumsum(np.concatenate((thread, -thread))[order])[:-1]
        self.any_thread = union(start_ns[count > 0], end_ns[count > 0])
        self.alone = {
            thread: union(start_ns[index], end_ns[index])
            for thread, index in groups_of(np.where(count == 1, index_sum, ABSENT))
        }

    def exclude(self, thread: int, within: Intervals) -> Intervals:
        """The intervals of this time in which any other thread did it."""
        if not len(self.any_thread):
            return _NEVER
        return subtract(intersect(within, self.any_thread), self.alone.get(thread, _NEVER))


class Doing(IntEnum):
    """Work of a host thread at a moment."""

    UNKNOWN = ABSENT
    LAUNCHING = 0
    OTHER = 1


def work_at(timeline: Timeline, thread_index: IntArray, moments_ns: Int64Array) -> Int8Array:
    """int8[k], of `Doing`: whether threads were launching at moments.

    A thread launches in an operator that launches something and in PyTorch's own functions; it does
    other work in any other function.
    """
    trace = timeline.trace
    calls = Nesting(trace, _running_at(trace, moments_ns))
    of_operator = trace.category[calls.event_id] == Category.OPERATOR
    is_function = ~of_operator & calls.have_name(is_source_function)
    launches = of_operator & _launch(calls, timeline)
    launches |= is_function & calls.have_name(is_of_torch)
    doing = np.append(np.where(launches, Doing.LAUNCHING, Doing.OTHER), Doing.UNKNOWN)
    innermost = calls.innermost_of(thread_index, moments_ns)
    return doing[calls.around(innermost, is_function | launches)]


def _running_at(trace: Trace, moments_ns: Int64Array) -> IndexArray:
    events, moments_ns = trace.of_category(Category.OPERATOR, Category.PYTHON), np.sort(moments_ns)
    first = np.searchsorted(moments_ns, trace.start_ns[events])
    return events[np.searchsorted(moments_ns, trace.end_ns[events]) > first]


def _launch(calls: Nesting, timeline: Timeline) -> BoolArray:
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    launch: BoolArray = counts_inside(timeline.trace, calls.event_id, launch_id) > 0
    return launch


class Host(Record, eq=False, dict=True):
    """The host side of a timeline; `profiler_calls` says when each thread was in the profiler."""

    timeline: Timeline
    blocking_calls: BlockingCalls
    stalled_calls: StalledCalls
    profiler_calls: Mapping[int, Intervals]

    @cached_property
    def launched_ns(self) -> Int64Array:
        """[n], per event when it got to launch, if it is a call that launches.

        That is its start, or its end where another thread's allocation stalled it till then.
        """
        launched_ns = self.timeline.trace.start_ns.copy()
        launched_ns[self.stalled_calls.event_id] = self.stalled_calls.end_ns
        return read_only(launched_ns)

    @cached_property
    def is_staged(self) -> BoolArray:
        """[m], which rows are copies that the driver makes step by step, as of pageable memory.

        The call blocks, or has returned up to 0.7 ms before the copy begins.
        """
        calls = self.blocking_calls
        copy_call_id = calls.event_id[calls.kind == Blocking.COPY]
        return read_only(np.isin(self.timeline.launch_id, copy_call_id))

    @cached_property
    def starts_in_its_call(self) -> BoolArray:
        """[m], which rows started while a call ran that did nothing but launch them."""
        timeline = self.timeline
        starts_in_call: BoolArray = timeline.launch_id != ABSENT
        starts_in_call &= timeline.start_ns < timeline.trace.end_ns[timeline.launch_id]
        return read_only(starts_in_call & ~self.is_staged)

    @cached_property
    def loading_id(self) -> IndexArray:
        """Event ids of the regions and functions in which a thread loaded data."""
        return read_only(loading_regions(self.timeline))

    @cached_property
    def states(self) -> Mapping[int, ThreadState]:
        """Per thread that ran the program (index into `Trace.threads`) its state."""
        return MappingProxyType(
            find_thread_states(
                self.timeline.trace,
                blocking_calls=self.blocking_calls,
                stalled_calls=self.stalled_calls,
                profiler_calls=self.profiler_calls,
                loading_id=self.loading_id,
            )
        )

    @cached_property
    def is_launching(self) -> BoolArray:
        """[threads + 1], which threads put work on a GPU; the last stands for ABSENT."""
        trace, launch_id = self.timeline.trace, self.timeline.launch_id
        is_launching = np.zeros(len(trace.threads) + 1, dtype=np.bool_)
        is_launching[trace.thread_index[launch_id[launch_id != ABSENT]]] = True
        return read_only(is_launching)

    @cached_property
    def launching_threads(self) -> frozenset[int]:
        """Index into `Trace.threads` of those that put work on a GPU."""
        return frozenset(np.flatnonzero(self.is_launching).tolist())

    @cached_property
    def _together(self) -> tuple[_Together, ...]:
        states = {x: state for x, state in self.states.items() if x in self.launching_threads}
        return tuple(
            _Together({thread: getattr(state, field.name) for thread, state in states.items()})
            for field in fields(ThreadState)
        )

    @cached_property
    def all_threads(self) -> ThreadState:
        """The joint state of all launching threads."""
        return ThreadState(*(x.any_thread for x in self._together))

    def other_threads(self, thread: int, within: Intervals) -> ThreadState:
        """The joint state, within some time, of all launching threads except one."""
        if self.launching_threads <= {thread}:
            return NOTHING_RECORDED
        return ThreadState(*(x.exclude(thread, within) for x in self._together))


def observe_host(timeline: Timeline) -> Host:
    """Find the blocking calls of a timeline's trace, and the calls that allocations stalled."""
    profiler_calls = MappingProxyType(find_profiler_calls(timeline.trace))
    blocking_calls = find_blocking_calls(timeline, profiler_calls)
    stalled_calls = find_stalled_calls(timeline.trace, blocking_calls)
    return Host(timeline, blocking_calls, stalled_calls, profiler_calls)


# The host may wait for a GPU that works for this share of a silence.
_MIN_WORKED_SHARE = 0.95


class HostStalls(Arrays):
    """The times in which a host thread made no progress: blocking calls, then stalled calls.

    `call_index` is the blocking call that caused each ([h]), `thread_index` the thread.
    """

    call_index: IndexArray
    thread_index: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array


def host_stalls(host: Host) -> HostStalls:
    """The blocking calls, each of its own thread, and the calls that allocations stalled."""
    calls, stalled = host.blocking_calls, host.stalled_calls
    return HostStalls(
        call_index=np.concatenate((np.arange(len(calls)), stalled.allocation_index)),
        thread_index=np.concatenate((calls.thread_index, stalled.thread_index)),
        start_ns=np.concatenate((calls.start_ns, stalled.start_ns)),
        end_ns=np.concatenate((calls.end_ns, stalled.end_ns)),
    )


def waits_for(
    host: Host, thread_index: IntArray, other_thread_index: IntArray, time_ns: Int64Array
) -> BoolArray:
    """bool[k], where launching threads wait for what begins in other threads at some moments, ns.

    Nothing is recorded of a thread that waits, or a lock.
    """
    waits = host.is_launching[other_thread_index]
    for thread, indices in groups_of(thread_index):
        waits[indices] &= ~is_recorded(host, thread, time_ns[indices])
    return read_only(waits | (other_thread_index == thread_index))


def is_recorded(host: Host, thread: int, time_ns: Int64Array) -> BoolArray:
    """bool[k], whether anything is recorded of a thread at each moment, ns."""
    return contains(host.states.get(thread, NOTHING_RECORDED).recorded, time_ns)


def unrecorded_waits(host: Host) -> Intervals:
    """Return when the host most likely waited for the GPU unseen by the profiler.

    Nothing is recorded then of any thread that launches, for more than 1 ms, while a GPU works
    throughout.
    """
    recorded = join(host.all_threads.recorded, host.all_threads.waiting)
    if not len(recorded):
        return recorded
    silences = gaps(recorded, int(recorded.starts[0]), int(recorded.ends[-1]))
    length_ns = silences.ends - silences.starts
    worked_ns = measure_within(host.timeline.busy(), silences.starts, silences.ends)
    is_wait = (length_ns > MAX_SILENCE_NS) & (worked_ns >= _MIN_WORKED_SHARE * length_ns)
    return Intervals(silences.starts[is_wait], silences.ends[is_wait])
