"""Sets of half-open intervals ``[start, end)`` of int64 nanoseconds.

Everything that tracelab measures stands on these few functions. A set is kept in its one normal
form (sorted, disjoint, not touching, none empty), so two equal sets are equal arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A set of nanoseconds in normal form; make one with `union`.

    Attributes:
        starts: int64[n], ascending.
        ends: int64[n], ascending, ``starts[i] < ends[i] < starts[i + 1]``.
    """

    starts: Int64Array
    ends: Int64Array

    def __len__(self) -> int:
        return len(self.starts)


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """The set covered by any of the intervals ``[starts[i], ends[i])``, in any order."""
    start = np.asarray(starts, dtype=np.int64)
    end = np.asarray(ends, dtype=np.int64)
    filled = end > start
    start, end = start[filled], end[filled]
    if len(start) == 0:
        return Intervals(start, end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start[opens], reach[closes])


def join(a: Intervals, b: Intervals) -> Intervals:
    """The set covered by `a` or `b`."""
    return union(np.concatenate((a.starts, b.starts)), np.concatenate((a.ends, b.ends)))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The set covered by both `a` and `b`."""
    left, right = overlapping_pairs(a, b)
    return Intervals(
        np.maximum(a.starts[left], b.starts[right]), np.minimum(a.ends[left], b.ends[right])
    )


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The set covered by `a` and not by `b`."""
    if len(a) == 0:
        return a
    return intersect(a, gaps(b, int(a.starts[0]), int(a.ends[-1])))


def gaps(a: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part of ``[start_ns, end_ns)`` that `a` leaves free."""
    inside = clip(a, start_ns, end_ns)
    edges_from = np.concatenate((np.array([start_ns], dtype=np.int64), inside.ends))
    edges_to = np.concatenate((inside.starts, np.array([end_ns], dtype=np.int64)))
    filled = edges_to > edges_from
    return Intervals(edges_from[filled], edges_to[filled])


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
    return _length_before(a, ends) - _length_before(a, starts)


def overlapping_pairs(a: Intervals, b: Intervals) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices (i, j) of every pair of intervals of `a` and `b` that share time, in time order."""
    first = np.searchsorted(b.ends, a.starts, side="right")
    count = np.searchsorted(b.starts, a.ends, side="left") - first
    left = np.repeat(np.arange(len(a)), count)
    before = np.cumsum(count) - count
    right = np.arange(len(left)) - np.repeat(before - first, count)
    return left, right


def _length_before(a: Intervals, points: ArrayLike) -> Int64Array:
    """Length of the part of `a` that lies before each point: int64[n], ns."""
    at = np.asarray(points, dtype=np.int64)
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(a.ends - a.starts)))
    begun = np.searchsorted(a.starts, at, side="right")
    unfinished = np.zeros(len(at), dtype=np.int64)
    inside = begun > 0
    unfinished[inside] = np.maximum(a.ends[begun[inside] - 1] - at[inside], 0)
    return total[begun] - unfinished
