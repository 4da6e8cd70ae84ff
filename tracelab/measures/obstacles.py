"""Why one piece of work did not run beside another."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.graph import Graph
from tracelab.intervals import Int64Array
from tracelab.kinds import Kind
from tracelab.measures.syncs import halts_of, waits_for
from tracelab.timeline import Timeline
from tracelab.trace import ABSENT, Category

# What separates the end of the work that was waited for from the start of what waited. Longer, and
# something else held it; shorter gaps than 50 us are a launch's latency (see `bubbles`).
LATENCY_NS = 50_000
_MOST_HOPS = 16  # memsets and markers between a collective and the compute that it held up


class Obstacle(IntEnum):
    """Why two pieces of work did not run at the same time."""

    SAME_STREAM = 0  # they are in one stream
    EVENT_WAIT = 1  # one stream waited for an event of the other
    HOST_SYNC = 2  # a blocking call kept the host from launching the second one in time
    LATE_LAUNCH = 3  # the host launched the second one late
    HARDWARE_QUEUE = 4  # both were launched and nothing orders them
    NO_FREE_SM = 5  # the first one left no multiprocessor free
    TRUE_DEPENDENCY = 6  # there was no other work that did not need it


class Obstacles:
    """Says of two rows of a timeline what was in the way.

    Attributes:
        launch_ns: int64[m], ns, when each row's launch call got to launch (`Host.launched_ns`);
            ABSENT without one.
        thread: int64[m], the thread that launched it, ABSENT without a launch.
        blocking: the file's blocking calls.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        host = graph.host
        self.blocking = host.blocking
        self._timeline = timeline = host.timeline
        trace = timeline.trace
        launched = timeline.launch != ABSENT
        self.launch_ns = np.where(launched, host.launched_ns[timeline.launch], ABSENT)
        self.thread = np.where(launched, trace.thread[timeline.launch], ABSENT)
        self._launched_ns = np.where(launched, trace.end_ns[timeline.launch], ABSENT)
        self._previous = _previous_in_stream(timeline)
        # Without CUPTI's rows not even the waiting stream is known, so it may be any.
        rows = trace.of_category(Category.SYNC)
        self._waits_are_unknown = not len(rows) and graph.links.unresolved > 0
        self._halts = halts_of(host)
        self._by_start = np.argsort(self._halts.start_ns, kind="stable")
        # How far the halts reach up to each, in the order of their starts.
        self._halted_until = np.maximum.accumulate(self._halts.end_ns[self._by_start])
        self._comm_ends = {x: _by_end(timeline, x) for x in timeline.devices}

    def between(self, row: int, other: int, since_ns: int) -> tuple[Obstacle, int]:
        """What kept a row from running beside another that ran since some moment, and which call.

        Walks back through what was binding, while that is short work between the two. The call is
        the event id of the blocking call behind HOST_SYNC, else ABSENT.
        """
        timeline = self._timeline
        if timeline.launch[row] == timeline.launch[other]:
            # One replay of a CUDA graph, whose order the file does not tell, or no launch at all.
            return Obstacle.TRUE_DEPENDENCY, ABSENT
        waited = False
        for _ in range(_MOST_HOPS):
            before, source = int(self._previous[row]), int(self._graph.event_source[row])
            ends = {x: int(timeline.end_ns[x]) for x in (before, source) if x != ABSENT}
            free_ns = max([*ends.values(), int(self._launched_ns[row])])
            started_at_once = int(timeline.start_ns[row]) - free_ns <= LATENCY_NS
            if self.launch_ns[row] >= since_ns and (
                started_at_once and free_ns == self._launched_ns[row]
            ):
                return self._late(row, since_ns)
            if int(timeline.start_ns[row]) - max(free_ns, since_ns) > LATENCY_NS:
                # The kernels of one communicator run one after the other, whatever their streams.
                other_comm = self._comm_just_before(row)
                if other_comm != ABSENT and timeline.end_ns[other_comm] >= since_ns:
                    row, waited = other_comm, True
                    continue
                return self._unnamed(row), ABSENT
            binding = max(ends, key=lambda x: ends[x]) if ends else ABSENT
            if binding == ABSENT or ends[binding] < since_ns:
                return Obstacle.TRUE_DEPENDENCY, ABSENT  # no more than a launch's latency
            waited |= binding == source
            behind_it = timeline.lane[binding] == timeline.lane[other] and (
                timeline.end_ns[binding] >= timeline.end_ns[other] or binding == other
            )
            if behind_it or timeline.kind[binding] == timeline.kind[other]:
                return (Obstacle.EVENT_WAIT if waited else Obstacle.SAME_STREAM), ABSENT
            row = binding
        return Obstacle.TRUE_DEPENDENCY, ABSENT

    def _unnamed(self, row: int) -> Obstacle:
        """What held a row for which the file shows nothing."""
        if self.launch_ns[row] == ABSENT:
            return Obstacle.TRUE_DEPENDENCY  # it may have been launched late
        waited = bool(self._graph.after_unknown_wait[row]) or self._waits_are_unknown
        return Obstacle.EVENT_WAIT if waited else Obstacle.HARDWARE_QUEUE

    def _comm_just_before(self, row: int) -> int:
        """The collective of its device that ended within a latency before a collective began."""
        timeline = self._timeline
        if timeline.kind[row] != Kind.COMM:
            return ABSENT
        ends, rows = self._comm_ends[int(timeline.device[row])]
        at = int(np.searchsorted(ends, timeline.start_ns[row], side="right")) - 1
        near = at >= 0 and timeline.start_ns[row] - ends[at] <= LATENCY_NS
        return int(rows[at]) if near else ABSENT

    def _late(self, row: int, since_ns: int) -> tuple[Obstacle, int]:
        """The host launched a row late: because of a blocking call, or because it was slow."""
        host, halts, order = self._graph.host, self._halts, self._by_start
        until, thread = int(self.launch_ns[row]), int(self.thread[row])
        first = int(np.searchsorted(self._halted_until, since_ns, side="right"))
        last = int(np.searchsorted(halts.start_ns, until, sorter=order))
        near = order[first : max(first, last)]
        owners = [
            x
            for x in near[halts.end_ns[near] > since_ns].tolist()
            if waits_for(host, thread, int(halts.thread[x]), int(halts.start_ns[x]))
        ]
        if not owners:
            return Obstacle.LATE_LAUNCH, ABSENT
        # The one that held longest since then; of two allocations, by how long each went on.
        call = halts.call[owners]
        held = np.minimum(self.blocking.end_ns[call], until) - np.maximum(
            halts.start_ns[owners], since_ns
        )
        return Obstacle.HOST_SYNC, int(self.blocking.call[call[np.argmax(held)]])


def _by_end(timeline: Timeline, device: int) -> tuple[Int64Array, NDArray[np.intp]]:
    """The ends of a device's collectives, ascending, and their rows."""
    rows = np.flatnonzero(timeline.of(device=device, kind=Kind.COMM))
    rows = rows[np.argsort(timeline.end_ns[rows], kind="stable")]
    return timeline.end_ns[rows], rows


def _previous_in_stream(timeline: Timeline) -> NDArray[np.intp]:
    """intp[m], the row before each one in its stream, ABSENT for the first."""
    previous = np.arange(-1, len(timeline.event) - 1)
    for lane in timeline.lanes:
        previous[lane.first] = ABSENT
    return previous
