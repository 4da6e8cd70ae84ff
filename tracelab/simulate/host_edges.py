"""Calls of the host as nodes of a program, and the edges of their own time, waits and launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array
from tracelab.model.binding import Constraint
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.cuda_graphs import replayed
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
from tracelab.model.lookup import expand_ranges, groups_of, is_nested, rows_of, search_ranges
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import Edges, Via, edges, join_pairs

# A waiting thread records nothing; a working one pauses up to some 20 us.
_ASLEEP_NS = 20_000


class Calls(Arrays):
    """The outermost calls that launch or block, by thread and begin.

    `index_of` each event is the call that it is or lies in, else ABSENT; `blocking` likewise.
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
    """Find the calls of the threads that launch work."""
    trace, launch_id = host.timeline.trace, host.timeline.launch_id
    blocking_calls = host.blocking_calls
    event_id = np.union1d(launch_id[launch_id != ABSENT], blocking_calls.event_id)
    thread_index = trace.thread_index[event_id]
    event_id = event_id[host.is_launching[thread_index]]
    order = (-trace.end_ns[event_id], trace.start_ns[event_id], trace.thread_index[event_id])
    event_id = event_id[np.lexsort(order)]
    is_outermost = ~is_nested(trace, event_id)
    index_of = np.full(len(trace), ABSENT, dtype=np.int64)
    index_of[event_id] = np.cumsum(is_outermost) - 1
    blocking = np.full(int(is_outermost.sum()), ABSENT, dtype=np.int8)
    call_index = index_of[blocking_calls.event_id]
    blocking[call_index[call_index != ABSENT]] = blocking_calls.kind[call_index != ABSENT]
    event_id = event_id[is_outermost].astype(np.int64)
    thread_index, begin_ns = trace.thread_index[event_id], trace.start_ns[event_id]
    return Calls(event_id, index_of, thread_index, begin_ns, trace.end_ns[event_id], blocking)


