"""Compilation, CUDA graphs, plans and memory: what comes once, and what goes on."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_in_launching_thread,
    blocks,
    called_directly,
    chosen,
    compiled_functions,
    compiled_regions,
    counts_inside,
    launches_inside,
    named,
    operators_named,
    recurring,
    recurs,
    step_indices,
)
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import (
    asks_about_kernel,
    begins_capture,
    ends_capture,
    is_event_sync,
    is_free,
    is_graph_launch,
    is_kernel_launch,
    loads_module,
)
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import calls_of_name, groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.steady import MIN_STEPS
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

# What torch.compile records of itself; since 2.6 also around all of it, of the forward pass as
# "dynamo", of the backward pass as "entire_backward_compile".
_COMPILES = (
    r"^(?:dynamo|entire_(?:frame|backward)_compile|inductor_compile)$"
    r"|(?:compile_inner|_backward_impl|compile_fx_inner|create_aot_dispatcher_function"
    r"|entire_frame_compile|inductor_compile) \(dynamo_timed\)$"
)
_LOOKUP = "TorchDynamo Cache Lookup"
# A CUDA graph of fewer launches of one compiled graph saves nothing.
_MIN_LAUNCHES_OF_GRAPH = 10
# An operator of cuDNN that has its plan takes below 0.2 ms of the host, one that makes it 5 to 80.
_MIN_PLANNING_NS = 2_000_000
# In a file without steps, that many plans are no first use.
_MIN_PLANS = 3
# Around a capture, `torch.cuda.graph` waits for the GPU and frees memory.
_RECORDS = re.compile(
    r"torch/(?:_inductor/cudagraph_trees\.py\(\d+\): _record"
    r"|cuda/graphs\.py\(\d+\): __(?:enter|exit)__)$"
)
_MAKES = re.compile(r"torch/cuda/graphs\.py\(\d+\): __(?:new|init)__$")
_MAKES_OR_FREES = re.compile(r"^(?:cuda|cu|hip)Graph(?:Instantiate|(?:Exec)?Destroy)")
_RESUMES = re.compile(r": torch_dynamo_resume_in_")
_READS = r"^aten::(?:item|is_nonzero|nonzero|to|_to_copy|copy_)$"
_NAMED = (Category.OPERATOR, Category.ANNOTATION)
# A launch takes 2 to 10 us, one that loads the kernel's code first 0.3 to 300 ms.
_MIN_LOADING_NS = 200_000
# The backward pass of a convolution calls cuDNN without an operator of its name.
_ATTENTION = re.compile(r"attention")
# An operator that tries algorithms waits for an event after each.
_MIN_TRIALS = 2
# What creates something at its first call takes so long, and so many times as long as later.
_MIN_FIRST_NS, _MIN_TIMES_LONGER = 1_000_000, 10


def before_rest(graph: Graph, events: Int64Array) -> Int64Array:
    """The events in a compiled region that goes on as another function behind them.

    The rest of a function that a break cuts is called from its first part. It is compiled on its
    own, unless it computes nothing, as behind a guard that lets pass.
    """
    trace = graph.host.timeline.trace
    regions = compiled_functions(trace)
    rests = named(trace, _RESUMES.search, Category.PYTHON)
    around = np.concatenate((regions.parent_index, regions.innermost(rests)))
    start_ns = np.concatenate((regions.start_ns, trace.start_ns[rests]))
    is_inner = around != ABSENT
    last_ns = np.zeros(len(regions.event_id) + 1, dtype=np.int64)  # the last is for ABSENT
    np.maximum.at(last_ns, around[is_inner], start_ns[is_inner])
    return chosen(events, last_ns[regions.innermost(events)] > trace.start_ns[events])


def calls_without_code(graph: Graph, events: Int64Array) -> Int64Array:
    """Calls that look for compiled code, find none and make none.

    A function that is not to be compiled is not looked up. One that may not be compiled again is,
    and then runs as it is written.
    """
    trace = graph.host.timeline.trace
    compiled = (compiled_regions(trace).event_id, operators_named(graph.host.timeline, _COMPILES))
    is_eager = launches_inside(graph.host.timeline, events) >= _MIN_LAUNCHES_OF_GRAPH
    is_eager &= counts_inside(trace, events, named(trace, _LOOKUP.__eq__, *_NAMED)) > 0
    is_eager &= counts_inside(trace, events, np.concatenate(compiled)) == 0
    return recurring(graph, events[is_eager])


def regions_cut_by_reads(graph: Graph, _events: Int64Array) -> Int64Array:
    """The compiled regions that reads of the GPU cut, in steady steps."""
    regions = compiled_functions(graph.host.timeline.trace)
    reads = blocks(graph, called_directly(graph, operators_named(graph.host.timeline, _READS)))
    reads = recurs(graph, before_rest(graph, reads))
    inside = regions.innermost(reads)
    return np.unique(regions.event_id[inside[inside != ABSENT]]).astype(np.int64)


def launched_one_by_one(graph: Graph, events: Int64Array) -> Int64Array:
    """Calls of compiled graphs that a CUDA graph could replay: the same launches, and no waits.

    None where reads cut them into pieces: those are to be mended first.
    """
    timeline = graph.host.timeline
    if len(regions_cut_by_reads(graph, NO_EVENTS)):
        return events[:0]
    trace = timeline.trace
    is_kernel = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    launches = counts_inside(trace, events, timeline.launch_id[is_kernel])
    is_whole = launches >= _MIN_LAUNCHES_OF_GRAPH
    waits = graph.host.blocking_calls.event_id
    for calls in (waits, calls_of_name(trace, is_graph_launch)):
        is_whole &= counts_inside(trace, events, calls) == 0
    for _, index in groups_of(trace.name_index[events]):
        is_whole[index] &= len(np.unique(launches[index])) == 1
    return recurring(graph, events[is_whole])


def records_graphs(graph: Graph, _events: Int64Array) -> Int64Array:
    """Events that record CUDA graphs, from begin to end, if that recurs."""
    begins = calls_of_name(graph.host.timeline.trace, begins_capture).astype(np.int64)
    return _recorded(graph, begins) if len(recurring(graph, begins)) else NO_EVENTS


def _recorded(graph: Graph, begins: Int64Array) -> Int64Array:
    """Events that these calls (event ids) record, and the functions around them."""
    trace = graph.host.timeline.trace
    ends = calls_of_name(trace, ends_capture)
    inside = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    inside = inside[np.argsort(trace.start_ns[inside], kind="stable")]
    recorded = [
        calls_of_name(trace, _MAKES_OR_FREES.match),
        named(trace, _MAKES.search, Category.PYTHON),
    ]
    for thread, index in groups_of(trace.thread_index[begins]):
        of_thread = inside[trace.thread_index[inside] == thread]
        ends_ns = trace.end_ns[ends[trace.thread_index[ends] == thread]]
        for begin in begins[index].tolist():
            last = np.searchsorted(ends_ns, trace.start_ns[begin])
            if last < len(ends_ns):
                bounds_ns = (trace.start_ns[begin], ends_ns[last])
                first, end = np.searchsorted(trace.start_ns[of_thread], bounds_ns)
                between = of_thread[first:end]
                recorded.append(between[trace.end_ns[between] <= ends_ns[last]])
    functions = named(trace, _RECORDS.search, Category.PYTHON)
    marks = np.union1d(begins, ends)
    recorded.append(functions[counts_inside(trace, functions, marks) > 0])
    return np.unique(np.concatenate(recorded)).astype(np.int64)


def plans(graph: Graph, events: Int64Array) -> Int64Array:
    """The runs of cuDNN's operators that made a plan before they launched."""
    trace = graph.host.timeline.trace
    launches = counts_inside(trace, events, calls_of_name(trace, is_kernel_launch))
    # What memory takes in it is no planning: on ROCm a hipFree may fill each run.
    blocking = graph.host.blocking_calls
    is_memory = blocking.kind == Blocking.ALLOCATION
    own_ns = trace.duration_ns[events].copy()
    for thread, index in groups_of(trace.thread_index[events]):
        here = is_memory & (blocking.thread_index == thread)
        memory = union(blocking.start_ns[here], blocking.end_ns[here])
        own_ns[index] -= measure_within(
            memory, trace.start_ns[events[index]], trace.end_ns[events[index]]
        )
    # An RNN takes milliseconds as well, but to launch.
    planning = events[own_ns >= _MIN_PLANNING_NS * np.maximum(1, launches / 2)]
    return planning[~np.isin(planning, tries_algorithms(graph, planning))]


