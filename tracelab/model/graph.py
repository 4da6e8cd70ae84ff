"""Dependency graph of the host's calls and the GPU's activities; the nodes are event ids.

An edge that would run against time is left out and counted, so the graph is acyclic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int8Array, Int64Array, Record
from tracelab.model.binding import Awaited, Binding, Constraint, bind
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.host import Host
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import MAX_WAKE_UP_NS
from tracelab.model.lookup import ByCorrelation, groups_of
from tracelab.model.stream_progress import StreamProgress, StreamQueues
from tracelab.model.stream_waits import StreamWaits, resolve_waits
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category, Trace
from tracelab.model.wait_records import order_stream_calls

if TYPE_CHECKING:
    import networkx as nx


class EdgeKind(IntEnum):
    """Reason why an edge's target could not come before its source."""

    LAUNCH = 0  # a host call put the activity on the GPU
    STREAM = 1  # a stream begins its activities in order, and as a rule ends one before the next
    HOST = 2
    SYNC = 3  # a blocking call returned only after the activity
    EVENT = 4
    QUEUE = 5  # both streams share a hardware queue or copy engine, and it was launched before


class EventLinks(Record):
    """Counts of stream waits with a known source.

    Attributes:
        exact: the file names the event record.
        inferred: the file does not, but the times show what the wait delayed, and until when.
        unresolved: neither does: the wait delayed nothing, or nothing matches.
    """

    exact: int
    inferred: int
    unresolved: int


class Graph(Arrays):
    """The dependencies of a whole file.

    Edges [e] lead from `source_id` to `target_id` (event ids); `against_time` were left out.
    """

    host: Host
    source_id: Int64Array
    target_id: Int64Array
    kind: Int8Array
    binding: Binding
    links: EventLinks
    against_time: int


def build_graph(host: Host) -> Graph:
    """Find the dependencies of a timeline with its host."""
    timeline = host.timeline
    queues = StreamQueues(timeline)
    progress = StreamProgress(timeline, queues)
    waits = resolve_waits(timeline, queues, progress)
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


def _columns(edges_of: Mapping[EdgeKind, Edges]) -> tuple[Int64Array, Int64Array, Int8Array]:
    source_id, target_id = (np.concatenate(ids) for ids in zip(*edges_of.values(), strict=True))
    counts = [len(sources) for sources, _ in edges_of.values()]
    return source_id, target_id, np.repeat(list(edges_of), counts).astype(np.int8)


def _found_edges(timeline: Timeline, binding: Binding) -> Mapping[EdgeKind, Edges]:
    """Return the edges that only the binding shows: waits and queues behind late starts."""
    has_source = binding.source_row != ABSENT
    # Nodes of a graph in one queue are mostly in one stream, which has its own edges.
    is_queued = binding.constraint == Constraint.QUEUE
    is_queued &= timeline.stream_index[binding.source_row] != timeline.stream_index
    of_wait = has_source & (binding.constraint == Constraint.EVENT)
    of_wait &= binding.source_row != binding.event_row
    rows_of = {EdgeKind.EVENT: np.flatnonzero(of_wait), EdgeKind.QUEUE: np.flatnonzero(is_queued)}
    return {
        kind: (timeline.event_id[binding.source_row[rows]], timeline.event_id[rows])
        for kind, rows in rows_of.items()
    }


def _awaited(timeline: Timeline, waits: StreamWaits, forward: BoolArray) -> Awaited:
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
        any_stream_waits=any_stream_waits,
    )


def _run_forward(
    host: Host, source_id: Int64Array, target_id: Int64Array, kind: Int8Array
) -> BoolArray:
    """bool[e], which edges respect time."""
    # Each node has a moment (a pure wait its end, all else its start) and, among equal moments, a
    # rank: waits, calls, activities, then the order of the stream or the thread.
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
    # Launch calls and enclosing calls may end at any time, and what came before an early activity;
    # all else must have ended.
    is_inside = np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.HOST))
    is_inside &= start_ns[target_id] < end_ns[source_id]
    is_inside &= (kind == EdgeKind.LAUNCH) | (end_ns[target_id] <= end_ns[source_id])
    is_early = (kind == EdgeKind.STREAM) & begins_early[target_id]
    has_ended = end_ns[source_id] <= moment_ns[target_id]
    forward: BoolArray = order[source_id] < order[target_id]
    forward &= has_ended | is_inside | is_early
    return forward


