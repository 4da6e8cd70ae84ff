"""The host's own work: data, threads, debug switches, checks, tensors on the CPU."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array, measure_within, union
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_in_launching_thread,
    are_inside,
    chosen,
    counts_inside,
    functions_around,
    named,
    parents_match,
)
from tracelab.measures.idle_culprits import innermost_functions
from tracelab.model.driver_api import is_kernel_launch
from tracelab.model.frames import is_built_in, is_engine_operator, is_tensor_operator
from tracelab.model.graph import Graph
from tracelab.model.host import is_in_launching_thread, thread_waits
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

_NEXT = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__$")
# To hand a batch over takes 0.1 to 1 ms itself.
_MIN_LOAD_NS_OF_STEP = 1_000_000
# Of the time of a function.
_MIN_WAITING_SHARE = 0.5
# At most 2 % of the launches of ordinary files end after their kernel.
_MIN_KERNEL_LAUNCHES = 20
_MIN_BLOCKED_SHARE = 0.95
_NAN_CHECKS = "aten::isnan"
_FORMATS_STACK = re.compile(r"traceback\.py\(\d+\): format_stack$")
_COLLECTS = "Python GC"
# Operators that only look at a tensor in another way, or make one without values.
_KEEPS_VALUES = re.compile(
    r"aten::(?:_?reshape\w*|_to_copy|_unsafe_view|alias|as_strided\w*|chunk|contiguous|detach_?|"
    r"empty\w*|expand\w*|flatten|item|lift_fresh|movedim|narrow|new_empty\w*|permute|resize_|"
    r"result_type|select|set_|slice|split\w*|squeeze|swapaxes|t|to|transpose|unbind|unflatten\w*|"
    r"unsafe_\w+|unsqueeze|view\w*)$"
)
# The step counters of an optimizer take 35 us while recorded; ten operators on 256 by 256
# numbers 500 us (host of an H100).
MIN_COMPUTED_NS = 100_000


def joined_by_functions(graph: Graph, events: Int64Array) -> Int64Array:
    """Add the Python functions of a loader's `__next__` around its regions."""
    trace = graph.host.timeline.trace
    functions = named(trace, _NEXT.search, Category.PYTHON)
    return np.concatenate((events, functions[counts_inside(trace, functions, events) > 0]))


def long_loads(graph: Graph, events: Int64Array) -> Int64Array:
    """The loads of the main process, if they take long enough that worker processes pay.

    The profiler makes them longer: they count for the share of a step that is left without it.
    """
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
    has_threads = np.zeros(len(events), dtype=np.bool_)
    for thread, index in groups_of(trace.thread_index[events]):
        others_ns = np.sort(trace.start_ns[launch_id[trace.thread_index[launch_id] != thread]])
        first = np.searchsorted(others_ns, trace.start_ns[events[index]])
        has_threads[index] = first < np.searchsorted(others_ns, trace.end_ns[events[index]])
    return events[has_threads]


def thread_waits_and_what_for(graph: Graph, _events: Int64Array) -> Int64Array:
    """The waits of launching threads for others, and the functions that those run meanwhile.

    A wait for data belongs to the data loader.
    """
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
    """The checks after most nodes of the backward pass, and the stacks that the forward formats.

    A hook of the program that looks for NaN does not do so after most nodes.
    """
    trace = graph.host.timeline.trace
    checks = parents_match(graph, events, is_engine_operator)
    nodes = named(trace, is_engine_operator, Category.OPERATOR)
    looks = checks[match_names(trace, checks, _NAN_CHECKS.__eq__)]
    if 2 * int((counts_inside(trace, nodes, looks) > 0).sum()) < len(nodes):
        return NO_EVENTS
    formats = named(trace, _FORMATS_STACK.search, Category.PYTHON)
    operators = trace.of_category(Category.OPERATOR)
    formats = formats[are_inside(trace, formats, operators)]
    return np.concatenate((checks, formats))


def silent_functions(graph: Graph, _events: Int64Array, *, least_us: float) -> Int64Array:
    """Python functions that did nothing recorded for long, where collections are not recorded.

    A call that takes as long explains itself; between two events of a thread that is the function
    alone.
    """
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
    """The checks after which no mask was made: no token was padding.

    Then the function around the check of the mask runs no further operator.
    """
    timeline = graph.host.timeline
    trace, operators, frames = timeline.trace, timeline.operators, python_frames(timeline)
    check = functions_around(graph, events)
    known = check != ABSENT
    events, check = events[known], check[known]
    is_function = np.ones(len(frames.event_id), dtype=np.bool_)
    maker = frames.around(frames.parent_index[check], is_function)
    makes_mask = np.zeros(len(events), dtype=np.bool_)
    for thread in np.unique(trace.thread_index[events]).tolist():
        starts_ns = operators.start_ns[operators.entries_of(thread)]
        chosen = np.flatnonzero((trace.thread_index[events] == thread) & (maker != ABSENT))
        first = np.searchsorted(starts_ns, frames.end_ns[check[chosen]])
        makes_mask[chosen] = np.searchsorted(starts_ns, frames.end_ns[maker[chosen]]) > first
    return events[~makes_mask]


def computed_tensors(graph: Graph, _events: Int64Array) -> Int64Array:
    """The outermost functions and operators that compute on the CPU and call nothing of CUDA."""
    trace = graph.host.timeline.trace
    operators = _exclude_callers(graph, named(trace, _makes_values, Category.OPERATOR))
    functions = trace.of_category(Category.PYTHON).astype(np.int64)
    functions = chosen(functions, counts_inside(trace, functions, operators) > 0)
    nesting = Nesting(trace, np.concatenate((operators, _exclude_callers(graph, functions))))
    outermost = chosen(nesting.event_id, nesting.parent_index == ABSENT)
    return chosen(outermost, trace.duration_ns[outermost] >= MIN_COMPUTED_NS)


def _makes_values(name: str) -> bool:
    return is_tensor_operator(name) and _KEEPS_VALUES.match(name) is None


def _exclude_callers(graph: Graph, events: Int64Array) -> Int64Array:
    """The events of a launching thread that called nothing of CUDA and loaded no data."""
    trace = graph.host.timeline.trace
    events = chosen(events, are_in_launching_thread(graph, events))
    events = chosen(events, ~are_inside(trace, events, graph.host.loading_id))
    calls = trace.of_category(*HOST_CALLS)
    return chosen(events, counts_inside(trace, events, calls) == 0)
