"""TL408: a function that launches three elementwise kernels in a row, twice, beside products."""

import pytest

from tests.build.files import US, operator, python
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL, GENERIC

KERNELS = [
    *(f"void at::native::elementwise_kernel<2, {x}>(int)" for x in ("sub", "pow")),
    "void at::native::reduce_kernel<512, 1, ReduceOp<float> >(int)",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
]
OPERATORS = ("aten::sub", "aten::pow", "aten::sum", "aten::mm")


def distances(*, us):
    """Two calls of a function: three kernels of so many us each, and 400 us in all with a product.

    The GPU is busy from 10 us on.
    """
    events, start = [], 10
    for call in range(2):
        begin = 40 * call
        events.append(python("train.py(5): distances", begin * US, (begin + 38) * US))
        for i, (name, kernel) in enumerate(zip(OPERATORS, KERNELS, strict=True)):
            at, lasts = begin + 1 + 9 * i, 400 - 3 * us if i == 3 else us
            events += [
                operator(name, at * US, (at + 8) * US),
                *work(
                    start * US,
                    (start + lasts) * US,
                    kernel,
                    launched=(at + 1) * US,
                    correlation=10 * call + i + 1,
                ),
            ]
            start += lasts
    return events


def test_most_of_the_time_is_elementwise(findings):
    [finding] = findings(*distances(us=100))
    assert (finding.rule, finding.cause, finding.severity, finding.role) == (
        "TL408",
        "elementwise_chains",
        CRITICAL,
        GENERIC,
    )
    assert (finding.cost_ns, finding.bound_ns) == (600 * US, 600 * US)
    assert (finding.where.function, finding.where.count) == ("distances", 6)
    assert finding.edit == "fuse-chains:remedy:elementwise-chains"


@pytest.mark.parametrize(("us", "count"), [(36, 1), (32, 0)])
def test_a_quarter_is_enough(summaries, us, count):
    # 108 and 96 of 400 us, in each call.
    assert len(summaries(*distances(us=us))) == count
