"""TL908: times that cannot be."""

from types import SimpleNamespace

import pytest

from tests.build.files import US, kernel
from tests.build.finding_events import clean
from tracelab.findings.finding import WARNING
from tracelab.findings.rules.trace_quality import RULES

[RULE] = [rule for rule in RULES if rule.id == "TL908"]


def test_negative_and_absurd_times(lacks):
    negative = kernel(300 * US, 305 * US, "k") | {"dur": -1}
    absurd = kernel(300 * US, 305 * US, "k") | {"dur": 1e300}

    assert lacks(*clean(), negative, absurd) == [("TL908", WARNING, 2)]


@pytest.mark.parametrize("loss", ["negative_durations", "absurd_times"])
def test_what_is_left_out_for_its_times_is_a_warning(loss):
    [candidate] = RULE.find(SimpleNamespace(trace=SimpleNamespace(losses={loss: 3})))

    assert (candidate.where.count, candidate.severity_override) == (3, WARNING)
