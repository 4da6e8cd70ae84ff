"""What depends on what: edges between the host's calls and the GPU's activities.

The nodes are event ids. No edge runs against time; one that would is left out and counted, so the
graph is acyclic. Measures of the whole file use the columns; `window_graph` gives one window as a
plain `networkx.DiGraph`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.blocking_calls import Blocking
from tracelab.model.host import Host
from tracelab.model.lookup import ByCorrelation, groups_of
from tracelab.model.stream_queues import StreamQueues
from tracelab.model.stream_waits import resolve_waits
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category

if TYPE_CHECKING:
    pass

_RETURNS_WHEN_DONE = (Blocking.DEVICE, Blocking.STREAM, Blocking.EVENT)


class EdgeKind(IntEnum):
    """Why the target could not come before the source."""

    LAUNCH = 0  # a host call put the activity on the GPU
    STREAM = 1  # a stream begins its activities in order, and as a rule ends one before the next
    HOST = 2  # a thread makes its calls in order
    SYNC = 3  # a blocking call returned only after the activity
    EVENT = 4  # a stream waited for an event that was recorded after the activity


@dataclass(frozen=True, slots=True)
class EventLinks:
    """How many stream waits are known to have waited for what.

    Attributes:
        exact: the file names the event record.
        inferred: it does not, but the times tell what the wait held up, and until when.
        unresolved: it does not, and the wait held nothing up or nothing fits.
    """

    exact: int
    inferred: int
    unresolved: int


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The dependencies of a whole file.

    Attributes:
        host: the host side, and through it the timeline.
        source, target: int64[e], event ids.
        kind: int8[e], an `EdgeKind`.
        event_source: int64[m], per timeline row the row of another stream that a stream wait made
            it wait for; the one that ended last, ABSENT without any.
        inferred: bool[m], per timeline row whether not the file but the times tell its
            `event_source`.
        after_unknown_wait: bool[m], per timeline row whether it started late after its stream
            waited for something that neither the file nor the times tell.
        links: how many stream waits are resolved.
        against_time: edges left out because they would run backwards.
    """

    host: Host
    source_id: Int64Array
    target_id: Int64Array
    kind: NDArray[np.int8]
    awaited_row: Int64Array
    awaited_is_inferred: NDArray[np.bool_]
    after_unresolved_wait: NDArray[np.bool_]
    links: EventLinks
    against_time: int


def build_graph(host: Host) -> Graph:
    """Find the dependencies of a timeline with its host."""
    timeline = host.timeline
    lanes = StreamQueues(timeline)
    waits = resolve_waits(timeline, lanes)
    parts = {
        EdgeKind.LAUNCH: _launch_edges(timeline),
        EdgeKind.STREAM: _stream_edges(timeline),
        EdgeKind.HOST: _host_edges(host),
        EdgeKind.SYNC: _sync_edges(host, lanes),
        EdgeKind.EVENT: (timeline.event_id[waits.source_row], timeline.event_id[waits.row]),
    }
    source, target = (np.concatenate([edges[i] for edges in parts.values()]) for i in (0, 1))
    kind = np.repeat(list(parts), [len(edges[0]) for edges in parts.values()]).astype(np.int8)
    forward = _run_forward(host, source, target, kind)
    sound = forward[kind == EdgeKind.EVENT]
    last = _last_awaited(timeline, waits.row, waits.source_row, sound)
    waited = np.flatnonzero(last != ABSENT)
    event_source = np.full(len(timeline.event_id), ABSENT, dtype=np.int64)
    event_source[waited] = waits.source_row[last[waited]]
    inferred = np.zeros(len(timeline.event_id), dtype=np.bool_)
    inferred[waited] = waits.is_inferred[last[waited]]
    return Graph(
        host=host,
        source_id=source[forward],
        target_id=target[forward],
        kind=kind[forward],
        awaited_row=event_source,
        awaited_is_inferred=inferred,
        after_unresolved_wait=waits.after_unresolved_wait,
        links=EventLinks(waits.exact_count, waits.inferred_count, waits.unresolved_count),
        against_time=int((~forward).sum()),
    )


