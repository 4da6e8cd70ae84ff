"""Recognizers: what a record of `remedies.toml` may name in ``occurs``, and what they are made of.

One takes a file's graph and host events (int64[k], event ids), and returns the real pitfalls; other
parameters are keys of the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, IntArray, read_only
from tracelab.findings.candidates import is_regular
from tracelab.model.blocking_calls import Blocking
from tracelab.model.cuda_graphs import mostly_replays
from tracelab.model.frames import is_engine_operator, is_source_function, is_tensor_operator
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory, is_graph_launch
from tracelab.model.lookup import (
    Nesting,
    calls_of_name,
    counts_before,
    counts_inside,
    expand_ranges,
    groups_of,
    match_names,
)
from tracelab.model.program.call_sites import python_frames
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, ReadArguments, Trace

NO_EVENTS: Int64Array = read_only(np.zeros(0, dtype=np.int64))

Events = IntArray
Side = Literal["left", "right"]

# Functions of PyTorch's that only pass on what they are called with.
_PASSES_ON = re.compile(
    r"(?:^|/)torch/(?:_ops|_jit_internal|_tensor|_VF|functional|nn/functional)\.py\("
)
_COMPILED_FUNCTION = re.compile(r"^Torch-Compiled Region")
_COMPILED_CODE = re.compile(rf"{_COMPILED_FUNCTION.pattern}|^## Call CompiledFxGraph")
_OPERATORS = (Category.OPERATOR, Category.ANNOTATION)
# Of autograd, from one of a turn of a loop to one of the next.
_MAX_NODES_OF_TURN = 8
# A pitfall of fewer came by chance.
_MIN_STEADY_STEPS = 2


# --- when ---


def recurs(graph: Graph, events: Int64Array) -> Int64Array:
    """All events if they occur in two steady steps, or in the only one, else none."""
    return _if_enough(graph, events, np.ones(len(events)), 1)


def recurring(graph: Graph, events: Events, *, least: int = _MIN_STEADY_STEPS) -> Int64Array:
    """All events if at least two steady steps, or `least`, have any, else none.

    The first recorded step does not count: things that come once come there.
    """
    timeline = graph.host.timeline
    if timeline.steady is None or not len(events):
        return NO_EVENTS
    later = [index for index in timeline.steady.indices if index > 0]
    seen = np.intersect1d(step_indices(graph, events), later)
    return events.astype(np.int64) if len(seen) >= least else NO_EVENTS


def recurs_in_most_steps(graph: Graph, events: Int64Array) -> Int64Array:
    """All events if most steady steps have some, else none; all in a file without steps."""
    steady = graph.host.timeline.steady
    if steady is None:
        return events
    seen = np.intersect1d(step_indices(graph, events), steady.indices)
    return events if 2 * len(seen) > len(steady.indices) else NO_EVENTS


def lasts(graph: Graph, events: Int64Array, *, least_us: float) -> Int64Array:
    """Choose the events that take at least `least_us` microseconds."""
    return events[graph.host.timeline.trace.duration_ns[events] >= 1e3 * least_us]


def takes_share(graph: Graph, events: Int64Array, *, least: float) -> Int64Array:
    """The events of launching threads, if together they take a share of the steps, else none."""
    timeline = graph.host.timeline
    events = called_in_launching_thread(graph, events)
    nesting = Nesting(timeline.trace, events)
    outermost = nesting.parent_index == ABSENT
    spent_ns = int((nesting.end_ns - nesting.start_ns)[outermost].sum())
    total_ns = sum(window.end_ns - window.start_ns for window in timeline.steps)
    return events if total_ns and spent_ns >= least * total_ns else NO_EVENTS


# --- what happens inside them ---


def launches(graph: Graph, events: Int64Array, *, least: int) -> Int64Array:
    """All events if in at least two steady steps they launch `least` activities, else none."""
    timeline = graph.host.timeline
    return _if_enough(graph, events, launches_inside(timeline, events), least)


def launches_each(
    graph: Graph, events: Int64Array, *, least: int, alike: bool = False
) -> Int64Array:
    """The events that launch so many activities each; `alike` if all of a name launch as many."""
    timeline = graph.host.timeline
    count = launches_inside(timeline, events)
    is_chosen = count >= least
    if alike:
        for _, index in groups_of(timeline.trace.name_index[events]):
            is_chosen[index] &= len(np.unique(count[index])) == 1
    return chosen(events, is_chosen)


def blocks(graph: Graph, events: Int64Array) -> Int64Array:
    """The events inside which the host waited for the GPU."""
    calls = graph.host.blocking_calls
    return _select_around(graph, events, calls.event_id[calls.kind != Blocking.ALLOCATION])


def copies(
    graph: Graph,
    events: Int64Array,
    *,
    direction: str,
    max_bytes: int | None = None,
    is_pageable: bool | None = None,
) -> Int64Array:
    """The events inside which something is copied, "h2d" or "d2h", of at most `max_bytes`."""
    calls = calls_of_copies(graph.host.timeline, direction, max_bytes, is_pageable)
    return _select_around(graph, events, calls)


def communicates(graph: Graph, events: Int64Array) -> Int64Array:
    """The events inside which a collective is launched."""
    timeline = graph.host.timeline
    launch_id = timeline.launch_id[timeline.kind == Kind.COMM]
    return _select_around(graph, events, launch_id[launch_id != ABSENT])


def holds(graph: Graph, events: Int64Array, *, operator: str) -> Int64Array:
    """The events inside which an operator or annotation runs with a match of a pattern."""
    return _select_around(graph, events, operators_named(graph.host.timeline, operator))


def calls(graph: Graph, events: Int64Array, *, function: str) -> Int64Array:
    """The events inside which a Python function runs with a match of a pattern."""
    trace = graph.host.timeline.trace
    return _select_around(graph, events, named(trace, re.compile(function).search, Category.PYTHON))


def calls_cuda(
    graph: Graph, events: Int64Array, *, function: str = "", least: int = 1
) -> Int64Array:
    """The events inside which functions of CUDA (or HIP) with a match are called so many times."""
    trace = graph.host.timeline.trace
    calls = named(trace, re.compile(function).search, *HOST_CALLS)
    return chosen(events, counts_inside(trace, events, calls) >= least)


# --- what they are inside of ---


def inside(graph: Graph, events: Int64Array, *, operator: str) -> Int64Array:
    """The events inside an operator or annotation with a match of a pattern, other than itself."""
    timeline = graph.host.timeline
    regions = Nesting(timeline.trace, operators_named(timeline, operator))
    index = regions.innermost(events)
    if len(regions.event_id):
        is_itself = (index != ABSENT) & (regions.event_id[index] == events)
        index = np.where(is_itself, regions.parent_index[index], index)
    return chosen(events, index != ABSENT)


def outermost(graph: Graph, events: Int64Array, *, function: str) -> Int64Array:
    """The outermost Python function or operator with a match around each event, else that event."""
    trace = graph.host.timeline.trace
    matching = named(trace, re.compile(function).search, Category.PYTHON, Category.OPERATOR)
    regions = Nesting(trace, matching)
    index = regions.around(regions.innermost(events), regions.parent_index == ABSENT)
    outer = regions.event_id[index[index != ABSENT]]
    return np.unique(np.concatenate((outer, events[index == ABSENT])))


def called_by(graph: Graph, events: Int64Array, *, operator: str) -> Int64Array:
    """The operators whose next operator around them has a match of a pattern."""
    return parents_match(graph, events, re.compile(operator).search)


def callers(graph: Graph, events: Int64Array) -> Int64Array:
    """The next operators around some operators, each once."""
    operators = graph.host.timeline.operators
    parent_index = operators.parent_index[np.isin(operators.event_id, events)]
    return np.unique(operators.event_id[parent_index[parent_index != ABSENT]])


def called_directly(graph: Graph, events: Int64Array) -> Int64Array:
    """The operators that no other operator of PyTorch's called: the program did, or autograd."""
    operators = graph.host.timeline.operators
    parent_index = operators.parent_index[np.isin(operators.event_id, events)]
    own = operators.event_id[np.isin(operators.event_id, events)]
    is_aten = np.append(operators.have_name(is_tensor_operator), False)  # the last is for ABSENT
    return chosen(own, ~is_aten[parent_index])


