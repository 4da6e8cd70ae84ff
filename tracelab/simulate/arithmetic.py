"""Edits of how the GPU computes: in TF32, with channels last, in one kernel, for one token.

Bounds are the least and the most gained by any operator measured on an H100 (PyTorch 2.11, CUDA
13.0): 31 matrix products, 8 convolutions, 42 interpolations, 3 networks, 224 attentions, 64
embeddings and 6 others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array, IntArray
from tracelab.measures.independent_work import launched_by_optimizer
from tracelab.model.arithmetic import (
    adds_up_rows,
    are_convolutions,
    interpolates_nchw,
    is_batched_product,
    is_bluestein_transform,
    is_elementwise,
    is_float32_attention,
    is_float64,
    is_float64_product,
    is_layout_change,
    is_of_nchw,
    is_unaligned_product,
    launched_by,
    launched_within,
    products_without_tf32,
    softmax_bits,
    tf32_speedup,
)
from tracelab.model.lookup import match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import Edited, Program, times
from tracelab.simulate.sites import Selection, exclude
from tracelab.simulate.waits import remove_host_work

_UP_TO_US = np.array([10, 30, 100])  # lengths of activities that the tables below tell apart
# How many times as fast a float32 product was in TF32: at least, typically and at most.
_SPEEDUP = np.array([[1.0, 1.3, 1.8], [1.3, 1.9, 2.5], [1.2, 2.0, 4.5], [1.9, 4.5, 8.3]])
# Of convolutions with the changes of layout that TF32 kernels need, whatever their length.
_SPEEDUP_OF_CONVOLUTION = np.array([1.0, 2.0, 4.6])
# Share left of double precision in single with TF32: at least, typically, at most.
_OF_FLOAT64 = np.array([[0.4, 0.7, 1.3], [0.25, 0.5, 0.7], [0.25, 0.5, 0.7], [0.25, 0.5, 0.7]])
_OF_FLOAT64_PRODUCT = np.array(
    [[0.4, 0.9, 1.8], [0.4, 0.5, 0.7], [0.14, 0.3, 0.62], [0.14, 0.3, 0.62]]
)
# What is left once channels are last: all where a layer of the program copies its images back.
_OF_LAYOUT_CHANGES = np.array([[0.0, 0.0, 1.0]] * 4)
_OF_NCHW = np.array([[0.25, 0.4, 1.0]] * 4)
# Forward and backward: of nearest neighbors 1.3 to 2.3, else 0.2 to 2.7.
_OF_INTERPOLATION = np.array([[0.2, 1.5, 2.7]] * 4)
# Fused attention / the products of one by hand, by positions of the softmax: up to 64, 128, 256,
# 512, 1,024 and more.
_OF_PRODUCTS = np.array(
    [[1.2, 2.1, 3.2], [0.9, 1.1, 2.1], [0.65, 0.95, 1.8], [0.45, 0.7, 1.4], [0.35, 0.55, 1.2],
     [0.3, 0.5, 1.2]]
)  # fmt: skip
# Share left of a fused float32 attention in half precision: 0.3 to 0.8 of 32 positions, 0.06 to
# 0.16 of 4,096.
_OF_FLOAT32_ATTENTION = np.array([[0.16, 0.3, 0.8]] * 3 + [[0.06, 0.15, 0.8]])
# One fused kernel / the longest of a chain, which broadcasting may have made large.
_OF_LONGEST = np.array([0.15, 1.0, 2.0])
# The gradient of an embedding's whole table is filled with zeros, summed up, and added to the next.
_TABLE_GRADIENT = re.compile(r"^aten::_?embedding(?:_bag)?_dense_backward$")
_TABLE_NODE = re.compile(r"^autograd::engine::evaluate_function: Embedding(?:Bag)?Backward\d+$")
_FILLS = re.compile(r"^aten::(?:fill|zero)_$")
_ADDS = re.compile(r"^aten::add_?$")
_ADDITION_PER_FILL = 3.25
# Passes of an optimizer over table, gradient and moments, in fills, by the first name that matches.
_PASSES = {
    r"^aten::_fused_": np.array([8.0, 10.0, 12.0]),
    r"^Optimizer\.step#SGD\.": np.array([3.0, 3.6, 6.0]),
    "": np.array([14.0, 22.0, 24.0]),
}
# How many times as long sparse gradients take to be summed up and used: they are sorted once more.
_OF_USED_ROWS = np.array([2.0, 3.5, 6.0])
_MIN_BITS, _TYPICAL_BITS = 6, 8

# Share left of a pass over 1,024 tokens or more if it runs one token: nine in ten of 132
# (`tests/benchmarks/cached_passes.py`, an H200).
_OF_ONE_TOKEN = np.array(
    [[0.19, 0.46, 0.91], [0.057, 0.23, 0.73], [0.024, 0.11, 0.55], [0.003, 0.024, 0.2]]
)

# Share left by sizes that are multiples of 64 (164 products), by lengths with small factors (48
# transforms) and by `F.embedding` (25 gradients of few rows): nine in ten of them on an H100
# (`tests/benchmarks/slow_kernels.py`).
_OF_UNALIGNED = np.array(
    [[0.39, 0.44, 0.5], [0.03, 0.16, 0.41], [0.16, 0.23, 0.51], [0.12, 0.2, 0.41]]
)
_OF_BLUESTEIN = np.array([[0.0, 0.15, 0.31]] * 4)
_OF_ADDED_ROWS = np.array([[0.01, 0.03, 0.2]] * 4)

# Share left by name, float64[4, 3], by duration; the last test that a name passes counts.
LeftByName = Mapping[Callable[[str], bool], NDArray[np.float64]]
FLOAT32: LeftByName = {is_float64: _OF_FLOAT64, is_float64_product: _OF_FLOAT64_PRODUCT}
CHANNELS_LAST: LeftByName = {
    is_layout_change: _OF_LAYOUT_CHANGES,
    is_of_nchw: _OF_NCHW,
    interpolates_nchw: _OF_INTERPOLATION,
}
ONE_TOKEN: LeftByName = {bool: _OF_ONE_TOKEN}
USUAL_KERNELS: LeftByName = {
    is_float32_attention: _OF_FLOAT32_ATTENTION,
    is_unaligned_product: _OF_UNALIGNED,
    is_bluestein_transform: _OF_BLUESTEIN,
    adds_up_rows: _OF_ADDED_ROWS,
}


def left_in_tf32(
    timeline: Timeline, rows: IndexArray, length_ns: Int64Array
) -> NDArray[np.float64]:
    """float64[k, 3], what TF32 leaves of float32 products: at least, typically and at most."""
    is_convolution = are_convolutions(timeline, rows)[:, None]
    own_speedup = _SPEEDUP[_rows_by_length(length_ns)]
    speedup = np.where(is_convolution, _SPEEDUP_OF_CONVOLUTION, own_speedup)
    left = 1 / np.minimum(speedup, tf32_speedup(timeline)[rows][:, None])
    return np.asarray(left[:, ::-1])


def tf32(program: Program, selection: Selection) -> Edited:
    """Its float32 products use TF32."""
    timeline = selection.sites.timeline
    nodes, rows = _chosen(program, selection, products_without_tf32(timeline))
    return _scaled(program, nodes, left_in_tf32(timeline, rows, program.cost_ns[nodes]))


def left_of_table_gradients(timeline: Timeline) -> NDArray[np.float64]:
    """float64[m, 3], what is left of each activity if embeddings have sparse gradients.

    All where a step uses most rows, or where a layer shares the weight.
    """
    is_gradient = launched_within(timeline, _TABLE_GRADIENT.search)
    is_filled = is_gradient & launched_by(timeline, _FILLS.search)
    is_used = is_gradient & ~is_filled
    is_added = launched_within(timeline, _TABLE_NODE.search) & launched_by(timeline, _ADDS.search)
    is_optimizer = launched_by_optimizer(timeline)
    length_ns = timeline.end_ns - timeline.start_ns
    fill_ns, used_ns, added_ns, optimizer_ns = (
        int(length_ns[rows].sum()) for rows in (is_filled, is_used, is_added, is_optimizer)
    )
    left = np.ones((len(length_ns), 3))
    tables_ns = fill_ns - added_ns / _ADDITION_PER_FILL
    if fill_ns > used_ns and tables_ns > 0:
        left[is_filled | is_added] = 0
        left[is_used] = _OF_USED_ROWS
        share = tables_ns * _passes(timeline) / max(1, optimizer_ns)
        left[is_optimizer] = 1 - np.minimum(1, share)[::-1]
    return left


def _passes(timeline: Timeline) -> NDArray[np.float64]:
    names = {timeline.trace.strings[i] for i in np.unique(timeline.trace.name_index).tolist()}
    return next(
        passes for pattern, passes in _PASSES.items() if any(re.search(pattern, x) for x in names)
    )


def fuse_chains(program: Program, selection: Selection) -> Edited:
    """Its elementwise kernels in a row become one, as long as the longest; the CPU's time stays."""
    timeline = selection.sites.timeline
    is_chosen = match_names(timeline.trace, timeline.event_id, is_elementwise)
    nodes, rows = _chosen(program, selection, is_chosen)
    own, index = np.unique(rows, return_inverse=True)
    follows = np.diff(own, prepend=ABSENT - 1) == 1
    for part in (timeline.step_index, timeline.stream_index):
        follows &= np.diff(part[own], prepend=ABSENT - 1) == 0
    chain = np.cumsum(~follows) - 1
    length_ns, longest_ns = (timeline.end_ns - timeline.start_ns)[own], np.zeros(len(own))
    np.maximum.at(longest_ns, chain, length_ns)
    count, total_ns = np.bincount(chain), np.bincount(chain, length_ns)
    left = longest_ns[chain] / total_ns[chain].clip(1)
    factors = np.minimum(1, left[:, None] * _OF_LONGEST)
    factors[count[chain] == 1] = 1  # one alone becomes no other
    return _scaled(program, nodes, factors[index])


