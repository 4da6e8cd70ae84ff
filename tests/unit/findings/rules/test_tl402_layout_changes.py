"""TL402: a convolution with a change of layout before and after it."""

import pytest

from tests.build.files import US, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

BEFORE = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(int)"
AFTER = "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>(int)"
CONVOLUTION = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"


def convolution(before_us, after_us):
    """400 us of work without a pause, the first and last of it changes of layout."""
    edges = [10 * US, (10 + before_us) * US, (410 - after_us) * US, 410 * US]
    rows = [operator("aten::cudnn_convolution", 0, 9 * US)]
    for i, name in enumerate((BEFORE, CONVOLUTION, AFTER)):
        start, end = edges[i : i + 2]
        if start < end:
            rows += work(start, end, name, launched=(1 + 2 * i) * US, correlation=i + 1)
    return rows


def test_a_quarter_of_the_time_is_changes_of_layout(findings):
    [finding] = findings(*convolution(60, 40))

    assert (finding.rule, finding.cause, finding.severity) == ("TL402", "layout", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (100 * US, 100 * US)
    assert (finding.where.count, finding.where.operator) == (2, "aten::cudnn_convolution")
    assert finding.where.activity == "cudnn::ops::nchwToNhwcKernel"
    assert finding.edit == "channels-last"


@pytest.mark.parametrize(("before_us", "after_us"), [(0, 0), (4, 3)])
def test_is_silent_below_two_percent(summaries, before_us, after_us):
    assert summaries(*convolution(before_us, after_us)) == []
