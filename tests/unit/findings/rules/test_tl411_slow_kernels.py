"""TL411: steps of 200 us, 120 of them in a kernel that another size does without."""

import pytest

from tests.build.files import US, kernel, launch, operator, python, step
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

UNALIGNED = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
    "(cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1::Params)"
)
BLUESTEIN = "void multi_bluestein_fft<512u, EPT<8u>, 8u, 0u, (padding_t)14, (twiddle_t)0>(int)"


def training(kernel, called="aten::mm", steps=3):
    """In each step a function launches this kernel, and another one of 60 us behind it."""
    events = []
    for i in range(steps):
        at = 200 * i
        events += [
            step(i, at * US, (at + 200) * US),
            python("train.py(3): train", (at + 1) * US, (at + 40) * US),
            operator(called, (at + 2) * US, (at + 9) * US),
            operator("aten::add", (at + 10) * US, (at + 19) * US),
        ]
        for j, (name, start, end) in enumerate(((kernel, 15, 135), ("add", 135, 195))):
            launched = (at + 4 + 8 * j) * US
            times = (at + start) * US, (at + end) * US
            events += work(*times, name, launched=launched, correlation=2 * i + j + 1)
    return events


@pytest.mark.parametrize(
    ("kernel", "called", "remedy"),
    [
        (UNALIGNED, "aten::mm", "unaligned-products"),
        (UNALIGNED.replace("align1", "align4"), "aten::bmm", "unaligned-products"),
        (BLUESTEIN, "aten::_fft_r2c", "transform-length"),
    ],
)
def test_the_place_is_where_they_are_launched(findings, kernel, called, remedy):
    [finding] = [x for x in findings(*training(kernel, called)) if x.rule == "TL411"]

    assert (finding.cause, finding.remedy, finding.severity) == ("slow_kernels", remedy, CRITICAL)
    assert (finding.where.function, finding.where.operator) == ("train", called)
    assert (finding.cost_ns, finding.where.count) == (3 * 120 * US, 3)
    assert finding.edit == f"usual-kernels:remedy:{remedy}"


@pytest.mark.parametrize(
    "kernel",
    [
        UNALIGNED.replace("align1", "align8"),  # 16 bytes at a time
        UNALIGNED.replace("bf16", "tf32").replace("align1", "align4"),  # so are these
        "cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x3_nhwc_align4",  # three colors
        "void regular_fft_factor<256u, EPT<16u>, 8u, 0u, (padding_t)14>(int)",
    ],
)
def test_is_silent_for_the_usual_kernels(findings, kernel):
    assert [x for x in findings(*training(kernel)) if x.rule == "TL411"] == []


def test_of_a_graph_only_its_slow_kernels_count(findings):
    events = []
    for i in range(3):
        at, number = 200 * i, i + 1
        events += [
            step(i, at * US, (at + 200) * US),
            python("train.py(3): train", (at + 1) * US, (at + 40) * US),
            launch((at + 2) * US, (at + 9) * US, number, name="cudaGraphLaunch"),
            kernel((at + 15) * US, (at + 95) * US, UNALIGNED, correlation=number),
            kernel((at + 96) * US, (at + 195) * US, "add", correlation=number),
        ]
    [finding] = [x for x in findings(*events) if x.rule == "TL411"]
    assert (finding.cost_ns, finding.where.count) == (3 * 80 * US, 3)
    assert finding.where.activity in UNALIGNED
