"""Edits of waits: of the host for the GPU, and of streams for one another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.edited import (
    TRUE_DEPENDENCY,
    Edited,
    add_edges,
    remove_activities,
    remove_edges,
    replace_cost,
    replace_latency,
    slower_beside,
    times,
)
from tracelab.simulate.program import NEVER, Program, Via
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
# The call of a copy takes this long if the trace shows none.
_DEFAULT_COPY_CALL_NS = 5_000


def unblock(program: Program, selection: Selection) -> Edited:
    """The host does not wait there; a copy that only fed the wait goes, too.

    What the wait kept in order on two streams stays so, as by an event wait, unless the program
    makes its streams wait for something else there. Where data decide the size of an operator's
    result, the bounds are that only its waits go and that the operator goes, as the search for
    positions does that are found once. A wait for a value
    that decides a branch stays: the program goes on only once the host knows it.
    """
    sites = selection.sites
    calls = calls_in_same_operators(sites, selection.calls & waits_for_gpu(sites))
    if calls.any() and _all_inside(sites, calls, DECIDES):
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
    """The stream does not wait there for another one.

    A wait is that of the call which made the stream wait, or of what was launched after it.
    """
    waits = program.via == Via.EVENT
    waits &= (selection.activities | _after_waits_of(program, selection))[program.target]
    direction = selection.sites.copy_direction
    changed = slower_beside(
        remove_edges(program, waits), direction, program.source[waits], program.target[waits]
    )
    return Edited.exactly(changed, int(waits.sum()))


def _after_waits_of(program: Program, selection: Selection) -> NDArray[np.bool_]:
    """bool[n], what was launched first in its stream after stream waits that were called there."""
    sites, launch = selection.sites, program.launch_node
    trace = sites.timeline.trace
    waits = sites.stream_wait_id
    waits = waits[selection.made_there(waits)]
    follows = np.zeros(len(program.kind), dtype=np.bool_)
    for _, activities in groups_of(np.where(launch == ABSENT, ABSENT, program.stream_index)):
        call_id = program.event_id[launch[activities]]
        for thread, index in groups_of(trace.thread_index[call_id]):
            wait_ns = trace.start_ns[waits[trace.thread_index[waits] == thread]]
            waits_before = np.searchsorted(wait_ns, trace.start_ns[call_id[index]])
            follows[activities[index]] = np.diff(waits_before, prepend=0) > 0
    return follows


def queues(program: Program, selection: Selection) -> Edited:
    """Each stream has a hardware queue of its own."""
    shared = (program.via == Via.QUEUE) & selection.activities[program.target]
    changed = remove_edges(program, shared)
    # What stood behind work that waited for communication now runs beside the communication.
    awaited = np.full(len(program.kind), ABSENT, dtype=np.intp)
    of_comm = program.activity_kind[program.source] == Kind.COMM
    of_comm &= (program.via == Via.EVENT) & (program.latency_ns != NEVER)
    awaited[program.target[of_comm]] = program.source[of_comm]
    source, target = awaited[program.source[shared]], program.target[shared]
    is_comm = source != ABSENT
    direction = selection.sites.copy_direction
    changed = slower_beside(changed, direction, source[is_comm], target[is_comm])
    return Edited.exactly(changed, int(shared.sum()))


def _waits_between(
    sites: Sites, call: NDArray[np.intp], launch: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """bool[k], whether the thread of a call made a stream wait between it and a later launch.

    Then the program says itself what its streams wait for.

    Args:
        sites: whose places they are.
        call: intp[k], nodes.
        launch: intp[k], nodes; one before its call is the launch of the next repetition.
    """
    trace, event_id = sites.timeline.trace, sites.program.event_id
    waits = sites.stream_wait_id
    found = np.zeros(len(call), dtype=np.bool_)
    for thread, index in groups_of(sites.program.thread_index[call]):
        wait_ns = trace.start_ns[waits[trace.thread_index[waits] == thread]]
        before_call = np.searchsorted(wait_ns, trace.start_ns[event_id[call[index]]])
        before_launch = np.searchsorted(wait_ns, trace.start_ns[event_id[launch[index]]])
        found[index] = before_launch != before_call
    return found


def asynchronous_call_ns(program: Program) -> int:
    """Typical length of an asynchronous copy's call, ns."""
    is_copy = np.zeros(len(program.kind), dtype=np.bool_)
    launch = program.launch_node[
        (program.activity_kind == Kind.COPY) & (program.launch_node != ABSENT)
    ]
    is_copy[launch] = True
    is_copy[program.target[program.via == Via.WAIT]] = False
    return int(np.median(program.cost_ns[is_copy])) if is_copy.any() else _DEFAULT_COPY_CALL_NS


def remove_operators(program: Program, sites: Sites, operators: Int64Array) -> Program:
    """The same without some operators: their host work, their calls, and what they launched.

    Args:
        program: any.
        sites: whose places they are.
        operators: int64[k], event ids.
    """
    regions = sites.regions(operators)
    calls = sites.inside(regions)
    return remove_host_work(program, sites, calls, sites.share_within(regions))


def remove_host_work(
    program: Program, sites: Sites, calls: NDArray[np.bool_], share: NDArray[np.float64]
) -> Program:
    """The same without some calls, what they launched, and a share of the work between calls.

    Args:
        program: any.
        sites: whose places they are.
        calls: bool[n].
        share: float64[edges of the recorded program].
    """
    launch = program.launch_node
    activities = (launch != ABSENT) & calls[launch]
    changed = remove_edges(program, (program.via == Via.WAIT) & calls[program.target])
    changed = remove_activities(changed, activities, sites.gap_ns)
    return scale_host_work(replace_cost(changed, calls, 0), share, 0)


