"""For tests of the remedies: what a program that calls this and that is recognized as."""

from functools import partial

import pytest

from tests.build.call_trees import program
from tests.build.rows import graph
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import nothing_known, recognize


@pytest.fixture
def recognized():
    """Names of the events of each remedy, by its id, for what a program calls in each step."""

    def find(*nodes, arguments=None, **keys):
        rows = program(*nodes, **keys)
        built = graph(*rows)
        read = partial(arguments, built.host.timeline.trace) if arguments else nothing_known
        places = recognize(built, REMEDIES, read).places
        return {
            remedy: {rows[event_id].name for event_id in events.tolist()}
            for remedy, events in places.items()
        }

    return find
