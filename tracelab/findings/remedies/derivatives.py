"""Calls of `torch.autograd.grad` that run the same nodes, where one call gives what all give."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    NO_EVENTS,
    chosen,
    forward_numbers,
    named,
    recurs,
    step_indices,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.cuda_graphs.origins import ReadArguments
from tracelab.model.frames import is_engine_operator, is_program_frame
from tracelab.model.graph import Graph
from tracelab.model.lookup import expand_ranges
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import calling_threads, python_frames
from tracelab.model.trace import ABSENT, Category

_GRAD = r"(?:^|/)torch/autograd/__init__\.py\(\d+\): grad$"


def _alike(graph: Graph, events: Int64Array) -> Int64Array:
    """The calls that run nodes of the same names as another one of their function and step."""
    trace = graph.host.timeline.trace
    call, node = _nodes_of(graph, events)
    keys = _keys(trace.name_index[node].tolist(), call, len(events))
    steps = step_indices(graph, events).tolist()
    keys = [key and (step, key) for step, key in zip(steps, keys, strict=True)]
    owner = _owners(graph, events, keys)
    return recurs(graph, events[owner != ABSENT])


def _again(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """Of all calls that run the same nodes all but the first, and what goes back through them.

    Calls that ask for a single leaf each: where they ask for several at once they are of different
    results, or products of a Hessian with vectors of which each needs the one before.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    calls = named(trace, re.compile(_GRAD).search, Category.PYTHON)
    calls = calls[np.argsort(trace.start_ns[calls], kind="stable")]
    call, node = _nodes_of(graph, calls)
    number, thread = forward_numbers(node, arguments)
    known = number != ABSENT  # a leaf, whose gradient is asked for, has none
    keys = _keys(
        [*zip(number[known].tolist(), thread[known].tolist(), strict=True)], call[known], len(calls)
    )
    leaves = np.bincount(call[~known], minlength=len(calls))
    keys = [key if one else () for key, one in zip(keys, (leaves == 1).tolist(), strict=True)]
    owner = _owners(graph, calls, keys).tolist()
    is_again, seen = np.zeros(len(calls), dtype=np.bool_), set[Hashable]()
    for i, key in enumerate(zip(owner, keys, strict=True)):
        is_again[i] = owner[i] != ABSENT and key in seen
        seen.add(key)
    again = calls[is_again & np.isin(calls, events)]
    back = _back_through(graph, (call, node), is_again, {*thread[known].tolist()}, arguments)
    return recurs(graph, np.union1d(again, back).astype(np.int64)) if len(again) else NO_EVENTS


def _keys(of_nodes: Sequence[Hashable], call: NDArray[np.intp], count: int) -> list[Hashable]:
    """What is known of the nodes of each call, int[nodes], in their order."""
    keys: list[list[Hashable]] = [[] for _ in range(count)]
    for i, of_node in zip(call.tolist(), of_nodes, strict=True):
        keys[i].append(of_node)
    return [*map(tuple, keys)]


def _owners(graph: Graph, calls: Int64Array, keys: Sequence[Hashable]) -> NDArray[np.intp]:
    """intp[k], the innermost function of the program with several calls of a key, else ABSENT.

    An index into `python_frames`.
    """
    frames = python_frames(graph.host.timeline)
    is_program, parent_index = frames.have_name(is_program_frame), frames.parent_index
    innermost = frames.innermost(calls).copy()
    around: list[list[int]] = [[] for _ in keys]
    while len(open_ := np.flatnonzero(innermost != ABSENT)):
        for i in open_[is_program[innermost[open_]]].tolist():
            around[i].append(int(innermost[i]))
        innermost[open_] = parent_index[innermost[open_]]
    count = Counter(
        (frame, key) for key, own in zip(keys, around, strict=True) if key for frame in own
    )
    owners = (
        next((frame for frame in own if count[frame, key] > 1), ABSENT)
        for key, own in zip(keys, around, strict=True)
    )
    return np.array([*owners], dtype=np.intp)


