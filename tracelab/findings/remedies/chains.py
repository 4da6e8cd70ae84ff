"""Elementwise kernels one after another, which a compiler makes one of."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import NO_EVENTS, every, forward_numbers, recurs
from tracelab.findings.remedy import Instead, Remedy
from tracelab.measures.independent_work import launched_by_optimizer, launched_in_backward
from tracelab.model.arithmetic import is_elementwise
from tracelab.model.cuda_graphs.origins import ReadArguments
from tracelab.model.frames import (
    is_engine_operator,
    is_of_torch,
    is_own_frame,
    is_source_function,
)
from tracelab.model.graph import Graph
from tracelab.model.graph_launches import replayed
from tracelab.model.lookup import match_names
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import python_frames
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_LEAST = 0.05  # of the GPU's work, in the forward pass of one function


def _in_one_function(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The launches of chains in the forward pass of the function that has most of them."""
    timeline = graph.host.timeline
    length_ns = timeline.end_ns - timeline.start_ns
    rows = np.flatnonzero(_launched_one_by_one(timeline) & ~launched_in_backward(timeline))
    frame = _calls_of_functions(timeline, timeline.launch_id[rows])
    rows, frame = rows[frame != ABSENT], frame[frame != ABSENT]
    if len(rows) < 2:
        return NO_EVENTS
    # The same kernel again and again is a loop of the algorithm's own.
    kernel = timeline.trace.name_index[timeline.event_id[rows]]
    follows = (np.diff(rows) == 1) & (np.diff(frame) == 0) & (np.diff(kernel) != 0)
    is_chained = np.append(follows, False) | np.insert(follows, 0, False)
    rows = rows[is_chained]
    function = timeline.trace.name_index[python_frames(timeline).event_id[frame[is_chained]]]
    taken_ns = np.bincount(function, length_ns[rows], minlength=1)
    if taken_ns.max() < _LEAST * length_ns.sum():
        return NO_EVENTS
    return np.unique(timeline.launch_id[rows[function == taken_ns.argmax()]])


def _and_back(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """These launches, and those of elementwise kernels in nodes of what the function calls."""
    timeline = graph.host.timeline
    operators = timeline.operators
    called = operators.event_id[operators.parent_index == ABSENT]
    calls = np.unique(_calls_of_functions(timeline, events))
    called = called[np.isin(_calls_of_functions(timeline, called), calls)]
    node = operators.event_id[operators.have_name(is_engine_operator)]
    numbers, _ = forward_numbers(np.concatenate((called, node)), arguments)  # one look at the file
    number, number_of_node = np.split(numbers, [len(called)])
    node = node[np.isin(number_of_node, number[number != ABSENT])]
    launch_id = timeline.launch_id[_launched_one_by_one(timeline)]
    inside = Nesting(timeline.trace, node).innermost(launch_id) != ABSENT
    return np.unique(np.concatenate((events, launch_id[inside])))


def _calls_of_functions(timeline: Timeline, events: Int64Array) -> Int64Array:
    """int64[k], the call of a function of the program's own that made each host event.

    An index into `python_frames`; ABSENT where a library did, or the loop of the steps itself: that
    one cannot be compiled.
    """
    trace, frames = timeline.trace, python_frames(timeline)
    is_function = frames.have_name(lambda name: is_source_function(name) and not is_of_torch(name))
    is_own = is_function & frames.have_name(partial(is_own_frame, tuple(trace.info.source_scopes)))
    steps = np.array([step.event_id for step in timeline.steps], dtype=np.int64)
    is_loop = np.zeros(len(is_own) + 1, dtype=np.bool_)  # the last is for ABSENT
    is_loop[frames.innermost(steps)] = True
    can_compile = np.append(is_own & ~frames.holding(is_loop[:-1]), False)
    called = frames.around(frames.innermost(events), is_function)
    return np.where(can_compile[called], called, ABSENT)


def _launched_one_by_one(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], which activities are elementwise kernels that no optimizer and no graph launched."""
    is_chosen = match_names(timeline.trace, timeline.event_id, is_elementwise)
    is_chosen &= ~launched_by_optimizer(timeline) & ~replayed(timeline)
    is_chosen &= timeline.launch_id != ABSENT
    return is_chosen


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="elementwise-chains",
        name="a chain of elementwise kernels in one function",
        title="Elementwise kernels of one function move the same memory one after another",
        shows="Elementwise kernels, reductions and copies of PyTorch's one after another, launched "
        "by one function without a product or convolution between them, and the kernels of their "
        "nodes in the backward pass, which are found by autograd's sequence numbers.",
        not_when="Sizes change from step to step (then `dynamic=True`), or the function reads "
        "values of tensors in Python: that interrupts the compiled code.",
        fixes=(
            Instead(
                "Compile the function that launches them, `f = torch.compile(f)` or "
                "`@torch.compile` above it: the compiler makes about one kernel of each chain, "
                "also in the backward pass, which reads its inputs and writes its results once. "
                "Or use an operator that does all of it, such as `torch.cdist`, `F.rms_norm` or "
                "`F.gelu`.",
                since="2.0",
                short="Compile the function that launches them: `@torch.compile` above it. One "
                "kernel does the work of a chain then.",
            ),
        ),
        source="PyTorch documentation: torch.compiler",
        url="https://docs.pytorch.org/docs/stable/torch.compiler.html",
        rules=("TL408",),
        edit="fuse-chains:{place}",
        occurs=every(_in_one_function, recurs),
        by_arguments=_and_back,
    ),
)
