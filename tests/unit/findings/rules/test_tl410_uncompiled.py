"""TL410: steps of 200 us, 120 of them in what a compiler would fuse, if its code fitted."""

from tests.build.files import US, operator, python, step
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL, UNMET

WRAPPER = "torch/_dynamo/eval_frame.py(956): compile_wrapper"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
)


def training(lookup="TorchDynamo Cache Lookup", steps=4):
    """Ten products of 8 us and ten sums of 12 us each in one call."""
    events = []
    for i in range(steps):
        at = 200 * i
        events += [
            step(i, at * US, (at + 200) * US),
            python("train.py(3): train", (at + 0.5) * US, (at + 100) * US),
            python(WRAPPER, (at + 1) * US, (at + 99) * US),
            python("model.py(7): forward", (at + 3) * US, (at + 98) * US),
            operator(lookup, (at + 1.5) * US, (at + 2.5) * US),
        ]
        for j in range(20):
            start = at + 10 + 20 * (j // 2) + 8 * (j % 2)
            end = start + (12 if j % 2 else 8)
            name = ELEMENTWISE if j % 2 else "gemm"
            launched = (at + 4 + 4 * j) * US
            number = 20 * i + j + 1
            events += work(start * US, end * US, name, launched=launched, correlation=number)
    return events


def test_the_place_is_the_call_of_the_compiled_function(findings):
    [finding] = [x for x in findings(*training()) if x.rule == "TL410"]

    assert (finding.cause, finding.severity) == ("uncompiled", CRITICAL)
    assert (finding.where.function, finding.where.count) == ("train", 10 * 4)
    assert (finding.remedy, finding.saves_reason) == ("recompile-limit", UNMET)
    assert finding.cost_ns == 4 * 120 * US


def test_is_silent_where_nothing_is_looked_up(findings):
    assert [x for x in findings(*training(lookup="aten::mul")) if x.rule == "TL410"] == []
