"""What streams waited for: the activities behind the events that a stream was made to wait for.

With event records (CUPTI's rows) a wait names the record that it waits for, and what the recording
stream had been given by then is what it waits for. Stock files name none. There the times tell, for
a wait that held something up: what it waited for had ended just before. A wait that held nothing up
needs no explanation. `tests/benchmarks/inferred_waits.py` measures how often that is right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.timeline import Timeline
from tracelab.trace import ABSENT, HOST_CALLS, Category, Trace

_LONG_AGO = -(2**62)
_STREAM_WAIT_ROW = "Stream Wait Event"
_STREAM_WAIT_CALLS = ("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent")
_RECORD_CALLS = ("cudaEventRecord", "cuEventRecord", "hipEventRecord")
_PEER_COPY = "Memcpy PtoP"

# All measured in the bundled captures of H200s: 38,000 activities that nothing shown held up, and
# 3,100 that a wait did.
# Without a wait 95 of 100 start at most 5 us after they could have. 3 or 8 us would make the same
# inferred waits but one.
_SHORTEST_DELAY_NS = 5_000
# Three in 38,000 start 20 to 100 us after: that needs an explanation, an earlier start none.
_LONGEST_LATENCY_NS = 20_000
# What a wait held up starts 1 to 35 us after what it waited for, 7 us in the median. Then come 5 of
# 3,100 up to 45 us, and from there on what also waited for a free multiprocessor.
_LONGEST_HANDOVER_NS = 35_000


@dataclass(frozen=True, slots=True, eq=False)
class StreamWaits:
    """What the activities of a file waited for on other streams.

    Attributes:
        row, source: intp[p], timeline rows in pairs: the second had to end before the first.
        inferred: bool[p], whether the times tell so and not the file.
        unknown: bool[m], per timeline row whether it was late, after a wait for something that
            neither the file nor the times tell.
        named: waits whose record the file names.
        told_by_time: waits whose record it does not name, but the times tell.
        unresolved: all other waits.
    """

    row: NDArray[np.intp]
    source: NDArray[np.intp]
    inferred: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    named: int
    told_by_time: int
    unresolved: int


class LaneQueues:
    """Which activity of a stream was the last, or the first, to be launched by some moment."""

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        launched = timeline.launch != ABSENT
        # What the file does not see launched was launched before everything that it does.
        self.launch_ns = np.where(launched, trace.start_ns[timeline.launch], _LONG_AGO)
        for lane in timeline.lanes:
            queue = self.launch_ns[lane.first : lane.last]
            np.maximum.accumulate(queue, out=queue)
        self._timeline = timeline
        self._numbers = {(x.device, x.stream): i for i, x in enumerate(timeline.lanes)}

    def find(self, device: int, stream: int) -> int | None:
        """A lane's number, if the stream worked at all."""
        return self._numbers.get((device, stream))

    def of_device(self, device: int) -> list[int]:
        """The lanes of a device; of all devices where it is ABSENT."""
        lanes = self._timeline.lanes
        return [i for i, x in enumerate(lanes) if device in (x.device, ABSENT)]

    def last_before(self, lane: int, time_ns: int) -> int:
        """The row that was launched last before this moment, else ABSENT."""
        first, last = self._timeline.lanes[lane].first, self._timeline.lanes[lane].last
        row = first + int(np.searchsorted(self.launch_ns[first:last], time_ns, side="left")) - 1
        return row if row >= first else ABSENT

    def first_from(self, lane: int, time_ns: int) -> int:
        """The row that was launched first from this moment on, else ABSENT."""
        first, last = self._timeline.lanes[lane].first, self._timeline.lanes[lane].last
        row = first + int(np.searchsorted(self.launch_ns[first:last], time_ns, side="left"))
        return row if row < last else ABSENT


@dataclass(frozen=True, slots=True)
class _Behind:
    """What stands behind a wait, or behind several.

    Attributes:
        rows: by lane, the last row that had to end.
        guessed: those of them that only the times tell.
        unnamed: event id of the last wait's row that names no record, else ABSENT. The last one is
            enough: whatever an earlier one can have waited for, this one can.
    """

    rows: dict[int, int] = field(default_factory=dict)
    guessed: frozenset[int] = frozenset()
    unnamed: int = ABSENT

    def and_also(self, later: _Behind) -> _Behind:
        """Both together; the other's waits come later."""
        rows = dict(self.rows)
        for lane, row in later.rows.items():
            rows[lane] = max(row, rows.get(lane, ABSENT))
        guessed = (self.guessed | later.guessed) & frozenset(rows.values())
        return _Behind(rows, guessed, later.unnamed if later.unnamed != ABSENT else self.unnamed)


