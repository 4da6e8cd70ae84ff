"""The edges of the graph, kind by kind: which event could not come before which.

Every function returns two arrays of event ids, int64[e]: the sources and the targets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.host import Host
from tracelab.model.latencies import LONGEST_WAKE_UP_NS
from tracelab.model.lookup import ByCorrelation, groups_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category
from tracelab.model.waits.recording_streams import order_stream_calls
from tracelab.model.waits.stream_queues import StreamQueues

Edges = tuple[Int64Array, Int64Array]


def launch_edges(timeline: Timeline) -> Edges:
    """From each call to the activities that it put on the GPU."""
    launched = timeline.launch_id != ABSENT
    return timeline.launch_id[launched], timeline.event_id[launched]


def stream_edges(timeline: Timeline) -> Edges:
    """From each activity to the next one of its stream."""
    same = timeline.stream_index[1:] == timeline.stream_index[:-1]
    return timeline.event_id[:-1][same], timeline.event_id[1:][same]


def host_edges(host: Host) -> Edges:
    """Each call of a thread follows the one before; one that runs inside another follows that.

    What runs inside a pure wait is a part of it: the wait is over at its end, not before.
    """
    trace = host.timeline.trace
    is_wait = pure_waits(host)
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[
        np.lexsort((-trace.end_ns[calls], trace.start_ns[calls], trace.thread_index[calls]))
    ]
    sources, targets = [], []
    for _, index in groups_of(trace.thread_index[calls]):
        of_thread = calls[index]
        reach_ns = np.maximum.accumulate(trace.end_ns[of_thread])
        is_outer = np.concatenate(([True], trace.start_ns[of_thread][1:] >= reach_ns[:-1]))
        outer_index = np.cumsum(is_outer) - 1
        outer = of_thread[is_outer]
        around, inner = outer[outer_index[~is_outer]], of_thread[~is_outer]
        begun = ~is_wait[around]
        sources += [outer[:-1], around[begun]]
        targets += [outer[1:], inner[begun]]
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])


def sync_edges(host: Host, queues: StreamQueues) -> Edges:
    """From the last activities that a blocking call waited for to what could only come after."""
    waited, waiting = _pure_wait_edges(host, queues)
    copied, after = _copy_edges(host)
    return np.concatenate((waited, copied)), np.concatenate((waiting, after))


def pure_waits(host: Host) -> NDArray[np.bool_]:
    """bool[n], which events are blocking calls that do nothing but wait."""
    calls = host.blocking_calls
    is_wait = np.zeros(len(host.timeline.trace), dtype=np.bool_)
    is_wait[calls.event_id[np.isin(calls.kind, RETURNS_WHEN_DONE)]] = True
    return is_wait


def wake_up_ns(host: Host, source_id: Int64Array, target_id: Int64Array) -> Int64Array:
    """How long calls that only wait took to return once what they waited for had ended.

    Args:
        host: the host side of the timeline.
        source_id: int64[e], event ids of activities.
        target_id: int64[e], event ids of what returned, or came, only after them.

    Returns:
        int64[k], ns, for each such call that had begun before the last of it ended.
    """
    trace = host.timeline.trace
    end_ns = np.full(len(trace), ABSENT, dtype=np.int64)
    np.maximum.at(end_ns, target_id, trace.end_ns[source_id])
    call_id = np.flatnonzero(pure_waits(host) & (end_ns > trace.start_ns))
    return trace.end_ns[call_id] - end_ns[call_id]


def _pure_wait_edges(host: Host, queues: StreamQueues) -> Edges:
    """From what calls waited for that do nothing else to these calls."""
    timeline, blocking = host.timeline, host.blocking_calls
    trace = timeline.trace
    is_wait = np.isin(blocking.kind, RETURNS_WHEN_DONE)
    call_id, kind = blocking.event_id[is_wait], blocking.kind[is_wait]
    start_ns = trace.start_ns[call_id]
    sync_id = ByCorrelation(trace, Category.SYNC).find(trace.correlation[call_id])
    has_row = sync_id != ABSENT
    record_id = ByCorrelation(trace, *HOST_CALLS).find(
        np.where(has_row, trace.wait_correlation[sync_id], ABSENT)
    )
    device_number = np.where(has_row, trace.device_number[sync_id], ABSENT)
    of_device = kind == Blocking.DEVICE
    of_stream = (kind == Blocking.STREAM) & has_row
    of_record = (kind == Blocking.EVENT) & has_row & (record_id != ABSENT)
    is_placed = of_record & (trace.wait_stream_number[sync_id] != ABSENT)
    stream_index = queues.find(
        device_number,
        np.where(of_record, trace.wait_stream_number[sync_id], trace.stream_number[sync_id]),
    )
    on_stream, on_record = np.flatnonzero(of_stream), np.flatnonzero(is_placed)
    on_call = np.flatnonzero(of_record & ~is_placed)
    on_unknown = np.flatnonzero(~of_device & ~of_stream & ~of_record)
    record_ns = trace.start_ns[record_id[on_record]]
    during = _ended_last_during(timeline, queues, call_id[on_unknown], start_ns[on_unknown])
    waited = [  # per kind of wait: the calls, as indexes, and the row that each one waited for
        (on_stream, queues.last_before(stream_index[on_stream], start_ns[on_stream])),
        (on_record, queues.last_before(stream_index[on_record], record_ns)),
        (on_call, _recorded_by(timeline, queues, call_id[on_call], record_id[on_call])),
        (on_unknown, during),
    ]
    for index, stream in enumerate(timeline.streams):
        on_device = np.flatnonzero(
            of_device & np.isin(device_number, (stream.device_number, ABSENT))
        )
        row = queues.last_before(np.full(len(on_device), index), start_ns[on_device])
        # It waited for one device, and the file may not say for which.
        is_sure = device_number[on_device] != ABSENT
        is_sure |= timeline.end_ns[row] <= trace.end_ns[call_id[on_device]]
        waited.append((on_device[is_sure], row[is_sure]))
    call_index, row = (np.concatenate(column) for column in zip(*waited, strict=True))
    call_index, row = call_index[row != ABSENT], row[row != ABSENT]
    by_call = np.argsort(call_index, kind="stable")
    return timeline.event_id[row[by_call]], call_id[call_index[by_call]]


def _recorded_by(
    timeline: Timeline, queues: StreamQueues, call_id: Int64Array, record_id: NDArray[np.intp]
) -> NDArray[np.intp]:
    """What blocking calls waited for whose record is known, and not its stream: intp[k], rows.

    It is of the stream that the recording thread gave work to last, if that had ended when the call
    returned; unless the call returned just after what another stream had been given by then.
    ABSENT where neither is known.
    """
    if not len(call_id):
        return np.zeros(0, dtype=np.intp)
    start_ns = timeline.trace.start_ns
    record_ns, return_ns = start_ns[record_id], timeline.trace.end_ns[call_id]
    stream_index = order_stream_calls(timeline).stream_before(record_id)
    row = queues.last_before(stream_index, record_ns)
    end_ns = np.where(row == ABSENT, return_ns + 1, timeline.end_ns[row])
    during = _ended_last_during(timeline, queues, call_id, record_ns)
    during_end_ns = np.where(during == ABSENT, ABSENT, timeline.end_ns[during])
    # A call that is shorter than that may not have waited for anything.
    just_before_ns = return_ns - LONGEST_WAKE_UP_NS
    is_other = (during_end_ns >= just_before_ns) & (just_before_ns > start_ns[call_id])
    is_other = (end_ns > return_ns) | ((end_ns < just_before_ns) & is_other)
    return np.where(is_other, during, row)


def _ended_last_during(
    timeline: Timeline, queues: StreamQueues, call_id: Int64Array, given_before_ns: Int64Array
) -> NDArray[np.intp]:
    """What blocking calls waited for that name no stream: intp[k], rows, else ABSENT.

    Of the last activities that each stream had been given before a time (int64[k], ns), the one
    that ended last during the call.
    """
    start_ns, end_ns = timeline.trace.start_ns[call_id], timeline.trace.end_ns[call_id]
    last_row = np.full(len(call_id), ABSENT, dtype=np.intp)
    last_end_ns = start_ns.copy()
    for index in range(len(timeline.streams)):
        row = queues.last_before(np.full(len(call_id), index), given_before_ns)
        row_end_ns = np.where(row == ABSENT, ABSENT, timeline.end_ns[row])
        is_later = (row_end_ns > start_ns) & (row_end_ns <= end_ns) & (row_end_ns >= last_end_ns)
        last_row[is_later], last_end_ns[is_later] = row[is_later], row_end_ns[is_later]
    return last_row


def _copy_edges(host: Host) -> Edges:
    """A blocking copy is launched by the call that waits for it: what waits is the next call."""
    timeline, blocking = host.timeline, host.blocking_calls
    trace = timeline.trace
    copy_calls = blocking.event_id[blocking.kind == Blocking.COPY]
    calls = trace.of_category(*HOST_CALLS)
    sources, targets = [], []
    copies = np.flatnonzero(np.isin(timeline.launch_id, copy_calls))
    calls_of = dict(groups_of(trace.thread_index[calls]))
    for thread, index in groups_of(trace.thread_index[timeline.launch_id[copies]]):
        of_thread = calls[calls_of[thread]]
        of_thread = of_thread[np.argsort(trace.start_ns[of_thread], kind="stable")]
        row = copies[index]
        # A small copy from pageable memory is staged: its call may return before it has run.
        row = row[timeline.end_ns[row] <= trace.end_ns[timeline.launch_id[row]]]
        return_ns = trace.end_ns[timeline.launch_id[row]]
        next_call = np.searchsorted(trace.start_ns[of_thread], return_ns)
        exists = next_call < len(of_thread)
        sources.append(timeline.event_id[row[exists]])
        targets.append(of_thread[next_call[exists]])
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])