def _last_awaited(
    timeline: Timeline,
    rows: NDArray[np.intp],
    sources: NDArray[np.intp],
    sound: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """intp[m], per row the place of its sound pair whose source ended last, else ABSENT."""
    last = np.full(len(timeline.event_id), ABSENT, dtype=np.intp)
    pairs = np.flatnonzero(sound)
    pairs = pairs[np.argsort(timeline.end_ns[sources[pairs]], kind="stable")]
    last[rows[pairs]] = pairs
    return last


def _launch_edges(timeline: Timeline) -> tuple[Int64Array, Int64Array]:
    launched = timeline.launch_id != ABSENT
    return timeline.launch_id[launched], timeline.event_id[launched]


def _stream_edges(timeline: Timeline) -> tuple[Int64Array, Int64Array]:
    same = timeline.stream_index[1:] == timeline.stream_index[:-1]
    return timeline.event_id[:-1][same], timeline.event_id[1:][same]


def _host_edges(host: Host) -> tuple[Int64Array, Int64Array]:
    """Each call of a thread follows the one before; one that runs inside another follows that.

    What runs inside a pure wait is a part of it: the wait is over at its end, not before.
    """
    trace = host.timeline.trace
    is_wait = _pure_waits(host)
    calls = trace.of_category(*HOST_CALLS)
    calls = calls[
        np.lexsort((-trace.end_ns[calls], trace.start_ns[calls], trace.thread_index[calls]))
    ]
    sources, targets = [], []
    for _, places in groups_of(trace.thread_index[calls]):
        own = calls[places]
        reach = np.maximum.accumulate(trace.end_ns[own])
        outer = np.concatenate(([True], trace.start_ns[own][1:] >= reach[:-1]))
        outer_number = np.cumsum(outer) - 1
        outers = own[outer]
        around, inner = outers[outer_number[~outer]], own[~outer]
        begun = ~is_wait[around]
        sources += [outers[:-1], around[begun]]
        targets += [outers[1:], inner[begun]]
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])


def _sync_edges(host: Host, lanes: StreamQueues) -> tuple[Int64Array, Int64Array]:
    """From the last activities that a blocking call waited for to what could only come after."""
    timeline, blocking = host.timeline, host.blocking_calls
    trace = timeline.trace
    waits = np.isin(blocking.kind, _RETURNS_WHEN_DONE)
    call, kind = blocking.event_id[waits], blocking.kind[waits]
    start = trace.start_ns[call]
    sync = ByCorrelation(trace, Category.SYNC).find(trace.correlation[call])
    told = sync != ABSENT
    record = ByCorrelation(trace, *HOST_CALLS).find(
        np.where(told, trace.wait_correlation[sync], ABSENT)
    )
    of_device = kind == Blocking.DEVICE
    of_stream = (kind == Blocking.STREAM) & told
    of_record = (kind == Blocking.EVENT) & told & (record != ABSENT)
    named_lane = lanes.find(
        np.where(told, trace.device_number[sync], ABSENT),
        np.where(of_record, trace.wait_stream_number[sync], trace.stream_number[sync]),
    )
    found: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []  # numbers of calls, rows

    def add(calls: NDArray[np.intp], rows: NDArray[np.intp]) -> None:
        found.append((calls[rows != ABSENT], rows[rows != ABSENT]))

    mine = np.flatnonzero(of_stream)
    add(mine, lanes.last_before(named_lane[mine], start[mine]))
    mine = np.flatnonzero(of_record)
    add(mine, lanes.last_before(named_lane[mine], trace.start_ns[record[mine]]))
    mine = np.flatnonzero(~of_device & ~of_stream & ~of_record)
    add(mine, _ended_last_during(timeline, lanes, call[mine]))
    device = np.where(told, trace.device_number[sync], ABSENT)
    for number, lane in enumerate(timeline.streams):
        mine = np.flatnonzero(of_device & np.isin(device, (lane.device_number, ABSENT)))
        last = lanes.last_before(np.full(len(mine), number), start[mine])
        # It waited for one device, and the file may not say for which.
        sure = (device[mine] != ABSENT) | (timeline.end_ns[last] <= trace.end_ns[call[mine]])
        add(mine[sure], last[sure])
    numbers, rows = (np.concatenate([x[i] for x in found]) for i in (0, 1))
    by_call = np.argsort(numbers, kind="stable")
    copied, after = _after_copies(host)
    return (
        np.concatenate((timeline.event_id[rows[by_call]], copied)),
        np.concatenate((call[numbers[by_call]], after)),
    )


