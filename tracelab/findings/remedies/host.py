"""The host: what it waits for, reads and copies, and its own work: data, threads, checks."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.arrays import Int64Array
from tracelab.base.intervals import measure_within, union
from tracelab.findings.advice.needs import Awaited, awaited_results, fed_back, own_waits
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_in_launching_thread,
    are_inside,
    blocks,
    called_directly,
    calls_of_copies,
    chosen,
    functions_around,
    named,
    operators_named,
    parents_match,
    step_indices,
)
from tracelab.measures.idle_culprits import innermost_functions
from tracelab.measures.measure import summed
from tracelab.model.frames import is_built_in, is_engine_operator, is_tensor_operator
from tracelab.model.graph import Graph
from tracelab.model.host import is_in_launching_thread, thread_waits
from tracelab.model.kernel_kinds import Kind, is_allocation, is_kernel_launch
from tracelab.model.lookup import (
    Nesting,
    calls_of_name,
    counts_before,
    counts_inside,
    groups_of,
    last_in_group,
    match_names,
)
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

_TIMES = re.compile(
    r"^<built-in (?:function|method) (?:time|time_ns|perf_counter|perf_counter_ns|monotonic"
    r"|monotonic_ns|elapsed_time)\b|: elapsed_time$"
)
_MAKES = re.compile(
    r"^<built-in method (?:tensor|as_tensor|from_numpy|scalar_tensor|full|zeros|ones|empty|arange"
    r"|linspace|eye|rand|randn|randint|randperm) of "
)
_MAX_LAUNCHES_BETWEEN_READS = 5
# Of small copies that directly follow another one.
_MAX_BYTES, _MIN_COPIES_OF_STEP = 65_536, 10
_MIN_COPIES_OF_STEP = 10
# DataLoader's thread that copies batches into pinned memory, as PyTorch names it and its function.
_PINNING_THREAD = re.compile(r"pt_data_pin|pin_memory")
_PINNING = re.compile(r"torch/utils/data/_utils/pin_memory\.py\(\d+\): ")
_NEXT = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__$")
# To hand a batch over takes 0.1 to 1 ms itself.
_MIN_LOAD_NS_OF_STEP = 1_000_000
# Of the time of a function.
_MIN_WAITING_SHARE = 0.5
# At most 2 % of the launches of ordinary files end after their kernel.
_MIN_KERNEL_LAUNCHES, _MIN_BLOCKED_SHARE = 20, 0.95

_FORMATS_STACK = re.compile(r"traceback\.py\(\d+\): format_stack$")
_COLLECTS = "Python GC"
# Operators that only look at a tensor in another way, or make one without values.
_KEEPS_VALUES = re.compile(
    r"aten::(?:_?reshape\w*|_to_copy|_unsafe_view|alias|as_strided\w*|chunk|contiguous|detach_?|"
    r"empty\w*|expand\w*|flatten|item|lift_fresh|movedim|narrow|new_empty\w*|permute|resize_|"
    r"result_type|select|set_|slice|split\w*|squeeze|swapaxes|t|to|transpose|unbind|unflatten\w*|"
    r"unsafe_\w+|unsqueeze|view\w*)$"
)
# Recorded: step counters of an optimizer 35 us, ten operators on 256 by 256 numbers 500 us (host of
# an H100).
MIN_COMPUTED_NS = 100_000
_CREATES = re.compile(r"aten::(?:arange|eye|full|linspace|normal|ones|rand|scalar_tensor|zeros)")
_MIN_COMPUTED_SHARE = 0.1  # of what the copies before it take


# --- waits, copies and memory ---


def synchronizes(graph: Graph, _events: Int64Array, *, awaited: str) -> Int64Array:
    """The calls that only wait, of no operator, and let the host read a "result" or "nothing"."""
    waits = own_waits(graph)
    return chosen(waits, awaited_results(graph, waits) == Awaited[awaited.upper()])


def reads_of_results(graph: Graph, events: Int64Array) -> Int64Array:
    """The reads that block, and the waits for a copy to the host with no replay behind it."""
    operators = operators_named(graph.host.timeline, r"^aten::(?:item|to|_to_copy|copy_)$")
    reads = blocks(graph, called_directly(graph, operators))
    return np.concatenate((reads, synchronizes(graph, events, awaited="result")))


def fed_back_calls(graph: Graph, _events: Int64Array, *, kind: str) -> Int64Array:
    """The reads that block for what is copied to the GPU next, or these copies.

    By kind: "input" (read, computed from), "returned" (read, same value), "copy" (of what was
    computed).
    """
    found, calls = fed_back(graph), graph.host.blocking_calls.event_id
    reads = {"input": found.is_input, "returned": found.is_returned}
    return found.copy_id if kind == "copy" else calls[reads[kind]]


def copy_calls(
    graph: Graph, _events: Int64Array, *, direction: str, min_bytes: int = 0
) -> Int64Array:
    """The calls that copy pageable memory, "h2d" or "d2h", without those known to be smaller."""
    timeline = graph.host.timeline
    size_bytes = timeline.trace.copied_bytes[timeline.event_id]
    is_small = (size_bytes != ABSENT) & (size_bytes < min_bytes)
    calls = calls_of_copies(timeline, direction, is_pageable=True)
    return np.setdiff1d(calls, timeline.launch_id[is_small])


def allocations(graph: Graph, _events: Int64Array) -> Int64Array:
    """The allocator's calls."""
    return calls_of_name(graph.host.timeline.trace, is_allocation).astype(np.int64)


