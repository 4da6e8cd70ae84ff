"""TL202: an all-reduce of 50 us."""

import pytest

from tests.build.files import US, call, kernel, launch, python, step
from tests.build.finding_events import ALL_REDUCE, wait, work
from tests.figures import figures
from tracelab.findings.finding import CRITICAL, INFO, WARNING
from tracelab.findings.places import sentence_of


def test_collective_in_the_stream_that_computes(summaries):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, ALL_REDUCE, launched=3 * US, correlation=2),
        *work(260 * US, 460 * US, launched=6 * US, correlation=3),
    ]

    assert summaries(*rows) == [("TL202", "same_stream", CRITICAL, 50)]


def test_compute_that_waits_for_a_collective(summaries):
    # Of the 30 us that compute after it, it can hide 30.
    rows = [
        *work(10 * US, 410 * US, launched=0, correlation=1),
        *wait(4 * US, 10, stream=20, of=7, recorded=3 * US),
        *work(410 * US, 460 * US, ALL_REDUCE, launched=5 * US, correlation=2, stream=20),
        *wait(9 * US, 12, stream=7, of=20, recorded=8 * US),
        *work(460 * US, 490 * US, launched=10 * US, correlation=3),
    ]

    assert summaries(*rows) == [("TL202", "event_wait", WARNING, 30)]


def test_names_the_compute_that_waits(findings, snapshot):
    rows = [
        *work(10 * US, 410 * US, launched=0, correlation=1),
        *wait(4 * US, 10, stream=20, of=7, recorded=3 * US),
        *work(410 * US, 460 * US, ALL_REDUCE, launched=5 * US, correlation=2, stream=20),
        *wait(9 * US, 12, stream=7, of=20, recorded=8 * US),
        *work(460 * US, 490 * US, "norm", launched=10 * US, correlation=3),
    ]

    [finding] = findings(*rows)

    assert finding.title == snapshot
    assert finding.evidence == (6, 11)


def test_is_silent_beside_compute(summaries):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, ALL_REDUCE, launched=3 * US, correlation=2, stream=20),
        *work(210 * US, 410 * US, launched=6 * US, correlation=3),
    ]

    assert summaries(*rows) == []


def test_what_a_stage_receives_alarms_nobody(summaries):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, "ncclDevKernel_SendRecv", launched=3 * US, correlation=2),
        *work(260 * US, 460 * US, launched=6 * US, correlation=3),
    ]

    assert summaries(*rows) == [("TL202", "true_dependency", INFO, 0)]


def test_collectives_between_layers_are_no_alarm(alarms):
    # Four layers a step, each with an all-reduce in the compute stream that the next layer needs.
    rows, number = [], 0
    for i in range(3):
        rows.append(step(i, 10_000 * i * US, (10_000 * i + 900) * US))
        for layer in range(4):
            for name, at, length in (("gemm", 0, 500), (ALL_REDUCE, 510, 300)):
                number += 1
                start = 10_000 * i + 1_000 * layer + at + 1_000
                rows += [
                    launch(
                        (10_000 * i + 10 * number % 800) * US,
                        (10_000 * i + 10 * number % 800 + 2) * US,
                        number,
                    ),
                    kernel(start * US, (start + length) * US, name, correlation=number),
                ]
    assert [rule for rule, *_ in alarms(*rows) if rule.startswith("TL2")] == []


@pytest.mark.parametrize(("collectives", "severity"), [(3, CRITICAL), (4, INFO)])
def test_several_collectives_a_step_are_taken_to_be_needed_by_the_next_layer(
    summaries, collectives, severity
):
    # GIVEN two steps, of which one may have been cut: 3 all-reduces are one a step and a half, 4
    # are two; each of 50 us stands between 200 and 200 us of compute in the same stream
    names = ["gemm", *[ALL_REDUCE, "gemm"] * collectives]
    rows, end = [], 10 * US
    for i, name in enumerate(names):
        start, end = end, end + (50 if name == ALL_REDUCE else 200) * US
        rows += work(start, end, name, launched=3 * i * US, correlation=i + 1)
    steps = [step(1, 0, 12 * US), step(2, 12 * US, 30 * US)]

    # THEN
    assert summaries(*steps, *rows) == [("TL202", "same_stream", severity, 50 * collectives)]


def test_what_waits_for_a_peer_is_said_with_its_figures_and_bounds_nothing(findings, snapshot):
    # Of three all-reduces of one size one takes 4,907 us, the others 66.
    rows, now = [], 10 * US
    size = {
        "Collective name": "allreduce",
        "In msg nelems": 1_000,
        "dtype": "Float",
        "Process Group Name": "0",
    }
    for number, length in enumerate((66, 4_907, 66)):
        rows += work(now, now + 900 * US, launched=now - 8 * US, correlation=2 * number + 1)
        start = now + 900 * US
        rows += work(
            start,
            start + length * US,
            ALL_REDUCE,
            launched=now - 5 * US,
            correlation=2 * number + 2,
            **size,
        )
        now = start + length * US

    found = [x for x in findings(*rows) if x.rule == "TL202"]

    [waiting] = [x for x in found if x.cause == "peer_wait"]
    assert (waiting.severity, waiting.bound_ns, waiting.cost_ns) == (INFO, 0, 4_841 * US)
    assert waiting.title == "The all-reduce waits for a peer"
    assert waiting.where.activity == ALL_REDUCE
    assert {"4,907 µs", "66 µs"} <= {*figures(waiting.fix)}
    assert waiting.fix == snapshot
    assert all(x.cost_ns <= 3 * 66 * US for x in found if x.cause != "peer_wait")


def test_slower_than_any_link_promises_nothing(findings):
    # 134 MB in 12 ms are 11 bytes a nanosecond, and nothing shows that it can be faster.
    size = {
        "Collective name": "allreduce",
        "In msg nelems": 67_108_864,
        "dtype": "BFloat16",
        "Process Group Name": "0",
    }
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 12_210 * US, ALL_REDUCE, launched=3 * US, correlation=2, **size),
        *work(12_210 * US, 13_210 * US, launched=6 * US, correlation=3),
    ]

    [finding] = findings(*rows)

    assert (finding.cause, finding.severity, finding.bound_ns) == ("peer_wait", INFO, 0)
    assert finding.title == "The all-reduce waits for a peer, or its link is slow"
    assert "Each took 12,000 µs or more" in finding.fix


def test_a_collective_in_a_graph_is_named_with_the_line_that_was_captured(findings):
    rows = [
        python("model.py(7): forward", 0, 9 * US),
        call("cudaStreamBeginCapture", 1 * US, 1 * US + 500),
        *(launch(at * US, at * US + 500, 90 + at) for at in (2, 4, 6)),
        call("cudaStreamEndCapture", 8 * US, 8 * US + 500),
        launch(20 * US, 22 * US, 1, name="cudaGraphLaunch"),
        kernel(30 * US, 230 * US, "gemm", correlation=1),
        kernel(230 * US, 280 * US, ALL_REDUCE, correlation=1),
        kernel(280 * US, 480 * US, "gemm", correlation=1),
    ]

    [finding] = findings(*rows)

    assert finding.where.captured_at == "captured at forward (model.py)"
    assert finding.where.file is None  # where it is replayed
    assert sentence_of(finding.title, finding.where).endswith(finding.where.captured_at)
