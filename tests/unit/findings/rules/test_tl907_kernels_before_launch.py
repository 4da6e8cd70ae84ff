"""TL907: clocks."""

import pytest

from tests.build.files import US, kernel, launch
from tests.build.finding_events import clean
from tracelab.findings.finding import WARNING


@pytest.mark.parametrize(("launched", "said"), [(200, []), (200.001, [("TL907", WARNING, 1)])])
def test_activity_that_begins_before_its_launch(lacks, launched, said):
    # It begins at 200.
    rows = [
        launch(launched * US, (launched + 1) * US, 3),
        kernel(200 * US, 220 * US, "next", correlation=3),
    ]

    assert lacks(*clean(), *rows) == said
