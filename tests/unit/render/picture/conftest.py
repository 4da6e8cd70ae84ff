"""For tests of the picture: the timeline that most pictures show."""

import pytest

from tests.build.pictures import EVENTS, make_trace
from tracelab.model.timeline import build_timeline


@pytest.fixture(scope="module")
def timeline():
    return build_timeline(make_trace(*EVENTS))
