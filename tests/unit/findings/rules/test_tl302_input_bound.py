"""TL302: the loader takes until 160 us; the next kernel is launched at 162 and begins at 165."""

from tests.build.files import US, annotation, operator
from tests.unit.findings.hand_made import LOADER, OTHER_THREAD, work
from tracelab.findings.finding import CRITICAL


def loading(first_ends, second):
    return [
        *work(10 * US, first_ends * US, launched=0, correlation=1),
        annotation(LOADER, 2 * US, 160 * US),
        *work(second * US, (second + 200) * US, launched=162 * US, correlation=2),
    ]


def test_input_bound(findings):
    # Idle in [60, 165), with the loader until 160: 100 of 355 us.
    [finding] = findings(*loading(60, 165))

    assert (finding.rule, finding.cause, finding.severity) == ("TL302", "input_bound", CRITICAL)
    assert finding.bound_ns == 100 * US
    assert finding.evidence == (2,)
    assert finding.title == f"The GPU waits for the data loader ({LOADER})"


def test_is_silent_where_the_queue_is_full(summaries):
    assert summaries(*loading(210, 210)) == []


def test_counts_no_loader_of_another_thread_while_the_launching_one_works(summaries):
    rows = [
        *work(10 * US, 60 * US, launched=0, correlation=1),
        operator("aten::add", 2 * US, 162 * US),
        annotation(LOADER, 2 * US, 160 * US, tid=OTHER_THREAD),
        *work(165 * US, 365 * US, launched=162 * US, correlation=2),
    ]

    assert [x[0] for x in summaries(*rows)] == ["TL301"]