Edges = tuple[Int64Array, Int64Array]


def launch_edges(timeline: Timeline) -> Edges:
    """Edges from each call to the activities that it launched."""
    launched = timeline.launch_id != ABSENT
    return timeline.launch_id[launched], timeline.event_id[launched]


def stream_edges(timeline: Timeline) -> Edges:
    """Edges from each activity to the next one of its stream."""
    same = timeline.stream_index[1:] == timeline.stream_index[:-1]
    return timeline.event_id[:-1][same], timeline.event_id[1:][same]


def host_edges(host: Host) -> Edges:
    """Edges from each call of a thread to the next; one that runs inside another follows that.

    Calls inside a pure wait are a part of it, over at its end.
    """
    trace = host.timeline.trace
    is_wait = pure_waits(host)
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[
        np.lexsort((-trace.end_ns[calls], trace.start_ns[calls], trace.thread_index[calls]))
    ]
    sources, targets = [], []
    for _, index in groups_of(trace.thread_index[calls]):
        of_thread = calls[index]
        reach_ns = np.maximum.accumulate(trace.end_ns[of_thread])
        is_outer = np.concatenate(([True], trace.start_ns[of_thread][1:] >= reach_ns[:-1]))
        outer_index = np.cumsum(is_outer) - 1
        outer = of_thread[is_outer]
        around, inner = outer[outer_index[~is_outer]], of_thread[~is_outer]
        begun = ~is_wait[around]
        sources += [outer[:-1], around[begun]]
        targets += [outer[1:], inner[begun]]
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])


def sync_edges(host: Host, queues: StreamQueues) -> Edges:
    """Edges from the activities that a blocking call waited for to what came after."""
    waited, waiting = _pure_wait_edges(host, queues)
    copied, after = _copy_edges(host)
    return np.concatenate((waited, copied)), np.concatenate((waiting, after))


def pure_waits(host: Host) -> BoolArray:
    """bool[n], which events are blocking calls that do nothing but wait."""
    calls = host.blocking_calls
    is_wait = np.zeros(len(host.timeline.trace), dtype=np.bool_)
    is_wait[calls.event_id[np.isin(calls.kind, RETURNS_WHEN_DONE)]] = True
    return is_wait


def wake_up_ns(host: Host, source_id: Int64Array, target_id: Int64Array) -> Int64Array:
    """[k], how long calls that only wait took to return after the wait had ended.

    Sources are activities, targets what came only after them: event ids.
    """
    trace = host.timeline.trace
    end_ns = np.full(len(trace), ABSENT, dtype=np.int64)
    np.maximum.at(end_ns, target_id, trace.end_ns[source_id])
    call_id = np.flatnonzero(pure_waits(host) & (end_ns > trace.start_ns))
    return trace.end_ns[call_id] - end_ns[call_id]


def _pure_wait_edges(host: Host, queues: StreamQueues) -> Edges:
    timeline, blocking = host.timeline, host.blocking_calls
    trace = timeline.trace
    is_wait = np.isin(blocking.kind, RETURNS_WHEN_DONE)
    call_id, kind = blocking.event_id[is_wait], blocking.kind[is_wait]
    start_ns = trace.start_ns[call_id]
    sync_id = ByCorrelation(trace, Category.SYNC).find(trace.correlation[call_id])
    has_row = sync_id != ABSENT
    record_id = ByCorrelation(trace, *HOST_CALLS).find(
        np.where(has_row, trace.wait_correlation[sync_id], ABSENT)
    )
    device_number = np.where(has_row, trace.device_number[sync_id], ABSENT)
    of_device = kind == Blocking.DEVICE
    of_stream = (kind == Blocking.STREAM) & has_row
    of_record = (kind == Blocking.EVENT) & has_row & (record_id != ABSENT)
    is_placed = of_record & (trace.wait_stream_number[sync_id] != ABSENT)
    stream_index = queues.find(
        device_number,
        np.where(of_record, trace.wait_stream_number[sync_id], trace.stream_number[sync_id]),
    )
    on_stream, on_record = np.flatnonzero(of_stream), np.flatnonzero(is_placed)
    on_call = np.flatnonzero(of_record & ~is_placed)
    on_unknown = np.flatnonzero(~of_device & ~of_stream & ~of_record)
    record_ns = trace.start_ns[record_id[on_record]]
    during = _ended_last_during(timeline, queues, call_id[on_unknown], start_ns[on_unknown])
    waited = [  # per kind of wait: the calls, as indexes, and the row that each one waited for
        (on_stream, queues.last_before(stream_index[on_stream], start_ns[on_stream])),
        (on_record, queues.last_before(stream_index[on_record], record_ns)),
        (on_call, _recorded_by(timeline, queues, call_id[on_call], record_id[on_call])),
        (on_unknown, during),
    ]
    for index, stream in enumerate(timeline.streams):
        on_device = np.flatnonzero(
            of_device & np.isin(device_number, (stream.device_number, ABSENT))
        )
        row = queues.last_before(np.full(len(on_device), index), start_ns[on_device])
        # It waited for one device, and the file may not say for which.
        is_sure = device_number[on_device] != ABSENT
        is_sure |= timeline.end_ns[row] <= trace.end_ns[call_id[on_device]]
        waited.append((on_device[is_sure], row[is_sure]))
    call_index, row = (np.concatenate(column) for column in zip(*waited, strict=True))
    call_index, row = call_index[row != ABSENT], row[row != ABSENT]
    by_call = np.argsort(call_index, kind="stable")
    return timeline.event_id[row[by_call]], call_id[call_index[by_call]]


