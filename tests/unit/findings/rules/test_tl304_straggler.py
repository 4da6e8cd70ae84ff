"""The finding of a straggler."""

from dataclasses import replace

import pytest

from tests.figures import figures
from tracelab.findings.finding import Finding, Where
from tracelab.findings.rules import waiting_ranks
from tracelab.findings.rules.waiting_ranks import straggler_finding
from tracelab.job.stragglers import Straggler

STRAGGLER = Straggler(
    rank=2,
    cause="data_loading",
    what="loads data in `next` in train (train.py:33)",
    why="loads data in `next` in train (train.py:33) (6.2 ms)",
    cost_ns=4_000_000,
    shared_out_ns=None,
    share=0.2,
    spread_ns=100_000,
    waiting_ranks=(0, 1),
    wait_ns=(4_000_000, 5_500_000),
    steps=5,
    steps_seen=4,
    operator=None,
    function="train",
    file="train.py",
    line=33,
    call="next",
    evidence=(17, 29),
)


def own(rule):
    return Finding(rule, "", "info", 2, None, "", 0, 0, Where(count=1), (), "")


def test_the_finding_is_on_the_straggler_and_costs_what_the_job_loses(snapshot):
    found = straggler_finding(STRAGGLER, 3, (own("TL302"), own("TL202")))

    assert figures(found.title) == ["0", "1", "2,"]
    assert found.title == snapshot
    assert (found.rule, found.rank, found.step, found.cause) == ("TL304", 2, None, "data_loading")
    assert (found.cost_ns, found.bound_ns, found.steps_seen) == (20_000_000, 20_000_000, 4)
    assert (found.severity, found.evidence) == ("critical", (17, 29))
    assert (found.where.device, found.where.file, found.where.line) == (3, "train.py", 33)
    assert found.fix.startswith("Load in worker processes: ")
    assert found.fix_short.startswith("Load in worker processes: ")
    assert {"2", "4.0 ms", "4.0", "5.5 ms"} <= {*figures(found.fix)}
    assert found.fix == snapshot
    assert found.fix.endswith("TL302 of this rank is about the same time.")


def test_work_that_can_be_shared_out_gains_less(snapshot):
    found = straggler_finding(
        replace(STRAGGLER, cause="more_work", shared_out_ns=2_700_000, wait_ns=(4_000_000,) * 2),
        0,
        (),
    )

    assert {"4.0 ms", "2.7 ms"} <= {*figures(found.fix)}
    assert found.fix == snapshot
    uneven = replace(STRAGGLER, cause="uneven_work", shared_out_ns=STRAGGLER.cost_ns)
    assert straggler_finding(uneven, 0, ()).fix == snapshot


def test_severity_is_by_the_share_and_the_spread_of_the_steps():
    def severity(**fields):
        return straggler_finding(replace(STRAGGLER, **fields), 0, ()).severity

    assert severity(share=0.1) == "critical"
    assert severity(share=0.05) == "warning"
    assert severity(share=0.05, spread_ns=4_000_000) == "info"
    assert severity(share=0.01) == "info"


@pytest.mark.parametrize(
    "cause",
    [
        "more_work",
        "uneven_work",
        "slower_gpu",
        "late_launch",
        "data_loading",
        "blocked",
        "other_collective",
        "copies",
        "unknown",
    ],
)
def test_each_cause_has_a_fix(cause):
    found = straggler_finding(replace(STRAGGLER, cause=cause), 0, ())

    assert found.fix.count(". ") >= 2
    assert found.fix.endswith(".")


def test_without_steps_the_recording_is_priced_once():
    found = straggler_finding(replace(STRAGGLER, steps=0, steps_seen=0), 0, ())

    assert (found.cost_ns, found.steps_seen) == (4_000_000, None)
    assert "4.0 ms in the recording" in found.fix


def test_one_rank_waits():
    found = straggler_finding(replace(STRAGGLER, waiting_ranks=(0,), wait_ns=(1,)), 0, ())

    assert found.title.startswith("Rank 0 waits for rank 2, ")


def test_many_ranks_are_counted():
    ranks = (0, 1, *range(3, 8))

    found = straggler_finding(replace(STRAGGLER, waiting_ranks=ranks, wait_ns=(1,) * 7), 0, ())

    assert found.title.startswith("7 ranks wait for rank 2, ")


def test_one_file_tells_nothing():
    assert waiting_ranks.STRAGGLER.find(None) == []
