"""One window of the graph for networkx, which is held and not subclassed."""

from __future__ import annotations

import networkx as nx
import numpy as np

from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import HOST_CALLS


def window_graph(graph: Graph, start_ns: int, end_ns: int) -> nx.DiGraph[int]:
    """The dependencies among what is seen in ``[start_ns, end_ns)``.

    Returns:
        a directed acyclic graph whose nodes are event ids, with attributes ``name``, ``kind``
        ("compute", "comm", "copy", "memset" or "call"), ``start_ns``, ``end_ns`` and, on the GPU,
        ``device`` and ``stream``, on the host ``thread``; its edges have ``kind``, an `EdgeKind`
        in small letters, and "event" edges ``inferred``, whether not the file but the times tell.
    """
    import networkx as nx

    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    end = trace.end_ns
    inside = (trace.start_ns < end_ns) & ((end > start_ns) | (trace.start_ns >= start_ns))
    network: nx.DiGraph[int] = nx.DiGraph()
    for event, kind in zip(timeline.event_id.tolist(), timeline.kind.tolist(), strict=True):
        if inside[event]:
            network.add_node(
                event,
                name=trace.name_of(event),
                kind=Kind(kind).name.lower(),
                start_ns=int(trace.start_ns[event]),
                end_ns=int(end[event]),
                device=int(trace.device_number[event]),
                stream=int(trace.stream_number[event]),
            )
    for event in trace.of_category(*HOST_CALLS).tolist():
        if inside[event]:
            network.add_node(
                event,
                name=trace.name_of(event),
                kind="call",
                start_ns=int(trace.start_ns[event]),
                end_ns=int(end[event]),
                thread=int(trace.thread_index[event]),
            )
    rows = np.flatnonzero(graph.awaited_is_inferred)
    waited = zip(timeline.event_id[graph.awaited_row[rows]], timeline.event_id[rows], strict=True)
    inferred = {(int(source), int(target)) for source, target in waited}
    chosen = inside[graph.source_id] & inside[graph.target_id]
    for source, target, kind in zip(
        graph.source_id[chosen].tolist(),
        graph.target_id[chosen].tolist(),
        graph.kind[chosen].tolist(),
        strict=True,
    ):
        if source in network and target in network:
            network.add_edge(source, target, kind=EdgeKind(kind).name.lower())
            if kind == EdgeKind.EVENT:
                network.edges[source, target]["inferred"] = (source, target) in inferred
    return network
