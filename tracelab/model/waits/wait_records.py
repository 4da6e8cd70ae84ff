"""The waits of streams for events, the records of those events, and the streams of the records.

Where a wait names the host's call that recorded and not the stream, as PyTorch's own CUPTI
collector does, the order of the host's calls tells in most cases on which stream that was. In this
order:

1. PyTorch's copies between devices make both streams wait for each other, before and after the copy
   (`at::native`, Copy.cu): what was recorded before the copy is of the stream that waits after it.
2. A thread records on the stream that it gave work last. A wait right after its record, of the same
   thread, may also be for a stream that the thread had nothing to do with: ``a.wait_stream(b)``. It
   counts if the two streams differ and are of one device, and if since that work the thread has
   neither waited for the GPU nor made the stream of that work wait.
3. A stream that the same event was recorded on, by 1 and 2, and no other.
4. ``main.wait_stream(side)`` in a loop that goes on with work for ``side``: the thread had given
   work to the stream that waits, and gives work to the other one next.

What had not ended when the waiting stream went on was not waited for, whatever the calls say. Where
no stream is left that had been given work by then, the record certainly stands for nothing. All
else is unresolved. `tests/benchmarks/inferred_waits.py` measures how often it is right.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import Int64Array
from tracelab.model.driver_api import (
    is_device_sync,
    is_event_record,
    is_event_sync,
    is_stream_sync,
    is_stream_wait,
)
from tracelab.model.kernel_kinds import is_peer_copy
from tracelab.model.lookup import (
    ByCorrelation,
    calls_of_name,
    groups_of,
    last_in_group,
    match_names,
)
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.model.waits.stream_progress import StreamProgress, StreamQueues

_STREAM_WAIT_ROW = "Stream Wait Event"  # CUPTI's


class WaitRecords(Arrays):
    """The waits of streams, in the order in which the host made them, and their records.

    Attributes:
        wait_id: intp[w], event ids of CUPTI's rows of the waits.
        correlation: int64[w], of the record that each waited for, else ABSENT.
        reached_id: intp[w], event id of the row that tells when the GPU reached that record, else
            ABSENT.
        call_id: intp[w], event id of the host's call that made that record, else ABSENT.
        device_number, stream_number: int64[w], where that record was made, as far as it is known.
        is_inferred: bool[w], whether only the order of the host's calls tells where.
        is_unresolved: bool[w], whether it is not known what that record stands for.
    """

    wait_id: NDArray[np.intp]
    correlation: Int64Array
    reached_id: NDArray[np.intp]
    call_id: NDArray[np.intp]
    device_number: NDArray[np.int32]
    stream_number: Int64Array
    is_inferred: NDArray[np.bool_]
    is_unresolved: NDArray[np.bool_]

    def recorded_before_ns(self, trace: Trace) -> Int64Array:
        """int64[w], ns, by when what each wait waited for had been recorded on the host."""
        is_called = self.call_id != ABSENT
        return np.where(is_called, trace.start_ns[self.call_id] + 1, trace.start_ns[self.wait_id])


def find_wait_records(trace: Trace) -> WaitRecords:
    """Find the waits of streams, and the record that each one waited for."""
    wait_id = _stream_waits(trace)
    by_correlation = ByCorrelation(trace, Category.CUDA_EVENT)
    correlation = _record_correlation(trace, wait_id, by_correlation.event_id)
    reached_id = by_correlation.find(correlation)
    is_reached = reached_id != ABSENT
    stream_number = np.where(
        is_reached, trace.stream_number[reached_id], trace.wait_stream_number[wait_id]
    )
    return WaitRecords(
        wait_id=wait_id,
        correlation=correlation,
        reached_id=reached_id,
        call_id=ByCorrelation(trace, *HOST_CALLS).find(correlation),
        device_number=np.where(
            is_reached, trace.device_number[reached_id], trace.device_number[wait_id]
        ),
        stream_number=stream_number,
        is_inferred=np.zeros(len(wait_id), dtype=np.bool_),
        is_unresolved=(correlation == ABSENT) | (stream_number == ABSENT),
    )


def follows_wait_call(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], before which rows' launch the thread made a stream wait and launched nothing since.

    Where the file does not say which stream a call made wait, it is most likely theirs.
    """
    trace, launch_id = timeline.trace, timeline.launch_id
    call_id = np.unique(launch_id[launch_id != ABSENT])
    wait_id = calls_of_name(trace, is_stream_wait)
    follows = np.zeros(len(launch_id), dtype=np.bool_)
    for thread, indices in groups_of(trace.thread_index[wait_id]):
        rows = np.flatnonzero((launch_id != ABSENT) & (trace.thread_index[launch_id] == thread))
        launch_ns = trace.start_ns[launch_id[rows]]
        of_thread = call_id[trace.thread_index[call_id] == thread]
        follows[rows] = _last_before(trace.start_ns[wait_id[indices]], launch_ns) > _last_before(
            np.sort(trace.start_ns[of_thread]), launch_ns
        )
    return follows


