"""Which activities of a CUDA graph's replay had to wait for which, as the file says it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.lookup import expand_ranges, rows_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import GPU_ACTIVITIES, Trace

# Dependencies through nodes that are no activities, beyond four for each one of the file: a graph
# has few such nodes, and those of a damaged file may stand for the square of what it holds.
_MOST_PASSED_ON = 1_000_000


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
    left = _MOST_PASSED_ON + 4 * len(predecessor_id)
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
