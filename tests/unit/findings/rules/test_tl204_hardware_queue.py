"""TL204: compute, launched at 5 us in a stream free from 60 on, begins after the all-reduce."""

from tests.build.files import US, kernel
from tests.build.finding_events import ALL_REDUCE, work
from tracelab.findings.finding import CRITICAL


def test_hardware_queue(findings, snapshot):
    rows = [
        *work(10 * US, 60 * US, launched=0, correlation=1),
        *work(60 * US, 260 * US, ALL_REDUCE, launched=3 * US, correlation=2, stream=20),
        *work(260 * US, 460 * US, launched=5 * US, correlation=3),
    ]

    [finding] = findings(*rows)

    assert (finding.rule, finding.cause, finding.severity) == ("TL204", "hardware_queue", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (200 * US, 200 * US)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in finding.fix
    assert finding.title == snapshot
    assert finding.evidence == (3, 5)


def test_is_silent_where_each_stream_has_a_queue(summaries):
    rows = [
        *work(10 * US, 60 * US, launched=0, correlation=1),
        *work(60 * US, 260 * US, ALL_REDUCE, launched=3 * US, correlation=2, stream=20),
        *work(60 * US, 260 * US, launched=5 * US, correlation=3),
    ]

    assert summaries(*rows) == []


def test_without_a_launch_nothing_is_called_a_full_queue(alarms):
    rows = [
        row
        for i in range(10)
        for row in (
            kernel(400 * i * US, (400 * i + 150) * US),
            kernel((400 * i + 160) * US, (400 * i + 310) * US, ALL_REDUCE, stream=11),
        )
    ]
    assert [rule for rule, *_ in alarms(*rows)] == ["TL905"]
