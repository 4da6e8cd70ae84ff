"""Attention that no fused operator computes, or one in float32."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import NO_EVENTS, chosen, every, recurs
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.arithmetic import (
    is_batched_product,
    is_float32_attention,
    is_half_product,
    multiplies_in_half,
)
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.nesting import Nesting
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# The fused operator, where none of its kernels can be used.
_BY_ITSELF = "aten::_scaled_dot_product_attention_math"
_OTHER = "x"
# An attention is a match of a regular expression: each operator is a letter, and a node of autograd
# its capital letter.
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
# Between softmax and the product with the values only a cast and dropout: else the weights are used
# for something else, too.
_ATTENTION = re.compile(r"p[ve]*sv*p|PV*S[VE]*P")


def _scores_in_memory(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The operators of attentions in half precision.

    Nothing where a gradient is summed up on the way back, as that of a learned bias: with one, the
    fused operator takes as long, or does by itself what was written by hand. Where it does that,
    its nodes of the backward pass are not to be told from those of other code.
    """
    timeline = graph.host.timeline
    operators = timeline.operators
    is_product = operators.have_name(is_batched_product)
    if not is_product.any() or operators.have_name(_BY_ITSELF.__eq__).any():
        return NO_EVENTS
    number = _attentions(operators, operators.holding(is_product))
    is_part = number != ABSENT
    if (is_part & operators.have_name("aten::sum".__eq__)).any():
        return NO_EVENTS
    is_part &= ~np.isin(number, number[_not_half(timeline, is_product)])
    return chosen(operators.event_id, is_part)


def _attentions(operators: Nesting, holds_product: NDArray[np.bool_]) -> Int64Array:
    """int64[n], the number of the attention that each entry is part of, else ABSENT."""
    letter = np.full(len(holds_product), _OTHER)
    for known, pattern in _LETTERS.items():
        letter[operators.have_name(re.compile(pattern).search)] = known
    letter[(letter == "p") & ~holds_product] = _OTHER
    # What a known operator calls is part of it.
    is_outermost = operators.around(operators.parent_index, letter != _OTHER) == ABSENT
    number, count = np.full(len(letter), ABSENT, dtype=np.int64), 0
    for thread, outermost in groups_of(np.where(is_outermost, operators.thread_index, ABSENT)):
        own = operators.of_thread(thread)
        for match in _ATTENTION.finditer("".join(letter[outermost])):
            first, last = outermost[match.start()], outermost[match.end() - 1]
            end = np.searchsorted(operators.start_ns[own], operators.end_ns[last]) + own.start
            number[first:end] = count
            count += 1
    return number


def _not_half(timeline: Timeline, is_product: NDArray[np.bool_]) -> Int64Array:
    """int64[k], the operators (index) that launch products of other than half precision."""
    rows = np.flatnonzero((timeline.launch_id != ABSENT) & (timeline.kind == Kind.COMPUTE))
    index = timeline.operators.innermost(timeline.launch_id[rows])
    is_of_product = np.append(is_product, False)[index]
    rows, index = rows[is_of_product], index[is_of_product]
    return chosen(index, ~match_names(timeline.trace, timeline.event_id[rows], is_half_product))


def _in_float32(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    """The launches of fused attentions in float32, where products are in half precision."""
    timeline = graph.host.timeline
    is_wide = match_names(timeline.trace, timeline.event_id, is_float32_attention)
    launch_id = timeline.launch_id[is_wide & (timeline.launch_id != ABSENT)]
    if not len(launch_id) or not multiplies_in_half(timeline):
        return NO_EVENTS
    return np.unique(launch_id)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="attention-by-hand",
        name="attention written by hand: softmax(Q K^T) V",
        title="Attention is written by hand, with its scores in memory",
        shows="A batched product (`aten::bmm`), scale and mask, `aten::softmax` and a second "
        "product, in half precision, outside of `scaled_dot_product_attention`; and their nodes "
        "in the backward pass.",
        not_when="The attention weights themselves are used, or scores are changed in a way that "
        "the operator has not: a soft cap, a bias that is learned.",
        fixes=(
            Instead(
                "Write `y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)` in place of "
                "product, scale, mask, softmax, dropout (`dropout_p=`) and product; for a causal "
                "mask `is_causal=True`, which is faster. For models of transformers: "
                '`from_pretrained(name, attn_implementation="sdpa")`; for '
                "`nn.MultiheadAttention`: `need_weights=False`.",
                since="2.0",
                short="Use `F.scaled_dot_product_attention(q, k, v)` with `is_causal=True` or "
                '`attn_mask=`; in transformers `attn_implementation="sdpa"`.',
            ),
        ),
        source="PyTorch documentation: scaled_dot_product_attention",
        url="https://docs.pytorch.org/docs/stable/generated/"
        "torch.nn.functional.scaled_dot_product_attention.html",
        rules=("TL406",),
        edit="attention:{place}",
        occurs=every(_scores_in_memory, recurs),
    ),
    Remedy(
        id="float32-attention",
        name="attention in float32 in a model in half precision",
        title="Attention is computed in float32, although products are in half precision",
        shows="Kernels `fmha_cutlassF_f32` and `fmha_cutlassB_f32`, while most of the time of "
        "matrix products is in bfloat16 or float16.",
        not_when="Queries and keys exceed what half precision holds. Softmax is computed in "
        "float32 in any case.",
        fixes=(
            Instead(
                "Queries and keys became float32 on the way, as by rotary tables in float32: the "
                "only fused operator for float32 takes 2 to 15 times as long as those for half "
                "precision. Convert them before the call: `q, k = q.to(v.dtype), k.to(v.dtype)` "
                "with `v` as its layer returns it, `F.scaled_dot_product_attention(q, k, v)`.",
                since="2.0",
                short="Convert queries and keys back before the call, and leave v as it is: "
                "`q, k = q.to(v.dtype), k.to(v.dtype)`.",
            ),
        ),
        source="PyTorch documentation: scaled_dot_product_attention",
        url="https://docs.pytorch.org/docs/stable/generated/"
        "torch.nn.functional.scaled_dot_product_attention.html",
        rules=("TL401",),
        edit="half-attention",
        occurs=every(_in_float32, recurs),
    ),
)
