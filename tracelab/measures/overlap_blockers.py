"""Why one piece of work did not overlap another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen, read_only
from tracelab.intervals import Int64Array
from tracelab.measures.host_stalls import host_stalls, waits_for
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import expand_ranges, groups_of, last_in_group
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

# What separates the end of the work that was waited for from the start of what waited. Longer, and
# something else blocked it; shorter gaps than 50 us are a launch's latency (see `bubbles`).
LATENCY_NS = 50_000
_MOST_HOPS = 16  # memsets and markers between a collective and the compute that waited for it

_Integer = TypeVar("_Integer", bound=np.integer[Any])


class OverlapBlocker(IntEnum):
    """Why two pieces of work did not run at the same time."""

    SAME_STREAM = 0  # they are in one stream
    EVENT_WAIT = 1  # one stream waited for an event of the other
    HOST_SYNC = 2  # a blocking call kept the host from launching the second one in time
    LATE_LAUNCH = 3  # the host launched the second one late
    HARDWARE_QUEUE = 4  # both were launched and nothing orders them
    NO_FREE_SM = 5  # the first one left no multiprocessor free
    TRUE_DEPENDENCY = 6  # there was no other work that did not need it


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _StallsOfThread(Frozen):
    """The host stalls of one thread, by start.

    Attributes:
        stall_index: intp[s], index into the host stalls.
        start_ns: int64[s], ns.
        reach_ns: int64[s], ns, the latest end of each one and those before it.
    """

    stall_index: NDArray[np.intp]
    start_ns: Int64Array
    reach_ns: Int64Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Hop(Frozen):
    """One step back from each of some rows to what was binding.

    Attributes:
        blocker: int8[k], an `OverlapBlocker`.
        blocking_call_id: int64[k], event id of the blocking call behind HOST_SYNC, else ABSENT.
        upstream_row: intp[k], the row to go on with, if it goes on.
        has_waited: bool[k], whether a wait has been on the way so far.
        goes_on: bool[k], whether the blocker is not known yet.
    """

    blocker: NDArray[np.int8]
    blocking_call_id: Int64Array
    upstream_row: NDArray[np.intp]
    has_waited: NDArray[np.bool_]
    goes_on: NDArray[np.bool_]


class OverlapBlockers:
    """Says of two rows of a timeline what kept the one from overlapping the other.

    Attributes:
        timeline: the GPU activities.
        launched_ns: int64[m], ns, when each row's launch call got to launch (`Host.launched_ns`);
            ABSENT without one.
        thread_index: int32[m], the thread that launched it, ABSENT without a launch.
        blocking_calls: the file's blocking calls.
    """

    def __init__(self, graph: Graph) -> None:
        host, timeline = graph.host, graph.host.timeline
        trace = timeline.trace
        is_launched = timeline.launch_id != ABSENT

        def of_launch(column: NDArray[_Integer]) -> NDArray[_Integer]:
            return read_only(
                np.where(is_launched, column[timeline.launch_id], column.dtype.type(ABSENT))
            )

        self.timeline = timeline
        self.blocking_calls = host.blocking_calls
        self.launched_ns = of_launch(host.launched_ns)
        self.thread_index = of_launch(trace.thread_index)
        self._graph = graph
        self._returned_ns = of_launch(trace.end_ns)
        self._previous_row = _previous_in_stream(timeline)
        # Without CUPTI's rows not even the waiting stream is known, so it may be any.
        has_sync_rows = len(trace.of_category(Category.SYNC)) > 0
        self._waits_are_unknown = not has_sync_rows and graph.links.unresolved > 0
        self._stalls = host_stalls(host)
        by_start = np.argsort(self._stalls.start_ns, kind="stable")
        self._stalls_of_thread = {
            thread: _StallsOfThread(
                stall_index=by_start[indices],
                start_ns=self._stalls.start_ns[by_start[indices]],
                reach_ns=np.maximum.accumulate(self._stalls.end_ns[by_start[indices]]),
            )
            for thread, indices in groups_of(self._stalls.thread_index[by_start])
        }
        comm_rows = np.flatnonzero(timeline.kind == Kind.COMM)
        by_end = np.lexsort((timeline.end_ns[comm_rows], timeline.device_number[comm_rows]))
        self._comm_rows = read_only(comm_rows[by_end])  # by end within each device

    def between(
        self, row: NDArray[np.intp], other_row: NDArray[np.intp], since_ns: Int64Array
    ) -> tuple[NDArray[np.int8], Int64Array]:
        """What kept rows from overlapping others that ran since some moments, and which calls.

        Walks back through what was binding, while that is short work between the two. The slow
        reference model is ``tests/reference/walks.py``.

        Args:
            row: intp[k], timeline rows.
            other_row: intp[k], for each one the row that it could have overlapped.
            since_ns: int64[k], ns, since when that one ran.

        Returns:
            int8[k], an `OverlapBlocker`, and int64[k], event id of the blocking call behind
            HOST_SYNC, else ABSENT: ``([OverlapBlocker.HOST_SYNC], [17])``.
        """
        launch_id = self.timeline.launch_id
        blocker = np.full(len(row), OverlapBlocker.TRUE_DEPENDENCY, dtype=np.int8)
        blocking_call_id = np.full(len(row), ABSENT, dtype=np.int64)
        row, has_waited = row.copy(), np.zeros(len(row), dtype=np.bool_)
        # Within one replay of a CUDA graph the file does not tell the order, nor without a launch.
        open_index = np.flatnonzero(launch_id[row] != launch_id[other_row])
        for _ in range(_MOST_HOPS):
            if not len(open_index):
                break
            hop = self._hop(
                row[open_index],
                other_row[open_index],
                since_ns[open_index],
                has_waited[open_index],
            )
            blocker[open_index] = hop.blocker
            blocking_call_id[open_index] = hop.blocking_call_id
            row[open_index], has_waited[open_index] = hop.upstream_row, hop.has_waited
            open_index = open_index[hop.goes_on]
        return read_only(blocker), read_only(blocking_call_id)

    def _hop(
        self,
        row: NDArray[np.intp],
        other_row: NDArray[np.intp],
        since_ns: Int64Array,
        has_waited: NDArray[np.bool_],
    ) -> _Hop:
        timeline, start_ns = self.timeline, self.timeline.start_ns[row]
        end_ns = timeline.end_ns
        previous_row, awaited_row = self._previous_row[row], self._graph.awaited_row[row]
        previous_end_ns = np.where(previous_row == ABSENT, ABSENT, end_ns[previous_row])
        awaited_end_ns = np.where(awaited_row == ABSENT, ABSENT, end_ns[awaited_row])
        returned_ns = self._returned_ns[row]
        free_ns = np.maximum(returned_ns, np.maximum(previous_end_ns, awaited_end_ns))
        is_late = (self.launched_ns[row] >= since_ns) & (free_ns == returned_ns)
        is_late &= start_ns - free_ns <= LATENCY_NS
        is_far = ~is_late & (start_ns - np.maximum(free_ns, since_ns) > LATENCY_NS)
        # The kernels of one communicator run one after the other, whatever their streams.
        comm_row = np.where(is_far, self._comm_just_before(row), ABSENT)
        follows_comm = is_far & (comm_row != ABSENT) & (end_ns[comm_row] >= since_ns)
        is_unexplained = is_far & ~follows_comm
        binding_row = np.where(awaited_end_ns > previous_end_ns, awaited_row, previous_row)
        has_waited = has_waited | follows_comm | (~is_far & (binding_row == awaited_row))
        # What ended before leaves no more than a launch's latency.
        is_bound = ~is_late & ~is_far & (binding_row != ABSENT) & (end_ns[binding_row] >= since_ns)
        is_known = is_bound & self._reaches(binding_row, other_row)
        blocker = np.full(len(row), OverlapBlocker.TRUE_DEPENDENCY, dtype=np.int8)
        blocking_call_id = np.full(len(row), ABSENT, dtype=np.int64)
        blocker[is_late], blocking_call_id[is_late] = self._late_launch(
            row[is_late], since_ns[is_late]
        )
        blocker[is_unexplained] = self._unexplained(row[is_unexplained])
        blocker[is_known] = np.where(
            has_waited[is_known], OverlapBlocker.EVENT_WAIT, OverlapBlocker.SAME_STREAM
        )
        return _Hop(
            blocker=blocker,
            blocking_call_id=blocking_call_id,
            upstream_row=np.where(follows_comm, comm_row, binding_row),
            has_waited=has_waited,
            goes_on=follows_comm | (is_bound & ~is_known),
        )

    def _reaches(self, row: NDArray[np.intp], other_row: NDArray[np.intp]) -> NDArray[np.bool_]:
        """bool[k], whether a row is the other, comes after it in its stream or is of its kind."""
        timeline = self.timeline
        is_after = (timeline.end_ns[row] >= timeline.end_ns[other_row]) | (row == other_row)
        is_after &= timeline.stream_index[row] == timeline.stream_index[other_row]
        is_same_kind = timeline.kind[row] == timeline.kind[other_row]
        reaches: NDArray[np.bool_] = is_after | is_same_kind
        return reaches

    def _unexplained(self, row: NDArray[np.intp]) -> NDArray[np.int8]:
        """What blocked rows for which the file shows nothing: int8[k], an `OverlapBlocker`."""
        may_have_waited = self._graph.after_unresolved_wait[row] | self._waits_are_unknown
        blocker = np.where(
            may_have_waited, OverlapBlocker.EVENT_WAIT, OverlapBlocker.HARDWARE_QUEUE
        )
        # Without a launch in the file it may have been launched late.
        is_unknown = self.launched_ns[row] == ABSENT
        return np.where(is_unknown, OverlapBlocker.TRUE_DEPENDENCY, blocker).astype(np.int8)

    def _comm_just_before(self, row: NDArray[np.intp]) -> NDArray[np.intp]:
        """The collective of its device that ended within a latency before each collective began.

        intp[k], ABSENT where there is none.
        """
        timeline, comm_rows = self.timeline, self._comm_rows
        start_ns, comm_end_ns = timeline.start_ns[row], timeline.end_ns[comm_rows]
        just_before = np.full(len(row), ABSENT, dtype=np.intp)
        is_comm = np.flatnonzero(timeline.kind[row] == Kind.COMM)
        last = last_in_group(
            timeline.device_number[comm_rows],
            comm_end_ns,
            timeline.device_number[row[is_comm]],
            start_ns[is_comm],
            "right",
        )
        is_near = (last != ABSENT) & (start_ns[is_comm] - comm_end_ns[last] <= LATENCY_NS)
        just_before[is_comm[is_near]] = comm_rows[last[is_near]]
        return just_before

    def _late_launch(
        self, row: NDArray[np.intp], since_ns: Int64Array
    ) -> tuple[NDArray[np.int8], Int64Array]:
        """The host launched rows late: because of a blocking call, or because it was slow.

        The first array is int8[k], an `OverlapBlocker`, the second int64[k], the call's event id.
        """
        until_ns = self.launched_ns[row]
        index, stall_index = self._stalls_before_launch(row, since_ns)
        # The one that blocked longest since then; of two allocations, by how long each went on.
        call_index = self._stalls.call_index[stall_index]
        start_ns = self._stalls.start_ns[stall_index]
        blocked_ns = np.minimum(self.blocking_calls.end_ns[call_index], until_ns[index])
        blocked_ns -= np.maximum(start_ns, since_ns[index])
        # The last one of each row stays: of those that blocked as long, the first.
        order = np.lexsort((-stall_index, -start_ns, blocked_ns))
        blocking_call_id = np.full(len(row), ABSENT, dtype=np.int64)
        blocking_call_id[index[order]] = self.blocking_calls.event_id[call_index[order]]
        is_blocked = blocking_call_id != ABSENT
        blocker = np.where(is_blocked, OverlapBlocker.HOST_SYNC, OverlapBlocker.LATE_LAUNCH)
        return blocker.astype(np.int8), blocking_call_id

    def _stalls_before_launch(
        self, row: NDArray[np.intp], since_ns: Int64Array
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs: index of a row here, index of a host stall between its moment and its launch."""
        host, stalls = self._graph.host, self._stalls
        until_ns, thread_index = self.launched_ns[row], self.thread_index[row]
        indices, stall_indices = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
        for thread, of_thread in self._stalls_of_thread.items():
            may_wait = np.flatnonzero((thread_index == thread) | (thread in host.launching_threads))
            first = np.searchsorted(of_thread.reach_ns, since_ns[may_wait], side="right")
            last = np.searchsorted(of_thread.start_ns, until_ns[may_wait])
            range_index, position = expand_ranges(first, last)
            indices.append(may_wait[range_index])
            stall_indices.append(of_thread.stall_index[position])
        index, stall_index = np.concatenate(indices), np.concatenate(stall_indices)
        waits = stalls.end_ns[stall_index] > since_ns[index]
        waits &= waits_for(
            host,
            thread_index[index],
            stalls.thread_index[stall_index],
            stalls.start_ns[stall_index],
        )
        return index[waits], stall_index[waits]


def _previous_in_stream(timeline: Timeline) -> NDArray[np.intp]:
    """intp[m], the row before each one in its stream, ABSENT for the first."""
    previous_row = np.arange(-1, len(timeline.event_id) - 1)
    for stream in timeline.streams:
        previous_row[stream.first_row] = ABSENT
    return read_only(previous_row)