def _ended_last_during(
    timeline: Timeline, lanes: StreamQueues, call: Int64Array
) -> NDArray[np.intp]:
    """What blocking calls waited for that name no stream: intp[k], rows, else ABSENT.

    Of the last activities that each stream had been given before a call, the one that ended last
    during it.
    """
    start, end = timeline.trace.start_ns[call], timeline.trace.end_ns[call]
    found = np.full(len(call), ABSENT, dtype=np.intp)
    found_ns = start.copy()
    for number in range(len(timeline.streams)):
        last = lanes.last_before(np.full(len(call), number), start)
        ended = np.where(last == ABSENT, ABSENT, timeline.end_ns[last])
        later = (ended > start) & (ended <= end) & (ended >= found_ns)
        found[later], found_ns[later] = last[later], ended[later]
    return found


def _after_copies(host: Host) -> tuple[Int64Array, Int64Array]:
    """A blocking copy is launched by the call that waits for it: what waits is the next call."""
    timeline, blocking = host.timeline, host.blocking_calls
    trace = timeline.trace
    copying = blocking.event_id[blocking.kind == Blocking.COPY]
    calls = trace.of_category(*HOST_CALLS)
    sources, targets = [], []
    launched = np.flatnonzero(np.isin(timeline.launch_id, copying))
    calls_of = dict(groups_of(trace.thread_index[calls]))
    for thread, places in groups_of(trace.thread_index[timeline.launch_id[launched]]):
        own = calls[calls_of[thread]]
        own = own[np.argsort(trace.start_ns[own], kind="stable")]
        rows = launched[places]
        # A small copy from pageable memory is staged: its call may return before it has run.
        rows = rows[timeline.end_ns[rows] <= trace.end_ns[timeline.launch_id[rows]]]
        after = np.searchsorted(trace.start_ns[own], trace.end_ns[timeline.launch_id[rows]])
        exists = after < len(own)
        sources.append(timeline.event_id[rows[exists]])
        targets.append(own[after[exists]])
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *sources]), np.concatenate([empty, *targets])


def _pure_waits(host: Host) -> NDArray[np.bool_]:
    """bool[n], which events are blocking calls that do nothing but wait."""
    is_wait = np.zeros(len(host.timeline.trace), dtype=np.bool_)
    is_wait[host.blocking_calls.event_id[np.isin(host.blocking_calls.kind, _RETURNS_WHEN_DONE)]] = (
        True
    )
    return is_wait


def _run_forward(
    host: Host, source: Int64Array, target: Int64Array, kind: NDArray[np.int8]
) -> NDArray[np.bool_]:
    """bool[e], which edges respect time.

    Each node has a moment (a pure wait its end, all else its start) and, among equal moments, a
    place: waits, calls, activities, then the order of the lane or the thread. Every edge must lead
    to a later node.
    """
    trace = host.timeline.trace
    start, end = trace.start_ns, trace.end_ns
    is_wait = _pure_waits(host)
    moment = np.where(is_wait, end, start)
    is_node = np.zeros(len(trace), dtype=np.bool_)
    is_node[source] = is_node[target] = True
    nodes = np.flatnonzero(is_node)
    on_gpu = np.isin(trace.category[nodes], GPU_ACTIVITIES)
    place = np.where(is_wait[nodes], 0, np.where(on_gpu, 2, 1))
    # A call of no length that starts with the call around it comes after it.
    length = np.where(on_gpu, end[nodes], -end[nodes])
    order = np.zeros(len(trace), dtype=np.int64)
    order[nodes[np.lexsort((length, place, moment[nodes]))]] = np.arange(len(nodes))
    early = np.zeros(len(trace), dtype=np.bool_)
    early[host.timeline.event_id[host.timeline.overlaps_previous]] = True
    # What a launch or an enclosing call begins may end at any time, and so may what came before
    # an activity that begins early; all else must have ended.
    begun = np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.HOST)) & (start[target] < end[source])
    nested = begun & ((kind == EdgeKind.LAUNCH) | (end[target] <= end[source]))
    handed_over = (kind == EdgeKind.STREAM) & early[target]
    ended = end[source] <= moment[target]
    forward: NDArray[np.bool_] = (order[source] < order[target]) & (ended | nested | handed_over)
    return forward
