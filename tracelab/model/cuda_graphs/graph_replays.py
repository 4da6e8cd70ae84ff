"""Replays of CUDA graphs: the activities that each launch put on the GPU, in the graph's order."""

from __future__ import annotations

import numpy as np

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import BoolArray, IndexArray, Int64Array
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.lookup import match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT


class GraphReplays(Arrays):
    """The replays of a file, by launch, and the activities of each.

    Attributes:
        launch_id: [r], the calls that replayed a graph.
        is_ordered: whether it ran in one stream, so that its nodes are in the order in which they
            were captured.
        row: [n], timeline rows, replay after replay, by start.
        first: [r + 1], the rows of replay *i* are ``row[first[i]:first[i + 1]]``.
    """

    launch_id: Int64Array
    is_ordered: BoolArray
    row: IndexArray
    first: IndexArray

    def __len__(self) -> int:
        return len(self.launch_id)

    def rows(self, index: int) -> IndexArray:
        """The timeline rows of a replay, in order."""
        return self.row[self.first[index] : self.first[index + 1]]


def graph_replays(timeline: Timeline) -> GraphReplays:
    """The replays of a file; the slow reference model is ``tests/reference/origins.py``."""
    rows = np.flatnonzero(replayed(timeline))
    launch_ids, index = np.unique(timeline.launch_id[rows], return_inverse=True)
    by_start = np.argsort(timeline.trace.start_ns[launch_ids], kind="stable")
    place = np.empty_like(by_start)
    place[by_start] = np.arange(len(by_start))
    replay = place[index]
    in_order = np.lexsort((timeline.start_ns[rows], replay))
    rows, replay = rows[in_order], replay[in_order]
    is_ordered = np.ones(len(launch_ids), dtype=np.bool_)
    is_other_stream = np.diff(timeline.stream_index[rows]) != 0
    is_ordered[replay[1:][(np.diff(replay) == 0) & is_other_stream]] = False
    return GraphReplays(
        launch_id=launch_ids[by_start],
        is_ordered=is_ordered,
        row=rows,
        first=np.searchsorted(replay, np.arange(len(launch_ids) + 1)),
    )


_MIN_REPLAYED_SHARE = 0.5


def replayed(timeline: Timeline) -> BoolArray:
    """[m], which timeline rows are nodes of a graph that was replayed."""
    is_launched = timeline.launch_id != ABSENT
    is_replayed = match_names(timeline.trace, timeline.launch_id, is_graph_launch)
    found: BoolArray = is_launched & is_replayed
    return found


def mostly_replays(timeline: Timeline) -> bool:
    """True if more than half of what the file launches is replayed: its program uses graphs."""
    launched = int((timeline.launch_id != ABSENT).sum())
    return bool(launched) and int(replayed(timeline).sum()) > _MIN_REPLAYED_SHARE * launched
