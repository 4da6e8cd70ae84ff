"""TL402: a convolution with a change of layout before and after it."""

import pytest

from tests.build.files import US, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

BEFORE = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(int)"
AFTER = "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>(int)"
CONVOLUTION = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"


def convolution(before_us, after_us, norm_us=0):
    """400 us of work without a pause, the first and last of it changes of layout.

    Right before the last the convolution may be followed by group normalization.
    """
    edges = [10, 10 + before_us, 410 - after_us - norm_us, 410 - after_us, 410]
    rows = [
        operator("aten::cudnn_convolution", 0, 4 * US),
        operator("aten::native_group_norm", 4 * US, 6 * US),
        operator("aten::cudnn_convolution", 6 * US, 9 * US),
    ]
    for i, name in enumerate((BEFORE, CONVOLUTION, "GroupNormKernel", AFTER)):
        start, end = (edge * US for edge in edges[i : i + 2])
        if start < end:
            rows += work(start, end, name, launched=2 * i * US, correlation=i + 1)
    return rows


def test_a_quarter_of_the_time_is_changes_of_layout(findings):
    [finding] = findings(*convolution(60, 40))

    assert (finding.rule, finding.cause, finding.severity) == ("TL402", "layout", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (100 * US, 100 * US)
    assert (finding.where.count, finding.where.operator) == (2, "aten::cudnn_convolution")
    assert finding.where.activity == "cudnn::ops::nchwToNhwcKernel"
    assert (finding.remedy, finding.edit) == ("layout-transposes", "channels-last")


@pytest.mark.parametrize(
    "program",
    [
        convolution(0, 0),
        convolution(4, 3),  # less than 2 %
        convolution(60, 40, norm_us=10),  # which has no kernel for channels last
    ],
    ids=["none", "little", "group normalization"],
)
def test_is_silent_where_it_would_not_help(summaries, program):
    assert summaries(*program) == []
