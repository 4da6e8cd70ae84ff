"""The waits of streams for events, and the records of those events."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.model.driver_api import is_stream_wait
from tracelab.model.lookup import (
    ByCorrelation,
    calls_of_name,
    groups_of,
    last_in_group,
    match_names,
)
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace

_STREAM_WAIT_ROW = "Stream Wait Event"  # CUPTI's


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WaitRecords(Frozen):
    """The waits of streams, in the order in which the host made them, and their records.

    Example row: ``(wait_id=90, correlation=311, reached_id=84, call_id=41, device_number=0,
    stream_number=7, is_inferred=False, is_unresolved=False)``: a stream waits for what stream 7 had
    been given when the call 41 was made.

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
    """int64[k], the last of some times (ascending) before each moment, ABSENT without any.

    >>> _last_before(np.array([10, 20]), np.array([5, 20, 21])).tolist()
    [-1, 10, 20]
    """
    return np.append(times_ns, ABSENT)[np.searchsorted(times_ns, moments_ns) - 1]


def _stream_waits(trace: Trace) -> NDArray[np.intp]:
    """Event ids of CUPTI's rows of stream waits, by start."""
    sync_rows = trace.of_category(Category.SYNC)
    waits = sync_rows[match_names(trace, sync_rows, _STREAM_WAIT_ROW.__eq__)]
    return waits[np.argsort(trace.start_ns[waits], kind="stable")]


def _record_correlation(
    trace: Trace, wait_id: NDArray[np.intp], reached_id: NDArray[np.intp]
) -> Int64Array:
    """The correlation of the record that each wait's row names: int64[w], else ABSENT.

    Kineto names no record of another device. There, what the row does name, the event, has
    been recorded last before the wait; events are used again and again.
    """
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
