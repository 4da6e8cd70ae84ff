"""Edges to GPU activities from the work they wait for, with the trace's typical latencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array
from tracelab.model.binding import Constraint
from tracelab.model.cuda_graphs import replayed
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.latencies import (
    MIN_DELAY_NS,
    NODE,
    UNEXPLAINED_NS,
    event_index,
    lower_median,
    measure_latencies,
    previous_index,
)
from tracelab.model.lookup import groups_of, rows_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import Edges, Via, edges, join_pairs

# Of a graph, whose ends its successor waits for, all of them.
_MAX_BRANCHES = 8


class _Replay(NamedTuple):
    """A replay of a graph on several streams.

    Attributes:
        row: intp[k], the timeline rows of its nodes.
        is_last: bool[k], the last of their stream in it.
        has_many: it has too many streams for each to be a branch.
    """

    row: IndexArray
    is_last: BoolArray
    has_many: bool


def gpu_edges(graph: Graph) -> list[Edges]:
    """Link timeline rows: streams, events, queues, full GPUs, branches of graphs."""
    replays = list(_replays_of_branches(graph.host.timeline))
    return [
        _streams(graph),
        *_waits(graph, replays),
        _full_gpu(graph),
        _staggered(graph.host.timeline, replays),
        _after_graphs(graph, replays),
        _around_branches(graph, replays),
    ]


def _streams(graph: Graph) -> Edges:
    timeline, typical_ns = graph.host.timeline, graph.binding.latencies.typical_ns
    row = np.flatnonzero(timeline.stream_index[1:] == timeline.stream_index[:-1]) + 1
    gap_ns = timeline.start_ns[row] - timeline.end_ns[row - 1]
    index = previous_index(timeline.kind[row - 1], timeline.kind[row])
    # What begins before the one before has ended, and the nodes of a graph, have gaps of their own.
    in_graph = timeline.launch_id[row] == timeline.launch_id[row - 1]
    in_graph &= timeline.launch_id[row] != ABSENT
    if in_graph.any():  # what is launched by itself follows less soon than a node on a node
        is_shown = ~in_graph & (graph.binding.constraint[row] == Constraint.STREAM)
        typical_ns = measure_latencies(index[is_shown], gap_ns[is_shown]).typical_ns
    latency_ns = _before_replays(graph, row, gap_ns, typical_ns[index])
    for is_such in (in_graph, timeline.overlaps_previous[row]):
        if is_such.any():
            latency_ns = np.where(is_such, lower_median(gap_ns[is_such]), latency_ns)
    return edges(row - 1, row, Via.STREAM, latency_ns)


def _before_replays(
    graph: Graph, row: IndexArray, gap_ns: Int64Array, latency_ns: Int64Array
) -> Int64Array:
    """int64[k], ns, the latencies of starts, where those of graphs are the trace's own."""
    # 3.4 to 5.5 us after a kernel, 6.8 to 13 us after a copy on H200s, with the profiler.
    timeline = graph.host.timeline
    begins = replayed(timeline)[row] & (timeline.launch_id[row] != timeline.launch_id[row - 1])
    is_shown = begins & (graph.binding.constraint[row] == Constraint.STREAM)
    is_shown &= _ends_its_launch(timeline)[row - 1]
    own_ns = latency_ns.copy()
    for kind, shown in groups_of(np.where(is_shown, timeline.kind[row - 1], ABSENT)):
        median_ns = lower_median(gap_ns[shown])
        if median_ns <= UNEXPLAINED_NS:
            own_ns[begins & (timeline.kind[row - 1] == kind)] = median_ns
    return own_ns


def _ends_its_launch(timeline: Timeline) -> BoolArray:
    """bool[m], which timeline rows end last of what their call launched: of all branches."""
    last_end_ns = np.zeros(len(timeline.trace) + 1, dtype=np.int64)
    np.maximum.at(last_end_ns, timeline.launch_id, timeline.end_ns)
    is_last: BoolArray = timeline.launch_id == ABSENT
    is_last |= timeline.end_ns == last_end_ns[timeline.launch_id]
    return is_last