def _recorded_by(
    timeline: Timeline, queues: StreamQueues, call_id: Int64Array, record_id: IndexArray
) -> IndexArray:
    """The awaited rows of blocking calls with a known record and no stream, else ABSENT."""
    # The stream that the recording thread gave work to last, if that had ended when the call
    # returned; unless it returned just after what another stream had been given by then.
    if not len(call_id):
        return np.zeros(0, dtype=np.intp)
    start_ns = timeline.trace.start_ns
    record_ns, return_ns = start_ns[record_id], timeline.trace.end_ns[call_id]
    stream_index = order_stream_calls(timeline).stream_before(record_id)
    row = queues.last_before(stream_index, record_ns)
    end_ns = np.where(row == ABSENT, return_ns + 1, timeline.end_ns[row])
    during = _ended_last_during(timeline, queues, call_id, record_ns)
    during_end_ns = np.where(during == ABSENT, ABSENT, timeline.end_ns[during])
    # A call that is shorter than that may not have waited for anything.
    just_before_ns = return_ns - MAX_WAKE_UP_NS
    is_other = (during_end_ns >= just_before_ns) & (just_before_ns > start_ns[call_id])
    is_other = (end_ns > return_ns) | ((end_ns < just_before_ns) & is_other)
    return np.where(is_other, during, row)


def _ended_last_during(
    timeline: Timeline, queues: StreamQueues, call_id: Int64Array, given_before_ns: Int64Array
) -> IndexArray:
    # Of the last activities that each stream had been given before a time, the row of the one that
    # ended last during the call; else ABSENT.
    start_ns, end_ns = timeline.trace.start_ns[call_id], timeline.trace.end_ns[call_id]
    last_row = np.full(len(call_id), ABSENT, dtype=np.intp)
    last_end_ns = start_ns.copy()
    for index in range(len(timeline.streams)):
        row = queues.last_before(np.full(len(call_id), index), given_before_ns)
        row_end_ns = np.where(row == ABSENT, ABSENT, timeline.end_ns[row])
        is_later = (row_end_ns > start_ns) & (row_end_ns <= end_ns) & (row_end_ns >= last_end_ns)
        last_row[is_later], last_end_ns[is_later] = row[is_later], row_end_ns[is_later]
    return last_row


def _copy_edges(host: Host) -> Edges:
    """A blocking copy is launched by the call that waits for it: what waits is the next call."""
    timeline, blocking = host.timeline, host.blocking_calls
    trace = timeline.trace
    copy_calls = blocking.event_id[blocking.kind == Blocking.COPY]
    calls = trace.of_category(*HOST_CALLS)
    sources, targets = [], []
    copies = np.flatnonzero(np.isin(timeline.launch_id, copy_calls))
    calls_of = dict(groups_of(trace.thread_index[calls]))
    for thread, index in groups_of(trace.thread_index[timeline.launch_id[copies]]):
        of_thread = calls[calls_of[thread]]
        of_thread = of_thread[np.argsort(trace.start_ns[of_thread], kind="stable")]
        row = copies[index]
        # A small copy from pageable memory is staged: its call may return before it has run.
        row = row[timeline.end_ns[row] <= trace.end_ns[timeline.launch_id[row]]]
        return_ns = trace.end_ns[timeline.launch_id[row]]
        next_call = np.searchsorted(trace.start_ns[of_thread], return_ns)
        exists = next_call < len(of_thread)
        sources.append(timeline.event_id[row[exists]])
        targets.append(of_thread[next_call[exists]])
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])


