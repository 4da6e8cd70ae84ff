"""What had to end before a stream could go on after its waits, from stream to stream."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracelab.model.driver_api import is_stream_wait
from tracelab.model.latencies import SHORTEST_DELAY_NS
from tracelab.model.lookup import calls_of_name
from tracelab.model.trace import ABSENT, Category, Trace
from tracelab.model.waits.stream_progress import StreamProgress
from tracelab.model.waits.stream_queues import StreamQueues
from tracelab.model.waits.wait_records import WaitRecords


@dataclass(frozen=True, slots=True)
class Upstream:
    """What had to end before a stream could go on after a wait, or after several.

    Attributes:
        rows: by stream (index into `Timeline.streams`), the last row that had to end.
        inferred_rows: those of them that only the times tell.
        unresolved_wait: index of the last unresolved wait, else ABSENT. The last one is enough:
            whatever an earlier one can have waited for, this one can.
    """

    rows: Mapping[int, int] = field(default_factory=dict)
    inferred_rows: frozenset[int] = frozenset()
    unresolved_wait: int = ABSENT

    def merged(self, other: Upstream) -> Upstream:
        """Both together."""
        if self is _NOTHING or other is _NOTHING:
            return other if self is _NOTHING else self
        rows = dict(self.rows)
        for stream_index, row in other.rows.items():
            rows[stream_index] = max(row, rows.get(stream_index, ABSENT))
        inferred_rows = self.inferred_rows | other.inferred_rows
        return Upstream(
            rows,
            inferred_rows & frozenset(rows.values()) if inferred_rows else inferred_rows,
            max(self.unresolved_wait, other.unresolved_wait),
        )


_NOTHING = Upstream()


def find_upstream(
    trace: Trace, queues: StreamQueues, records: WaitRecords, progress: StreamProgress
) -> dict[int, Upstream]:
    """What is upstream of each row that is the first one of its stream after a wait, by row.

    A record stands for what its stream had been given by then: the last activity, and the waits
    after it. So a wait reaches through streams that did nothing but wait themselves.
    """
    waits, calls = records.wait_id, records.call_id
    wait_ns, call_ns = trace.start_ns[waits], trace.start_ns[calls]
    device_number, stream_number = trace.device_number[waits], trace.stream_number[waits]
    stream_index = queues.find(device_number, stream_number)
    recording_index = queues.find(records.device_number, records.stream_number)
    columns = (
        wait_ns,
        queues.last_launch_ns(stream_index, wait_ns),
        queues.first_from(stream_index, wait_ns),
        calls,
        call_ns,
        queues.last_launch_ns(recording_index, call_ns),
    )
    waiting = zip(device_number.tolist(), stream_number.tolist(), strict=True)
    recording = zip(records.device_number.tolist(), records.stream_number.tolist(), strict=True)
    # Per stream the times of its waits, ascending, and what is upstream of each of them and those
    # before it since the stream's last activity.
    history: dict[tuple[int, int], tuple[list[int], list[Upstream]]]
    history = defaultdict(lambda: ([], []))
    upstream_of: dict[int, Upstream] = {}
    for direct, stream, recording_stream, time, launch, row, call, record, record_launch in zip(
        _direct_upstream(trace, queues, records, progress),
        waiting,
        recording,
        *(column.tolist() for column in columns),
        strict=True,
    ):
        upstream = direct
        times, upstreams = history[stream]
        if call != ABSENT:
            recorded_times, recorded_upstreams = history[recording_stream]
            last = bisect_left(recorded_times, record) - 1
            if last >= 0 and recorded_times[last] > record_launch:
                upstream = upstream.merged(recorded_upstreams[last])
        if times and times[-1] > launch:
            upstream = upstreams[-1].merged(upstream)
        times.append(time)
        upstreams.append(upstream)
        if row != ABSENT:
            upstream_of[row] = upstream
    return upstream_of


def _direct_upstream(
    trace: Trace, queues: StreamQueues, records: WaitRecords, progress: StreamProgress
) -> Sequence[Upstream]:
    """What the record of each wait stands for by itself, without the waits before it."""
    stream_index = queues.find(records.device_number, records.stream_number)
    reached, called = records.reached_id != ABSENT, records.call_id != ABSENT
    call_ns = trace.start_ns[records.call_id]
    row = np.where(called, queues.last_before(stream_index, call_ns), ABSENT)
    # Recorded before the file began, and maybe reached inside it.
    old = np.flatnonzero(~called & reached & (stream_index != ABSENT))
    reached_ns = trace.start_ns[records.reached_id[old]]
    row[old] = progress.last_ended(stream_index[old], reached_ns)
    idle = np.flatnonzero(called & reached & (stream_index == ABSENT))
    row[idle] = _upstream_of_idle_streams(
        trace, progress, records.call_id[idle], records.reached_id[idle]
    )
    is_inferred = records.is_inferred.copy()
    is_inferred[idle] = True
    row_stream_index = np.where(row == ABSENT, ABSENT, progress.timeline.stream_index[row])
    columns = (records.is_unresolved, row_stream_index, row, is_inferred)
    direct = []
    for wait_index, (unresolved, of_stream, last_row, inferred) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        if unresolved:
            direct.append(Upstream(unresolved_wait=wait_index))
        elif last_row == ABSENT:
            direct.append(_NOTHING)
        else:
            inferred_rows = frozenset([last_row] if inferred else ())
            direct.append(Upstream({of_stream: last_row}, inferred_rows))
    return direct


def _upstream_of_idle_streams(
    trace: Trace,
    progress: StreamProgress,
    call_id: NDArray[np.intp],
    reached_id: NDArray[np.intp],
) -> NDArray[np.intp]:
    """The rows that records on streams without any activity stand for: intp[k], else ABSENT.

    Kineto leaves out the rows of such a stream's waits, so the file only tells that some stream
    waited, and when the record was reached: late, if it waited for something.
    """
    waits = calls_of_name(trace, is_stream_wait)
    sync_rows = trace.of_category(Category.SYNC)
    waits = waits[~np.isin(trace.correlation[waits], trace.correlation[sync_rows])]
    waits_before = np.searchsorted(trace.start_ns[waits], trace.start_ns[call_id])
    reached_ns, ready_ns = trace.start_ns[reached_id], trace.end_ns[call_id]
    is_late = (waits_before > 0) & (reached_ns - ready_ns > SHORTEST_DELAY_NS)
    late_index = np.flatnonzero(is_late)
    source_row = np.full(len(call_id), ABSENT, dtype=np.intp)
    source_row[late_index] = progress.ended_between(
        ready_ns[late_index],
        reached_ns[late_index],
        trace.start_ns[waits[waits_before[late_index] - 1]],
        without=np.full(len(late_index), ABSENT),
    )
    return source_row
