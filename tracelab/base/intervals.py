"""Sets of half-open intervals ``[start, end)`` of int64 nanoseconds.

A set is kept sorted, disjoint, not touching, none empty: two equal sets are equal arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array


class Intervals(Arrays):
    """A set of nanoseconds in normal form, [n] starts and ends; make one with `union`."""

    starts: Int64Array
    ends: Int64Array

    def __len__(self) -> int:
        return len(self.starts)


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """The set covered by any of the intervals ``[starts[i], ends[i])``, in any order.

    >>> union([40, 0, 10, 60], [50, 10, 30, 60])
    Intervals(starts=[0, 40], ends=[30, 50])
    """
    start = np.asarray(starts, dtype=np.int64)
    end = np.asarray(ends, dtype=np.int64)
    is_filled = end > start
    start, end = start[is_filled], end[is_filled]
    if len(start) == 0:
        return Intervals(start, end)
    order = np.argsort(start, kind="stable")
    start, end_so_far = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > end_so_far[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start[opens], end_so_far[closes])


def join(a: Intervals, b: Intervals) -> Intervals:
    """The set covered by `a` or `b`."""
    return union(np.concatenate((a.starts, b.starts)), np.concatenate((a.ends, b.ends)))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The set covered by both `a` and `b`."""
    if not len(a) or not len(b):
        return union([], [])
    left, right = overlapping_pairs(a, b)
    return Intervals(
        np.maximum(a.starts[left], b.starts[right]), np.minimum(a.ends[left], b.ends[right])
    )


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The set covered by `a` and not by `b`."""
    if len(a) == 0 or len(b) == 0:
        return a
    return intersect(a, gaps(b, int(a.starts[0]), int(a.ends[-1])))


def gaps(a: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part of ``[start_ns, end_ns)`` that `a` leaves free."""
    inside = clip(a, start_ns, end_ns)
    gap_start_ns = np.concatenate((np.array([start_ns], dtype=np.int64), inside.ends))
    gap_end_ns = np.concatenate((inside.starts, np.array([end_ns], dtype=np.int64)))
    is_filled = gap_end_ns > gap_start_ns
    return Intervals(gap_start_ns[is_filled], gap_end_ns[is_filled])


def clip(a: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part of `a` inside ``[start_ns, end_ns)``."""
    first = np.searchsorted(a.ends, start_ns, side="right")
    last = np.searchsorted(a.starts, end_ns, side="left") if end_ns > start_ns else first
    return Intervals(
        np.maximum(a.starts[first:last], start_ns), np.minimum(a.ends[first:last], end_ns)
    )


def measure(a: Intervals) -> int:
    """Length of the set, ns."""
    return int((a.ends - a.starts).sum())


def measure_within(a: Intervals, starts: ArrayLike, ends: ArrayLike) -> Int64Array:
    """Length of the part of `a` inside each ``[starts[i], ends[i])``: int64[n], ns."""
    if not len(a):
        return np.zeros(len(np.asarray(starts)), dtype=np.int64)
    return _length_before(a, ends) - _length_before(a, starts)


def contains(a: Intervals, moments_ns: ArrayLike) -> BoolArray:
    """bool[n], which moments lie in a set."""
    begun = np.searchsorted(a.starts, moments_ns, side="right")
    is_inside: BoolArray = begun > np.searchsorted(a.ends, moments_ns, side="right")
    return is_inside


def overlapping_pairs(a: Intervals, b: Intervals) -> tuple[IndexArray, IndexArray]:
    """Indices (i, j) of every pair of intervals of `a` and `b` that share time, in time order."""
    first = np.searchsorted(b.ends, a.starts, side="right")
    count = np.searchsorted(b.starts, a.ends, side="left") - first
    left = np.repeat(np.arange(len(a)), count)
    pairs_before = np.cumsum(count) - count
    right = np.arange(len(left)) - np.repeat(pairs_before - first, count)
    return left, right


def stacked(starts: Int64Array, ends: Int64Array, most: int) -> IndexArray:
    """A level for each interval, by start, so that those of one level do not overlap.

    Each takes the lowest of `most` levels that is free; if all are taken, the last.
    """
    levels: list[int] = []
    reached: list[int] = []  # of each level, when the last interval in it ends
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        free = (level for level, end_before in enumerate(reached) if end_before <= start)
        level = min(next(free, len(reached)), most - 1)
        if level == len(reached):
            reached.append(end)
        reached[level] = max(end, reached[level])
        levels.append(level)
    return np.array(levels, dtype=np.intp)


def _length_before(a: Intervals, times_ns: ArrayLike) -> Int64Array:
    time_ns = np.asarray(times_ns, dtype=np.int64)
    length_of_first = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(a.ends - a.starts)))
    begun = np.searchsorted(a.starts, time_ns, side="right")
    unfinished_ns = np.zeros(len(time_ns), dtype=np.int64)
    has_begun = begun > 0
    unfinished_ns[has_begun] = np.maximum(a.ends[begun[has_begun] - 1] - time_ns[has_begun], 0)
    return length_of_first[begun] - unfinished_ns
