"""Waits of collectives for a peer, as far as one rank's file shows them.

A collective most likely waited for a rank that came later in what it takes beyond its fastest twin,
of the same kernel, size and process group. Where all twins are slow, the link may be.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, IntArray, rows_at
from tracelab.measures.exposed import Exposed
from tracelab.model.collectives import Collectives, Operation, collectives
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import Nesting, groups_of, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, COLLECTIVE_OPERATOR, Category

# Tenths of its fastest twin. Of 1,620 collectives in jobs of several ranks
# (tests/benchmarks/peer_waits.py), those that took 1.5 to 2 times as long had not waited for most
# of the rest in 98 of 250 cases, at 2 to 2.5 times in 8 of 128, from there on in none of 95.
_MANY_TIMES = 25
# Below PCIe 4.0 or a network of 200 Gb/s. H200s move 200 to 400 bytes/ns, 2 to 15 where a rank
# waits.
_SLOW_BYTES_PER_NS = 25
# A smaller message takes its latency; the bandwidth makes no difference.
MIN_BANDWIDTH_BYTES = 1_000_000


class PeerWaits(Arrays):
    """Waits of collectives for a peer, by row of the timeline.

    `fastest_ns` is how long the fastest twin took, ABSENT without a twin; `wait_ns` how long each
    collective waited from its start on. If `is_slow`, the twin is slower than any usual link: all
    of `wait_ns` is due to a peer that comes later, or to the link.
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
    """Find how long each collective waited for a peer."""
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
    # Twins run the same kernel in the same stream and process group and move as much, or where the
    # size is not known are at the same place in their steps.
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


# Fewer may be intended, such as the buffers of each type.
MIN_IN_A_ROW = 4
# A division of the sum and a copy. The next layer of a model needs more launches.
_MAX_LAUNCHES_BETWEEN = 2
# What takes longer waits for a peer: two H200s take 3 to 10 us, and more ranks some more.
_MAX_LATENCY_NS, _LATENCY_OF_RANK_NS, _BASE_LATENCY_NS = 200_000, 10_000, 20_000
_CAN_BE_ONE = (
    Operation.ALL_REDUCE,
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.BROADCAST,
    Operation.REDUCE,
)
_ACCUMULATES = "AccumulateGrad"  # the operator in which hooks of a gradient run


class SmallCollectives(Arrays):
    """Small collectives in a row with others, by start; of each row all but one that remains.

    Attributes:
        row, in_a_row: [k], rows of the timeline; in_a_row of those that one collective could
            replace.
        latency_ns: the shortest small collective of the group and operation; 0 where even that one
            waited for a peer.
        gap_start_ns: when the collective before it in the row ended; its own start where it is one
            of gradients, between which the backward pass goes on.
    """

    row: IndexArray
    in_a_row: Int64Array
    latency_ns: Int64Array
    gap_start_ns: Int64Array
    is_gradient: BoolArray

    def saved_ns(self, exposed: Exposed) -> Int64Array:
        """The latency of each as far as it ran exposed, in pieces that waited for no peer."""
        rows = int(self.row.max(initial=-1)) + 1
        is_known = exposed.row < rows
        length_ns = (exposed.end_ns - exposed.start_ns)[is_known]
        exposed_ns = np.bincount(exposed.row[is_known], weights=length_ns, minlength=rows)
        return np.minimum(self.latency_ns, exposed_ns[self.row].astype(np.int64))


