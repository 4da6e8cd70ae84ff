"""Launches that one call could make: loops, optimizers, micro-batches."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array
from tracelab.base.intervals import measure_within, union
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_inside,
    chosen,
    functions_around,
    inside,
    named,
    nodes_back_through,
    operators_named,
    recurring,
    step_indices,
)
from tracelab.model.frames import (
    MODULE_PREFIX,
    called_name,
    is_backward,
    is_built_in,
    is_engine_operator,
    is_module_call,
    is_optimizer_step,
    is_program_frame,
)
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import Nesting, counts_inside, groups_of, match_names
from tracelab.model.program.call_sites import python_frames
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, ReadArguments, Trace

# Calls of one name from one call of a function.
_MIN_TURNS = 30
_MIN_MODULES_OF_CLASS = 8
_MAX_LAUNCHES_OF_MODULE = 3

# A kernel that takes longer is worth a launch of its own.
_MAX_KERNEL_NS = 10_000
# Where products follow one another, each most likely needs the one before.
_PRODUCTS = re.compile(r"matmul|linear|conv|^aten::(?:add|b)?mm$")

_COLLECTS = r"^aten::(?:stack|cat)$"  # what each turn made
_READS = r"^aten::item$"

_MASKS = r"^aten::(?:index|masked_select)$"
_MIN_CELLS_OF_STEP = 8
_NEVER = np.iinfo(np.int64).max
_CELL_BACKWARD = re.compile(
    r"^autograd::engine::evaluate_function: ThnnFused(?:Lstm|Gru)CellBackward"
)

_ROUTES = r"^aten::(?:topk|one_hot)$"  # which experts a token goes to
_MIN_EXPERTS_OF_LAYER = 2
_MIN_CASTS_OF_OPERATOR = 2
# Of a loop over parameters, with nothing else in between: operators, and those that write in place.
_MIN_OPERATORS, _MIN_UPDATES = 16, 6
_LIST_LOOP = r"torch/optim/(?:adam|adamw|sgd)\.py\(\d+\): _(?:multi|single)_tensor_\w+$"
_SCALED_STEP = r"torch/(?:cuda/)?amp/grad_scaler\.py\(\d+\): _maybe_opt_step$"
_OF_TORCH = r"^Optimizer\.step#|^(?:DistributedDataParallel|FullyShardedDataParallel|FSDP)\b"

_TAKES_A_PART = re.compile(r"^aten::(?:select|slice|narrow|index|unbind)$")
_UPDATE = re.compile(r"^aten::(?:lerp_|copy_|mul_|add_|sub_)$")
_ELEMENTWISE = re.compile(r"^aten::(?:lerp|copy|mul|add|sub|rsub|div|to|_to_copy|clone)_?$")
# Before an optimizer's step: two may be of two losses.
_MIN_BACKWARD_PASSES = 3
# Times as many launches as another one has: the first accumulates nothing.
_MAX_LAUNCHES_RATIO = 1.5
_SCHEDULES = "torch/distributed/pipelining/"  # of pipelines, whose micro-batches fill it


def turns(graph: Graph, _events: Int64Array, *, with_masks: bool) -> Int64Array:
    """The calls, in loops of the program, of operators with one small kernel, or small modules."""
    if with_masks and len(_masks(graph)) < _MIN_TURNS:
        return NO_EVENTS
    timeline = graph.host.timeline
    is_work = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    calls = _calls_of_program(graph, np.unique(timeline.launch_id[is_work]).astype(np.int64))
    is_small = is_work & (timeline.end_ns - timeline.start_ns <= _MAX_KERNEL_NS)
    is_small_launch = np.isin(calls.launch_id, timeline.launch_id[is_small])
    in_loop = calls.often(calls.is_direct & is_small_launch)
    has_masks = np.isin(calls.caller[in_loop], _find_masked(graph, calls, in_loop))
    in_loop = in_loop[has_masks == with_masks]
    in_loop = in_loop[~np.isin(calls.caller[in_loop], _solvers(graph, calls))]
    turns = NO_EVENTS
    if len(recurring(graph, _one_after_another(graph, calls.call_id[in_loop]))):
        turns = calls.call_id[calls.often(np.isin(calls.caller, calls.caller[in_loop]))]
    if with_masks:
        return turns
    modules = _modules_in_loops(graph, calls, is_small_launch)
    modules = recurring(graph, _one_after_another(graph, modules))
    return np.union1d(turns, modules).astype(np.int64)


def _find_masked(graph: Graph, calls: _Calls, in_loop: IndexArray) -> Int64Array:
    """The functions (indices of frames) whose loops do little but choose by masks."""
    trace, launch_id = graph.host.timeline.trace, calls.launch_id
    is_mask = np.isin(calls.call_id, _masks(graph))
    found = []
    for caller in np.unique(calls.caller[in_loop[is_mask[in_loop]]]).tolist():
        own_id = launch_id[is_mask & (calls.caller == caller)]
        if 2 * len(own_id) >= int(_are_between(trace, launch_id, own_id).sum()):
            found.append(caller)
    return np.array(found, dtype=np.int64)


def _solvers(graph: Graph, calls: _Calls) -> IndexArray:
    """Iterative solvers (indices of frames): functions that multiply and read a number often."""
    frames = python_frames(graph.host.timeline)
    reads = operators_named(graph.host.timeline, _READS)
    readers = frames.around(frames.innermost(reads), frames.have_name(is_program_frame))
    products = np.unique(calls.call_id[calls.is_product & calls.is_direct], return_index=True)[1]
    multiplies = calls.caller[calls.is_product & calls.is_direct][products]
    count = len(frames.event_id)
    is_often = [
        np.bincount(x[x != ABSENT], minlength=count) >= _MIN_TURNS for x in (readers, multiplies)
    ]
    return np.flatnonzero(is_often[0] & is_often[1])


def _masks(graph: Graph) -> Int64Array:
    timeline = graph.host.timeline
    operators, positions = (operators_named(timeline, x) for x in (_MASKS, r"^aten::nonzero$"))
    return operators[counts_inside(timeline.trace, operators, positions) > 0]


def _modules_in_loops(graph: Graph, calls: _Calls, is_small_launch: BoolArray) -> Int64Array:
    """Calls of many small modules of one class by one call of a function, and what is between."""
    trace = graph.host.timeline.trace
    names = [trace.name_of(event) for event in calls.call_id.tolist()]
    is_module = np.array([name.startswith(MODULE_PREFIX) for name in names], dtype=np.bool_)
    loops: dict[object, list[int]] = {}
    module_rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(is_module).tolist():
        module_rows.setdefault(int(calls.call_id[row]), []).append(row)
    for rows in module_rows.values():
        if len(rows) <= _MAX_LAUNCHES_OF_MODULE and is_small_launch[rows].all():
            work = tuple(calls.operator[rows].tolist())
            key = (int(calls.caller[rows[0]]), called_name(names[rows[0]]), work)
            loops.setdefault(key, []).append(rows[0])
    found = [NO_EVENTS]
    for turns in loops.values():
        if len({names[row] for row in turns}) < _MIN_MODULES_OF_CLASS:
            continue
        turn_id, caller = calls.call_id[turns], int(calls.caller[turns[0]])
        launched = int(_are_between(trace, calls.launch_id, turn_id).sum())
        end_ns = int(trace.end_ns[turn_id].max())
        is_little = launched <= _MAX_LAUNCHES_OF_MODULE * len(turns)
        if is_little and _are_collected(graph, caller, end_ns):
            own_id = np.unique(calls.call_id[calls.caller == caller])
            found.append(own_id[_are_between(trace, own_id, turn_id)])
    return np.concatenate(found)


def _are_collected(graph: Graph, caller: int, end_ns: int) -> bool:
    trace, frames = graph.host.timeline.trace, python_frames(graph.host.timeline)
    collects = operators_named(graph.host.timeline, _COLLECTS)
    collects = collects[trace.start_ns[collects] >= end_ns]
    is_own = frames.have_name(is_program_frame)
    around = frames.around(frames.parent_index[[caller]], is_own)
    own = frames.around(frames.innermost(collects), is_own)
    return bool(np.isin(own, (caller, *around[around != ABSENT].tolist())).any())


class _Calls(Arrays):
    """Calls that functions of the program make, by what these launch: a row for each launch.

    The caller is a frame's index, the operator the outermost's name; direct if that was called.
    """

    launch_id: Int64Array
    caller: Int64Array
    call_id: Int64Array
    operator: NDArray[np.int32]
    is_direct: BoolArray
    is_product: BoolArray

    def often(self, is_one: BoolArray) -> IndexArray:
        """One of the rows of each call whose function calls that operator often; no products."""
        rows = np.flatnonzero(is_one)
        rows = rows[np.unique(self.call_id[rows], return_index=True)[1]]
        turns = np.stack((self.caller[rows], self.operator[rows]), axis=1)
        _, group, count = np.unique(turns, axis=0, return_inverse=True, return_counts=True)
        is_often = (count[group.ravel()] >= _MIN_TURNS) & ~self.is_product[rows]
        return np.asarray(rows[is_often])


def _calls_of_program(graph: Graph, launch_id: Int64Array) -> _Calls:
    timeline = graph.host.timeline
    frames, operators = python_frames(timeline), timeline.operators
    of_program = np.append(frames.have_name(is_program_frame), True)
    is_built_in_frame = np.append(frames.have_name(is_built_in), False)
    parent_index = np.append(frames.parent_index, ABSENT)
    operator = operators.around(operators.innermost(launch_id), operators.parent_index == ABSENT)
    innermost = frames.innermost(launch_id)
    called, caller = np.full(len(launch_id), ABSENT), innermost.copy()
    while len(open_ := np.flatnonzero(~of_program[caller] | is_built_in_frame[caller])):
        called[open_], caller[open_] = caller[open_], parent_index[caller[open_]]
    known = np.flatnonzero((caller != ABSENT) & (operator != ABSENT))
    called, caller, operator = called[known], caller[known], operator[known]
    has_name = called != ABSENT
    return _Calls(
        launch_id=launch_id[known],
        caller=caller,
        call_id=np.where(has_name, frames.event_id[called], operators.event_id[operator]),
        operator=timeline.trace.name_index[operators.event_id[operator]],
        is_direct=~has_name | (is_built_in_frame[called] & (innermost[known] == called)),
        is_product=operators.have_name(_PRODUCTS.search)[operator],
    )


def _one_after_another(graph: Graph, calls: Int64Array) -> Int64Array:
    trace, launch_id = graph.host.timeline.trace, graph.host.timeline.launch_id
    launch_id = np.unique(launch_id[launch_id != ABSENT])
    order = np.lexsort((trace.start_ns[launch_id], trace.thread_index[launch_id]))
    inside = are_inside(trace, launch_id[order], calls)
    follows = inside[1:] & inside[:-1]
    return calls if 2 * int(follows.sum()) >= int(inside.sum()) else NO_EVENTS


def cells_in_a_row(graph: Graph, events: Int64Array) -> Int64Array:
    """The cells of steps that have many, with little launched between, and their backward pass."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    launching = timeline.launch_id[timeline.launch_id != ABSENT]
    own = counts_inside(trace, events, launching)
    operators = timeline.operators
    nodes = operators.event_id[operators.have_name(is_engine_operator)]
    backward = operators.event_id[operators.have_name(_CELL_BACKWARD.match)]
    found = [NO_EVENTS]
    step = step_indices(graph, events)
    for number in np.unique(step).tolist():
        cells = events[step == number]
        between = int(_are_between(trace, launching, cells).sum()) - int(own[step == number].sum())
        if len(cells) >= _MIN_CELLS_OF_STEP and between <= len(cells):
            back = backward[step_indices(graph, backward) == number]
            found += [cells, nodes[_are_between(trace, nodes, back)]]
    return np.concatenate(found)


