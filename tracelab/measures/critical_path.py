"""The chain of work that decided how long a window took.

Walking back from the window's end, each moment belongs to what was binding then: an activity that
ran, the launch or the host that it waited for, or the activity that the host waited for. The
segments tile the window: nothing is left out, nothing counted twice. What each activity and each
host stall waited for, `critical_path_links` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, OneLine, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.measures.critical_path_links import (
    HOST,
    PathKind,
    PathLinks,
    PathStalls,
    path_links,
)
from tracelab.measures.measure import Measure, keyed_by
from tracelab.model.graph import Graph
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT

_KIND_NAMES = tuple(kind.name.lower() for kind in PathKind)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CriticalPath(Frozen):
    """The segments of one window's critical path, ascending.

    Attributes:
        start_ns, end_ns: int64[s], ns; each segment begins where the one before ends, the first
            at the window's start, the last ends at its end.
        kind: int8[s], a `PathKind`.
        event_id: int64[s], the activity that ran or was waited for, or the call that blocked or was
            stalled; ABSENT where the host led up to the window's end.

    Example row: ``(start_ns=400, end_ns=900, kind=PathKind.COMPUTE, event_id=17)``.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    kind: NDArray[np.int8]
    event_id: Int64Array

    def by_kind(self) -> dict[str, int]:
        """Length per kind in small letters, ns; every kind is listed."""
        totals_ns = np.zeros(len(PathKind), dtype=np.int64)
        np.add.at(totals_ns, self.kind, self.end_ns - self.start_ns)
        return dict(zip(_KIND_NAMES, totals_ns.tolist(), strict=True))


class HostStretch(NamedTuple):
    """A stretch of a path on the host; it ends where the one before it in the walk begins.

    Example: ``HostStretch(since_ns=400, kind=PathKind.HOST, event_id=17, thread_index=0)``.

    Attributes:
        since_ns: when it began, ns.
        kind: HOST, SYNC or UNKNOWN.
        event_id: as in `CriticalPath`.
        thread_index: index into `Trace.threads`, ABSENT for any.
    """

    since_ns: int
    kind: PathKind
    event_id: int
    thread_index: int


@dataclass(frozen=True, slots=True, repr=False)
class CriticalPathMetrics(OneLine):
    """The critical path of one window, ns per kind.

    Example row: ``CriticalPathMetrics(rank=0, step=3, total_ns=900, by_kind={"compute": 600,
    "host": 300, "launch": 0, ...})``.
    """

    rank: int
    step: int | None
    total_ns: int
    by_kind: Mapping[str, int] = field(metadata=keyed_by(PathKind, complete=True))


def critical_paths(
    graph: Graph, windows: Sequence[Window] | None = None
) -> tuple[CriticalPath, ...]:
    """The critical path of each window.

    The slow reference model is ``tests/reference/walks.py``.

    Args:
        graph: the file's dependencies.
        windows: what to measure; None for the whole trace and every step.
    """
    timeline, links = graph.host.timeline, path_links(graph)
    thread_of_step: dict[int | None, int] = {
        step.number: int(timeline.trace.thread_index[step.event_id]) for step in timeline.steps
    }
    return tuple(
        _Walk(links, window).path(thread_of_step.get(window.step, ABSENT))
        for window in (timeline.windows if windows is None else windows)
    )