def _last_before(times_ns: Int64Array, moments_ns: Int64Array) -> Int64Array:
    """int64[k], the last of some times (ascending) before each moment, ABSENT without any."""
    return np.append(times_ns, ABSENT)[np.searchsorted(times_ns, moments_ns) - 1]


def _stream_waits(trace: Trace) -> NDArray[np.intp]:
    """Event ids of CUPTI's rows of stream waits, by start."""
    sync_rows = trace.of_category(Category.SYNC)
    waits = sync_rows[match_names(trace, sync_rows, _STREAM_WAIT_ROW.__eq__)]
    return waits[np.argsort(trace.start_ns[waits], kind="stable")]


def _record_correlation(
    trace: Trace, wait_id: NDArray[np.intp], reached_id: NDArray[np.intp]
) -> Int64Array:
    """The correlation of the record that each wait's row names: int64[w], else ABSENT."""
    # Kineto names no record of another device. There, what the row does name, the event, has been
    # recorded last before the wait; events are used again and again.
    correlation: Int64Array = trace.wait_correlation[wait_id].copy()
    records = reached_id[trace.cuda_event_number[reached_id] != ABSENT]
    records = records[np.lexsort((trace.correlation[records], trace.cuda_event_number[records]))]
    without_record = np.flatnonzero(correlation == ABSENT)
    last = last_in_group(
        trace.cuda_event_number[records],
        trace.correlation[records],
        trace.cuda_event_number[wait_id[without_record]],
        trace.correlation[wait_id[without_record]],
    )
    is_recorded = last != ABSENT
    correlation[without_record[is_recorded]] = trace.correlation[records[last[is_recorded]]]
    return correlation


_NEVER = np.iinfo(np.int64).max


class StreamCalls(Arrays):
    """The host's launches, records, stream waits and synchronizes, thread by thread in order.

    Attributes:
        event_id: intp[c], event ids of the calls.
        thread_index: int32[c], index into `Trace.threads`.
        is_launch, is_wait, is_sync: bool[c]; all others are records.
        stream_index: intp[c], of a launch the index into `Timeline.streams`; ABSENT for all else,
            and for a launch of several streams.
        is_peer_copy: bool[c], which launches copy between devices.
        previous_launch, next_launch: intp[c], the last launch of the thread before each call and
            the first one after it, ABSENT for none.
        position_of: intp[n + 1], where in these columns an event stands, by event id; ABSENT for
            all others, and for ABSENT.
    """

    event_id: NDArray[np.intp]
    thread_index: NDArray[np.int32]
    is_launch: NDArray[np.bool_]
    is_wait: NDArray[np.bool_]
    is_sync: NDArray[np.bool_]
    stream_index: NDArray[np.intp]
    is_peer_copy: NDArray[np.bool_]
    previous_launch: NDArray[np.intp]
    next_launch: NDArray[np.intp]
    position_of: NDArray[np.intp]

    def stream_before(self, call_id: NDArray[np.intp]) -> NDArray[np.intp]:
        """intp[k], the stream that each call's thread gave work to last before it, else ABSENT."""
        position = self.position_of[call_id]
        launch = np.where(position == ABSENT, ABSENT, self.previous_launch[position])
        return np.where(launch == ABSENT, ABSENT, self.stream_index[launch])

    def follows(self, position: NDArray[np.intp], by: int) -> NDArray[np.intp]:
        """intp[k], the call of the same thread that many calls after each, ABSENT for none."""
        later = np.minimum(position + by, len(self.event_id) - 1)
        exists = (position != ABSENT) & (later == position + by)
        exists &= self.thread_index[later] == self.thread_index[position]
        return np.where(exists, later, ABSENT)


