"""Small kernels that Python launches one by one, where no other remedy says more."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    are_inside,
    counts_inside,
    operators_named,
    recurring,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.frames import (
    MODULE_PREFIX,
    called_name,
    is_built_in,
    is_engine_operator,
    is_program_frame,
)
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import expand_ranges
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT, Trace

_FEWEST_TURNS = 30  # of a loop: calls of one name from one call of a function
_FEWEST_MODULES = 8  # of a loop over modules: different ones of one class
_MOST_OF_MODULE = 3  # launches of one turn of such a loop: a layer of a model has more
_SMALL_NS = 10_000  # a kernel that takes longer is worth a launch of its own
# One kernel for all turns takes so much of the time of theirs: 0.29 for 32 clouds of 512 points,
# whose kernels fill a part of the GPU each, 0.27 and 0.44 for the steps of recurrent cells.
_GPU_SHARE = 0.33
_MOST_OF_TURN = 8  # functions of autograd from one of a turn to one of the next
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function: (\w+)Backward\d*$")
# Where products follow one another, each most likely needs the one before.
_PRODUCTS = re.compile(r"matmul|linear|conv|^aten::(?:add|b)?mm$")
_COLLECTS = r"^aten::(?:stack|cat)$"  # what each turn made
_READS = r"^aten::item$"
_LOOKS_UP = "aten::embedding"  # takes positions: what one made, another one cannot take
_MASKS = r"^aten::(?:index|masked_select)$"


def _calls_in_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """What loops of the program call in each turn, if they launch small kernels again and again.

    A loop is recognized by built-in functions, or operators that Python calls without a name
    (``x + y``), which a function of the program calls for a small kernel each; or by modules of one
    class. What makes one call of them makes one of everything else in its turns, too, and of their
    backward pass.
    """
    return _with_backward(graph, _turns(graph, with_masks=False))


def _calls_in_mask_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """The same of the loops in which each turn chooses elements by a mask of its own."""
    masks = _masks(graph)
    if len(masks) < _FEWEST_TURNS:
        return NO_EVENTS
    return _with_backward(graph, _turns(graph, with_masks=True))


def _with_backward(graph: Graph, turns: Int64Array) -> Int64Array:
    return np.concatenate((turns, backward_of(graph, turns))) if len(turns) else NO_EVENTS


def _turns(graph: Graph, *, with_masks: bool) -> Int64Array:
    """What functions with a loop call in each turn, forward.

    Args:
        graph: the file's dependencies.
        with_masks: whether to take the loops that choose elements by masks, or the others.
    """
    timeline = graph.host.timeline
    is_work = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    calls = _calls_of_program(graph, np.unique(timeline.launch_id[is_work]).astype(np.int64))
    is_small = is_work & (timeline.end_ns - timeline.start_ns <= _SMALL_NS)
    is_small_launch = np.isin(calls.launch_id, timeline.launch_id[is_small])
    in_loop = calls.often(calls.is_direct & is_small_launch)
    has_masks = np.isin(calls.caller[in_loop], _with_masks(graph, calls, in_loop))
    in_loop = in_loop[has_masks == with_masks]
    in_loop = in_loop[~np.isin(calls.caller[in_loop], _solvers(graph, calls))]
    turns = NO_EVENTS
    if len(recurring(graph, _one_after_another(graph, calls.call_id[in_loop]))):
        often = calls.often(np.isin(calls.caller, calls.caller[in_loop]))
        turns = calls.call_id[often]
    if with_masks:
        return turns
    modules = _modules_in_loops(graph, calls, is_small_launch)
    modules = recurring(graph, _one_after_another(graph, modules))
    return np.union1d(turns, modules).astype(np.int64)


def _with_masks(graph: Graph, calls: _Calls, in_loop: NDArray[np.intp]) -> Int64Array:
    """The functions (indices of frames) whose loops do little but choose by masks.

    Args:
        graph: the file's dependencies.
        calls: of the program.
        in_loop: rows of calls in loops.
    """
    trace, launch_id = graph.host.timeline.trace, calls.launch_id
    is_mask = np.isin(calls.call_id, _masks(graph))
    found = []
    for caller in np.unique(calls.caller[in_loop[is_mask[in_loop]]]).tolist():
        own_id = launch_id[is_mask & (calls.caller == caller)]
        start_ns = trace.start_ns[launch_id]
        is_between = trace.thread_index[launch_id] == trace.thread_index[own_id[0]]
        is_between &= start_ns >= trace.start_ns[own_id].min()
        is_between &= start_ns <= trace.start_ns[own_id].max()
        if 2 * len(own_id) >= int(is_between.sum()):
            found.append(caller)
    return np.array(found, dtype=np.int64)


def _solvers(graph: Graph, calls: _Calls) -> NDArray[np.intp]:
    """The functions (indices of frames) that multiply and read a number again and again.

    They are iterative solvers, which compare the number with a tolerance: each turn of their loop
    needs the one before.
    """
    frames = python_frames(graph.host.timeline)
    reads = operators_named(graph.host.timeline, _READS)
    readers = frames.around(frames.innermost(reads), frames.have_name(is_program_frame))
    products = np.unique(calls.call_id[calls.is_product & calls.is_direct], return_index=True)[1]
    multiplies = calls.caller[calls.is_product & calls.is_direct][products]
    count = len(frames.event_id)
    is_often = [
        np.bincount(x[x != ABSENT], minlength=count) >= _FEWEST_TURNS for x in (readers, multiplies)
    ]
    return np.flatnonzero(is_often[0] & is_often[1])


def _masks(graph: Graph) -> Int64Array:
    """The operators that choose elements by a mask: each waits for their number."""
    timeline = graph.host.timeline
    operators, positions = (operators_named(timeline, x) for x in (_MASKS, r"^aten::nonzero$"))
    return operators[counts_inside(timeline.trace, operators, positions) > 0]


def _modules_in_loops(
    graph: Graph, calls: _Calls, is_small_launch: NDArray[np.bool_]
) -> Int64Array:
    """Calls of many small modules of one class by one call of a function, and what is between.

    No layers of a model, each of which needs the one before: each launches little, all the same,
    and what they made is put together behind them, or each of them looks up positions.

    Args:
        graph: the file's dependencies.
        calls: of the program.
        is_small_launch: bool[calls], which launch a small kernel.
    """
    trace, strings = graph.host.timeline.trace, graph.host.timeline.trace.strings
    names = [strings[index] for index in trace.name_index[calls.call_id].tolist()]
    is_module = np.array([name.startswith(MODULE_PREFIX) for name in names], dtype=np.bool_)
    loops: dict[object, list[int]] = {}
    module_rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(is_module).tolist():
        module_rows.setdefault(int(calls.call_id[row]), []).append(row)
    for rows in module_rows.values():
        if len(rows) <= _MOST_OF_MODULE and is_small_launch[rows].all():
            work = tuple(calls.operator[rows].tolist())
            key = (int(calls.caller[rows[0]]), called_name(names[rows[0]]), work)
            loops.setdefault(key, []).append(rows[0])
    chosen = [NO_EVENTS]
    for turns in loops.values():
        if len({names[row] for row in turns}) < _FEWEST_MODULES:
            continue
        first_ns = trace.start_ns[calls.call_id[turns]].min()
        end_ns = trace.end_ns[calls.call_id[turns]].max()
        thread = trace.thread_index[calls.call_id[turns[0]]]
        is_between = trace.thread_index[calls.launch_id] == thread
        start_ns = trace.start_ns[calls.launch_id]
        is_between &= (start_ns >= first_ns) & (start_ns <= end_ns)
        if int(is_between.sum()) > _MOST_OF_MODULE * len(turns):
            continue
        caller = int(calls.caller[turns[0]])
        looks_up = strings[calls.operator[turns[0]]] == _LOOKS_UP
        if looks_up or _are_collected(graph, caller, int(end_ns)):
            own_id = np.unique(calls.call_id[calls.caller == caller])
            is_turn = (trace.start_ns[own_id] >= first_ns) & (trace.end_ns[own_id] <= end_ns)
            chosen.append(own_id[is_turn])
    return np.concatenate(chosen)


def _are_collected(graph: Graph, caller: int, end_ns: int) -> bool:
    """Tell whether a function, or the one around it, puts tensors together after a moment.

    Args:
        graph: the file's dependencies.
        caller: index of its frame.
        end_ns: the moment.
    """
    timeline = graph.host.timeline
    frames = python_frames(timeline)
    collects = operators_named(timeline, _COLLECTS)
    collects = collects[timeline.trace.start_ns[collects] >= end_ns]
    is_own = frames.have_name(is_program_frame)
    around = frames.around(frames.parent_index[[caller]], is_own)
    own = frames.around(frames.innermost(collects), is_own)
    return bool(np.isin(own, (caller, *around[around != ABSENT].tolist())).any())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Calls(Frozen):
    """Calls that functions of the program make, by what these launch: a row for each launch.

    Attributes:
        launch_id: int64[k], event ids.
        caller: int64[k], the index of the function's frame.
        call_id: int64[k], event ids of what it called.
        operator: int32[k], the name of the outermost operator around the launch, as its index.
        is_direct: bool[k], whether that operator is what it called.
        is_product: bool[k], whether that is a product of matrices or a convolution.
    """

    launch_id: Int64Array
    caller: Int64Array
    call_id: Int64Array
    operator: NDArray[np.int32]
    is_direct: NDArray[np.bool_]
    is_product: NDArray[np.bool_]

    def often(self, is_one: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Of some rows one of each call, where its function calls that operator so often.

        But for products.
        """
        rows = np.flatnonzero(is_one)
        rows = rows[np.unique(self.call_id[rows], return_index=True)[1]]
        turns = np.stack((self.caller[rows], self.operator[rows]), axis=1)
        _, group, count = np.unique(turns, axis=0, return_inverse=True, return_counts=True)
        is_often = (count[group.ravel()] >= _FEWEST_TURNS) & ~self.is_product[rows]
        often: NDArray[np.intp] = rows[is_often]
        return often


