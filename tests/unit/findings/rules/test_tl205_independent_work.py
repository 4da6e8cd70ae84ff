"""TL205: two streams, 200 us each, that no event orders."""

from tests.build.files import US, call
from tests.build.finding_events import LARGE, SMALL, work
from tracelab.findings.finding import CRITICAL, INFO


def test_streams_serialized_by_the_host(findings, snapshot):
    # The host waits until 212 before it launches the side stream's work, which begins at 216. Both
    # could have run in the 200 us before it; those, and the 6 us of idle, end with the same call.
    rows = [
        *work(10 * US, 210 * US, "scan", launched=0, correlation=1, **SMALL),
        call("cudaStreamSynchronize", 4 * US, 212 * US),
        *work(216 * US, 416 * US, "scan", launched=213 * US, correlation=2, stream=13, **SMALL),
    ]

    [turns] = findings(*rows)

    assert (turns.rule, turns.cause, turns.severity) == ("TL205", "host_sync", CRITICAL)
    assert turns.bound_ns == (200 + 6) * US
    assert turns.title == snapshot


def test_streams_serialized_by_nothing_that_the_file_shows(summaries):
    rows = [
        *work(10 * US, 210 * US, "scan", launched=0, correlation=1, **SMALL),
        *work(210 * US, 410 * US, "scan", launched=4 * US, correlation=2, stream=13, **SMALL),
    ]

    assert summaries(*rows) == [("TL205", "hardware_queue", CRITICAL, 200)]


def test_large_kernels_alarm_nobody(summaries):
    # 0.3 and 0.8 of the GPU's room do not fit.
    rows = [
        *work(10 * US, 210 * US, "scan", launched=0, correlation=1, **SMALL),
        *work(210 * US, 410 * US, "scan", launched=4 * US, correlation=2, stream=13, **LARGE),
    ]

    assert summaries(*rows) == [("TL205", "no_free_sm", INFO, 0)]


def test_is_silent_where_the_streams_overlap(summaries):
    rows = [
        *work(10 * US, 210 * US, "scan", launched=0, correlation=1, **SMALL),
        *work(12 * US, 212 * US, "scan", launched=4 * US, correlation=2, stream=13, **SMALL),
    ]

    assert summaries(*rows) == []
