"""Compilation, CUDA graphs, plans and memory: what comes once, and what goes on."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Int64Array
from tracelab.base.intervals import measure_within, union
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_in_launching_thread,
    blocks,
    called_directly,
    chosen,
    compiled_functions,
    named,
    operators_named,
    recurring,
    recurs,
    step_indices,
)
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import (
    asks_about_kernel,
    begins_capture,
    ends_capture,
    is_free,
    is_kernel_launch,
    loads_module,
)
from tracelab.model.lookup import Nesting, calls_of_name, counts_before, counts_inside, match_names
from tracelab.model.steps import MIN_STEPS
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

# An operator of cuDNN that has its plan takes below 0.2 ms of the host, one that makes it 5 to 80.
_MIN_PLANNING_NS = 2_000_000
# Around a capture, `torch.cuda.graph` waits for the GPU and frees memory.
_RECORDS = re.compile(
    r"torch/(?:_inductor/cudagraph_trees\.py\(\d+\): _record"
    r"|cuda/graphs\.py\(\d+\): __(?:enter|exit)__)$"
)
_MAKES = re.compile(r"torch/cuda/graphs\.py\(\d+\): __(?:new|init)__$")
_MAKES_OR_FREES = re.compile(r"^(?:cuda|cu|hip)Graph(?:Instantiate|(?:Exec)?Destroy)")
_RESUMES = re.compile(r": torch_dynamo_resume_in_")
_READS = r"^aten::(?:item|is_nonzero|nonzero|to|_to_copy|copy_)$"
# A launch takes 2 to 10 us, one that loads the kernel's code first 0.3 to 300 ms.
_MIN_LOADING_NS = 200_000
# What creates something at its first call takes so long, and so many times as long as later.
_MIN_FIRST_NS, _MIN_TIMES_LONGER = 1_000_000, 10


def before_rest(graph: Graph, events: Int64Array) -> Int64Array:
    """The events in a compiled region that goes on as another function behind them."""
    trace = graph.host.timeline.trace
    regions = compiled_functions(trace)
    rests = named(trace, _RESUMES.search, Category.PYTHON)
    around = np.concatenate((regions.parent_index, regions.innermost(rests)))
    start_ns = np.concatenate((regions.start_ns, trace.start_ns[rests]))
    is_inner = around != ABSENT
    last_ns = np.zeros(len(regions.event_id) + 1, dtype=np.int64)  # the last is for ABSENT
    np.maximum.at(last_ns, around[is_inner], start_ns[is_inner])
    return chosen(events, last_ns[regions.innermost(events)] > trace.start_ns[events])


def regions_cut_by_reads(graph: Graph, _events: Int64Array) -> Int64Array:
    """The compiled regions that reads of the GPU cut, in steady steps."""
    regions = compiled_functions(graph.host.timeline.trace)
    reads = blocks(graph, called_directly(graph, operators_named(graph.host.timeline, _READS)))
    reads = recurs(graph, before_rest(graph, reads))
    inside = regions.innermost(reads)
    return np.unique(regions.event_id[inside[inside != ABSENT]]).astype(np.int64)


def uncut(graph: Graph, events: Int64Array) -> Int64Array:
    """All events, but none where reads cut compiled functions: those are to be mended first."""
    return NO_EVENTS if len(regions_cut_by_reads(graph, events)) else events


def records_graphs(graph: Graph, _events: Int64Array) -> Int64Array:
    """Events that record CUDA graphs, and the functions around them, if that recurs."""
    trace = graph.host.timeline.trace
    begins, ends = (calls_of_name(trace, test) for test in (begins_capture, ends_capture))
    if not len(recurring(graph, begins)):
        return NO_EVENTS
    events = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    start_ns = trace.start_ns[events]
    begun = counts_before(trace, begins, events, start_ns, "right")
    ended = counts_before(trace, ends, events, start_ns)
    functions = named(trace, _RECORDS.search, Category.PYTHON)
    recorded = (
        events[begun > ended],
        calls_of_name(trace, _MAKES_OR_FREES.match),
        named(trace, _MAKES.search, Category.PYTHON),
        functions[counts_inside(trace, functions, np.union1d(begins, ends)) > 0],
    )
    return np.unique(np.concatenate(recorded)).astype(np.int64)


def plans(graph: Graph, events: Int64Array) -> Int64Array:
    """The runs of cuDNN's operators that made a plan before they launched."""
    trace, calls = graph.host.timeline.trace, graph.host.blocking_calls
    launches = counts_inside(trace, events, calls_of_name(trace, is_kernel_launch))
    # An RNN takes milliseconds as well, but to launch.
    least_ns = _MIN_PLANNING_NS * np.maximum(1, launches / 2)
    # What memory takes in it is no planning: on ROCm a hipFree may fill each run.
    start_ns, end_ns = trace.start_ns[events], trace.end_ns[events]
    is_own = calls.kind == Blocking.ALLOCATION
    allocating = union(calls.start_ns[is_own], calls.end_ns[is_own])
    own_ns = end_ns - start_ns - measure_within(allocating, start_ns, end_ns)
    return chosen(events, own_ns >= least_ns)


