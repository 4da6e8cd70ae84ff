"""TL401: two kernels in a row on a GPU, of which one or both compute in float32."""

import pytest

from tests.build.files import US, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

SGEMM, TF32 = "ampere_sgemm_128x64_tn", "cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4"
HALF, FUSED = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "fmha_cutlassF_f32_aligned_64x64"
FPROP = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8"
FPROP_TF32 = FPROP.replace("f32f32_f32f32", "tf32f32_tf32f32")


def on(gpu, major=9):
    return {"before": {"deviceProperties": [{"id": 0, "name": gpu, "computeMajor": major}]}}


def busy(first, second="softmax", *, first_us=200, by="aten::addmm"):
    """A GPU that is never idle from 10 us on: 400 us together."""
    middle = 10 + first_us
    return [
        operator(by, 0, 3 * US),
        *work(10 * US, middle * US, first, launched=US, correlation=1),
        operator("aten::mm", 4 * US, 8 * US),
        *work(middle * US, 410 * US, second, launched=5 * US, correlation=2),
    ]


def test_half_of_the_time_is_float32_products(findings):
    # TF32 is at most 7.4 times as fast on an H100: of 200 us it saves 173 at most.
    [finding] = findings(*busy(SGEMM), **on("NVIDIA H100 80GB HBM3"))

    assert (finding.rule, finding.cause, finding.severity) == (
        "TL401",
        "float32_products",
        CRITICAL,
    )
    assert (finding.cost_ns, finding.bound_ns) == (200 * US, round(200 * US * (1 - 1 / 7.4)))
    assert (finding.where.count, finding.where.activity, finding.where.operator) == (
        1,
        SGEMM,
        "aten::addmm",
    )
    assert finding.edit == "tf32"


@pytest.mark.parametrize(
    ("gpu", "major", "bounds"),
    [
        ("NVIDIA A100-SXM4-40GB", 8, [175]),  # 8 times: 7/8 of 200 us
        ("NVIDIA RTX A4000", 8, [100]),  # twice
        ("NVIDIA GeForce RTX 4090", 8, []),  # no faster
        ("Tesla V100-SXM2-32GB", 7, []),  # has no TF32
        ("AMD Instinct MI300X", 9, []),
    ],
)
def test_on_gpus_that_are_faster_in_tf32(summaries, gpu, major, bounds):
    found = summaries(*busy(SGEMM), **on(gpu, major))
    assert [bound for *_, bound in found] == bounds


@pytest.mark.parametrize(
    ("program", "bounds"),
    [
        (busy(TF32), []),
        (busy(SGEMM, TF32), []),  # it is allowed, and cuBLAS chose float32
        (busy(SGEMM, first_us=4), []),  # 1 % of 400 us
        (busy("embedding", "elementwise"), []),  # no products
        # Small ones are at most 2.5 times as fast: 16 us save 9.6, 2.4 % of the time.
        (busy(SGEMM, first_us=16), [9.6]),
    ],
    ids=["tf32", "allowed", "little", "none", "small"],
)
def test_is_silent_where_tf32_is_used_or_saves_little(summaries, program, bounds):
    found = summaries(*program, **on("NVIDIA H100"))
    assert [bound for *_, bound in found] == bounds


@pytest.mark.parametrize(
    ("program", "matrices", "convolutions"),
    [
        (busy(SGEMM), True, False),
        (busy(FPROP, by="aten::cudnn_convolution"), False, True),
        (busy(FPROP, SGEMM, by="aten::cudnn_convolution"), True, True),
        # TF32 is on for convolutions unless the program says otherwise.
        (busy(FPROP_TF32, SGEMM, by="aten::cudnn_convolution"), True, False),
    ],
    ids=["matrices", "convolutions", "both", "convolutions in tf32"],
)
def test_the_fix_names_the_switch_that_is_off(findings, program, matrices, convolutions):
    [finding] = findings(*program, **on("NVIDIA H100"))
    assert ("set_float32_matmul_precision" in finding.fix) == matrices
    assert ("cudnn.allow_tf32" in finding.fix) == convolutions


ATTENTION = "aten::_efficient_attention_forward"


def attending(fused, product, *, us=200):
    """Two attentions that take so long together, and a product: 400 us without a pause."""
    edges = [(10 + length) * US for length in (0, us // 2, us, 400)]
    kernels = [(fused, ATTENTION), (fused, ATTENTION), (product, "aten::mm")]
    rows = []
    for i, (name, by) in enumerate(kernels):
        start, end = edges[i : i + 2]
        rows.append(operator(by, 3 * i * US, (3 * i + 2) * US))
        rows += work(start, end, name, launched=3 * i * US, correlation=i + 1)
    return rows


def test_attention_in_float32_beside_products_in_half_precision(findings):
    [finding] = findings(*attending(FUSED, HALF), **on("NVIDIA H100"))
    assert (finding.rule, finding.cause, finding.severity) == (
        "TL401",
        "float32_attention",
        CRITICAL,
    )
    assert (finding.cost_ns, finding.bound_ns) == (200 * US, 200 * US)
    assert (finding.where.count, finding.where.operator) == (2, ATTENTION)
    assert (finding.remedy, finding.edit) == (
        "float32-attention",
        "usual-kernels:remedy:float32-attention",
    )


@pytest.mark.parametrize(
    "program",
    [
        attending(FUSED, TF32),  # the whole model is float32
        attending(FUSED.replace("f32", "bf16"), HALF),
        attending(FUSED, HALF, us=6),  # 1.5 % of 400 us
    ],
    ids=["products in float32", "in half precision", "little"],
)
def test_is_silent_where_attention_is_as_the_products_are(summaries, program):
    assert summaries(*program, **on("NVIDIA H100")) == []
