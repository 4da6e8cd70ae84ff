"""An independent account of the walks back through a timeline: slow, one row after the other.

It takes a graph's rows, their launches and what they waited for as they are: the tests of the
graph check those (`tests.reference.ticks`). It asks all rows and all calls again at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.build.rows import WATCHDOG, Row
from tests.reference.ticks import INPUT
from tracelab.measures.critical_path import PathKind
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

QUEUE_LATENCY_NS = 16_000
LAUNCH_LATENCY_NS = 50_000
MOST_HOPS = 16


@dataclass(frozen=True)
class Stall:
    """A call that made no progress from `start` to `end`, and the blocking call that caused it."""

    start: int
    end: int
    thread: int
    call: int
    cause: int


class Walks:
    """What the definitions say of a graph that was made of some rows (in ns)."""

    def __init__(self, rows: list[Row], graph: Graph) -> None:
        timeline, host = graph.host.timeline, graph.host
        self.events, self.graph = rows, graph
        self.start, self.end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
        self.kind, self.stream = timeline.kind.tolist(), timeline.stream_index.tolist()
        self.device = timeline.device_number.tolist()
        self.overlaps_previous = timeline.overlaps_previous.tolist()
        self.event_id, self.launch = timeline.event_id.tolist(), timeline.launch_id.tolist()
        self.awaited_row = graph.awaited_row.tolist()
        self.rows = range(len(self.event_id))
        self.launching = {rows[call].thread for call in self.launch if call != ABSENT}
        self.blocking = dict(
            zip(host.blocking_calls.event_id.tolist(), host.blocking_calls.kind, strict=True)
        )
        self.stalls = [
            Stall(rows[call].start, rows[call].end, rows[call].thread, call, call)
            for call in self.blocking
        ]
        self.stalls += [
            Stall(start, rows[call].end, rows[call].thread, call, list(self.blocking)[allocation])
            for call, allocation, start in zip(
                host.stalled_calls.event_id.tolist(),
                host.stalled_calls.allocation_index.tolist(),
                host.stalled_calls.start_ns.tolist(),
                strict=True,
            )
        ]

    # The critical path.

    def critical_path(self, window: Window) -> list[tuple[int, int, PathKind, int]]:
        """Start, end, kind and event of each segment of a window."""
        self.window, self.now = window, window.end_ns
        self.segments: list[tuple[int, int, PathKind, int]] = []
        ended = [row for row in self.rows if self.end[row] <= self.now]
        # Of several that ended at once, the lowest device's, and there the last to begin.
        rank = {row: (self.end[row], -self.device[row], self.start[row], row) for row in ended}
        row = max(ended, key=rank.__getitem__, default=ABSENT)
        if row == ABSENT or self.end[row] < self.now:
            steps = {step.number: step.event_id for step in self.graph.host.timeline.steps}
            step = steps.get(window.step) if window.step is not None else None
            row = self._through_host(ABSENT if step is None else self.events[step].thread, ABSENT)
        while row != ABSENT and self.now > window.start_ns:
            row = self._before(row)
        self._spend(window.start_ns, PathKind.UNKNOWN, ABSENT)
        return self.segments[::-1]

    def _spend(self, since: int, kind: PathKind, event: int) -> None:
        since = max(since, self.window.start_ns)
        if since < self.now:
            self.segments.append((since, self.now, kind, event))
            self.now = since

    def _before(self, row: int) -> int:
        """Pass a row and what it waited for."""
        start, event = self.start[row], self.event_id[row]
        self._spend(start, PathKind(self.kind[row]), event)
        awaited = self._previous(row)
        if awaited != ABSENT and self.end[awaited] > start and not self.overlaps_previous[row]:
            awaited = ABSENT
        source = self.awaited_row[row]
        if source != ABSENT and (awaited == ABSENT or self.end[source] > self.end[awaited]):
            awaited = source
        launched = self._launched_ns(self.launch[row])
        ready = min(self.end[awaited], start) if awaited != ABSENT else ABSENT
        known = max(ready, launched)
        if start - known > QUEUE_LATENCY_NS:
            likely = self._likely_blocker(row)
            if likely != ABSENT and self.end[likely] > known:
                awaited, ready = likely, min(self.end[likely], start)
        if launched > ready:
            self._spend(launched, PathKind.LAUNCH, event)
            return self._through_host(self.events[self.launch[row]].thread, event)
        if awaited != ABSENT:
            self._spend(ready, PathKind.UNKNOWN if launched == ABSENT else PathKind.QUEUE, event)
        return awaited

    def _previous(self, row: int) -> int:
        return row - 1 if row and self.stream[row - 1] == self.stream[row] else ABSENT

    def _launched_ns(self, call: int) -> int:
        """When a call got to launch: a stalled one at its end, at most until its work began."""
        if call == ABSENT:
            return ABSENT
        if call not in self.graph.host.stalled_calls.event_id:
            return self.events[call].start
        starts = [self.start[row] for row in self.rows if self.launch[row] == call]
        return min([self.events[call].end, *starts])

    def _likely_blocker(self, row: int) -> int:
        """What ended just before on its device, else what still ran there, else what ended."""
        start = self.start[row]
        before = [
            other
            for other in self.rows
            if self.device[other] == self.device[row] and self.start[other] < start
        ]
        ended = [other for other in before if self.end[other] <= start]
        last = max(
            ended, key=lambda other: (self.end[other], self.start[other], other), default=ABSENT
        )
        if last != ABSENT and start - self.end[last] <= QUEUE_LATENCY_NS:
            return last
        begun_last = {self.stream[other]: other for other in before}
        running = [other for other in begun_last.values() if self.end[other] > start]
        return min(running, key=lambda other: (self.start[other], other), default=last)

    def _through_host(self, thread: int, event: int) -> int:
        stalls: dict[int, Stall] = {}
        for stall in self.stalls:
            stalls.setdefault(stall.call, stall)
        stalled = sorted(call for call in stalls if call not in self.blocking)
        by_start = sorted([*self.blocking, *stalled], key=lambda call: stalls[call].start)
        for call in [call for call in by_start if stalls[call].start < self.now][::-1]:
            begun, other, awaited = stalls[call].start, stalls[call].thread, self._awaited(call)
            ended = stalls[call].end if call in self.blocking else self._launched_ns(call)
            if self.now <= self.window.start_ns:
                return ABSENT
            if ended > self.now or not (thread == ABSENT or self._waits_for(thread, other, begun)):
                continue
            if awaited != ABSENT and self.end[awaited] <= begun:
                continue
            self._spend(ended, PathKind.HOST, event)
            event, thread = call, other
            if awaited != ABSENT:
                self._spend(self.end[awaited], PathKind.SYNC, call)
                return awaited
            self._spend(begun, PathKind.SYNC, call)
        self._spend(self.window.start_ns, PathKind.HOST, event)
        return ABSENT

    def _awaited(self, call: int) -> int:
        """The row that a blocking call waited for: what it copies, else what ended last."""
        if self.blocking.get(call) == Blocking.COPY:
            copied = [row for row in self.rows if self.launch[row] == call]
            copied = [row for row in copied if self.start[row] < self.events[call].end]
            if copied:
                return copied[-1]
        edges = zip(self.graph.source_id, self.graph.target_id, self.graph.kind, strict=True)
        sources = [
            source for source, target, kind in edges if target == call and kind == EdgeKind.SYNC
        ]
        waited = [self.event_id.index(source) for source in sources]
        return max(waited, key=self.end.__getitem__, default=ABSENT)

    def _waits_for(self, thread: int, other: int, moment: int) -> bool:
        """Whether a thread makes no progress because of what begins in another, or in itself."""
        if thread == other or other not in self.launching:
            return thread == other
        recorded = (*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
        return thread == WATCHDOG or not any(
            event.thread == thread
            and (event.category in recorded or _is_input(event))
            and event.start <= moment < event.end
            for event in self.events
        )

    # Why one row did not overlap another.

    def between(self, row: int, other: int, since: int) -> tuple[OverlapBlocker, int]:
        """What kept a row from overlapping another that ran since some moment, and which call.

        All of a replay, and all that has no launch in the file, is one launch.
        """
        nothing, has_waited = (OverlapBlocker.TRUE_DEPENDENCY, ABSENT), False
        if self.launch[row] == self.launch[other]:
            return nothing
        for _ in range(MOST_HOPS):
            start, call = self.start[row], self.launch[row]
            returned = self.events[call].end if call != ABSENT else ABSENT
            # The row before it in its stream, unless what it waited for ended later.
            upstream = (self._previous(row), self.awaited_row[row])
            binding = [before_row for before_row in upstream if before_row != ABSENT]
            before = max(binding, key=self.end.__getitem__, default=ABSENT)
            free = max([returned, *(self.end[before_row] for before_row in binding)])
            is_stalled = call in self.graph.host.stalled_calls.event_id
            launched = returned if is_stalled or call == ABSENT else self.events[call].start
            if launched >= since and free == returned and start - free <= LAUNCH_LATENCY_NS:
                return self._late_launch(row, launched, since)
            if start - max(free, since) > LAUNCH_LATENCY_NS:
                comm = self._comm_just_before(row)
                if comm == ABSENT or self.end[comm] < since:
                    return self._unexplained(row), ABSENT
                row, has_waited = comm, True
                continue
            if before == ABSENT or self.end[before] < since:
                return nothing
            has_waited = has_waited or before == self.awaited_row[row]
            is_after = self.stream[before] == self.stream[other] and (
                before == other or self.end[before] >= self.end[other]
            )
            if is_after or self.kind[before] == self.kind[other]:
                return (
                    OverlapBlocker.EVENT_WAIT if has_waited else OverlapBlocker.SAME_STREAM
                ), ABSENT
            row = before
        return nothing

    def _comm_just_before(self, row: int) -> int:
        if self.kind[row] != Kind.COMM:
            return ABSENT
        ended = [
            other
            for other in self.rows
            if self.kind[other] == Kind.COMM
            and self.device[other] == self.device[row]
            and self.end[other] <= self.start[row]
        ]
        last = max(ended, key=lambda other: (self.end[other], other), default=ABSENT)
        is_near = last != ABSENT and self.start[row] - self.end[last] <= LAUNCH_LATENCY_NS
        return last if is_near else ABSENT

    def _unexplained(self, row: int) -> OverlapBlocker:
        if self.launch[row] == ABSENT:
            return OverlapBlocker.TRUE_DEPENDENCY
        without_rows = all(event.category != Category.SYNC for event in self.events)
        anything_waits = without_rows and self.graph.links.unresolved > 0
        if self.graph.after_unresolved_wait[row] or anything_waits:
            return OverlapBlocker.EVENT_WAIT
        return OverlapBlocker.HARDWARE_QUEUE

    def _late_launch(self, row: int, launched: int, since: int) -> tuple[OverlapBlocker, int]:
        """The call that blocked the host for longest since then, of equal ones the first."""
        thread, longest, culprit = self.events[self.launch[row]].thread, -(2**63), ABSENT
        for stall in sorted(self.stalls, key=lambda stall: stall.start):
            if stall.start < launched and stall.end > since:
                length = min(self.events[stall.cause].end, launched) - max(stall.start, since)
                if self._waits_for(thread, stall.thread, stall.start) and length > longest:
                    longest, culprit = length, stall.cause
        return (
            OverlapBlocker.LATE_LAUNCH if culprit == ABSENT else OverlapBlocker.HOST_SYNC
        ), culprit


def _is_input(event: Row) -> bool:
    return event.category == Category.ANNOTATION and event.name == INPUT