def window_graph(graph: Graph, start_ns: int, end_ns: int) -> nx.DiGraph[int]:
    """The dependencies among what is seen in ``[start_ns, end_ns)``.

    Returns:
        a directed acyclic graph whose nodes are event ids, with ``name``, ``kind`` ("compute",
        "comm", "copy", "memset" or "call"), ``start_ns``, ``end_ns`` and, on the GPU, ``device``,
        ``stream``, ``constraint`` (a `Constraint` in small letters) and ``unexplained_ns``; on the
        host ``thread``. Its edges have ``kind`` (an `EdgeKind` in small letters) and ``binding``,
        whether this is what its target, an activity, waited for; then ``delay_ns`` is how much
        earlier it could have started without it, None where nothing else was in its way. "event"
        and "queue" edges have ``inferred``: from the times, not recorded.
    """
    import networkx as nx

    timeline, binding = graph.host.timeline, graph.binding
    trace = timeline.trace
    is_inside = (trace.start_ns < end_ns) & (
        (trace.end_ns > start_ns) | (trace.start_ns >= start_ns)
    )
    network: nx.DiGraph[int] = nx.DiGraph()
    for row in np.flatnonzero(is_inside[timeline.event_id]).tolist():
        event_id = int(timeline.event_id[row])
        network.add_node(
            event_id,
            **_attributes(trace, event_id, Kind(timeline.kind[row]).name.lower()),
            device=int(timeline.device_number[row]),
            stream=int(trace.stream_number[event_id]),
            constraint=Constraint(binding.constraint[row]).name.lower(),
            unexplained_ns=int(binding.unexplained_ns[row]),
        )
    calls = trace.of_category(*HOST_CALLS)
    for event_id in calls[is_inside[calls]].tolist():
        thread = int(trace.thread_index[event_id])
        network.add_node(event_id, **_attributes(trace, event_id, "call"), thread=thread)
    network.add_edges_from(_edges(graph, is_inside))
    return network


def _attributes(trace: Trace, event_id: int, kind: str) -> dict[str, Any]:
    return {
        "name": trace.name_of(event_id),
        "kind": kind,
        "start_ns": int(trace.start_ns[event_id]),
        "end_ns": int(trace.end_ns[event_id]),
    }


def _edges(graph: Graph, is_inside: BoolArray) -> Iterator[tuple[int, int, dict[str, Any]]]:
    timeline, binding = graph.host.timeline, graph.binding
    has_row = binding.source_row != ABSENT
    source_id = np.where(has_row, timeline.event_id[binding.source_row], timeline.launch_id)
    is_bound = (binding.constraint != Constraint.UNKNOWN) & (source_id != ABSENT)
    bound = _pairs(source_id[is_bound], timeline.event_id[is_bound])
    delay_of = dict(zip(bound, binding.delay_ns[is_bound].tolist(), strict=True))
    event_id, by_event = timeline.event_id[binding.event_row], binding.event_is_inferred
    inferred = {
        *_pairs(event_id[by_event], timeline.event_id[by_event]),
        *_pairs(source_id[binding.is_inferred], timeline.event_id[binding.is_inferred]),
    }
    chosen = is_inside[graph.source_id] & is_inside[graph.target_id]
    pairs = _pairs(graph.source_id[chosen], graph.target_id[chosen])
    for pair, kind in zip(pairs, graph.kind[chosen].tolist(), strict=True):
        attributes: dict[str, Any] = {
            "kind": EdgeKind(kind).name.lower(),
            "binding": pair in delay_of,
        }
        if kind in (EdgeKind.EVENT, EdgeKind.QUEUE):
            attributes["inferred"] = pair in inferred
        if pair in delay_of:
            attributes["delay_ns"] = None if delay_of[pair] == ABSENT else delay_of[pair]
        yield *pair, attributes


def _pairs(source_id: Int64Array, target_id: Int64Array) -> Iterator[tuple[int, int]]:
    return zip(source_id.tolist(), target_id.tolist(), strict=True)
