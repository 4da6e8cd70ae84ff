"""Find rows by name, group, time or correlation; on whole columns, without a loop over events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, IntArray, read_only
from tracelab.base.intervals import Intervals, union
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


def sample(count: int, most: int) -> IndexArray:
    """Indices of at most so many of `count` things, as far apart as can be, ascending."""
    return np.unique(np.linspace(0, max(0, count - 1), most).astype(np.intp))[:count]


def groups_of(values: IntArray) -> Iterator[tuple[int, IndexArray]]:
    """Every value but ABSENT, ascending, and the indexes where it stands, ascending."""
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
    """The rows of a value in an ascending column."""
    number = column.dtype.type(value)  # another type would have all of the column cast
    first, end = column.searchsorted(number), column.searchsorted(number, "right")
    return slice(int(first), int(end))


def expand_ranges(first: IndexArray, end: IndexArray) -> tuple[IndexArray, IndexArray]:
    """All members of the ranges ``[first, end)``, one range after another.

    Returns twice intp[members]: the index of the range, and the member; a range whose end comes
    first has none.
    """
    count = np.maximum(end - first, 0)
    range_index = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return range_index, np.arange(len(range_index)) - np.repeat(before - first, count)


def rows_of(event_id: Int64Array, wanted_id: Int64Array) -> IndexArray:
    """The positions of events that are in a column, ABSENT for ABSENT: intp[k]."""
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

    [queries], indexes of entries, else ABSENT. Groups ascend, and keys within each; queries need
    not.
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
    """The latest end so far within its group (ascending, from 0 on), of each entry: [k]."""
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


class Nesting:
    """Events as trees, one forest for each thread, in which `parent_index` is what encloses each.

    An `index` is a position among the entries, by thread, start, longest first.
    """

    def __init__(self, trace: Trace, events: IntArray) -> None:
        start_ns, end_ns = trace.start_ns[events], trace.end_ns[events]
        thread_index = trace.thread_index[events]
        order = np.lexsort((-end_ns, start_ns, thread_index))
        self.event_id: Int64Array = read_only(events[order].astype(np.int64))
        self.start_ns, self.end_ns = read_only(start_ns[order]), read_only(end_ns[order])
        self.thread_index = read_only(thread_index[order])
        self._trace = trace
        threads = np.arange(len(trace.threads) + 1, dtype=thread_index.dtype)
        self._bounds = np.searchsorted(self.thread_index, threads)
        self.parent_index = read_only(self._parents())

    def innermost(self, events: Int64Array) -> Int64Array:
        """The innermost entry around each event on its own thread, else ABSENT."""
        return self.innermost_on(self._trace.thread_index[events], events)

    def innermost_on(self, threads: IntArray | int, events: Int64Array) -> Int64Array:
        """The innermost entry of a thread around each event's time, else ABSENT."""
        index = self.begun_of(threads, self._trace.start_ns[events])
        return self._reaching(index, self._trace.end_ns[events])

    def innermost_of(self, threads: IntArray, moments_ns: Int64Array) -> Int64Array:
        """The innermost entry of a thread at each moment (in any order), else ABSENT."""
        return self._reaching(self.begun_of(threads, moments_ns), moments_ns + 1)

    def begun_of(self, threads: IntArray | int, moments_ns: Int64Array) -> Int64Array:
        """The entry of a thread that began last by each moment, else ABSENT."""
        starts_ns, entry_key = self._order_by_thread
        key = np.asarray(threads, dtype=np.int64) * (len(starts_ns) + 1)
        key = key + np.searchsorted(starts_ns, moments_ns, side="right")
        index = np.searchsorted(entry_key, key, side="right").astype(np.int64) - 1
        index[index < self._bounds[threads]] = ABSENT
        return index

    @cached_property
    def _order_by_thread(self) -> tuple[Int64Array, Int64Array]:
        # All starts, and a number for each entry that orders by thread and then by start.
        moments_ns, rank = np.unique(self.start_ns, return_inverse=True)
        return moments_ns, self.thread_index.astype(np.int64) * (len(moments_ns) + 1) + rank + 1

    def innermost_at(self, thread: int, moments_ns: Int64Array) -> Int64Array:
        """The innermost entry of a thread at each moment (ascending), else ABSENT.

        Where entries overlap without one enclosing the other, the one that began last.
        """
        own = self.entries_of(thread)
        # The last entry that has begun; there are fewer entries than moments to look up.
        first_moment = np.searchsorted(moments_ns, self.start_ns[own])
        begun = np.bincount(first_moment, minlength=len(moments_ns) + 1)[:-1]
        index: Int64Array = np.cumsum(begun, dtype=np.int64) + (own.start - 1)
        index[index < own.start] = ABSENT
        return self._reaching(index, moments_ns + 1)

    def _reaching(self, index: Int64Array, until_ns: Int64Array) -> Int64Array:
        """Replace entries that end before a time by the innermost around them that does not."""
        early = np.flatnonzero(index != ABSENT)
        while len(early):
            early = early[self.end_ns[index[early]] < until_ns[early]]
            index[early] = self.parent_index[index[early]]
            early = early[index[early] != ABSENT]
        return index

    def entries_of(self, thread: int) -> slice:
        """The entries of a thread, as an index."""
        return slice(*self._bounds[thread : thread + 2].tolist())

    def children(self, index: Int64Array) -> IndexArray:
        """The entries directly inside these: those of one entry ascending, one after another."""
        by_parent, parent_index = self._order_by_parent
        first, last = (
            np.searchsorted(parent_index, index),
            np.searchsorted(parent_index, index, "right"),
        )
        _, positions = expand_ranges(first, last)
        return by_parent[positions]

    def holding(self, chosen: BoolArray) -> BoolArray:
        """[n], which entries are chosen ([n]), or hold one that is."""
        holds, index = chosen.copy(), np.flatnonzero(chosen)
        while len(index):
            index = np.unique(self.parent_index[index])
            index = index[(index != ABSENT) & ~holds[index]]
            holds[index] = True
        return holds

    def around(self, index: Int64Array, chosen: BoolArray) -> Int64Array:
        """The innermost chosen one of each entry and those around it, else ABSENT."""
        around = index.copy()
        open_ = np.flatnonzero(around != ABSENT)
        while len(open_):
            open_ = open_[~chosen[around[open_]]]
            around[open_] = self.parent_index[around[open_]]
            open_ = open_[around[open_] != ABSENT]
        return around

    def names(self, index: Int64Array) -> Int64Array:
        """The name of each entry, as an index into `Trace.strings`; ABSENT stays."""
        names = self._trace.name_index[self.event_id[index]] if len(self.event_id) else index
        return np.where(index == ABSENT, ABSENT, names).astype(np.int64)

    def have_name(self, test: Callable[[str], object]) -> BoolArray:
        """[n], which entries have a name that passes a test."""
        return match_names(self._trace, self.event_id, test)

    def _parents(self) -> Int64Array:
        # The nearest entry before each that is of its thread and ends no earlier. All without an
        # answer step to their candidate's candidate: what lies between ends earlier than the entry.
        parent_index = np.arange(-1, len(self.event_id) - 1, dtype=np.int64)
        is_first, is_longer = np.diff(self.thread_index) != 0, np.diff(self.end_ns) > 0
        open_ = np.flatnonzero(is_first | is_longer) + 1
        while len(open_):
            candidate = parent_index[open_]
            same_thread = self.thread_index[candidate] == self.thread_index[open_]
            exists = (candidate != ABSENT) & same_thread
            parent_index[open_[~exists]] = ABSENT
            open_ = open_[exists]
            open_ = open_[self.end_ns[parent_index[open_]] < self.end_ns[open_]]
            parent_index[open_] = parent_index[parent_index[open_]]
        return parent_index

    @cached_property
    def _order_by_parent(self) -> tuple[IndexArray, Int64Array]:
        index = np.argsort(self.parent_index, kind="stable")
        return read_only(index), read_only(self.parent_index[index])


def is_nested(trace: Trace, calls: IndexArray) -> BoolArray:
    """[k], which calls (by start, longest first) run inside another one of their thread."""
    nested = np.zeros(len(calls), dtype=np.bool_)
    for _, of_thread in groups_of(trace.thread_index[calls]):
        end_ns, later = trace.end_ns[calls[of_thread]], of_thread[1:]
        reach_ns = np.maximum.accumulate(end_ns)[:-1]
        # A call that merely begins where the one before ended is no part of it.
        nested[later] = (end_ns[1:] <= reach_ns) & (trace.start_ns[calls[later]] < reach_ns)
    return nested
