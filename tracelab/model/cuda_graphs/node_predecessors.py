"""Predecessors of the nodes of CUDA graphs, where the file has their dependencies.

By the CUDA Programming Guide (4.2.1, "Graph Structure") a node may run as soon as all nodes are
complete on which it depends; when it does is up to CUDA. So of the nodes of one replay only the
predecessors of a node come before it by the program. That CUPTI shows two nodes in one stream says
which of them the driver put behind the other, and is no dependency.

PyTorch's own collector writes the dependencies between the nodes that have rows. A node whose
predecessors have none, an empty node for one, looks like a root of the graph: of such a node
nothing is known here, and what its stream shows counts, as in files without dependencies. A
host function that runs as a node, a callback, has no correlation in a replay that was queued
behind another one, and then no dependencies either; what starts just after it in its stream is
taken to have waited for it.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import Int64Array
from tracelab.model.cuda_graphs.graph_replays import replayed
from tracelab.model.latencies import MAX_WAKE_UP_NS
from tracelab.model.lookup import expand_ranges, rows_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, Category, Trace


class NodePredecessors(Arrays):
    """Predecessor of each row of a timeline as a node of a graph.

    Nodes that record events take no time: what they waited for counts in their place.

    Attributes:
        is_known: bool[m], which rows have predecessors in the file.
        row: int64[m], of the activities among these the row of the one that ended last, ABSENT
            without any.
        callback_id: int64[m], event id of the callback among them that ended last, ABSENT without
            any.
        row_before_callback: int64[m], the row of the activity that the callback waited for and that
            ended last, ABSENT without any.
        callback_is_inferred: bool[m], whether only the times say that it waited for the callback.

    Example row: ``(is_known=True, row=12, callback_id=ABSENT, row_before_callback=ABSENT,
    callback_is_inferred=False)``.
    """

    is_known: NDArray[np.bool_]
    row: Int64Array
    callback_id: Int64Array
    row_before_callback: Int64Array
    callback_is_inferred: NDArray[np.bool_]


def find_node_predecessors(timeline: Timeline) -> NodePredecessors:
    """Find what each row had to wait for as a node of a graph.

    The slow reference model is ``tests/reference/node_predecessors.py``.
    """
    trace, row_count = timeline.trace, len(timeline.event_id)
    has_callbacks = len(trace.of_category(Category.GRAPH_HOST_NODE)) > 0
    if not (len(trace.graph_nodes.successor_id) or has_callbacks):  # as in nearly all files
        is_none = np.zeros(row_count, dtype=np.bool_)
        nothing = np.full(row_count, ABSENT, dtype=np.int64)
        return NodePredecessors(is_none, nothing, nothing, nothing, is_none)
    row_of = np.full(len(trace) + 1, ABSENT, dtype=np.int64)  # the last one is ABSENT's
    row_of[timeline.event_id] = np.arange(row_count)
    source_id, target_id = _sorted_dependencies(trace)
    activity_before, callback_before = _before_other_nodes(trace, row_of, source_id, target_id)
    is_callback = trace.category == Category.GRAPH_HOST_NODE
    is_of_row = row_of[target_id] != ABSENT
    source_id, row = source_id[is_of_row], row_of[target_id[is_of_row]]
    # In the place of a recorded event comes what was before it.
    is_activity = row_of[source_id] != ABSENT
    activity_id = np.where(is_activity, source_id, activity_before[source_id])
    activity_id = np.where(is_callback[source_id], ABSENT, activity_id)
    callback_id = np.where(is_callback[source_id], source_id, callback_before[source_id])
    last_callback_id = _last_of_each(row_count, row, callback_id, trace.end_ns)
    before_callback_id = np.where(
        last_callback_id == ABSENT, ABSENT, activity_before[last_callback_id]
    )
    is_known = np.zeros(row_count, dtype=np.bool_)
    is_known[row] = True
    inferred_id = _callbacks_just_before(timeline)
    is_later = last_callback_id == ABSENT
    is_later |= trace.end_ns[inferred_id] > trace.end_ns[last_callback_id]
    is_inferred = (inferred_id != ABSENT) & is_later
    return NodePredecessors(
        is_known=is_known,
        row=row_of[_last_of_each(row_count, row, activity_id, trace.end_ns)],
        callback_id=np.where(is_inferred, inferred_id, last_callback_id),
        row_before_callback=np.where(
            is_inferred, _row_before_in_stream(timeline), row_of[before_callback_id]
        ),
        callback_is_inferred=is_inferred,
    )


def _sorted_dependencies(trace: Trace) -> tuple[Int64Array, Int64Array]:
    """The dependencies by start of the second event: twice int64[l], event ids."""
    source_id, target_id = trace.graph_nodes.predecessor_id, trace.graph_nodes.successor_id
    forward = runs_forward(trace, source_id, target_id)
    source_id, target_id = source_id[forward], target_id[forward]
    order = np.lexsort((target_id, trace.start_ns[target_id]))
    return source_id[order], target_id[order]


def _before_other_nodes(
    trace: Trace, row_of: Int64Array, source_id: Int64Array, target_id: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the predecessors of callbacks and recorded events.

    Args:
        trace: the file's events.
        row_of: int64[n + 1], the timeline row of each event, else ABSENT.
        source_id: int64[l], event ids of predecessors.
        target_id: int64[l], event ids of what waited for each of them, by start.

    Returns:
        twice int64[n], of each of these nodes: event id of the activity that ended last before it,
        whatever other nodes lie between, and of the callback that ended last before it, with none
        but recorded events between; else ABSENT.
    """
    activity_before, callback_before = np.full((2, len(trace)), ABSENT, dtype=np.int64)
    sources_of: dict[int, list[int]] = defaultdict(list)
    is_other = row_of[target_id] == ABSENT
    pairs = source_id[is_other].tolist(), target_id[is_other].tolist()
    for source, target in zip(*pairs, strict=True):
        sources_of[target].append(source)
    for target, sources in sources_of.items():  # by start: what is before the sources is known
        source = np.array(sources)
        is_activity = row_of[source] != ABSENT
        is_callback = trace.category[source] == Category.GRAPH_HOST_NODE
        activity_before[target] = _ended_last(
            trace, np.where(is_activity, source, activity_before[source])
        )
        callback_before[target] = _ended_last(
            trace, np.where(is_callback, source, callback_before[source])
        )
    return activity_before, callback_before