def called_in_pinning_thread(graph: Graph, events: Int64Array) -> Int64Array:
    """The calls of DataLoader's thread that pins, by its name or its functions."""
    trace = graph.host.timeline.trace
    is_named = np.array([bool(_PINNING_THREAD.search(x.name)) for x in trace.threads], dtype=bool)
    pins = is_named[trace.thread_index[events]]
    pins |= are_inside(trace, events, named(trace, _PINNING.search, Category.PYTHON))
    return chosen(events, pins)


def before_reading_clock(graph: Graph, events: Int64Array) -> Int64Array:
    """The functions (frames) after which the function around them reads a clock next."""
    frames = python_frames(graph.host.timeline)
    index = np.flatnonzero(np.isin(frames.event_id, events))
    following = _first_after(frames, index)
    is_clock = np.append(frames.have_name(_TIMES.search), False)
    is_next = is_clock[following] & (frames.parent_index[following] == frames.parent_index[index])
    return chosen(frames.event_id, index[is_next])


def reads_in_a_row(graph: Graph, events: Int64Array, *, least: int) -> Int64Array:
    """At least `least` reads of one function, one after another with few launches in between."""
    timeline = graph.host.timeline
    trace, frames = timeline.trace, python_frames(timeline)
    events = events[np.lexsort((trace.start_ns[events], trace.thread_index[events]))]
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    launched = counts_before(trace, launch_id, events, trace.start_ns[events])
    goes_on = np.diff(launched, prepend=0) <= _MAX_LAUNCHES_BETWEEN_READS
    function = frames.names(functions_around(graph, events))
    for same in (trace.thread_index[events], function, step_indices(graph, events)):
        goes_on &= np.diff(same, prepend=ABSENT) == 0
    run = np.cumsum(~goes_on)
    return chosen(events, np.bincount(run, minlength=1)[run] >= least)


