"""Late starts that the file does not explain, and the work that ran during them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure_within
from tracelab.model.constraints import (
    Awaited,
    Constraint,
    Constraints,
    Met,
    Reason,
)
from tracelab.model.cuda_graphs.node_predecessors import NodePredecessors
from tracelab.model.host import Host
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.latencies import MAX_WAKE_UP_NS, UNEXPLAINED_NS
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.model.waits.stream_progress import StreamQueues

# Activities that ended just before a start: more than a GPU has hardware queues.
_MAX_ENDED_ACTIVITIES = 64


def explain_late(
    host: Host,
    queues: StreamQueues,
    awaited: Awaited,
    predecessors: NodePredecessors,
    met: Met,
    known: Constraints,
    row: NDArray[np.intp],
) -> Constraints:
    """Explain late rows (intp[k]) by the host and by the work that ran at the same time."""
    timeline, may_be_wait = host.timeline, awaited.after_unresolved_wait[row]
    start_ns, ready_ns = timeline.start_ns[row], known.ready_ns[row]
    may_be_wait = may_be_wait | awaited.any_stream_waits
    # Nothing tells when such a wait was over, or when the profiler missed the launch.
    is_open = may_be_wait | (timeline.launch_id[row] == ABSENT)
    since_ns = np.where(is_open, np.maximum(ready_ns, start_ns - MAX_WAKE_UP_NS), ready_ns)
    ended_row = _ended_just_before(timeline, queues, row, ready_ns)
    running_row = _running_beside(timeline, row)
    is_launching = host.starts_in_its_call[row]
    is_behind = ~is_launching & (ended_row != ABSENT)
    is_of_host = is_launching | (host.is_staged[row] & ~is_behind)
    is_full = ~is_of_host & ~is_behind & (running_row != ABSENT)
    is_full &= _has_no_room(timeline, row, since_ns)
    is_unexplained = ~(is_of_host | is_behind | is_full)
    # Within a graph the order is not in the file: what is known of its nodes stands.
    is_unknown = is_unexplained & (timeline.first_start_of_launch_ns[row] == start_ns)
    by_wait = may_be_wait | _is_ordered(timeline, predecessors, row, ended_row)
    cases = [is_of_host, is_behind & by_wait, is_behind, is_full, is_unknown]
    constraints = [
        Constraint.LAUNCH,
        Constraint.EVENT,
        Constraint.QUEUE,
        Constraint.NO_FREE_SM,
        Constraint.UNKNOWN,
    ]
    sources = [np.full(len(row), ABSENT), ended_row, ended_row, running_row]
    # What ended just before was over then; when the others let it start cannot be seen.
    met_ns = np.where(is_behind, timeline.end_ns[ended_row], start_ns)
    others_ns = np.maximum(np.maximum(met.stream_ns, met.event_ns), met.callback_ns)[row]
    others_ns = np.where(is_of_host, others_ns, ready_ns)
    delay_ns = np.where(others_ns == ABSENT, ABSENT, met_ns - others_ns)
    is_known = is_unexplained & ~is_unknown
    # Any wait may be its own where what it was for has ended: on another device, or there was no
    # room afterwards.
    has_other = (running_row != ABSENT) | (len(timeline.device_numbers) > 1)
    is_wait = awaited.after_unresolved_wait[row] | awaited.follows_wait_call[row]
    is_wait |= awaited.any_stream_waits & has_other
    reason = np.where(is_wait, Reason.WAIT_WITHOUT_RECORD, Reason.NOTHING_IN_THE_WAY)
    return Constraints(
        constraint=np.select(cases, constraints, known.constraint[row]).astype(np.int8),
        source_row=np.select(cases[:4], sources, known.source_row[row]),
        is_inferred=np.where(is_known, known.is_inferred[row], ~is_unexplained),
        ready_ns=np.where(is_unexplained, ready_ns, met_ns),
        delay_ns=np.where(is_known, known.delay_ns[row], delay_ns),
        unexplained_ns=np.where(is_unexplained | (is_full & is_open), start_ns - ready_ns, 0),
        reason=np.where(is_unknown, reason, Reason.NONE).astype(np.int8),
    )


def _is_ordered(
    timeline: Timeline,
    predecessors: NodePredecessors,
    row: NDArray[np.intp],
    ended_row: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """bool[k], whether a wait orders two rows for sure, though the file does not show it.

    Within a graph all order is by its edges, of which a node that has any in the file has no other,
    and NCCL makes the streams of a communicator wait for each other.
    """
    is_comm = timeline.kind == Kind.COMM
    is_ordered: NDArray[np.bool_] = timeline.launch_id[row] == timeline.launch_id[ended_row]
    is_ordered &= (timeline.launch_id[row] != ABSENT) & ~predecessors.is_known[row]
    is_ordered |= is_comm[row] & is_comm[ended_row]
    return is_ordered


def _ended_just_before(
    timeline: Timeline, queues: StreamQueues, row: NDArray[np.intp], ready_ns: Int64Array
) -> NDArray[np.intp]:
    """Return the work of other streams that ended last, just before activities started.

    It was launched before them, and on their device. For a collective another collective comes
    first, whatever else ended since.

    Args:
        timeline: the GPU activities.
        queues: the order of their launches.
        row: intp[k], timeline rows.
        ready_ns: int64[k], ns, since when nothing that the file shows kept them from starting: what
            had ended by then was not in the way.

    Returns:
        intp[k], timeline rows, else ABSENT.
    """
    ended_row = np.full(len(row), ABSENT, dtype=np.intp)
    is_comm = timeline.kind == Kind.COMM
    for device, late in groups_of(timeline.device_number[row]):
        on_device = timeline.select(device=device)
        for is_candidate, is_asking in (
            (on_device & is_comm, is_comm[row[late]]),
            (on_device, np.ones(len(late), dtype=np.bool_)),
        ):
            index = late[is_asking & (ended_row[late] == ABSENT)]
            ended_row[index] = _last_ended(
                timeline, queues, np.flatnonzero(is_candidate), row[index], ready_ns[index]
            )
    return ended_row


def _last_ended(
    timeline: Timeline,
    queues: StreamQueues,
    candidate_row: NDArray[np.intp],
    row: NDArray[np.intp],
    ready_ns: Int64Array,
) -> NDArray[np.intp]:
    """The candidate that ended last before each row's start and fits it, else ABSENT: intp[k]."""
    by_end = candidate_row[np.argsort(timeline.end_ns[candidate_row], kind="stable")]
    end_ns, start_ns = timeline.end_ns[by_end], timeline.start_ns[row]
    since_ns = np.maximum(ready_ns + 1, start_ns - MAX_WAKE_UP_NS)
    ended_row = np.full(len(row), ABSENT, dtype=np.intp)
    position = np.searchsorted(end_ns, start_ns, side="right") - 1
    open_index = np.arange(len(row))
    for _ in range(_MAX_ENDED_ACTIVITIES):  # all rows without a source yet step back together
        open_index = open_index[position[open_index] >= 0]
        open_index = open_index[end_ns[position[open_index]] >= since_ns[open_index]]
        if not len(open_index):
            break
        late_row, ended = row[open_index], by_end[position[open_index]]
        fits = timeline.stream_index[ended] != timeline.stream_index[late_row]
        fits &= queues.launch_ns[ended] <= queues.launch_ns[late_row]
        fits &= timeline.start_ns[ended] < timeline.start_ns[late_row]
        ended_row[open_index[fits]] = ended[fits]
        open_index = open_index[~fits]
        position[open_index] -= 1
    return ended_row


