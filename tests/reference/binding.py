"""An independent account of what each activity waited for: slow, one activity after the other.

It takes a timeline's rows, their launches, the host's calls and what stream waits made rows wait
for as they are: other tests check those (`tests.reference.ticks`, `tests.reference.stream_waits`).
It asks all rows again for most of them. Only the medians of the captures, `LATENCIES`, are not its
own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tracelab.model.binding import Constraint, Reason
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import EdgeKind, Graph, pure_waits
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import LATENCIES, Since
from tracelab.model.stream_waits import StreamWaits
from tracelab.model.trace import ABSENT, Category

DELAY_NS, UNEXPLAINED_NS, WAKE_UP_NS = 5_000, 20_000, 35_000
MIN_STARTS = 20
LONG_AGO = -(10**30)


@dataclass(frozen=True)
class Bound:
    """One row of `Binding`; None where there is nothing."""

    launch: int | None
    stream: int | None
    event: int | None
    constraint: Constraint
    source: int | None
    is_inferred: bool
    ready: int
    delay: int | None
    unexplained: int = 0
    reason: Reason = Reason.NONE


class Bindings:
    """What the definitions say of a graph whose waits were resolved so."""

    def __init__(self, graph: Graph, waits: StreamWaits) -> None:
        host, timeline, trace = graph.host, graph.host.timeline, graph.host.timeline.trace
        self.graph, self.rows = graph, range(len(timeline.event_id))
        self.start, self.end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
        self.device, self.stream = timeline.device_number.tolist(), timeline.stream_index.tolist()
        self.kind = [Kind(kind) for kind in timeline.kind.tolist()]
        self.name = [trace.name_of(event) for event in timeline.event_id.tolist()]
        self.launch = timeline.launch_id.tolist()
        self.launched: list[int] = []  # when each row and all before it in its stream had been
        self.longest: list[int | None] = []  # of those before it in its stream, what ended last
        for row, call in enumerate(self.launch):
            follows = row > 0 and self.stream[row] == self.stream[row - 1]
            before = self.launched[row - 1] if follows else LONG_AGO
            self.longest.append(self.later_of(row - 1, self.longest[-1]) if follows else None)
            at = LONG_AGO if call == ABSENT else int(trace.start_ns[call])
            self.launched.append(max(before, at))
        self.may_begin_early = timeline.overlaps_previous.tolist()
        self.event_row = graph.binding.event_row.tolist()
        self.event_is_inferred = graph.binding.event_is_inferred.tolist()
        self.call_start, self.call_end = trace.start_ns.tolist(), trace.end_ns.tolist()
        self.got_to_launch = host.launched_ns.tolist()
        calls = host.blocking_calls
        self.copy_calls = set(calls.event_id[calls.kind == Blocking.COPY].tolist())
        self.peer_copies = {
            (row, source)
            for row, source, is_peer in zip(
                waits.row.tolist(), waits.source_row.tolist(), waits.is_peer_copy, strict=True
            )
            if is_peer
        }
        self.after_unresolved_wait = waits.after_unresolved_wait.tolist()
        categories = trace.category.tolist()
        has_sync_rows = Category.SYNC in categories
        self.any_stream_waits = not has_sync_rows and waits.unresolved_count > 0
        known = [self.last_known(row) for row in self.rows]
        self.typical, self.is_own = self.latencies(known)
        self.bound = [self.explained(row, known[row]) for row in self.rows]

    # What the file shows.

    def later_of(self, row: int, other: int | None) -> int:
        """The one that ended last, of two that did so at once the row."""
        return row if other is None or self.end[row] >= self.end[other] else other

    def last_known(self, row: int) -> Bound:
        """The constraint that was met last, the stream's before a wait's before the launch's."""
        start, call, previous = self.start[row], self.launch[row], row - 1
        launch = stream = event = None
        if call != ABSENT:
            launch = self.call_end[call]
            if launch > start:
                launch = min(self.got_to_launch[call], start)
        is_dependent = False
        longest = self.longest[row]
        if longest is not None and self.end[longest] <= start:
            stream, previous = self.end[longest], longest
        elif longest is not None and self.may_begin_early[row]:
            is_dependent = launch is None or start - launch > DELAY_NS
            previous = previous if self.end[previous] > start else longest
            stream = start if is_dependent else None
        elif longest is not None and self.end[previous] <= start:
            stream = self.end[previous]
        by_stream = Constraint.DEPENDENT_LAUNCH if is_dependent else Constraint.STREAM
        source = self.event_row[row]
        if source != ABSENT:
            event = self.end[source]
        is_peer_copy = (row, source) in self.peer_copies
        candidates = [
            (stream, by_stream, previous),
            (event, Constraint.PEER_COPY if is_peer_copy else Constraint.EVENT, source),
            (launch, Constraint.LAUNCH, None),
        ]
        met = [candidate for candidate in candidates if candidate[0] is not None]
        if not met:
            return Bound(launch, stream, event, Constraint.STREAM, None, False, start, None)
        ready, constraint, source = max(met, key=lambda candidate: candidate[0])
        others = [time for time, other, _ in met if other != constraint]
        is_wait = constraint in (Constraint.EVENT, Constraint.PEER_COPY)
        is_inferred = is_wait and self.event_is_inferred[row]
        return Bound(
            launch,
            stream,
            event,
            constraint,
            source,
            is_inferred,
            ready,
            ready - max(others) if others else None,
        )

    # What is typical.

    def latency_of(self, row: int, known: Bound) -> tuple[Since, Kind | None, Kind]:
        if known.constraint == Constraint.LAUNCH:
            return Since.LAUNCH, None, self.kind[row]
        if known.constraint not in (Constraint.STREAM, Constraint.QUEUE):
            return Since.EVENT, None, self.kind[row]
        source = row - 1 if known.source is None else known.source
        return Since.PREVIOUS, self.kind[source], self.kind[row]

    def latencies(self, known: list[Bound]) -> tuple[dict[object, int], set[object]]:
        """What is typical, by what it is counted from and between, and what is the trace's own."""
        starts: dict[object, list[int]] = defaultdict(list)
        for row, bound in enumerate(known):
            is_launch = bound.constraint == Constraint.LAUNCH
            in_graph = row > 0 and self.launch[row] == self.launch[row - 1]
            is_hidden = self.is_launching(row) or self.is_staged(row) or in_graph
            is_dependent = bound.constraint in (Constraint.DEPENDENT_LAUNCH, Constraint.QUEUE)
            if self.launch[row] != ABSENT and not is_dependent and not (is_launch and is_hidden):
                starts[self.latency_of(row, bound)].append(self.start[row] - bound.ready)
                is_node = bound.constraint == Constraint.STREAM and bound.source is not None
                if is_node and self.launch[row] == self.launch[bound.source]:
                    starts[Since.NODE, None, None].append(self.start[row] - bound.ready)
        starts[Since.AWAITED, None, None] = self.wake_ups()
        typical = {(x.since, x.previous, x.kind): x.typical_ns for x in LATENCIES}
        own = set()
        for latency, lengths in starts.items():
            if len(lengths) >= MIN_STARTS:
                median = sorted(lengths)[(len(lengths) - 1) // 2]
                if median <= UNEXPLAINED_NS:
                    typical[latency] = median
                    own.add(latency)
        return typical, own

    def wake_ups(self) -> list[int]:
        """How long pure waits took to return once what they waited for had ended."""
        edges = zip(
            self.graph.source_id.tolist(),
            self.graph.target_id.tolist(),
            self.graph.kind.tolist(),
            strict=True,
        )
        is_wait = pure_waits(self.graph.host)
        ended: dict[int, int] = {}
        for source, target, kind in edges:
            if kind == EdgeKind.SYNC and is_wait[target]:
                ended[target] = max(ended.get(target, ABSENT), self.call_end[source])
        return [
            self.call_end[call] - end for call, end in ended.items() if end > self.call_start[call]
        ]

    def is_launching(self, row: int) -> bool:
        call = self.launch[row]
        starts_in_call = call != ABSENT and self.start[row] < self.call_end[call]
        return starts_in_call and not self.is_staged(row)

    def is_staged(self, row: int) -> bool:
        return self.launch[row] in self.copy_calls

    # What it does not show.

    def explained(self, row: int, known: Bound) -> Bound:
        bound = self.late(row, known) if self.is_late(row, known) else known
        if self.launch[row] != ABSENT:
            return bound
        return Bound(
            **vars(bound)
            | {
                "constraint": Constraint.UNKNOWN,
                "is_inferred": False,
                "delay": self.start[row] - bound.ready,
                "reason": Reason.LAUNCH_NOT_IN_FILE,
            }
        )

    def is_late(self, row: int, known: Bound) -> bool:
        least = UNEXPLAINED_NS
        if self.is_launching(row):
            if known.constraint == Constraint.LAUNCH:
                return False
            least = DELAY_NS
        late = self.start[row] - known.ready
        return late > least and late > least + self.typical[self.latency_of(row, known)]

    def late(self, row: int, known: Bound) -> Bound:
        start, ready = self.start[row], known.ready
        may_wait = self.after_unresolved_wait[row] or self.any_stream_waits
        is_open = may_wait or self.launch[row] == ABSENT
        ended, running = self.ended_just_before(row, ready), self.running(row)
        met = [time for time in (known.stream, known.event) if time is not None]
        if self.is_launching(row) or (self.is_staged(row) and ended is None):
            delay = start - max(met) if met else None
            return self.bound_by(known, Constraint.LAUNCH, None, start, delay)
        if ended is not None:
            is_wait = may_wait or self.launch[row] == self.launch[ended]
            is_wait |= self.kind[row] == self.kind[ended] == Kind.COMM
            constraint = Constraint.EVENT if is_wait else Constraint.QUEUE
            end = self.end[ended]
            return self.bound_by(known, constraint, ended, end, end - ready)
        since = max(ready, start - WAKE_UP_NS) if is_open else ready
        if running is not None and self.needs_sm(row) and self.is_full(row, since):
            unexplained = start - ready if is_open else 0
            constraint = Constraint.NO_FREE_SM
            return self.bound_by(known, constraint, running, start, start - ready, unexplained)
        if self.is_in_graph(row):
            return Bound(**vars(known) | {"unexplained": start - ready})
        is_wait = self.any_stream_waits and (running is not None or len(set(self.device)) > 1)
        is_wait |= self.after_unresolved_wait[row]
        return Bound(
            known.launch,
            known.stream,
            known.event,
            Constraint.UNKNOWN,
            known.source,
            False,
            ready,
            start - ready,
            start - ready,
            Reason.WAIT_WITHOUT_RECORD if is_wait else Reason.NOTHING_IN_THE_WAY,
        )

    def bound_by(
        self,
        known: Bound,
        constraint: Constraint,
        source: int | None,
        ready: int,
        delay: int | None,
        unexplained: int = 0,
    ) -> Bound:
        times = (known.launch, known.stream, known.event)
        return Bound(*times, constraint, source, True, ready, delay, unexplained)

    def is_in_graph(self, row: int) -> bool:
        """Whether another activity of its launch started before it."""
        call = self.launch[row]
        starts = [self.start[x] for x in self.rows if self.launch[x] == call]
        return call != ABSENT and min(starts) < self.start[row]

    def beside(self, row: int) -> list[int]:
        """The rows of the other streams of its device that began before it."""
        return [
            x
            for x in self.rows
            if self.device[x] == self.device[row]
            and self.stream[x] != self.stream[row]
            and self.start[x] < self.start[row]
        ]

    def ended_just_before(self, row: int, ready: int) -> int | None:
        """Of what ended since it could have started, and just before it did, the last."""
        since, start = max(ready + 1, self.start[row] - WAKE_UP_NS), self.start[row]
        found = [x for x in self.beside(row) if since <= self.end[x] <= start]
        found = [x for x in found if self.launched[x] <= self.launched[row]]
        return max(found, key=lambda x: (self.end[x], x), default=None)

    def running(self, row: int) -> int | None:
        """The compute that ran when it started; of several what ended last."""
        compute = [
            x
            for x in self.rows
            if self.device[x] == self.device[row]
            and self.kind[x] == Kind.COMPUTE
            and self.start[x] < self.start[row]
        ]
        last = max(compute, key=lambda x: (self.end[x], self.start[x], x), default=None)
        if last is None or self.end[last] <= self.start[row]:
            return None
        return None if self.stream[last] == self.stream[row] else last

    def needs_sm(self, row: int) -> bool:
        return self.kind[row] != Kind.COPY or "DtoD" in self.name[row]

    def is_full(self, row: int, since: int) -> bool:
        """Whether kernels of its device ran from then to its start, but for at most 20 us."""
        kernels = sorted(
            (self.start[other], self.end[other])
            for other in self.rows
            if self.device[other] == self.device[row] and self.kind[other] == Kind.COMPUTE
        )
        idle, now = 0, since
        for begin, end in kernels:
            idle += max(0, min(begin, self.start[row]) - now)
            now = max(now, min(end, self.start[row]))
        return idle + max(0, self.start[row] - now) <= UNEXPLAINED_NS