def order_stream_calls(timeline: Timeline) -> StreamCalls:
    """Put the launches, records, waits and synchronizes of a file into their threads' order."""
    trace = timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    launch_id, launch_index = np.unique(timeline.launch_id[launched], return_inverse=True)
    records, waits = calls_of_name(trace, is_event_record), calls_of_name(trace, is_stream_wait)
    syncs = calls_of_name(trace, _is_sync)
    event_id = np.concatenate((launch_id, records, waits, syncs)).astype(np.intp)
    stream_index = np.full(len(event_id), ABSENT, dtype=np.intp)
    stream_index[launch_index] = timeline.stream_index[launched]
    is_other = stream_index[launch_index] != timeline.stream_index[launched]
    stream_index[launch_index[is_other]] = ABSENT  # of any row, for a graph has many
    is_peer = np.zeros(len(event_id), dtype=np.bool_)
    is_peer[launch_index] = match_names(trace, timeline.event_id[launched], is_peer_copy)

    order = np.lexsort((trace.start_ns[event_id], trace.thread_index[event_id]))
    event_id = event_id[order]
    sort = np.repeat(range(4), (len(launch_id), len(records), len(waits), len(syncs)))[order]
    is_launch = sort == 0
    thread_index = trace.thread_index[event_id]
    position_of = np.full(len(trace) + 1, ABSENT, dtype=np.intp)
    position_of[event_id] = np.arange(len(event_id))
    # All calls of a thread between two launches have the same number of launches before them.
    launch = np.append(np.flatnonzero(is_launch), ABSENT)
    launches_before = np.cumsum(is_launch) - is_launch
    previous, following = launch[launches_before - 1], launch[launches_before + is_launch]
    return StreamCalls(
        event_id=event_id,
        thread_index=thread_index,
        is_launch=is_launch,
        is_wait=sort == 2,
        is_sync=sort == 3,
        stream_index=stream_index[order],
        is_peer_copy=is_peer[order],
        previous_launch=_keep_same_thread(thread_index, previous),
        next_launch=_keep_same_thread(thread_index, following),
        position_of=position_of,
    )


def _is_sync(name: str) -> bool:
    return is_device_sync(name) or is_stream_sync(name) or is_event_sync(name)


def _keep_same_thread(
    thread_index: NDArray[np.int32], position: NDArray[np.intp]
) -> NDArray[np.intp]:
    """intp[c], the positions that are of the same thread as the call they are for, else ABSENT."""
    is_same = (position != ABSENT) & (thread_index[position] == thread_index)
    return np.where(is_same, position, ABSENT)


def infer_recording_streams(
    timeline: Timeline, queues: StreamQueues, progress: StreamProgress, records: WaitRecords
) -> WaitRecords:
    """The same waits, and on which streams their records were made as far as the host tells.

    `tests.reference.recording_streams` defines it, slowly.
    """
    is_open = (records.call_id != ABSENT) & (records.stream_number == ABSENT)
    if not is_open.any():
        return records
    stream_index = np.full(len(is_open), ABSENT, dtype=np.intp)
    waits = _order_waits(timeline, queues, records)
    possible = _Possible(timeline, queues, progress, records, waits.waiting_index)
    for rule in (
        _around_peer_copies,
        _given_work_before,
        _find_by_event,
        _given_work_next,
    ):
        guess = np.where(is_open, rule(waits, stream_index), ABSENT)
        unknown = (stream_index == ABSENT) & possible(guess)
        stream_index[unknown] = guess[unknown]
    known = np.flatnonzero(stream_index != ABSENT)
    streams = [timeline.streams[index] for index in stream_index[known].tolist()]
    device_number, stream_number = records.device_number.copy(), records.stream_number.copy()
    device_number[known] = [stream.device_number for stream in streams]
    stream_number[known] = [stream.stream_number for stream in streams]
    is_inferred = stream_index != ABSENT
    return replace(
        records,
        device_number=device_number,
        stream_number=stream_number,
        is_inferred=is_inferred,
        is_unresolved=records.is_unresolved & ~is_inferred & possible.any_work(),
    )


