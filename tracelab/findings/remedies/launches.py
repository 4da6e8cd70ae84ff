"""Small kernels that Python launches one by one, where no other remedy says more."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.findings.remedies.guards import NO_EVENTS, are_inside, recurring
from tracelab.findings.remedy import Instead, Remedy
from tracelab.intervals import Int64Array
from tracelab.model.call_sites import python_frames
from tracelab.model.frames import is_built_in, is_engine_operator, is_program_frame
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import expand_ranges
from tracelab.model.trace import ABSENT

_FEWEST_TURNS = 30  # of a loop: calls of one name from one call of a function
_SMALL_NS = 10_000  # a kernel that takes longer is worth a launch of its own
# One kernel for all turns takes so much of the time of theirs: 0.29 for 32 clouds of 512 points,
# whose kernels fill a part of the GPU each, 0.27 and 0.44 for the steps of recurrent cells.
_GPU_SHARE = 0.33
_MOST_OF_TURN = 8  # functions of autograd from one of a turn to one of the next
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function: (\w+)Backward\d*$")
# Where products follow one another, each most likely needs the one before.
_PRODUCTS = re.compile(r"matmul|linear|conv|^aten::(?:add|b)?mm$")


def _calls_in_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """What loops of the program call in each turn, if they launch small kernels again and again.

    A loop is recognized by built-in functions, or operators that Python calls without a name
    (``x + y``), which a function of the program calls for a small kernel each. What makes one call
    of them makes one of everything else in its turns, too, and of their backward pass.
    """
    timeline = graph.host.timeline
    is_work = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    calls = _calls_of_program(graph, np.unique(timeline.launch_id[is_work]).astype(np.int64))
    is_small = is_work & (timeline.end_ns - timeline.start_ns <= _SMALL_NS)
    is_small_call = calls.is_direct & np.isin(calls.launch_id, timeline.launch_id[is_small])
    in_loop = calls.often(is_small_call)
    if not len(recurring(graph, _one_after_another(graph, calls.call_id[in_loop]))):
        return NO_EVENTS
    turns = calls.call_id[calls.often(np.isin(calls.caller, calls.caller[in_loop]))]
    return np.concatenate((turns, _backward_of(graph, turns)))


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


def _backward_of(graph: Graph, calls: Int64Array) -> Int64Array:
    """The functions of autograd that go back through what calls hold.

    They are known by name, as ``SubBackward0`` of ``aten::sub``: all of a name, if most of the
    operators of that name are in these calls, and it is called for most of those.
    """
    timeline = graph.host.timeline
    trace, operators = timeline.trace, timeline.operators
    is_inside = are_inside(trace, operators.event_id, calls)
    functions = operators.event_id[operators.have_name(_BACKWARD.match)]
    forward = [operators.event_id, operators.event_id[is_inside]]
    names, inside_names, function_names = (
        [trace.strings[index] for index in trace.name_index[events].tolist()]
        for events in (*forward, functions)
    )
    count, inside = Counter(map(_node_of, names)), Counter(map(_node_of, inside_names))
    nodes = [_BACKWARD.findall(name)[0] for name in function_names]
    called = Counter(nodes)
    is_of_calls = [2 * inside[x] > count[x] and 2 * called[x] > inside[x] for x in nodes]
    return _with_those_between(graph, functions[np.array(is_of_calls, dtype=np.bool_)])


def _with_those_between(graph: Graph, functions: Int64Array) -> Int64Array:
    """These functions of autograd, and those of the same turns: few from one to the next."""
    trace, operators = graph.host.timeline.trace, graph.host.timeline.operators
    all_ = operators.event_id[operators.have_name(is_engine_operator)]
    all_ = all_[np.lexsort((trace.start_ns[all_], trace.thread_index[all_]))]
    chosen = np.flatnonzero(np.isin(all_, functions))
    is_near = np.diff(chosen) <= _MOST_OF_TURN
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


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="launch-loop",
        name="a Python loop that launches one small kernel after another",
        title="A loop launches small kernels one by one",
        shows="One call of a function of the program calls the same tensor operation at least "
        f"{_FEWEST_TURNS} times, each for a kernel of {_SMALL_NS // 1000} us or less, and the GPU "
        "waits for the launches.",
        not_when="Each turn of the loop needs the result of the one before: then compile it, or "
        "replay it as a CUDA graph.",
        fixes=(
            Instead(
                "Make one call of many: stack the tensors and compute at once, use "
                "`torch._foreach_mul_` and the like on lists, or compile the function "
                "(`torch.compile`).",
                since="2.0",
                short="Stack the tensors and compute at once, use `torch._foreach_mul_` and the "
                "like, or compile the function: `torch.compile(f)`.",
            ),
            Instead("Make one call of many: stack the tensors and compute at once."),
        ),
        source="PyTorch Performance Tuning Guide: fuse operations",
        url="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        rules=("TL301",),
        edit=f"fuse:{{place}} + scale:{{place}}={_GPU_SHARE}",
        occurs=_calls_in_loops,
        is_general=True,
    ),
)
