"""One window of the graph as a plain networkx graph, so that networkx code works on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.constraints import Constraint
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT, HOST_CALLS

if TYPE_CHECKING:
    import networkx as nx

Attributes = dict[str, Any]


def window_graph(graph: Graph, start_ns: int, end_ns: int) -> nx.DiGraph[int]:
    """The dependencies among what is seen in ``[start_ns, end_ns)``.

    Returns:
        a directed acyclic graph whose nodes are event ids, with attributes ``name``, ``kind``
        ("compute", "comm", "copy", "memset" or "call"), ``start_ns``, ``end_ns`` and, on the GPU,
        ``device``, ``stream`` and what it waited for: ``constraint``, a `Constraint` in small
        letters, and ``unexplained_ns``; on the host ``thread``. Its edges have ``kind``, an
        `EdgeKind` in small letters, and ``binding``, whether this is what its target, an activity,
        waited for; then ``delay_ns`` is how much earlier it could have started without it, None
        where nothing else was in its way. "event" and "queue" edges have ``inferred``, whether
        they are inferred from the times and not recorded.
    """
    import networkx as nx

    trace = graph.host.timeline.trace
    is_inside = (trace.start_ns < end_ns) & (
        (trace.end_ns > start_ns) | (trace.start_ns >= start_ns)
    )
    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_nodes_from(_activities(graph, is_inside))
    network.add_nodes_from(_calls(graph, is_inside))
    network.add_edges_from(
        (source, target, attributes)
        for source, target, attributes in _edges(graph, is_inside)
        if source in network and target in network
    )
    return network


def _activities(graph: Graph, is_inside: NDArray[np.bool_]) -> Iterator[tuple[int, Attributes]]:
    """The GPU activities among the events inside (bool[n]), with their attributes."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    columns = (
        timeline.event_id,
        timeline.kind,
        graph.binding.constraint,
        graph.binding.unexplained_ns,
    )
    for event_id, kind, constraint, unexplained_ns in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if is_inside[event_id]:
            yield (
                event_id,
                {
                    "name": trace.name_of(event_id),
                    "kind": Kind(kind).name.lower(),
                    "start_ns": int(trace.start_ns[event_id]),
                    "end_ns": int(trace.end_ns[event_id]),
                    "device": int(trace.device_number[event_id]),
                    "stream": int(trace.stream_number[event_id]),
                    "constraint": Constraint(constraint).name.lower(),
                    "unexplained_ns": unexplained_ns,
                },
            )


def _calls(graph: Graph, is_inside: NDArray[np.bool_]) -> Iterator[tuple[int, Attributes]]:
    """The host's calls among the events inside, with their attributes."""
    trace = graph.host.timeline.trace
    for event_id in trace.of_category(*HOST_CALLS).tolist():
        if is_inside[event_id]:
            yield (
                event_id,
                {
                    "name": trace.name_of(event_id),
                    "kind": "call",
                    "start_ns": int(trace.start_ns[event_id]),
                    "end_ns": int(trace.end_ns[event_id]),
                    "thread": int(trace.thread_index[event_id]),
                },
            )


def _edges(graph: Graph, is_inside: NDArray[np.bool_]) -> Iterator[tuple[int, int, Attributes]]:
    """The edges between events inside, with their attributes."""
    timeline, binding = graph.host.timeline, graph.binding
    has_row = binding.source_row != ABSENT
    source_id = np.where(has_row, timeline.event_id[binding.source_row], timeline.launch_id)
    is_bound = (binding.constraint != Constraint.UNKNOWN) & (source_id != ABSENT)
    delay_of = dict(
        zip(
            _pairs(source_id[is_bound], timeline.event_id[is_bound]),
            binding.delay_ns[is_bound].tolist(),
            strict=True,
        )
    )
    event_id = timeline.event_id[binding.event_row]
    inferred = {
        *_pairs(event_id[binding.event_is_inferred], timeline.event_id[binding.event_is_inferred]),
        *_pairs(source_id[binding.is_inferred], timeline.event_id[binding.is_inferred]),
    }
    chosen = is_inside[graph.source_id] & is_inside[graph.target_id]
    columns = (graph.source_id[chosen], graph.target_id[chosen], graph.kind[chosen])
    for source, target, kind in zip(*(column.tolist() for column in columns), strict=True):
        delay_ns = delay_of.get((source, target))
        attributes: Attributes = {
            "kind": EdgeKind(kind).name.lower(),
            "binding": delay_ns is not None,
        }
        if kind in (EdgeKind.EVENT, EdgeKind.QUEUE):
            attributes["inferred"] = (source, target) in inferred
        if delay_ns is not None:
            attributes["delay_ns"] = None if delay_ns == ABSENT else delay_ns
        yield source, target, attributes


def _pairs(source_id: Int64Array, target_id: Int64Array) -> Iterator[tuple[int, int]]:
    return zip(source_id.tolist(), target_id.tolist(), strict=True)
