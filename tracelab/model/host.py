"""Host activity: blocking and stalled calls, and the recorded state of each thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import OneLine, read_only
from tracelab.base.intervals import Int64Array, Intervals
from tracelab.model.blocking_calls import (
    Blocking,
    BlockingCalls,
    StalledCalls,
    find_blocking_calls,
    find_stalled_calls,
)
from tracelab.model.profiler_calls import find_profiler_calls
from tracelab.model.thread_states import (
    ThreadState,
    all_but_one,
    find_thread_states,
    loading_regions,
)
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


@dataclass(frozen=True, eq=False, repr=False)
class Host(OneLine):
    """The host side of a timeline.

    Attributes:
        timeline: whose host it is.
        blocking_calls: the calls that returned only when GPU work had finished.
        stalled_calls: the calls that another thread's allocation stalled.
        profiler_calls: per thread, as an index into `Trace.threads`, when it was in the profiler.
    """

    timeline: Timeline
    blocking_calls: BlockingCalls
    stalled_calls: StalledCalls
    profiler_calls: Mapping[int, Intervals]

    @cached_property
    def launched_ns(self) -> Int64Array:
        """int64[n], ns, per event when it got to launch, if it is a call that launches.

        That is its start, or its end where another thread's allocation stalled it till then.
        """
        launched_ns = self.timeline.trace.start_ns.copy()
        launched_ns[self.stalled_calls.event_id] = self.stalled_calls.end_ns
        return read_only(launched_ns)

    @cached_property
    def is_staged(self) -> NDArray[np.bool_]:
        """bool[m], which rows are copies that the driver makes step by step, as of pageable memory.

        It first brings the memory to the GPU's reach; the call blocks, or has returned up to 0.7 ms
        before the copy begins.
        """
        calls = self.blocking_calls
        copy_call_id = calls.event_id[calls.kind == Blocking.COPY]
        return read_only(np.isin(self.timeline.launch_id, copy_call_id))

    @cached_property
    def starts_in_its_call(self) -> NDArray[np.bool_]:
        """bool[m], which rows started while a call ran that did nothing but launch them."""
        timeline = self.timeline
        starts_in_call: NDArray[np.bool_] = timeline.launch_id != ABSENT
        starts_in_call &= timeline.start_ns < timeline.trace.end_ns[timeline.launch_id]
        return read_only(starts_in_call & ~self.is_staged)

    @cached_property
    def loading_id(self) -> NDArray[np.intp]:
        """intp[k], event ids of the regions and functions in which a thread loaded data."""
        return read_only(loading_regions(self.timeline))

    @cached_property
    def states(self) -> Mapping[int, ThreadState]:
        """Per thread that ran the program: index into `Trace.threads` to its state."""
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
    def launching_threads(self) -> frozenset[int]:
        """Index into `Trace.threads` of those that put work on a GPU."""
        launch_id = self.timeline.launch_id[self.timeline.launch_id != ABSENT]
        return frozenset(self.timeline.trace.thread_index[launch_id].tolist())

    @cached_property
    def other_threads(self) -> Callable[[int], ThreadState]:
        """Return the joint state of all launching threads except one.

        A thread that launches nothing, a logger for one, delays no launch.
        """
        return all_but_one(
            {
                thread: state
                for thread, state in self.states.items()
                if thread in self.launching_threads
            }
        )


def observe_host(timeline: Timeline) -> Host:
    """Find the blocking calls of a timeline's trace, and the calls that allocations stalled."""
    profiler_calls = MappingProxyType(find_profiler_calls(timeline.trace))
    blocking_calls = find_blocking_calls(timeline, profiler_calls)
    stalled_calls = find_stalled_calls(timeline.trace, blocking_calls)
    return Host(timeline, blocking_calls, stalled_calls, profiler_calls)
