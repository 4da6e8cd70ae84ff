"""Calls of the host as nodes of a program, and the edges of their own time, waits and launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.constraints import Constraint
from tracelab.model.cuda_graphs.graph_replays import replayed
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.host import Host
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
from tracelab.model.lookup import groups_of, rows_of
from tracelab.model.nesting import is_nested
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import Edges, Via, edges, join_pairs

# A thread that waits for another one records nothing meanwhile. Between two operators of a thread
# that works pass up to some 20 us.
_ASLEEP_NS = 20_000


class Calls(Arrays):
    """The outermost calls that launch or block, by thread and begin.

    Attributes:
        event_id: int64[c].
        index_of: int64[n], per event of the trace the call that it is or lies in, else ABSENT.
        thread_index: int32[c], index into `Trace.threads`.
        begin_ns, end_ns: int64[c], ns.
        blocking: int8[c], a `Blocking`, ABSENT for calls that do not block.
    """

    event_id: Int64Array
    index_of: Int64Array
    thread_index: NDArray[np.int32]
    begin_ns: Int64Array
    end_ns: Int64Array
    blocking: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.event_id)


def find_calls(host: Host) -> Calls:
    """The calls of the threads that launch work."""
    trace, launch_id = host.timeline.trace, host.timeline.launch_id
    blocking_calls = host.blocking_calls
    event_id = np.union1d(launch_id[launch_id != ABSENT], blocking_calls.event_id)
    thread_index = trace.thread_index[event_id]
    event_id = event_id[np.isin(thread_index, list(host.launching_threads))]
    event_id = event_id[
        np.lexsort(
            (-trace.end_ns[event_id], trace.start_ns[event_id], trace.thread_index[event_id])
        )
    ]
    is_outermost = ~is_nested(trace, event_id)
    index_of = np.full(len(trace), ABSENT, dtype=np.int64)
    index_of[event_id] = np.cumsum(is_outermost) - 1
    blocking = np.full(int(is_outermost.sum()), ABSENT, dtype=np.int8)
    call_index = index_of[blocking_calls.event_id]
    blocking[call_index[call_index != ABSENT]] = blocking_calls.kind[call_index != ABSENT]
    event_id = event_id[is_outermost].astype(np.int64)
    return Calls(
        event_id=event_id,
        index_of=index_of,
        thread_index=trace.thread_index[event_id],
        begin_ns=trace.start_ns[event_id],
        end_ns=trace.end_ns[event_id],
        blocking=blocking,
    )


def find_hand_overs(
    trace: Trace, calls: Calls
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Find where threads waited for others between two of their calls, and for which call.

    A thread that records nothing while another one returns from calls, and then goes on, waited for
    the last of those, as autograd's does for the main one.

    Returns:
        int64[h] each: the first call of the thread that goes on; the last call of the other thread
        before that; ns from its return to the begin of the first; and how long that waited, ns.
    """
    columns: list[tuple[int, int, int, int]] = []
    event_id = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    by_end = np.argsort(calls.end_ns, kind="stable")
    ended = calls.end_ns[by_end], calls.thread_index[by_end]
    threads = list(groups_of(calls.thread_index))
    events_of = dict(groups_of(trace.thread_index[event_id]))
    for thread, of_thread in threads if len(threads) > 1 else ():
        events = event_id[events_of[thread]]
        marks_ns = np.sort(np.concatenate((trace.start_ns[events], trace.end_ns[events])))
        columns += _hand_overs_of(calls, of_thread, by_end, *ended, marks_ns)
    call, source, latency_ns, asleep_ns = np.array(columns, dtype=np.int64).reshape(-1, 4).T
    return call, source, latency_ns, asleep_ns


