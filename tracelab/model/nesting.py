"""What encloses what on a host thread: operators, regions or Python functions as trees."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.lookup import expand_ranges, groups_of, match_names
from tracelab.model.trace import ABSENT, Trace


class Nesting:
    """Events of some categories as trees: each row points to the one that encloses it.

    Attributes:
        event: int64[n], event ids by thread, start, longest first.
        parent: int64[n], row of the nearest enclosing one, else ABSENT.
    """

    def __init__(self, trace: Trace, events: NDArray[np.integer[Any]]) -> None:
        start, end, thread = (
            trace.start_ns[events],
            trace.end_ns[events],
            trace.thread_index[events],
        )
        order = np.lexsort((-end, start, thread))
        self.event = events[order].astype(np.int64)
        self.start, self.end, self.thread = start[order], end[order], thread[order]
        self._trace = trace
        threads = np.arange(len(trace.threads) + 1, dtype=self.thread.dtype)
        self._bounds = np.searchsorted(self.thread, threads)
        self.parent = self._parents()

    def _parents(self) -> Int64Array:
        """The nearest row before each that is of its thread and ends no earlier.

        All rows still without an answer step to their candidate's candidate at once: what lies
        between a row and its candidate ends earlier than the row.
        """
        parent = np.arange(-1, len(self.event) - 1, dtype=np.int64)
        alone, longer = np.diff(self.thread) != 0, np.diff(self.end) > 0
        open_ = np.flatnonzero(alone | longer) + 1
        while len(open_):
            before = parent[open_]
            there = (before != ABSENT) & (self.thread[before] == self.thread[open_])
            parent[open_[~there]] = ABSENT
            open_ = open_[there]
            open_ = open_[self.end[parent[open_]] < self.end[open_]]
            parent[open_] = parent[parent[open_]]
        return parent

    def innermost(self, events: Int64Array) -> Int64Array:
        """int64[k], the innermost row around each event on its own thread, else ABSENT."""
        found = np.full(len(events), ABSENT, dtype=np.int64)
        for thread, asked in groups_of(self._trace.thread_index[events]):
            found[asked] = self.innermost_on(thread, events[asked])
        return found

    def innermost_on(self, thread: int, events: Int64Array) -> Int64Array:
        """int64[k], the innermost row of a thread around the time of each event, else ABSENT."""
        start, end = self._trace.start_ns[events], self._trace.end_ns[events]
        first, last = self._bounds[thread : thread + 2]
        row = np.searchsorted(self.start[first:last], start, side="right").astype(np.int64)
        row += first - 1
        row[row < first] = ABSENT
        late = np.flatnonzero(row != ABSENT)
        while len(late):
            late = late[self.end[row[late]] < end[late]]
            row[late] = self.parent[row[late]]
            late = late[row[late] != ABSENT]
        return row

    def children(self, rows: Int64Array) -> NDArray[np.intp]:
        """The rows directly inside each of these: those of one row ascending, one after another."""
        by_parent, parent = self._by_parent
        first, last = np.searchsorted(parent, rows), np.searchsorted(parent, rows, "right")
        _, places = expand_ranges(first, last)
        return by_parent[places]

    @cached_property
    def _by_parent(self) -> tuple[NDArray[np.intp], Int64Array]:
        """The rows by parent, then ascending; and their parents."""
        rows = np.argsort(self.parent, kind="stable")
        return rows, self.parent[rows]

    def around(self, rows: Int64Array, chosen: NDArray[np.bool_]) -> Int64Array:
        """int64[k], of each row and those around it the innermost chosen one, else ABSENT."""
        found = rows.copy()
        open_ = np.flatnonzero(found != ABSENT)
        while len(open_):
            open_ = open_[~chosen[found[open_]]]
            found[open_] = self.parent[found[open_]]
            open_ = open_[found[open_] != ABSENT]
        return found

    def names(self, rows: Int64Array) -> Int64Array:
        """int64[k], the name of each row, as an index into `Trace.strings`; ABSENT stays."""
        named_rows = self._trace.name_index[self.event[rows]] if len(self.event) else rows
        return np.where(rows == ABSENT, ABSENT, named_rows).astype(np.int64)

    def have_name(self, test: Callable[[str], object]) -> NDArray[np.bool_]:
        """bool[n], which rows have a name that passes a test."""
        return match_names(self._trace, self.event, test)
