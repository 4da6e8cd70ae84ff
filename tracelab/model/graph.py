"""What depends on what: edges between the host's calls and the GPU's activities.

The nodes are event ids. No edge runs against time; one that would is left out and counted, so the
graph is acyclic. Measures of the whole file use the columns; `window_graph` gives one window as a
plain `networkx.DiGraph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.model.binding import Binding, bind
from tracelab.model.constraints import Awaited, Constraint
from tracelab.model.cuda_graphs.node_dependencies import node_dependencies
from tracelab.model.cuda_graphs.node_predecessors import find_node_predecessors
from tracelab.model.edges import (
    Edges,
    host_edges,
    launch_edges,
    pure_waits,
    stream_edges,
    sync_edges,
    wake_up_ns,
)
from tracelab.model.host import Host
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, Category
from tracelab.model.waits.stream_progress import StreamProgress
from tracelab.model.waits.stream_queues import StreamQueues
from tracelab.model.waits.stream_waits import StreamWaits, resolve_waits
from tracelab.model.waits.wait_records import follows_wait_call


class EdgeKind(IntEnum):
    """Why the target could not come before the source."""

    LAUNCH = 0  # a host call put the activity on the GPU
    STREAM = 1  # a stream begins its activities in order, and as a rule ends one before the next
    HOST = 2  # a thread makes its calls in order
    SYNC = 3  # a blocking call returned only after the activity
    EVENT = 4  # a stream, or a node of a CUDA graph, waited for the activity
    QUEUE = 5  # both streams share a hardware queue or copy engine, and it was launched before


@dataclass(frozen=True, slots=True)
class EventLinks:
    """How many stream waits are known to have waited for what.

    Example: ``EventLinks(exact=0, inferred=12, unresolved=3)``, as in a stock file.

    Attributes:
        exact: the file names the event record.
        inferred: the file does not, but the times show what the wait delayed, and until when.
        unresolved: neither does: the wait delayed nothing, or nothing matches.
    """

    exact: int
    inferred: int
    unresolved: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph(Frozen):
    """The dependencies of a whole file.

    Example row: ``(source_id=41, target_id=84, kind=EdgeKind.LAUNCH)``: the call 41 put the
    activity 84 on the GPU.

    Attributes:
        host: the host side, and through it the timeline.
        source_id, target_id: int64[e], event ids.
        kind: int8[e], an `EdgeKind`.
        binding: what each activity waited for.
        links: how many stream waits are resolved.
        against_time: edges left out because they would run backwards.
    """

    host: Host
    source_id: Int64Array
    target_id: Int64Array
    kind: NDArray[np.int8]
    binding: Binding
    links: EventLinks
    against_time: int


def build_graph(host: Host) -> Graph:
    """Find the dependencies of a timeline with its host."""
    timeline = host.timeline
    queues = StreamQueues(timeline)
    progress = StreamProgress(timeline, queues)
    waits = _with_nodes(timeline, resolve_waits(timeline, queues, progress))
    edges_of = {
        EdgeKind.LAUNCH: launch_edges(timeline),
        EdgeKind.STREAM: stream_edges(timeline),
        EdgeKind.HOST: host_edges(host),
        EdgeKind.SYNC: sync_edges(host, queues),
        EdgeKind.EVENT: (timeline.event_id[waits.source_row], timeline.event_id[waits.row]),
    }
    source_id, target_id, kind = _columns(edges_of)
    forward = _run_forward(host, source_id, target_id, kind)
    is_sync = forward & (kind == EdgeKind.SYNC)
    binding = bind(
        host,
        queues,
        progress,
        _awaited(timeline, waits, forward[kind == EdgeKind.EVENT]),
        find_node_predecessors(timeline),
        wake_up_ns(host, source_id[is_sync], target_id[is_sync]),
    )
    found_source_id, found_target_id, found_kind = _columns(_found_edges(timeline, binding))
    return Graph(
        host=host,
        source_id=np.concatenate((source_id[forward], found_source_id)),
        target_id=np.concatenate((target_id[forward], found_target_id)),
        kind=np.concatenate((kind[forward], found_kind)),
        binding=binding,
        links=EventLinks(waits.exact_count, waits.inferred_count, waits.unresolved_count),
        against_time=int((~forward).sum()),
    )


def _with_nodes(timeline: Timeline, waits: StreamWaits) -> StreamWaits:
    """The same, and what nodes of graphs waited for on other streams."""
    row, source_row = node_dependencies(timeline)
    is_other: NDArray[np.bool_] = timeline.stream_index[row] != timeline.stream_index[source_row]
    no_flags = np.zeros(np.count_nonzero(is_other), dtype=np.bool_)
    return replace(
        waits,
        row=np.concatenate((waits.row, row[is_other])),
        source_row=np.concatenate((waits.source_row, source_row[is_other])),
        is_inferred=np.concatenate((waits.is_inferred, no_flags)),
        is_peer_copy=np.concatenate((waits.is_peer_copy, no_flags)),
    )


def _columns(edges_of: Mapping[EdgeKind, Edges]) -> tuple[Int64Array, Int64Array, NDArray[np.int8]]:
    """The sources, targets and kinds of edges of several kinds."""
    source_id, target_id = (np.concatenate(ids) for ids in zip(*edges_of.values(), strict=True))
    counts = [len(sources) for sources, _ in edges_of.values()]
    return source_id, target_id, np.repeat(list(edges_of), counts).astype(np.int8)


def _found_edges(timeline: Timeline, binding: Binding) -> Mapping[EdgeKind, Edges]:
    """What only the binding tells: the waits, and the hardware queues, that delayed late starts."""
    has_source = binding.source_row != ABSENT
    # Nodes of a graph in one queue are mostly in one stream, which has its own edges.
    is_queued = binding.constraint == Constraint.QUEUE
    is_queued &= timeline.stream_index[binding.source_row] != timeline.stream_index
    of_wait = has_source & (binding.constraint == Constraint.EVENT)
    of_wait &= binding.source_row != binding.event_row
    rows_of = {
        EdgeKind.EVENT: np.flatnonzero(of_wait),
        EdgeKind.QUEUE: np.flatnonzero(is_queued),
    }
    return {
        kind: (timeline.event_id[binding.source_row[rows]], timeline.event_id[rows])
        for kind, rows in rows_of.items()
    }


def _awaited(timeline: Timeline, waits: StreamWaits, forward: NDArray[np.bool_]) -> Awaited:
    """What each row waited for that ended last.

    Args:
        timeline: whose rows they are.
        waits: pairs of rows.
        forward: bool[p], which pairs respect time; the others do not count.
    """
    by_end = np.flatnonzero(forward)
    by_end = by_end[np.argsort(timeline.end_ns[waits.source_row[by_end]], kind="stable")]
    row = np.full(len(timeline.event_id), ABSENT, dtype=np.int64)
    row[waits.row[by_end]] = waits.source_row[by_end]
    is_inferred, is_peer_copy = np.zeros((2, len(row)), dtype=np.bool_)
    is_inferred[waits.row[by_end]] = waits.is_inferred[by_end]
    is_peer_copy[waits.row[by_end]] = waits.is_peer_copy[by_end]
    # Without CUPTI's rows not even the waiting stream is known.
    has_sync_rows = len(timeline.trace.of_category(Category.SYNC)) > 0
    any_stream_waits = not has_sync_rows and waits.unresolved_count > 0
    return Awaited(
        row=row,
        is_inferred=is_inferred,
        is_peer_copy=is_peer_copy,
        after_unresolved_wait=waits.after_unresolved_wait,
        follows_wait_call=follows_wait_call(timeline) & any_stream_waits,
        any_stream_waits=any_stream_waits,
    )


def _run_forward(
    host: Host, source_id: Int64Array, target_id: Int64Array, kind: NDArray[np.int8]
) -> NDArray[np.bool_]:
    """bool[e], which edges respect time.

    Each node has a moment (a pure wait its end, all else its start) and, among equal moments, a
    rank: waits, calls, activities, then the order of the stream or the thread. Every edge must lead
    to a later node.
    """
    trace = host.timeline.trace
    start_ns, end_ns = trace.start_ns, trace.end_ns
    is_wait = pure_waits(host)
    moment_ns = np.where(is_wait, end_ns, start_ns)
    is_node = np.zeros(len(trace), dtype=np.bool_)
    is_node[source_id] = is_node[target_id] = True
    nodes = np.flatnonzero(is_node)
    on_gpu = np.isin(trace.category[nodes], GPU_ACTIVITIES)
    rank = np.where(is_wait[nodes], 0, np.where(on_gpu, 2, 1))
    # A call of no length that starts with the call around it comes after it.
    last_key = np.where(on_gpu, end_ns[nodes], -end_ns[nodes])
    order = np.zeros(len(trace), dtype=np.int64)
    order[nodes[np.lexsort((last_key, rank, moment_ns[nodes]))]] = np.arange(len(nodes))
    begins_early = np.zeros(len(trace), dtype=np.bool_)
    begins_early[host.timeline.event_id[host.timeline.overlaps_previous]] = True
    # What a launch or an enclosing call begins may end at any time, and so may what came before
    # an activity that begins early; all else must have ended.
    is_inside = np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.HOST))
    is_inside &= start_ns[target_id] < end_ns[source_id]
    is_inside &= (kind == EdgeKind.LAUNCH) | (end_ns[target_id] <= end_ns[source_id])
    is_early = (kind == EdgeKind.STREAM) & begins_early[target_id]
    has_ended = end_ns[source_id] <= moment_ns[target_id]
    forward: NDArray[np.bool_] = order[source_id] < order[target_id]
    forward &= has_ended | is_inside | is_early
    return forward
