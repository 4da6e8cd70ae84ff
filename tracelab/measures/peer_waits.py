"""Waits of collectives for a peer, as far as one rank's file shows them.

What a collective takes beyond its fastest twin, of the same kernel, size and process group, was
most likely spent waiting for a rank that came later. Where all twins are slow the file cannot tell
a peer that always comes later from a link that is slow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracelab.base.arrays import Arrays, rows_at
from tracelab.base.intervals import BoolArray, IndexArray, Int64Array
from tracelab.measures.exposed import Exposed
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, COLLECTIVE_OPERATOR, Category

# Tenths of its fastest twin. Of 1,620 collectives in bundled jobs of several ranks, whose other
# files tell the waits (tests/benchmarks/peer_waits.py), those that took 1.5 to 2 times as long had
# not waited for most of the rest in 98 of 250 cases (they shared the GPU with compute), at 2 to 2.5
# times in 8 of 128, and from there on in none of 95.
_MANY_TIMES = 25
# Slower than PCIe 4.0 or a network of 200 Gb/s. Transfers of H200s move 200 to 400 bytes/ns; those
# of bundled jobs in which a rank always waits move 2 to 15.
_SLOW_BYTES_PER_NS = 25
# A smaller message takes its latency; the bandwidth makes no difference.
MIN_BANDWIDTH_BYTES = 1_000_000


class PeerWaits(Arrays):
    """Waits of collectives for a peer, by row of the timeline.

    Attributes:
        fastest_ns: [m], how long the fastest twin took, ABSENT for what has no twin.
        wait_ns: how long each collective waited from its start on; 0 for all else.
        is_slow: whether the fastest twin is slower than any usual link: all of `wait_ns` is due to
            a peer that comes later, or to the link.
    """

    fastest_ns: Int64Array
    wait_ns: Int64Array
    is_slow: BoolArray

    def split(self, timeline: Timeline, exposed: Exposed) -> tuple[Exposed, Exposed]:
        """Exposed time in which nothing waited for a peer, and that in which something did.

        No other work that overlapped the waiting would make a step shorter.
        """
        waited_ns = timeline.start_ns[exposed.row] + self.wait_ns[exposed.row]
        moving_ns = np.clip(waited_ns, exposed.start_ns, exposed.end_ns)
        bound_ns = np.minimum(exposed.bound_ns, exposed.end_ns - moving_ns)
        moving = replace(exposed, start_ns=moving_ns, bound_ns=bound_ns)
        waiting = replace(exposed, end_ns=moving_ns, bound_ns=np.zeros_like(bound_ns))
        return _not_empty(moving), _not_empty(waiting)


def _not_empty(exposed: Exposed) -> Exposed:
    return rows_at(exposed, exposed.end_ns > exposed.start_ns)


def peer_waits(timeline: Timeline) -> PeerWaits:
    """Find how long each collective waited for a peer.

    The slow reference model is ``tests/reference/peer_waits.py``.
    """
    length_ns = timeline.end_ns - timeline.start_ns
    fastest_ns, wait_ns = np.full(len(length_ns), ABSENT), np.zeros(len(length_ns), np.int64)
    is_slow = np.zeros(len(length_ns), dtype=np.bool_)
    rows = np.flatnonzero((timeline.kind == Kind.COMM) & (length_ns > 0))
    message_bytes = _message_bytes(timeline, rows)
    for _, twins in groups_of(_twin_index(timeline, rows, message_bytes)):
        row, moved_bytes = rows[twins], int(message_bytes[twins[0]])
        shortest_ns = int(length_ns[row].min())
        if moved_bytes >= MIN_BANDWIDTH_BYTES and _SLOW_BYTES_PER_NS * shortest_ns > moved_bytes:
            is_slow[row], wait_ns[row] = True, length_ns[row]
        if len(row) > 1:
            fastest_ns[row] = shortest_ns
            late_row = row[10 * length_ns[row] >= _MANY_TIMES * shortest_ns]
            wait_ns[late_row] = np.maximum(wait_ns[late_row], length_ns[late_row] - shortest_ns)
    return PeerWaits(fastest_ns, wait_ns, is_slow)


def _twin_index(timeline: Timeline, rows: IndexArray, message_bytes: Int64Array) -> IndexArray:
    # Twins run the same kernel in the same stream and process group and move as much. Where the
    # size is not known they are those of the same place in their steps.
    event_id = timeline.event_id[rows]
    stream_index, step_index = timeline.stream_index[rows], timeline.step_index[rows]
    name_index = timeline.trace.name_index[event_id]
    place = np.zeros(len(rows), dtype=np.int64)
    is_unknown = message_bytes == ABSENT
    unknown = np.flatnonzero(is_unknown & (step_index != ABSENT))
    columns = np.stack((stream_index, name_index, step_index), axis=1)
    _, of_step = np.unique(columns[unknown], axis=0, return_inverse=True)
    for _, indices in groups_of(of_step.reshape(-1)):
        place[unknown[indices]] = np.arange(len(indices))
    messages = timeline.trace.messages
    group = messages.group_index[timeline.trace.message_row[event_id]]
    columns = np.stack((stream_index, name_index, group, message_bytes, place), axis=1)
    _, twin_index = np.unique(columns, axis=0, return_inverse=True)
    has_no_place = is_unknown & (step_index == ABSENT)
    return np.where(has_no_place, ABSENT, twin_index.reshape(-1))


def _message_bytes(timeline: Timeline, rows: IndexArray) -> Int64Array:
    trace, launch_id = timeline.trace, timeline.launch_id[rows]
    in_bytes = trace.messages.in_bytes
    message_bytes: Int64Array = in_bytes[trace.message_row[timeline.event_id[rows]]]
    operator_id = trace.of_category(Category.OPERATOR)
    operator_id = operator_id[match_names(trace, operator_id, COLLECTIVE_OPERATOR.__eq__)]
    operator_id = operator_id[in_bytes[trace.message_row[operator_id]] > 0]
    if not len(operator_id):
        return message_bytes
    operators = Nesting(trace, operator_id)
    open_index = np.flatnonzero((message_bytes == ABSENT) & (launch_id != ABSENT))
    operator_index = operators.innermost(launch_id[open_index])
    around_id = operators.event_id[operator_index]
    message_bytes[open_index] = np.where(
        operator_index == ABSENT, ABSENT, in_bytes[trace.message_row[around_id]]
    )
    sizes = np.unique(in_bytes[trace.message_row[operator_id]])
    if len(sizes) == 1:
        message_bytes[message_bytes == ABSENT] = sizes[0]
    return message_bytes