def _ended_last(trace: Trace, event_id: Int64Array) -> int:
    """Return the event that ended last, the highest id of several; ABSENT without any."""
    event_id = np.sort(event_id[event_id != ABSENT])[::-1]
    return int(event_id[trace.end_ns[event_id].argmax()]) if len(event_id) else ABSENT


def _last_of_each(
    row_count: int, row: Int64Array, event_id: Int64Array, end_ns: Int64Array
) -> Int64Array:
    """Return the event of each row that ended last: int64[row_count], ABSENT without any.

    >>> row, event_id, end_ns = np.array([0, 0, 2]), np.array([1, 0, -1]), np.array([30, 20])
    >>> _last_of_each(3, row, event_id, end_ns).tolist()
    [0, -1, -1]
    """
    last_id = np.full(row_count, ABSENT, dtype=np.int64)
    pair = np.flatnonzero(event_id != ABSENT)
    pair = pair[np.lexsort((event_id[pair], end_ns[event_id[pair]]))]
    last_id[row[pair]] = event_id[pair]  # the last assignment stays
    return last_id


def _callbacks_just_before(timeline: Timeline) -> Int64Array:
    """The callback without dependencies that ended just before each row, in its stream.

    Only before nodes of graphs, and after all before them in their stream.

    Returns:
        int64[m], event ids, else ABSENT.
    """
    trace, row_count = timeline.trace, len(timeline.event_id)
    callback_id = np.full(row_count, ABSENT, dtype=np.int64)
    candidate_id = trace.of_category(Category.GRAPH_HOST_NODE)
    candidate_id = candidate_id[~np.isin(candidate_id, trace.graph_nodes.predecessor_id)]
    candidate_id = candidate_id[np.argsort(trace.end_ns[candidate_id], kind="stable")]
    if not len(candidate_id):
        return callback_id
    is_node = replayed(timeline)
    row_before = _row_before_in_stream(timeline)
    for stream in timeline.streams:
        of_stream = candidate_id[trace.device_number[candidate_id] == stream.device_number]
        of_stream = of_stream[trace.stream_number[of_stream] == stream.stream_number]
        row = stream.first_row + np.flatnonzero(is_node[stream.first_row : stream.end_row])
        position = np.searchsorted(trace.end_ns[of_stream], timeline.start_ns[row], "right") - 1
        row, event_id = row[position >= 0], of_stream[position[position >= 0]]
        end_ns = trace.end_ns[event_id]
        is_just_before = timeline.start_ns[row] - end_ns <= MAX_WAKE_UP_NS
        is_just_before &= (row_before[row] == ABSENT) | (timeline.end_ns[row_before[row]] <= end_ns)
        callback_id[row[is_just_before]] = event_id[is_just_before]
    return callback_id


