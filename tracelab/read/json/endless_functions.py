"""Python functions that the profiler took for running after the function that called them.

Code of `torch.compile` leaves built-in functions without telling the profiler's tracer, which then
ends them with whatever returns much later: a call of 1 ms reads 100 ms, and is around all that
follows it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array


def find_endless(
    start_ns: Int64Array, end_ns: Int64Array, thread_index: NDArray[np.int32]
) -> NDArray[np.intp]:
    """intp[k], the functions that outlast the one in which they began, ascending.

    >>> import numpy as np
    >>> starts, ends = np.array([0, 10, 20, 60]), np.array([100, 50, 90, 70])
    >>> find_endless(starts, ends, np.zeros(4, dtype=np.int32))  # the third began in the second
    array([2])

    Args:
        start_ns: int64[n], ns.
        end_ns: int64[n], ns.
        thread_index: int32[n].
    """
    order = np.lexsort((-end_ns, start_ns, thread_index))
    left = order
    while True:
        outlasts, around = _outlasting(start_ns[left], end_ns[left], thread_index[left])
        if not outlasts.any():
            return np.setdiff1d(order, left)
        left = np.delete(left, _without_others_around(np.flatnonzero(outlasts), outlasts, around))


def _without_others_around(
    index: NDArray[np.intp], outlasts: NDArray[np.bool_], around: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Those that began in none that outlasts: the others are judged once these are left out."""
    is_inner, outer = np.zeros(len(index), dtype=np.bool_), around[index]
    open_ = np.arange(len(index))
    while len(open_):
        is_inner[open_] = outlasts[outer[open_]]
        outer[open_] = around[outer[open_]]
        open_ = open_[~is_inner[open_] & (outer[open_] >= 0)]
    return index[~is_inner]


def _outlasting(
    start_ns: Int64Array, end_ns: Int64Array, thread_index: NDArray[np.int32]
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which functions outlast the last one that ran when they began, and which that is.

    Twice [n], in the order of threads, starts, longest first.
    """
    around = np.arange(-1, len(start_ns) - 1)
    open_ = np.flatnonzero(around >= 0)
    while len(open_):
        before = around[open_]
        is_other = thread_index[before] != thread_index[open_]
        around[open_[is_other]] = -1
        open_ = open_[~is_other]
        # What lies between a function and the one around it had ended when this one began.
        open_ = open_[end_ns[around[open_]] <= start_ns[open_]]
        around[open_] = around[around[open_]]
        open_ = open_[around[open_] >= 0]
    outlasts = (around >= 0) & (end_ns > end_ns[around])
    return outlasts, around
