"""TL406: attentions of 300 us, of which 200 are beside their products, forward and backward."""

from tests.build.files import HOST, US, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

AUTOGRAD = 200
ENGINE = "autograd::engine::evaluate_function: "
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def attention(*, middle_us):
    """Two attentions and the way back through one: product, scale, softmax, product."""
    events, start = [], 100
    scored = ("aten::bmm", "aten::mul", "aten::softmax", "aten::bmm")
    back = ("BmmBackward0", "SoftmaxBackward0", "MulBackward0", "BmmBackward0")
    for i, name in enumerate([*scored * 2, *(ENGINE + name for name in back)]):
        at, tid = 10 * i, AUTOGRAD if name.startswith(ENGINE) else HOST
        is_product = "mm" in name
        end = start + (50 if is_product else middle_us)
        events += [
            operator(name, at * US, (at + 8) * US, tid=tid),
            *work(
                start * US,
                end * US,
                GEMM if is_product else "elementwise",
                launched=(at + 3) * US,
                correlation=i + 1,
                tid=tid,
            ),
        ]
        if tid == AUTOGRAD and is_product:
            events.append(operator("aten::bmm", (at + 1) * US, (at + 7) * US, tid=tid))
        start = end
    return events


def test_two_thirds_are_beside_the_products(findings):
    [finding] = findings(*attention(middle_us=100))

    assert (finding.rule, finding.cause, finding.severity) == (
        "TL406",
        "attention_scores",
        CRITICAL,
    )
    assert (finding.cost_ns, finding.bound_ns) == (600 * US, 600 * US)
    assert (finding.remedy, finding.edit) == (
        "attention-by-hand",
        "attention:remedy:attention-by-hand",
    )
    # The place is one of the forward pass, which the program calls itself.
    assert (finding.where.count, finding.where.operator) == (6, "aten::mul")


def test_is_silent_where_the_scores_are_few(summaries):
    assert summaries(*attention(middle_us=1)) == []
