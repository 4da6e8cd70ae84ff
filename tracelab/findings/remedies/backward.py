"""Work of the backward pass that trains nothing, or is done twice."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.arrays import BoolArray, Int64Array
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_inside,
    chosen,
    forward_numbers,
    named,
    nodes_back_through,
    recurs,
)
from tracelab.model.frames import is_engine_operator, is_optimizer_step
from tracelab.model.graph import Graph
from tracelab.model.lookup import Nesting, counts_inside, groups_of, match_names
from tracelab.model.program.call_sites import regions_around
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, ReadArguments

_ACCUMULATES = re.compile(r"^autograd::engine::evaluate_function: \S*AccumulateGrad$")
_RUN_BACKWARD = re.compile(r"^<built-in (?:method|function) run_backward\b")
# The engine's own start of a pass: `loss.backward()` makes a gradient of one.
_FIRST_GRADIENT = "aten::ones_like"
_HAS_PRODUCTS = re.compile(r": (?:Addmm|Mm|Linear|Convolution)Backward\d+$")
_PRODUCT = re.compile(r"^aten::mm$")
_WEIGHT_GRADIENT = re.compile(r"wgrad|backward_weight|bwd_?w", re.IGNORECASE)
# The forward pass again: what only it calls, in a node of autograd that is no Python function's.
_NODE = re.compile(r"^\w+Backward\d+$")
_CHECKPOINT_NODE = "CheckpointFunctionBackward"
_RECOMPUTES = re.compile(r"torch/utils/checkpoint\.py\(\d+\): recompute_fn$")
_ONLY_FORWARD = re.compile(
    r"^aten::(?:linear|conv[123]d|layer_norm|group_norm|batch_norm|rms_norm|embedding|dropout"
    r"|scaled_dot_product_attention|gelu|silu|relu)$"
)


def calls_again(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """All but the first of the calls that run the same nodes, and what goes back through them."""
    timeline = graph.host.timeline
    trace = timeline.trace
    calls = Nesting(trace, events)
    node = named(trace, is_engine_operator, Category.OPERATOR)
    node = node[np.argsort(trace.start_ns[node], kind="stable")]
    call = regions_around(timeline, calls, node)
    node, call = node[call != ABSENT], call[call != ABSENT]
    number, thread = forward_numbers(node, arguments)
    known = number != ABSENT  # a leaf whose gradient is requested has none
    again, seen = [], set[tuple[tuple[int, int], ...]]()
    for index, own in groups_of(call):
        nodes = own[known[own]]
        key = (*zip(number[nodes].tolist(), thread[nodes].tolist(), strict=True),)
        if not key or len(own) > len(nodes) + 1:
            continue
        if key in seen:
            again.append(index)
        seen.add(key)
    if not again:
        return NO_EVENTS
    of_again = node[np.isin(call, again)]
    operators = timeline.operators.event_id
    made = operators[are_inside(trace, operators, of_again)]
    back = nodes_back_through(graph, made, arguments, np.unique(thread[known]).tolist())
    return recurs(graph, np.union1d(calls.event_id[again], back).astype(np.int64))


def gradients_for_nothing(graph: Graph, _events: Int64Array) -> Int64Array:
    """The work of backward passes for gradients that no optimizer uses, or clears."""
    timeline = graph.host.timeline
    found = [_find_unneeded(timeline, *of_pass) for of_pass in _useless_passes(timeline)]
    return np.unique(np.concatenate(found)).astype(np.int64) if found else NO_EVENTS


def _useless_passes(timeline: Timeline) -> list[tuple[Int64Array, BoolArray]]:
    """Find backward passes whose gradients no optimizer uses, or clears: which are added."""
    # A cleared gradient is stored as it is; one that is added to in the first backward pass since a
    # step was not cleared.
    trace = timeline.trace
    steps = named(trace, is_optimizer_step, Category.ANNOTATION)
    gradients = named(trace, _ACCUMULATES.search, Category.OPERATOR)
    if len(steps) < 2 or not len(gradients):
        return []
    gradients = gradients[np.argsort(trace.start_ns[gradients], kind="stable")]
    additions = named(trace, "aten::add_".__eq__, Category.OPERATOR)
    is_added = counts_inside(trace, gradients, additions) > 0
    step_ns = np.sort(trace.end_ns[steps])
    interval = np.searchsorted(step_ns, trace.start_ns[gradients], side="right")
    is_first = _is_first_pass(timeline, gradients, step_ns, int(trace.thread_index[steps[0]]))
    found: list[tuple[Int64Array, BoolArray]] = []
    passes = {}
    for number in np.unique(interval[is_first]).tolist():
        index = np.flatnonzero(is_first & (interval == number))
        passes[number] = (index, int(is_added[index].sum()), int((~is_added[index]).sum()))
    known = {number: of_pass for number, of_pass in passes.items() if number > 0}
    always = len({added for _, added, _ in known.values()}) == 1
    shown = {
        (added, stored)
        for number, (_, added, stored) in known.items()
        if added and stored and (always or added == passes.get(number - 1, (None, 0, 0))[2])
    }
    for index, added, stored in passes.values():
        # The concurrent work of the threads of several GPUs has no order.
        is_one_thread = len(np.unique(trace.thread_index[gradients[index]])) == 1
        if (added, stored) in shown and is_one_thread:
            found.append((gradients[index], is_added[index]))
    return found


def _is_first_pass(
    timeline: Timeline, gradients: Int64Array, step_ns: Int64Array, thread: int
) -> BoolArray:
    trace = timeline.trace
    begins = named(trace, _RUN_BACKWARD.search, Category.PYTHON)
    if not len(trace.of_category(Category.PYTHON)):
        operators = timeline.operators
        is_outermost = operators.parent_index == ABSENT
        is_start = operators.have_name(_FIRST_GRADIENT.__eq__) & is_outermost
        begins = operators.event_id[is_start]
    begin_ns = np.sort(trace.start_ns[begins[trace.thread_index[begins] == thread]])
    pass_index = np.searchsorted(begin_ns, trace.start_ns[gradients], side="right") - 1
    passes = np.unique(pass_index[pass_index != ABSENT])
    interval_of_pass = np.searchsorted(step_ns, begin_ns[passes], side="right")
    is_first = np.diff(interval_of_pass, prepend=-1) > 0
    return np.isin(pass_index, passes[is_first])


def _find_unneeded(timeline: Timeline, gradients: Int64Array, is_added: BoolArray) -> Int64Array:
    """Operators and calls of one backward pass without which all cleared gradients are the same."""
    trace, operators = timeline.trace, timeline.operators
    thread = trace.thread_index[gradients[0]]
    engine = operators.event_id[operators.entries_of(int(thread))]
    engine = engine[match_names(trace, engine, is_engine_operator)]
    last_ns = trace.end_ns[gradients[~is_added]].max()
    end_ns = trace.end_ns[gradients[is_added]].max()
    start_ns = trace.start_ns[engine]
    behind: Int64Array = engine[(start_ns >= last_ns) & (start_ns <= end_ns)]
    before = gradients[is_added & (trace.start_ns[gradients] < last_ns)]
    if not len(before):
        return behind
    nodes = engine[match_names(trace, engine, _HAS_PRODUCTS.search)]
    position = np.searchsorted(trace.start_ns[nodes], trace.start_ns[before]) - 1
    kept = trace.start_ns[gradients[~is_added]]
    has_node = position >= 0
    node_ns, before_ns = trace.start_ns[nodes[position[has_node]]], trace.start_ns[before[has_node]]
    is_own = np.searchsorted(kept, node_ns) == np.searchsorted(kept, before_ns)
    own = np.unique(nodes[position[has_node]][is_own])
    return np.concatenate((behind, before, _weight_gradients(timeline, own)))


def before_first_use(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """Add the nodes of operators that ran before any trained parameter was used."""
    # Nodes run by falling number; autograd's own forward work, as for a gradient penalty, comes
    # last.
    timeline, found = graph.host.timeline, [events]
    trace, operators = timeline.trace, timeline.operators
    for gradients, is_added in _useless_passes(timeline):
        if is_added[np.argmin(is_added) :].argmax() == 0:  # none is added after one that is stored
            continue
        own = operators.event_id[operators.entries_of(int(trace.thread_index[gradients[0]]))]
        begin_ns, end_ns = trace.start_ns[gradients[[0, -1]]]
        node = own[match_names(trace, own, is_engine_operator) & ~np.isin(own, gradients)]
        start_ns = trace.start_ns[node]
        first = max(0, int(np.searchsorted(start_ns, begin_ns)) - 1)
        node = node[first : np.searchsorted(start_ns, end_ns)]
        number, thread = forward_numbers(node, arguments)
        stored_ns = trace.start_ns[gradients[~is_added]]
        last = np.searchsorted(trace.start_ns[node], stored_ns) - 1
        if (last >= 0).all() and len({*thread[last].tolist()}) == 1 and thread[last[0]] != ABSENT:
            is_before = (thread == thread[last[0]]) & (number < number[last].min())
            found.append(node[is_before])
    return np.unique(np.concatenate(found)).astype(np.int64)


def _weight_gradients(timeline: Timeline, nodes: Int64Array) -> Int64Array:
    """The last product inside each node, its sum for a bias, and the calls of a convolution's."""
    trace = timeline.trace
    sums = named(trace, "aten::sum".__eq__, Category.OPERATOR)
    sums = sums[are_inside(trace, sums, nodes)]
    products = named(trace, _PRODUCT.search, Category.OPERATOR)
    index = Nesting(trace, nodes).innermost(products)
    of_nodes = (products[inside] for _, inside in groups_of(index))
    last = [own[np.argmax(trace.start_ns[own])] for own in of_nodes]
    rows = np.flatnonzero(timeline.launch_id != ABSENT)
    rows = rows[match_names(trace, timeline.event_id[rows], _WEIGHT_GRADIENT.search)]
    calls = timeline.launch_id[rows]
    calls = calls[are_inside(trace, calls, nodes)]
    return np.concatenate((np.array(last, dtype=np.int64), sums, calls.astype(np.int64)))


def recomputed(graph: Graph, _events: Int64Array) -> Int64Array:
    """The operators of the forward pass that run inside the backward pass."""
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    parent_index = operators.parent_index
    is_inside = parent_index != ABSENT
    is_node = np.append(operators.have_name(_CHECKPOINT_NODE.__eq__), False)
    is_engine = operators.have_name(is_engine_operator)
    again = operators.event_id[is_inside & is_node[parent_index] & ~is_engine]
    frames = named(trace, _RECOMPUTES.search, Category.PYTHON)
    if len(trace.of_category(Category.PYTHON)):
        return np.concatenate((again, frames))
    # Without Python functions: of a node all up to the last operator that only the forward calls.
    is_node = np.append(operators.have_name(_NODE.search), False)
    children = np.flatnonzero(is_inside & is_node[parent_index])
    is_forward = operators.have_name(_ONLY_FORWARD.search)[children]
    last_ns = np.full(len(operators.event_id), -1, dtype=np.int64)
    forward = children[is_forward]
    np.maximum.at(last_ns, parent_index[forward], operators.start_ns[forward])
    is_before = operators.start_ns[children] <= last_ns[parent_index[children]]
    return np.concatenate((again, operators.event_id[chosen(children, is_before)]))