def made_of_values(graph: Graph, events: Int64Array) -> Int64Array:
    """The moves to a device (`aten::to`) of a tensor that the program has just made on the host."""
    # PyTorch lifts one of Python's values next; another was made by the built-in function before.
    operators, frames = graph.host.timeline.operators, python_frames(graph.host.timeline)
    index = np.flatnonzero(np.isin(operators.event_id, events))
    following = _first_after(operators, index)
    is_lift = np.append(operators.have_name(lambda name: name == "aten::lift_fresh"), False)
    is_made = operators.parent_index[following] == operators.parent_index[index]
    is_made &= is_lift[following]
    maker = np.flatnonzero(frames.have_name(_MAKES.match))
    mover = _first_after(frames, maker)
    mover = mover[frames.parent_index[mover] == frames.parent_index[maker]]
    is_made |= np.isin(frames.innermost(operators.event_id[index]), mover[mover != ABSENT])
    return chosen(operators.event_id, index[is_made])


def _first_after(nesting: Nesting, index: Int64Array) -> Int64Array:
    following = np.full(len(index), ABSENT, dtype=np.int64)
    for thread, of_thread in groups_of(nesting.thread_index[index]):
        own = nesting.entries_of(thread)
        next_ = np.searchsorted(nesting.start_ns[own], nesting.end_ns[index[of_thread]])
        following[of_thread] = np.where(next_ < own.stop - own.start, next_ + own.start, ABSENT)
    return following


def small_copies_in_a_row(graph: Graph, _events: Int64Array) -> Int64Array:
    """Small copies that directly follow another one on their thread, in steps that have many."""
    timeline = graph.host.timeline
    trace = timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    call_id = timeline.launch_id[launched]
    order = np.lexsort((trace.start_ns[call_id], trace.thread_index[call_id]))
    launched, call_id = launched[order], call_id[order]
    is_small = timeline.copies("h2d")[launched]
    size_bytes = trace.copied_bytes[timeline.event_id[launched]]
    is_small &= (size_bytes != ABSENT) & (size_bytes <= _MAX_BYTES)
    follows = is_small[1:] & is_small[:-1]
    follows &= trace.thread_index[call_id[1:]] == trace.thread_index[call_id[:-1]]
    following = call_id[1:][follows].astype(np.int64)
    if not len(following) or timeline.steady is None:
        return NO_EVENTS
    step, of_step, count = np.unique(
        step_indices(graph, following), return_inverse=True, return_counts=True
    )
    many = following[(count[of_step] >= _MIN_COPIES_OF_STEP) & (step[of_step] >= 0)]
    operators, frames = timeline.operators, python_frames(timeline)
    around = operators.around(operators.innermost(many), operators.parent_index == ABSENT)
    called = frames.innermost(many)
    called = called[np.append(frames.have_name(is_built_in), False)[called]]
    for_them = (operators.event_id[around[around != ABSENT]], frames.event_id[called])
    return np.unique(np.concatenate((many, *for_them)))


def copied_to_compute(graph: Graph, events: Int64Array) -> Int64Array:
    """The copies behind which their function computes on the CPU, and what computes there."""
    timeline, frames = graph.host.timeline, python_frames(graph.host.timeline)
    trace, launch = timeline.trace, np.unique(timeline.launch_id[timeline.launch_id != ABSENT])
    launch = launch[np.lexsort((trace.start_ns[launch], trace.thread_index[launch]))]
    makers = _computing(graph)
    nesting = Nesting(trace, makers[~match_names(trace, makers, _CREATES.match)])
    computes = chosen(nesting.event_id, nesting.parent_index == ABSENT)
    of_launch, of_operator = (
        (trace.thread_index[x], trace.start_ns[x]) for x in (launch, computes)
    )
    last = last_in_group(*of_launch, *of_operator)
    computes, copy = computes[last != ABSENT], launch[last[last != ABSENT]]
    function = functions_around(graph, computes)
    is_behind = np.isin(copy, events) & (function == functions_around(graph, copy))
    is_behind &= step_indices(graph, computes) == step_indices(graph, copy)
    computes, function = computes[is_behind], function[is_behind]
    of_copy = functions_around(graph, events)
    copied_ns, computed_ns = (
        summed(index, trace.duration_ns[x], len(frames.event_id) + 1)
        for index, x in ((of_copy, events), (function, computes))
    )
    is_long = computed_ns >= np.maximum(_MIN_COMPUTED_SHARE * copied_ns, MIN_COMPUTED_NS)
    is_long[ABSENT] = False
    return np.concatenate((events[is_long[of_copy]], computes[is_long[function]]))