def _hand_overs_of(
    calls: Calls,
    of_thread: NDArray[np.intp],
    by_end: NDArray[np.intp],
    end_ns: Int64Array,
    thread_index: NDArray[np.int32],
    marks_ns: Int64Array,
) -> list[tuple[int, int, int, int]]:
    """The rows of one thread; end and thread are those of the calls of all threads, by end."""
    begin_ns, own_end_ns = calls.begin_ns[of_thread], np.sort(calls.end_ns[of_thread])
    own = calls.thread_index[of_thread[0]]
    previous_ns = np.concatenate((marks_ns[:1], calls.end_ns[of_thread[:-1]]))
    # Only where another thread returned from a call, and there was time to sleep.
    until, since = np.searchsorted(end_ns, (begin_ns, previous_ns))
    own_until, own_since = np.searchsorted(own_end_ns, (begin_ns, previous_ns))
    returned = until - since > own_until - own_since
    returned &= begin_ns - previous_ns > _ASLEEP_NS
    returned[:1] = True  # a thread begins because another one made it
    rows = []
    for position in np.flatnonzero(returned).tolist():
        since_ns, until_ns = int(previous_ns[position]), int(begin_ns[position])
        first, end = np.searchsorted(marks_ns, (since_ns, until_ns), side="right")
        moments_ns = np.concatenate(([since_ns], marks_ns[first:end], [until_ns]))
        silences_ns = np.diff(moments_ns)
        longest = int(silences_ns.argmax())
        asleep_ns = int(silences_ns[longest])
        slept_ns, woke_ns = int(moments_ns[longest]), int(moments_ns[longest + 1])
        if position == 0:
            asleep_ns, slept_ns, woke_ns = 0, 0, since_ns
        elif asleep_ns < _ASLEEP_NS:
            continue
        last = int(np.searchsorted(end_ns, woke_ns, side="right")) - 1
        while last >= 0 and end_ns[last] > slept_ns and thread_index[last] == own:
            last -= 1
        if last >= 0 and end_ns[last] > slept_ns:
            latency_ns = until_ns - int(end_ns[last])
            rows.append((int(of_thread[position]), int(by_end[last]), latency_ns, asleep_ns))
    return rows


class Nodes(Arrays):
    """First the return of each call, then the begins of some, then the end of each activity.

    Attributes:
        calls: the calls; call *i* is node *i*.
        begin_call: intp[b], the calls that have a node for their begin: those that return after
            what they launch has started.
        entry: intp[c], the node that each call begins with, its own where that is the return.
        launch_call: int64[m], per timeline row the call that launched it, ABSENT where the file
            does not have that.
        activity: intp[m], the node of each timeline row.
    """

    calls: Calls
    begin_call: NDArray[np.intp]
    entry: NDArray[np.intp]
    launch_call: Int64Array
    activity: NDArray[np.intp]

    @property
    def is_launched(self) -> NDArray[np.bool_]:
        """bool[m], which timeline rows have their launch in the file."""
        is_launched: NDArray[np.bool_] = self.launch_call != ABSENT
        return is_launched

    @property
    def host_call(self) -> NDArray[np.intp]:
        """intp[c + b], the call of each node of the host."""
        return np.concatenate((np.arange(len(self.calls)), self.begin_call))

    def __len__(self) -> int:
        return len(self.calls) + len(self.begin_call) + len(self.activity)


def find_nodes(host: Host) -> Nodes:
    """The nodes of a file."""
    timeline, calls = host.timeline, find_calls(host)
    launch_call = np.where(timeline.launch_id == ABSENT, ABSENT, calls.index_of[timeline.launch_id])
    starts_inside = launch_call != ABSENT
    starts_inside &= timeline.start_ns < calls.end_ns[launch_call]
    begin_call = np.unique(launch_call[starts_inside]).astype(np.intp)
    entry = np.arange(len(calls))
    entry[begin_call] = len(calls) + np.arange(len(begin_call))
    first_activity = len(calls) + len(begin_call)
    return Nodes(
        calls=calls,
        begin_call=begin_call,
        entry=entry,
        launch_call=launch_call,
        activity=first_activity + np.arange(len(timeline.event_id)),
    )


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
    woken, source, latency_ns, slept_ns = find_hand_overs(graph.host.timeline.trace, calls)
    asleep_ns = np.zeros(len(calls), dtype=np.int64)
    asleep_ns[woken] = slept_ns
    work_ns = calls.begin_ns[call] - calls.end_ns[call - 1] - asleep_ns[call]
    return [
        edges(call - 1, nodes.entry[call], Via.HOST, work_ns),
        edges(nodes.entry[nodes.begin_call], nodes.begin_call, Via.HOST, 0),
        edges(source, nodes.entry[woken], Via.THREAD, latency_ns),
    ]


