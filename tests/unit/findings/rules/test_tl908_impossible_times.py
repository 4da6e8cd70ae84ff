"""TL908: times that cannot be."""

from tests.build.files import US, kernel
from tests.unit.findings.hand_made import clean
from tracelab.findings.finding import WARNING


def test_negative_and_absurd_times(lacks):
    negative = kernel(300 * US, 305 * US, "k") | {"dur": -1}
    absurd = kernel(300 * US, 305 * US, "k") | {"dur": 1e300}

    assert lacks(*clean(), negative, absurd) == [("TL908", WARNING, 2)]
