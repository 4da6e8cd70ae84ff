"""Edits of waits, of copies, and of the stream that activities run in."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory
from tracelab.model.latencies import event_index
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import (
    NEVER,
    TRUE_DEPENDENCY,
    Edited,
    NodeKind,
    Program,
    Via,
    add_edges,
    chain_activities,
    kept_before,
    out_of_stream,
    remove_activities,
    remove_edges,
    replace_cost,
    replace_latency,
    slower_beside,
    times,
)
from tracelab.simulate.sites import Selection, Sites

# Operators that copy a value to the host only to look at it.
_READS = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"))
# Operators that need on the host how large their result is: what replaces them is not known.
SIZED_BY_DATA = frozenset(
    (
        "aten::nonzero",
        "aten::masked_select",
        "aten::repeat_interleave",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::_unique",
        "aten::_unique2",
        "aten::bincount",
        "aten::histc",
    )
)
_FOUND_ONCE = frozenset(("aten::nonzero",))  # what is advised of positions: once, before the loop
# What Python asks of a tensor to decide a branch: `if norm > limit`.
DECIDES = frozenset(("aten::is_nonzero",))
_DATA_DECIDES = "what replaces an operator whose data decide the size of its result is not known"
_DEFAULT_COPY_CALL_NS = 5_000


def unblock(program: Program, selection: Selection) -> Edited:
    """The host does not wait there; a copy that only fed the wait goes, too.

    Streams that the wait kept in order get an event wait. Where data decide a result's size, the
    bounds are: the waits go, the operator goes. A wait for a value that decides a branch stays.
    """
    sites = selection.sites
    calls = calls_in_same_operators(sites, selection.calls & waits_for_gpu(sites))
    if calls.any() and (_enclosing(sites, calls, DECIDES) != ABSENT).all():
        return Edited.exactly(program, int(calls.sum()), TRUE_DEPENDENCY)
    read_copies = _read_copies(sites, calls)
    is_copy = calls & (sites.blocking == Blocking.COPY)
    is_copy[program.launch_node[read_copies]] = False
    unblocked = remove_waits(program, calls, is_copy)
    unblocked = remove_activities(unblocked, read_copies, sites.gap_ns)
    ordered = _keep_order(unblocked, program, sites, calls)
    sized = _outermost(sites, _enclosing(sites, calls, SIZED_BY_DATA))
    if not len(sized):
        return Edited.exactly(ordered, int(calls.sum()))
    gone = remove_operators(ordered, sites, sized)
    positions = _outermost(sites, _enclosing(sites, calls, _FOUND_ONCE))
    middle = remove_operators(ordered, sites, positions) if len(positions) else ordered
    return Edited(middle, gone, ordered, int(calls.sum()), _DATA_DECIDES)


def no_wait(program: Program, selection: Selection) -> Edited:
    """The stream does not wait there: by the call that makes it, or for what comes after that."""
    waits = program.via == Via.EVENT
    waits &= (selection.activities | _after_waits_of(program, selection))[program.target]
    direction = selection.sites.copy_direction
    changed = slower_beside(
        remove_edges(program, waits), direction, program.source[waits], program.target[waits]
    )
    return Edited.exactly(changed, int(waits.sum()))


def _after_waits_of(program: Program, selection: Selection) -> BoolArray:
    """bool[n], what was launched first in its stream after stream waits that were called there."""
    sites, waits = selection.sites, selection.sites.stream_wait_id
    launched = np.flatnonzero(program.launch_node != ABSENT)
    call = program.launch_node[launched]
    thread = program.thread_index[call]
    before = _count_before(sites, waits[selection.made_there(waits)], thread, call)
    follows = np.zeros(len(program.kind), dtype=np.bool_)
    stream_and_thread = program.stream_index[launched] * len(sites.timeline.trace.threads) + thread
    for _, index in groups_of(stream_and_thread):
        follows[launched[index]] = np.diff(before[index], prepend=0) > 0
    return follows


def _count_before(
    sites: Sites, waits: Int64Array, thread_index: NDArray[np.int32], call: IndexArray
) -> IndexArray:
    trace, count = sites.timeline.trace, np.zeros(len(call), dtype=np.intp)
    start_ns = trace.start_ns[sites.program.event_id[call]]
    for thread, index in groups_of(thread_index):
        wait_ns = trace.start_ns[waits[trace.thread_index[waits] == thread]]
        count[index] = np.searchsorted(wait_ns, start_ns[index])
    return count


def queues(program: Program, selection: Selection) -> Edited:
    """Each stream has a hardware queue of its own."""
    shared = (program.via == Via.QUEUE) & selection.activities[program.target]
    changed = remove_edges(program, shared)
    awaited = np.full(len(program.kind), ABSENT, dtype=np.intp)
    of_comm = program.activity_kind[program.source] == Kind.COMM
    of_comm &= (program.via == Via.EVENT) & (program.latency_ns != NEVER)
    awaited[program.target[of_comm]] = program.source[of_comm]
    source, target = awaited[program.source[shared]], program.target[shared]
    is_comm = source != ABSENT
    direction = selection.sites.copy_direction
    changed = slower_beside(changed, direction, source[is_comm], target[is_comm])
    return Edited.exactly(changed, int(shared.sum()))


def asynchronous_call_ns(program: Program) -> int:
    """Typical length of an asynchronous copy's call, ns."""
    launch = program.launch_node[program.activity_kind == Kind.COPY]
    awaiting = program.target[program.via == Via.WAIT]
    calls = np.setdiff1d(launch[launch != ABSENT], awaiting)
    return int(np.median(program.cost_ns[calls])) if len(calls) else _DEFAULT_COPY_CALL_NS


