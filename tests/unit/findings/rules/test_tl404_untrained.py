"""TL404: a head that an optimizer trains, behind a backbone that it does not have."""

from tests.build.files import HOST, US, annotation, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL

AUTOGRAD = 200
ENGINE = "autograd::engine::evaluate_function: "
ACCUMULATE = ENGINE + "torch::autograd::AccumulateGrad"


def training(*, backbone, passes=4):
    """Each pass takes 100 us: 40 of the head, 60 of the backbone."""
    events = []
    for i in range(passes):
        at = 100 * i
        events += [
            operator("aten::ones_like", at * US, (at + 1) * US),
            *node(at + 2, at + 10, at + 50, i, "aten::detach"),
            *node(at + 12, at + 50, at + 110, passes + i, backbone),
            annotation("Optimizer.step#AdamW.step", (at + 30) * US, (at + 35) * US, tid=HOST),
        ]
    return events


def node(at, start, end, number, how):
    """A node of the backward pass that launches a kernel, and the gradient behind it."""
    return [
        operator(ENGINE + "AddmmBackward0", at * US, (at + 5) * US, tid=AUTOGRAD),
        *work(start * US, end * US, launched=(at + 1) * US, correlation=number + 1, tid=AUTOGRAD),
        operator(ACCUMULATE, (at + 6) * US, (at + 8) * US, tid=AUTOGRAD),
        operator(how, (at + 6.5) * US, (at + 7.5) * US, tid=AUTOGRAD),
    ]


def test_a_backbone_that_is_not_trained(findings):
    # 60 of each 100 us.
    [finding] = findings(*training(backbone="aten::add_"))

    assert (finding.rule, finding.cause, finding.severity) == ("TL404", "untrained", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (240 * US, 240 * US)
    assert finding.where.count == 4
    assert (finding.remedy, finding.edit) == (
        "untrained-gradients",
        "remove:remedy:untrained-gradients",
    )


def test_is_silent_where_all_is_trained_or_one_step_is_all_there_is(summaries):
    assert summaries(*training(backbone="aten::detach")) == []
    assert summaries(*training(backbone="aten::add_", passes=1)) == []