def scale_host_work(program: Program, share: NDArray[np.float64], factor: float) -> Program:
    """The same, where a share of the work between calls takes `factor` times as long."""
    of_edge = np.zeros(len(program.via))
    of_edge[: len(share)] = share
    latency_ns = times(program.latency_ns, 1 - of_edge * (1 - factor))
    return replace_latency(program, of_edge > 0, latency_ns)


def waits_for_gpu(sites: Sites) -> NDArray[np.bool_]:
    """bool[n], the calls that did nothing but wait for the GPU, and the copies that blocked."""
    return np.isin(sites.blocking, (*RETURNS_WHEN_DONE, Blocking.COPY))


def calls_in_same_operators(sites: Sites, calls: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[n], these blocking calls, and those of the same run of an operator of PyTorch's."""
    blocks = waits_for_gpu(sites)
    operator = sites.operators_of(blocks)
    chosen = np.unique(operator[calls & (operator != ABSENT)])
    return calls | (blocks & np.isin(operator, chosen[sites.is_tensor_operator[chosen]]))


def _enclosing(sites: Sites, calls: NDArray[np.bool_], names: frozenset[str]) -> Int64Array:
    """int64[k], index into `Timeline.operators` of those of these names around calls."""
    operators = sites.timeline.operators
    is_named = operators.have_name(names.__contains__)
    index = operators.around(sites.operators_of(calls)[calls], is_named)
    return np.unique(index[index != ABSENT])


def _all_inside(sites: Sites, calls: NDArray[np.bool_], names: frozenset[str]) -> bool:
    """Return True if all of these calls are inside operators of these names."""
    operators = sites.timeline.operators
    is_named = operators.have_name(names.__contains__)
    return bool((operators.around(sites.operators_of(calls)[calls], is_named) != ABSENT).all())


def _outermost(sites: Sites, operators: Int64Array) -> Int64Array:
    """Event ids of the operators of PyTorch's that the program called, around some operators.

    Args:
        sites: whose places they are.
        operators: int64[k], index into `Timeline.operators`.
    """
    nesting = sites.timeline.operators
    called, is_tensor_operator = operators.copy(), sites.is_tensor_operator
    open_ = np.arange(len(called))
    while len(open_):
        outer = nesting.parent_index[called[open_]]
        is_called = (outer != ABSENT) & is_tensor_operator[outer]
        open_ = open_[is_called]
        called[open_] = outer[is_called]
    event_id: Int64Array = nesting.event_id[np.unique(called)]
    return event_id


def remove_waits(program: Program, calls: NDArray[np.bool_], is_copy: NDArray[np.bool_]) -> Program:
    """The same, where some calls wait for nothing: they take no time, or what a copy's call takes.

    Args:
        program: any.
        calls: bool[n], blocking calls.
        is_copy: bool[n], those of them that copy something all the same.
    """
    copy_call_ns = np.minimum(program.cost_ns, asynchronous_call_ns(program))
    changed = remove_edges(program, (program.via == Via.WAIT) & calls[program.target])
    return replace_cost(changed, calls, np.where(is_copy, copy_call_ns, 0))


def _read_copies(sites: Sites, calls: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[n], the copies to the host that some calls made only to look at a value."""
    reads = _enclosing(sites, calls, _READS | SIZED_BY_DATA)
    is_read = calls & sites.inside(sites.regions(sites.timeline.operators.event_id[reads]))
    launch = sites.program.launch_node
    copies: NDArray[np.bool_] = sites.copy_direction == "d2h"
    copies &= (launch != ABSENT) & is_read[launch]
    return copies


def _keep_order(
    program: Program, waiting: Program, sites: Sites, calls: NDArray[np.bool_]
) -> Program:
    """The same, where what blocking calls kept in order stays so: by event waits of the streams.

    Args:
        program: where they wait for nothing.
        waiting: where they wait.
        sites: whose places they are.
        calls: bool[n], the blocking calls. What was copied to the host is not for the GPU.
    """
    waits = (waiting.via == Via.WAIT) & (waiting.latency_ns != NEVER)
    waits &= calls[waiting.target] & np.isin(sites.blocking, RETURNS_WHEN_DONE)[waiting.target]
    waits &= sites.copy_direction[waiting.source] != "d2h"
    source, call, lag = waiting.source[waits], waiting.target[waits], waiting.lag[waits]
    for stream, activities in groups_of(program.stream_index):
        launched = activities[program.launch_node[activities] != ABSENT]
        index = np.searchsorted(np.maximum.accumulate(program.launch_node[launched]), call)
        is_next = index == len(launched)
        other = (program.stream_index[source] != stream) & (lag + is_next < 2) & (len(launched) > 0)
        first = launched[np.where(is_next, 0, index)] if len(launched) else index
        other &= ~_waits_between(sites, call, program.launch_node[first])
        target = launched[np.where(is_next, 0, index)[other]]
        for of_lag in (0, 1):
            edges = np.flatnonzero(lag[other] + is_next[other] == of_lag)
            edges = edges[(of_lag == 1) | (source[other][edges] < target[edges])]
            latency_ns = sites.event_ns[program.activity_kind[target[edges]]]
            program = add_edges(
                program, source[other][edges], target[edges], Via.EVENT, latency_ns, of_lag
            )
    return program