def _waits(graph: Graph, replays: Sequence[_Replay]) -> list[Edges]:
    timeline, typical_ns = graph.host.timeline, graph.binding.latencies.typical_ns
    chosen = np.isin(graph.kind, (EdgeKind.EVENT, EdgeKind.QUEUE))
    is_event = graph.kind[chosen] == EdgeKind.EVENT
    source, target = (
        rows_of(timeline.event_id, event_id[chosen])
        for event_id in (graph.source_id, graph.target_id)
    )
    is_of_branch = timeline.launch_id[source] == timeline.launch_id[target]
    is_of_branch &= replayed(timeline)[target]
    after_event = event_index(timeline.kind[target])
    after_queue = previous_index(timeline.kind[source], timeline.kind[target])
    between = [
        edges(source[found], target[found], via, typical_ns[index[found]])
        for via, index, found in (
            (Via.EVENT, after_event, is_event & ~is_of_branch),
            (Via.QUEUE, after_queue, ~is_event & ~is_of_branch),
        )
    ]
    return between + _branches(graph, source[is_of_branch], target[is_of_branch], replays)


def _full_gpu(graph: Graph) -> Edges:
    timeline, binding = graph.host.timeline, graph.binding
    is_such = (binding.constraint == Constraint.NO_FREE_SM) & (binding.source_row != ABSENT)
    row = np.flatnonzero(is_such)
    source_row = binding.source_row[row]
    delay_ns = timeline.start_ns[row] - timeline.end_ns[source_row]
    return edges(source_row, row, Via.SM, lower_median(delay_ns) if len(row) else 0)


def _branches(
    graph: Graph, source: IndexArray, target: IndexArray, replays: Sequence[_Replay]
) -> list[Edges]:
    timeline, binding = graph.host.timeline, graph.binding
    is_shown = np.isin(binding.constraint[target], (Constraint.EVENT, Constraint.QUEUE))
    is_shown &= binding.source_row[target] == source
    inferred_source, inferred_target = _inferred_branches(timeline, replays)
    inferred_ns = timeline.start_ns[inferred_target] - timeline.end_ns[inferred_source]
    shown_ns = (timeline.start_ns[target] - timeline.end_ns[source])[is_shown]
    delay_ns = np.concatenate((inferred_ns, shown_ns))
    latency_ns = lower_median(delay_ns) if len(delay_ns) else binding.latencies.typical_ns[NODE]
    keeps_own = _is_of_many(timeline, replays)[inferred_target]
    inferred_ns = np.where(keeps_own, inferred_ns, latency_ns)
    return [
        edges(inferred_source, inferred_target, Via.EVENT, inferred_ns),
        edges(source, target, Via.EVENT, latency_ns),
    ]


def _is_of_many(timeline: Timeline, replays: Sequence[_Replay]) -> BoolArray:
    is_of_many = np.zeros(len(timeline.event_id), dtype=np.bool_)
    for replay in replays:
        is_of_many[replay.row] = replay.has_many
    return is_of_many


def _staggered(timeline: Timeline, replays: Sequence[_Replay]) -> Edges:
    """On many streams nodes that wait for nothing begin one after another, all after the first."""
    # They keep that, so that they take no less time wherever the replay begins.
    roots = [_roots(timeline, replay.row) for replay in replays if replay.has_many]
    source, target = join_pairs((np.repeat(of[:1], len(of) - 1), of[1:]) for of in roots)
    later_ns = timeline.start_ns[target] - timeline.end_ns[source]
    return edges(source, target, Via.EVENT, later_ns)


