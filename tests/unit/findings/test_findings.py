"""The rules together; each one alone is in ``rules/``."""

from tests.build.files import US, call, copy, event_row, kernel, launch, python, read, step, write
from tests.build.finding_events import (
    ALL_REDUCE,
    SMALL,
    clean,
    launched_one_by_one,
    serialized_kernels,
    work,
)
from tests.build.rows import D2H, H2D
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.findings.finding import CRITICAL, INFO
from tracelab.findings.registry import RULES

# Several rules on one trace.


def test_findings_of_several_rules_share_no_time(findings):
    # GIVEN a copy between two kernels, a blocking call after the second, ten late launches at last
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, H2D, launched=3 * US, correlation=2, maker=copy),
        *work(260 * US, 460 * US, launched=6 * US, correlation=3),
        call("cudaStreamSynchronize", 12 * US, 462 * US),
        *launched_one_by_one(first=465 * US),
    ]

    # WHEN
    together = findings(*rows)

    # THEN the call pays from 460 to the next launch's start at 475
    assert [(x.rule, x.bound_ns / US) for x in together] == [
        ("TL301", 135),
        ("TL201", 50),
        ("TL101", 15),
    ]


def test_evidence_names_a_copy_and_what_it_blocked(findings, tmp_path):
    rows = [
        *work(10 * US, 210 * US, launched=0, correlation=1),
        *work(210 * US, 260 * US, D2H, launched=3 * US, correlation=2, maker=copy),
        *work(260 * US, 460 * US, launched=6 * US, correlation=3),
    ]

    [finding] = findings(*rows)

    trace = read(tmp_path / "hand.json")
    assert [trace.name_of(x) for x in finding.evidence] == [D2H, "gemm"]
    assert finding.evidence == (3, 5)


def test_record_rows_change_nothing(summaries):
    # CUPTI's row of the record names a stream: what it says is what the wait's row said.
    assert summaries(
        *serialized_kernels(SMALL),
        event_row(210 * US, correlation=10, event=1),
        event_row(410 * US, correlation=12, event=2, stream=13),
    ) == [("TL203", "event_wait", CRITICAL, 200)]


# Healthy programs, and such whose defect lies elsewhere: what the rules must not say of them.


def test_slow_host_code_behind_a_synchronize_is_not_the_synchronizes(alarms):
    # Each step: 100 us of work, a synchronize that blocks for 90, then 2 ms of Python.
    rows = []
    for i in range(4):
        at = 2_200 * i
        rows += [
            python("train.py(3): step", at * US, (at + 2_190) * US),
            launch(at * US, (at + 5) * US, 10 * i + 1),
            kernel((at + 10) * US, (at + 110) * US, correlation=10 * i + 1),
            launch((at + 20) * US, (at + 110) * US, 10 * i + 2, name="cudaStreamSynchronize"),
            python("metrics.py(8): update", (at + 115) * US, (at + 2_185) * US),
        ]
    # Three gaps of 2,100 us: the three calls before them blocked for 270, the rest is the host's.
    slow_host, blocking_call = alarms(*rows)
    assert slow_host[:2] == ("TL301", "slow_host")
    assert blocking_call[:2] == ("TL101", "host_sync")
    assert blocking_call[2] == 270
    assert slow_host[2] <= 3 * 2_100 - 270


def test_branches_of_one_graph_replay_are_not_in_each_others_way(alarms):
    # The replay runs an all-reduce beside nothing and two streams in turns; nothing tells why.
    rows = [launch(0, 5 * US, 1, name="cudaGraphLaunch")]
    for i in range(10):
        at = 10 + 400 * i
        rows += [
            kernel(at * US, (at + 100) * US, correlation=1, **SMALL),
            kernel((at + 110) * US, (at + 210) * US, stream=9, correlation=1, **SMALL),
            kernel((at + 220) * US, (at + 320) * US, ALL_REDUCE, stream=11, correlation=1),
        ]
    assert alarms(*rows) == []


# What the trace itself lacks.


def test_nothing_is_said_of_a_file_that_lacks_nothing(lacks):
    assert lacks(*clean()) == []


def test_findings_about_the_trace_are_known_by_their_rule(tmp_path):
    report = analyze(write(tmp_path / "t.json", clean()[1:]))

    assert [(x.rule, x.about) for x in report.findings] == [("TL903", "trace")]
    assert [x.id for x in RULES if x.about == "trace"] == [f"TL9{i:02d}" for i in range(1, 12)]


def test_it_is_said_of_a_single_step_as_well(tmp_path, lacks_of_files):
    path = write(tmp_path / "t.json", [step(1, 0, 200 * US), *clean()[1:]])

    assert lacks_of_files(path) == [("TL903", INFO, 1)]
    assert lacks_of_files(path, options=Options(step=1)) == [("TL903", INFO, 1)]
