"""TL905: activities without a launch."""

import pytest

from tests.build.files import US, kernel
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO, WARNING


@pytest.mark.parametrize(("length", "severity"), [(9, INFO), (10, WARNING)])
def test_activities_without_a_launch(lacks, length, severity):
    # Beside 190 us with a launch, 10 us are 5 % of the whole.
    alone = kernel(0, length * US, "early", correlation=77)

    assert lacks(*clean(), alone) == [("TL905", severity, 1)]