def _calls_of_program(graph: Graph, launch_id: Int64Array) -> _Calls:
    """The calls of the program's functions around some launches, as far as each is known."""
    timeline = graph.host.timeline
    frames, operators = python_frames(timeline), timeline.operators
    # The last is for ABSENT.
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


def backward_of(graph: Graph, calls: Int64Array) -> Int64Array:
    """The functions of autograd that go back through what calls hold.

    They are known by name, as ``SubBackward0`` of ``aten::sub``. Where a step has as many of a name
    as operators before its backward pass, the last function goes back through the first operator,
    and so on; else it is all of a name, if most of the operators of that name are in these calls,
    and it is called for most of those.
    """
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    is_function = operators.have_name(_BACKWARD.match)
    functions = operators.event_id[is_function]
    nodes = sorted({_BACKWARD.findall(name)[0] for name in _names(trace, functions)})
    number_of = {node: number for number, node in enumerate(nodes)}
    names = _names(trace, operators.event_id)
    of_operator = np.array([number_of.get(_node_of(name), ABSENT) for name in names], dtype=np.intp)
    of_operator[is_function] = ABSENT
    forward = operators.event_id[of_operator != ABSENT]
    of_operator = of_operator[of_operator != ABSENT]
    of_function = np.array(
        [number_of[_BACKWARD.findall(name)[0]] for name in _names(trace, functions)], dtype=np.intp
    )
    is_inside = are_inside(trace, forward, calls)
    step, function_step = step_indices(graph, forward), step_indices(graph, functions)
    is_of_calls = np.zeros(len(functions), dtype=np.bool_)
    for node in np.unique(of_operator[is_inside]).tolist():
        own, back = np.flatnonzero(of_operator == node), np.flatnonzero(of_function == node)
        pairs = [
            _pairs(trace, forward, own[step[own] == x], functions, back[function_step[back] == x])
            for x in np.unique(function_step[back]).tolist()
        ]
        known = [pair for pair in pairs if pair is not None]
        if len(known) == len(pairs):
            for operator, function in known:
                is_of_calls[function] = is_inside[operator]
        else:
            inside = int(is_inside[own].sum())
            is_of_calls[back] = 2 * inside > len(own) and 2 * len(back) > inside
    return _with_those_between(graph, functions[is_of_calls])