def launch_edges(graph: Graph, nodes: Nodes) -> list[Edges]:
    """Return the edges from each call, or its start, to its launches."""
    timeline, binding, calls = graph.host.timeline, graph.binding, nodes.calls
    has_begin = nodes.entry[nodes.launch_call] != nodes.launch_call
    after = np.flatnonzero(nodes.is_launched & ~has_begin)
    inside = np.flatnonzero(nodes.is_launched & has_begin)
    is_replayed, is_staged = replayed(timeline), graph.host.is_staged
    waited_for_launch = binding.constraint == Constraint.LAUNCH
    typical_ns = binding.latencies.typical_ns[launch_index(timeline.kind[after])]
    delay_ns = timeline.start_ns[after] - timeline.trace.end_ns[timeline.launch_id[after]]
    # All later nodes of a graph follow from the first ones.
    begins = timeline.start_ns[after] == timeline.first_start_of_launch_ns[after]
    shown_ns = delay_ns[begins & (is_replayed & waited_for_launch)[after]]
    typical_ns[is_replayed[after]] = own_latency_ns(shown_ns, 1, REPLAY_START_NS)
    # It takes 2.4 us in a trace whose steps copy 515 tensors of pageable memory, of 28 kB each.
    shown_ns = delay_ns[(is_staged & waited_for_launch)[after]]
    [copy_ns] = binding.latencies.typical_ns[launch_index(np.array([Kind.COPY], dtype=np.int8))]
    typical_ns[is_staged[after]] = own_latency_ns(shown_ns, MIN_STARTS, copy_ns)
    inside_call = nodes.launch_call[inside]
    delay_ns = timeline.start_ns[inside] - calls.begin_ns[inside_call]
    sort = 2 * timeline.kind[inside].astype(np.intp) + is_staged[inside]
    sort += 2 * len(Kind) * is_replayed[inside]
    latency_ns = np.zeros(len(inside), dtype=np.int64)
    for _, index in groups_of(sort):
        shown_ns = delay_ns[index[waited_for_launch[inside[index]]]]
        latency_ns[index] = lower_median(shown_ns) if len(shown_ns) else delay_ns[index].min()
    return [
        edges(nodes.launch_call[after], nodes.activity[after], Via.LAUNCH, typical_ns),
        edges(nodes.entry[inside_call], nodes.activity[inside], Via.LAUNCH, latency_ns),
    ]


def own_latency_ns(shown_ns: Int64Array, least: int, typical_ns: np.int64 | int) -> int:
    """The median of latencies (int64[k], ns) if enough show it and it needs no explanation."""
    if len(shown_ns) >= least and (own_ns := lower_median(shown_ns)) <= UNEXPLAINED_NS:
        return own_ns
    return int(typical_ns)


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
    is_sync = graph.kind == EdgeKind.SYNC
    row = rows_of(timeline.event_id, graph.source_id[is_sync])
    call = calls.index_of[graph.target_id[is_sync]]
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
    shown_ns = (calls.end_ns - awaited_ns)[has_waited]
    typical_ns = graph.binding.latencies.typical_ns[AWAITED]
    wake_up_ns = own_latency_ns(shown_ns, _MIN_WAKE_UPS, typical_ns)
    return edges(nodes.activity[row], call, Via.WAIT, wake_up_ns)


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
    pairs = []
    for stream in timeline.streams:
        row = np.arange(stream.first_row, stream.end_row)
        launch = nodes.launch_call[row]
        is_first = (launch != ABSENT) & np.append(True, launch[1:] != launch[:-1])
        row, launch = row[is_first], launch[is_first]
        waiting = launch[LAUNCHES_IN_QUEUE:]
        source, before = row[:-LAUNCHES_IN_QUEUE], row[np.maximum(np.arange(len(waiting)) - 1, 0)]
        # Some queues take one more: one that had done only the launch before that by then.
        is_done = timeline.end_ns[source] <= calls.end_ns[waiting]
        pairs.append((np.where(is_done, source, before), waiting))
    row, call = join_pairs(pairs)
    # Where the recording shows a longer queue, this one is no limit.
    is_limit = timeline.end_ns[row] <= calls.end_ns[call]
    row, call = row[is_limit], call[is_limit]
    has_waited = timeline.end_ns[row] > calls.begin_ns[call]
    has_waited &= cost_ns[call] > MAX_CALL_NS
    if has_waited.any():
        cost_ns[call[has_waited]] = lower_median(cost_ns[nodes.launch_call[nodes.is_launched]])
    return edges(nodes.activity[row], nodes.entry[call], Via.LIMIT, 0)
