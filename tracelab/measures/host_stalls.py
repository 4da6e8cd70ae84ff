"""Stalls of host threads, and the blocking call that caused each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, read_only
from tracelab.base.intervals import (
    BoolArray,
    IndexArray,
    Int64Array,
    IntArray,
    Intervals,
    contains,
    gaps,
    join,
    measure_within,
)
from tracelab.model.host import NOTHING_RECORDED, Host
from tracelab.model.latencies import MAX_SILENCE_NS
from tracelab.model.lookup import groups_of

# The host may wait for a GPU that works for this share of a silence.
_MIN_WORKED_SHARE = 0.95


class HostStalls(Arrays):
    """The times in which a host thread made no progress: blocking calls, then stalled calls.

    `call_index` is the blocking call that caused each ([h]), `thread_index` the thread.
    """

    call_index: IndexArray
    thread_index: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array


def host_stalls(host: Host) -> HostStalls:
    """The blocking calls, each of its own thread, and the calls that allocations stalled.

    The slow reference models are ``tests/reference/ticks.py`` and ``tests/reference/walks.py``.
    """
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

    A thread waits for another one that launches while nothing is recorded of itself, or a lock.
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
    throughout: a host may read a counter until a kernel has written it.
    """
    recorded = join(host.all_threads.recorded, host.all_threads.waiting)
    if not len(recorded):
        return recorded
    silences = gaps(recorded, int(recorded.starts[0]), int(recorded.ends[-1]))
    length_ns = silences.ends - silences.starts
    worked_ns = measure_within(host.timeline.busy(), silences.starts, silences.ends)
    is_wait = (length_ns > MAX_SILENCE_NS) & (worked_ns >= _MIN_WORKED_SHARE * length_ns)
    return Intervals(silences.starts[is_wait], silences.ends[is_wait])