class _Walk:
    """One walk from the end of a window to its start."""

    def __init__(self, links: PathLinks, window: Window) -> None:
        self._links = links
        self._window = window
        self._now_ns = window.end_ns
        self._rows: list[int] = []  # the activities that were passed
        # How many of them came before it, then start, kind and event of what else was passed.
        self._others: list[tuple[int, int, int, int]] = []

    def path(self, thread: int) -> CriticalPath:
        """Walk, then give the segments in order.

        Args:
            thread: of the step's annotation, ABSENT where any thread may have ended the window.
        """
        links, window = self._links, self._window
        row = links.last_ended(window.end_ns)
        if row == ABSENT or links.timeline.end_ns[row] < window.end_ns:
            # The GPU was done before: the host's annotation is what ends the window.
            row = self._through_host(thread, ABSENT)
        while row != ABSENT and self._now_ns > window.start_ns:
            row = self._through_activities(row)
        self._spend(window.start_ns, PathKind.UNKNOWN, ABSENT)
        return self._segments()

    def _segments(self) -> CriticalPath:
        """The time from each thing that was passed to what was passed before it."""
        links, timeline, window = self._links, self._links.timeline, self._window
        rows = np.array(self._rows, dtype=np.intp)
        upstream_end_ns = np.array([links.upstream_end_ns[row] for row in self._rows], np.int64)
        # Of each activity the time that it ran, and the time until the one before it.
        since_ns = np.stack((timeline.start_ns[rows], upstream_end_ns), axis=1).ravel()
        kind = np.stack((timeline.kind[rows], links.kind_between[rows]), axis=1).ravel()
        event_id = np.repeat(timeline.event_id[rows], 2)
        others = np.array(self._others, dtype=np.int64)
        position = 2 * others[:, 0]
        since_ns = np.maximum(np.insert(since_ns, position, others[:, 1]), window.start_ns)
        kind = np.insert(kind, position, others[:, 2])
        event_id = np.insert(event_id, position, others[:, 3])
        bounds_ns = np.minimum.accumulate(np.concatenate(([window.end_ns], since_ns)))
        spent = np.flatnonzero(bounds_ns[1:] < bounds_ns[:-1])[::-1]
        return CriticalPath(bounds_ns[spent + 1], bounds_ns[spent], kind[spent], event_id[spent])

    def _spend(self, since_ns: int, kind: int, event_id: int) -> None:
        """Give the time from then to now to a kind, and go there."""
        self._others.append((len(self._rows), since_ns, kind, event_id))
        self._now_ns = min(self._now_ns, since_ns)

    def _through_activities(self, row: int) -> int:
        """Pass activities until the host leads on, and it; the row that comes before, or ABSENT."""
        links, first_ns = self._links, self._window.start_ns
        upstream_row, upstream_end_ns = links.upstream_row, links.upstream_end_ns
        rows, now_ns = self._rows, self._now_ns
        while row >= 0 and now_ns > first_ns:
            rows.append(row)
            now_ns = min(now_ns, upstream_end_ns[row])
            row = upstream_row[row]
        self._now_ns = now_ns
        if row != HOST:
            return row
        last_row = rows[-1]
        event_id = int(links.timeline.event_id[last_row])
        return self._through_host(int(links.launch_thread_index[last_row]), event_id)

    def _through_host(self, thread: int, event_id: int) -> int:
        """Go back on the host to the activity that it last waited for, or ABSENT at the start."""
        first_ns = self._window.start_ns
        stalls, end_ns = self._links.stalls, self._links.timeline.end_ns
        row, stretches = through_host(stalls, end_ns, thread, event_id, self._now_ns, first_ns)
        for stretch in stretches:
            self._spend(stretch.since_ns, stretch.kind, stretch.event_id)
        return row


def through_host(
    stalls: PathStalls,
    row_end_ns: Int64Array,
    thread: int,
    event_id: int,
    now_ns: int,
    first_ns: int,
) -> tuple[int, list[HostStretch]]:
    """Go back on the host to the activity that it last waited for.

    Args:
        stalls: the host stalls, and what they waited for.
        row_end_ns: int64[m], ns, the end of each timeline row.
        thread: where the host is followed, ABSENT for any thread.
        event_id: the activity that it led up to, ABSENT where it ended a window.
        now_ns: the moment to go back from.
        first_ns: the moment not to go beyond.

    Returns:
        the row of that activity, ABSENT where the beginning was reached; and what was passed.
    """
    stretches = list[HostStretch]()
    stall_index = stalls.begun_before(now_ns)
    while now_ns > first_ns:
        stall_index = stalls.last_before(thread, stall_index, now_ns)
        if stall_index == ABSENT:
            break
        end_ns, row = stalls.end_ns[stall_index], stalls.awaited_row[stall_index]
        stretches.append(HostStretch(end_ns, PathKind.HOST, event_id, thread))
        event_id, thread = stalls.event_id[stall_index], stalls.thread_index[stall_index]
        kind = PathKind.UNKNOWN if event_id == ABSENT else PathKind.SYNC
        if kind == PathKind.UNKNOWN or row != ABSENT:
            awaited_ns = int(row_end_ns[row])
            stretches.append(HostStretch(awaited_ns, kind, event_id, thread))
            return row, stretches
        start_ns = stalls.start_ns[stall_index]
        stretches.append(HostStretch(start_ns, kind, event_id, thread))
        now_ns = min(now_ns, start_ns)
    stretches.append(HostStretch(first_ns, PathKind.HOST, event_id, thread))
    return ABSENT, stretches


def critical_path_rows(
    windows: Sequence[Window], critical_paths: Sequence[CriticalPath]
) -> tuple[CriticalPathMetrics, ...]:
    """Return the length of each window's critical path, by kind."""
    return tuple(
        CriticalPathMetrics(0, window.step, window.length_ns, path.by_kind())
        for window, path in zip(windows, critical_paths, strict=True)
    )


MEASURE = Measure("critical_path", CriticalPathMetrics, critical_path_rows)