def _nodes_of(graph: Graph, calls: Int64Array) -> tuple[NDArray[np.intp], Int64Array]:
    """The nodes that run while a thread is in calls, by start.

    Returns:
        intp[n], the index of each node's call, and int64[n], event ids.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    nodes = named(trace, is_engine_operator, Category.OPERATOR)
    nodes = nodes[np.argsort(trace.start_ns[nodes], kind="stable")]
    caller = calling_threads(timeline, nodes)
    caller = np.where(caller == ABSENT, trace.thread_index[nodes], caller)
    start_ns = trace.start_ns[nodes]
    call, index = expand_ranges(
        np.searchsorted(start_ns, trace.start_ns[calls]),
        np.searchsorted(start_ns, trace.end_ns[calls]),
    )
    is_own = caller[index] == trace.thread_index[calls[call]]
    return call[is_own], nodes[index[is_own]]


def _back_through(
    graph: Graph,
    of_calls: tuple[NDArray[np.intp], Int64Array],
    is_again: NDArray[np.bool_],
    threads: set[int],
    arguments: ReadArguments,
) -> Int64Array:
    """The nodes of later passes that go back through what some calls computed.

    Args:
        graph: the file's dependencies.
        of_calls: as of `_nodes_of`.
        is_again: bool[k], those calls.
        threads: whose operators the calls themselves go back through.
        arguments: reads what the file says of events.
    """
    timeline = graph.host.timeline
    call, node = of_calls
    nesting = Nesting(timeline.trace, node)
    operators = timeline.operators.event_id
    inside = nesting.innermost(operators)
    operators, inside = operators[inside != ABSENT], nesting.event_id[inside[inside != ABSENT]]
    by_node = np.argsort(node)
    of_operator = call[by_node][np.searchsorted(node[by_node], inside)]
    number, _ = forward_numbers(operators, arguments)
    is_made = (number != ABSENT) & ~np.isin(operators, node)
    first = np.full(len(is_again), np.iinfo(np.int64).max)
    last = np.full(len(is_again), ABSENT)
    np.minimum.at(first, of_operator[is_made], number[is_made])
    np.maximum.at(last, of_operator[is_made], number[is_made])
    others = named(timeline.trace, is_engine_operator, Category.OPERATOR)
    others = others[~np.isin(others, node)]
    number, thread = forward_numbers(others, arguments)
    is_other = (thread != ABSENT) & ~np.isin(thread, [*threads])
    if len(np.unique(thread[is_other])) != 1:
        return NO_EVENTS
    order = np.argsort(first, kind="stable")
    index = order[np.searchsorted(first[order], number, side="right") - 1]
    is_back = is_other & is_again[index] & (first[index] <= number) & (number <= last[index])
    return chosen(others, is_back)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="grad-again",
        name="several calls of `torch.autograd.grad` over the same nodes",
        title="A function goes back through the same operators once for each derivative",
        shows="`torch.autograd.grad` several times in one call of a function, and the same nodes "
        "of autograd each time, by their sequence numbers, for one leaf each.",
        not_when="Each call needs the result of the one before. Derivatives of several outputs at "
        "once (`is_grads_batched=True`) take as much work of the GPU as before.",
        fixes=(
            Instead(
                "Pass all inputs to one call: `du_dx, du_dt = "
                "torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True)`. Of "
                "several outputs: one call with `is_grads_batched=True`, or their sum if each "
                "depends on inputs of its own.",
                short="Pass all inputs to one call: `du_dx, du_dt = torch.autograd.grad(u, (x, t), "
                "torch.ones_like(u), create_graph=True)`.",
            ),
        ),
        source="PyTorch documentation: torch.autograd.grad",
        url="https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",
        rules=("TL301",),
        edit="remove:{place}",
        frames=_GRAD,
        occurs=_alike,
        by_arguments=_again,
    ),
)