def remove_operators(program: Program, sites: Sites, operators: Int64Array) -> Program:
    """Take operators (event ids) away: their host work, calls, and what they launched."""
    regions = sites.regions(operators)
    calls = sites.inside(regions)
    return remove_host_work(program, sites, calls, sites.share_within(regions))


def remove_host_work(
    program: Program, sites: Sites, calls: BoolArray, share: NDArray[np.float64]
) -> Program:
    """Take calls (bool[n]) away, what they launched, and a share of other work.

    The share is float64[edges of the recorded program].
    """
    launch = program.launch_node
    activities = (launch != ABSENT) & calls[launch]
    changed = remove_edges(program, (program.via == Via.WAIT) & calls[program.target])
    changed = remove_activities(changed, activities, sites.gap_ns)
    return scale_host_work(replace_cost(changed, calls, 0), share, 0)


def scale_host_work(program: Program, share: NDArray[np.float64], factor: float) -> Program:
    """Let a share of the work between calls take `factor` times as long."""
    of_edge = np.zeros(len(program.via))
    of_edge[: len(share)] = share
    latency_ns = times(program.latency_ns, 1 - of_edge * (1 - factor))
    return replace_latency(program, of_edge > 0, latency_ns)


def waits_for_gpu(sites: Sites) -> BoolArray:
    """bool[n], the calls that did nothing but wait for the GPU, and the copies that blocked."""
    return np.isin(sites.blocking, (*RETURNS_WHEN_DONE, Blocking.COPY))


def calls_in_same_operators(sites: Sites, calls: BoolArray) -> BoolArray:
    """bool[n], these blocking calls, and those of the same run of an operator of PyTorch's."""
    blocks = waits_for_gpu(sites)
    operator = sites.operators_of(blocks)
    chosen = np.unique(operator[calls & (operator != ABSENT)])
    return calls | (blocks & np.isin(operator, chosen[sites.is_tensor_operator[chosen]]))


def _enclosing(sites: Sites, calls: BoolArray, names: frozenset[str]) -> Int64Array:
    operators = sites.timeline.operators
    is_named = operators.have_name(names.__contains__)
    return operators.around(sites.operators_of(calls)[calls], is_named)


def _outermost(sites: Sites, operators: Int64Array) -> Int64Array:
    """Event ids of the operators of PyTorch's that the program called, around some operators."""
    nesting = sites.timeline.operators
    outermost = nesting.around(operators[operators != ABSENT], sites.is_outermost)
    return np.asarray(nesting.event_id[np.unique(outermost)])