def sparse_gradients(program: Program, selection: Selection) -> Edited:
    """Its embeddings have gradients of the rows that were used, not of their whole tables."""
    left = left_of_table_gradients(selection.sites.timeline)
    nodes, rows = _chosen(program, selection, (left != 1).any(axis=1))
    return _scaled(program, nodes, left[rows])


def attention(program: Program, selection: Selection) -> Edited:
    """Attention written by hand becomes one fused operator: only its products remain, scaled."""
    sites, timeline = selection.sites, selection.sites.timeline
    operators = timeline.operators
    is_product = np.append(operators.have_name(is_batched_product), False)
    operator_index = sites.operators_of(selection.calls)
    launches = selection.calls & is_product[operator_index]
    kept = sites.regions(operators.event_id[np.unique(operator_index[launches])])
    regions = exclude(selection.regions(), kept)
    calls = selection.calls & ~launches
    changed = remove_host_work(program, sites, calls, sites.share_within(regions))
    nodes, products = _chosen(program, selection, launched_by(timeline, is_batched_product))
    rows = program.row[selection.activities]
    fused = _scaled(changed, nodes, _left_of_products(timeline, products, np.sort(rows)))
    return replace(fused, count=int(calls.sum()))


def _left_of_products(
    timeline: Timeline, products: IndexArray, rows: IntArray
) -> NDArray[np.float64]:
    """float64[k, 3], what a fused operator takes of products: at least, typically and at most."""
    strings, names = timeline.trace.strings, timeline.trace.name_index[timeline.event_id[rows]]
    bits = np.array([softmax_bits(strings[name]) or 0 for name in names.tolist()])
    softmaxes, bits = rows[bits > 0], bits[bits > 0]
    if not len(bits):
        softmaxes, bits = rows[:1], np.array([_TYPICAL_BITS])
    nearest = np.searchsorted((softmaxes[1:] + softmaxes[:-1]) / 2, products)
    index = np.clip(bits[nearest] - _MIN_BITS, 0, len(_OF_PRODUCTS) - 1)
    return np.asarray(_OF_PRODUCTS[index])