def _pairs(
    trace: Trace,
    operators: Int64Array,
    own: NDArray[np.intp],
    functions: Int64Array,
    back: NDArray[np.intp],
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """The operators of a step with the functions that go back through them, None if unknown.

    Args:
        trace: any.
        operators: int64[k], event ids.
        own: indices of those of one name.
        functions: int64[f], event ids.
        back: indices of those of that name.
    """
    own = own[trace.start_ns[operators[own]] < trace.start_ns[functions[back]].min()]
    if len(own) != len(back):
        return None
    by_start = np.argsort(trace.start_ns[operators[own]], kind="stable")
    by_end = np.argsort(-trace.start_ns[functions[back]], kind="stable")
    return own[by_start], back[by_end]


def _names(trace: Trace, events: Int64Array) -> list[str]:
    return [trace.strings[index] for index in trace.name_index[events].tolist()]


def _with_those_between(graph: Graph, functions: Int64Array) -> Int64Array:
    """These functions of autograd, and those of the same turns: few from one to the next."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    all_ = operators.event_id[operators.have_name(is_engine_operator)]
    all_ = all_[np.lexsort((trace.start_ns[all_], trace.thread_index[all_]))]
    chosen = np.flatnonzero(np.isin(all_, functions))
    is_near = np.diff(chosen) <= _MOST_OF_TURN
    is_near &= np.diff(step_indices(graph, all_[chosen])) == 0
    _, between = expand_ranges(chosen[:-1][is_near], chosen[1:][is_near])
    return np.union1d(functions, all_[between]).astype(np.int64)


def _node_of(operator: str) -> str:
    """What autograd calls an operator.

    >>> _node_of("aten::leaky_relu")
    'LeakyRelu'
    """
    return "".join(word.title() for word in operator.removeprefix("aten::").split("_"))


def _one_after_another(graph: Graph, calls: Int64Array) -> Int64Array:
    """These calls if most of them launch right behind another one of them, else none."""
    trace, launch_id = graph.host.timeline.trace, graph.host.timeline.launch_id
    launch_id = np.unique(launch_id[launch_id != ABSENT])
    order = np.lexsort((trace.start_ns[launch_id], trace.thread_index[launch_id]))
    inside = are_inside(trace, launch_id[order], calls)
    follows = inside[1:] & inside[:-1]
    return calls if 2 * int(follows.sum()) >= int(inside.sum()) else NO_EVENTS


_SOURCE = "PyTorch Performance Tuning Guide: fuse operations"
_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="mask-loop",
        name="a Python loop that chooses elements by a mask in each turn",
        title="A loop selects by a mask in each iteration, and each time the CPU waits for the "
        "number of elements",
        shows=f"One call of a function of the program indexes with a mask at least {_FEWEST_TURNS} "
        "times, for small kernels, with a copy to the CPU that blocks for each of them, and "
        "launches little else.",
        not_when="Each turn of the loop needs the result of the one before.",
        fixes=(
            Instead(
                "Compute all turns at once, on whole tensors: fill in what a mask leaves out, "
                "with what the result ignores, and reduce along a dimension, as "
                "`x.masked_fill(~mask, -torch.inf).amax(dim=1)` for `x[i][mask[i]].max()` of "
                "each `i`.",
                short="Compute all turns at once: `x.masked_fill(~mask, -torch.inf).amax(dim=1)` "
                "instead of `x[i][mask[i]].max()` for each `i`.",
            ),
        ),
        source=_SOURCE,
        url=_URL,
        rules=("TL301", "TL101", "TL102"),
        edit=f"unblock:{{place}} + fuse:{{place}} + scale:{{place}}={_GPU_SHARE}",
        occurs=_calls_in_mask_loops,
        is_whole=True,
    ),
    Remedy(
        id="launch-loop",
        name="a Python loop that launches one small kernel after another",
        title="A loop launches small kernels one by one",
        shows="One call of a function of the program calls the same tensor operation at least "
        f"{_FEWEST_TURNS} times, each for a kernel of {_SMALL_NS // 1000} us or less, or at least "
        f"{_FEWEST_MODULES} modules of one class with {_MOST_OF_MODULE} such kernels or fewer each "
        "and puts together what they made, and the GPU waits for the launches.",
        not_when="Each turn of the loop needs the result of the one before: then compile it, or "
        "replay it as a CUDA graph. A function that multiplies and reads a number in each turn is "
        "taken for such a solver.",
        fixes=(
            Instead(
                "Make one call of many: stack the tensors and compute at once, use "
                "`torch._foreach_mul_` and the like on lists, or compile the function "
                "(`torch.compile`). For modules of one class, keep their weights in one tensor, "
                "and multiply at once (`torch.einsum`, `torch.baddbmm`).",
                since="2.0",
                short="Stack the tensors and compute at once, use `torch._foreach_mul_` and the "
                "like, or compile the function: `torch.compile(f)`.",
            ),
            Instead("Make one call of many: stack the tensors and compute at once."),
        ),
        source=_SOURCE,
        url=_URL,
        rules=("TL301",),
        edit=f"fuse:{{place}} + scale:{{place}}={_GPU_SHARE}",
        occurs=_calls_in_loops,
        is_general=True,
    ),
)