def remove_waits(program: Program, calls: BoolArray, is_copy: BoolArray) -> Program:
    """Let calls (bool[n]) take no time, or what an asynchronous copy's call takes."""
    copy_call_ns = np.minimum(program.cost_ns, asynchronous_call_ns(program))
    changed = remove_edges(program, (program.via == Via.WAIT) & calls[program.target])
    return replace_cost(changed, calls, np.where(is_copy, copy_call_ns, 0))


def _read_copies(sites: Sites, calls: BoolArray) -> BoolArray:
    reads = _enclosing(sites, calls, _READS | SIZED_BY_DATA)
    read_id = sites.timeline.operators.event_id[np.unique(reads[reads != ABSENT])]
    is_read = calls & sites.inside(sites.regions(read_id))
    launch = sites.program.launch_node
    copies: BoolArray = sites.copy_direction == "d2h"
    copies &= (launch != ABSENT) & is_read[launch]
    return copies


def _keep_order(program: Program, waiting: Program, sites: Sites, calls: BoolArray) -> Program:
    waits = (waiting.via == Via.WAIT) & (waiting.latency_ns != NEVER)
    waits &= calls[waiting.target] & np.isin(sites.blocking, RETURNS_WHEN_DONE)[waiting.target]
    waits &= sites.copy_direction[waiting.source] != "d2h"
    source, call, lag = waiting.source[waits], waiting.target[waits], waiting.lag[waits]
    count = partial(_count_before, sites, sites.stream_wait_id, program.thread_index[call])
    for stream, activities in groups_of(program.stream_index):
        launched = activities[program.launch_node[activities] != ABSENT]
        index = np.searchsorted(np.maximum.accumulate(program.launch_node[launched]), call)
        is_next = index == len(launched)
        other = (program.stream_index[source] != stream) & (lag + is_next < 2) & (len(launched) > 0)
        first = launched[np.where(is_next, 0, index)] if len(launched) else index
        other &= count(call) == count(program.launch_node[first])
        target = first[other]
        program = _await(program, sites, source[other], target, lag[other] + is_next[other])
    return program


def _await(
    program: Program, sites: Sites, source: IndexArray, target: IndexArray, lag: NDArray[np.int8]
) -> Program:
    """Let activities wait for others: of each stream for the latest, unless some have left it."""
    latest = np.flatnonzero((lag == 1) | ((lag == 0) & (source < target)))
    if (program.latency_ns[program.via == Via.STREAM] != NEVER).all():
        latest = latest[np.lexsort((-source[latest], lag[latest]))]
        stream_and_target = program.stream_index[source] * len(program.kind) + target
        latest = latest[np.unique(stream_and_target[latest], return_index=True)[1]]
    index = event_index(program.activity_kind[target[latest]])
    latency_ns = sites.graph.binding.latencies.typical_ns[index]
    return add_edges(program, source[latest], target[latest], Via.EVENT, latency_ns, lag[latest])


# From and to pinned memory over PCIe Gen 5, as measured on H100 and H200: shared/REPLAY.md.
_GEN5_GB_PER_S = (49.0, 57.0)
_GEN5 = ("H100", "H200")
# Of a GPU that nothing is known of: PCIe Gen 3 with 16 lanes to Gen 5.
_ANY_GB_PER_S = (11.0, 57.0)
_OF_GPU_UNKNOWN = "how fast this GPU copies pinned memory is not known"
_BYTES_UNKNOWN = "the file does not say how many bytes its copies move"
_MIN_COPY_NS = 1_000
_MAX_SIZE_FACTOR = 4


def pin(program: Program, selection: Selection) -> Edited:
    """Its pageable copies become pinned and asynchronous, and stay in their stream."""
    return _pinned(program, selection.sites, selection.activities & _is_pageable(selection.sites))


def prefetch(program: Program, selection: Selection) -> Edited:
    """Its copies to the GPU run one step ahead in a stream of their own, from pinned memory."""
    sites = selection.sites
    copies = selection.activities & (sites.copy_direction == "h2d")
    pinned = _pinned(_asynchronous(program, sites, copies), sites, copies & _is_pageable(sites))
    middle, low, high = (
        _ahead(of, sites, copies) for of in (pinned.program, pinned.low, pinned.high)
    )
    return Edited(middle, low, high, int(copies.sum()), pinned.reason)


