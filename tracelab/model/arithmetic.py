"""Number formats and memory layouts of GPU work, by the names of its kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, FloatArray, IndexArray, Int64Array, Record
from tracelab.base.names import name_test
from tracelab.model.kernel_kinds import Kind, work_of
from tracelab.model.lookup import match_names
from tracelab.model.operator_flops import Product, product_of
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# A float32 product, or convolution, by multiply-adds of the CUDA cores. cuDNN chooses its engines
# for few channels (`dgrad_engine`, `wgrad_alg0_engine`, `implicit_convolve_sgemm`) with TF32, too.
is_float32_product = name_test(
    r"""
    (?<![A-Za-z0-9])(?:maxwell|volta|turing|ampere|hopper)_s(?:gemm|cudnn)_
    | \bsgemm_largek | simt_s(?:gemm|fprop|dgrad|wgrad)
    | xmma_\w*_c?f32c?f32_f32f32_c?f32_
    | winograd\w*<float | fft2d_\w+<float
    """,
    re.VERBOSE,
)
is_tf32_product = name_test(r"tf32|tensorop_s1688(?:gemm|fprop|dgrad|wgrad)|nvjet_(?:sm\d+_)?sss_")
_CONVOLUTION = re.compile(r"conv|fprop|dgrad|wgrad|winograd|_scudnn_|fft2d", re.IGNORECASE)
_RNN = re.compile(r"_cudnn_rnn")  # for which cuDNN chooses, whatever the switches say
# A kernel's tensors are of double precision; arguments alone do not make it so.
is_float64 = name_test(
    r"(?<![A-Za-z])dgem[mv]|_dgemm|_d884|f64f64|(?<!optional)<(?:(?:c10|std)::complex<)?double\b"
)
is_float64_product = name_test(r"dgemm|_d884|f64f64")
is_half_product = name_test(
    r"bf(?:loat)?16|fp16|_f16|half|_h\d*gemm|nvjet_(?:sm\d+_)?[ht]s[ht]_|Cijk_\w+?_[BH][BHS]S?_",
    re.IGNORECASE,
)
is_float32_attention = name_test(r"fmha_cutlass[FB]_f32_")
# A product in half precision whose sizes only let it read 2, 4 or 8 bytes at a time, not 16.
is_unaligned_product = name_test(r"tensorop_b?f16_[sh]\d+gemm_\w*_align[124]\b")
is_bluestein_transform = name_test("bluestein_fft")  # for lengths with a large prime factor
adds_up_rows = name_test("indexing_backward_kernel")  # those of one index one after the other
_PRODUCT = re.compile(r"^aten::(?:_?addmm\w*|mm|bmm|baddbmm)$")
# A kernel computes element by element, sums up or copies one tensor: bound by memory.
is_elementwise = name_test(
    r"at::native::.*?(?:elementwise_kernel|reduce_kernel|CatArrayBatchedCopy)|^Memcpy DtoD"
)
# Products of batches, which linear layers do not make.
is_batched_product = name_test(r"^aten::(?:baddbmm|bmm)$")
# PyTorch has a kernel for each power of two up to 1,024 numbers, and one for all longer rows.
_SOFTMAX = re.compile(r"softmax_warp_\w+<[^<>]*?, (\d+)[,>]|cunn_SoftMax")
_MIN_LONG_BITS = 11
_PRODUCTS = frozenset(("matrix products", "convolutions", "attention"))
# A kernel only prepares a product's factors or adds up parts of its result.
_is_beside_product = name_test(
    r"nchwTo|nhwcTo|splitK_?reduce|dot_do_o|convert_d[qkv]|im2col|col2im", re.IGNORECASE
)
is_layout_change = name_test(r"nchwToNhwc|nhwcToNchw")
# A normalization or pooling works on images whose channels are not last.
is_of_nchw = name_test(
    r"batch_norm_\w+(?<!channels_last)_kernel<|bn_(?:fw|bw)_\w*(?:NCHW|1C11)|pool\w*_nchw"
)
interpolates_nchw = name_test(r"upsample_[a-z]+2d_(?:backward_)?out_frame<")


class Peak(Record):
    """Most that a GPU can do, a record of ``peaks.toml``, by its maker's figures.

    Attributes:
        source: where its maker says so.
        memory: bytes that its memory moves, in 10**9 per second.
        fp64, fp32, tf32, fp16, bf16, fp8: additions and multiplications in matrix products, in
            10**12 per second, without sparsity; None of a format that it does not have.
    """

    source: str
    memory: float
    fp64: float | None = None
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None


PEAKS = msgspec.toml.decode(
    Path(__file__).with_name("peaks.toml").read_bytes(), type=dict[str, Peak]
)


def peak_of(gpu: str) -> Peak | None:
    """The most that a GPU can do, by its name; None where that is not known."""
    return next((peak for names, peak in PEAKS.items() if re.search(names, gpu)), None)


def softmax_bits(name: str) -> int | None:
    """The binary logarithm of the row that a softmax kernel is for; None of another kernel."""
    found = _SOFTMAX.search(name)
    return None if found is None else int(found[1] or _MIN_LONG_BITS)


def tf32_speedup(timeline: Timeline) -> FloatArray:
    """[m], how many times as fast TF32 is on the GPU of each activity; 1 where unknown."""
    speedup = np.ones(len(timeline.event_id))
    for device, name in timeline.trace.info.device_names.items():
        peak = peak_of(name)
        if peak is not None and peak.tf32 and peak.fp32:
            # The makers' figures are no more exact than that.
            speedup[timeline.device_number == device] = round(peak.tf32 / peak.fp32, 1)
    return speedup


def are_convolutions(timeline: Timeline, rows: IndexArray) -> BoolArray:
    """[k], which activities belong to a convolution: by their operator, or their name."""
    index = _operators_around(timeline, rows)
    is_named = match_names(timeline.trace, timeline.event_id[rows], _CONVOLUTION.search)
    by_operator = np.append(timeline.operators.have_name(_CONVOLUTION.search), False)
    return np.where(index == ABSENT, is_named, by_operator[index])


def launched_by(timeline: Timeline, is_named: Callable[[str], object]) -> BoolArray:
    """[m], which activities an operator whose name passes a test launched itself."""
    index = _operators_around(timeline, np.arange(len(timeline.event_id)))
    is_launched: BoolArray = np.append(timeline.operators.have_name(is_named), False)[index]
    return is_launched


def launched_within(timeline: Timeline, is_named: Callable[[str], object]) -> BoolArray:
    """[m], which activities an operator whose name passes a test launched, or what it calls."""
    operators = timeline.operators
    index = _operators_around(timeline, np.arange(len(timeline.event_id)))
    is_within: BoolArray = operators.around(index, operators.have_name(is_named)) != ABSENT
    return is_within


def _operators_around(timeline: Timeline, rows: IndexArray) -> Int64Array:
    launch_id = timeline.launch_id[rows]
    index = np.full(len(rows), ABSENT, dtype=np.int64)
    is_launched = launch_id != ABSENT
    index[is_launched] = timeline.operators.innermost(launch_id[is_launched])
    return index


def multiplies_in_half(timeline: Timeline) -> bool:
    """Return True if most of the time of matrix products is of those in half precision."""
    rows = np.flatnonzero(launched_by(timeline, _PRODUCT.search))
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    is_half = match_names(timeline.trace, timeline.event_id[rows], is_half_product)
    return bool(2 * length_ns[is_half].sum() > length_ns.sum())


def products_without_tf32(timeline: Timeline) -> BoolArray:
    """[m], the float32 products that TF32 would make faster on their GPU.

    A product in TF32 shows that it is allowed; matrix products and convolutions have a switch each.
    """
    trace, event_id = timeline.trace, timeline.event_id
    chosen = match_names(trace, event_id, is_float32_product) & (tf32_speedup(timeline) > 1)
    rows = np.flatnonzero(chosen)
    is_rnn = np.append(timeline.operators.have_name(_RNN.search), False)
    chosen[rows] = ~is_rnn[_operators_around(timeline, rows)]  # the last is for ABSENT
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return chosen
    tf32_rows = np.flatnonzero(match_names(trace, event_id, is_tf32_product))
    allowed = np.unique(are_convolutions(timeline, tf32_rows))
    chosen[rows] = ~np.isin(are_convolutions(timeline, rows), allowed)
    return chosen


class Products(Arrays):
    """Matrix products, convolutions and attention among k GPU activities; nan where not known.

    Attributes:
        flops: float64[k], additions and multiplications: of several kernels of one operator each by
            its time.
        moved_bytes: float64[k], of products each factor and result once; of copies and memsets what
            is copied or set.
        peak_ns: float64[k], how long products take at the GPU's peak.
    """

    is_product: BoolArray
    flops: FloatArray
    moved_bytes: FloatArray
    peak_ns: FloatArray

    def __len__(self) -> int:
        return len(self.flops)


def products(timeline: Timeline, rows: IndexArray, call_id: Int64Array) -> Products:
    """Find what GPU activities multiply, by the shapes of the inputs of their operators.

    `call_id` is the call that each comes from, else ABSENT.
    """
    trace, event_id = timeline.trace, timeline.event_id[rows]
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    flops, peak_ns = np.full((2, len(rows)), np.nan)
    copied = trace.copied_bytes[event_id]
    moved_bytes = np.where(copied == ABSENT, np.nan, copied)
    is_product = timeline.kind[rows] == Kind.COMPUTE
    is_product &= match_names(
        trace, event_id, lambda x: work_of(x) in _PRODUCTS and not _is_beside_product(x)
    )

    index, known = _operator_products(timeline)
    operator = np.full(len(rows), ABSENT, dtype=np.int64)
    operator[call_id != ABSENT] = timeline.operators.innermost(call_id[call_id != ABSENT])
    multiplies = timeline.operators.around(operator, index != ABSENT)
    may_be = (multiplies != ABSENT) & (timeline.kind[rows] == Kind.COMPUTE)
    chosen = np.flatnonzero(may_be & (is_product | (operator == multiplies)))
    # A node of a graph comes from one operator in each replay.
    launch_id = timeline.launch_id[rows[chosen]]
    replay = np.where(launch_id == call_id[chosen], ABSENT, launch_id)
    _, once = np.unique(multiplies[chosen] * len(trace) + replay, return_inverse=True)
    has_named = np.bincount(once, is_product[chosen]) > 0
    kept = is_product[chosen] | ~has_named[once]
    chosen, once = chosen[kept], once[kept]
    is_product[chosen] = True

    share = length_ns[chosen] / np.maximum(1, np.bincount(once, length_ns[chosen]))[once]
    of = index[multiplies[chosen]]
    flops[chosen] = share * np.array([x.flops for x in known])[of]
    moved_bytes[chosen] = share * np.array([x.moved_bytes for x in known])[of]
    number_format = np.array([x.number_format for x in known], dtype=object)[of]
    peak_ns[chosen] = 1e9 * flops[chosen] / _peaks(timeline, rows[chosen], number_format)
    return Products(is_product, flops, moved_bytes, peak_ns)


def _product(name: str, inputs: str) -> Product | None:
    try:
        return product_of(name, *orjson.loads(inputs))
    except orjson.JSONDecodeError:  # the reader checks no more than brackets
        return None


def _operator_products(timeline: Timeline) -> tuple[Int64Array, list[Product]]:
    """The products that operators compute, and the index of each operator's, else ABSENT."""
    trace, event_id = timeline.trace, timeline.operators.event_id
    inputs = trace.operator_inputs
    text = inputs.text_index[trace.operator_input_row[event_id]]
    index = np.full(len(event_id) + 1, ABSENT, dtype=np.int64)  # the last is that of ABSENT
    has_text = np.flatnonzero(text != ABSENT)
    key = trace.name_index[event_id[has_text]].astype(np.int64) * len(inputs.texts) + text[has_text]
    keys, of_key = np.unique(key, return_inverse=True)
    found = [
        _product(trace.strings[name], inputs.texts[of])
        for name, of in zip(*(x.tolist() for x in np.divmod(keys, len(inputs.texts))), strict=True)
    ]
    is_known = np.array([product is not None for product in found], dtype=np.bool_)
    number = np.where(is_known, np.cumsum(is_known) - 1, ABSENT)
    index[has_text] = number[of_key]
    return index[:-1], [product for product in found if product is not None]


def _peaks(timeline: Timeline, rows: IndexArray, number_format: NDArray[Any]) -> FloatArray:
    device = timeline.device_number[rows]
    is_float32 = match_names(timeline.trace, timeline.event_id[rows], is_float32_product)
    rate = np.full(len(rows), np.nan)
    for number, gpu in timeline.trace.info.device_names.items():
        peak = peak_of(gpu)
        if peak is None or " MIG " in gpu:  # a part of a GPU
            continue
        for name in {*number_format.tolist()}:
            has_format = (device == number) & (number_format == name)
            rate[has_format] = getattr(peak, name, None) or np.nan
            if name == "fp32" and peak.tf32 is not None:
                rate[has_format & ~is_float32] = peak.tf32
    return 1e12 * rate
