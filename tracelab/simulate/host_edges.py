"""Edges of the host's calls: their own time, their waits and their launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.constraints import Constraint
from tracelab.model.cuda_graphs.graph_replays import replayed
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import (
    AWAITED,
    MAX_CALL_NS,
    MIN_STARTS,
    REPLAY_START_NS,
    UNEXPLAINED_NS,
    launch_index,
    lower_median,
)
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.nodes import Edges, Nodes, edges, find_hand_overs
from tracelab.simulate.program import Via

# What a blocking call takes that has nothing to wait for, where the trace has too few of them.
_OWN_WAIT_NS = 4_000
# How soon a call returns depends on the machine and on how it waits, and differs little in one
# file: 2.5 us (2.4 to 2.7) behind graphs on H200s, 4.0 to 5.0 in captures of kernels. One in each
# of five steps is enough.
_MIN_WAKE_UPS = 5
# What a copy call takes by itself where it has to wait for its copy, at most.
_OWN_COPY_NS = 10_000
# So many launches a stream takes before the next one has to wait: 1,021 on H200 with CUDA 13.0,
# `tests/benchmarks/contention.py`; 990 to 999 were seen in captures.
LAUNCHES_IN_QUEUE = 1_021


def work_edges(graph: Graph, nodes: Nodes) -> list[Edges]:
    """The work of each thread between its calls, and the threads that wait for each other."""
    calls = nodes.calls
    call = np.flatnonzero(calls.thread_index[1:] == calls.thread_index[:-1]) + 1
    hand_overs = find_hand_overs(graph.host.timeline.trace, calls)
    asleep_ns = np.zeros(len(calls), dtype=np.int64)
    asleep_ns[hand_overs.call_index] = hand_overs.asleep_ns
    work_ns = calls.begin_ns[call] - calls.end_ns[call - 1] - asleep_ns[call]
    after_sleep = nodes.entry[hand_overs.call_index]
    return [
        edges(call - 1, nodes.entry[call], Via.HOST, work_ns),
        edges(nodes.entry[nodes.begin_call], nodes.begin_call, Via.HOST, 0),
        edges(hand_overs.source_index, after_sleep, Via.THREAD, hand_overs.latency_ns),
    ]


def launch_edges(graph: Graph, nodes: Nodes) -> list[Edges]:
    """Return the edges from each call, or its start, to its launches."""
    timeline, binding, calls = graph.host.timeline, graph.binding, nodes.calls
    has_begin = nodes.entry[nodes.launch_call] != nodes.launch_call
    after = np.flatnonzero(nodes.is_launched & ~has_begin)
    inside = np.flatnonzero(nodes.is_launched & has_begin)
    is_replayed, is_staged = replayed(timeline), graph.host.is_staged
    typical_ns = np.where(
        is_replayed[after],
        _replay_start_ns(graph, after[is_replayed[after]]),
        binding.latencies.typical_ns[launch_index(timeline.kind[after])],
    )
    typical_ns[is_staged[after]] = _staged_start_ns(graph, after[is_staged[after]])
    inside_call = nodes.launch_call[inside]
    delay_ns = timeline.start_ns[inside] - calls.begin_ns[inside_call]
    waited_for_launch = binding.constraint[inside] == Constraint.LAUNCH
    sort = 2 * timeline.kind[inside].astype(np.intp) + is_staged[inside]
    sort += 2 * len(Kind) * is_replayed[inside]
    latency_ns = np.zeros(len(inside), dtype=np.int64)
    for _, index in groups_of(sort):
        shown_ns = delay_ns[index[waited_for_launch[index]]]
        latency_ns[index] = lower_median(shown_ns) if len(shown_ns) else delay_ns[index].min()
    callback_ns = _first_callback_ns(graph)
    return [
        edges(
            nodes.launch_call[after],
            nodes.activity[after],
            Via.LAUNCH,
            typical_ns + callback_ns[after],
        ),
        edges(nodes.entry[inside_call], nodes.activity[inside], Via.LAUNCH, latency_ns),
    ]


def _replay_start_ns(graph: Graph, rows: NDArray[np.intp]) -> int:
    """Time from a replay's return to its first activity, if that waited for the launch.

    The median of the trace, if it needs no explanation itself. All later nodes of a graph follow
    from the first ones.

    Args:
        graph: the file's dependencies.
        rows: intp[k], timeline rows that were replayed, and started after the call had returned.
    """
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    is_first = timeline.start_ns[rows] == timeline.first_start_of_launch_ns[rows]
    first = rows[is_first & (graph.binding.constraint[rows] == Constraint.LAUNCH)]
    if not len(first):
        return REPLAY_START_NS
    start_ns = lower_median(timeline.start_ns[first] - trace.end_ns[timeline.launch_id[first]])
    return start_ns if start_ns <= UNEXPLAINED_NS else REPLAY_START_NS


def _staged_start_ns(graph: Graph, rows: NDArray[np.intp]) -> int:
    """Time from a call's return to its copy of pageable memory, if that waited for the call.

    The median of the trace, where it has enough of them: 2.4 us in one whose steps copy 515 tensors
    of 28 kB, each of which the host waits for.

    Args:
        graph: the file's dependencies.
        rows: intp[k], timeline rows of such copies that started after their call had returned.
    """
    timeline, binding = graph.host.timeline, graph.binding
    waited = rows[binding.constraint[rows] == Constraint.LAUNCH]
    delay_ns = timeline.start_ns[waited] - timeline.trace.end_ns[timeline.launch_id[waited]]
    if len(waited) >= MIN_STARTS and (own_ns := lower_median(delay_ns)) <= UNEXPLAINED_NS:
        return own_ns
    return int(binding.latencies.typical_ns[launch_index(np.array([Kind.COPY], dtype=np.int8))][0])


def _first_callback_ns(graph: Graph) -> Int64Array:
    """Length of the host function that a graph begins with: int64[m], ns; 0 without one."""
    trace, binding = graph.host.timeline.trace, graph.binding
    is_first = (binding.constraint == Constraint.CALLBACK) & (binding.source_row == ABSENT)
    return np.where(is_first, trace.duration_ns[binding.callback_id], 0)


def wait_edges(graph: Graph, nodes: Nodes) -> tuple[Int64Array, list[Edges]]:
    """Return the edges of the calls' own time and of their waits.

    Returns:
        int64[c], ns, the cost of each call; and the edges.
    """
    cost_ns = nodes.calls.end_ns - nodes.calls.begin_ns
    return cost_ns, [
        _synchronizations(graph, nodes, cost_ns),
        _copies(graph, nodes, cost_ns),
        _full_queues(graph, nodes, cost_ns),
    ]


def _synchronizations(graph: Graph, nodes: Nodes, cost_ns: Int64Array) -> Edges:
    """Calls that do nothing but wait; of those whose wait is known, their own cost is set."""
    timeline, calls = graph.host.timeline, nodes.calls
    only_waits = np.isin(calls.blocking, RETURNS_WHEN_DONE)
    row_of = np.full(len(timeline.trace), ABSENT, dtype=np.intp)
    row_of[timeline.event_id] = np.arange(len(timeline.event_id))
    is_sync = graph.kind == EdgeKind.SYNC
    row, call = row_of[graph.source_id[is_sync]], calls.index_of[graph.target_id[is_sync]]
    is_wait = (call != ABSENT) & only_waits[call]
    row, call = row[is_wait], call[is_wait]
    awaited_ns = np.full(len(calls), ABSENT, dtype=np.int64)
    np.maximum.at(awaited_ns, call, timeline.end_ns[row])
    is_known = only_waits & (awaited_ns != ABSENT)
    without_wait_ns = cost_ns[is_known & (awaited_ns < calls.begin_ns)]
    is_shown = len(without_wait_ns) >= MIN_STARTS
    own_ns = lower_median(without_wait_ns) if is_shown else _OWN_WAIT_NS
    cost_ns[is_known] = np.minimum(cost_ns[is_known], own_ns)
    has_waited = is_known & (awaited_ns >= calls.begin_ns)
    wake_up_ns = _wake_up_ns(graph, (calls.end_ns - awaited_ns)[has_waited])
    return edges(nodes.activity[row], call, Via.WAIT, wake_up_ns)


def _wake_up_ns(graph: Graph, shown_ns: Int64Array) -> int:
    """Time from the end of a wait to the call's return: usually the trace's median.

    Args:
        graph: the file's dependencies.
        shown_ns: int64[k], ns, how long it took in the calls that had to wait.
    """
    if len(shown_ns) >= _MIN_WAKE_UPS and (own_ns := lower_median(shown_ns)) <= UNEXPLAINED_NS:
        return own_ns
    return int(graph.binding.latencies.typical_ns[AWAITED])


def _copies(graph: Graph, nodes: Nodes, cost_ns: Int64Array) -> Edges:
    """Copies whose call returns with them; what the call takes by itself is set."""
    timeline, calls, launch_call = graph.host.timeline, nodes.calls, nodes.launch_call
    blocks = nodes.is_launched & (calls.blocking[launch_call] == Blocking.COPY)
    row = np.flatnonzero(blocks & (timeline.start_ns < calls.end_ns[launch_call]))
    call = launch_call[row]
    return_ns = calls.end_ns[call] - timeline.end_ns[row]
    for _, index in groups_of(timeline.trace.name_index[timeline.event_id[row]]):
        return_ns[index] = lower_median(return_ns[index])
    cost_ns[call] = np.minimum(cost_ns[call], _OWN_COPY_NS)
    return edges(nodes.activity[row], call, Via.WAIT, return_ns)


def _full_queues(graph: Graph, nodes: Nodes, cost_ns: Int64Array) -> Edges:
    """Launches wait while their stream has a full queue; what such a call takes itself is set."""
    timeline, calls = graph.host.timeline, nodes.calls
    sources: list[NDArray[np.intp]] = [np.zeros(0, dtype=np.intp)]
    targets: list[NDArray[np.intp]] = [np.zeros(0, dtype=np.intp)]
    for stream in timeline.streams:
        row = np.arange(stream.first_row, stream.end_row)
        launch = nodes.launch_call[row]
        is_first = (launch != ABSENT) & np.append(True, launch[1:] != launch[:-1])
        row, launch = row[is_first], launch[is_first]
        waiting = launch[LAUNCHES_IN_QUEUE:]
        source, before = row[:-LAUNCHES_IN_QUEUE], row[np.maximum(np.arange(len(waiting)) - 1, 0)]
        # Some queues take one more: one that had done only the launch before that by then.
        is_done = timeline.end_ns[source] <= calls.end_ns[waiting]
        sources.append(np.where(is_done, source, before))
        targets.append(waiting)
    row, call = np.concatenate(sources), np.concatenate(targets)
    # Where the recording shows a longer queue, this one is no limit.
    is_limit = timeline.end_ns[row] <= calls.end_ns[call]
    row, call = row[is_limit], call[is_limit]
    has_waited = timeline.end_ns[row] > calls.begin_ns[call]
    has_waited &= cost_ns[call] > MAX_CALL_NS
    if has_waited.any():
        cost_ns[call[has_waited]] = lower_median(cost_ns[nodes.launch_call[nodes.is_launched]])
    return edges(nodes.activity[row], nodes.entry[call], Via.LIMIT, 0)
