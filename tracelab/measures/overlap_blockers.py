"""Why one piece of work did not run beside another."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.measures.host_stalls import host_stalls, waits_for
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import expand_ranges, groups_of, last_in_group
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

# What separates the end of the work that was waited for from the start of what waited. Longer, and
# something else held it; shorter gaps than 50 us are a launch's latency (see `bubbles`).
LATENCY_NS = 50_000
_MOST_HOPS = 16  # memsets and markers between a collective and the compute that it held up


class OverlapBlocker(IntEnum):
    """Why two pieces of work did not run at the same time."""

    SAME_STREAM = 0  # they are in one stream
    EVENT_WAIT = 1  # one stream waited for an event of the other
    HOST_SYNC = 2  # a blocking call kept the host from launching the second one in time
    LATE_LAUNCH = 3  # the host launched the second one late
    HARDWARE_QUEUE = 4  # both were launched and nothing orders them
    NO_FREE_SM = 5  # the first one left no multiprocessor free
    TRUE_DEPENDENCY = 6  # there was no other work that did not need it


class OverlapBlockers:
    """Says of two rows of a timeline what was in the way.

    Attributes:
        launch_ns: int64[m], ns, when each row's launch call got to launch (`Host.launched_ns`);
            ABSENT without one.
        thread: int32[m], the thread that launched it, ABSENT without a launch.
        blocking: the file's blocking calls.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        host = graph.host
        self.blocking = host.blocking_calls
        self._timeline = timeline = host.timeline
        trace = timeline.trace
        launched = timeline.launch_id != ABSENT
        self.launch_ns = np.where(launched, host.launched_ns[timeline.launch_id], ABSENT)
        self.thread = np.where(launched, trace.thread_index[timeline.launch_id], ABSENT)
        self._launched_ns = np.where(launched, trace.end_ns[timeline.launch_id], ABSENT)
        self._previous = _previous_in_stream(timeline)
        # Without CUPTI's rows not even the waiting stream is known, so it may be any.
        rows = trace.of_category(Category.SYNC)
        self._waits_are_unknown = not len(rows) and graph.links.unresolved > 0
        self._halts = host_stalls(host)
        by_start = np.argsort(self._halts.start_ns, kind="stable")
        # Per thread its halts, their starts, and how far each or one before it reaches.
        self._halts_of: dict[int, tuple[NDArray[np.intp], Int64Array, Int64Array]] = {}
        for thread, places in groups_of(self._halts.thread_index[by_start]):
            own = by_start[places]
            reach = np.maximum.accumulate(self._halts.end_ns[own])
            self._halts_of[thread] = own, self._halts.start_ns[own], reach
        comm = np.flatnonzero(timeline.kind == Kind.COMM)
        by_end = np.lexsort((timeline.end_ns[comm], timeline.device_number[comm]))
        self._comm_by_end = comm[by_end]  # within each device

    def between(
        self, row: NDArray[np.intp], other: NDArray[np.intp], since_ns: Int64Array
    ) -> tuple[NDArray[np.int8], Int64Array]:
        """What kept rows from running beside others that ran since some moments, and which calls.

        Walks back through what was binding, while that is short work between the two.

        Returns:
            int8[k], an `Obstacle`, and int64[k], event id of the blocking call behind HOST_SYNC,
            else ABSENT.
        """
        timeline = self._timeline
        start, end = timeline.start_ns, timeline.end_ns
        obstacle = np.full(len(row), OverlapBlocker.TRUE_DEPENDENCY, dtype=np.int8)
        held_by = np.full(len(row), ABSENT, dtype=np.int64)
        row, waited = row.copy(), np.zeros(len(row), dtype=np.bool_)
        # Within one replay of a CUDA graph the file does not tell the order, nor without a launch.
        open_ = np.flatnonzero(timeline.launch_id[row] != timeline.launch_id[other])
        for _ in range(_MOST_HOPS):
            if not len(open_):
                break
            here, since = row[open_], since_ns[open_]
            before, source = self._previous[here], self._graph.awaited_row[here]
            before_end = np.where(before == ABSENT, ABSENT, end[before])
            source_end = np.where(source == ABSENT, ABSENT, end[source])
            launched_ns = self._launched_ns[here]
            free_ns = np.maximum(launched_ns, np.maximum(before_end, source_end))
            late = (self.launch_ns[here] >= since) & (free_ns == launched_ns)
            late &= start[here] - free_ns <= LATENCY_NS
            obstacle[open_[late]], held_by[open_[late]] = self._late(here[late], since[late])
            far = ~late & (start[here] - np.maximum(free_ns, since) > LATENCY_NS)
            # The kernels of one communicator run one after the other, whatever their streams.
            comm = np.where(far, self._comm_just_before(here), ABSENT)
            after_comm = far & (comm != ABSENT) & (end[comm] >= since)
            unnamed = far & ~after_comm
            obstacle[open_[unnamed]] = self._unnamed(here[unnamed])
            binding = np.where(source_end > before_end, source, before)
            waited[open_] |= after_comm | (~far & (binding == source))
            # What ended before leaves no more than a launch's latency.
            bound = ~late & ~far & (binding != ABSENT) & (end[binding] >= since)
            beside = other[open_]
            found = timeline.stream_index[binding] == timeline.stream_index[beside]
            found &= (end[binding] >= end[beside]) | (binding == beside)
            found |= timeline.kind[binding] == timeline.kind[beside]
            found &= bound
            behind = open_[found]
            obstacle[behind] = np.where(
                waited[behind], OverlapBlocker.EVENT_WAIT, OverlapBlocker.SAME_STREAM
            )
            row[open_] = np.where(after_comm, comm, binding)
            open_ = open_[after_comm | (bound & ~found)]
        return obstacle, held_by

    def _unnamed(self, row: NDArray[np.intp]) -> NDArray[np.int8]:
        """What held rows for which the file shows nothing: int8[k]."""
        waited = self._graph.after_unresolved_wait[row] | self._waits_are_unknown
        held = np.where(waited, OverlapBlocker.EVENT_WAIT, OverlapBlocker.HARDWARE_QUEUE)
        # Without a launch in the file it may have been launched late.
        unknown = self.launch_ns[row] == ABSENT
        return np.where(unknown, OverlapBlocker.TRUE_DEPENDENCY, held).astype(np.int8)

    def _comm_just_before(self, row: NDArray[np.intp]) -> NDArray[np.intp]:
        """The collective of its device that ended within a latency before each collective began.

        intp[k], ABSENT where there is none.
        """
        timeline, comm = self._timeline, self._comm_by_end
        start, ends = timeline.start_ns[row], timeline.end_ns[comm]
        found = np.full(len(row), ABSENT, dtype=np.intp)
        asked = np.flatnonzero(timeline.kind[row] == Kind.COMM)
        last = last_in_group(
            timeline.device_number[comm],
            ends,
            timeline.device_number[row[asked]],
            start[asked],
            "right",
        )
        near = (last != ABSENT) & (start[asked] - ends[last] <= LATENCY_NS)
        found[asked[near]] = comm[last[near]]
        return found

    def _late(
        self, row: NDArray[np.intp], since_ns: Int64Array
    ) -> tuple[NDArray[np.int8], Int64Array]:
        """The host launched rows late: because of a blocking call, or because it was slow.

        The first array is int8[k], an `Obstacle`, the second int64[k], the call's event id.
        """
        host, halts = self._graph.host, self._halts
        until_ns, thread = self.launch_ns[row], self.thread[row]
        places, owners = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
        for other, (own, start, reach) in self._halts_of.items():
            asked = np.flatnonzero((thread == other) | (other in host.launching_threads))
            first = np.searchsorted(reach, since_ns[asked], side="right")
            number, halt = expand_ranges(first, np.searchsorted(start, until_ns[asked]))
            places.append(asked[number])
            owners.append(own[halt])
        place, owner = np.concatenate(places), np.concatenate(owners)
        waits = halts.end_ns[owner] > since_ns[place]
        waits &= waits_for(host, thread[place], halts.thread_index[owner], halts.start_ns[owner])
        place, owner = place[waits], owner[waits]
        # The one that held longest since then; of two allocations, by how long each went on.
        call, start_ns = halts.call_index[owner], halts.start_ns[owner]
        held = np.minimum(self.blocking.end_ns[call], until_ns[place])
        held -= np.maximum(start_ns, since_ns[place])
        # The last one of each row stays: of those that held as long, the first.
        order = np.lexsort((-owner, -start_ns, held))
        held_by = np.full(len(row), ABSENT, dtype=np.int64)
        held_by[place[order]] = self.blocking.event_id[call[order]]
        blocked = held_by != ABSENT
        obstacle = np.where(blocked, OverlapBlocker.HOST_SYNC, OverlapBlocker.LATE_LAUNCH)
        return obstacle.astype(np.int8), held_by


def _previous_in_stream(timeline: Timeline) -> NDArray[np.intp]:
    """intp[m], the row before each one in its stream, ABSENT for the first."""
    previous = np.arange(-1, len(timeline.event_id) - 1)
    for lane in timeline.streams:
        previous[lane.first_row] = ABSENT
    return previous
