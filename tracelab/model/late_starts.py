"""What ran beside activities that started later than the file explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array, measure_within
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.latencies import LONGEST_WAKE_UP_NS, UNEXPLAINED_NS
from tracelab.model.lookup import match_names
from tracelab.model.stream_progress import StreamProgress
from tracelab.model.stream_queues import StreamQueues
from tracelab.model.timeline import Stream, Timeline
from tracelab.model.trace import ABSENT

_KERNELS = (Kind.COMPUTE, Kind.COMM)


def beside_late_starts(
    timeline: Timeline,
    queues: StreamQueues,
    progress: StreamProgress,
    row: NDArray[np.intp],
    ready_ns: Int64Array,
    since_ns: Int64Array,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """What may have kept activities from starting earlier, in the other streams of their device.

    Args:
        timeline: the GPU activities.
        queues: the order of their launches.
        progress: how far the streams had got when.
        row: intp[k], timeline rows.
        ready_ns: int64[k], ns, since when nothing that the file shows kept them from starting.
        since_ns: int64[k], ns, since when kernels must have run to have left no room.

    Returns:
        intp[k], timeline rows, else ABSENT: what ended last, just before each one started, of what
        was launched before it; intp[k], likewise: the kernel that ran at its start, of several the
        one that began first; and bool[k], whether kernels had run since then, so that there was no
        room for it.
    """
    ended_row, running_row = (np.full(len(row), ABSENT, dtype=np.intp) for _ in range(2))
    by_start = np.argsort(timeline.start_ns[row], kind="stable")
    by_device = {
        device: by_start[timeline.device_number[row[by_start]] == device]
        for device in np.unique(timeline.device_number[row]).tolist()
    }
    for index, stream in enumerate(timeline.streams):
        late = by_device.get(stream.device_number, by_start[:0])
        late = _around(timeline, stream, row, late)
        late = late[timeline.stream_index[row[late]] != index]
        ended, begun = _last_of_stream(timeline, queues, progress, stream, row[late])
        is_last = _ended_between(timeline, ended, ready_ns[late], timeline.start_ns[row[late]])
        is_last &= _is_later(timeline, row[late], ended, ended_row[late])
        ended_row[late[is_last]] = ended[is_last]
        is_first = _runs_longer(timeline, row[late], begun, running_row[late])
        running_row[late[is_first]] = begun[is_first]
    is_full = (running_row != ABSENT) & _needs_sm(timeline, row)
    is_full &= _idle_ns(timeline, row, since_ns) <= UNEXPLAINED_NS
    return ended_row, running_row, is_full


def _around(
    timeline: Timeline, stream: Stream, row: NDArray[np.intp], late: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Of late starts (index into `row`, by start) those from a stream's first to its last work."""
    last_end_ns = timeline.end_ns[stream.first_row : stream.end_row].max()
    bounds_ns = (timeline.start_ns[stream.first_row], last_end_ns + LONGEST_WAKE_UP_NS)
    first, last = np.searchsorted(timeline.start_ns[row[late]], bounds_ns, side="right")
    return late[first:last]


def _last_of_stream(
    timeline: Timeline,
    queues: StreamQueues,
    progress: StreamProgress,
    stream: Stream,
    row: NDArray[np.intp],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The last rows of a stream by each row's start, else ABSENT: intp[k] each.

    The one that had ended, all before it too, and was launched before; and the one that had begun.
    """
    of_stream, start_ns = slice(stream.first_row, stream.end_row), timeline.start_ns[row]
    launched = np.searchsorted(queues.launch_ns[of_stream], queues.launch_ns[row], side="right")
    done = np.searchsorted(progress.ended_ns[of_stream], start_ns, side="right")
    ended = np.minimum(launched, done)
    begun = np.searchsorted(timeline.start_ns[of_stream], start_ns)
    last_row = stream.first_row - 1
    return (
        np.where(ended > 0, last_row + ended, ABSENT),
        np.where(begun > 0, last_row + begun, ABSENT),
    )


def _runs_longer(
    timeline: Timeline,
    row: NDArray[np.intp],
    begun_row: NDArray[np.intp],
    other_row: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """bool[k], whether kernels ran at the start of rows, for longer than others so far."""
    runs: NDArray[np.bool_] = (begun_row != ABSENT) & np.isin(timeline.kind[begun_row], _KERNELS)
    runs &= timeline.end_ns[begun_row] > timeline.start_ns[row]
    is_first = timeline.start_ns[begun_row] < timeline.start_ns[other_row]
    runs &= is_first | (other_row == ABSENT)
    return runs


def _ended_between(
    timeline: Timeline, row: NDArray[np.intp], ready_ns: Int64Array, start_ns: Int64Array
) -> NDArray[np.bool_]:
    """bool[k], which rows ended just before a start, and after it could have been."""
    end_ns = timeline.end_ns[row]
    has_ended: NDArray[np.bool_] = (row != ABSENT) & (timeline.start_ns[row] < start_ns)
    has_ended &= (end_ns > ready_ns) & (start_ns - end_ns <= LONGEST_WAKE_UP_NS)
    return has_ended


def _is_later(
    timeline: Timeline,
    row: NDArray[np.intp],
    ended_row: NDArray[np.intp],
    other_row: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """bool[k], which rows are likelier than others to have been waited for: those that ended later.

    For a collective another collective is likelier than anything else.
    """
    is_comm = timeline.kind == Kind.COMM
    both_comm, other_both_comm = (
        is_comm[row] & is_comm[candidate] for candidate in (ended_row, other_row)
    )
    is_later: NDArray[np.bool_] = timeline.end_ns[ended_row] > timeline.end_ns[other_row]
    is_later &= both_comm == other_both_comm
    is_later |= both_comm & ~other_both_comm
    is_later |= other_row == ABSENT
    return is_later


def _needs_sm(timeline: Timeline, row: NDArray[np.intp]) -> NDArray[np.bool_]:
    """bool[k], which rows run on multiprocessors: all but copies that leave or reach the device."""
    is_copy: NDArray[np.bool_] = timeline.kind[row] == Kind.COPY
    within = match_names(
        timeline.trace, timeline.event_id[row], lambda name: copy_direction(name) == "d2d"
    )
    return ~is_copy | within


def _idle_ns(timeline: Timeline, row: NDArray[np.intp], since_ns: Int64Array) -> Int64Array:
    """How long, since a moment, no kernel of its device ran before each row: int64[k], ns."""
    start_ns, idle_ns = timeline.start_ns[row], np.zeros(len(row), dtype=np.int64)
    for device in np.unique(timeline.device_number[row]).tolist():
        kernels = timeline.busy(timeline.select(device=device) & np.isin(timeline.kind, _KERNELS))
        of_device = np.flatnonzero(timeline.device_number[row] == device)
        busy_ns = measure_within(kernels, since_ns[of_device], start_ns[of_device])
        idle_ns[of_device] = start_ns[of_device] - since_ns[of_device] - busy_ns
    return idle_ns