class _Waits(Arrays):
    """The waits among the calls of their threads.

    Attributes:
        calls: the calls.
        record, wait: intp[w], which of them made each wait's record, and which made the wait.
        is_adjacent: bool[w], whether the wait is the next call of the thread after its record.
        waiting_index: intp[w], index into `Timeline.streams` of the stream that waits, ABSENT for
            one that never works.
        waiting_device: int32[w], the device of the stream that waits.
        device_number: int32[s], of each stream.
        previous_index: intp[w], the stream to which the recording thread gave work last, else
            ABSENT.
        event_number: int64[w], the event, else ABSENT.
    """

    calls: StreamCalls
    record: NDArray[np.intp]
    wait: NDArray[np.intp]
    is_adjacent: NDArray[np.bool_]
    waiting_index: NDArray[np.intp]
    waiting_device: NDArray[np.int32]
    device_number: NDArray[np.int32]
    previous_index: NDArray[np.intp]
    event_number: Int64Array

    def is_of_device(self, stream_index: NDArray[np.intp]) -> NDArray[np.bool_]:
        """bool[w], whether a stream is of the same device as the one that waits."""
        same: NDArray[np.bool_] = self.device_number[stream_index] == self.waiting_device
        same &= stream_index != ABSENT
        return same


def _order_waits(timeline: Timeline, queues: StreamQueues, records: WaitRecords) -> _Waits:
    trace, calls = timeline.trace, order_stream_calls(timeline)
    wait_call_id = ByCorrelation(trace, *HOST_CALLS).find(trace.correlation[records.wait_id])
    record, wait = calls.position_of[records.call_id], calls.position_of[wait_call_id]
    device_number = trace.device_number[records.wait_id]
    stream_number = trace.stream_number[records.wait_id]
    return _Waits(
        calls=calls,
        record=record,
        wait=wait,
        is_adjacent=calls.is_wait[wait] & (wait != ABSENT) & (calls.follows(record, 1) == wait),
        waiting_index=queues.find(device_number, stream_number),
        waiting_device=device_number,
        device_number=np.array([stream.device_number for stream in timeline.streams]),
        previous_index=calls.stream_before(records.call_id),
        event_number=trace.cuda_event_number[records.wait_id],
    )


class _Possible:
    """True if waits can have waited for streams: nothing in the file ran against that."""

    def __init__(
        self,
        timeline: Timeline,
        queues: StreamQueues,
        progress: StreamProgress,
        records: WaitRecords,
        waiting_index: NDArray[np.intp],
    ) -> None:
        start_ns = timeline.trace.start_ns
        next_row = queues.first_from(waiting_index, start_ns[records.wait_id])
        self._queues, self._ended_ns, self._waiting_index = queues, progress.ended_ns, waiting_index
        self._start_ns = np.where(next_row == ABSENT, _NEVER, timeline.start_ns[next_row])
        self._record_ns = start_ns[records.call_id]
        self._is_called = records.call_id != ABSENT
        self._stream_count = len(timeline.streams)

    def __call__(self, stream_index: NDArray[np.intp]) -> NDArray[np.bool_]:
        """bool[w], for a stream for each wait; ABSENT is not possible."""
        is_possible: NDArray[np.bool_] = stream_index == self._waiting_index
        is_possible |= self._ended_before_record_ns(stream_index) <= self._start_ns
        is_possible &= stream_index != ABSENT
        return is_possible

    def any_work(self) -> NDArray[np.bool_]:
        """bool[w], whether the record may stand for work of any stream but the one that waits."""
        is_any: NDArray[np.bool_] = ~self._is_called
        for index in range(self._stream_count):
            stream_index = np.full(len(is_any), index)
            ended_ns = self._ended_before_record_ns(stream_index)
            is_any |= (ended_ns != ABSENT) & self(stream_index) & (index != self._waiting_index)
        return is_any

    def _ended_before_record_ns(self, stream_index: NDArray[np.intp]) -> Int64Array:
        """int64[w], ns, when what a stream had been given by the record had ended, else ABSENT."""
        row = self._queues.last_before(stream_index, self._record_ns)
        return np.where(row == ABSENT, ABSENT, self._ended_ns[row])


