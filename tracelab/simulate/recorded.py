"""A recording as a program that runs once, and its typical steps, cut out to be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, concatenated
from tracelab.model.graph import Graph
from tracelab.model.latencies import previous_index
from tracelab.model.lookup import groups_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.gpu_edges import gpu_edges
from tracelab.simulate.host_edges import Nodes, find_nodes, launch_edges, wait_edges, work_edges
from tracelab.simulate.program import Edges, NodeKind, Program, Via, add_edges


class Recorded(Arrays):
    """A whole file as a program that runs once; no edge has a lag.

    `sequence`, intp[n], is a thread or, after these, a stream. `host_ns`, int64[n], is the begin of
    the call or launch, else ABSENT.
    """

    program: Program
    sequence: IndexArray
    host_ns: Int64Array


def record_program(graph: Graph) -> Recorded:
    """Make the program of a file."""
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


def _order(timeline: Timeline, nodes: Nodes) -> IndexArray:
    calls = nodes.calls
    moment_ns = np.concatenate((calls.end_ns, calls.begin_ns[nodes.begin_call], timeline.start_ns))
    rank = np.repeat((1, 0, 2), (len(calls), len(nodes.begin_call), len(nodes.activity)))
    return np.lexsort((np.arange(len(nodes)), rank, moment_ns))


def _program(
    timeline: Timeline,
    nodes: Nodes,
    cost_ns: Int64Array,
    all_edges: Sequence[Edges],
    order: IndexArray,
) -> Program:
    calls, host_call = nodes.calls, nodes.host_call
    begin_count, no_activity = len(nodes.begin_call), np.full(len(host_call), ABSENT)
    no_thread = np.full(len(nodes.activity), ABSENT)
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    host_ns = np.concatenate((calls.end_ns, calls.begin_ns[nodes.begin_call]))
    moment_ns = np.concatenate((host_ns, timeline.end_ns))
    edge = concatenated(all_edges)
    source, target = position[edge.source], position[edge.target]
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
        "moment_ns": moment_ns,
        "thread_index": np.concatenate((calls.thread_index[host_call], no_thread)).astype(np.int32),
        "stream_index": np.concatenate((no_activity, timeline.stream_index)),
        "activity_kind": np.concatenate((no_activity, timeline.kind)).astype(np.int8),
        "launch_node": np.concatenate((no_activity, launch_node)),
    }
    return Program(
        **{name: column[order] for name, column in by_node.items()},
        source=source[is_forward],
        target=target[is_forward],
        via=edge.via[is_forward],
        lag=np.zeros(int(is_forward.sum()), dtype=np.int8),
        latency_ns=edge.latency_ns[is_forward],
        steps=1,
        length_ns=int(moment_ns.max() - moment_ns.min()),
        is_repeated=False,
    )


_MAX_TYPICAL_FACTOR = 2.5
_MAX_NODES = 8_000


def typical_steps(timeline: Timeline, node_count: int) -> tuple[int, int] | None:
    """Return the first and the last of the steps to repeat, as indices; None without steady steps.

    They are the last of the longest runs without an irregular step, after another step if possible.
    """
    steady = timeline.steady
    if steady is None:
        return None
    lengths_ns = timeline.typical_lengths_ns
    longest_ns = _MAX_TYPICAL_FACTOR * median(lengths_ns)
    runs: list[list[int]] = []
    for index, length_ns in zip(steady.indices, lengths_ns, strict=True):
        if length_ns <= longest_ns:
            if not runs or runs[-1][-1] != index - 1:
                runs.append([])
            runs[-1].append(index)
    run = max(reversed(runs), key=len)
    first, last = run[0], run[-1]
    if first == 0 and last > 0:
        first = 1
    most_steps = max(2, _MAX_NODES * len(timeline.steps) // node_count)
    return first, min(last, first + most_steps - 1)


def host_steps(timeline: Timeline, program: Program) -> IndexArray:
    """intp[n], index into `Timeline.steps` of the step in which the host made each node's call.

    ABSENT before the first step.
    """
    trace, launch = timeline.trace, program.launch_node
    call = np.where(launch == ABSENT, np.arange(len(program)), launch)
    step_start_ns = trace.start_ns[[step.event_id for step in timeline.steps]]
    made_ns = trace.start_ns[program.event_id[call]]
    return np.searchsorted(step_start_ns, made_ns, side="right") - 1


def repeat(graph: Graph, recorded: Recorded, first_step: int, last_step: int) -> Program:
    """Cut out the steps from one to another as a program that is repeated.

    Waits for the step before become waits for the repetition before, at the same distance from its
    end.
    """
    timeline, whole = graph.host.timeline, recorded.program
    first, last = timeline.steps[first_step], timeline.steps[last_step]
    is_inside = _is_inside(graph, recorded, first_step, last_step)
    stands_in, wrapped = _wrapped(recorded, is_inside)
    lag = (~is_inside[whole.source]).astype(np.int8)
    source = np.where(lag == 1, stands_in[whole.source], whole.source)
    is_kept = (lag == 0) | (whole.via != Via.HOST)
    cut = replace(whole, lag=lag).select(is_inside, is_kept, source)
    steps, length_ns = last_step - first_step + 1, last.end_ns - first.start_ns
    program = replace(cut, steps=steps, length_ns=length_ns, is_repeated=True)
    node = np.cumsum(is_inside) - 1
    return _add_wraps(graph, program, node[wrapped], first_step, last_step)


def whole(graph: Graph, recorded: Recorded) -> Program:
    """Make a program that runs once of a file without steps, in the window of its figures.

    That begins with the first GPU activity; host work before it never changes.
    """
    program, window = recorded.program, graph.host.timeline.windows[0]
    is_before = (program.kind != NodeKind.ACTIVITY) & (program.moment_ns <= window.start_ns)
    since_ns = np.maximum(program.moment_ns - window.start_ns, 0)
    from_before = is_before[program.source]
    arrival_ns = program.moment_ns[program.source] + program.latency_ns - window.start_ns
    changed = replace(
        program,
        cost_ns=np.where(is_before, 0, np.minimum(program.cost_ns, since_ns)),
        moment_ns=window.start_ns + since_ns,
        latency_ns=np.where(from_before, np.maximum(arrival_ns, 0), program.latency_ns),
        length_ns=window.length_ns,
    )
    every_node = np.ones(len(program), dtype=np.bool_)
    return changed.select(every_node, ~is_before[program.target], program.source)


def once(graph: Graph, recorded: Recorded, first_step: int, last_step: int) -> Program:
    """Cut out the same steps as a program that runs once, from where the steps before had come."""
    timeline, whole = graph.host.timeline, recorded.program
    into = _is_inside(graph, recorded, first_step, last_step)[whole.target]
    is_kept = np.zeros(len(whole), dtype=np.bool_)
    is_kept[whole.source[into]] = is_kept[whole.target[into]] = True
    length_ns = timeline.steps[last_step].end_ns - timeline.steps[first_step].start_ns
    return replace(whole.select(is_kept, into, whole.source), length_ns=length_ns)


def _is_inside(graph: Graph, recorded: Recorded, first_step: int, last_step: int) -> BoolArray:
    timeline = graph.host.timeline
    start_ns = timeline.trace.start_ns[timeline.steps[first_step].event_id]
    end_ns = timeline.trace.end_ns[timeline.steps[last_step].event_id]
    is_inside: BoolArray = recorded.host_ns >= start_ns
    is_inside &= recorded.host_ns < end_ns
    return is_inside


def _wrapped(recorded: Recorded, is_inside: BoolArray) -> tuple[IndexArray, IndexArray]:
    """Map nodes before the steps to what stands in for them; find the ends of all queues."""
    row = recorded.program.row
    stands_in = np.full(len(row), ABSENT, dtype=np.intp)
    ends = []
    for _, members in groups_of(recorded.sequence):
        in_order = members[np.argsort(row[members], kind="stable")]
        inside = np.flatnonzero(is_inside[in_order])
        if not len(inside):
            continue
        first, last = inside[0], inside[-1]
        ends.append((in_order[first], in_order[last]))
        count = min(first, last - first + 1)
        stands_in[in_order[first - count : first]] = in_order[last + 1 - count : last + 1]
    return stands_in, np.array(ends, dtype=np.intp).reshape(-1, 2)


def _add_wraps(
    graph: Graph, program: Program, ends: IndexArray, first_step: int, last_step: int
) -> Program:
    timeline = graph.host.timeline
    first, last = ends.T
    is_stream = program.row[first] != ABSENT
    has_previous = np.isin(first, program.target[(program.lag == 1) & (program.via == Via.STREAM)])
    of_stream = is_stream & ~has_previous
    kind = program.activity_kind
    gap_index = previous_index(kind[last[of_stream]], kind[first[of_stream]])
    step_thread = timeline.trace.thread_index[timeline.steps[first_step].event_id]
    of_thread = ~is_stream & (program.thread_index[first] == step_thread)
    added = np.flatnonzero(of_stream | of_thread)
    latency_ns = np.zeros(len(first), dtype=np.int64)
    latency_ns[of_stream] = graph.binding.latencies.typical_ns[gap_index]
    trace = timeline.trace
    step_id = np.array([step.event_id for step in timeline.steps], dtype=np.intp)
    start_ns, end_ns = trace.start_ns[step_id], trace.end_ns[step_id]
    between_ns = int(np.median(start_ns[1:] - end_ns[:-1])) if len(step_id) > 1 else 0
    before_ns = trace.start_ns[program.event_id[first[of_thread]]] - start_ns[first_step]
    after_ns = np.maximum(end_ns[last_step] - program.moment_ns[last[of_thread]], 0)
    latency_ns[of_thread] = before_ns + after_ns + between_ns
    via = np.where(is_stream, Via.STREAM, Via.HOST)[added]
    return add_edges(program, last[added], first[added], via, latency_ns[added], lag=1)
