"""From the dependencies of a file to the program that a replay runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.constraints import Constraint
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.latencies import AWAITED, LEAST_STARTS, launch_index, lower_median
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.calls import Calls, find_calls, find_hand_overs
from tracelab.simulate.edges import Edges, edges
from tracelab.simulate.gpu_edges import gpu_edges
from tracelab.simulate.program import NodeKind, Program, Via

# What a blocking call takes that has nothing to wait for, where the trace has too few of them.
_OWN_WAIT_NS = 4_000
# What a copy call takes by itself where it has to wait for its copy, at most.
_OWN_COPY_NS = 10_000


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
    """All that a file has recorded, as a program."""
    timeline, calls = graph.host.timeline, find_calls(graph.host)
    trace = timeline.trace
    launch_call = np.where(timeline.launch_id == ABSENT, ABSENT, calls.index_of[timeline.launch_id])
    is_launched = launch_call != ABSENT
    in_call = is_launched & (timeline.start_ns < calls.end_ns[launch_call])
    begin_call = np.unique(launch_call[in_call])
    begin_count = len(begin_call)
    begin_node = np.full(len(calls), ABSENT, dtype=np.intp)
    begin_node[begin_call] = len(calls) + np.arange(begin_count)
    activity_node = len(calls) + begin_count + np.arange(len(timeline.event_id))
    call_node = np.concatenate((np.arange(len(calls)), begin_call))
    no_call = np.full(len(activity_node), ABSENT)
    no_activity = np.full(len(call_node), ABSENT)

    cost_ns, waits = _waits(graph, calls, launch_call)
    all_edges = [
        *_host_edges(
            graph, calls, np.where(begin_node == ABSENT, np.arange(len(calls)), begin_node)
        ),
        edges(begin_node[begin_call], begin_call, Via.HOST, 0),
        *_launches(graph, calls, launch_call, begin_node, activity_node),
        *(
            replace(of, source=activity_node[of.source], target=activity_node[of.target])
            for of in gpu_edges(graph)
        ),
        *(replace(of, source=activity_node[of.source]) for of in waits),
    ]
    moment_ns = np.concatenate((calls.end_ns, calls.begin_ns[begin_call], timeline.end_ns))
    node_rank = np.repeat((1, 0, 2), (len(calls), begin_count, len(activity_node)))
    computed_ns = np.concatenate((moment_ns[: len(call_node)], timeline.start_ns))
    order = np.lexsort((np.arange(len(moment_ns)), node_rank, computed_ns))
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    columns = {
        field.name: np.concatenate([getattr(of, field.name) for of in all_edges])
        for field in fields(Edges)
    }
    columns["source"], columns["target"] = position[columns["source"]], position[columns["target"]]
    is_forward = columns["source"] < columns["target"]
    thread_index = calls.thread_index[call_node]
    program = Program(
        kind=np.repeat(
            (NodeKind.CALL, NodeKind.BEGIN, NodeKind.ACTIVITY),
            (len(calls), begin_count, len(activity_node)),
        ).astype(np.int8)[order],
        event_id=np.concatenate((calls.event_id[call_node], timeline.event_id))[order],
        row=np.concatenate((no_activity, np.arange(len(activity_node))))[order],
        cost_ns=np.concatenate(
            (cost_ns, np.zeros(begin_count, np.int64), timeline.end_ns - timeline.start_ns)
        )[order],
        moment_ns=moment_ns[order],
        thread_index=np.concatenate((thread_index, no_call)).astype(np.int32)[order],
        stream_index=np.concatenate((no_activity, timeline.stream_index))[order],
        activity_kind=np.concatenate((no_activity, timeline.kind)).astype(np.int8)[order],
        launch_node=np.concatenate(
            (no_activity, np.where(is_launched, position[launch_call], ABSENT))
        )[order],
        **{name: column[is_forward] for name, column in columns.items()},
        lag=np.zeros(int(is_forward.sum()), dtype=np.int8),
        steps=1,
        length_ns=int(moment_ns.max() - moment_ns.min()),
        is_repeated=False,
    )
    launched_ns = np.where(is_launched, calls.begin_ns[launch_call], ABSENT)
    return Recorded(
        program=program,
        sequence=np.concatenate((thread_index, len(trace.threads) + timeline.stream_index))[order],
        host_ns=np.concatenate((calls.begin_ns[call_node], launched_ns))[order],
    )


def _host_edges(graph: Graph, calls: Calls, entry: NDArray[np.intp]) -> list[Edges]:
    """The work of each thread between its calls, and the threads that wait for each other.

    Args:
        graph: the file's dependencies.
        calls: its calls.
        entry: intp[c], the node with which each call begins.
    """
    call = np.flatnonzero(calls.thread_index[1:] == calls.thread_index[:-1]) + 1
    over = find_hand_overs(graph.host.timeline.trace, calls)
    asleep_ns = np.zeros(len(calls), dtype=np.int64)
    asleep_ns[over.call_index] = over.asleep_ns
    work_ns = calls.begin_ns[call] - calls.end_ns[call - 1] - asleep_ns[call]
    return [
        edges(call - 1, entry[call], Via.HOST, work_ns),
        edges(over.source_index, entry[over.call_index], Via.THREAD, over.latency_ns),
    ]


def _launches(
    graph: Graph,
    calls: Calls,
    launch_call: Int64Array,
    begin_node: NDArray[np.intp],
    activity_node: NDArray[np.intp],
) -> list[Edges]:
    """From each call, or its begin, to what it launches."""
    timeline, binding = graph.host.timeline, graph.binding
    is_launched = launch_call != ABSENT
    has_begin = is_launched & (begin_node[launch_call] != ABSENT)
    after, inside = np.flatnonzero(is_launched & ~has_begin), np.flatnonzero(has_begin)
    typical_ns = binding.latencies.typical_ns[launch_index(timeline.kind[after])]
    delay_ns = timeline.start_ns[inside] - calls.begin_ns[launch_call[inside]]
    waited_for_launch = binding.constraint[inside] == Constraint.LAUNCH
    latency_ns = np.zeros(len(inside), dtype=np.int64)
    for _, index in groups_of(
        2 * timeline.kind[inside].astype(np.intp) + graph.host.is_staged[inside]
    ):
        shown_ns = delay_ns[index[waited_for_launch[index]]]
        latency_ns[index] = lower_median(shown_ns) if len(shown_ns) else delay_ns[index].min()
    return [
        edges(launch_call[after], activity_node[after], Via.LAUNCH, typical_ns),
        edges(begin_node[launch_call[inside]], activity_node[inside], Via.LAUNCH, latency_ns),
    ]


def _waits(graph: Graph, calls: Calls, launch_call: Int64Array) -> tuple[Int64Array, list[Edges]]:
    """What calls take by themselves, and what they wait for.

    Returns:
        int64[c], ns, the cost of each call; and edges from timeline rows to calls.
    """
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    cost_ns = calls.end_ns - calls.begin_ns
    only_waits = np.isin(calls.blocking, RETURNS_WHEN_DONE)
    row_of = np.full(len(trace), ABSENT, dtype=np.intp)
    row_of[timeline.event_id] = np.arange(len(timeline.event_id))
    is_sync = graph.kind == EdgeKind.SYNC
    row, call = row_of[graph.source_id[is_sync]], calls.index_of[graph.target_id[is_sync]]
    of_wait = (call != ABSENT) & only_waits[call]
    row, call = row[of_wait], call[of_wait]
    awaited_ns = np.full(len(calls), ABSENT, dtype=np.int64)
    np.maximum.at(awaited_ns, call, timeline.end_ns[row])
    is_known = only_waits & (awaited_ns != ABSENT)
    had_ended_ns = cost_ns[is_known & (awaited_ns < calls.begin_ns)]
    own_ns = lower_median(had_ended_ns) if len(had_ended_ns) >= LEAST_STARTS else _OWN_WAIT_NS
    cost_ns = np.where(is_known, np.minimum(cost_ns, own_ns), cost_ns)

    copy_row = np.flatnonzero(
        (launch_call != ABSENT) & (calls.blocking[launch_call] == Blocking.COPY)
    )
    copy_row = copy_row[timeline.start_ns[copy_row] < calls.end_ns[launch_call[copy_row]]]
    copy_call = launch_call[copy_row]
    return_ns = calls.end_ns[copy_call] - timeline.end_ns[copy_row]
    for _, index in groups_of(trace.name_index[timeline.event_id[copy_row]]):
        return_ns[index] = lower_median(return_ns[index])
    cost_ns[copy_call] = np.minimum(cost_ns[copy_call], _OWN_COPY_NS)
    return (
        cost_ns,
        [
            edges(row, call, Via.WAIT, graph.binding.latencies.typical_ns[AWAITED]),
            edges(copy_row, copy_call, Via.WAIT, return_ns),
        ],
    )
