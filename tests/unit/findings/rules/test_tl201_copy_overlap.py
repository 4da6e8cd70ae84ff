"""TL201: a pinned copy of 50 us stands between 200 and 200 us of compute."""

from tests.build.files import US, call, copy, operator
from tests.build.finding_events import wait, work
from tests.build.rows import D2H, H2D
from tracelab.findings.finding import CRITICAL, INFO


def test_copy_in_the_stream_that_computes(summaries):
    # 50 of 450 us.
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, H2D, launched=3 * US, correlation=2, maker=copy),
        *work(260 * US, 460 * US, launched=6 * US, correlation=3),
    ]

    assert summaries(*rows) == [("TL201", "same_stream", CRITICAL, 50)]


def test_copy_behind_a_blocking_call_names_it(findings, snapshot):
    # The synchronize ends at 212, the copy runs in [215, 265), and the kernel after it waits.
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        operator("aten::nonzero", 3 * US, 213 * US),
        call("cudaStreamSynchronize", 4 * US, 212 * US),
        *work(216 * US, 266 * US, H2D, launched=213 * US, correlation=2, maker=copy, stream=20),
        *wait(217 * US, 10, stream=7, of=20, recorded=216 * US),
        *work(266 * US, 466 * US, launched=218 * US, correlation=3),
    ]

    copied, blocked = findings(*rows)

    assert (copied.rule, copied.cause, copied.bound_ns) == ("TL201", "host_sync", 50 * US)
    assert copied.title == snapshot
    assert (blocked.rule, blocked.bound_ns) == ("TL101", 6 * US)


def test_copy_to_the_host_in_the_stream_that_computes_needs_a_stream_of_its_own(findings, snapshot):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, D2H, launched=3 * US, correlation=2, maker=copy),
        *work(260 * US, 460 * US, launched=6 * US, correlation=3),
    ]

    [finding] = findings(*rows)

    assert (finding.cause, finding.bound_ns) == ("same_stream", 50 * US)
    assert finding.fix == snapshot


def test_compute_that_waits_for_a_copy_to_the_host_need_not(findings, snapshot):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *wait(4 * US, 10, stream=20, of=7, recorded=3 * US),
        *work(210 * US, 260 * US, D2H, launched=5 * US, correlation=2, maker=copy, stream=20),
        *wait(9 * US, 12, stream=7, of=20, recorded=8 * US),
        *work(260 * US, 460 * US, launched=10 * US, correlation=3),
    ]

    [finding] = findings(*rows)

    assert (finding.cause, finding.bound_ns) == ("event_wait", 50 * US)
    assert finding.fix == snapshot


def test_is_silent_beside_compute(summaries):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(12 * US, 62 * US, H2D, launched=3 * US, correlation=2, maker=copy, stream=20),
        *work(210 * US, 410 * US, launched=6 * US, correlation=3),
    ]

    assert summaries(*rows) == []


def test_first_copy_alarms_nobody(summaries):
    rows = [
        *work(10 * US, 60 * US, H2D, launched=0, correlation=1, maker=copy),
        *work(60 * US, 460 * US, launched=3 * US, correlation=2),
    ]

    assert summaries(*rows) == [("TL201", "true_dependency", INFO, 0)]
