"""What streams waited for: the activities behind the events that a stream was made to wait for.

With event records (CUPTI's rows) a wait names the record that it waits for, and what the recording
stream had been given by then is what it waits for. Stock files name none. There the times tell, for
a wait that held something up: what it waited for had ended just before. A wait that held nothing up
needs no explanation. `tests/benchmarks/inferred_waits.py` measures how often that is right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.lookup import ByCorrelation, last_in_group, match_names
from tracelab.model.stream_queues import LONG_AGO, StreamQueues
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace

_END_OF_TIME = np.iinfo(np.int64).max
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


@dataclass(frozen=True, slots=True)
class _Behind:
    """What stands behind a wait, or behind several.

    Attributes:
        rows: by lane, the last row that had to end.
        guessed: those of them that only the times tell.
        unnamed: place of the last wait that names no record, else ABSENT. The last one is enough:
            whatever an earlier one can have waited for, this one can.
    """

    rows: dict[int, int] = field(default_factory=dict)
    guessed: frozenset[int] = frozenset()
    unnamed: int = ABSENT

    def and_also(self, other: _Behind) -> _Behind:
        """Both together."""
        if self is _NOTHING or other is _NOTHING:
            return other if self is _NOTHING else self
        rows = dict(self.rows)
        for lane, row in other.rows.items():
            rows[lane] = max(row, rows.get(lane, ABSENT))
        guessed = self.guessed | other.guessed
        return _Behind(
            rows,
            guessed & frozenset(rows.values()) if guessed else guessed,
            max(self.unnamed, other.unnamed),
        )


_NOTHING = _Behind()


def resolve_waits(timeline: Timeline, lanes: StreamQueues) -> StreamWaits:
    """Find what the activities of a file waited for on other streams."""
    trace = timeline.trace
    waits = _wait_rows(trace)
    if not len(timeline.event_id):
        nothing, never = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.bool_)
        return StreamWaits(nothing, nothing, never, never, 0, 0, len(waits))
    records, delays = _Records(trace, waits), _Delays(timeline, lanes)
    before = _follow(trace, lanes, records, _found_behind(trace, lanes, records, delays))
    row = np.fromiter(before, dtype=np.intp, count=len(before))
    pairs = _pairs(timeline, before)
    ended = np.full(len(row), LONG_AGO, dtype=np.int64)
    np.maximum.at(ended, pairs[:, 0], timeline.end_ns[pairs[:, 1]])
    delays.now_known(row, ended)
    last_unnamed = np.array([x.unnamed for x in before.values()], dtype=np.int64)
    asked = np.flatnonzero((last_unnamed != ABSENT) & (delays.of(row) > _SHORTEST_DELAY_NS))
    late, wait = row[asked], waits[last_unnamed[asked]]
    source = delays.ended_between(
        delays.ready_ns[late],
        timeline.start_ns[late],
        trace.start_ns[wait],
        without=timeline.stream_index[late],
    )
    unknown = np.zeros(len(timeline.event_id), dtype=np.bool_)
    unknown[late] = (source == ABSENT) & (delays.of(late) > _LONGEST_LATENCY_NS)
    told = source != ABSENT
    delays.now_known(late[told], timeline.end_ns[source[told]])
    inferred = np.stack((asked[told], source[told], np.ones(told.sum(), dtype=np.intp)), axis=1)
    pairs = np.concatenate((pairs, inferred))
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    held_up, copy = _held_up_by_peer_copies(timeline, lanes, delays.ready_ns)
    unknown[held_up] = False
    unnamed = int((records.awaited == ABSENT).sum())
    told_by_time = len(np.unique(wait[told]))
    unresolved = unnamed - told_by_time
    if not len(trace.of_category(Category.SYNC)):
        # Without sync rows not even the waiting stream is known. In a file that has some, Kineto
        # left a row out because no activity ran on that stream.
        unresolved = len(_calls(trace, _STREAM_WAIT_CALLS))
    return StreamWaits(
        row=np.concatenate((row[pairs[:, 0]], held_up)),
        source=np.concatenate((pairs[:, 1], copy)),
        inferred=np.concatenate((pairs[:, 2] > 0, np.ones(len(copy), dtype=np.bool_))),
        unknown=unknown,
        named=len(waits) - unnamed,
        told_by_time=told_by_time,
        unresolved=unresolved,
    )


def _pairs(timeline: Timeline, before: Mapping[int, _Behind]) -> NDArray[np.intp]:
    """What stands behind waits on other streams: intp[p, 3].

    The columns are the place of what waited in the mapping, the row that it waited for, and 1 where
    only the times tell so.
    """
    lane, found = timeline.stream_index, []
    own = lane[np.fromiter(before, dtype=np.intp, count=len(before))].tolist()
    for place, behind in enumerate(before.values()):
        sources = {x for number, x in behind.rows.items() if number != own[place]}
        found += [(place, x, x in behind.guessed) for x in sources]
    return np.array(found, dtype=np.intp).reshape(-1, 3)


class _Records:
    """The waits of streams, in the order in which the host asked for them, and their records.

    Attributes:
        wait: intp[w], event ids of the waits' rows.
        awaited: int64[w], correlation of the record that each waited for, else ABSENT.
        reached: int64[w], event id of the row that tells when the GPU reached that record, else
            ABSENT.
        call: int64[w], event id of the host's call that made that record, else ABSENT.
        device, stream: int64[w], where that record was made, as far as the file says.
    """

    def __init__(self, trace: Trace, waits: NDArray[np.intp]) -> None:
        reached = ByCorrelation(trace, Category.CUDA_EVENT)
        self.wait = waits
        self.awaited = _awaited_records(trace, waits, reached.event_id)
        self.reached = reached.find(self.awaited)
        self.call = ByCorrelation(trace, *HOST_CALLS).find(self.awaited)
        known = self.reached != ABSENT
        self.device = np.where(known, trace.device_number[self.reached], trace.device_number[waits])
        self.stream = np.where(
            known, trace.stream_number[self.reached], trace.wait_stream_number[waits]
        )


def _awaited_records(
    trace: Trace, waits: NDArray[np.intp], reached: NDArray[np.intp]
) -> Int64Array:
    """The correlation of the record that each wait's row names: int64[w], else ABSENT.

    Kineto names no record of another device. There, what the row does name, the event, has
    been recorded last before the wait; events are used again and again.
    """
    awaited: Int64Array = trace.wait_correlation[waits].copy()
    records = reached[trace.cuda_event_number[reached] != ABSENT]
    records = records[np.lexsort((trace.correlation[records], trace.cuda_event_number[records]))]
    asked = np.flatnonzero(awaited == ABSENT)
    last = last_in_group(
        trace.cuda_event_number[records],
        trace.correlation[records],
        trace.cuda_event_number[waits[asked]],
        trace.correlation[waits[asked]],
    )
    found = last != ABSENT
    awaited[asked[found]] = trace.correlation[records[last[found]]]
    return awaited


def _found_behind(
    trace: Trace, lanes: StreamQueues, records: _Records, delays: _Delays
) -> list[_Behind]:
    """What the record of each wait stands for by itself, without the waits before it."""
    lane = lanes.find(records.device, records.stream)
    known, called = records.reached != ABSENT, records.call != ABSENT
    row = np.where(called, lanes.last_before(lane, trace.start_ns[records.call]), ABSENT)
    # Recorded before the file began, and maybe reached inside it.
    old = np.flatnonzero(~called & known & (lane != ABSENT))
    row[old] = delays.last_ended(lane[old], trace.start_ns[records.reached[old]])
    idle = np.flatnonzero(called & known & (lane == ABSENT))
    row[idle] = _behind_idle_streams(trace, delays, records.call[idle], records.reached[idle])
    guessed = np.zeros(len(row), dtype=np.bool_)
    guessed[idle] = True
    lane = np.where(row == ABSENT, ABSENT, delays.timeline.stream_index[row])
    columns = (records.awaited, lane, row, guessed)
    found = []
    for place, (record, number, last, guess) in enumerate(
        zip(*(x.tolist() for x in columns), strict=True)
    ):
        if record == ABSENT:
            found.append(_Behind(unnamed=place))
        elif last == ABSENT:
            found.append(_NOTHING)
        else:
            found.append(_Behind({number: last}, frozenset([last] if guess else ())))
    return found


def _behind_idle_streams(
    trace: Trace, delays: _Delays, call: Int64Array, reached: Int64Array
) -> NDArray[np.intp]:
    """The rows that records on streams without any activity stand for: intp[k], else ABSENT.

    Kineto leaves out the rows of such a stream's waits, so the file only tells that some stream
    waited, and when the record was reached: late, if it waited for something.
    """
    waited = _calls(trace, _STREAM_WAIT_CALLS)
    rows = trace.of_category(Category.SYNC)
    waited = waited[~np.isin(trace.correlation[waited], trace.correlation[rows])]
    before = np.searchsorted(trace.start_ns[waited], trace.start_ns[call])
    reached_ns, ready_ns = trace.start_ns[reached], trace.end_ns[call]
    late = np.flatnonzero((before > 0) & (reached_ns - ready_ns > _SHORTEST_DELAY_NS))
    found = np.full(len(call), ABSENT, dtype=np.intp)
    found[late] = delays.ended_between(
        ready_ns[late],
        reached_ns[late],
        trace.start_ns[waited[before[late] - 1]],
        without=np.full(len(late), ABSENT),
    )
    return found


def _follow(
    trace: Trace, lanes: StreamQueues, records: _Records, found: Sequence[_Behind]
) -> dict[int, _Behind]:
    """What stands behind all waits of each row that comes first after one, by row.

    A record stands for what its stream had been given by then: the last activity (`found`), and
    the waits after it. So a wait reaches through streams that did nothing but wait themselves.
    """
    waits, calls = records.wait, records.call
    wait_ns, called_ns = trace.start_ns[waits], trace.start_ns[calls]
    lane = lanes.find(trace.device_number[waits], trace.stream_number[waits])
    columns = (
        wait_ns,
        _launched_ns(lanes, lane, wait_ns),
        lanes.first_from(lane, wait_ns),
        calls,
        called_ns,
        _launched_ns(lanes, lanes.find(records.device, records.stream), called_ns),
    )
    streams = zip(
        trace.device_number[waits].tolist(), trace.stream_number[waits].tolist(), strict=True
    )
    recorded = zip(records.device.tolist(), records.stream.tolist(), strict=True)
    # Per stream the times of its waits, ascending, and what stands behind each of them and
    # those before it since the stream's last activity.
    standing: dict[tuple[int, int], tuple[list[int], list[_Behind]]] = defaultdict(lambda: ([], []))
    before: dict[int, _Behind] = {}
    for own, stream, record, time, given, row, call, record_time, record_given in zip(
        found, streams, recorded, *(x.tolist() for x in columns), strict=True
    ):
        behind = own
        times, behinds = standing[stream]
        if call != ABSENT:
            others, stands = standing[record]
            last = bisect_left(others, record_time) - 1
            if last >= 0 and others[last] > record_given:
                behind = behind.and_also(stands[last])
        if times and times[-1] > given:
            behind = behinds[-1].and_also(behind)
        times.append(time)
        behinds.append(behind)
        if row != ABSENT:
            before[row] = behind
    return before


def _launched_ns(lanes: StreamQueues, lane: NDArray[np.intp], time_ns: Int64Array) -> Int64Array:
    """When each lane had last been given anything before each moment: int64[k], ns."""
    row = lanes.last_before(lane, time_ns)
    return np.where(row == ABSENT, LONG_AGO, lanes.launch_ns[row])


class _Delays:
    """Which activities started late, and what had ended just before.

    An activity that could have started earlier (its launch call was over, its stream was free) was
    waiting for something; what it waited for had just ended when it started.

    Attributes:
        timeline: whose activities they are.
        ready_ns: int64[m], ns, when each row's launch call and the row before it on its stream were
            over, so that it could have started; its own start where that explains it or the file
            shows no launch.
    """

    def __init__(self, timeline: Timeline, lanes: StreamQueues) -> None:
        self.timeline = timeline
        self._ended = timeline.end_ns.copy()
        for lane in timeline.streams:
            ends = self._ended[lane.first_row : lane.end_row]
            np.maximum.accumulate(ends, out=ends)
        trace = timeline.trace
        launched = timeline.launch_id != ABSENT
        free = np.where(launched, trace.end_ns[timeline.launch_id], timeline.start_ns)
        same = np.flatnonzero(timeline.stream_index[1:] == timeline.stream_index[:-1]) + 1
        free[same] = np.maximum(free[same], self._ended[same - 1])
        self.ready_ns: Int64Array = free
        self._record_ns, self._recorded = self._records_after(lanes, same)

    def _records_after(
        self, lanes: StreamQueues, same: NDArray[np.intp]
    ) -> tuple[Int64Array, NDArray[np.intp]]:
        """When an event was first recorded after each row's launch: int64[m], ns.

        And the rows, by end, after which one was before the next row of their lane was launched.
        """
        trace = self.timeline.trace
        record_ns = np.append(np.sort(trace.start_ns[_calls(trace, _RECORD_CALLS)]), _END_OF_TIME)
        after_ns = record_ns[np.searchsorted(record_ns, lanes.launch_ns)]
        until_ns = np.full(len(after_ns), _END_OF_TIME)
        until_ns[same - 1] = lanes.launch_ns[same]
        rows = np.flatnonzero(after_ns < until_ns)
        return after_ns, rows[np.argsort(self._ended[rows], kind="stable")]

    def now_known(self, row: NDArray[np.intp], ended_ns: Int64Array) -> None:
        """What rows waited for is known, and when that ended: is there a delay beyond it?"""
        start, ready = self.timeline.start_ns[row], self.ready_ns[row]
        explains = (ready <= ended_ns) & (ended_ns <= start)
        explains &= start <= ended_ns + _LONGEST_HANDOVER_NS
        self.ready_ns[row] = np.where(explains, start, np.maximum(ready, ended_ns))

    def of(self, row: NDArray[np.intp]) -> Int64Array:
        """How much later than they could have rows started: int64[k], ns."""
        return self.timeline.start_ns[row] - self.ready_ns[row]

    def last_ended(self, lane: NDArray[np.intp], time_ns: Int64Array) -> NDArray[np.intp]:
        """intp[k], the last row of each lane that had ended at each moment, else ABSENT."""
        return last_in_group(self.timeline.stream_index, self._ended, lane, time_ns, "right")

    def ended_between(
        self,
        ready_ns: Int64Array,
        time_ns: Int64Array,
        wait_ns: Int64Array,
        *,
        without: NDArray[np.intp],
    ) -> NDArray[np.intp]:
        """What each wait can have waited for and ended last, in another lane: intp[k], else ABSENT.

        It ended just before `time_ns`, when something started, and after that could have started:
        otherwise it held nothing up. An event was recorded after its launch, before the next one
        and the wait.
        """
        since = np.maximum(ready_ns, time_ns - _LONGEST_HANDOVER_NS)
        ends = self._ended[self._recorded]
        place = np.searchsorted(ends, time_ns, side="right") - 1
        found = np.full(len(place), ABSENT, dtype=np.intp)
        open_ = np.arange(len(place))
        while len(open_):  # all that have found nothing yet step back at once
            open_ = open_[place[open_] >= 0]
            open_ = open_[ends[place[open_]] >= since[open_]]
            row = self._recorded[place[open_]]
            fits = self._record_ns[row] < wait_ns[open_]
            fits &= self.timeline.stream_index[row] != without[open_]
            found[open_[fits]] = row[fits]
            open_ = open_[~fits]
            place[open_] -= 1
        return found


def _held_up_by_peer_copies(
    timeline: Timeline, lanes: StreamQueues, ready_ns: Int64Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that waited without any wait, and the copies between devices that they waited for.

    A copy in a device's default stream holds up what is launched after it in the other device's
    default stream: CUDA does that by itself. The file does not tell which streams those are, so
    only an activity counts that nothing else explains: the first of its stream to be launched after
    the copy, far later than it could have started (`ready_ns`, int64[m]) and just after the copy.
    """
    trace = timeline.trace
    copies = np.flatnonzero(
        match_names(trace, timeline.event_id, lambda text: text.startswith(_PEER_COPY))
    )
    copies = copies[lanes.launch_ns[copies] != LONG_AGO]
    copies = copies[np.argsort(timeline.end_ns[copies], kind="stable")]
    found: dict[int, int] = {}
    for lane in timeline.streams if len(copies) else ():
        queue = lanes.launch_ns[lane.first_row : lane.end_row]
        place = lane.first_row + np.searchsorted(queue, lanes.launch_ns[copies], side="right")
        follows = (place < lane.end_row) & (timeline.device_number[copies] != lane.device_number)
        copied, row = copies[follows], place[follows]
        ended, start = timeline.end_ns[copied], timeline.start_ns[row]
        held_up = (ended >= ready_ns[row]) & (start - ready_ns[row] > _LONGEST_LATENCY_NS)
        held_up &= (start >= ended) & (start - ended <= _LONGEST_HANDOVER_NS)
        found |= dict(zip(row[held_up].tolist(), copied[held_up].tolist(), strict=True))
    held_up_rows = np.fromiter(found, dtype=np.intp, count=len(found))
    return held_up_rows, np.fromiter(found.values(), dtype=np.intp, count=len(found))


def _wait_rows(trace: Trace) -> NDArray[np.intp]:
    """The rows of waits of streams, in the order in which the host asked for them."""
    rows = trace.of_category(Category.SYNC)
    rows = rows[match_names(trace, rows, _STREAM_WAIT_ROW.__eq__)]
    return rows[np.argsort(trace.start_ns[rows], kind="stable")]


def _calls(trace: Trace, prefixes: tuple[str, ...]) -> NDArray[np.intp]:
    """The host's calls with names that begin so, by start."""
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[match_names(trace, calls, lambda x: x.startswith(prefixes))]
    return calls[np.argsort(trace.start_ns[calls], kind="stable")]