def resolve_waits(timeline: Timeline, lanes: LaneQueues) -> StreamWaits:
    """Find what the activities of a file waited for on other streams."""
    trace = timeline.trace
    records = _Records(trace)
    waits = _wait_rows(trace)
    delays = _Delays(timeline, lanes)
    unknown = np.zeros(len(timeline.event), dtype=np.bool_)
    pairs: list[tuple[int, int, bool]] = []
    told: set[int] = set()
    for row, behind in _Waits(timeline, lanes, records, delays).follow(waits).items():
        own = int(timeline.lane[row])
        sources = {x for lane, x in behind.rows.items() if lane != own}
        pairs += [(row, source, source in behind.guessed) for source in sources]
        ended = max((int(timeline.end_ns[source]) for source in sources), default=_LONG_AGO)
        delays.now_known(row, ended)
        if behind.unnamed == ABSENT or not delays.is_late(row):
            continue
        source = delays.source_of(row, int(trace.start_ns[behind.unnamed]))
        if source == ABSENT:
            unknown[row] = delays.needs_reason(row)
        else:
            pairs.append((row, source, True))
            told.add(behind.unnamed)
            delays.now_known(row, int(timeline.end_ns[source]))
    for row, copy in _held_up_by_peer_copies(timeline, lanes, delays.ready_ns):
        pairs.append((row, copy, True))
        unknown[row] = False
    unnamed = {wait for wait in waits if records.awaited(wait) == ABSENT}
    unresolved = len(unnamed - told)
    if not len(trace.of_category(Category.SYNC)):
        # Without sync rows not even the waiting stream is known. In a file that has some, Kineto
        # left a row out because no activity ran on that stream.
        unresolved = len(_calls(trace, _STREAM_WAIT_CALLS))
    table = np.array(pairs, dtype=np.intp).reshape(-1, 3)
    return StreamWaits(
        row=table[:, 0],
        source=table[:, 1],
        inferred=table[:, 2].astype(np.bool_),
        unknown=unknown,
        named=len(waits) - len(unnamed),
        told_by_time=len(unnamed & told),
        unresolved=unresolved,
    )


class _Waits:
    """The waits of all streams, followed in the order in which the host asked for them.

    A record stands for what its stream had been given by then: the last activity, and the waits
    after it. So a wait reaches through streams that did nothing but wait themselves.
    """

    def __init__(
        self, timeline: Timeline, lanes: LaneQueues, records: _Records, delays: _Delays
    ) -> None:
        self._trace, self._lanes = timeline.trace, lanes
        self._records, self._delays = records, delays
        self._calls = first_by_correlation(self._trace, *HOST_CALLS)
        # Per stream the times of its waits, ascending, and what stands behind each of them and
        # those before it since the stream's last activity.
        self._standing: dict[tuple[int, int], tuple[list[int], list[_Behind]]] = defaultdict(
            lambda: ([], [])
        )
        calls = _calls(self._trace, _STREAM_WAIT_CALLS)
        rows = self._trace.of_category(Category.SYNC)
        if len(rows):
            with_row = np.isin(self._trace.correlation[calls], self._trace.correlation[rows])
            calls = calls[~with_row]
        self._without_row = calls
        self._without_row_ns = self._trace.start_ns[calls]

    def follow(self, waits: list[int]) -> dict[int, _Behind]:
        """What stands behind all waits of each row that comes first after one, by row."""
        trace = self._trace
        before: dict[int, _Behind] = {}
        for wait in waits:
            start = int(trace.start_ns[wait])
            stream = int(trace.device[wait]), int(trace.stream[wait])
            lane = self._lanes.find(*stream)
            _, launched = self._last_given(lane, start)
            behind = self._standing_at(stream, start + 1, launched).and_also(self._behind(wait))
            times, standing = self._standing[stream]
            times.append(start)
            standing.append(behind)
            row = ABSENT if lane is None else self._lanes.first_from(lane, start)
            if row != ABSENT:
                before[row] = behind
        return before

    def _last_given(self, lane: int | None, time_ns: int) -> tuple[int, int]:
        """The last row that a stream had been given by some moment, and when."""
        row = ABSENT if lane is None else self._lanes.last_before(lane, time_ns)
        return row, _LONG_AGO if row == ABSENT else int(self._lanes.launch_ns[row])

    def _standing_at(self, stream: tuple[int, int], time_ns: int, launched_ns: int) -> _Behind:
        """What stands behind a stream's waits before some moment and after its last activity."""
        times, standing = self._standing[stream]
        last = bisect_left(times, time_ns) - 1
        return standing[last] if last >= 0 and times[last] > launched_ns else _Behind()

    def _behind(self, wait: int) -> _Behind:
        """What a wait's record stands for."""
        trace = self._trace
        record = self._records.awaited(wait)
        if record == ABSENT:
            return _Behind(unnamed=wait)
        reached = self._records.reached.get(record, ABSENT)
        device, stream = int(trace.device[wait]), int(trace.wait_stream[wait])
        if reached != ABSENT:
            device, stream = int(trace.device[reached]), int(trace.stream[reached])
        lane = self._lanes.find(device, stream)
        call = self._calls.get(record, ABSENT)
        if call == ABSENT:  # recorded before the file began, and maybe reached inside it
            row = ABSENT
            if lane is not None and reached != ABSENT:
                row = self._delays.last_ended(lane, int(trace.start_ns[reached]))
            return _Behind({} if lane is None or row == ABSENT else {lane: row})
        recorded = int(trace.start_ns[call])
        row, launched = self._last_given(lane, recorded)
        if lane is None:
            found = _Behind() if reached == ABSENT else self._behind_idle_stream(call, reached)
        else:
            found = _Behind() if row == ABSENT else _Behind({lane: row})
        return found.and_also(self._standing_at((device, stream), recorded, launched))

    def _behind_idle_stream(self, call: int, reached: int) -> _Behind:
        """What a record on a stream without any activity stands for.

        Kineto leaves out the rows of that stream's waits, so the file only tells that some stream
        waited, and when the record was reached: late, if it waited for something.
        """
        trace = self._trace
        before = int(np.searchsorted(self._without_row_ns, trace.start_ns[call]))
        reached_ns, ready_ns = int(trace.start_ns[reached]), int(trace.end_ns[call])
        if not before or reached_ns - ready_ns <= _SHORTEST_DELAY_NS:
            return _Behind()
        wait = int(self._without_row[before - 1])
        lane, row = self._delays.ended_between(
            ready_ns, reached_ns, int(trace.start_ns[wait]), without=ABSENT
        )
        return _Behind() if row == ABSENT else _Behind({lane: row}, frozenset({row}))


