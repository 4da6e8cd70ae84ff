"""Times that were recorded wrongly: clocks that jumped, and Python functions that do not end.

Counters of 32 bits wrap, and machines set their clocks. A jump shows as a stretch of time in which
nothing at all happened, with the calls of a thread in the wrong order around it, or so long that no
recording has it. The times on both sides are right. What follows a jump is moved back.

Code of `torch.compile` leaves built-in functions without telling the profiler's tracer, which then
ends them with whatever returns much later: a call of 1 ms reads 100 ms, and is around all that
follows it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array

# In a shorter gap the program may only have made no call.
_MIN_GAP_NS = 500_000_000
# No program pauses for longer: its clock jumped.
_MIN_JUMP_NS = 3600 * 1_000_000_000
# A 32-bit counter of microseconds wraps.
_COUNTER_WRAP_NS = 2**32 * 1000
_SHORT_NS = 60 * 1_000_000_000
# The GPU's work may reach past the host's next call.
_MAX_OVERLAP_NS = 2 * 1_000_000_000
_MAX_BINS, _BLOCK = 1 << 20, 1 << 18
# Correlations have 32 bits.
_NUMBER_WRAP = 2**31


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Calls(Frozen):
    """The host's calls that have a number, which grows from call to call.

    Example row: ``Calls(event=12, thread=3, number=4711)``.

    Attributes:
        event: intp[k], their places among the events.
        thread: int32[k], the thread of each.
        number: int64[k], the number of each, as the driver counts.
    """

    event: NDArray[np.intp]
    thread: NDArray[np.int32]
    number: Int64Array


def has_long_pause(start_ns: Int64Array, duration_ns: Int64Array) -> bool:
    """Return True if no event may have run for so long that a clock may have jumped.

    If False, there certainly is no such pause. Makes no copy of the columns.

    Args:
        start_ns: int64[n], when the events began, ns.
        duration_ns: int64[n], how long they took, ns; an hour or more is as good as nothing.
    """
    origin_ns, bin_ns = int(start_ns.min()), _MIN_GAP_NS // 2
    bins = (int(start_ns.max()) - origin_ns) // bin_ns + 1
    if bins > _MAX_BINS:
        return True
    open_events = np.zeros(bins + 1, dtype=np.int64)
    for first in range(0, len(start_ns), _BLOCK):
        block = slice(first, first + _BLOCK)
        begin = start_ns[block] - origin_ns
        length_ns = np.where(duration_ns[block] < _MIN_JUMP_NS, duration_ns[block], 0)
        open_events += np.bincount(begin // bin_ns, minlength=bins + 1)
        end = np.minimum((begin + length_ns) // bin_ns + 1, bins)
        open_events -= np.bincount(end, minlength=bins + 1)
    return not np.cumsum(open_events[:-1]).all()


def remove_jumps(
    start_ns: Int64Array, end_ns: Int64Array, is_work: NDArray[np.bool_], calls: Calls
) -> tuple[Int64Array, int]:
    """The starts of events in one time, and how often their clock jumped.

    A counter that wrapped is put right exactly. After any other jump the time that really passed is
    not known: what follows begins where what was before began last.

    Args:
        start_ns: int64[n], when the events began, ns.
        end_ns: int64[n], when they ended, ns; of an event that says nothing about time, its start.
        is_work: bool[n], what the GPU or a call of the host did: only between such events a jump
            matters, an annotation far away from all of them may stay there.
        calls: the host's calls.

    Returns:
        int64[n], ns; and the number of jumps. Without any the starts are the same array.
    """
    order = np.argsort(start_ns, kind="stable")
    begins = _stretches(start_ns[order], end_ns[order], is_work[order])
    if len(begins) == 1:
        return start_ns, 0
    stretch = np.empty(len(order), dtype=np.intp)
    stretch[order] = np.repeat(np.arange(len(begins)), np.diff([*begins, len(order)]))
    first_ns, last_ns = start_ns[order[begins]], start_ns[order[[*(begins[1:] - 1), -1]]]
    reached_ns = np.maximum.reduceat(end_ns[order], begins)
    shift_ns = np.zeros(len(begins), dtype=np.int64)
    jumps = 0
    for before, after in pairwise(_true_order(stretch[calls.event], len(begins), calls)):
        pause_ns = int(first_ns[after] - reached_ns[before])
        shift_ns[after] = shift_ns[before]
        if not 0 <= pause_ns < _MIN_JUMP_NS:
            jumps += 1
            wraps_ns = (_COUNTER_WRAP_NS, -_COUNTER_WRAP_NS)
            is_wrap = [-_MAX_OVERLAP_NS < pause_ns + x < _SHORT_NS for x in wraps_ns]
            at_once_ns = int(last_ns[before] - first_ns[after])
            shift_ns[after] += wraps_ns[is_wrap.index(True)] if any(is_wrap) else at_once_ns
    return (start_ns + shift_ns[stretch], jumps) if jumps else (start_ns, 0)


def _stretches(
    start_ns: Int64Array, end_ns: Int64Array, is_work: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """intp[s]: where, among events by start, each begins that has nothing right before it."""
    work = np.cumsum(is_work)
    reached_ns = np.maximum.accumulate(end_ns)
    is_first = start_ns[1:] - reached_ns[:-1] >= _MIN_GAP_NS
    is_first &= (work[:-1] > 0) & (work[:-1] < work[-1])
    return np.concatenate(([0], np.flatnonzero(is_first) + 1))


def _true_order(stretch: NDArray[np.intp], count: int, calls: Calls) -> list[int]:
    """The stretches in the order in which they happened.

    That is the order of time. Only where the next calls of all threads that go on have smaller
    numbers than their last ones, the clock had jumped back.

    Args:
        stretch: intp[k], that of each call.
        count: of the stretches.
        calls: the calls.
    """
    # By thread, and within it by stretch: one group is what a thread called in a stretch.
    key = calls.thread.astype(np.int64) * count + stretch
    by_key = np.argsort(key, kind="stable")
    groups, first = np.unique(key[by_key], return_index=True)
    if not len(groups):
        return list(range(count))
    least = np.minimum.reduceat(calls.number[by_key], first)
    most = np.maximum.reduceat(calls.number[by_key], first)
    thread, of_stretch = groups // count, groups % count
    goes_on = np.flatnonzero(thread[1:] == thread[:-1])
    fall = least[goes_on] - most[goes_on + 1]
    is_backwards = (fall > 0) & (fall < _NUMBER_WRAP)
    votes = np.bincount(of_stretch[goes_on + 1], minlength=count)
    votes_for = np.bincount(of_stretch[goes_on + 1][is_backwards], minlength=count)
    runs = np.split(np.arange(count), np.flatnonzero((votes > 0) & (votes_for == votes)))
    numbers = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(numbers, of_stretch, least)
    return [int(index) for run in sorted(runs, key=lambda run: numbers[run].min()) for index in run]


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
        left = np.delete(left, _keep_outermost(np.flatnonzero(outlasts), outlasts, around))


def _keep_outermost(
    index: NDArray[np.intp], outlasts: NDArray[np.bool_], around: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Select the functions that began in none that outlasts; others are judged without these."""
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
    """Return the functions that outlast the one that ran when they began, and that one.

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
