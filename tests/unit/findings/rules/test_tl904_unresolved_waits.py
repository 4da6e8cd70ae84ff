"""TL904: waits that name no record."""

from tests.build.files import US, call, event_row, sync_row
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO


def waiting(*, record_correlation):
    """A stream wait, after a record of stream 7 at 3, for what stream 13 is given then."""
    return [
        call("cudaEventRecord", 3 * US, 4 * US, correlation=20),
        event_row(100 * US, correlation=20, event=5),
        call("cudaStreamWaitEvent", 8 * US, 9 * US, correlation=21),
        sync_row(
            "Stream Wait Event",
            8 * US,
            8 * US,
            stream=13,
            correlation=21,
            wait_stream=7 if record_correlation != -1 else -1,
            wait_correlation=record_correlation,
        ),
    ]


def test_wait_that_names_its_record_is_resolved(lacks):
    assert lacks(*clean(), *waiting(record_correlation=20)) == []


def test_wait_that_names_nothing_is_not(lacks):
    assert lacks(*clean(), *waiting(record_correlation=-1)) == [("TL904", INFO, 1)]
