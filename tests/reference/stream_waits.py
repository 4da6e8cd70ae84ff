"""An independent account of what streams waited for: slow, one question after the other.

It takes a timeline's rows, their order and their launches as they are (`tests.reference.ticks`
checks those), and asks all waits, all records and all activities again at every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.build.rows import Row
from tests.reference.recording_streams import Answer, Asked, answers
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

DELAY_NS, WAKE_UP_NS = 5_000, 35_000
LONG_AGO = -(10**30)


@dataclass(frozen=True)
class Wait:
    """A wait of a stream: its index among all of them, and what is known of its record."""

    index: int
    start: int
    stream: tuple[int, int]
    record_correlation: int
    call: Row | None
    reached: Row | None
    recorded_on: tuple[int, int]
    is_inferred: bool = False
    is_unresolved: bool = False


@dataclass(frozen=True)
class Upstream:
    """The rows that had to end, those only inferred, and the last wait without a record."""

    rows: frozenset[int] = frozenset()
    inferred: frozenset[int] = frozenset()
    unresolved_wait: int = ABSENT

    def __or__(self, other: Upstream) -> Upstream:
        return Upstream(
            self.rows | other.rows,
            self.inferred | other.inferred,
            max(self.unresolved_wait, other.unresolved_wait),
        )


class Replay:
    """What the definitions say of a timeline that was made of some rows (in ns)."""

    def __init__(self, rows: list[Row], timeline: Timeline) -> None:
        self.rows = rows
        self.start, self.end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
        self.stream_index = timeline.stream_index.tolist()
        self.streams = [(x.device_number, x.stream_number) for x in timeline.streams]
        self.all = range(len(self.start))
        launch = [None if x == ABSENT else rows[x] for x in timeline.launch_id.tolist()]
        self.launched, self.ended, self.ready = [], [], []
        for row in self.all:
            before = [x for x in range(row) if self.stream_index[x] == self.stream_index[row]]
            calls = [launch[x] for x in [*before, row]]
            self.launched.append(max(LONG_AGO if x is None else x.start for x in calls))
            launch_end = launch[row].end if launch[row] else self.start[row]
            self.ready.append(max([launch_end, *(self.end[x] for x in before)]))
            self.ended.append(max(self.end[x] for x in [*before, row]))
        self.record_calls = [x for x in rows if x.name == "cudaEventRecord"]
        self.waits = self.infer_streams(self.find_waits(), timeline)
        self.exact_count = sum(not (x.is_inferred or x.is_unresolved) for x in self.waits)
        self.pairs: set[tuple[int, int, bool]] = set()
        self.after_unresolved_wait: set[int] = set()
        self.inferred_waits: set[int] = set()
        self.resolve()

    def find_waits(self) -> list[Wait]:
        rows = [x for x in self.rows if x.name == "Stream Wait Event"]
        waits: list[Wait] = []
        for row in sorted(rows, key=lambda x: x.start):
            record = row.wait_correlation
            if record == ABSENT and row.event != ABSENT:
                of_event = {
                    x.correlation
                    for x in self.rows
                    if x.category == Category.CUDA_EVENT and x.event == row.event
                }
                record = max((x for x in of_event if x < row.correlation), default=ABSENT)
            reached = self.first(record, Category.CUDA_EVENT)
            recorded_on = (row.device, row.wait_stream)
            if reached:
                recorded_on = (reached.device, reached.stream)
            call = self.first(record, *HOST_CALLS)
            stream = (row.device, row.stream)
            waits.append(Wait(len(waits), row.start, stream, record, call, reached, recorded_on))
        return waits

    def infer_streams(self, waits: list[Wait], timeline: Timeline) -> list[Wait]:
        """The waits with what the host's calls tell of where their records were made."""
        is_open = [x.record_correlation == ABSENT or x.recorded_on[1] == ABSENT for x in waits]
        rows = sorted(
            (x for x in self.rows if x.name == "Stream Wait Event"), key=lambda x: x.start
        )
        asked = {
            x.index: Asked(rows[x.index], x.call, is_open[x.index])
            for x in waits
            if x.call is not None
        }
        said = dict(zip(asked, answers(self.rows, timeline, list(asked.values())), strict=True))
        return [
            self.with_answer(wait, said.get(wait.index)) if is_open[wait.index] else wait
            for wait in waits
        ]

    def with_answer(self, wait: Wait, answer: Answer | None) -> Wait:
        if answer is None:
            return replace(wait, is_unresolved=True)
        return replace(
            wait,
            recorded_on=answer.stream or wait.recorded_on,
            is_inferred=answer.stream is not None,
            is_unresolved=answer.is_unresolved,
        )

    def first(self, correlation: int, *categories: Category) -> Row | None:
        rows = [x for x in self.rows if x.category in categories and x.correlation == correlation]
        return rows[0] if rows and correlation != ABSENT else None

    def launched_on(self, stream: tuple[int, int], before: int) -> list[int]:
        """The rows of a stream that had been launched before a time."""
        return [x for x in self.on(stream) if self.launched[x] < before]

    def on(self, stream: tuple[int, int]) -> list[int]:
        return [x for x in self.all if self.streams[self.stream_index[x]] == stream]

    def upstream(self, wait: Wait) -> Upstream:
        """What had to end before whatever was launched on a stream after a wait."""
        upstream = self.direct(wait)
        if wait.call:
            upstream |= self.since_work(wait.recorded_on, wait.call.start, wait.index)
        return upstream | self.since_work(wait.stream, wait.start + 1, wait.index)

    def since_work(self, stream: tuple[int, int], time: int, index: int) -> Upstream:
        """What is upstream of the waits of a stream before a time, since its last work."""
        upstream = Upstream()
        for wait in self.waits[:index]:
            launched = self.launched_on(stream, time)
            work_since = [x for x in launched if self.launched[x] >= wait.start]
            if wait.stream == stream and wait.start < time and not work_since:
                upstream |= self.upstream(wait)
        return upstream

    def direct(self, wait: Wait) -> Upstream:
        """What the record of a wait stands for by itself."""
        if wait.is_unresolved:
            return Upstream(unresolved_wait=wait.index)
        is_busy = bool(self.on(wait.recorded_on))
        if wait.call and is_busy:
            last = frozenset(self.launched_on(wait.recorded_on, wait.call.start)[-1:])
            return Upstream(last, last if wait.is_inferred else frozenset())
        if wait.reached and is_busy:
            time = wait.reached.start
            rows = [x for x in self.on(wait.recorded_on) if self.ended[x] <= time]
            return Upstream(frozenset(rows))
        if wait.call and wait.reached:
            source = self.upstream_of_idle_stream(wait.call, wait.reached)
            return Upstream(source, source)
        return Upstream()

    def upstream_of_idle_stream(self, call: Row, reached: Row) -> frozenset[int]:
        of_sync_rows = {x.correlation for x in self.rows if x.category == Category.SYNC}
        wait_starts = [
            x.start
            for x in self.rows
            if x.name == "cudaStreamWaitEvent"
            and x.correlation not in of_sync_rows
            and x.start < call.start
        ]
        if not wait_starts or reached.start - call.end <= DELAY_NS:
            return frozenset()
        last_wait = max(wait_starts)
        source = self.ended_between(call.end, reached.start, last_wait, without=ABSENT)
        return frozenset() if source is None else frozenset([source])

    def ended_between(self, ready: int, time: int, wait: int, *, without: int) -> int | None:
        fits = [
            x
            for x in self.all
            if max(ready, time - WAKE_UP_NS) <= self.ended[x] <= time
            and self.stream_index[x] != without
            and self.recorded_after(x, wait)
        ]
        return max(fits, key=lambda x: (self.ended[x], x), default=None)

    def recorded_after(self, row: int, wait: int) -> bool:
        """Whether an event may have been recorded right after a row, and before a wait."""
        records = [x.start for x in self.record_calls if x.start >= self.launched[row]]
        stream_index = self.stream_index[row]
        follows = [x for x in self.all if x > row and self.stream_index[x] == stream_index]
        until = min((self.launched[x] for x in follows), default=None)
        return any(x < wait and (until is None or x < until) for x in records)

    def resolve(self) -> None:
        upstream_of: dict[int, Upstream] = {}
        for wait in self.waits:
            later = [x for x in self.on(wait.stream) if self.launched[x] >= wait.start]
            if later:
                upstream = upstream_of.get(later[0], Upstream())
                upstream_of[later[0]] = upstream | self.upstream(wait)
        for row, upstream in upstream_of.items():
            sources = {
                max(x for x in upstream.rows if self.stream_index[x] == stream_index)
                for stream_index in {self.stream_index[x] for x in upstream.rows}
                if stream_index != self.stream_index[row]
            }
            # What is inferred must not run against time.
            inferred = upstream.inferred
            sources = {x for x in sources if x not in inferred or self.ended[x] <= self.start[row]}
            self.pairs |= {(row, x, x in upstream.inferred) for x in sources}
            ready = self.ready_after(row, [self.end[x] for x in sources])
            delay = self.start[row] - ready
            if upstream.unresolved_wait == ABSENT or delay <= DELAY_NS:
                continue
            wait = self.waits[upstream.unresolved_wait]
            recorded_before = wait.call.start + 1 if wait.call else wait.start
            source = self.ended_between(
                ready, self.start[row], recorded_before, without=self.stream_index[row]
            )
            if source is not None:
                self.pairs.add((row, source, True))
                self.inferred_waits.add(wait.index)
            else:
                self.after_unresolved_wait.add(row)

    def ready_after(self, row: int, source_ends: list[int]) -> int:
        """When a row could have started, now that some of what it waited for is known."""
        ready, start = self.ready[row], self.start[row]
        last = max(source_ends, default=LONG_AGO)
        explained = ready <= last <= start <= last + WAKE_UP_NS
        return start if explained else max(ready, last)
