"""The waits of streams for events, the records of those events, and the streams of the records.

Where a wait names the host's call that recorded and not the stream, as PyTorch's own CUPTI
collector does, the order of the host's calls tells it in most cases
(`tests/benchmarks/inferred_waits.py`):

1. A thread records on the stream that it gave work last. A wait right after its record, of the same
thread (``a.wait_stream(b)``), counts if the two streams differ, right after a copy between devices;
else only if they are of one device, and if since that work the thread has neither waited for the
GPU nor made the stream of that work wait.
2. The stream that the same event was recorded on, by 1, and no other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int32Array, Int64Array
from tracelab.model.kernel_kinds import (
    is_device_sync,
    is_event_record,
    is_event_sync,
    is_peer_copy,
    is_stream_sync,
    is_stream_wait,
)
from tracelab.model.lookup import ByCorrelation, calls_of_name, last_in_group, match_names
from tracelab.model.stream_progress import StreamQueues
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace

_STREAM_WAIT_ROW = "Stream Wait Event"  # CUPTI's


class WaitRecords(Arrays):
    """The waits of streams, in the order in which the host made them, and their records.

    Attributes:
        wait_id: [w], CUPTI's rows of the waits.
        correlation: of the record that each waited for, else ABSENT.
        reached_id: the row that tells when the GPU reached it, else ABSENT.
        call_id: the host's call that made that record, else ABSENT.
        device_number, stream_number: where that record was made, ABSENT if not known.
        is_inferred: whether only the order of the host's calls tells where.
    """

    wait_id: IndexArray
    correlation: Int64Array
    reached_id: IndexArray
    call_id: IndexArray
    device_number: Int32Array
    stream_number: Int64Array
    is_inferred: BoolArray
    is_unresolved: BoolArray

    def recorded_before_ns(self, trace: Trace) -> Int64Array:
        """[w], by when what each wait waited for had been recorded on the host."""
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


def _stream_waits(trace: Trace) -> IndexArray:
    sync_rows = trace.of_category(Category.SYNC)
    waits = sync_rows[match_names(trace, sync_rows, _STREAM_WAIT_ROW.__eq__)]
    return waits[np.argsort(trace.start_ns[waits], kind="stable")]


def _record_correlation(trace: Trace, wait_id: IndexArray, reached_id: IndexArray) -> Int64Array:
    # Kineto names no record of another device: there it is the event's last one before the wait.
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


class StreamCalls(Arrays):
    """The host's launches, records, stream waits and synchronizes, thread by thread in order.

    `stream_index` is into `Timeline.streams`, of a launch of one stream, `previous_launch` the
    thread's last, `position_of` ([n + 1]) where an event stands in these columns; else ABSENT.
    """

    event_id: IndexArray
    is_sync: BoolArray
    stream_index: IndexArray
    previous_launch: IndexArray
    position_of: IndexArray

    def launch_before(self, call_id: IndexArray) -> IndexArray:
        """The position of the last launch of each call's thread before it, else ABSENT."""
        position = self.position_of[call_id]
        return np.where(position == ABSENT, ABSENT, self.previous_launch[position])

    def stream_before(self, call_id: IndexArray) -> IndexArray:
        """The stream that each call's thread gave work to last before it, else ABSENT."""
        launch = self.launch_before(call_id)
        return np.where(launch == ABSENT, ABSENT, self.stream_index[launch])


def order_stream_calls(timeline: Timeline) -> StreamCalls:
    """Put the launches, records, waits and synchronizes of a file into their threads' order."""
    trace = timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    launch_id, launch_index = np.unique(timeline.launch_id[launched], return_inverse=True)
    calls = [calls_of_name(trace, test) for test in (is_event_record, is_stream_wait, _is_sync)]
    event_id = np.concatenate((launch_id, *calls)).astype(np.intp)
    stream_index = np.full(len(event_id), ABSENT, dtype=np.intp)
    stream_index[launch_index] = timeline.stream_index[launched]
    is_other = stream_index[launch_index] != timeline.stream_index[launched]
    stream_index[launch_index[is_other]] = ABSENT  # of any row, for a graph has many

    order = np.lexsort((trace.start_ns[event_id], trace.thread_index[event_id]))
    event_id = event_id[order]
    sort = np.repeat(range(4), (len(launch_id), *map(len, calls)))[order]
    is_launch, thread_index = sort == 0, trace.thread_index[event_id]
    position_of = np.full(len(trace) + 1, ABSENT, dtype=np.intp)
    position_of[event_id] = np.arange(len(event_id))
    # All calls of a thread between two launches have the same number of launches before them.
    launches_before = np.cumsum(is_launch) - is_launch
    previous = np.append(np.flatnonzero(is_launch), ABSENT)[launches_before - 1]
    is_same_thread = (previous != ABSENT) & (thread_index[previous] == thread_index)
    return StreamCalls(
        event_id=event_id,
        is_sync=sort == 3,
        stream_index=stream_index[order],
        previous_launch=np.where(is_same_thread, previous, ABSENT),
        position_of=position_of,
    )