# --- its own work ---


def joined_by_functions(graph: Graph, events: Int64Array) -> Int64Array:
    """Add the Python functions of a loader's `__next__` around its regions."""
    trace = graph.host.timeline.trace
    functions = named(trace, _NEXT.search, Category.PYTHON)
    return np.concatenate((events, functions[counts_inside(trace, functions, events) > 0]))


def long_loads(graph: Graph, events: Int64Array) -> Int64Array:
    """The loads of the main process, if without the profiler they take long enough to pay."""
    timeline = graph.host.timeline
    step_ns = float(np.median(timeline.typical_lengths_ns)) if timeline.steps else 0
    share = min(1, (timeline.trace.info.unprofiled_step_ns or step_ns) / (step_ns or 1))
    load_ns = timeline.trace.duration_ns[events].sum() / max(1, len(timeline.steps))
    pays = not step_ns or load_ns * share >= _MIN_LOAD_NS_OF_STEP
    return events if pays else NO_EVENTS


def loads_in_launching_thread(graph: Graph, _events: Int64Array) -> Int64Array:
    """The loading of data in a thread that launches."""
    loading_id = graph.host.loading_id.astype(np.int64)
    trace = graph.host.timeline.trace
    return loading_id[match_names(trace, loading_id, is_in_launching_thread)]


def launches_in_other_threads(graph: Graph, events: Int64Array) -> Int64Array:
    """The forward passes of `nn.DataParallel` in which other threads launched."""
    timeline = graph.host.timeline
    trace = timeline.trace
    launch_id = np.unique(timeline.launch_id[timeline.launch_id != ABSENT])
    starts_ns = np.sort(trace.start_ns[launch_id])
    first, end = (np.searchsorted(starts_ns, x[events]) for x in (trace.start_ns, trace.end_ns))
    return chosen(events, end - first > counts_inside(trace, events, launch_id))


def thread_waits_and_what_for(graph: Graph, _events: Int64Array) -> Int64Array:
    """The waits of launching threads for others, and the functions that those run meanwhile."""
    host, trace = graph.host, graph.host.timeline.trace
    launching = np.array(sorted(host.launching_threads), dtype=np.int64)
    waits = thread_waits(trace)
    waits = waits[np.isin(trace.thread_index[waits], launching)]
    waiting = union(trace.start_ns[waits], trace.end_ns[waits])
    others = trace.of_category(Category.PYTHON)
    others = others[~np.isin(trace.thread_index[others], launching)]
    inside_ns = measure_within(waiting, trace.start_ns[others], trace.end_ns[others])
    is_awaited = (inside_ns > 0) & (inside_ns >= _MIN_WAITING_SHARE * trace.duration_ns[others])
    return np.concatenate((waits, others[is_awaited])).astype(np.int64)


def blocking_launches(graph: Graph, _events: Int64Array) -> Int64Array:
    """All outermost operators and launches, if nearly all launches end after their kernel."""
    timeline = graph.host.timeline
    trace = timeline.trace
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    rows = rows[match_names(trace, timeline.launch_id[rows], is_kernel_launch)]
    if len(rows) < _MIN_KERNEL_LAUNCHES:
        return NO_EVENTS
    ends_after = trace.end_ns[timeline.launch_id[rows]] >= timeline.end_ns[rows]
    if ends_after.mean() <= _MIN_BLOCKED_SHARE:
        return NO_EVENTS
    operators = timeline.operators
    outermost = operators.event_id[operators.parent_index == ABSENT]
    return np.concatenate((outermost, timeline.launch_id[rows])).astype(np.int64)