def find_hand_overs(
    trace: Trace, calls: Calls
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Find where threads waited for others between two of their calls, and for which call.

    A thread that records nothing while another returns from calls waited for the last of these, as
    autograd's does.

    Returns int64[h] each: the call that goes on; the other thread's call before; ns from its return
    to that begin; and the wait, ns.
    """
    threads = list(groups_of(calls.thread_index))
    if len(threads) < 2:
        return (np.zeros(0, dtype=np.int64),) * 4
    events = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    events_of = {thread: events[own] for thread, own in groups_of(trace.thread_index[events])}
    marks = [
        np.sort(np.concatenate((trace.start_ns[own], trace.end_ns[own])))
        for own in (events_of[thread] for thread, _ in threads)
    ]
    marks_ns, bounds = np.concatenate(marks), np.cumsum([0, *map(len, marks)])
    number = np.repeat(np.arange(len(threads)), [len(of_thread) for _, of_thread in threads])
    begins = np.diff(number, prepend=ABSENT) != 0
    previous_ns = np.where(begins, marks_ns[bounds[number]], np.roll(calls.end_ns, 1))
    call = np.flatnonzero(begins | _follows_another(calls, previous_ns))
    begins, number, since_ns = begins[call], number[call], previous_ns[call]
    until_ns = np.where(begins, since_ns, calls.begin_ns[call])
    first, end = (
        search_ranges(marks_ns, bounds[number], bounds[number + 1], moments_ns, "right")
        for moments_ns in (since_ns, until_ns)
    )
    slept_ns, woke_ns = _longest_silences(marks_ns, first, end, since_ns, until_ns)
    is_asleep = begins | (woke_ns - slept_ns >= _ASLEEP_NS)
    call, slept_ns, woke_ns = call[is_asleep], slept_ns[is_asleep], woke_ns[is_asleep]
    source = _last_of_others(calls, call, np.where(begins[is_asleep], 0, slept_ns), woke_ns)
    found = source != ABSENT
    call, source, asleep_ns = call[found], source[found], (woke_ns - slept_ns)[found]
    return call, source, calls.begin_ns[call] - calls.end_ns[source], asleep_ns


def _follows_another(calls: Calls, previous_ns: Int64Array) -> BoolArray:
    """bool[c], before which calls another thread returned from one, and there was time to sleep."""
    by_end = np.argsort(calls.end_ns, kind="stable")
    until, since = np.searchsorted(calls.end_ns[by_end], (calls.begin_ns, previous_ns))
    own = calls.thread_index.astype(np.int64) * (len(calls) + 1)
    own_ends = np.sort(own[by_end] + np.arange(len(calls)))
    own_until, own_since = np.searchsorted(own_ends, (own + until, own + since))
    follows: BoolArray = until - since > own_until - own_since
    return follows & (calls.begin_ns - previous_ns > _ASLEEP_NS)


def _longest_silences(
    marks_ns: Int64Array,
    first: IndexArray,
    end: IndexArray,
    since_ns: Int64Array,
    until_ns: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    index, mark = expand_ranges(first - 1, end)
    begin_ns = np.where(mark < first[index], since_ns[index], marks_ns[mark])
    next_ns = marks_ns[np.minimum(mark + 1, len(marks_ns) - 1)]
    end_ns = np.where(mark + 1 < end[index], next_ns, until_ns[index])
    longest_first = np.lexsort((mark, begin_ns - end_ns, index))
    at = longest_first[np.searchsorted(index, np.arange(len(first)))]
    return begin_ns[at], end_ns[at]


def _last_of_others(
    calls: Calls, call: IndexArray, since_ns: Int64Array, until_ns: Int64Array
) -> IndexArray:
    """intp[k], the last call of another thread that returned in a time before each, or ABSENT."""
    by_end = np.argsort(calls.end_ns, kind="stable")
    last = np.searchsorted(calls.end_ns[by_end], until_ns, side="right") - 1
    open_ = np.arange(len(call))
    while len(open_):
        last[open_[calls.end_ns[by_end[last[open_]]] <= since_ns[open_]]] = ABSENT
        open_ = open_[last[open_] != ABSENT]
        open_ = open_[calls.thread_index[by_end[last[open_]]] == calls.thread_index[call[open_]]]
        last[open_] -= 1
    return np.where(last == ABSENT, ABSENT, by_end[last])


class Nodes(Arrays):
    """First the return of each call, then the begins of some, then the end of each activity.

    Attributes:
        begin_call: intp[b], calls with a node for their begin: what they launch starts before they
            return.
        entry: intp[c], the node that each call begins with.
        launch_call: int64[m], per timeline row, else ABSENT.
        activity: intp[m], the node of each timeline row.
    """

    calls: Calls
    begin_call: IndexArray
    entry: IndexArray
    launch_call: Int64Array
    activity: IndexArray

    @property
    def is_launched(self) -> BoolArray:
        """bool[m], which timeline rows have their launch in the file."""
        return np.asarray(self.launch_call != ABSENT)

    @property
    def host_call(self) -> IndexArray:
        """intp[c + b], the call of each node of the host."""
        return np.concatenate((np.arange(len(self.calls)), self.begin_call))

    def __len__(self) -> int:
        return len(self.calls) + len(self.begin_call) + len(self.activity)


def find_nodes(host: Host) -> Nodes:
    """Find the nodes of a file."""
    timeline, calls = host.timeline, find_calls(host)
    launch_call = np.where(timeline.launch_id == ABSENT, ABSENT, calls.index_of[timeline.launch_id])
    starts_inside = launch_call != ABSENT
    starts_inside &= timeline.start_ns < calls.end_ns[launch_call]
    begin_call = np.unique(launch_call[starts_inside]).astype(np.intp)
    entry = np.arange(len(calls))
    entry[begin_call] = len(calls) + np.arange(len(begin_call))
    activity = len(calls) + len(begin_call) + np.arange(len(timeline.event_id))
    return Nodes(calls, begin_call, entry, launch_call, activity)


# What a blocking call takes that has nothing to wait for, where the trace has too few of them.
_OWN_WAIT_NS = 4_000
# Wake-ups differ little in one file: 2.5 us behind graphs on H200s, 4.0 to 5.0 in captures of
# kernels.
_MIN_WAKE_UPS = 5
# What a copy call takes by itself where it has to wait for its copy, at most.
_OWN_COPY_NS = 10_000
# Launches in a stream before one waits: 1,021 (H200, CUDA 13.0, `tests/benchmarks/contention.py`);
# 990 to 999 in captures.
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
    """Link each call, or its begin, to its launches."""
    timeline, binding, calls = graph.host.timeline, graph.binding, nodes.calls
    has_begin = nodes.entry[nodes.launch_call] != nodes.launch_call
    after = np.flatnonzero(nodes.is_launched & ~has_begin)
    inside = np.flatnonzero(nodes.is_launched & has_begin)
    is_replayed, is_staged = replayed(timeline), graph.host.is_staged
    waited_for_launch = binding.constraint == Constraint.LAUNCH
    typical_ns = binding.latencies.typical_ns[launch_index(timeline.kind[after])]
    delay_ns = timeline.start_ns[after] - timeline.trace.end_ns[timeline.launch_id[after]]
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
    """int64[c], ns, the cost of each call; and the edges of their waits."""
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
    is_limit = timeline.end_ns[row] <= calls.end_ns[call]
    row, call = row[is_limit], call[is_limit]
    has_waited = timeline.end_ns[row] > calls.begin_ns[call]
    has_waited &= cost_ns[call] > MAX_CALL_NS
    if has_waited.any():
        cost_ns[call[has_waited]] = lower_median(cost_ns[nodes.launch_call[nodes.is_launched]])
    return edges(nodes.activity[row], nodes.entry[call], Via.LIMIT, 0)
