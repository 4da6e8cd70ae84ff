from dataclasses import replace

from tests.build.rows import kernel, launch, timeline
from tracelab.findings.finding import Finding, Where
from tracelab.model.trace import ABSENT
from tracelab.render.html.evidence import Place, places_of_evidence

FINDING = Finding(
    rule="TL301",
    title="The GPU waits",
    severity="warning",
    rank=0,
    step=None,
    cause="host_busy",
    cost_ns=1,
    bound_ns=1,
    where=Where(count=1),
    evidence=(1, 0),
    fix="",
)


def test_cited_events_are_placed_on_streams_and_threads():
    rows = timeline(kernel(10, 20, correlation=1), launch(2, 4, 1), kernel(30, 40, stream=20))
    places = places_of_evidence(rows, (FINDING, replace(FINDING, evidence=(2,))))
    assert places == {
        1: Place(2, 4, row=ABSENT, thread_index=0),
        0: Place(10, 20, row=0, thread_index=ABSENT),
        2: Place(30, 40, row=1, thread_index=ABSENT),
    }


def test_without_findings_nothing_is_placed():
    assert not places_of_evidence(timeline(kernel(10, 20)), ())