def made_by(graph: Graph, events: Int64Array, *, function: str) -> Int64Array:
    """The events that such a Python function made itself, rather than a function that it called."""
    frames = python_frames(graph.host.timeline)
    is_such = np.append(frames.have_name(re.compile(function).search), False)
    return chosen(events, is_such[functions_around(graph, events)])


def called_in_launching_thread(graph: Graph, events: Int64Array) -> Int64Array:
    """The events of a thread that launches work."""
    return chosen(events, are_in_launching_thread(graph, events))


def loads_data(graph: Graph, events: Int64Array) -> Int64Array:
    """The events of a data loader."""
    return chosen(events, are_inside(graph.host.timeline.trace, events, graph.host.loading_id))


def behind_replays(graph: Graph, events: Int64Array) -> Int64Array:
    """The events behind a replay of their thread; none where hardly anything is replayed."""
    if not mostly_replays(graph.host.timeline):
        return NO_EVENTS
    trace = graph.host.timeline.trace
    replays = calls_of_name(trace, is_graph_launch)
    return chosen(events, counts_before(trace, replays, events, trace.start_ns[events]) > 0)


def recorded_with(graph: Graph, events: Int64Array, *, function: str) -> Int64Array:
    """All events of a file in which such a function of CUDA is called anywhere, else none."""
    trace = graph.host.timeline.trace
    return events if len(named(trace, re.compile(function).search, *HOST_CALLS)) else NO_EVENTS


