"""The nodes of CUDA graphs while a file is read: which they are, and what each waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.trace import ABSENT, GraphNodes
from tracelab.read.json.arguments import IS_NODE
from tracelab.read.json.buffers import ColumnBuffers, KeyTable
from tracelab.read.json.events import Event, NodeArguments
from tracelab.read.json.numbers import nanoseconds, natural_numbers

# Flows from node to node have ids from here on; below are those from launches, by correlation.
_FIRST_LINK_ID = 2**40
_LINK_CATEGORY = "ac2g"  # tracelab's own arrows have others, and ids of any size
_NO_ANNOTATION = ""

_Lane = tuple[str, str]  # a row of the file: process and thread as text


class NodeBuffers:
    """Collects the rows of a `GraphNodes`, and the flows between nodes, from pieces of a file.

    >>> from tracelab.read.json.events import decode
    >>> args = b'{"graph node id": 4, "graph id": 1, "str": "forward", "stream": 7}'
    >>> buffers = NodeBuffers()
    >>> buffers.add(decode(b'[{"ph": "X", "args": %b}, {"ph": "X"}]' % args), np.zeros(2, np.int8))
    array([ 0, -1], dtype=int32)
    """

    def __init__(self) -> None:
        self._annotations = KeyTable(str)
        self._rows = ColumnBuffers()
        self._count = 0
        self._flows: list[Event] = []

    def __len__(self) -> int:
        return self._count

    def add(self, events: list[Event], category: NDArray[np.int8]) -> NDArray[np.int32]:
        """Take the rows of these events.

        Args:
            events: any.
            category: int8[n], their categories.

        Returns:
            int32[n], each event's row, ABSENT for those that are no nodes of a graph.
        """
        row = np.full(len(events), ABSENT, dtype=np.int32)
        chosen = np.flatnonzero(IS_NODE[category]).tolist()
        nodes = [None if (arguments := events[i].args) is None else arguments.node for i in chosen]
        chosen = [i for i, node in zip(chosen, nodes, strict=True) if node is not None]
        if chosen:
            row[chosen] = np.arange(self._count, self._count + len(chosen))
            self._count += len(chosen)
            self._rows.append(self._columns([node for node in nodes if node is not None]))
        return row

    def add_flows(self, events: Iterable[Event]) -> None:
        """Take those of these events, of any phase, that are ends of flows from node to node."""
        self._flows += [
            event
            for event in events
            if event.cat == _LINK_CATEGORY
            and event.ph in ("s", "f")
            and type(event.id) is int
            and event.id >= _FIRST_LINK_ID
        ]

    def add_all(self, following: NodeBuffers) -> None:
        """Take what follows in the file; its rows come after all that are here."""
        self._flows += following._flows
        rows = following._rows.arrays()
        if not rows:
            return
        new_index = self._annotations.indices(following._annotations.rows)
        index = rows["annotation_index"]
        if len(new_index):
            rows["annotation_index"] = np.where(index == ABSENT, index, new_index[index])
        self._rows.append(rows)
        self._count += following._count

    def finish(
        self,
        lanes: Mapping[_Lane, int],
        dense: Mapping[str, NDArray[Any]],
        node_row: NDArray[np.int32],
        correlation: Int64Array,
    ) -> tuple[GraphNodes, int]:
        """All the rows, and the dependencies between them; afterward nothing can be added.

        A flow names its ends only by where they are drawn: from the end of a node to the start of
        one of the same replay.

        Args:
            lanes: index by process and thread, as in `thread_index`.
            dense: `start_ns`, `duration_ns` (int64[n], ns) and `thread_index` (int32[n]).
            node_row: int32[n], the row of each event, ABSENT for those that are no nodes.
            correlation: int64[n], that of the replay.

        Returns:
            the nodes, and how many dependencies have an end that no node fits.
        """
        if not self._count:
            self._rows.append(self._columns([]))
        self._rows.append_absent()
        columns: dict[str, Any] = self._rows.arrays()
        event_id = np.flatnonzero(node_row != ABSENT)
        start_ns = dense["start_ns"][event_id]
        lane_index = dense["thread_index"][event_id]
        replay = correlation[event_id]
        of_end = _nodes_at(event_id, lane_index, start_ns + dense["duration_ns"][event_id], replay)
        of_start = _nodes_at(event_id, lane_index, start_ns, replay)
        ends = _ends_by_id(self._flows, lanes)
        pair_of = {
            (begin, end): _find_replay_pair(of_end.get(begin, {}), of_start.get(end, {}))
            for begin, end in set(ends.values())
        }
        pairs = [pair for places in ends.values() if (pair := pair_of[places]) is not None]
        predecessor_id, successor_id = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        nodes = GraphNodes(
            **columns,
            annotations=tuple(self._annotations.rows),
            predecessor_id=predecessor_id.copy(),
            successor_id=successor_id.copy(),
        )
        return nodes, len(ends) - len(pairs)

    def _columns(self, nodes: list[NodeArguments]) -> dict[str, NDArray[Any]]:
        index = self._annotations.indices([node.annotation for node in nodes if node.annotation])
        annotation_index = np.full(len(nodes), ABSENT, dtype=np.int32)
        annotation_index[[bool(node.annotation) for node in nodes]] = index
        graph_number, node_number = (
            natural_numbers(list(map(attrgetter(field), nodes))) for field in ("graph", "node")
        )
        return {
            "graph_number": graph_number,
            "node_number": node_number,
            "annotation_index": annotation_index,
        }


_Place = tuple[int, int]  # index of the lane, ns


def _nodes_at(
    event_id: NDArray[np.intp],
    lane_index: NDArray[np.int32],
    time_ns: Int64Array,
    correlation: Int64Array,
) -> dict[_Place, dict[int, list[int]]]:
    """The first two nodes that end, or start, at one place, of each replay by its correlation."""
    places: dict[_Place, dict[int, list[int]]] = defaultdict(dict)
    for one_id, lane, moment, replay in zip(
        event_id.tolist(), lane_index.tolist(), time_ns.tolist(), correlation.tolist(), strict=True
    ):
        nodes = places[lane, moment].setdefault(replay, [])
        if len(nodes) < 2:
            nodes.append(one_id)
    return places


def _ends_by_id(flows: list[Event], lanes: Mapping[_Lane, int]) -> dict[int, tuple[_Place, _Place]]:
    """Return the start and end of each flow, by id; a flow with a single end does not count."""
    time_ns, _ = nanoseconds([flow.ts for flow in flows])
    begins: dict[int, _Place] = {}
    ends: dict[int, _Place] = {}
    for flow, moment in zip(flows, time_ns.tolist(), strict=True):
        lane = lanes.get((str(flow.pid), str(flow.tid)), ABSENT)
        (begins if flow.ph == "s" else ends)[flow.id] = (lane, moment)
    return {key: (begins[key], ends[key]) for key in begins.keys() & ends.keys()}


def _find_replay_pair(
    predecessors: Mapping[int, list[int]], successors: Mapping[int, list[int]]
) -> tuple[int, int] | None:
    """Return the first two nodes at both ends of a flow that one launch put on the GPU."""
    for replay, candidates in predecessors.items():
        for first in candidates:
            for second in successors.get(replay, ()):
                if first != second:
                    return first, second
    return None
