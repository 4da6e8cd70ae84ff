"""Small kernels that Python launches one by one, where no other remedy says more."""

from __future__ import annotations

import re

import numpy as np

from tracelab.findings.remedies.guards import NO_EVENTS, are_inside, recurring
from tracelab.findings.remedy import Instead, Remedy
from tracelab.intervals import Int64Array
from tracelab.model.call_sites import python_frames
from tracelab.model.frames import is_built_in, is_program_frame
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT

_FEWEST_TURNS = 30  # of a loop: calls of one name from one call of a function
_SMALL_NS = 10_000  # a kernel that takes longer is worth a launch of its own
# Where products follow one another, each most likely needs the one before.
_PRODUCTS = re.compile(r"matmul|linear|conv|^aten::(?:add|b)?mm$")


def _calls_in_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """What a function of the program calls again and again, each time to launch a small kernel.

    That is a built-in function, or an operator that Python calls without a name (``x + y``).
    """
    timeline = graph.host.timeline
    frames, operators = python_frames(timeline), timeline.operators
    is_small = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    is_small &= timeline.end_ns - timeline.start_ns <= _SMALL_NS
    launch_id = np.unique(timeline.launch_id[is_small]).astype(np.int64)
    # The last is for ABSENT.
    built_in = np.append(frames.have_name(is_built_in), False)
    of_program = np.append(frames.have_name(is_program_frame), False)
    parent_index = np.append(frames.parent_index, ABSENT)
    operator = operators.around(operators.innermost(launch_id), operators.parent_index == ABSENT)
    called = frames.innermost(launch_id)
    has_name = built_in[called]
    caller = np.where(has_name, parent_index[called], called)
    known = np.flatnonzero(of_program[caller] & (operator != ABSENT))
    called, has_name, caller, operator = (x[known] for x in (called, has_name, caller, operator))
    call_id = np.where(has_name, frames.event_id[called], operators.event_id[operator])
    call_id, first = np.unique(call_id, return_index=True)
    operator_name = timeline.trace.name_index[operators.event_id[operator[first]]]
    turns = np.stack((caller[first], operator_name), axis=1)
    _, group, count = np.unique(turns, axis=0, return_inverse=True, return_counts=True)
    in_loop = count[group.ravel()] >= _FEWEST_TURNS
    in_loop &= ~operators.have_name(_PRODUCTS.search)[operator[first]]
    return recurring(graph, _one_after_another(graph, call_id[in_loop]))


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
        edit="fuse:{place}",
        occurs=_calls_in_loops,
        is_general=True,
    ),
)