def _running_beside(timeline: Timeline, row: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the compute in another stream of the device when each row started.

    Collectives do not count: they take few multiprocessors.

    Returns:
        intp[k], timeline rows, of several the one that ran longest from then on, else ABSENT.
    """
    running_row = np.full(len(row), ABSENT, dtype=np.intp)
    for device, late in groups_of(timeline.device_number[row]):
        compute = np.flatnonzero(timeline.select(device=device, kind=Kind.COMPUTE))
        by_start = compute[np.argsort(timeline.start_ns[compute], kind="stable")]
        reach_ns = np.maximum.accumulate(timeline.end_ns[by_start])
        is_longest = timeline.end_ns[by_start] == reach_ns
        # Of those begun so far the one that ends last.
        longest = np.maximum.accumulate(np.where(is_longest, np.arange(len(by_start)), 0))
        begun = np.searchsorted(timeline.start_ns[by_start], timeline.start_ns[row[late]]) - 1
        beside, begun = late[begun >= 0], begun[begun >= 0]
        running = by_start[longest[begun]]
        runs = timeline.end_ns[running] > timeline.start_ns[row[beside]]
        runs &= timeline.stream_index[running] != timeline.stream_index[row[beside]]
        running_row[beside[runs]] = running[runs]
    return running_row


def _has_no_room(
    timeline: Timeline, row: NDArray[np.intp], since_ns: Int64Array
) -> NDArray[np.bool_]:
    """bool[k], whether kernels computed on its device from a moment to each row's start.

    Pauses of up to 20 us together do not count, and copies that leave or reach the device need no
    multiprocessor.
    """
    start_ns, idle_ns = timeline.start_ns[row], np.zeros(len(row), dtype=np.int64)
    for device, late in groups_of(timeline.device_number[row]):
        computing = timeline.busy(timeline.select(device=device, kind=Kind.COMPUTE))
        busy_ns = measure_within(computing, since_ns[late], start_ns[late])
        idle_ns[late] = start_ns[late] - since_ns[late] - busy_ns
    is_copy = timeline.kind[row] == Kind.COPY
    is_copy &= ~match_names(timeline.trace, timeline.event_id[row], _stays_on_device)
    has_none: NDArray[np.bool_] = ~is_copy & (idle_ns <= UNEXPLAINED_NS)
    return has_none


def _stays_on_device(name: str) -> bool:
    return copy_direction(name) == "d2d"
