"""TL204: compute, launched at 5 us in a stream free from 60 on, begins after the all-reduce."""

from tests.build.files import kernel
from tests.unit.findings.hand_made import ALL_REDUCE, US, work
from tracelab.findings.finding import CRITICAL


def test_hardware_queue(findings):
    rows = [
        *work("gemm", 10, 50, 0, 1),
        *work(ALL_REDUCE, 60, 200, 3, 2, stream=20),
        *work("gemm", 260, 200, 5, 3),
    ]

    [finding] = findings(*rows)

    assert (finding.rule, finding.cause, finding.severity) == ("TL204", "hardware_queue", CRITICAL)
    assert (finding.cost_ns, finding.bound_ns) == (200 * US, 200 * US)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in finding.fix


def test_is_silent_where_each_stream_has_a_queue(summaries):
    rows = [
        *work("gemm", 10, 50, 0, 1),
        *work(ALL_REDUCE, 60, 200, 3, 2, stream=20),
        *work("gemm", 60, 200, 5, 3),
    ]

    assert summaries(*rows) == []


def test_without_a_launch_nothing_is_called_a_full_queue(alarms):
    rows = [
        row
        for i in range(10)
        for row in (
            kernel("gemm", 400 * i, 150),
            kernel(ALL_REDUCE, 400 * i + 160, 150, stream=11),
        )
    ]
    assert [rule for rule, *_ in alarms(*rows)] == ["TL905"]
