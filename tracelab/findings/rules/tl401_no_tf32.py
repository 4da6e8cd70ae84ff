"""TL401: float32 products that do not use TF32, or half precision as the others do."""

from __future__ import annotations

import numpy as np

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies, candidates_of_work
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.model.arithmetic import are_convolutions, products_without_tf32
from tracelab.simulate.arithmetic import left_in_tf32

_MATRIX = '`torch.set_float32_matmul_precision("high")`'
_CONVOLUTION = "`torch.backends.cudnn.allow_tf32 = True`"
_PRECISION = (
    "TF32 rounds the factors to 10 bits after the point and adds in float32. With `with "
    'torch.autocast("cuda", dtype=torch.bfloat16):` around the forward pass, products are faster '
    "still."
)


def find(context: Context) -> list[Candidate]:
    """The products of the window in float32, and attentions of a program in half precision."""
    attentions = candidates_of_remedies(
        context, RULE.id, cause="float32_attention", in_forward=True
    )
    return [*_without_tf32(context), *attentions]


def _without_tf32(context: Context) -> list[Candidate]:
    """The products of the window in float32, on GPUs that are faster in TF32."""
    timeline = context.timeline
    chosen = products_without_tf32(timeline)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    is_convolution = are_convolutions(timeline, rows)
    switches = [
        switch
        for switch, is_off in (
            (_MATRIX, not is_convolution.all()),
            (_CONVOLUTION, is_convolution.any()),
        )
        if is_off
    ]
    short = f"Allow TF32 once, before the loop: {' and '.join(switches)}."
    fix = Instead(f"{short} {_PRECISION}", short=short)
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    most_saved = np.zeros(len(chosen))
    most_saved[rows] = 1 - left_in_tf32(timeline, rows, length_ns)[:, 0]
    of_convolutions_ns = int(length_ns[is_convolution].sum())
    is_mostly = 2 * of_convolutions_ns > int(length_ns.sum())
    what = "Convolutions run" if is_mostly else "Matrix products run"
    return candidates_of_work(
        context,
        chosen,
        title=f"{what} in float32 without TF32",
        fix=fix,
        cause="float32_products",
        edit="tf32",
        most_saved=most_saved,
    )


RULE = Rule(
    id="TL401",
    name="float32 products without TF32",
    matters="From Ampere on, tensor cores multiply float32 matrices in TF32 several times as fast "
    "as the CUDA cores do in float32. PyTorch leaves that off for matrix products, and on for "
    "convolutions, unless the program says otherwise.",
    decides="It sums the kernels of cuBLAS and cuDNN that multiply in float32 without tensor "
    "cores (`sgemm`, `f32f32_f32f32`), on GPUs for which the manufacturer lists TF32 as faster. "
    "It is silent if any product in the file uses TF32, because then the switch is on, and if "
    "TF32 can save less than 2 % of the time. Convolutions have a switch of their own and are "
    "counted separately; RNNs are not counted, because cuDNN chooses for them. The GPU is busy in "
    "this time, not idle. The saving is an interval, because small products gain little.",
    before="model(batch)  # float32, on an H100",
    after='torch.set_float32_matmul_precision("high")\nmodel(batch)',
    find=find,
)
