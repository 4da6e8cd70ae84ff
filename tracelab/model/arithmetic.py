"""Number formats and memory layouts of GPU work, by the names of its kernels.

The names are those of cuBLAS, cuDNN, CUTLASS and PyTorch; which real kernel each was written for
stands in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.base.names import name_test
from tracelab.model.lookup import match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

# Matrix products and convolutions by float32 multiply-adds of the CUDA cores, and those by tensor
# cores in TF32. Not in it are cuDNN's engines for few channels (`dgrad_engine`,
# `wgrad_alg0_engine`, `implicit_convolve_sgemm`), which it chooses with TF32, too.
# A kernel multiplies float32 matrices, or convolves, without tensor cores.
is_float32_product = name_test(
    r"""
    (?<![A-Za-z0-9])(?:maxwell|volta|turing|ampere|hopper)_s(?:gemm|cudnn)_
    | \bsgemm_largek | simt_s(?:gemm|fprop|dgrad|wgrad)
    | xmma_\w*_c?f32c?f32_f32f32_c?f32_
    | winograd\w*<float | fft2d_\w+<float
    """,
    re.VERBOSE,
)
# A kernel multiplies float32 matrices in TF32.
is_tf32_product = name_test(r"tf32|tensorop_s1688(?:gemm|fprop|dgrad|wgrad)|nvjet_(?:sm\d+_)?sss_")
_CONVOLUTION = re.compile(r"conv|fprop|dgrad|wgrad|winograd|_scudnn_|fft2d", re.IGNORECASE)
_RNN = re.compile(r"_cudnn_rnn")  # for which cuDNN chooses, whatever the switches say
# A kernel's tensors are of double precision; arguments alone do not make it so.
is_float64 = name_test(
    r"(?<![A-Za-z])dgem[mv]|_dgemm|_d884|f64f64|(?<!optional)<(?:(?:c10|std)::complex<)?double\b"
)
# A kernel multiplies matrices of double precision.
is_float64_product = name_test(r"dgemm|_d884|f64f64")
# A kernel multiplies matrices of half precision, float16 or bfloat16, by its name.
is_half_product = name_test(
    r"bf(?:loat)?16|fp16|_f16|half|_h\d*gemm|nvjet_(?:sm\d+_)?[ht]s[ht]_|Cijk_\w+?_[BH][BHS]S?_",
    re.IGNORECASE,
)
# The only fused operator that takes float32.
# A kernel is of a fused attention in float32.
is_float32_attention = name_test(r"fmha_cutlass[FB]_f32_")
_PRODUCT = re.compile(r"^aten::(?:_?addmm\w*|mm|bmm|baddbmm)$")
# Those of PyTorch that only read and write memory, except those of several tensors.
# A kernel computes element by element, sums up or copies: bound by memory.
is_elementwise = name_test(
    r"at::native::.*?(?:elementwise_kernel|reduce_kernel|CatArrayBatchedCopy)|^Memcpy DtoD"
)
# A product of batches, which linear layers do not make.
# An operator multiplies batches of matrices.
is_batched_product = name_test(r"^aten::(?:baddbmm|bmm)$")
# PyTorch has a kernel for each power of two up to 1,024 numbers, and one for all longer rows.
_SOFTMAX = re.compile(r"softmax_warp_\w+<[^<>]*?, (\d+)[,>]|cunn_SoftMax")
_MIN_LONG_BITS = 11
# A kernel only brings images from one memory layout to another, for a convolution.
is_layout_change = name_test(r"nchwToNhwc|nhwcToNchw")
# A normalization or pooling works on images whose channels are not last.
is_of_nchw = name_test(
    r"batch_norm_\w+(?<!channels_last)_kernel<|bn_(?:fw|bw)_\w*(?:NCHW|1C11)|pool\w*_nchw"
)
# A kernel interpolates images whose channels are not last.
interpolates_nchw = name_test(r"upsample_[a-z]+2d_(?:backward_)?out_frame<")
# How many times as fast products are in TF32 as in float32, by the makers' figures without
# sparsity: https://www.nvidia.com/en-us/data-center/ (data sheets). A GeForce GPU does them equally
# fast (82.6 TFLOPS of an RTX 4090 both ways), and an older one than Ampere has no TF32.
_TF32_SPEEDUP: Mapping[str, float] = MappingProxyType(
    {
        r"\bA100|\bA800|\bA30\b": 8.0,
        r"\bG?H(?:100|200|800)\b": 7.4,
        r"\bG?B(?:100|200|300)\b": 13.8,
        r"\bA10\b|\bA10G\b|\bA40\b|RTX A(?:4000|4500|5000|5500|6000)\b": 2.0,
        r"\bL4\b|\bL40S\b": 2.0,
    }
)


def softmax_bits(name: str) -> int | None:
    """The binary logarithm of the row that a softmax kernel is for; None of another kernel.

    >>> softmax_bits("void softmax_warp_forward<float, float, float, 10, false, false>(float*)")
    10
    >>> softmax_bits("void at::native::cunn_SoftMaxForward<4, float, float, float>(float*)")
    11
    """
    found = _SOFTMAX.search(name)
    return None if found is None else int(found[1] or _MIN_LONG_BITS)


def tf32_speedup(timeline: Timeline) -> NDArray[np.float64]:
    """float64[m], how many times as fast TF32 is on the GPU of each activity; 1 where unknown."""
    speedup = np.ones(len(timeline.event_id))
    for device, name in timeline.trace.info.device_names.items():
        known = (ratio for names, ratio in _TF32_SPEEDUP.items() if re.search(names, name))
        speedup[timeline.device_number == device] = next(known, 1.0)
    return speedup


def are_convolutions(timeline: Timeline, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """bool[k], which activities belong to a convolution: by their operator, or their name."""
    index = _operators_around(timeline, rows)
    is_named = match_names(timeline.trace, timeline.event_id[rows], _CONVOLUTION.search)
    by_operator = np.append(timeline.operators.have_name(_CONVOLUTION.search), False)
    return np.where(index == ABSENT, is_named, by_operator[index])


def launched_by(timeline: Timeline, is_named: Callable[[str], object]) -> NDArray[np.bool_]:
    """bool[m], which activities an operator whose name passes a test launched itself."""
    index = _operators_around(timeline, np.arange(len(timeline.event_id)))
    is_launched: NDArray[np.bool_] = np.append(timeline.operators.have_name(is_named), False)[index]
    return is_launched


def launched_within(timeline: Timeline, is_named: Callable[[str], object]) -> NDArray[np.bool_]:
    """bool[m], which activities an operator whose name passes a test launched, or what it calls."""
    operators = timeline.operators
    index = _operators_around(timeline, np.arange(len(timeline.event_id)))
    is_within: NDArray[np.bool_] = operators.around(index, operators.have_name(is_named)) != ABSENT
    return is_within


def _operators_around(timeline: Timeline, rows: NDArray[np.intp]) -> Int64Array:
    """int64[k], the operator that launched each activity, an index into `Timeline.operators`."""
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


def products_without_tf32(timeline: Timeline) -> NDArray[np.bool_]:
    """bool[m], the float32 products that TF32 would make faster on their GPU.

    Where one product of a file is in TF32, it is allowed, and the library chose float32 for the
    others: those do not count. The switches of matrix products and of convolutions are two.
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