def plans_once(graph: Graph, events: Int64Array) -> Int64Array:
    """The same where it does not go on, neither for attention nor for the others."""
    planning = plans(graph, events)
    is_attention = match_names(graph.host.timeline.trace, planning, _ATTENTION.search)
    attention, others = planning[is_attention], planning[~is_attention]
    goes_on = (recurring(graph, others), attention_plans_again(graph, attention))
    return planning[~np.isin(planning, np.concatenate(goes_on))]


def attention_plans_again(graph: Graph, events: Int64Array) -> Int64Array:
    """The runs of an attention operator that made a plan, where that goes on."""
    planning = plans(graph, events)
    if graph.host.timeline.steady is None:
        return planning if len(planning) >= _MIN_PLANS else NO_EVENTS
    return recurring(graph, planning)


def tries_algorithms(graph: Graph, events: Int64Array) -> Int64Array:
    """The operators that time several algorithms."""
    trace = graph.host.timeline.trace
    trials = counts_inside(trace, events, calls_of_name(trace, is_event_sync))
    return events[trials >= _MIN_TRIALS]


def loads_code(graph: Graph, _events: Int64Array) -> Int64Array:
    """The first launches of kernels that took long, and the calls that load modules."""
    trace = graph.host.timeline.trace
    may_load = np.union1d(_first_launches(graph), calls_of_name(trace, asks_about_kernel))
    slow_id = may_load[trace.duration_ns[may_load] >= _MIN_LOADING_NS]
    return np.union1d(slow_id, calls_of_name(trace, loads_module)).astype(np.int64)


