"""TL403: work in double precision beside other work."""

from tests.build.files import US, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

ADD = "void vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<double>, array>(int)"
ADAM = "void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>, double, double>(int)"


def busy(first, second, first_us):
    """A GPU that is never idle from 10 us on: 400 us together."""
    return [
        operator("aten::add", 0, 9 * US),
        *work(10 * US, (10 + first_us) * US, first, launched=US, correlation=1),
        *work((10 + first_us) * US, 410 * US, second, launched=4 * US, correlation=2),
    ]


def test_a_sum_of_float64_tensors(findings):
    [finding] = findings(*busy(ADD, "softmax", 100))

    assert (finding.rule, finding.cause, finding.severity) == ("TL403", "float64", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (100 * US, 100 * US)
    assert (finding.where.operator, finding.edit) == ("aten::add", "float32")


def test_is_silent_of_numbers_in_double_precision_and_of_little(summaries):
    assert summaries(*busy(ADAM, "softmax", 200)) == []
    assert summaries(*busy(ADD, "softmax", 7)) == []