def _row_before_in_stream(timeline: Timeline) -> Int64Array:
    """The row before each one in its stream, ABSENT for the first: int64[m]."""
    row = np.arange(len(timeline.event_id), dtype=np.int64)
    stream_index = timeline.stream_index
    is_first = np.diff(stream_index, prepend=ABSENT) != 0
    return np.where(is_first, ABSENT, row - 1)


# Limit of dependencies through nodes that are no activities, beyond four for each one of the file.
# A graph has few such nodes; in a damaged file their number may grow with the square of its size.
_MAX_PASSED_ON = 1_000_000


def node_dependencies(timeline: Timeline) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of rows of a timeline: within one replay the second had to end before the first.

    A node that is no activity, such as a host function, waits for others in its turn: what
    it waits for is what its successors wait for. Beyond a million of such pairs, and four for each
    dependency of the file, they are left out.

    Returns:
        twice intp[p]: rows, and the rows of their predecessors; each pair once.
    """
    trace, nodes = timeline.trace, timeline.trace.graph_nodes
    is_activity = np.isin(trace.category, GPU_ACTIVITIES)
    by_successor = np.argsort(nodes.successor_id, kind="stable")
    predecessor_id = nodes.predecessor_id[by_successor]
    successor_id = nodes.successor_id[by_successor]
    forward = runs_forward(trace, predecessor_id, successor_id)
    predecessor_id, successor_id = predecessor_id[forward], successor_id[forward]
    of_activity = is_activity[successor_id]
    open_pairs = np.stack((predecessor_id[of_activity], successor_id[of_activity]), axis=1)
    found = [np.zeros((0, 2), dtype=np.int64)]
    left = _MAX_PASSED_ON + 4 * len(predecessor_id)
    while len(open_pairs):
        is_found = is_activity[open_pairs[:, 0]]
        found.append(open_pairs[is_found])
        through, waiting = open_pairs[~is_found].T
        first = np.searchsorted(successor_id, through)
        end = np.searchsorted(successor_id, through, side="right")
        left -= int((end - first).sum())
        if left < 0:
            break
        index, link_index = expand_ranges(first, end)
        open_pairs = np.unique(
            np.stack((predecessor_id[link_index], waiting[index]), axis=1), axis=0
        )
    pairs = np.unique(np.concatenate(found), axis=0)
    return rows_of(timeline.event_id, pairs[:, 1]), rows_of(timeline.event_id, pairs[:, 0])


def runs_forward(
    trace: Trace, predecessor_id: Int64Array, successor_id: Int64Array
) -> NDArray[np.bool_]:
    """bool[l], which dependencies lead to what began later; of equal starts to a later event.

    A node may begin while its predecessor still runs, but not before it. So no way leads in a
    circle, whatever a file says.
    """
    before_ns, after_ns = trace.start_ns[predecessor_id], trace.start_ns[successor_id]
    is_later = predecessor_id < successor_id
    forward: NDArray[np.bool_] = (before_ns < after_ns) | ((before_ns == after_ns) & is_later)
    return forward
