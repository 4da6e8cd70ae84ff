"""All that a file has recorded, as a program that runs once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.model.graph import Graph
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.gpu_edges import gpu_edges
from tracelab.simulate.host_edges import launch_edges, wait_edges, work_edges
from tracelab.simulate.nodes import Edges, Nodes, find_nodes
from tracelab.simulate.program import NodeKind, Program


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recorded(Frozen):
    """A whole file as a program that runs once, and what is needed to cut steps out of it.

    Attributes:
        program: the file; no edge has a lag.
        sequence: intp[n], of each node its thread or stream: threads first, then streams.
        host_ns: int64[n], ns, when the host began the call of each node, or the one that launched
            it; ABSENT where the file does not have that.

    Example row: ``(sequence=1, host_ns=4_000)``.
    """

    program: Program
    sequence: NDArray[np.intp]
    host_ns: Int64Array


def record_program(graph: Graph) -> Recorded:
    """The program of a file.

    There is no slow reference model: tests have programs made by hand, and the replay of real
    captures is compared with what was measured.
    """
    timeline, nodes = graph.host.timeline, find_nodes(graph.host)
    calls, host_call = nodes.calls, nodes.host_call
    cost_ns, waits = wait_edges(graph, nodes)
    between_rows = [
        replace(of, source=nodes.activity[of.source], target=nodes.activity[of.target])
        for of in gpu_edges(graph)
    ]
    all_edges = [*work_edges(graph, nodes), *launch_edges(graph, nodes), *between_rows, *waits]
    order = _order(timeline, nodes)
    begun_ns = calls.begin_ns[host_call]
    launched_ns = np.where(nodes.is_launched, calls.begin_ns[nodes.launch_call], ABSENT)
    of_thread = calls.thread_index[host_call].astype(np.intp)
    of_stream = len(timeline.trace.threads) + timeline.stream_index
    return Recorded(
        program=_program(timeline, nodes, cost_ns, all_edges, order),
        sequence=np.concatenate((of_thread, of_stream))[order],
        host_ns=np.concatenate((begun_ns, launched_ns))[order],
    )


def _order(timeline: Timeline, nodes: Nodes) -> NDArray[np.intp]:
    """intp[n], the nodes as they can be computed: activities as they started, calls as they ended.

    Of one moment the begins of calls come first, then their returns, then activities.
    """
    calls = nodes.calls
    moment_ns = np.concatenate((calls.end_ns, calls.begin_ns[nodes.begin_call], timeline.start_ns))
    rank = np.repeat((1, 0, 2), (len(calls), len(nodes.begin_call), len(nodes.activity)))
    return np.lexsort((np.arange(len(nodes)), rank, moment_ns))


def _program(
    timeline: Timeline,
    nodes: Nodes,
    cost_ns: Int64Array,
    all_edges: Sequence[Edges],
    order: NDArray[np.intp],
) -> Program:
    """The nodes in order with their edges; an edge that runs against the order is left out."""
    calls, host_call = nodes.calls, nodes.host_call
    begin_count, no_activity = len(nodes.begin_call), np.full(len(host_call), ABSENT)
    no_thread = np.full(len(nodes.activity), ABSENT)
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    moment_ns = np.concatenate((calls.end_ns, calls.begin_ns[nodes.begin_call], timeline.end_ns))[
        order
    ]
    edge = {
        field.name: np.concatenate([getattr(of, field.name) for of in all_edges])
        for field in fields(Edges)
    }
    source, target = position[edge["source"]], position[edge["target"]]
    is_forward = source < target
    kind = np.repeat(
        (NodeKind.CALL, NodeKind.BEGIN, NodeKind.ACTIVITY),
        (len(calls), begin_count, len(nodes.activity)),
    )
    launch_node = np.where(nodes.is_launched, position[nodes.launch_call], ABSENT)
    length_ns = timeline.end_ns - timeline.start_ns
    by_node: dict[str, NDArray[Any]] = {
        "kind": kind.astype(np.int8),
        "event_id": np.concatenate((calls.event_id[host_call], timeline.event_id)),
        "row": np.concatenate((no_activity, np.arange(len(nodes.activity)))),
        "cost_ns": np.concatenate((cost_ns, np.zeros(begin_count, dtype=np.int64), length_ns)),
        "thread_index": np.concatenate((calls.thread_index[host_call], no_thread)).astype(np.int32),
        "stream_index": np.concatenate((no_activity, timeline.stream_index)),
        "activity_kind": np.concatenate((no_activity, timeline.kind)).astype(np.int8),
        "launch_node": np.concatenate((no_activity, launch_node)),
    }
    return Program(
        **{name: column[order] for name, column in by_node.items()},
        moment_ns=moment_ns,
        source=source[is_forward],
        target=target[is_forward],
        via=edge["via"][is_forward],
        lag=np.zeros(int(is_forward.sum()), dtype=np.int8),
        latency_ns=edge["latency_ns"][is_forward],
        steps=1,
        length_ns=int(moment_ns.max() - moment_ns.min()),
        is_repeated=False,
    )
