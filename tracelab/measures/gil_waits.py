"""Waits of launching Python threads for the GIL, the lock that lets one thread run Python.

A thread that runs Python begins or ends a function every few microseconds. Where it does neither
for longer, is in no call and no operator, and another thread of its process begins and ends
functions meanwhile, the other one has the lock and it waits. A thread that gave the lock back is no
contender: one that sleeps, waits for another thread, is inside a CUDA call or an operator, or in a
built-in function for long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, concatenated, dataclass
from tracelab.base.intervals import Int64Array, Intervals, measure_within, union
from tracelab.model.frames import is_backward, is_built_in, is_sleep, is_thread_wait
from tracelab.model.host import Host
from tracelab.model.nesting import Nesting
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace

# A line of Python may take less.
_MIN_WAIT_NS = 20_000
# A built-in function that takes longer may have released the lock.
_MIN_RELEASE_NS = 100_000
_MIN_BOUNDARIES = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GilWaits(Frozen):
    """Stretches in which a launching thread waited for the GIL; by thread, holder and start.

    Example row: ``(thread_index=0, holder_index=1, start_ns=40_000, end_ns=5_045_000,
    held_ns=4_990_000)``: the first thread did nothing for 5 ms, for 4.99 ms of which at least the
    second ran Python.

    Attributes:
        thread_index: int32[k], index into `Trace.threads` of the thread that waited.
        holder_index: int32[k], index of the one that ran Python.
        start_ns, end_ns: int64[k], ns.
        held_ns: int64[k], ns, how long it certainly did.
    """

    thread_index: NDArray[np.int32]
    holder_index: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array
    held_ns: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)


def gil_waits(host: Host) -> GilWaits:
    """Find when the threads that launch waited for the GIL.

    The slow reference model is ``tests/reference/gil.py``.

    Args:
        host: the host side of a timeline.
    """
    trace = host.timeline.trace
    functions = trace.of_category(Category.PYTHON)
    threads = np.unique(trace.thread_index[functions]).tolist()
    none = np.zeros(0, dtype=np.int64)
    waits = [GilWaits(none.astype(np.int32), none.astype(np.int32), none, none, none)]
    if len(threads) > 1:
        code = _PythonCode(trace)
        of_thread = {thread: code.of_thread(thread) for thread in threads}
        waits += [
            _waits_for(thread, holder, of_thread[thread], of_thread[holder])
            for thread in threads
            for holder in threads
            if thread in host.launching_threads
            and thread != holder
            and trace.threads[thread].process == trace.threads[holder].process
        ]
    return concatenated(waits)


@dataclass(frozen=True, slots=True, eq=False)
class _Thread:
    """Intervals in which a thread certainly ran Python, and in which it may have waited to.

    Attributes:
        boundary_ns: int64[b], ns, when a function began or ended, which takes the lock, ascending.
        runs: when it ran Python.
        silence_start_ns, silence_end_ns: int64[s], ns, when it was about to run Python, and began
            and ended nothing.
    """

    boundary_ns: Int64Array
    runs: Intervals
    silence_start_ns: Int64Array
    silence_end_ns: Int64Array


class _PythonCode:
    """Activity of a file's threads from each of their events to the next."""

    def __init__(self, trace: Trace) -> None:
        events = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
        self._nesting = nesting = Nesting(trace, events)
        self._is_function = trace.category[nesting.event_id] == Category.PYTHON
        self._is_built_in = nesting.have_name(is_built_in)
        self._is_away = nesting.have_name(
            lambda name: is_thread_wait(name) or is_sleep(name) or is_backward(name)
        )
        self._is_long = nesting.end_ns - nesting.start_ns >= _MIN_RELEASE_NS

    def of_thread(self, thread: int) -> _Thread:
        nesting, own = self._nesting, self._nesting.entries_of(thread)
        start_ns, end_ns = nesting.start_ns[own], nesting.end_ns[own]
        is_function = self._is_function[own]
        moments_ns = np.unique(np.concatenate((start_ns, end_ns)))
        first_ns, last_ns = moments_ns[:-1], moments_ns[1:]
        innermost = nesting.innermost_at(thread, first_ns)
        is_python = (innermost != ABSENT) & self._is_function[innermost]
        is_python &= ~self._is_away[innermost]
        is_built_in = self._is_built_in[innermost]
        runs = is_python & ~(is_built_in & self._is_long[innermost])
        # A built-in function that made a call needs the lock again before it returns.
        is_silent = is_python & (~is_built_in | np.isin(first_ns, end_ns[~is_function]))
        is_silent &= last_ns - first_ns >= _MIN_WAIT_NS
        return _Thread(
            boundary_ns=np.sort(np.concatenate((start_ns[is_function], end_ns[is_function]))),
            runs=union(first_ns[runs], last_ns[runs]),
            silence_start_ns=first_ns[is_silent],
            silence_end_ns=last_ns[is_silent],
        )


def _waits_for(thread: int, holder: int, waiting: _Thread, holding: _Thread) -> GilWaits:
    """Return when one thread waited for another, from its first to its last event in a silence."""
    boundary_ns = holding.boundary_ns
    first = np.searchsorted(boundary_ns, waiting.silence_start_ns, side="right")
    end = np.searchsorted(boundary_ns, waiting.silence_end_ns, side="left")
    index = np.flatnonzero(end - first >= _MIN_BOUNDARIES)
    held_ns = measure_within(holding.runs, boundary_ns[first[index]], boundary_ns[end[index] - 1])
    index, held_ns = index[held_ns > 0], held_ns[held_ns > 0]
    return GilWaits(
        thread_index=np.full(len(index), thread, dtype=np.int32),
        holder_index=np.full(len(index), holder, dtype=np.int32),
        start_ns=waiting.silence_start_ns[index],
        end_ns=waiting.silence_end_ns[index],
        held_ns=held_ns,
    )