def _are_between(trace: Trace, events: Int64Array, others: Int64Array) -> BoolArray:
    is_between = np.isin(trace.thread_index[events], trace.thread_index[others])
    is_between &= trace.start_ns[events] >= trace.start_ns[others].min(initial=_NEVER)
    is_between &= trace.end_ns[events] <= trace.end_ns[others].max(initial=0)
    return is_between


def differentiated(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """Operators from the first to the last read of loops that autograd repeats, and its nodes."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    function = functions_around(graph, events)
    found = [NO_EVENTS]
    for _, of_name in groups_of(python_frames(graph.host.timeline).names(function)):
        loops = [of_name[index] for _, index in groups_of(function[of_name])]
        spans = [
            (operators.thread_index == trace.thread_index[events[loop[0]]])
            & (operators.start_ns >= trace.start_ns[events[loop]].min())
            & (operators.end_ns <= trace.end_ns[events[loop]].max())
            for loop in loops
        ]
        between = operators.event_id[np.logical_or.reduce(spans)]
        nodes = nodes_back_through(graph, between, arguments)
        if len(nodes) >= _MIN_TURNS * len(loops):
            found += [between, nodes]
    return np.unique(np.concatenate(found))


def expert_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """The functions that look up positions and add rows back; none in a file without a router."""
    frames = python_frames(graph.host.timeline)
    is_routed = len(operators_named(graph.host.timeline, _ROUTES)) > 0
    is_loop = np.full(len(frames.event_id), is_routed)
    for name in (r"^aten::index_add_?$", r"^aten::nonzero$"):
        around = functions_around(graph, operators_named(graph.host.timeline, name))
        count = np.bincount(around[around != ABSENT], minlength=len(is_loop))
        is_loop &= count >= _MIN_EXPERTS_OF_LAYER
    return chosen(frames.event_id, is_loop)


def casts_again(graph: Graph, events: Int64Array) -> Int64Array:
    """Casts of weights that a module repeats in a step, or that inference makes in each step."""
    # In training the first cast of each operator is its input's.
    timeline = graph.host.timeline
    operators = timeline.operators
    casts = np.flatnonzero(np.isin(operators.event_id, events))
    owner = operators.parent_index[casts]
    count = np.bincount(owner, minlength=len(operators.event_id))
    is_of_weights = count[owner] >= _MIN_CASTS_OF_OPERATOR
    if not operators.have_name(is_engine_operator).any():
        # Without autocast the inputs need no cast either.
        return chosen(operators.event_id, casts[is_of_weights])
    is_of_weights &= np.diff(owner, prepend=-1) == 0
    of_weights, of_owner = casts[is_of_weights], owner[is_of_weights]
    frames = python_frames(timeline)
    is_module = frames.have_name(lambda name: name.startswith(MODULE_PREFIX))
    module = frames.around(frames.innermost(operators.event_id[of_owner]), is_module)
    known = module != ABSENT
    of_weights, of_owner, module = of_weights[known], of_owner[known], module[known]
    step = step_indices(graph, operators.event_id[of_owner])
    key = np.stack((frames.names(module), step), axis=1)
    _, use = np.unique(key, axis=0, return_inverse=True)
    first_call = np.full(int(use.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_call, use, module)
    return chosen(operators.event_id, of_weights[module > first_call[use]])


def runs_backward(graph: Graph, events: Int64Array) -> Int64Array:
    """The events during which any thread runs a node of autograd, as of a closure's."""
    operators, trace = graph.host.timeline.operators, graph.host.timeline.trace
    starts_ns = np.sort(operators.start_ns[operators.have_name(is_engine_operator)])
    first, end = (np.searchsorted(starts_ns, x[events]) for x in (trace.start_ns, trace.end_ns))
    return chosen(events, first < end)


def updates_one_by_one(graph: Graph, _events: Int64Array) -> Int64Array:
    """Runs of elementwise operators in which several write in place, not of optimizers or DDP."""
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    is_outermost = operators.parent_index == ABSENT
    update = operators.event_id[is_outermost & operators.have_name(_UPDATE.match)]
    if len(update) < _MIN_UPDATES:
        return NO_EVENTS
    outer = operators.event_id[is_outermost]
    launching = timeline.launch_id[timeline.launch_id != ABSENT]
    takes_a_part = match_names(trace, outer, _TAKES_A_PART.match)
    outer = outer[takes_a_part | (counts_inside(trace, outer, launching) > 0)]
    outer = outer[np.lexsort((trace.start_ns[outer], trace.thread_index[outer]))]
    is_chosen = match_names(trace, outer, _ELEMENTWISE.match)

    is_chosen &= ~np.isin(outer, inside(graph, outer, operator=_OF_TORCH))
    begins = np.diff(is_chosen, prepend=False)
    for same in (trace.thread_index[outer], step_indices(graph, outer)):
        begins |= np.diff(same, prepend=same[:1]) != 0
    run = np.cumsum(begins)
    runs = int(begins.sum()) + 1
    is_update = is_chosen & np.isin(outer, update)
    is_chosen &= np.bincount(run[is_update], minlength=runs)[run] >= _MIN_UPDATES
    is_chosen &= np.bincount(run[is_chosen], minlength=runs)[run] >= _MIN_OPERATORS
    return chosen(outer, is_chosen)


def joined_by_scaled_update(graph: Graph, events: Int64Array) -> Int64Array:
    """Add the updates that a fused optimizer makes in one launch."""
    frames = python_frames(graph.host.timeline)
    is_update = frames.have_name(re.compile(_LIST_LOOP).search)
    is_step = frames.have_name(re.compile(_SCALED_STEP).search)
    index = np.flatnonzero(is_update & (len(events) > 0))
    inside = frames.around(index, is_step) != ABSENT
    return np.concatenate((events, frames.event_id[index[inside]]))


def joined_by_additions(graph: Graph, events: Int64Array) -> Int64Array:
    """Zeroed gradients, and the additions to them in the backward pass that follows."""
    timeline = graph.host.timeline
    trace, frames, operators = timeline.trace, python_frames(timeline), timeline.operators
    passes = frames.event_id[frames.have_name(is_backward)]
    if not len(passes) or not len(events):
        return events
    passes = passes[np.argsort(trace.start_ns[passes])]
    following = np.searchsorted(trace.start_ns[passes], trace.end_ns[events])
    passes = passes[following[following < len(passes)]]
    is_addition = operators.have_name("aten::add_".__eq__)
    accumulates = operators.have_name("torch::autograd::AccumulateGrad".__eq__)
    is_addition &= np.append(accumulates, False)[operators.parent_index]
    additions = operators.event_id[is_addition]
    time = union(trace.start_ns[passes], trace.end_ns[passes])
    starts_ns = trace.start_ns[additions]
    is_meanwhile = measure_within(time, starts_ns, starts_ns + 1) > 0
    return np.concatenate((events, additions[is_meanwhile]))


def small_micro_batches(graph: Graph, _events: Int64Array) -> Int64Array:
    """Modules, backward passes and what else is called for micro-batches that launch alike."""
    timeline = graph.host.timeline
    trace = timeline.trace
    passes = named(trace, is_backward, Category.PYTHON)
    passes = passes[np.argsort(trace.start_ns[passes], kind="stable")]
    steps = named(trace, is_optimizer_step, Category.ANNOTATION, Category.OPERATOR)
    if not len(steps) or any(_SCHEDULES in name for name in trace.strings):
        return NO_EVENTS
    modules = Nesting(trace, named(trace, is_module_call, Category.PYTHON))
    outermost = modules.event_id[modules.parent_index == ABSENT]
    steps_ns = np.sort(trace.start_ns[steps])
    launched = timeline.launch_id[(timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)]
    launched_ns = np.sort(trace.start_ns[launched])
    first, end = (np.searchsorted(launched_ns, x[passes]) for x in (trace.start_ns, trace.end_ns))
    launches = end - first
    batch = np.searchsorted(steps_ns, trace.start_ns[passes])
    accumulated = [
        number
        for number, index in groups_of(batch)
        if len(index) >= _MIN_BACKWARD_PASSES
        and launches[index].max() <= _MAX_LAUNCHES_RATIO * launches[index].min()
    ]
    of_module = np.searchsorted(steps_ns, trace.start_ns[outermost])
    events = [NO_EVENTS]
    for number in accumulated:
        back, forward = passes[batch == number], outermost[of_module == number]
        called = _called_by_loop(timeline, forward, back)
        events += [back, forward, called[counts_inside(trace, called, steps) == 0]]
    return np.unique(np.concatenate(events))


def _called_by_loop(timeline: Timeline, modules: Int64Array, passes: Int64Array) -> Int64Array:
    """The calls of the function around some backward passes, from first module to last pass."""
    trace, frames = timeline.trace, python_frames(timeline)
    end_ns = trace.end_ns[passes[-1]]
    loop = frames.around(frames.innermost(passes[:1]), frames.end_ns >= end_ns)
    if loop[0] == ABSENT or not len(modules):
        return NO_EVENTS
    called = frames.event_id[frames.children(loop)]
    is_meanwhile = trace.end_ns[called] > trace.start_ns[modules].min()
    return chosen(called, is_meanwhile & (trace.start_ns[called] < end_ns))
