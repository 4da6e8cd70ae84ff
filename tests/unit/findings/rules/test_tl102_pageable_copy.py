"""TL102: a batch of 53 us is copied between two kernels."""

from tests.build.files import copy, event, operator
from tests.unit.findings.hand_made import H2D_PAGEABLE, US, work
from tracelab.findings.finding import CRITICAL


def test_pageable_copy(findings):
    # GIVEN a copy in [112, 165), whose call waits from 104 to 170; the next kernel begins at 175
    rows = [
        *work("gemm", 10, 100, 0, 1),
        operator("aten::copy_", 103, 68),
        event("cudaMemcpyAsync", "cuda_runtime", 104, 66, correlation=2),
        copy(112, 53, name=H2D_PAGEABLE, correlation=2),
        *work("gemm", 175, 225, 172, 3),
    ]

    # THEN lost is all from 110 to 175
    [finding] = findings(*rows)
    assert (finding.rule, finding.cause, finding.severity) == ("TL102", "pageable", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (65 * US, 65 * US)
    assert (finding.where.operator, finding.where.activity) == ("aten::copy_", H2D_PAGEABLE)


def test_is_silent_where_memory_is_pinned_and_compute_hides_the_copy(summaries):
    rows = [
        *work("gemm", 10, 100, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 12, 53, 4, 2, maker=copy, stream=20),
        *work("gemm", 110, 225, 8, 3),
    ]

    assert summaries(*rows) == []