def small_collectives(timeline: Timeline) -> SmallCollectives:
    """Find the small collectives that are in a row."""
    found = collectives(timeline)
    is_chosen = np.isin(found.operation, _CAN_BE_ONE) & (timeline.launch_id[found.row] != ABSENT)
    index = np.flatnonzero(is_chosen)
    row, operation = found.row[index], found.operation[index]
    moved_bytes = np.maximum(found.in_bytes[index], found.out_bytes[index])
    columns = np.stack((timeline.stream_index[row], found.group_index[index], operation), axis=1)
    _, sort = np.unique(columns, axis=0, return_inverse=True)
    order = np.lexsort((timeline.start_ns[row], sort.reshape(-1)))
    row, moved_bytes, sort = row[order], moved_bytes[order], sort.reshape(-1)[order]

    is_gradient = launched_for_gradients(timeline, row)
    in_a_row = np.cumsum(~_continues(timeline, row, sort, is_gradient), dtype=np.int64)
    is_small = (moved_bytes > 0) & (moved_bytes < MIN_BANDWIDTH_BYTES)
    # The shortest small collective of each sort; of a sort without one the most.
    shortest_ns = np.full(int(sort.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    length_ns = timeline.end_ns[row] - timeline.start_ns[row]
    np.minimum.at(shortest_ns, sort[is_small], length_ns[is_small])
    latency_ns: Int64Array = shortest_ns[sort]
    # Where a large one is in the row, all small ones could be part of it; else one of them remains.
    first = np.unique(in_a_row, return_index=True)[1]
    has_large = np.bincount(in_a_row, weights=~is_small)[in_a_row] > 0
    latency_ns[latency_ns > _longest_latencies_ns(found)[index[order]]] = 0
    is_saved = is_small.copy()
    is_saved[first] &= has_large[first]
    is_saved &= np.bincount(in_a_row, weights=is_small)[in_a_row] >= MIN_IN_A_ROW
    end_before_ns = np.concatenate(([0], timeline.end_ns[row]))[:-1]
    is_first = np.zeros(len(row), dtype=np.bool_)
    is_first[first] = True
    start_ns = timeline.start_ns[row]
    has_gap = ~is_first & ~is_gradient & (end_before_ns < start_ns)
    return SmallCollectives(
        row=row[is_saved],
        in_a_row=in_a_row[is_saved],
        latency_ns=latency_ns[is_saved],
        gap_start_ns=np.where(has_gap, end_before_ns, start_ns)[is_saved],
        is_gradient=is_gradient[is_saved],
    )


def _longest_latencies_ns(found: Collectives) -> Int64Array:
    """int64[c], ns, the longest time of each collective that could be a latency."""
    ranks = [group.size or len(group.ranks) for group in found.groups]
    of_group = [
        min(_BASE_LATENCY_NS + _LATENCY_OF_RANK_NS * n, _MAX_LATENCY_NS) if n else _MAX_LATENCY_NS
        for n in ranks
    ]
    return np.array([*of_group, _MAX_LATENCY_NS], dtype=np.int64)[found.group_index]


def launched_for_gradients(timeline: Timeline, row: IntArray) -> BoolArray:
    """bool[k], which rows were launched as a gradient was accumulated: nothing uses them yet."""
    trace = timeline.trace
    operator_id = trace.of_category(Category.OPERATOR)
    operator_id = operator_id[match_names(trace, operator_id, lambda name: _ACCUMULATES in name)]
    is_inside: BoolArray = Nesting(trace, operator_id).innermost(timeline.launch_id[row]) != ABSENT
    return is_inside


def backward_passes(timeline: Timeline, row: IntArray) -> IndexArray:
    """intp[k], the number of the backward pass, from 0, that launched each row (by launch)."""
    goes_on = _launched_between(timeline, row[:-1], row[1:])[1] == 0
    number: IndexArray = np.cumsum(np.concatenate(([0], ~goes_on))[: len(row)])
    return number


def _continues(
    timeline: Timeline, row: IndexArray, sort: IndexArray, is_gradient: BoolArray
) -> BoolArray:
    thread_index = timeline.trace.thread_index[timeline.launch_id[row]]
    is_alike = np.ones(max(0, len(row) - 1), dtype=np.bool_)
    for column in (sort, thread_index, timeline.step_index[row], is_gradient):
        is_alike &= column[:-1] == column[1:]
    pair = np.flatnonzero(is_alike)
    own, other = _launched_between(timeline, row[pair], row[pair + 1])
    continues = np.zeros(len(row), dtype=np.bool_)
    # Another thread that launches meanwhile has gone on from the backward pass.
    continues[pair + 1] = np.where(is_gradient[pair], other == 0, own <= _MAX_LAUNCHES_BETWEEN)
    return continues


def _launched_between(
    timeline: Timeline, row: IntArray, next_row: IntArray
) -> tuple[IndexArray, IndexArray]:
    """Count the compute launched between the launches of two rows: twice intp[k]."""
    trace, launch_id = timeline.trace, timeline.launch_id
    thread_index = trace.thread_index[launch_id[row]]
    compute_id = launch_id[(timeline.kind == Kind.COMPUTE) & (launch_id != ABSENT)]
    of_thread, compute_ns = trace.thread_index[compute_id], trace.start_ns[compute_id]
    after_ns, before_ns = trace.start_ns[launch_id[row]], trace.start_ns[launch_id[next_row]]
    own = np.zeros(len(row), dtype=np.intp)
    for thread, position in groups_of(thread_index):
        own_ns = np.sort(compute_ns[of_thread == thread])
        own[position] = _count_between(own_ns, after_ns[position], before_ns[position])
    return own, _count_between(np.sort(compute_ns), after_ns, before_ns) - own


def _count_between(
    ordered_ns: Int64Array, after_ns: Int64Array, before_ns: Int64Array
) -> IndexArray:
    first = np.searchsorted(ordered_ns, after_ns, side="right")
    count: IndexArray = np.searchsorted(ordered_ns, before_ns) - first
    return count