def _first_launches(graph: Graph) -> NDArray[np.int64]:
    """The event id of the first call of the file that launched each kernel, by its name."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    launched = np.flatnonzero(timeline.launch_id != ABSENT)
    launch_id = timeline.launch_id[launched]
    is_kernel = match_names(trace, launch_id, is_kernel_launch)
    launched, launch_id = launched[is_kernel], launch_id[is_kernel]
    by_launch = np.argsort(trace.start_ns[launch_id], kind="stable")
    names = trace.name_index[timeline.event_id[launched[by_launch]]]
    _, first = np.unique(names, return_index=True)
    return launch_id[by_launch[first]]


def slow_first(graph: Graph, events: Int64Array) -> Int64Array:
    """The first event of a name on a thread, where it took much longer than all later ones.

    What a kernel's code took to load in it is left out.
    """
    trace = graph.host.timeline.trace
    loading, nesting = loads_code(graph, events), Nesting(trace, events)
    names = trace.name_index[nesting.event_id]
    is_inner = (nesting.parent_index != ABSENT) & (names[nesting.parent_index] == names)
    events = nesting.event_id[~is_inner]
    own_ns = trace.duration_ns[events].copy()
    for thread, index in groups_of(trace.thread_index[events]):
        here = loading[trace.thread_index[loading] == thread]
        loads = union(trace.start_ns[here], trace.end_ns[here])
        region = events[index]
        own_ns[index] -= measure_within(loads, trace.start_ns[region], trace.end_ns[region])
    slow = []
    threads = trace.thread_index[events].astype(np.int64)
    for _, index in groups_of(threads * len(trace.strings) + trace.name_index[events]):
        first, *later = index[np.argsort(trace.start_ns[events[index]], kind="stable")].tolist()
        longest_ns = max(own_ns[later], default=None)
        if longest_ns is not None and own_ns[first] >= _MIN_TIMES_LONGER * longest_ns:
            slow.append(first)
    of_slow = events[slow]
    return of_slow[own_ns[slow] >= _MIN_FIRST_NS]


def fills_memory(graph: Graph, _events: Int64Array) -> Int64Array:
    """The allocator's calls that do not go on.

    These are all where only the first of several steps has any. A program whose memory is never
    freed stops allocating: without a call that frees, all come once, unless at least every other
    steady step has one. In a file without steps, which usually begins as the program does, those
    before the first call that frees come once. A library frees memory as it begins; that is not
    the allocator's.
    """
    timeline, calls = graph.host.timeline, _allocator_calls(graph)
    starts, _ = _library_starts(graph)
    others = calls[~np.isin(calls, starts)]
    if len(timeline.steps) > 1 and (step_indices(graph, others) <= 0).all():
        return calls
    gives_back = match_names(timeline.trace, others, is_free)
    if gives_back.any():
        before = 0 if timeline.steps else int(np.argmax(gives_back))
        return np.concatenate((starts, others[:before]))
    steady = list(timeline.steady.indices) if timeline.steady else []
    seen = np.isin(steady, step_indices(graph, others)).sum()
    return starts if len(steady) >= MIN_STEPS and 2 * seen >= len(steady) else calls


def _allocator_calls(graph: Graph) -> Int64Array:
    """The allocator's calls in threads that launch, by start; none that kept others from it."""
    trace, blocking = graph.host.timeline.trace, graph.host.blocking_calls
    is_own = blocking.kind == Blocking.ALLOCATION
    is_own[graph.host.stalled_calls.allocation_index] = False
    calls = blocking.event_id[is_own]
    calls = calls[are_in_launching_thread(graph, calls)]
    by_start: Int64Array = calls[np.argsort(trace.start_ns[calls], kind="stable")]
    return by_start


def _library_starts(graph: Graph) -> tuple[Int64Array, Int64Array]:
    """The calls that free memory in the first run of an operator, and in no later one.

    So does the first product of a thread, which creates cuBLAS's handle, and the first convolution.

    Returns:
        the calls, and the innermost operator around each: event ids.
    """
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    calls = _allocator_calls(graph)
    frees = calls[match_names(trace, calls, is_free)]
    operator = operators.innermost(frees)
    frees, operator = frees[operator != ABSENT], operator[operator != ABSENT]
    key = operators.thread_index.astype(np.int64) * len(trace.strings)
    key += trace.name_index[operators.event_id]
    _, first, of_key = np.unique(key, return_index=True, return_inverse=True)
    begins = np.zeros(len(frees), dtype=np.bool_)
    for number, index in groups_of(of_key[operator]):
        begins[index] = (trace.end_ns[frees[index]] <= operators.end_ns[first[number]]).all()
    return frees[begins], operators.event_id[operator[begins]]


def creates_handle(graph: Graph, events: Int64Array) -> Int64Array:
    """The first runs that took much longer than all later ones, or began a library."""
    _, starts = _library_starts(graph)
    return np.union1d(slow_first(graph, events), np.intersect1d(events, starts))
