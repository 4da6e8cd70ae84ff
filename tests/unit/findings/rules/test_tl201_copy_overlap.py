"""TL201: a pinned copy of 50 us stands between 200 and 200 us of compute."""

from tests.build.files import copy, operator
from tests.unit.findings.hand_made import US, call, wait, work
from tracelab.findings.finding import CRITICAL, INFO


def test_copy_in_the_stream_that_computes(summaries):
    # 50 of 450 us.
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 210, 50, 3, 2, maker=copy),
        *work("gemm", 260, 200, 6, 3),
    ]

    assert summaries(*rows) == [("TL201", "same_stream", CRITICAL, 50)]


def test_copy_behind_a_blocking_call_names_it(findings):
    # The synchronize ends at 212, the copy runs in [215, 265), and the kernel after it waits.
    rows = [
        *work("gemm", 10, 200, 0, 1),
        operator("aten::nonzero", 3, 210),
        call("cudaStreamSynchronize", 4, 208),
        *work("Memcpy HtoD (Pinned -> Device)", 216, 50, 213, 2, maker=copy, stream=20),
        *wait(217, 10, stream=7, of=20, recorded=216),
        *work("gemm", 266, 200, 218, 3),
    ]

    copied, blocked = findings(*rows)

    assert (copied.rule, copied.cause, copied.bound_ns) == ("TL201", "host_sync", 50 * US)
    assert copied.title.endswith("runs beside no compute, because `aten::nonzero` blocks")
    assert (blocked.rule, blocked.bound_ns) == ("TL101", 6 * US)


def test_is_silent_beside_compute(summaries):
    rows = [
        *work("gemm", 10, 200, 0, 1),
        *work("Memcpy HtoD (Pinned -> Device)", 12, 50, 3, 2, maker=copy, stream=20),
        *work("gemm", 210, 200, 6, 3),
    ]

    assert summaries(*rows) == []


def test_first_copy_alarms_nobody(summaries):
    rows = [
        *work("Memcpy HtoD (Pinned -> Device)", 10, 50, 0, 1, maker=copy),
        *work("gemm", 60, 400, 3, 2),
    ]

    assert summaries(*rows) == [("TL201", "true_dependency", INFO, 0)]
