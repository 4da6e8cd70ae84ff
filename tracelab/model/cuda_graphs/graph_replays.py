"""Replays of CUDA graphs: the activities that each launch put on the GPU, in the graph's order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import Int64Array
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.lookup import match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class GraphReplays(Arrays):
    """The replays of a file, by launch, and the activities of each.

    Attributes:
        launch_id: int64[r], event ids of the calls that replayed a graph.
        graph_number: int64[r], `GraphNodes.graph_number`; ABSENT where the file does not say.
        is_ordered: bool[r], whether the order in which the nodes were captured is known.
        row: intp[n], timeline rows, replay after replay; in the order of the capture where that is
            known, else by start.
        first: intp[r + 1], the rows of replay *i* are ``row[first[i]:first[i + 1]]``.
    """

    launch_id: Int64Array
    graph_number: Int64Array
    is_ordered: NDArray[np.bool_]
    row: NDArray[np.intp]
    first: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.launch_id)

    def rows(self, index: int) -> NDArray[np.intp]:
        """The timeline rows of a replay, in order."""
        return self.row[self.first[index] : self.first[index + 1]]


def graph_replays(timeline: Timeline) -> GraphReplays:
    """The replays of a file.

    The nodes of a graph in one stream run in the order in which they were captured. Where a replay
    runs in several, what ran first was not always captured first: there the numbers of the nodes
    are the order, if within each stream they ascend. The slow reference model is
    ``tests/reference/origins.py``.
    """
    trace = timeline.trace
    rows = np.flatnonzero(replayed(timeline))
    launch_ids, index = np.unique(timeline.launch_id[rows], return_inverse=True)
    by_start = np.argsort(trace.start_ns[launch_ids], kind="stable")
    place = np.empty_like(by_start)
    place[by_start] = np.arange(len(by_start))
    replay = place[index]
    by_replay = np.argsort(replay, kind="stable")
    rows, replay = rows[by_replay], replay[by_replay]
    node_row = trace.graph_node_row[timeline.event_id[rows]]
    number = trace.graph_nodes.node_number[node_row]
    follows = np.diff(replay) == 0
    is_same_stream = np.diff(timeline.stream_index[rows]) == 0
    is_several = np.zeros(len(launch_ids), dtype=np.bool_)
    is_several[replay[1:][follows & ~is_same_stream]] = True
    is_unnumbered = np.zeros(len(launch_ids), dtype=np.bool_)
    is_unnumbered[replay[number == ABSENT]] = True
    is_unnumbered[replay[1:][follows & is_same_stream & (np.diff(number) <= 0)]] = True
    by_number = np.lexsort((number, replay))
    is_repeated = (np.diff(replay[by_number]) == 0) & (np.diff(number[by_number]) == 0)
    is_unnumbered[replay[by_number][1:][is_repeated]] = True
    is_ordered = ~is_several | ~is_unnumbered
    key = np.where((is_several & is_ordered)[replay], number, timeline.start_ns[rows])
    in_order = np.lexsort((np.arange(len(rows)), key, replay))
    first = np.searchsorted(replay, np.arange(len(launch_ids) + 1))
    return GraphReplays(
        launch_id=launch_ids[by_start],
        graph_number=_common(trace.graph_nodes.graph_number[node_row], replay, first),
        is_ordered=is_ordered,
        row=rows[in_order],
        first=first,
    )


def _common(values: Int64Array, group: NDArray[np.intp], first: NDArray[np.intp]) -> Int64Array:
    """int64[g], the value that all of a group (of rows in order) have, else ABSENT."""
    common = values[first[:-1]].copy()
    common[group[values != common[group]]] = ABSENT
    return common


_MIN_REPLAYED_SHARE = 0.5


def replayed(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], which timeline rows are nodes of a graph that was replayed."""
    is_launched = timeline.launch_id != ABSENT
    is_replayed = match_names(timeline.trace, timeline.launch_id, is_graph_launch)
    found: NDArray[np.bool_] = is_launched & is_replayed
    return found


def mostly_replays(timeline: Timeline) -> bool:
    """True if more than half of what the file launches is replayed: its program uses graphs."""
    launched = int((timeline.launch_id != ABSENT).sum())
    return bool(launched) and int(replayed(timeline).sum()) > _MIN_REPLAYED_SHARE * launched
