"""An independent account of the walks back through a timeline: slow, one row after the other.

It takes a graph's rows, their launches and what they waited for as they are: the tests of the
graph check those (`tests.reference.ticks`). It asks all rows and all calls again at every turn.
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
class Halt:
    """A call that got no further from `start` to `end`, and the blocking call behind it."""

    start: int
    end: int
    thread: int
    call: int
    behind: int


class Walks:
    """What the definitions say of a graph that was made of some rows (in ns)."""

    def __init__(self, rows: list[Row], graph: Graph) -> None:
        timeline, host = graph.host.timeline, graph.host
        self.calls, self.graph = rows, graph
        self.start, self.end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
        self.kind, self.lane = timeline.kind.tolist(), timeline.stream_index.tolist()
        self.device, self.early = (
            timeline.device_number.tolist(),
            timeline.overlaps_previous.tolist(),
        )
        self.event, self.launch = timeline.event_id.tolist(), timeline.launch_id.tolist()
        self.source = graph.awaited_row.tolist()
        self.all = range(len(self.event))
        self.launching = {rows[x].thread for x in self.launch if x != ABSENT}
        self.blocking = dict(
            zip(host.blocking_calls.event_id.tolist(), host.blocking_calls.kind, strict=True)
        )
        self.halts = [Halt(rows[x].start, rows[x].end, rows[x].thread, x, x) for x in self.blocking]
        self.halts += [
            Halt(start, rows[call].end, rows[call].thread, call, list(self.blocking)[holder])
            for call, holder, start in zip(
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
        ended = [x for x in self.all if self.end[x] <= self.now]
        # Of several that ended at once, the lowest device's, and there the last to begin.
        place = {x: (self.end[x], -self.device[x], self.start[x], x) for x in ended}
        row = max(ended, key=place.__getitem__, default=ABSENT)
        if row == ABSENT or self.end[row] < self.now:
            steps = {x.number: x.event_id for x in self.graph.host.timeline.steps}
            step = steps.get(window.step) if window.step is not None else None
            row = self._through_host(ABSENT if step is None else self.calls[step].thread, ABSENT)
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
        start, event = self.start[row], self.event[row]
        self._spend(start, PathKind(self.kind[row]), event)
        awaited = self._previous(row)
        if awaited != ABSENT and self.end[awaited] > start and not self.early[row]:
            awaited = ABSENT
        source = self.source[row]
        if source != ABSENT and (awaited == ABSENT or self.end[source] > self.end[awaited]):
            awaited = source
        launched = self._launched_ns(self.launch[row])
        ready = min(self.end[awaited], start) if awaited != ABSENT else ABSENT
        known = max(ready, launched)
        if start - known > QUEUE_LATENCY_NS:
            held_by = self._held_by(row)
            if held_by != ABSENT and self.end[held_by] > known:
                awaited, ready = held_by, min(self.end[held_by], start)
        if launched > ready:
            self._spend(launched, PathKind.LAUNCH, event)
            return self._through_host(self.calls[self.launch[row]].thread, event)
        if awaited != ABSENT:
            self._spend(ready, PathKind.UNKNOWN if launched == ABSENT else PathKind.QUEUE, event)
        return awaited

    def _previous(self, row: int) -> int:
        return row - 1 if row and self.lane[row - 1] == self.lane[row] else ABSENT

    def _launched_ns(self, call: int) -> int:
        """When a call got to launch: held up at its end, at most until its work began."""
        if call == ABSENT:
            return ABSENT
        if call not in self.graph.host.stalled_calls.event_id:
            return self.calls[call].start
        work = [self.start[x] for x in self.all if self.launch[x] == call]
        return min([self.calls[call].end, *work])

    def _held_by(self, row: int) -> int:
        """What ended just before on its device, else what still ran there, else what ended."""
        start = self.start[row]
        before = [
            x for x in self.all if self.device[x] == self.device[row] and self.start[x] < start
        ]
        ended = [x for x in before if self.end[x] <= start]
        last = max(ended, key=lambda x: (self.end[x], self.start[x], x), default=ABSENT)
        if last != ABSENT and start - self.end[last] <= QUEUE_LATENCY_NS:
            return last
        begun_last = {self.lane[x]: x for x in before}
        running = [x for x in begun_last.values() if self.end[x] > start]
        return min(running, key=lambda x: (self.start[x], x), default=last)

    def _through_host(self, thread: int, event: int) -> int:
        halts: dict[int, Halt] = {}
        for halt in self.halts:
            halts.setdefault(halt.call, halt)
        held = sorted(x for x in halts if x not in self.blocking)
        order = sorted([*self.blocking, *held], key=lambda x: halts[x].start)
        for call in [x for x in order if halts[x].start < self.now][::-1]:
            begun, by, awaited = halts[call].start, halts[call].thread, self._awaited(call)
            ended = halts[call].end if call in self.blocking else self._launched_ns(call)
            if self.now <= self.window.start_ns:
                return ABSENT
            if ended > self.now or not (thread == ABSENT or self._waits_for(thread, by, begun)):
                continue
            if awaited != ABSENT and self.end[awaited] <= begun:
                continue
            self._spend(ended, PathKind.HOST, event)
            event, thread = call, by
            if awaited != ABSENT:
                self._spend(self.end[awaited], PathKind.SYNC, call)
                return awaited
            self._spend(begun, PathKind.SYNC, call)
        self._spend(self.window.start_ns, PathKind.HOST, event)
        return ABSENT

    def _awaited(self, call: int) -> int:
        """The row that a blocking call waited for: what it copies, else what ended last."""
        if self.blocking.get(call) == Blocking.COPY:
            copied = [x for x in self.all if self.launch[x] == call]
            copied = [x for x in copied if self.start[x] < self.calls[call].end]
            if copied:
                return copied[-1]
        edges = zip(self.graph.source_id, self.graph.target_id, self.graph.kind, strict=True)
        sources = [s for s, target, kind in edges if target == call and kind == EdgeKind.SYNC]
        waited = [self.event.index(x) for x in sources]
        return max(waited, key=self.end.__getitem__, default=ABSENT)

    def _waits_for(self, thread: int, other: int, moment: int) -> bool:
        """Whether a thread stands still because of what begins in another, or in itself."""
        if thread == other or other not in self.launching:
            return thread == other
        told = (*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
        return thread == WATCHDOG or not any(
            x.thread == thread
            and (x.category in told or (x.category == Category.ANNOTATION and x.name == INPUT))
            and x.start <= moment < x.end
            for x in self.calls
        )

    # Why one row did not run beside another.

    def between(self, row: int, other: int, since: int) -> tuple[OverlapBlocker, int]:
        """What kept a row from running beside another that ran since some moment, and which call.

        All of a replay, and all that has no launch in the file, is one launch.
        """
        nothing, waited = (OverlapBlocker.TRUE_DEPENDENCY, ABSENT), False
        if self.launch[row] == self.launch[other]:
            return nothing
        for _ in range(MOST_HOPS):
            start, call = self.start[row], self.launch[row]
            returned = self.calls[call].end if call != ABSENT else ABSENT
            # The row before it in its stream, unless what it waited for ended later.
            binding = [x for x in (self._previous(row), self.source[row]) if x != ABSENT]
            before = max(binding, key=self.end.__getitem__, default=ABSENT)
            free = max([returned, *(self.end[x] for x in binding)])
            held = call in self.graph.host.stalled_calls.event_id
            launched = returned if held or call == ABSENT else self.calls[call].start
            if launched >= since and free == returned and start - free <= LAUNCH_LATENCY_NS:
                return self._late(row, launched, since)
            if start - max(free, since) > LAUNCH_LATENCY_NS:
                comm = self._comm_just_before(row)
                if comm == ABSENT or self.end[comm] < since:
                    return self._unnamed(row), ABSENT
                row, waited = comm, True
                continue
            if before == ABSENT or self.end[before] < since:
                return nothing
            waited = waited or before == self.source[row]
            behind = self.lane[before] == self.lane[other] and (
                before == other or self.end[before] >= self.end[other]
            )
            if behind or self.kind[before] == self.kind[other]:
                return (OverlapBlocker.EVENT_WAIT if waited else OverlapBlocker.SAME_STREAM), ABSENT
            row = before
        return nothing

    def _comm_just_before(self, row: int) -> int:
        if self.kind[row] != Kind.COMM:
            return ABSENT
        ended = [
            x
            for x in self.all
            if self.kind[x] == Kind.COMM
            and self.device[x] == self.device[row]
            and self.end[x] <= self.start[row]
        ]
        last = max(ended, key=lambda x: (self.end[x], x), default=ABSENT)
        near = last != ABSENT and self.start[row] - self.end[last] <= LAUNCH_LATENCY_NS
        return last if near else ABSENT

    def _unnamed(self, row: int) -> OverlapBlocker:
        if self.launch[row] == ABSENT:
            return OverlapBlocker.TRUE_DEPENDENCY
        without_rows = all(x.category != Category.SYNC for x in self.calls)
        anything_waits = without_rows and self.graph.links.unresolved > 0
        if self.graph.after_unresolved_wait[row] or anything_waits:
            return OverlapBlocker.EVENT_WAIT
        return OverlapBlocker.HARDWARE_QUEUE

    def _late(self, row: int, launched: int, since: int) -> tuple[OverlapBlocker, int]:
        """The call that kept the host for longest since then, of equal ones the first."""
        thread, longest, guilty = self.calls[self.launch[row]].thread, -(2**63), ABSENT
        for halt in sorted(self.halts, key=lambda x: x.start):
            if halt.start < launched and halt.end > since:
                held = min(self.calls[halt.behind].end, launched) - max(halt.start, since)
                if self._waits_for(thread, halt.thread, halt.start) and held > longest:
                    longest, guilty = held, halt.behind
        return (
            OverlapBlocker.LATE_LAUNCH if guilty == ABSENT else OverlapBlocker.HOST_SYNC
        ), guilty