def _is_sync(name: str) -> bool:
    return is_device_sync(name) or is_stream_sync(name) or is_event_sync(name)


def infer_recording_streams(
    timeline: Timeline, queues: StreamQueues, records: WaitRecords
) -> WaitRecords:
    """The same waits, and on which streams their records were made as far as the host tells."""
    is_open = (records.call_id != ABSENT) & (records.stream_number == ABSENT)
    if not is_open.any():
        return records
    waiting_index = queues.find(
        timeline.trace.device_number[records.wait_id], timeline.trace.stream_number[records.wait_id]
    )
    guess = _given_work_before(timeline, records, waiting_index)
    stream_index = np.where(is_open, guess, ABSENT)
    guess = _find_by_event(timeline.trace.cuda_event_number[records.wait_id], stream_index)
    stream_index = np.where(is_open & (stream_index == ABSENT), guess, stream_index)
    is_inferred = stream_index != ABSENT
    known = np.flatnonzero(is_inferred)
    streams = [timeline.streams[index] for index in stream_index[known].tolist()]
    device_number, stream_number = records.device_number.copy(), records.stream_number.copy()
    device_number[known] = [stream.device_number for stream in streams]
    stream_number[known] = [stream.stream_number for stream in streams]
    return replace(
        records,
        device_number=device_number,
        stream_number=stream_number,
        is_inferred=is_inferred,
        is_unresolved=records.is_unresolved & ~is_inferred,
    )


def _given_work_before(
    timeline: Timeline, records: WaitRecords, waiting_index: IndexArray
) -> IndexArray:
    """The stream to which the recording thread gave work last, else ABSENT."""
    trace, calls = timeline.trace, order_stream_calls(timeline)
    previous, launch = calls.stream_before(records.call_id), calls.launch_before(records.call_id)
    wait_call_id = ByCorrelation(trace, *HOST_CALLS).find(trace.correlation[records.wait_id])
    record, wait = calls.position_of[records.call_id], calls.position_of[wait_call_id]
    is_adjacent = (record != ABSENT) & (wait == record + 1)
    is_adjacent &= trace.thread_index[records.call_id] == trace.thread_index[wait_call_id]
    is_own = is_adjacent & (previous == waiting_index)
    # A thread that has waited for the GPU since need not make a stream wait for its own work.
    synced = calls.previous_launch[calls.is_sync]
    is_doubtful = np.isin(launch, np.concatenate((launch[is_own], synced)))
    device_number = np.array([stream.device_number for stream in timeline.streams])
    is_of_device = device_number[previous] == trace.device_number[records.wait_id]
    copies = match_names(trace, timeline.event_id, is_peer_copy) & (timeline.launch_id != ABSENT)
    after_copy = np.isin(calls.event_id[launch], timeline.launch_id[copies]) & (launch != ABSENT)
    after_copy &= launch + 1 == record
    is_other = after_copy | (is_of_device & ~is_doubtful)
    counts = ~is_adjacent | (is_other & (previous != waiting_index))
    return np.where(counts, previous, ABSENT)


def _find_by_event(event_number: Int64Array, stream_index: IndexArray) -> IndexArray:
    """The only stream on which each event was recorded by what is known, else ABSENT."""
    streams_of: dict[int, set[int]] = defaultdict(set)
    for event, stream in zip(event_number.tolist(), stream_index.tolist(), strict=True):
        if stream != ABSENT and event != ABSENT:
            streams_of[event].add(stream)
    only = {event: min(streams) for event, streams in streams_of.items() if len(streams) == 1}
    return np.array([only.get(event, ABSENT) for event in event_number.tolist()], dtype=np.intp)
