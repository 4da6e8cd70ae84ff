"""An independent account of the walks back through a timeline: slow, one row after the other.

It takes a graph's rows, their launches and what they waited for as they are: the tests of the
graph check those (`tests.reference.ticks`, `tests.reference.binding`). It asks all rows and all
calls again at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.build.rows import WATCHDOG, Row
from tests.reference.ticks import INPUT
from tracelab.measures.critical_path import PathKind
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.binding import Constraint
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

SILENCE_NS = 1_000_000
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
        self.event_id, self.launch = timeline.event_id.tolist(), timeline.launch_id.tolist()
        self.constraint = [Constraint(x) for x in graph.binding.constraint.tolist()]
        self.source, self.ready = graph.binding.source_row.tolist(), graph.binding.ready_ns.tolist()
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
        row = self._last_ended(self.now)
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

    def _last_ended(self, moment: int) -> int:
        """Of several that ended at once, the lowest device's, and there the last to begin."""
        ended = [row for row in self.rows if self.end[row] <= moment]
        rank = {row: (self.end[row], -self.device[row], self.start[row], row) for row in ended}
        return max(ended, key=rank.__getitem__, default=ABSENT)

    def _before(self, row: int) -> int:
        """Pass a row and what it waited for."""
        start, event, call = self.start[row], self.event_id[row], self.launch[row]
        self._spend(start, PathKind(self.kind[row]), event)
        is_unknown = self.constraint[row] == Constraint.UNKNOWN
        last = self._ended_before(row) if is_unknown else ABSENT
        if last != ABSENT:
            self._spend(self.end[last], PathKind.UNKNOWN, event)
            return last
        if self.source[row] == ABSENT and call != ABSENT:
            kind = PathKind.UNKNOWN if is_unknown else PathKind.LAUNCH
            self._spend(self._launched_ns(call), kind, event)
            return self._through_host(self.events[call].thread, event)
        source, kind = self.source[row], PathKind.UNKNOWN if is_unknown else PathKind.QUEUE
        ready = self.ready[row] if source == ABSENT else min(self.ready[row], self.end[source])
        self._spend(ready, kind, event)
        return source

    def _ended_before(self, row: int) -> int:
        """What ended last on its device, if it did so since the row could have started."""
        ended = [x for x in self.rows if self.device[x] == self.device[row]]
        ended = [x for x in ended if self.end[x] <= self.start[row]]
        last = max(ended, key=lambda x: (self.end[x], self.start[x], x), default=ABSENT)
        if last == ABSENT or self.start[last] >= self.start[row]:
            return ABSENT
        return last if self.end[last] > self.ready[row] else ABSENT

    def _launched_ns(self, call: int) -> int:
        """When a call got to launch: a stalled one at its end, at most until its work began."""
        if call not in self.graph.host.stalled_calls.event_id:
            return self.events[call].start
        starts = [self.start[row] for row in self.rows if self.launch[row] == call]
        return min([self.events[call].end, *starts])

    def _through_host(self, thread: int, event: int) -> int:
        stalls: dict[int, Stall] = {}
        for stall in self.stalls:
            stalls.setdefault(stall.call, stall)
        stalled = sorted(call for call in stalls if call not in self.blocking)
        calls = sorted([*self.blocking, *stalled], key=lambda call: stalls[call].start)
        waits = [(stalls[call].start, call) for call in calls]
        waits += [(begun, ABSENT) for begun in self._silences()]
        waits.sort(key=lambda wait: wait[0])
        for begun, call in [wait for wait in waits if wait[0] < self.now][::-1]:
            if self.now <= self.window.start_ns:
                return ABSENT
            if call == ABSENT:
                awaited = self._last_ended(begun)
                if awaited != ABSENT and self._silences()[begun] <= self.now:
                    self._spend(self._silences()[begun], PathKind.HOST, event)
                    self._spend(self.end[awaited], PathKind.UNKNOWN, ABSENT)
                    return awaited
                continue
            other, awaited = stalls[call].thread, self._awaited(call)
            ended = stalls[call].end if call in self.blocking else self._launched_ns(call)
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

    def _silences(self) -> dict[int, int]:
        """Start to end of the times in which nothing is recorded of the host and the GPU works."""
        recorded = (*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
        done = sorted(
            (event.start, event.end)
            for event in self.events
            if event.thread in self.launching - {WATCHDOG}
            and (event.category in recorded or _is_input(event))
            and event.end > event.start
        )
        silences, now = {}, done[0][1] if done else 0
        for start, end in done:
            worked = _covered(list(zip(self.start, self.end, strict=True)), now, start)
            if start - now > SILENCE_NS and worked >= 0.95 * (start - now):
                silences[now] = start
            now = max(now, end)
        return silences

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
        nothing = (OverlapBlocker.TRUE_DEPENDENCY, ABSENT)
        passed = OverlapBlocker.SAME_STREAM
        if self.launch[row] == self.launch[other]:
            return nothing
        for _ in range(MOST_HOPS):
            constraint, before = self.constraint[row], self.source[row]
            if constraint in (Constraint.UNKNOWN, Constraint.NO_FREE_SM):
                is_later = self.start[row] > since
                return (OverlapBlocker[constraint.name], ABSENT) if is_later else nothing
            if self.ready[row] < since:
                return nothing
            if constraint == Constraint.LAUNCH:
                call = self.launch[row]
                is_stalled = call in self.graph.host.stalled_calls.event_id
                launched = self.events[call].end if is_stalled else self.events[call].start
                return self._late_launch(row, launched, since)
            if constraint == Constraint.QUEUE:
                passed = OverlapBlocker.HARDWARE_QUEUE
            elif constraint in (Constraint.EVENT, Constraint.PEER_COPY):
                passed = max(passed, OverlapBlocker.EVENT_WAIT)
            is_after = self.stream[before] == self.stream[other] and (
                before == other or self.end[before] >= self.end[other]
            )
            if is_after or self.kind[before] == self.kind[other]:
                return passed, ABSENT
            row = before
        return nothing

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


def _covered(spans: list[tuple[int, int]], since: int, until: int) -> int:
    """How much of the time between two moments some spans cover."""
    covered, now = 0, since
    for start, end in sorted(spans):
        covered += max(0, min(end, until) - max(start, now))
        now = max(now, min(end, until))
    return covered


def _is_input(event: Row) -> bool:
    return event.category == Category.ANNOTATION and event.name == INPUT
