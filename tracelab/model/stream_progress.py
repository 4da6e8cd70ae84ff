"""Progress of streams: the activities that had been launched or had ended by some time."""

from __future__ import annotations

import numpy as np

from tracelab.base.arrays import IndexArray, Int32Array, Int64Array, read_only
from tracelab.model.kernel_kinds import is_event_record
from tracelab.model.latencies import MAX_WAKE_UP_NS
from tracelab.model.lookup import calls_of_name, last_in_group
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

LONG_AGO = -(2**62)  # ns, when what the file does not see launched was launched


class StreamQueues:
    """The last or first activity of a stream that was launched by some moment.

    `launch_ns` is when each row ([m]) and all before it on its stream had been launched.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.launch_ns: Int64Array = read_only(_launch_ns(timeline))
        self._stream_index = timeline.stream_index
        bounds = [(stream.first_row, stream.end_row) for stream in timeline.streams]
        self._bounds = np.array(bounds, dtype=np.intp)
        self._index_of = {
            (stream.device_number, stream.stream_number): index
            for index, stream in enumerate(timeline.streams)
        }

    def find(self, device_number: Int32Array, stream_number: Int64Array) -> IndexArray:
        """Index into `Timeline.streams` of each stream, ABSENT where it never worked."""
        streams = zip(device_number.tolist(), stream_number.tolist(), strict=True)
        return np.array([self._index_of.get(stream, ABSENT) for stream in streams], dtype=np.intp)

    def last_before(self, stream_index: IndexArray, time_ns: Int64Array) -> IndexArray:
        """The row of each stream that was launched last before each time, else ABSENT."""
        return last_in_group(self._stream_index, self.launch_ns, stream_index, time_ns)

    def first_from(self, stream_index: IndexArray, time_ns: Int64Array) -> IndexArray:
        """The row of each stream that was launched first from each time on, else ABSENT."""
        first_row, end_row = self._bounds[stream_index].T
        last_row = self.last_before(stream_index, time_ns)
        row = np.where(last_row == ABSENT, first_row, last_row + 1)
        return np.where((stream_index != ABSENT) & (row < end_row), row, ABSENT)

    def last_launch_ns(self, stream_index: IndexArray, time_ns: Int64Array) -> Int64Array:
        """Moments at which each stream was last given work before each time, else `LONG_AGO`."""
        row = self.last_before(stream_index, time_ns)
        return np.where(row == ABSENT, LONG_AGO, self.launch_ns[row])


def _launch_ns(timeline: Timeline) -> Int64Array:
    launched = timeline.launch_id != ABSENT
    # What the file does not see launched was launched before everything that it does.
    launch_ns = np.where(launched, timeline.trace.start_ns[timeline.launch_id], LONG_AGO)
    for stream in timeline.streams:
        queue = launch_ns[stream.first_row : stream.end_row]
        np.maximum.accumulate(queue, out=queue)
    return launch_ns


_END_OF_TIME = np.iinfo(np.int64).max


class StreamProgress:
    """Earliest start of each activity, and the end of all before it on its stream.

    At `ended_ns` each row and all before it on its stream had ended, at `ready_ns` its launch call
    and the row before it; that is its own start where the file shows no launch.
    """

    def __init__(self, timeline: Timeline, queues: StreamQueues) -> None:
        self.timeline = timeline
        self.ended_ns: Int64Array = read_only(_ended_ns(timeline))
        self.ready_ns: Int64Array = read_only(_ready_ns(timeline, self.ended_ns))
        self._record_ns, recorded_row = _next_records(timeline, queues)
        by_end = np.argsort(self.ended_ns[recorded_row], kind="stable")
        self._recorded_row = recorded_row[by_end]

    def last_ended(self, stream_index: IndexArray, time_ns: Int64Array) -> IndexArray:
        """The last row of each stream that had ended at each time, else ABSENT."""
        return last_in_group(
            self.timeline.stream_index, self.ended_ns, stream_index, time_ns, "right"
        )

    def ended_between(
        self, ready_ns: Int64Array, time_ns: Int64Array, wait_ns: Int64Array, *, without: IndexArray
    ) -> IndexArray:
        """The last-ended row on another stream that each wait can have waited for, else ABSENT.

        It ended after `ready_ns`, just before `time_ns`, when something started. Its event was
        recorded after its launch, before the next one and the wait (`wait_ns`). `without` is the
        stream that waits.
        """
        since_ns = np.maximum(ready_ns, time_ns - MAX_WAKE_UP_NS)
        ended_ns = self.ended_ns[self._recorded_row]
        candidate = np.searchsorted(ended_ns, time_ns, side="right") - 1
        source_row = np.full(len(candidate), ABSENT, dtype=np.intp)
        open_ = np.arange(len(candidate))
        while len(open_):  # all rows without a source yet step back together
            open_ = open_[candidate[open_] >= 0]
            open_ = open_[ended_ns[candidate[open_]] >= since_ns[open_]]
            row = self._recorded_row[candidate[open_]]
            fits = self._record_ns[row] < wait_ns[open_]
            fits &= self.timeline.stream_index[row] != without[open_]
            source_row[open_[fits]] = row[fits]
            open_ = open_[~fits]
            candidate[open_] -= 1
        return source_row


def ready_after(
    timeline: Timeline, ready_ns: Int64Array, row: IndexArray, source_end_ns: Int64Array
) -> Int64Array:
    """[m], when rows could have started, given the ends of what some of them waited for.

    A row whose start that explains could have started then.
    """
    start_ns, before_ns = timeline.start_ns[row], ready_ns[row]
    explains = (before_ns <= source_end_ns) & (source_end_ns <= start_ns)
    explains &= start_ns <= source_end_ns + MAX_WAKE_UP_NS
    after_ns = ready_ns.copy()
    after_ns[row] = np.where(explains, start_ns, np.maximum(before_ns, source_end_ns))
    return after_ns


def _ended_ns(timeline: Timeline) -> Int64Array:
    ended_ns = timeline.end_ns.copy()
    for stream in timeline.streams:
        of_stream = ended_ns[stream.first_row : stream.end_row]
        np.maximum.accumulate(of_stream, out=of_stream)
    return ended_ns


def _ready_ns(timeline: Timeline, ended_ns: Int64Array) -> Int64Array:
    launched = timeline.launch_id != ABSENT
    ready_ns = np.where(launched, timeline.trace.end_ns[timeline.launch_id], timeline.start_ns)
    follows = _follows(timeline)
    ready_ns[follows] = np.maximum(ready_ns[follows], ended_ns[follows - 1])
    return ready_ns


def _next_records(timeline: Timeline, queues: StreamQueues) -> tuple[Int64Array, IndexArray]:
    # The first event record after each row's launch; and the rows before whose successor one was.
    start_ns = timeline.trace.start_ns
    record_ns = np.sort(start_ns[calls_of_name(timeline.trace, is_event_record)])
    record_ns = np.append(record_ns, _END_OF_TIME)
    next_record_ns = record_ns[np.searchsorted(record_ns, queues.launch_ns)]
    next_launch_ns = np.full(len(next_record_ns), _END_OF_TIME)
    follows = _follows(timeline)
    next_launch_ns[follows - 1] = queues.launch_ns[follows]
    return next_record_ns, np.flatnonzero(next_record_ns < next_launch_ns)


def _follows(timeline: Timeline) -> IndexArray:
    return np.flatnonzero(timeline.stream_index[1:] == timeline.stream_index[:-1]) + 1
