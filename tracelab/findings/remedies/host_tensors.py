"""Tensors that the CPU computes in the thread that launches, while the GPU has nothing to do."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    are_in_launching_thread,
    are_inside,
    chosen,
    counts_inside,
    named,
    recurring,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.frames import is_tensor_operator
from tracelab.model.graph import Graph
from tracelab.model.nesting import Nesting
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

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


def _computes(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The outermost functions and operators that compute on the CPU and call nothing of CUDA."""
    trace = graph.host.timeline.trace
    operators = _without_calls(graph, named(trace, _makes_values, Category.OPERATOR))
    functions = trace.of_category(Category.PYTHON).astype(np.int64)
    functions = chosen(functions, counts_inside(trace, functions, operators) > 0)
    nesting = Nesting(trace, np.concatenate((operators, _without_calls(graph, functions))))
    outermost = chosen(nesting.event_id, nesting.parent_index == ABSENT)
    return recurring(graph, chosen(outermost, trace.duration_ns[outermost] >= MIN_COMPUTED_NS))


def _makes_values(name: str) -> bool:
    return is_tensor_operator(name) and _KEEPS_VALUES.match(name) is None


def _without_calls(graph: Graph, events: Int64Array) -> Int64Array:
    """The events of a launching thread that called nothing of CUDA and loaded no data."""
    trace = graph.host.timeline.trace
    events = chosen(events, are_in_launching_thread(graph, events))
    events = chosen(events, ~are_inside(trace, events, graph.host.loading_id))
    calls = trace.of_category(*HOST_CALLS)
    return chosen(events, counts_inside(trace, events, calls) == 0)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="computed-on-cpu",
        name="tensors that the CPU computes in the thread that launches",
        title="The launching thread computes tensors on the CPU",
        shows="Functions and operators of at least 0.1 ms in the thread that launches that compute "
        "tensors and call nothing of CUDA, in at least two steady steps.",
        not_when="The result is needed on the CPU, and the operators run there for its sake.",
        fixes=(
            Instead(
                "Make the tensors on the GPU: move the input there first, or write "
                '`torch.arange(n, device="cuda")`, `transform.to("cuda")`. Compute what is '
                "the same in each step once, and keep it (`register_buffer`).",
                short="Move the input to the GPU first, or create the tensors there: "
                '`torch.arange(n, device="cuda")`. Compute what is the same in each step once.',
            ),
        ),
        source="PyTorch tutorial: Performance Tuning Guide",
        url="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        rules=("TL301",),
        edit="on-gpu:{place}",
        occurs=_computes,
        is_general=True,
    ),
)
