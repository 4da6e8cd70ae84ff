"""TL102: a batch of 53 us is copied between two kernels."""

import pytest

from tests.build.files import US, call, copy, operator
from tests.build.finding_events import D2H_PAGEABLE, H2D_PAGEABLE, work
from tests.build.rows import H2D
from tracelab.findings.finding import CRITICAL


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        (H2D_PAGEABLE, "Pin the memory and do not wait for the copy: `DataLoader("),
        (D2H_PAGEABLE, "Copy into pinned memory and read it later:"),
    ],
    ids=["to the GPU", "to the host"],
)
def test_pageable_copy(findings, name, fix):
    # GIVEN a copy in [112, 165), whose call waits from 104 to 170; the next kernel begins at 175
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        operator("aten::copy_", 103 * US, 171 * US),
        call("cudaMemcpyAsync", 104 * US, 170 * US, correlation=2),
        copy(112 * US, 165 * US, name=name, correlation=2),
        *work(175 * US, 400 * US, launched=172 * US, correlation=3),
    ]

    # THEN lost is all from 110 to 175
    [finding] = findings(*rows)
    assert (finding.rule, finding.cause, finding.severity) == ("TL102", "pageable", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (65 * US, 65 * US)
    assert (finding.where.operator, finding.where.activity) == ("aten::copy_", name)
    assert finding.fix.startswith(fix)


def test_is_silent_where_memory_is_pinned_and_compute_hides_the_copy(summaries):
    rows = [
        *work(10 * US, 110 * US, launched=0, correlation=1),
        *work(12 * US, 65 * US, H2D, launched=4 * US, correlation=2, maker=copy, stream=20),
        *work(110 * US, 335 * US, launched=8 * US, correlation=3),
    ]

    assert summaries(*rows) == []
