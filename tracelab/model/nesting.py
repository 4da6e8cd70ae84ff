"""Nesting on a host thread: operators, regions, Python functions or calls as trees."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from tracelab.base.arrays import read_only
from tracelab.base.intervals import BoolArray, IndexArray, Int64Array, IntArray
from tracelab.model.lookup import expand_ranges, groups_of, match_names
from tracelab.model.trace import ABSENT, Trace


class Nesting:
    """Events as trees, one forest for each thread: every entry knows the one that encloses it.

    An `index` in this class is a position among the entries, `parent_index` ([n]) that of the
    nearest enclosing entry. They are ordered by thread, start, longest first.
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
        # The nearest entry before each that is of its thread and ends no earlier. All still without
        # an answer step to their candidate's candidate together: what lies between an entry and its
        # candidate ends earlier than the entry.
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
