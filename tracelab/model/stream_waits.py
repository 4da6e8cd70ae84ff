"""Waits of streams: the activities before the events that a stream had to wait for.

With event records (CUPTI's rows) a wait names its record. In stock files the times tell, for a wait
that delayed something: what it waited for had ended just before
(`tests/benchmarks/inferred_waits.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import field

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record
from tracelab.model.kernel_kinds import is_peer_copy, is_stream_wait
from tracelab.model.latencies import MAX_WAKE_UP_NS, MIN_DELAY_NS, UNEXPLAINED_NS
from tracelab.model.lookup import calls_of_name, match_names
from tracelab.model.stream_progress import LONG_AGO, StreamProgress, StreamQueues, ready_after
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, Trace
from tracelab.model.wait_records import (
    WaitRecords,
    find_wait_records,
    infer_recording_streams,
)


class StreamWaits(Arrays):
    """Waits of a file's activities for other streams (`tests.reference.stream_waits`).

    Attributes:
        row, source_row: [p], timeline rows in pairs: the second had to end before the first.
        is_inferred: [p], whether the times tell so and not the file.
        is_peer_copy: [p], whether the second is a copy between devices, without any wait.
        after_unresolved_wait: [m], whether each row was late, after an unresolved wait.
        exact_count, inferred_count, unresolved_count: waits whose record the file, the times or
            neither tells.
    """

    row: IndexArray
    source_row: IndexArray
    is_inferred: BoolArray
    is_peer_copy: BoolArray
    after_unresolved_wait: BoolArray
    exact_count: int
    inferred_count: int
    unresolved_count: int


def resolve_waits(
    timeline: Timeline, queues: StreamQueues, progress: StreamProgress
) -> StreamWaits:
    """Find what the activities of a file waited for on other streams."""
    trace, records = timeline.trace, find_wait_records(timeline.trace)
    if not len(timeline.event_id):
        rows, flags = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.bool_)
        return StreamWaits(rows, rows, flags, flags, flags, 0, 0, len(records.wait_id))
    records = infer_recording_streams(timeline, queues, records)
    upstream_of = find_upstream(trace, queues, records, progress)
    row = np.fromiter(upstream_of, dtype=np.intp, count=len(upstream_of))
    index, source_row, is_inferred = _sources(timeline, progress, upstream_of)
    end_ns = np.full(len(row), LONG_AGO, dtype=np.int64)
    np.maximum.at(end_ns, index, timeline.end_ns[source_row])
    ready_ns = ready_after(timeline, progress.ready_ns, row, end_ns)

    unresolved = (upstream.unresolved_wait for upstream in upstream_of.values())
    wait_index = np.fromiter(unresolved, dtype=np.intp, count=len(row))
    is_late = timeline.start_ns[row] - ready_ns[row] > MIN_DELAY_NS
    late_index = np.flatnonzero((wait_index != ABSENT) & is_late)
    wait_index = wait_index[late_index]
    late_source_row = progress.ended_between(
        ready_ns[row[late_index]],
        timeline.start_ns[row[late_index]],
        records.recorded_before_ns(trace)[wait_index],
        without=timeline.stream_index[row[late_index]],
    )
    resolved = late_source_row != ABSENT
    after_unresolved_wait = np.zeros(len(timeline.event_id), dtype=np.bool_)
    after_unresolved_wait[row[late_index[~resolved]]] = True

    late_index, late_source_row = late_index[resolved], late_source_row[resolved]
    ready_ns = ready_after(timeline, ready_ns, row[late_index], timeline.end_ns[late_source_row])
    delayed_row, copy_row = _delayed_by_peer_copies(timeline, queues, ready_ns)
    after_unresolved_wait[delayed_row] = False
    index = np.concatenate((index, late_index))
    order = np.argsort(index, kind="stable")
    source_row = np.concatenate((source_row, late_source_row))[order]
    is_inferred = np.concatenate((is_inferred, np.ones(len(late_index), dtype=np.bool_)))[order]
    by_calls_count = int(records.is_inferred.sum())
    by_times_count = len(np.unique(wait_index[resolved]))
    open_count = int(records.is_unresolved.sum())
    unresolved_count = open_count - by_times_count
    # Without sync rows not even the waiting stream is known, and the calls count. In a file that
    # has some, Kineto left a row out because no activity ran on that stream.
    if not len(trace.of_category(Category.SYNC)):
        unresolved_count = len(calls_of_name(trace, is_stream_wait))
    return StreamWaits(
        row=np.concatenate((row[index[order]], delayed_row)),
        source_row=np.concatenate((source_row, copy_row)),
        is_inferred=np.concatenate((is_inferred, np.ones(len(copy_row), dtype=np.bool_))),
        is_peer_copy=np.repeat((False, True), (len(index), len(copy_row))),
        after_unresolved_wait=after_unresolved_wait,
        exact_count=len(records.wait_id) - by_calls_count - open_count,
        inferred_count=by_calls_count + by_times_count,
        unresolved_count=unresolved_count,
    )


def _sources(
    timeline: Timeline, progress: StreamProgress, upstream_of: Mapping[int, Upstream]
) -> tuple[IndexArray, IndexArray, BoolArray]:
    # An inferred source that had not ended when the row started was not waited for.
    stream_index = timeline.stream_index
    row = np.fromiter(upstream_of, dtype=np.intp, count=len(upstream_of))
    columns = []
    for position, (waiting_index, upstream) in enumerate(
        zip(stream_index[row].tolist(), upstream_of.values(), strict=True)
    ):
        sources = {source for of, source in upstream.rows.items() if of != waiting_index}
        columns += [(position, source, source in upstream.inferred_rows) for source in sources]
    index, source_row, is_inferred = np.array(columns, dtype=np.intp).reshape(-1, 3).T
    fits = (is_inferred == 0) | (progress.ended_ns[source_row] <= timeline.start_ns[row[index]])
    return index[fits], source_row[fits], is_inferred[fits] > 0


def _delayed_by_peer_copies(
    timeline: Timeline, queues: StreamQueues, ready_ns: Int64Array
) -> tuple[IndexArray, IndexArray]:
    # Pairs of rows: a copy in a device's default stream delays what is launched after it in the
    # other device's default stream. Which streams these are is inferred: only an activity counts
    # that nothing else explains, launched first after the copy, started far later than it could,
    # just after it.
    copies = np.flatnonzero(match_names(timeline.trace, timeline.event_id, is_peer_copy))
    copies = copies[queues.launch_ns[copies] != LONG_AGO]
    copies = copies[np.argsort(timeline.end_ns[copies], kind="stable")]
    copy_of: dict[int, int] = {}
    for stream in timeline.streams if len(copies) else ():
        launch_ns = queues.launch_ns[stream.first_row : stream.end_row]
        next_row = np.searchsorted(launch_ns, queues.launch_ns[copies], side="right")
        next_row += stream.first_row
        other_device = timeline.device_number[copies] != stream.device_number
        follows = (next_row < stream.end_row) & other_device
        copy_row, row = copies[follows], next_row[follows]
        end_ns, start_ns = timeline.end_ns[copy_row], timeline.start_ns[row]
        delayed = (end_ns >= ready_ns[row]) & (start_ns - ready_ns[row] > UNEXPLAINED_NS)
        delayed &= (start_ns >= end_ns) & (start_ns - end_ns <= MAX_WAKE_UP_NS)
        copy_of |= dict(zip(row[delayed].tolist(), copy_row[delayed].tolist(), strict=True))
    delayed_row = np.fromiter(copy_of, dtype=np.intp, count=len(copy_of))
    return delayed_row, np.fromiter(copy_of.values(), dtype=np.intp, count=len(copy_of))


class Upstream(Record):
    """Work that had to end before a stream continued after one or several waits.

    `rows` has, by stream (index into `Timeline.streams`), the last row that had to end;
    `unresolved_wait` is the index of the last unresolved wait, else ABSENT.
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
    """Find the upstream work of each row that is first on its stream after a wait, by row.

    A record stands for the last activity that its stream had been given, and the waits after it.
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
    # Per stream the times of its waits, and what is upstream of them since its last activity.
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
    """The work that each wait's record stands for, without the waits before it."""
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
    trace: Trace, progress: StreamProgress, call_id: IndexArray, reached_id: IndexArray
) -> IndexArray:
    # Kineto leaves out the rows of waits on a stream without any activity: such a record only tells
    # that some stream waited, and when it was reached: late, if it waited for something.
    waits = calls_of_name(trace, is_stream_wait)
    sync_rows = trace.of_category(Category.SYNC)
    waits = waits[~np.isin(trace.correlation[waits], trace.correlation[sync_rows])]
    waits_before = np.searchsorted(trace.start_ns[waits], trace.start_ns[call_id])
    reached_ns, ready_ns = trace.start_ns[reached_id], trace.end_ns[call_id]
    is_late = (waits_before > 0) & (reached_ns - ready_ns > MIN_DELAY_NS)
    late_index = np.flatnonzero(is_late)
    source_row = np.full(len(call_id), ABSENT, dtype=np.intp)
    source_row[late_index] = progress.ended_between(
        ready_ns[late_index],
        reached_ns[late_index],
        trace.start_ns[waits[waits_before[late_index] - 1]],
        without=np.full(len(late_index), ABSENT),
    )
    return source_row
