"""TL405: a backward pass of 300 us that begins with the forward pass, twice."""

import pytest

from tests.build.files import US, operator
from tests.build.finding_events import work
from tracelab.findings.finding import CRITICAL, UNMET


def backward(node, inside, again_us):
    """Two nodes: each computes something again and then its own gradient, without a pause."""
    events = []
    for i in range(2):
        at, start = 20 * i, 10 + 150 * i
        middle = start + again_us
        events += [
            operator(node, at * US, (at + 18) * US),
            operator(inside, (at + 1) * US, (at + 8) * US),
            *work(start * US, middle * US, launched=(at + 2) * US, correlation=10 * i + 1),
            *work(middle * US, (start + 150) * US, launched=(at + 10) * US, correlation=10 * i + 2),
        ]
    return events


@pytest.mark.parametrize("node", ["CheckpointFunctionBackward", "NativeLayerNormBackward0"])
def test_a_third_is_the_forward_pass(findings, node):
    # The file does not say whether there is memory for what is kept then.
    [finding] = findings(*backward(node, "aten::linear", 50))

    assert (finding.rule, finding.cause, finding.severity) == ("TL405", "recomputation", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (100 * US, 100 * US)
    assert (finding.edit, finding.saves_reason) == ("remove:remedy:checkpoint-recompute", UNMET)
    assert (finding.where.count, finding.where.operator) == (2, "aten::linear")


def test_is_silent_where_nothing_or_little_is_computed_again(summaries):
    assert summaries(*backward("AddmmBackward0", "aten::mm", 50)) == []
    assert summaries(*backward("CheckpointFunctionBackward", "aten::linear", 2)) == []