class _Delays:
    """Which activities started late, and what had ended just before.

    An activity that could have started earlier (its launch call was over, its stream was free) was
    waiting for something; what it waited for had just ended when it started.
    """

    def __init__(self, timeline: Timeline, lanes: LaneQueues) -> None:
        self._timeline, self._lanes = timeline, lanes
        self._ended = timeline.end_ns.copy()
        for lane in timeline.lanes:
            ends = self._ended[lane.first : lane.last]
            np.maximum.accumulate(ends, out=ends)
        trace = timeline.trace
        # When each row's launch call and the row before it on its stream were over, so that it
        # could have started; its own start where that explains it or the file shows no launch.
        launched = timeline.launch != ABSENT
        free = np.where(launched, trace.end_ns[timeline.launch], timeline.start_ns)
        same = np.flatnonzero(timeline.lane[1:] == timeline.lane[:-1]) + 1
        free[same] = np.maximum(free[same], self._ended[same - 1])
        self.ready_ns: Int64Array = free
        self._record_ns = np.sort(trace.start_ns[_calls(trace, _RECORD_CALLS)])

    def now_known(self, row: int, ended_ns: int) -> None:
        """What a row waited for is known, and when that ended: is there a delay beyond it?"""
        start = int(self._timeline.start_ns[row])
        ready = int(self.ready_ns[row])
        explains = ready <= ended_ns <= start <= ended_ns + _LONGEST_HANDOVER_NS
        self.ready_ns[row] = start if explains else max(ready, ended_ns)

    def is_late(self, row: int) -> bool:
        """Whether a row started late."""
        return int(self._timeline.start_ns[row] - self.ready_ns[row]) > _SHORTEST_DELAY_NS

    def needs_reason(self, row: int) -> bool:
        """Whether a row started later than any latency explains."""
        return int(self._timeline.start_ns[row] - self.ready_ns[row]) > _LONGEST_LATENCY_NS

    def last_ended(self, lane: int, time_ns: int) -> int:
        """The last row of a lane that had ended at this moment, else ABSENT."""
        first, last = self._timeline.lanes[lane].first, self._timeline.lanes[lane].last
        row = first + int(np.searchsorted(self._ended[first:last], time_ns, side="right")) - 1
        return row if row >= first else ABSENT

    def source_of(self, row: int, wait_ns: int) -> int:
        """What a late row waited for, after a wait at this moment; ABSENT where nothing fits."""
        own, start = int(self._timeline.lane[row]), int(self._timeline.start_ns[row])
        return self.ended_between(int(self.ready_ns[row]), start, wait_ns, without=own)[1]

    def ended_between(
        self, ready_ns: int, time_ns: int, wait_ns: int, *, without: int
    ) -> tuple[int, int]:
        """The lane and row that ended last of all that a wait can have waited for.

        It ended just before `time_ns`, when something started, and after that could have started:
        otherwise it held nothing up.
        """
        since = max(ready_ns, time_ns - _LONGEST_HANDOVER_NS)
        best = (_LONG_AGO, ABSENT, ABSENT)
        for lane, span in enumerate(self._timeline.lanes):
            row = ABSENT if lane == without else self.last_ended(lane, time_ns)
            while row >= span.first and int(self._ended[row]) >= since:
                if self._recorded_after(row, span.last, wait_ns):
                    best = max(best, (int(self._ended[row]), lane, row))
                    break
                row -= 1
        return best[1:]

    def _recorded_after(self, row: int, lane_end: int, wait_ns: int) -> bool:
        """Whether an event was recorded after a row's launch, before the next one and the wait."""
        launch_ns = self._lanes.launch_ns
        until = wait_ns if row + 1 == lane_end else min(wait_ns, int(launch_ns[row + 1]))
        first, last = np.searchsorted(self._record_ns, (launch_ns[row], until))
        return bool(last > first)


