"""An independent account of what streams waited for: slow, one question after the other.

It takes a timeline's rows, their order and their launches as they are (`tests.reference.ticks`
checks those), and asks all waits, all records and all activities again at every turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.build.rows import Row
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

DELAY_NS, LATENCY_NS, HANDOVER_NS = 5_000, 20_000, 35_000
LONG_AGO = -(10**30)


@dataclass(frozen=True)
class Wait:
    """A wait of a stream: its place among all of them, and what the file says of its record."""

    place: int
    at: int
    stream: tuple[int, int]
    record: int  # correlation
    called: Row | None
    reached: Row | None
    recorded_on: tuple[int, int]


@dataclass(frozen=True)
class Behind:
    """The rows that had to end, those that are a guess, and the last wait without a record."""

    rows: frozenset[int] = frozenset()
    guessed: frozenset[int] = frozenset()
    unnamed: int = ABSENT

    def __or__(self, other: Behind) -> Behind:
        return Behind(
            self.rows | other.rows,
            self.guessed | other.guessed,
            max(self.unnamed, other.unnamed),
        )


class Replay:
    """What the definitions say of a timeline that was made of some rows (in ns)."""

    def __init__(self, rows: list[Row], timeline: Timeline) -> None:
        self.rows = rows
        self.start, self.end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
        self.lane = timeline.stream_index.tolist()
        self.streams = [(x.device_number, x.stream_number) for x in timeline.streams]
        self.all = range(len(self.start))
        launch = [None if x == ABSENT else rows[x] for x in timeline.launch_id.tolist()]
        self.launched, self.ended, self.ready = [], [], []
        for row in self.all:
            before = [x for x in range(row) if self.lane[x] == self.lane[row]]
            calls = [launch[x] for x in [*before, row]]
            self.launched.append(max(LONG_AGO if x is None else x.start for x in calls))
            free = launch[row].end if launch[row] else self.start[row]
            self.ready.append(max([free, *(self.end[x] for x in before)]))
            self.ended.append(max(self.end[x] for x in [*before, row]))
        self.record_calls = [x for x in rows if x.name == "cudaEventRecord"]
        self.waits = self.find_waits()
        self.named = sum(x.record != ABSENT for x in self.waits)
        self.pairs: set[tuple[int, int, bool]] = set()
        self.unknown: set[int] = set()
        self.told: set[int] = set()
        self.resolve()

    def find_waits(self) -> list[Wait]:
        waits = [x for x in self.rows if x.name == "Stream Wait Event"]
        found: list[Wait] = []
        for row in sorted(waits, key=lambda x: x.start):
            record = row.wait_correlation
            if record == ABSENT and row.event != ABSENT:
                of_event = {
                    x.correlation
                    for x in self.rows
                    if x.category == Category.CUDA_EVENT and x.event == row.event
                }
                record = max((x for x in of_event if x < row.correlation), default=ABSENT)
            reached = self.first(record, Category.CUDA_EVENT)
            place = (row.device, row.wait_stream)
            if reached:
                place = (reached.device, reached.stream)
            called = self.first(record, *HOST_CALLS)
            stream = (row.device, row.stream)
            found.append(Wait(len(found), row.start, stream, record, called, reached, place))
        return found

    def first(self, correlation: int, *categories: Category) -> Row | None:
        found = [x for x in self.rows if x.category in categories and x.correlation == correlation]
        return found[0] if found and correlation != ABSENT else None

    def given(self, stream: tuple[int, int], time: int) -> list[int]:
        """The rows of a stream that had been launched before a time."""
        return [x for x in self.on(stream) if self.launched[x] < time]

    def on(self, stream: tuple[int, int]) -> list[int]:
        return [x for x in self.all if self.streams[self.lane[x]] == stream]

    def behind(self, wait: Wait) -> Behind:
        """What had to end before whatever a stream was given after a wait."""
        found = self.by_itself(wait)
        if wait.called:
            found |= self.since_work(wait.recorded_on, wait.called.start, wait.place)
        return found | self.since_work(wait.stream, wait.at + 1, wait.place)

    def since_work(self, stream: tuple[int, int], time: int, place: int) -> Behind:
        """What stands behind the waits of a stream before a time, since it was last given work."""
        found = Behind()
        for wait in self.waits[:place]:
            work_since = [x for x in self.given(stream, time) if self.launched[x] >= wait.at]
            if wait.stream == stream and wait.at < time and not work_since:
                found |= self.behind(wait)
        return found

    def by_itself(self, wait: Wait) -> Behind:
        if wait.record == ABSENT:
            return Behind(unnamed=wait.place)
        works = bool(self.on(wait.recorded_on))
        if wait.called and works:
            return Behind(frozenset(self.given(wait.recorded_on, wait.called.start)[-1:]))
        if wait.reached and works:
            at = wait.reached.start
            return Behind(frozenset(x for x in self.on(wait.recorded_on) if self.ended[x] <= at))
        if wait.called and wait.reached:
            source = self.behind_idle_stream(wait.called, wait.reached)
            return Behind(source, source)
        return Behind()

    def behind_idle_stream(self, called: Row, reached: Row) -> frozenset[int]:
        shown = {x.correlation for x in self.rows if x.category == Category.SYNC}
        waited = [
            x.start
            for x in self.rows
            if x.name == "cudaStreamWaitEvent"
            and x.correlation not in shown
            and x.start < called.start
        ]
        if not waited or reached.start - called.end <= DELAY_NS:
            return frozenset()
        source = self.ended_between(called.end, reached.start, max(waited), without=ABSENT)
        return frozenset() if source is None else frozenset([source])

    def ended_between(self, ready: int, time: int, wait: int, *, without: int) -> int | None:
        fits = [
            x
            for x in self.all
            if max(ready, time - HANDOVER_NS) <= self.ended[x] <= time
            and self.lane[x] != without
            and self.recorded_after(x, wait)
        ]
        return max(fits, key=lambda x: (self.ended[x], x), default=None)

    def recorded_after(self, row: int, wait: int) -> bool:
        """Whether an event may have been recorded right after a row, and before a wait."""
        records = [x.start for x in self.record_calls if x.start >= self.launched[row]]
        follows = [x for x in self.all if x > row and self.lane[x] == self.lane[row]]
        until = min((self.launched[x] for x in follows), default=None)
        return any(x < wait and (until is None or x < until) for x in records)

    def resolve(self) -> None:
        before: dict[int, Behind] = {}
        for wait in self.waits:
            later = [x for x in self.on(wait.stream) if self.launched[x] >= wait.at]
            if later:
                before[later[0]] = before.get(later[0], Behind()) | self.behind(wait)
        for row, behind in before.items():
            sources = {
                max(x for x in behind.rows if self.lane[x] == lane)
                for lane in {self.lane[x] for x in behind.rows}
                if lane != self.lane[row]
            }
            self.pairs |= {(row, x, x in behind.guessed) for x in sources}
            ready = self.beyond(row, self.ready[row], [self.end[x] for x in sources])
            delay = self.start[row] - ready
            if behind.unnamed == ABSENT or delay <= DELAY_NS:
                continue
            asked = self.waits[behind.unnamed]
            source = self.ended_between(ready, self.start[row], asked.at, without=self.lane[row])
            if source is not None:
                self.pairs.add((row, source, True))
                self.told.add(asked.place)
            elif delay > LATENCY_NS:
                self.unknown.add(row)

    def beyond(self, row: int, ready: int, ended: list[int]) -> int:
        """When a row could have started, now that some of what it waited for is known."""
        last, start = max(ended, default=LONG_AGO), self.start[row]
        explained = ready <= last <= start <= last + HANDOVER_NS
        return start if explained else max(ready, last)