def scale_by_name(program: Program, selection: Selection, left: LeftByName) -> Edited:
    """Scale the time of activities by what their names leave of it, such as of `FLOAT32`."""
    timeline = selection.sites.timeline
    kind = np.full(len(timeline.event_id), ABSENT, dtype=np.int64)
    for number, is_named in enumerate(left):
        kind[match_names(timeline.trace, timeline.event_id, is_named)] = number
    nodes, rows = _chosen(program, selection, kind != ABSENT)
    of_length = _rows_by_length(program.cost_ns[nodes])
    return _scaled(program, nodes, np.array([*left.values()])[kind[rows], of_length])


def _rows_by_length(length_ns: Int64Array) -> IndexArray:
    return np.searchsorted(_UP_TO_US, length_ns / 1_000, side="right")


def _chosen(
    program: Program, selection: Selection, is_chosen: BoolArray
) -> tuple[IndexArray, IndexArray]:
    row = program.row
    nodes = np.flatnonzero(selection.activities & (row != ABSENT) & is_chosen[row])
    return nodes, row[nodes].astype(np.intp)


def _scaled(program: Program, nodes: IndexArray, factors: NDArray[np.float64]) -> Edited:
    def scaled(of_nodes: NDArray[np.float64]) -> Program:
        cost_ns = program.cost_ns.copy()
        cost_ns[nodes] = times(cost_ns[nodes], of_nodes)
        return replace(program, cost_ns=cost_ns)

    low, middle, high = map(scaled, factors.T)
    return Edited(middle, low, high, len(nodes))