def _held_up_by_peer_copies(
    timeline: Timeline, lanes: LaneQueues, ready_ns: Int64Array
) -> list[tuple[int, int]]:
    """Pairs of a row that waited without any wait, and the copy between devices that it waited for.

    A copy in a device's default stream holds up what is launched after it in the other device's
    default stream: CUDA does that by itself. The file does not tell which streams those are, so
    only an activity counts that nothing else explains: the first of its stream to be launched after
    the copy, far later than it could have started (`ready_ns`, int64[m]) and just after the copy.
    """
    trace = timeline.trace
    names = [i for i, text in enumerate(trace.strings) if text.startswith(_PEER_COPY)]
    copies = np.flatnonzero(np.isin(trace.name[timeline.event], names))
    copies = copies[lanes.launch_ns[copies] != _LONG_AGO]
    copies = copies[np.argsort(timeline.end_ns[copies], kind="stable")]
    found: dict[int, int] = {}
    for lane in timeline.lanes if len(copies) else ():
        queue = lanes.launch_ns[lane.first : lane.last]
        place = lane.first + np.searchsorted(queue, lanes.launch_ns[copies], side="right")
        follows = (place < lane.last) & (timeline.device[copies] != lane.device)
        copied, row = copies[follows], place[follows]
        ended, start = timeline.end_ns[copied], timeline.start_ns[row]
        held_up = (ended >= ready_ns[row]) & (start - ready_ns[row] > _LONGEST_LATENCY_NS)
        held_up &= (start >= ended) & (start - ended <= _LONGEST_HANDOVER_NS)
        found |= dict(zip(row[held_up].tolist(), copied[held_up].tolist(), strict=True))
    return list(found.items())


class _Records:
    """Which event record each wait waited for, by correlation."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.reached = first_by_correlation(trace, Category.CUDA_EVENT)
        self._of_event: dict[int, list[int]] = defaultdict(list)
        for correlation, row in sorted(self.reached.items()):
            if trace.event[row] != ABSENT:
                self._of_event[int(trace.event[row])].append(correlation)

    def awaited(self, wait: int) -> int:
        """The correlation of the record that a wait's row names, else ABSENT.

        Kineto names no record of another device. There, what the row does name, the event, has
        been recorded last before the wait; events are used again and again.
        """
        named = int(self._trace.wait_correlation[wait])
        if named != ABSENT:
            return named
        records = self._of_event.get(int(self._trace.event[wait]), [])
        place = bisect_left(records, int(self._trace.correlation[wait]))
        return records[place - 1] if place else ABSENT


def first_by_correlation(trace: Trace, *categories: Category) -> dict[int, int]:
    """Event ids by correlation; the first where several share one."""
    events = trace.of_category(*categories)
    events = events[trace.correlation[events] != ABSENT][::-1]
    return dict(zip(trace.correlation[events].tolist(), events.tolist(), strict=True))


def _wait_rows(trace: Trace) -> list[int]:
    """The rows of waits of streams, in the order in which the host asked for them."""
    names = [i for i, text in enumerate(trace.strings) if text == _STREAM_WAIT_ROW]
    rows = trace.of_category(Category.SYNC)
    rows = rows[np.isin(trace.name[rows], names)]
    return [int(row) for row in rows[np.argsort(trace.start_ns[rows], kind="stable")]]


def _calls(trace: Trace, prefixes: tuple[str, ...]) -> NDArray[np.intp]:
    """The host's calls with names that begin so, by start."""
    names = [i for i, text in enumerate(trace.strings) if text.startswith(prefixes)]
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[np.isin(trace.name[calls], names)]
    return calls[np.argsort(trace.start_ns[calls], kind="stable")]