def loads_code(graph: Graph, _events: Int64Array) -> Int64Array:
    """The first launches of kernels that took long, and the calls that load modules."""
    trace = graph.host.timeline.trace
    may_load = np.union1d(_first_launches(graph), calls_of_name(trace, asks_about_kernel))
    slow_id = may_load[trace.duration_ns[may_load] >= _MIN_LOADING_NS]
    return np.union1d(slow_id, calls_of_name(trace, loads_module)).astype(np.int64)


def _first_launches(graph: Graph) -> NDArray[np.int64]:
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
    """The first event of a name on a thread, where it took much longer than all later ones."""
    trace = graph.host.timeline.trace
    nesting = Nesting(trace, events)
    names = trace.name_index[nesting.event_id]
    is_inner = (nesting.parent_index != ABSENT) & (names[nesting.parent_index] == names)
    events = nesting.event_id[~is_inner]
    own_ns = trace.duration_ns[events]
    key = trace.thread_index[events].astype(np.int64) * len(trace.strings)
    key += trace.name_index[events]
    order = np.lexsort((trace.start_ns[events], key))
    is_first = np.diff(key[order], prepend=ABSENT) != 0
    first = order[is_first]
    later_ns = np.where(is_first, ABSENT, own_ns[order])
    longest_ns = np.maximum.reduceat(later_ns, np.flatnonzero(is_first))
    is_slow = (longest_ns != ABSENT) & (own_ns[first] >= _MIN_TIMES_LONGER * longest_ns)
    return chosen(events, first[is_slow & (own_ns[first] >= _MIN_FIRST_NS)])


def fills_memory(graph: Graph, _events: Int64Array) -> Int64Array:
    """The allocator's calls that do not go on, and those by which a library begins.

    All if only the first of several steps has any, or most steady steps have none and none frees;
    without steps those before the first that frees.
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
    return np.asarray(calls[np.argsort(trace.start_ns[calls], kind="stable")])


def _library_starts(graph: Graph) -> tuple[Int64Array, Int64Array]:
    """Calls that free memory in the first run of an operator alone; the operators around them."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    calls = _allocator_calls(graph)
    frees = calls[match_names(trace, calls, is_free)]
    operator = operators.innermost(frees)
    frees, operator = frees[operator != ABSENT], operator[operator != ABSENT]
    key = operators.thread_index.astype(np.int64) * len(trace.strings)
    key += trace.name_index[operators.event_id]
    _, first, of_key = np.unique(key, return_index=True, return_inverse=True)
    last_ns = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last_ns, of_key[operator], trace.end_ns[frees])
    begins = (last_ns <= operators.end_ns[first])[of_key[operator]]
    return frees[begins], operators.event_id[operator[begins]]


def creates_handle(graph: Graph, events: Int64Array) -> Int64Array:
    """The first runs that took much longer than all later ones, or began a library."""
    _, starts = _library_starts(graph)
    return np.union1d(slow_first(graph, events), np.intersect1d(events, starts))