def nan_checks(graph: Graph, events: Int64Array) -> Int64Array:
    """The checks after most nodes of the backward pass, and the stacks that the forward formats."""
    trace = graph.host.timeline.trace
    checks = parents_match(graph, events, is_engine_operator)
    looks = checks[match_names(trace, checks, "aten::isnan".__eq__)]
    nodes = named(trace, is_engine_operator, Category.OPERATOR)
    if 2 * np.count_nonzero(counts_inside(trace, nodes, looks)) < len(nodes):
        return NO_EVENTS  # a hook of the program looks for NaN after some
    formats = named(trace, _FORMATS_STACK.search, Category.PYTHON)
    operators = trace.of_category(Category.OPERATOR)
    formats = formats[are_inside(trace, formats, operators)]
    return np.concatenate((checks, formats))


def silent_functions(graph: Graph, _events: Int64Array, *, least_us: float) -> Int64Array:
    """Python functions that did nothing recorded for long, where collections are not recorded."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    functions = trace.of_category(Category.PYTHON)
    if not len(functions) or _COLLECTS in trace.strings:
        return NO_EVENTS
    host = trace.of_category(Category.PYTHON, Category.OPERATOR, Category.ANNOTATION, *HOST_CALLS)
    host = host[are_in_launching_thread(graph, host)]
    silent = []
    for thread, index in groups_of(trace.thread_index[host]):
        of_thread = host[index]
        moments_ns = np.sort(np.concatenate((trace.start_ns[of_thread], trace.end_ns[of_thread])))
        begins = np.flatnonzero(np.diff(moments_ns) >= 1e3 * least_us)
        middle_ns = (moments_ns[begins] + moments_ns[begins + 1]) // 2
        function = innermost_functions(timeline, middle_ns, np.full(len(middle_ns), thread))
        silent.append(function[function != ABSENT])
    found = np.unique(np.concatenate(silent)) if silent else NO_EVENTS
    return found[~match_names(trace, found, is_built_in)]


def finds_no_padding(graph: Graph, events: Int64Array) -> Int64Array:
    """The checks after which the function around the check of the mask runs no operator."""
    timeline = graph.host.timeline
    trace, operators, frames = timeline.trace, timeline.operators, python_frames(timeline)
    check = functions_around(graph, events)
    known = check != ABSENT
    events, check = events[known], check[known]
    is_function = np.ones(len(frames.event_id), dtype=np.bool_)
    maker = frames.around(frames.parent_index[check], is_function)
    first, end = (
        counts_before(trace, operators.event_id, events, frames.end_ns[index])
        for index in (check, maker)
    )
    return chosen(events, (maker == ABSENT) | (first == end))


def computed_tensors(graph: Graph, _events: Int64Array) -> Int64Array:
    """The outermost functions and operators that compute on the CPU and call nothing of CUDA."""
    trace, operators = graph.host.timeline.trace, _computing(graph)
    functions = trace.of_category(Category.PYTHON).astype(np.int64)
    functions = chosen(functions, counts_inside(trace, functions, operators) > 0)
    nesting = Nesting(trace, np.concatenate((operators, _exclude_callers(graph, functions))))
    outermost = chosen(nesting.event_id, nesting.parent_index == ABSENT)
    return chosen(outermost, trace.duration_ns[outermost] >= MIN_COMPUTED_NS)


def _computing(graph: Graph) -> Int64Array:
    """The operators of launching threads that make values and call nothing of CUDA."""

    def makes_values(name: str) -> bool:
        return is_tensor_operator(name) and not _KEEPS_VALUES.match(name)

    return _exclude_callers(
        graph, named(graph.host.timeline.trace, makes_values, Category.OPERATOR)
    )


def _exclude_callers(graph: Graph, events: Int64Array) -> Int64Array:
    trace = graph.host.timeline.trace
    events = chosen(events, are_in_launching_thread(graph, events))
    events = chosen(events, ~are_inside(trace, events, graph.host.loading_id))
    calls = trace.of_category(*HOST_CALLS)
    return chosen(events, counts_inside(trace, events, calls) == 0)