def _roots(timeline: Timeline, row: IndexArray) -> IndexArray:
    by_start = row[np.argsort(timeline.start_ns[row], kind="stable")]
    later_ns = timeline.start_ns[by_start] - timeline.start_ns[by_start[0]]
    return np.asarray(by_start[later_ns <= MIN_DELAY_NS // 2])


def _inferred_branches(
    timeline: Timeline, replays: Sequence[_Replay]
) -> tuple[IndexArray, IndexArray]:
    # A node late for its stream, just after another branch's node, waited for that. Few streams are
    # branches from the start.
    start_ns, end_ns, stream_index = timeline.start_ns, timeline.end_ns, timeline.stream_index
    pairs = []
    for row, is_last, has_many in replays:
        by_end = row[np.argsort(end_ns[row], kind="stable")]
        is_first = np.append(True, is_last[:-1])
        begun_ns = start_ns[row].min() if has_many else start_ns[row]
        ready_ns = np.where(is_first, begun_ns, end_ns[row - 1])
        late = row[start_ns[row] - ready_ns > MIN_DELAY_NS // 2]
        some = np.searchsorted(end_ns[by_end], start_ns[late], side="right")
        late, ended = late[some > 0], by_end[some[some > 0] - 1]
        is_just_before = (start_ns[late] - end_ns[ended] < MIN_DELAY_NS) & (
            stream_index[ended] != stream_index[late]
        )
        pairs.append((ended[is_just_before], late[is_just_before]))
    return join_pairs(pairs)


def _after_graphs(graph: Graph, replays: Sequence[_Replay]) -> Edges:
    """Link the work after a graph to the ends of its other branches."""
    # Of many branches only the last to end is linked (all pairs would be their square).
    timeline = graph.host.timeline
    start_ns, end_ns, stream_index = timeline.start_ns, timeline.end_ns, timeline.stream_index
    pairs = []
    for row, is_last, has_many in replays:
        last_row = row[is_last]
        following = last_row[last_row + 1 < len(stream_index)] + 1
        following = following[stream_index[following] == stream_index[following - 1]]
        if has_many:
            last_row = last_row[[end_ns[last_row].argmax()]]
        source, target = (x.ravel() for x in np.meshgrid(last_row, following))
        is_after = end_ns[source] <= start_ns[target]
        is_after &= stream_index[source] != stream_index[target]
        pairs.append((source[is_after], target[is_after]))
    source, target = join_pairs(pairs)
    is_shown = timeline.first_start_of_launch_ns[target] == start_ns[target]
    is_shown |= ~_is_of_many(timeline, replays)[source]
    is_shown &= graph.binding.constraint[target] != Constraint.LAUNCH
    delay_ns = (start_ns[target] - end_ns[source])[is_shown]
    latency_ns = lower_median(delay_ns) if len(delay_ns) else _typical_gap_ns(graph, source, target)
    return edges(source, target, Via.EVENT, latency_ns)


def _typical_gap_ns(graph: Graph, source: IndexArray, target: IndexArray) -> Int64Array:
    """int64[k], ns, what is typical between activities of one stream, but not later than it was."""
    timeline = graph.host.timeline
    index = previous_index(timeline.kind[source], timeline.kind[target])
    was_ns = timeline.start_ns[target] - timeline.end_ns[source]
    return np.asarray(np.minimum(graph.binding.latencies.typical_ns[index], was_ns))


def _around_branches(graph: Graph, replays: Sequence[_Replay]) -> Edges:
    """Link the work before and after a graph of several streams, in each of its streams."""
    # Unknown waits: a graph follows the last work launched before it that had ended; later work
    # that began after it follows it.
    timeline = graph.host.timeline
    start_ns, end_ns, stream_index = timeline.start_ns, timeline.end_ns, timeline.stream_index
    launched_ns = np.where(
        timeline.launch_id == ABSENT, ABSENT, timeline.trace.start_ns[timeline.launch_id]
    )
    by_end = np.argsort(end_ns, kind="stable")
    ended_ns = end_ns[by_end]
    latest_ns = [
        np.maximum.accumulate(launched_ns[stream.first_row : stream.end_row])
        for stream in timeline.streams
    ]
    first_row = np.array([stream.first_row for stream in timeline.streams], dtype=np.intp)
    row_count = np.array([len(latest) for latest in latest_ns], dtype=np.intp)
    pairs = []
    for row, *_ in replays:
        first_ns, last_ns, begun_ns = start_ns[row].min(), end_ns[row].max(), launched_ns[row[0]]
        over = int(np.searchsorted(ended_ns, first_ns, side="right"))
        while over and launched_ns[by_end[over - 1]] >= begun_ns:
            over -= 1
        before = by_end[max(over - 1, 0) : over]
        roots = _roots(timeline, row)
        pairs.append((np.repeat(before, len(roots)), np.tile(roots, len(before))))
        last = row[[end_ns[row].argmax()]]
        later = np.array(
            [latest.searchsorted(begun_ns, side="right") for latest in latest_ns], dtype=np.intp
        )
        after = (first_row + later)[later < row_count]
        is_apart = ~np.isin(stream_index[after], stream_index[row])
        after = after[is_apart & (start_ns[after] >= last_ns)]
        pairs.append((np.repeat(last, len(after)), after))
    source, target = join_pairs(pairs)
    return edges(source, target, Via.EVENT, _typical_gap_ns(graph, source, target))


def _replays_of_branches(timeline: Timeline) -> Iterator[_Replay]:
    in_graph = np.flatnonzero(replayed(timeline))
    for _, index in groups_of(timeline.launch_id[in_graph]):
        row = in_graph[index]
        stream_index = timeline.stream_index[row]
        is_last = np.append(stream_index[1:] != stream_index[:-1], True)
        count = is_last.sum()
        if count > 1:
            yield _Replay(row, is_last, has_many=bool(count > _MAX_BRANCHES))
