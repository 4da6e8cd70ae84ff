"""Work of the GPU that other operators do in less time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, IntArray
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    are_inside,
    chosen,
    forward_numbers,
    functions_around,
    named,
    nodes_back_through,
    operators_named,
)
from tracelab.measures.independent_work import launched_by_optimizer, launched_in_backward
from tracelab.measures.measure import summed
from tracelab.model.arithmetic import (
    adds_up_rows,
    is_batched_product,
    is_bluestein_transform,
    is_elementwise,
    is_float32_attention,
    is_layout_change,
    is_unaligned_product,
    multiplies_in_half,
)
from tracelab.model.cuda_graphs import replayed
from tracelab.model.frames import (
    is_engine_operator,
    is_module_call,
    is_of_torch,
    is_own_frame,
    is_source_function,
)
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind, blocks_of
from tracelab.model.lookup import Nesting, counts_inside, groups_of, match_names, sample
from tracelab.model.program.call_sites import python_frames
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, ReadArguments

_BY_ITSELF = "aten::_scaled_dot_product_attention_math"  # where no fused kernel can be used
_OTHER = "x"
# An attention is matched as text: a letter per operator, capital for a node of autograd.
_LETTERS = {
    "p": r"^aten::(?:matmul|einsum|baddbmm|bmm)$",  # only those that hold a product
    "s": r"^aten::_?softmax$",
    # What leaves the numbers as they are, and dropout.
    "v": r"^aten::(?:view|_unsafe_view|reshape|expand(?:_as)?|transpose|permute|t|movedim"
    r"|contiguous|clone|copy_|to|_to_copy|type_as|(?:un)?squeeze|select|slice|as_strided|flatten"
    r"|unflatten|detach_?|alias|(?:native_)?dropout_?)$",
    # Scale and mask, and what makes a mask; nothing that fused operators have not, such as tanh.
    "e": r"^aten::(?:(?:add|sub|rsub|mul|div|masked_fill|where|clamp|maximum|tril|triu|eq|ne|lt|le"
    r"|gt|ge|logical_not|bitwise_not|logical_and|bitwise_and|fill|zero|lift_fresh)_?"
    r"|(?:ones|zeros|full|empty)\w*|arange|scalar_tensor)$",
    "f": r"_multi_head_attention",  # fused, whatever it calls
    "P": r"^autograd::engine::evaluate_function: (?:Badd)?[Bb]mmBackward\d*$",
    "S": r"^autograd::engine::evaluate_function: SoftmaxBackward\d*$",
    "V": r"^autograd::engine::evaluate_function: (?:(?:Unsafe)?View|Reshape\w*|Expand|Clone|ToCopy"
    r"|Transpose|Permute|T|(?:Uns|S)queeze|Select|Slice|AsStrided|Alias|NativeDropout)"
    r"Backward\d*$",
    "E": r"^autograd::engine::evaluate_function: (?:Add|Sub|Rsub|Mul|Div|MaskedFill|Where)"
    r"Backward\d*$",
}
# Other operators between softmax and product use the weights for something else.
_ATTENTION = re.compile(r"p[ve]*sv*p|PV*S[VE]*P")
# In the forward pass of one function.
_MIN_GPU_SHARE = 0.05

_CHANGES = re.compile(r"peft/.+: (?:set_adapters?|_mixed_batch_forward)$")  # of the adapter in use
# They copy images to channels first: a U-Net's step of 16.8 ms took 22 to 29 with channels last, a
# ResNet-50's of 30.7 ms 42.7; with batch normalization one of 59.3 took 33.8.
_ONLY_NCHW = r"^aten::(?:native_group_norm(?:_backward)?|instance_norm)$"
_MAX_NCHW_SHARE = 0.1
# Share of kernels that say the same length: 0.49 to 0.69 where passes run whole sequences, 0.09
# with a cache.
_LOOKED_AT, _MIN_SAME_LENGTH = 24, 0.25
# Shorter ones may be of other things than tokens, and passes over fewer tokens only read weights.
_MIN_LENGTH, _MAX_LENGTH, _MIN_TOKENS = 32, 1 << 20, 1024
# With few equal rows `F.embedding` and `index_select` take as long, or up to 3 times that.
_MIN_TIMES_THE_REST = 6
# Modules without it keep no keys and values.
_ATTENDS = r"softmax|attention|attn"
# Of a run, and those that show whether it is worth reading all.
_MIN_PASSES, _FIRST_PASSES = 3, 6
_OF_SEQUENCES, _OF_IMAGES = r"^aten::conv(?:_transpose)?1d$", r"^aten::conv(?:_transpose)?[23]d$"


def attention_by_hand(graph: Graph, _events: Int64Array) -> Int64Array:
    """The operators of attentions, where products are in half precision.

    None where a gradient is summed on the way back (a learned bias): fusing saves nothing there.
    """
    operators = graph.host.timeline.operators
    if not multiplies_in_half(graph.host.timeline) or operators.have_name(_BY_ITSELF.__eq__).any():
        return NO_EVENTS
    holds_product = operators.holding(operators.have_name(is_batched_product))
    letter = np.full(len(holds_product), _OTHER)
    for known, pattern in _LETTERS.items():
        letter[operators.have_name(re.compile(pattern).search)] = known
    letter[(letter == "p") & ~holds_product] = _OTHER
    is_outermost = operators.around(operators.parent_index, letter != _OTHER) == ABSENT
    is_part = np.zeros(len(letter), dtype=np.bool_)
    for thread, outermost in groups_of(np.where(is_outermost, operators.thread_index, ABSENT)):
        own = operators.entries_of(thread)
        for match in _ATTENTION.finditer("".join(letter[outermost])):
            first, last = outermost[match.start()], outermost[match.end() - 1]
            end = np.searchsorted(operators.start_ns[own], operators.end_ns[last]) + own.start
            is_part[first:end] = True
    has_sum = (is_part & operators.have_name("aten::sum".__eq__)).any()
    return NO_EVENTS if has_sum else chosen(operators.event_id, is_part)


def attention_in_float32(graph: Graph, _events: Int64Array) -> Int64Array:
    """The launches of fused attentions in float32, where products are in half precision."""
    launch_id = _launches_of(graph.host.timeline, is_float32_attention)
    return launch_id if len(launch_id) and multiplies_in_half(graph.host.timeline) else NO_EVENTS


def unaligned_products(graph: Graph, events: Int64Array) -> Int64Array:
    """The launches of half-precision products of odd sizes, except those of attention by hand."""
    launch_id = _launches_of(graph.host.timeline, is_unaligned_product)
    if not len(launch_id):
        return NO_EVENTS
    by_hand = attention_by_hand(graph, events)
    return chosen(launch_id, ~are_inside(graph.host.timeline.trace, launch_id, by_hand))


def bluestein_transforms(graph: Graph, _events: Int64Array) -> Int64Array:
    """The launches of cuFFT's kernels for lengths with a large prime factor."""
    return _launches_of(graph.host.timeline, is_bluestein_transform)


