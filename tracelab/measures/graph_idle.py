"""Idle time inside replays of CUDA graphs: before which node, and what that node waited for.

The node before it in its stream stands for the unknown ones on which it depends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated

import numpy as np

from tracelab.base.arrays import Arrays, IndexArray, Int8Array, Int32Array, Int64Array, Record
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.measures.measure import Measure, constrained
from tracelab.model.binding import Constraint
from tracelab.model.graph import Graph
from tracelab.model.latencies import lower_median
from tracelab.model.lookup import groups_of, rows_of
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT

# Rows of one device. The others are summed up in one row for each wait.
_MAX_ROWS = 100

_BY_NODE = (Constraint.STREAM, Constraint.EVENT, Constraint.DEPENDENT_LAUNCH)


class NodeWait(IntEnum):
    """Wait of the node that ended a bubble inside a replay."""

    QUEUE = 0  # work of another stream in front of it, in one hardware queue
    NOT_IN_FILE = 1  # on which nodes it depends is not known
    OTHER = 2  # its launch, a free multiprocessor, or nothing that is known


class GraphIdle(Arrays):
    """The bubbles inside replays, as they stand in `Bubbles`, and the `NodeWait` of each.

    Attributes:
        piece: intp[k], index into the pieces of bubbles.
        row: timeline row of the node that ended each.
        awaited_id: event id of what it waited for, of NOT_IN_FILE of the node before it in its
            stream; ABSENT if not known.
        ready_ns: when that had ended; the node's own start where it had not.
    """

    piece: IndexArray
    device_number: Int32Array
    row: Int64Array
    wait: Int8Array
    awaited_id: Int64Array
    ready_ns: Int64Array


class GraphIdleMetrics(Record):
    """The idle of one device inside replays before one node that waited for one thing.

    The rows of a device add up to its idle time inside CUDA graphs.

    Attributes:
        wait: what sort of thing it was: a `NodeWait` in lowercase.
        name: the node that ended the bubbles; None for all nodes together that have no row.
        stream: its stream.
        awaited: what it waited for: the name of a node, of "not_in_file" that of the one before it
            in its stream.
        awaited_stream: the stream of that.
        count: how many bubbles.
        replays: in how many replays.
        waiting_ns: how much of the idle passed before what it waited for had ended; the rest is the
            latency of its start.
        latency_ns: how long after that it started, the lower median.
        longest_start_ns, longest_ns: the longest bubble.
        event: event id of the node that ended the longest.
        awaited_event: event id of what that one waited for.
    """

    rank: int
    step: int | None
    device: int
    wait: Annotated[str, constrained(enum=[wait.name.lower() for wait in NodeWait])]
    name: str | None
    stream: int | None
    awaited: str | None
    awaited_stream: int | None
    count: int
    replays: int
    idle_ns: int
    waiting_ns: int
    latency_ns: int
    longest_start_ns: int
    longest_ns: int
    event: int
    awaited_event: int | None


def graph_idle(graph: Graph, bubbles: Bubbles) -> GraphIdle:
    """Measure the waits behind each bubble inside a replay."""
    timeline, binding = graph.host.timeline, graph.binding
    bubble, piece = bubbles.pieces_of(slice(None), bubbles.cause == Cause.GRAPH)
    row = rows_of(timeline.event_id, bubbles.next_id[bubble]).astype(np.int64)
    constraint, source_row = binding.constraint[row], binding.source_row[row]
    has_source = source_row != ABSENT
    cases = [constraint == Constraint.QUEUE, has_source & np.isin(constraint, _BY_NODE)]
    waits = [NodeWait.QUEUE, NodeWait.NOT_IN_FILE]
    return GraphIdle(
        piece=piece,
        device_number=bubbles.device_number[bubble],
        row=row,
        wait=np.select(cases, waits, NodeWait.OTHER).astype(np.int8),
        awaited_id=np.where(has_source, timeline.event_id[source_row], ABSENT),
        ready_ns=np.minimum(binding.ready_ns[row], timeline.start_ns[row]),
    )


def graph_idle_rows(
    graph: Graph, windows: Sequence[Window], bubbles: Bubbles
) -> Iterator[GraphIdleMetrics]:
    """Idle time inside replays in the first window, by device, node and what it waited for.

    The rows of a device stand together, the most expensive first.
    """
    idle, window = graph_idle(graph, bubbles), windows[0]
    start_ns = np.maximum(bubbles.start_ns[idle.piece], window.start_ns)
    end_ns = np.minimum(bubbles.end_ns[idle.piece], window.end_ns)
    is_inside = end_ns > start_ns
    device_number = np.where(is_inside, idle.device_number, ABSENT)
    for device, of_device in groups_of(device_number):
        group_index = _groups(graph, idle, of_device)
        idle_ns = np.bincount(group_index, (end_ns - start_ns)[of_device]).astype(np.int64)
        first_start_ns = np.full(len(idle_ns), window.end_ns)
        np.minimum.at(first_start_ns, group_index, start_ns[of_device])
        ordered = np.lexsort((first_start_ns, -idle_ns))
        place = np.empty_like(ordered)
        place[ordered] = np.arange(len(ordered))
        rest = _MAX_ROWS + idle.wait[of_device]
        place_of_bubble = np.where(place[group_index] < _MAX_ROWS, place[group_index], rest)
        for number, indices in groups_of(place_of_bubble):
            index = of_device[indices]
            is_rest = number >= _MAX_ROWS
            yield _row(graph, idle, window, device, index, start_ns, end_ns, is_rest=is_rest)


def _groups(graph: Graph, idle: GraphIdle, index: IndexArray) -> IndexArray:
    """Number the bubbles inside replays ([k]) from 0, those that are alike the same."""
    trace, timeline = graph.host.timeline.trace, graph.host.timeline
    event_id, awaited_id = timeline.event_id[idle.row[index]], idle.awaited_id[index]
    is_known = awaited_id != ABSENT
    keys = (
        idle.wait[index],
        trace.name_index[event_id],
        trace.stream_number[event_id],
        np.where(is_known, trace.name_index[awaited_id], ABSENT),
        np.where(is_known, trace.stream_number[awaited_id], ABSENT),
    )
    _, group_index = np.unique(np.stack(keys), axis=1, return_inverse=True)
    return group_index.reshape(-1)


def _row(
    graph: Graph,
    idle: GraphIdle,
    window: Window,
    device: int,
    index: IndexArray,
    start_ns: Int64Array,
    end_ns: Int64Array,
    *,
    is_rest: bool,
) -> GraphIdleMetrics:
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    length_ns = (end_ns - start_ns)[index]
    longest = index[length_ns.argmax()]
    row, awaited_id = idle.row[longest], int(idle.awaited_id[longest])
    event_id = int(timeline.event_id[row])
    awaits = awaited_id != ABSENT
    is_named = awaits and not is_rest
    waiting_ns = np.clip(idle.ready_ns[index] - start_ns[index], 0, length_ns)
    return GraphIdleMetrics(
        rank=0,
        step=window.step,
        device=device,
        wait=NodeWait(idle.wait[longest]).name.lower(),
        name=None if is_rest else trace.name_of(event_id),
        stream=None if is_rest else int(trace.stream_number[event_id]),
        awaited=trace.name_of(awaited_id) if is_named else None,
        awaited_stream=int(trace.stream_number[awaited_id]) if is_named else None,
        count=len(index),
        replays=len(np.unique(timeline.launch_id[idle.row[index]])),
        idle_ns=int(length_ns.sum()),
        waiting_ns=int(waiting_ns.sum()),
        latency_ns=lower_median(timeline.start_ns[idle.row[index]] - idle.ready_ns[index]),
        longest_start_ns=int(start_ns[longest]),
        longest_ns=int(length_ns.max()),
        event=event_id,
        awaited_event=awaited_id if awaits else None,
    )


MEASURE = Measure("graph_idle", GraphIdleMetrics, graph_idle_rows)
