"""TL903: no Python."""

from tests.unit.findings.hand_made import clean
from tracelab.findings.finding import INFO


def test_no_python_functions(lacks):
    assert lacks(*clean()[1:]) == [("TL903", INFO, 1)]