def transforms_of_real(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """Complex transforms of functions that convert real tensors for each, and their nodes."""
    operators = graph.host.timeline.operators
    converts = operators.holding(operators.have_name("aten::_to_copy".__eq__))
    function = functions_around(graph, events)
    is_real = np.isin(events, operators.event_id[converts]) & (function != ABSENT)
    is_back = match_names(graph.host.timeline.trace, events, lambda name: "fft_ifft" in name)
    others = function[~is_real & ~is_back]
    found = chosen(events, np.isin(function, function[is_real]) & ~np.isin(function, others))
    parts = operators.event_id[are_inside(graph.host.timeline.trace, operators.event_id, found)]
    return np.concatenate((found, nodes_back_through(graph, parts, arguments)))


def added_row_by_row(graph: Graph, events: Int64Array, arguments: ReadArguments) -> Int64Array:
    """Operators that index, with their nodes of autograd, most of whose time adds up rows."""
    timeline = graph.host.timeline
    if not len(_launches_of(timeline, adds_up_rows)):
        return NO_EVENTS
    nodes = Nesting(timeline.trace, nodes_back_through(graph, events, arguments))
    rows = np.flatnonzero(timeline.launch_id != ABSENT)
    index = nodes.innermost(timeline.launch_id[rows])
    rows, index = rows[index != ABSENT], index[index != ABSENT]
    is_added = match_names(timeline.trace, timeline.event_id[rows], adds_up_rows)
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    added_ns, rest_ns = (
        summed(index[of], length_ns[of], len(nodes.event_id)) for of in (is_added, ~is_added)
    )
    node = nodes.event_id[added_ns > _MIN_TIMES_THE_REST * rest_ns]
    # Of operators with one number the last made the node: those before it have no gradient.
    events = events[np.argsort(timeline.trace.start_ns[events], kind="stable")][::-1]
    numbers, first = np.unique(forward_numbers(events, arguments)[0], return_index=True)
    made = chosen(events[first], np.isin(numbers, forward_numbers(node, arguments)[0]))
    return np.unique(np.concatenate((made, node)))


def _launches_of(timeline: Timeline, is_named: Callable[[str], object]) -> Int64Array:
    is_such = match_names(timeline.trace, timeline.event_id, is_named)
    return np.unique(timeline.launch_id[is_such & (timeline.launch_id != ABSENT)])


def elementwise_chains(graph: Graph, _events: Int64Array) -> Int64Array:
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
    if taken_ns.max() < _MIN_GPU_SHARE * length_ns.sum():
        return NO_EVENTS
    return np.unique(timeline.launch_id[rows[function == taken_ns.argmax()]])


def joined_by_backward_of_chains(
    graph: Graph, events: Int64Array, arguments: ReadArguments
) -> Int64Array:
    """Add the launches of elementwise kernels in nodes of the function's operators."""
    timeline = graph.host.timeline
    operators = timeline.operators
    called = operators.event_id[operators.parent_index == ABSENT]
    calls = np.unique(_calls_of_functions(timeline, events))
    called = called[np.isin(_calls_of_functions(timeline, called), calls)]
    node = nodes_back_through(graph, called, arguments)
    launch_id = timeline.launch_id[_launched_one_by_one(timeline)]
    inside = Nesting(timeline.trace, node).innermost(launch_id) != ABSENT
    return np.unique(np.concatenate((events, launch_id[inside])))


def _calls_of_functions(timeline: Timeline, events: Int64Array) -> Int64Array:
    """int64[k], the call of a function of the program around each event; ABSENT for the loop."""
    trace, frames = timeline.trace, python_frames(timeline)
    is_function = frames.have_name(lambda name: is_source_function(name) and not is_of_torch(name))
    is_own = is_function & frames.have_name(partial(is_own_frame, tuple(trace.info.source_scopes)))
    steps = np.array([step.event_id for step in timeline.steps], dtype=np.int64)
    is_loop = np.zeros(len(is_own) + 1, dtype=np.bool_)  # the last is for ABSENT
    is_loop[frames.innermost(steps)] = True
    can_compile = np.append(is_own & ~frames.holding(is_loop[:-1]), False)
    called = frames.around(frames.innermost(events), is_function)
    return np.where(can_compile[called], called, ABSENT)


def _launched_one_by_one(timeline: Timeline) -> BoolArray:
    is_chosen = match_names(timeline.trace, timeline.event_id, is_elementwise)
    is_chosen &= ~launched_by_optimizer(timeline) & ~replayed(timeline)
    is_chosen &= timeline.launch_id != ABSENT
    return is_chosen


def next_to_base_layer(graph: Graph, events: Int64Array) -> Int64Array:
    """The calls of forward passes of adapters, without that of the base layer, the first module."""
    # None in a program that trains, or that changes its adapters.
    frames, operators = python_frames(graph.host.timeline), graph.host.timeline.operators
    changes = any(map(_CHANGES.search, graph.host.timeline.trace.strings))
    if changes or operators.have_name(is_engine_operator).any():
        return NO_EVENTS
    is_forward = np.append(np.isin(frames.event_id, events), False)  # the last is for ABSENT
    called = frames.children(np.flatnonzero(is_forward))
    modules = called[frames.have_name(is_module_call)[called]]
    _, first = np.unique(frames.parent_index[modules], return_index=True)
    outermost = operators.event_id[operators.parent_index == ABSENT]
    called_id = frames.event_id[np.setdiff1d(called, modules[first])]
    return np.concatenate((called_id, outermost[is_forward[frames.innermost(outermost)]]))


def layout_changes(graph: Graph, _events: Int64Array) -> Int64Array:
    """The launches of cuDNN's kernels that change the layout, where they go on.

    None where normalization without the other layout takes a tenth as long, or all convolutions are
    of sequences.
    """
    timeline = graph.host.timeline
    of_sequences = len(operators_named(timeline, _OF_SEQUENCES))
    if of_sequences and not len(operators_named(timeline, _OF_IMAGES)):
        return NO_EVENTS
    row = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    launch_id, length_ns = timeline.launch_id[row], timeline.end_ns[row] - timeline.start_ns[row]
    is_chosen = match_names(timeline.trace, timeline.event_id[row], is_layout_change)
    is_nchw = are_inside(timeline.trace, launch_id, operators_named(timeline, _ONLY_NCHW))
    is_slower = length_ns[is_nchw].sum() >= _MAX_NCHW_SHARE * length_ns[is_chosen].sum()
    if is_slower:
        return NO_EVENTS
    return np.unique(launch_id[is_chosen])


def passes_over_growing_sequence(
    graph: Graph, events: Int64Array, arguments: ReadArguments
) -> Int64Array:
    """The outermost modules' calls for the sequence of the call before and one token more.

    Most kernels grow by the blocks of one token; their quotient is the length before.
    """
    timeline = graph.host.timeline
    trace, modules = timeline.trace, Nesting(timeline.trace, events)
    attends = counts_inside(trace, modules.event_id, operators_named(timeline, _ATTENDS)) > 0
    rows = np.flatnonzero((timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT))
    rows = rows[np.argsort(trace.start_ns[timeline.launch_id[rows]], kind="stable")]
    innermost = modules.innermost(timeline.launch_id[rows])
    calls = groups_of(modules.around(innermost, modules.parent_index == ABSENT))
    back_ns = np.sort(trace.start_ns[named(trace, is_engine_operator, Category.OPERATOR)])

    def looks(call: tuple[int, IndexArray]) -> tuple[int, ...]:
        index, own = call
        backward = np.searchsorted(back_ns, modules.start_ns[index])
        return int(trace.name_index[modules.event_id[index]]), len(own), int(backward)

    runs = []
    for _, run in groupby(calls, looks):
        index, own = zip(*run, strict=True)
        if len(index) >= _MIN_PASSES and attends[list(index)].all():
            looked_at = sample(len(own[0]), _LOOKED_AT)
            kernels = timeline.event_id[rows[np.stack(own)[:, looked_at]]]
            runs.append((modules.event_id[list(index)], kernels))
    firsts = _grow([kernels[:_FIRST_PASSES] for _, kernels in runs], arguments)
    runs = [run for run, first in zip(runs, firsts, strict=True) if first.any()]
    grow = _grow([kernels for _, kernels in runs], arguments)
    found = [calls[of_run] for (calls, _), of_run in zip(runs, grow, strict=True)]
    return np.concatenate([NO_EVENTS, *found])


def _grow(runs: Sequence[IntArray], arguments: ReadArguments) -> list[BoolArray]:
    """bool[n] for each run of passes (event ids of kernels[n, k]): one token longer than before.

    At least three in a row, without the first, before which nothing could be kept.
    """
    if not runs:
        return []
    known = arguments(np.concatenate([kernels.ravel() for kernels in runs]).tolist())
    grow = []
    for kernels in runs:
        blocks = np.array([[blocks_of(known.get(x, {})) for x in row] for row in kernels.tolist()])
        before, more = blocks[:-1], np.diff(blocks, axis=0)
        length = before // more.clip(1)
        has_length = (more > 0) & (before % more.clip(1) == 0) & (length < _MAX_LENGTH)
        length[~has_length] = 0
        usual = np.array([np.bincount(row[row > 0], minlength=1).argmax() for row in length])
        is_usual = (length == usual[:, None]) & has_length
        # Norms have a block for each token, others no fewer than a few tokens each.
        tokens = before.min(axis=1, where=is_usual, initial=np.iinfo(np.int64).max)
        is_known = (usual >= _MIN_LENGTH) & (tokens >= _MIN_TOKENS)
        usual[~is_known | (is_usual.mean(axis=1) < _MIN_SAME_LENGTH)] = 0
        goes_on = (np.diff(usual) == 1) & (usual[:-1] > 0)
        grows = np.zeros(len(kernels), dtype=np.bool_)
        grows[1:-1] |= goes_on
        grows[2:] |= goes_on
        grow.append(grows)
    return grow