def _around_peer_copies(waits: _Waits, _: NDArray[np.intp]) -> NDArray[np.intp]:
    """The stream that waits after a copy between devices, for what the copy's stream waited for."""
    # The calls are a record, the wait of the copy's stream, the copy, a record, the other stream's
    # wait.
    calls = waits.calls
    wait_index_of = np.full(len(calls.event_id) + 1, ABSENT, dtype=np.intp)
    made = waits.is_adjacent
    wait_index_of[waits.wait[made]] = np.flatnonzero(made)
    copy, then = calls.follows(waits.record, 2), calls.follows(waits.record, 4)
    other = np.where(then == ABSENT, ABSENT, wait_index_of[then])
    is_around = waits.is_adjacent & (copy != ABSENT) & (other != ABSENT)
    is_around &= waits.waiting_index != ABSENT
    is_around &= calls.is_peer_copy[copy] & (calls.stream_index[copy] == waits.waiting_index)
    return np.where(is_around, waits.waiting_index[other], ABSENT)


def _given_work_before(waits: _Waits, _: NDArray[np.intp]) -> NDArray[np.intp]:
    """The stream to which the recording thread gave work last."""
    calls, previous = waits.calls, waits.previous_index
    launch = np.where(waits.record == ABSENT, ABSENT, calls.previous_launch[waits.record])
    is_own = waits.is_adjacent & (previous == waits.waiting_index)
    # A thread that has waited for the GPU since need not make a stream wait for its own work.
    synced = calls.previous_launch[calls.is_sync]
    is_doubtful = np.isin(launch, np.concatenate((launch[is_own], synced)))
    after_copy = (launch != ABSENT) & (launch + 1 == waits.record) & calls.is_peer_copy[launch]
    is_other = after_copy | (waits.is_of_device(previous) & ~is_doubtful)
    counts = ~waits.is_adjacent | (is_other & (previous != waits.waiting_index))
    return np.where(counts, previous, ABSENT)


def _find_by_event(waits: _Waits, known: NDArray[np.intp]) -> NDArray[np.intp]:
    """The only stream on which an event was recorded, by what is known so far."""
    streams_of: dict[int, set[int]] = defaultdict(set)
    for event, stream in zip(waits.event_number.tolist(), known.tolist(), strict=True):
        if stream != ABSENT and event != ABSENT:
            streams_of[event].add(stream)
    only = {event: min(streams) for event, streams in streams_of.items() if len(streams) == 1}
    stream_index = [only.get(event, ABSENT) for event in waits.event_number.tolist()]
    return np.array(stream_index, dtype=np.intp)


def _given_work_next(waits: _Waits, _: NDArray[np.intp]) -> NDArray[np.intp]:
    """The stream to which a thread goes over from the one that it makes wait, and from no other."""
    calls = waits.calls
    previous = np.where(waits.wait == ABSENT, ABSENT, calls.previous_launch[waits.wait])
    launch = np.where(waits.wait == ABSENT, ABSENT, calls.next_launch[waits.wait])
    launched = np.where(launch == ABSENT, ABSENT, calls.stream_index[launch])
    previous_of_waits = calls.previous_launch[calls.is_wait]
    is_only = np.isin(previous, _occurring_once(previous_of_waits))
    goes_over = waits.is_adjacent & is_only & (waits.previous_index == waits.waiting_index)
    goes_over &= (waits.waiting_index != ABSENT) & (launched != waits.waiting_index)
    goes_over &= waits.is_of_device(launched)
    return np.where(goes_over, launched, ABSENT)


def _occurring_once(values: NDArray[np.intp]) -> NDArray[np.intp]:
    """Select the values that occur once."""
    different, count = np.unique(values, return_counts=True)
    once: NDArray[np.intp] = different[count == 1]
    return once
