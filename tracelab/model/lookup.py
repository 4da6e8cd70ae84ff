"""Find rows by name, group, time or correlation; on whole columns, without a loop over events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import read_only
from tracelab.base.intervals import BoolArray, IndexArray, Int64Array, IntArray, Intervals, union
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace

_Number = TypeVar("_Number", bound=np.generic)


def map_names(
    trace: Trace, events: IntArray, value_of: Callable[[str], int | None], dtype: type[_Number]
) -> NDArray[_Number]:
    """The values of the names of these events ([k]), each worked out once; ABSENT for None."""
    name_index = trace.name_index[events]
    values = np.zeros(len(trace.strings), dtype=dtype)
    values[name_index] = 1
    for name in np.flatnonzero(values).tolist():
        value = value_of(trace.strings[name])
        values[name] = ABSENT if value is None else value
    of_event: NDArray[_Number] = values[name_index]
    return of_event


def match_names(trace: Trace, events: IntArray, test: Callable[[str], object]) -> BoolArray:
    """[k], which of these events have a name that passes a test."""
    return map_names(trace, events, lambda name: bool(test(name)), np.bool_)


def calls_of_name(trace: Trace, test: Callable[[str], object]) -> IndexArray:
    """Event ids of the host calls whose name passes a test, by start."""
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[match_names(trace, calls, test)]
    return calls[np.argsort(trace.start_ns[calls], kind="stable")]


def groups_of(values: IntArray) -> Iterator[tuple[int, IndexArray]]:
    """Every value but ABSENT, ascending, and the indexes where it stands, ascending.

    >>> [(value, index.tolist()) for value, index in groups_of(np.array([7, 3, 7, ABSENT]))]
    [(3, [1]), (7, [0, 2])]
    """
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    for index in np.split(order, bounds):
        if values[index[0]] != ABSENT:
            yield int(values[index[0]]), index


def unions(group: IntArray, start_ns: Int64Array, end_ns: Int64Array) -> dict[int, Intervals]:
    """The set that the intervals of each group cover, by its number other than ABSENT."""
    return {number: union(start_ns[index], end_ns[index]) for number, index in groups_of(group)}


def range_of(column: IntArray, value: int) -> slice:
    """The rows of a value in an ascending column.

    >>> range_of(np.array([3, 7, 7, 9]), 7)
    slice(1, 3, None)
    """
    number = column.dtype.type(value)  # another type would have all of the column cast
    first, end = column.searchsorted(number), column.searchsorted(number, "right")
    return slice(int(first), int(end))


def expand_ranges(first: IndexArray, end: IndexArray) -> tuple[IndexArray, IndexArray]:
    """All members of the ranges ``[first, end)``, one range after another.

    Returns twice intp[members]: the index of the range, and the member; a range whose end comes
    first has none.

    >>> index, member = expand_ranges(np.array([4, 9, 0]), np.array([6, 9, 3]))
    >>> index.tolist(), member.tolist()
    ([0, 0, 2, 2, 2], [4, 5, 0, 1, 2])
    """
    count = np.maximum(end - first, 0)
    range_index = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return range_index, np.arange(len(range_index)) - np.repeat(before - first, count)


def rows_of(event_id: Int64Array, wanted_id: Int64Array) -> IndexArray:
    """The positions of events that are in a column, ABSENT for ABSENT: intp[k].

    >>> rows_of(np.array([7, 3, 5]), np.array([5, ABSENT, 7])).tolist()
    [2, -1, 0]
    """
    order = np.argsort(event_id)
    position = np.searchsorted(event_id[order], wanted_id)
    row = order[np.minimum(position, len(order) - 1)]
    return np.where(wanted_id == ABSENT, ABSENT, row)


def last_in_group(
    group: IntArray,
    key: Int64Array,
    query_group: IntArray,
    query_key: Int64Array,
    side: Literal["left", "right"] = "left",
) -> IndexArray:
    """Per query the last entry of a group with a smaller key, or ("right") one no greater.

    Returns [queries], indexes of entries, ABSENT without one. Groups are ascending, and keys within
    each group; queries come in any order, ABSENT for no group.

    >>> group, key = np.array([0, 0, 0, 1]), np.array([10, 20, 30, 5])
    >>> last_in_group(group, key, np.array([0, 1, 0]), np.array([25, 5, 10])).tolist()
    [1, -1, -1]
    >>> last_in_group(group, key, np.array([0, 1, 0]), np.array([25, 5, 10]), "right").tolist()
    [1, 3, 0]
    """
    last_index = np.full(len(query_group), ABSENT, dtype=np.intp)
    for number, queries in groups_of(query_group):
        same = range_of(group, number)
        index = same.start + np.searchsorted(key[same], query_key[queries], side) - 1
        last_index[queries] = np.where(index >= same.start, index, ABSENT)
    return last_index


def search_ranges(
    key: Int64Array,
    first: IndexArray,
    end: IndexArray,
    query_key: Int64Array,
    side: Literal["left", "right"] = "left",
) -> IndexArray:
    """Do what `numpy.searchsorted` does, for each query in a range ``[first, end)`` of its own.

    Keys are ascending within each range; of an empty range the result is its beginning.
    """
    comes_before = np.less if side == "left" else np.less_equal
    low, high = first.copy(), end.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        is_before = comes_before(key[middle], query_key[open_])
        low[open_[is_before]] = middle[is_before] + 1
        high[open_[~is_before]] = middle[~is_before]
        open_ = open_[low[open_] < high[open_]]
    return low


def first_around(start_ns: Int64Array, end_ns: Int64Array, moments_ns: Int64Array) -> IndexArray:
    """The first of some intervals, in their order, around each moment, else ABSENT: [k]."""
    by_time = np.argsort(moments_ns, kind="stable")
    first, end = np.searchsorted(moments_ns, (start_ns, end_ns), sorter=by_time)
    # The moments in an interval are two runs of 2^level, which may overlap; a run is two halves.
    level = np.frexp(np.maximum(end - first, 0))[1] - 1
    none = len(start_ns)
    around = np.full(len(moments_ns), none, dtype=np.intp)
    for exponent in range(level.max(initial=ABSENT), -1, -1):
        width = 2**exponent
        around[width:] = np.minimum(around[width:], around[:-width])
        index = np.flatnonzero(level == exponent)
        np.minimum.at(around, first[index], index)
        np.minimum.at(around, end[index] - width, index)
    found = np.empty_like(around)
    found[by_time] = np.where(around == none, ABSENT, around)
    return found


def counts_inside(trace: Trace, regions: IntArray, events: IntArray) -> IndexArray:
    """[regions], how many of some host events begin in each region, on its thread."""
    moments_ns = np.concatenate((trace.start_ns[regions], trace.end_ns[regions]))
    first, end = np.split(counts_before(trace, events, np.tile(regions, 2), moments_ns), 2)
    return end - first


def counts_before(
    trace: Trace,
    events: IntArray,
    others: IntArray,
    moments_ns: Int64Array,
    side: Literal["left", "right"] = "left",
) -> IndexArray:
    """[others], how many of some host events the thread of each other begins before a moment.

    With the side "right" those that it begins at that moment count, too.
    """
    events = events[np.lexsort((trace.start_ns[events], trace.thread_index[events]))]
    bounds = np.searchsorted(trace.thread_index[events], np.arange(len(trace.threads) + 1))
    thread = trace.thread_index[others]
    first, end = bounds[thread], bounds[thread + 1]
    position = search_ranges(trace.start_ns[events], first, end, moments_ns, side)
    count: IndexArray = position - first
    return count


def reach_in_group(group: IntArray, end_ns: Int64Array) -> Int64Array:
    """The latest end so far within its group (ascending, from 0 on), of each entry: [k].

    >>> reach_in_group(np.array([0, 0, 0, 1]), np.array([30, 50, 40, 20])).tolist()
    [30, 50, 50, 20]
    """
    # Ranks of ends, not ends, so that those of one group lie above all of the groups before.
    ordered_ns, rank = np.unique(end_ns, return_inverse=True)
    own = group.astype(np.int64) * len(ordered_ns)
    reach_ns: Int64Array = ordered_ns[np.maximum.accumulate(own + rank.reshape(-1)) - own]
    return reach_ns


class ByCorrelation:
    """The events of some categories by correlation; the first where several share one."""

    def __init__(self, trace: Trace, *categories: Category) -> None:
        events = trace.of_category(*categories)
        events = events[trace.correlation[events] != ABSENT]
        self._correlation, first = np.unique(trace.correlation[events], return_index=True)
        self.event_id = read_only(events[first])

    def find(self, correlation: Int64Array) -> IndexArray:
        """Event ids, ABSENT without one."""
        if not len(self.event_id):
            return np.full(len(correlation), ABSENT, dtype=np.intp)
        index = np.searchsorted(self._correlation, correlation)
        index = np.minimum(index, len(self.event_id) - 1)
        return np.where(self._correlation[index] == correlation, self.event_id[index], ABSENT)