# --- what goes back through them ---


def joined_by_backward(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """Add the nodes of autograd that go back through operators inside some events, and between."""
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    inside = operators.event_id[are_inside(trace, operators.event_id, events)]
    back = nodes_back_through(graph, inside, arguments)
    nodes = operators.event_id[operators.have_name(is_engine_operator)]
    nodes = nodes[np.lexsort((trace.start_ns[nodes], trace.thread_index[nodes]))]
    index = np.flatnonzero(np.isin(nodes, back))
    is_near = np.diff(index) <= _MAX_NODES_OF_TURN
    is_near &= np.diff(step_indices(graph, nodes[index])) == 0
    _, between = expand_ranges(index[:-1][is_near], index[1:][is_near])
    return np.unique(np.concatenate((events, back, nodes[between])))


def nodes_back_through(
    graph: Graph, operators: Int64Array, arguments: ReadArguments, other_threads: Sequence[int] = ()
) -> Int64Array:
    """int64[n], the nodes of autograd that go back through operators, of no other thread."""
    of_file = graph.host.timeline.operators
    node = of_file.event_id[of_file.have_name(is_engine_operator)]
    made = np.setdiff1d(operators, node)
    numbers, threads = forward_numbers(np.concatenate((made, node)), arguments)
    number, thread = numbers[len(made) :], threads[len(made) :]
    is_back = (number != ABSENT) & np.isin(number, numbers[: len(made)])
    is_back &= ~np.isin(thread, other_threads)
    known, count = np.unique(thread[is_back], return_counts=True)
    return chosen(node, is_back & np.isin(thread, known[count == count.max(initial=0)][:1]))


# --- what recognizers are made of ---


def compiled_functions(trace: Trace) -> Nesting:
    """The regions of every thread in which it ran a compiled function, as trees."""
    return Nesting(trace, named(trace, _COMPILED_FUNCTION.match, *_OPERATORS))


def compiled_regions(trace: Trace) -> Nesting:
    """The regions in which a thread ran code of `torch.compile`, functions and graphs, as trees."""
    return Nesting(trace, named(trace, _COMPILED_CODE.match, *_OPERATORS))


def functions_around(graph: Graph, events: Int64Array) -> Int64Array:
    """int64[k], index into `python_frames` of the function that made each event, wrappers aside."""
    frames = python_frames(graph.host.timeline)
    is_function = frames.have_name(lambda x: is_source_function(x) and not _PASSES_ON.search(x))
    return frames.around(frames.innermost(events), is_function)


def chosen(events: Int64Array, is_chosen: NDArray[Any]) -> Int64Array:
    """int64[c], the chosen ones of some events; by a mask, or by their indices."""
    return np.asarray(events[is_chosen])


def launches_inside(timeline: Timeline, events: Int64Array) -> IndexArray:
    """intp[k], how many activities are launched inside each event, on its thread."""
    launch_id = timeline.launch_id[timeline.launch_id != ABSENT]
    return counts_inside(timeline.trace, events, launch_id)


def calls_of_copies(
    timeline: Timeline,
    direction: str,
    max_bytes: int | None = None,
    is_pageable: bool | None = None,
) -> Int64Array:
    """int64[k], event ids of the calls that copy, chosen as by `copies`."""
    is_chosen = timeline.copies(direction) & (timeline.launch_id != ABSENT)
    if is_pageable is not None:
        is_such = match_names(timeline.trace, timeline.event_id, copies_pageable_memory)
        is_chosen &= is_such == is_pageable
    if max_bytes is not None:
        is_chosen &= timeline.trace.copied_bytes[timeline.event_id] <= max_bytes
    return chosen(timeline.launch_id, is_chosen)


def operators_named(timeline: Timeline, pattern: str) -> Int64Array:
    """int64[k], the operators and annotations (event ids) with a match of a regular expression."""
    of_kinds = [*map(timeline.ids_except_steps, (Category.OPERATOR, Category.ANNOTATION))]
    events = np.concatenate(of_kinds).astype(np.int64)
    return events[match_names(timeline.trace, events, re.compile(pattern).search)]


def step_indices(graph: Graph, events: Events) -> IndexArray:
    """intp[k], index into `Timeline.steps` of the step in which the host was; ABSENT before."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    begins_ns = trace.start_ns[[step.event_id for step in timeline.steps]]
    return np.searchsorted(begins_ns, trace.start_ns[events], side="right") - 1


def are_inside(trace: Trace, events: Events, regions: Events) -> BoolArray:
    """bool[k], which host events are inside, or one of, some others of their thread."""
    if not len(regions):
        return np.zeros(len(events), dtype=np.bool_)
    return np.asarray(Nesting(trace, regions).innermost(events.astype(np.int64)) != ABSENT)


def are_in_launching_thread(graph: Graph, events: Events) -> BoolArray:
    """bool[k], which host events are of a thread that launches work."""
    threads = sorted(graph.host.launching_threads)
    return np.isin(graph.host.timeline.trace.thread_index[events], threads)


def forward_numbers(
    operators: Int64Array, arguments: ReadArguments
) -> tuple[Int64Array, Int64Array]:
    """The numbers of operators in their threads, and the file's numbers of these threads, int64[k].

    A node of autograd has its forward operator's number, an operator that of its thread's next
    node; ABSENT if the "args" do not say.
    """
    known = arguments(operators.tolist())
    number, thread = (
        np.array([known.get(x, {}).get(key, ABSENT) for x in operators.tolist()], dtype=np.int64)
        for key in ("Sequence number", "Fwd thread id")
    )
    return number, np.where(number == ABSENT, ABSENT, thread)


def parents_match(graph: Graph, operators: Events, test: Callable[[str], object]) -> Int64Array:
    """Operators whose parent operator has a name that passes a test."""
    nesting = graph.host.timeline.operators
    is_chosen = np.isin(nesting.event_id, operators) & (nesting.parent_index != ABSENT)
    index = np.flatnonzero(is_chosen)
    parent_id = nesting.event_id[nesting.parent_index[index]]
    return nesting.event_id[index[match_names(graph.host.timeline.trace, parent_id, test)]]


def named(trace: Trace, test: Callable[[str], object], *categories: Category) -> Int64Array:
    """Event ids of some categories whose name passes a test."""
    events = trace.of_category(*categories)
    return events[match_names(trace, events, test)].astype(np.int64)


def _select_around(graph: Graph, events: Int64Array, others: Events) -> Int64Array:
    return chosen(events, counts_inside(graph.host.timeline.trace, events, others) > 0)


def _if_enough(
    graph: Graph, events: Int64Array, count: NDArray[np.integer | np.floating], least: int
) -> Int64Array:
    timeline = graph.host.timeline
    if not len(events):
        return NO_EVENTS
    if timeline.steady is None:
        return events if count.sum() >= _MIN_STEADY_STEPS * least else NO_EVENTS
    step = step_indices(graph, events)
    in_step = np.bincount(step[step >= 0], count[step >= 0], len(timeline.steps))
    is_enough = in_step[list(timeline.steady.indices)] >= least
    return events if is_regular(int(is_enough.sum()), len(is_enough)) else NO_EVENTS
