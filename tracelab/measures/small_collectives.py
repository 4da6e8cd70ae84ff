"""Small collectives in a row: how much of their time one collective with all the data would save.

A small message takes the latency, in which the ranks meet and the protocol runs. Collectives of one
process group and operation are in a row where nothing uses the result of one before the next is
launched: the gradients that one backward pass accumulates, and what one thread issues with next to
no compute between. Sent as one they cost a single latency and no time between them.
"""

from __future__ import annotations

import numpy as np

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import BoolArray, IndexArray, Int64Array, IntArray
from tracelab.measures.exposed import Exposed
from tracelab.measures.peer_waits import MIN_BANDWIDTH_BYTES
from tracelab.model.collectives import Collectives, Operation, collectives
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

# Fewer may be intended, such as the buffers of each type.
MIN_IN_A_ROW = 4
# A division of the sum and a copy. The next layer of a model needs more launches.
_MAX_LAUNCHES_BETWEEN = 2
# What takes longer waits for a peer: two H200s take 3 to 10 us, and more ranks some more.
_MAX_LATENCY_NS, _LATENCY_OF_RANK_NS, _BASE_LATENCY_NS = 200_000, 10_000, 20_000
# Whose data can be sent as one.
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
        row: [k], rows of the timeline.
        in_a_row: the same for those that one collective could replace.
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
    """Find the small collectives that are in a row.

    The slow reference model is ``tests/reference/small_collectives.py``.
    """
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