def _pinned(program: Program, sites: Sites, copies: BoolArray) -> Edited:
    if not copies.any():
        return Edited.exactly(program, 0)
    changed = _launched_when_called(_asynchronous(program, sites, copies), sites, copies)
    slowest, fastest, reason = _pinned_bandwidth(sites, copies)
    size_bytes, cost_ns = sites.copied_bytes, program.cost_ns
    is_unknown = copies & (size_bytes == ABSENT)

    def copied_at(speed: float) -> Program:
        copy_ns = np.minimum(cost_ns, _MIN_COPY_NS + (size_bytes / speed).astype(np.int64))
        return replace_cost(changed, copies & ~is_unknown, copy_ns)

    middle, low, high = map(copied_at, ((slowest + fastest) / 2, fastest, slowest))
    reason = _BYTES_UNKNOWN if is_unknown.any() else reason
    return Edited(middle, low, high, int(copies.sum()), reason)


def _is_pageable(sites: Sites) -> BoolArray:
    is_pageable: BoolArray = sites.program.activity_kind == Kind.COPY
    is_pageable[is_pageable] = match_names(
        sites.timeline.trace, sites.program.event_id[is_pageable], copies_pageable_memory
    )
    return is_pageable


def _asynchronous(program: Program, sites: Sites, copies: BoolArray) -> Program:
    """Let the calls of copies return without a wait; nor does their operator wait."""
    is_copy_call = np.isin(np.arange(len(copies)), program.launch_node[copies])
    calls = calls_in_same_operators(sites, is_copy_call)
    return remove_waits(program, calls & waits_for_gpu(sites), is_copy_call)


def _launched_when_called(program: Program, sites: Sites, copies: BoolArray) -> Program:
    edges = (program.via == Via.LAUNCH) & copies[program.target]
    from_begin = program.kind[program.source] == NodeKind.BEGIN
    after_begin_ns = asynchronous_call_ns(program) + sites.copy_launch_ns
    latency_ns = np.where(from_begin, after_begin_ns, sites.copy_launch_ns)
    return replace_latency(program, edges, latency_ns)


def _pinned_bandwidth(sites: Sites, copies: BoolArray) -> tuple[float, float, str | None]:
    """Find the bounds of pinned copies' bandwidth, bytes/ns: of similar ones, or such GPUs."""
    size_bytes = sites.copied_bytes
    typical_bytes = np.median(size_bytes[copies])
    is_alike = (sites.program.activity_kind == Kind.COPY) & ~_is_pageable(sites)
    is_alike &= np.isin(sites.copy_direction, np.unique(sites.copy_direction[copies]))
    is_alike &= size_bytes >= max(typical_bytes / _MAX_SIZE_FACTOR, 1)
    is_alike &= size_bytes <= typical_bytes * _MAX_SIZE_FACTOR
    if is_alike.any():
        speed = size_bytes[is_alike] / np.maximum(sites.program.cost_ns[is_alike], 1)
        return float(speed.min()), float(speed.max()), None
    names = sites.timeline.trace.info.device_names.values()
    if names and all(any(known in name for known in _GEN5) for name in names):
        return *_GEN5_GB_PER_S, None
    return *_ANY_GB_PER_S, _OF_GPU_UNKNOWN


def _ahead(program: Program, sites: Sites, copies: BoolArray) -> Program:
    feeds = (program.via == Via.STREAM) & (program.latency_ns != NEVER)
    feeds &= copies[program.source] & ~copies[program.target]
    waits = np.isin(program.via, (Via.LAUNCH, Via.EVENT)) & copies[program.target]
    changed = out_of_stream(remove_edges(program, waits), copies, sites.gap_ns)
    source, target = program.source[feeds], program.target[feeds]
    changed = slower_beside(changed, sites.copy_direction, source, target)
    changed = _await(changed, sites, source, target, program.lag[feeds])
    device_number = sites.timeline.device_number[program.row]
    for _, nodes in groups_of(np.where(copies, device_number, ABSENT)):
        changed = chain_activities(changed, nodes, sites.gap_ns[Kind.COPY, Kind.COPY])
        per_step = -(-len(nodes) // program.steps) if program.is_repeated else 1
        call = np.roll(program.launch_node[nodes], per_step)
        is_first, has_call = np.arange(len(nodes)) < per_step, call != ABSENT
        call, copied, is_first = call[has_call], nodes[has_call], is_first[has_call]
        changed = add_edges(changed, call, copied, Via.LAUNCH, sites.copy_launch_ns, is_first)
    return changed


_MAY_FILL_GPU = "whether these kernels leave multiprocessors free for others is not known"
_USE_UNKNOWN = "where the result is used is not known: at the latest at the end of the step"


def side_stream(program: Program, selection: Selection) -> Edited:
    """Its activities run in a stream of their own and are waited for where the result is used.

    That is unknown: predicted is the stream's next wait for such an activity, the lower bound the
    step's end. Compute may find no free multiprocessor: only its bounds are known.
    """
    sites, nodes = selection.sites, selection.activities
    count = int(nodes.sum())
    if not count:
        return Edited.exactly(program, 0)
    source, target, uses = _find_feeds(program, sites, nodes)
    moved = _moved(program, sites, nodes)
    awaited = (_await(moved, sites, source, needed, lag) for needed, lag in uses)
    by_step_end, by_next_wait = (
        slower_beside(x, sites.copy_direction, source, target) for x in awaited
    )
    if (program.activity_kind[nodes] == Kind.COMPUTE).any():
        return Edited(program, by_step_end, program, count, _MAY_FILL_GPU)
    return Edited(by_next_wait, by_step_end, by_next_wait, count, _USE_UNKNOWN)


# By when results are needed: the activities that do, and 1 where it is of the next repetition.
_Uses = tuple[IndexArray, NDArray[np.int8]]


def _find_feeds(
    program: Program, sites: Sites, nodes: BoolArray
) -> tuple[IndexArray, IndexArray, tuple[_Uses, _Uses]]:
    """Find moved activities, what waits for each, and by when: the step's end, or the next wait."""
    edges = np.isin(program.via, (Via.STREAM, Via.EVENT)) & (program.latency_ns != NEVER)
    edges &= nodes[program.source] & ~nodes[program.target]
    source, target, lag = program.source[edges], program.target[edges], program.lag[edges]
    step_index = sites.timeline.step_index[program.row]
    end, end_lag, wait, wait_lag = target.copy(), lag.copy(), target.copy(), lag.copy()
    for stream, index in groups_of(program.stream_index[target]):
        of_stream = np.flatnonzero((program.stream_index == stream) & ~nodes)
        first = np.searchsorted(step_index[of_stream], step_index[target[index]], side="right")
        is_over = first == len(of_stream)
        end[index], end_lag[index] = of_stream[np.where(is_over, 0, first)], lag[index] + is_over
        waiting = np.unique(target[index])
        next_index = np.searchsorted(waiting, target[index], side="right")
        following = waiting[np.minimum(next_index, len(waiting) - 1)]
        is_same_step = (next_index < len(waiting)) & (
            step_index[following] == step_index[target[index]]
        )
        wait[index] = np.where(is_same_step, following, end[index])
        wait_lag[index] = np.where(is_same_step, lag[index], end_lag[index])
    return source, target, ((end, end_lag), (wait, wait_lag))


def _moved(program: Program, sites: Sites, nodes: BoolArray) -> Program:
    before, lag = kept_before(program, nodes)
    has_input = nodes & (before != ABSENT) & (sites.copy_direction != "h2d")
    feeds = np.isin(program.via, (Via.STREAM, Via.EVENT)) & nodes[program.source]
    feeds &= ~nodes[program.target]
    changed = out_of_stream(program, nodes, sites.gap_ns)
    changed = remove_edges(
        changed, np.append(feeds, np.zeros(len(changed.via) - len(feeds), np.bool_))
    )
    target = np.flatnonzero(has_input)
    changed = _await(changed, sites, before[target], target, lag[target])
    for _, moved in groups_of(np.where(nodes, program.stream_index, ABSENT)):
        kinds = program.activity_kind[moved]
        changed = chain_activities(changed, moved, sites.gap_ns[np.roll(kinds, 1), kinds])
    return changed
