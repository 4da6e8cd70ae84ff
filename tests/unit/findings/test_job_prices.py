"""What findings save of a job's step, worked out by hand. Times in microseconds."""

from dataclasses import replace

import pytest

from tests.build.jobs import Turn, job_of, one_clock
from tests.build.rows import US
from tracelab.findings.finding import CRITICAL, INFO, Finding, Savings, Where
from tracelab.findings.job_findings import predict_in_job, price_in_job
from tracelab.findings.places import TOGETHER
from tracelab.job.operation_members import find_members
from tracelab.job.replay import replay_job
from tracelab.measures.window_times import PROFILED
from tracelab.simulate.baseline import StepBasis
from tracelab.simulate.program import Edited, NodeKind, Via, replace_cost, replace_latency

RANKS, STEPS, ABOUT = (0, 1), 5, 15
HOST_FREE = "host=0"


def replayed(*turns, changed=RANKS):
    """Two ranks; as a change of some of them, all they have, their host takes no time."""
    parts, matches = job_of(*([turn] * STEPS for turn in turns), is_replayed=True)
    with_changes = [
        replace(
            part,
            program=replace(
                part.program,
                changes=dict.fromkeys((HOST_FREE, TOGETHER), without_host(part.program.program)),
            ),
        )
        if part.rank in changed
        else part
        for part in parts
    ]
    members = find_members(with_changes, matches, one_clock(len(turns)))
    return replay_job(members, [None] * len(turns))


def without_host(program):
    free = replace_latency(program, program.via == Via.HOST, 0)
    return Edited.exactly(replace_cost(free, free.kind == NodeKind.CALL, 0), 1)


def finding(rank, edit=HOST_FREE, *, cost=1_000, cause="host_busy"):
    return Finding(
        rule="TL301",
        title="The host is slow",
        severity=INFO,
        rank=rank,
        step=None,
        cause=cause,
        cost_ns=cost * US,
        bound_ns=cost * US,
        where=Where(count=1),
        evidence=(1,),
        fix="Be faster.",
        edit=edit,
    )


def saved_us(job, *findings):
    """What each finding saves, by rank, and the findings."""
    priced, _ = price_in_job(findings, (), RANKS, job)
    return {(x.rank, x.edit): (x.saves_ns or 0) / US for x in priced}, priced


def test_a_change_is_made_on_all_ranks_that_have_a_finding_with_it():
    job = replayed(Turn(1_000, idle=500), Turn(1_000, idle=500))
    saved, priced = saved_us(job, finding(0), finding(1))
    assert saved == {(rank, HOST_FREE): pytest.approx(500, abs=ABOUT) for rank in RANKS}
    assert {x.severity for x in priced} == {CRITICAL}
    # One of them alone would still wait for the other.
    job = replayed(Turn(1_000, idle=500), Turn(1_000, idle=500), changed=(0,))
    alone, _ = saved_us(job, finding(0))
    assert alone == {(0, HOST_FREE): pytest.approx(0, abs=ABOUT)}


def test_a_rank_where_a_change_hardly_matters_has_what_it_adds():
    job = replayed(Turn(1_000, idle=500), Turn(1_000))
    saved, _ = saved_us(job, finding(0, cost=500), finding(1, cost=10))
    assert saved[0, HOST_FREE] == pytest.approx(500, abs=ABOUT)
    assert saved[1, HOST_FREE] == pytest.approx(0, abs=ABOUT)


def test_a_straggler_saves_what_a_level_rank_would():
    job = replayed(Turn(1_500), Turn(1_000))
    saved, priced = saved_us(job, finding(0, "level:rank:0", cause="slower_gpu"))
    assert saved[0, "level:rank:0"] == pytest.approx(500, abs=ABOUT)
    assert priced[0].saves_low_ns <= priced[0].saves_ns <= priced[0].saves_high_ns


def test_larger_work_may_only_be_shared_out():
    job = replayed(Turn(1_500), Turn(1_000))
    _, [priced] = saved_us(job, finding(0, "level:rank:0", cause="more_work"))
    assert priced.saves_ns / US == pytest.approx(500, abs=ABOUT)
    assert priced.saves_low_ns / US < 250


def test_all_changes_together_save_more_than_each():
    job = replayed(Turn(1_500, idle=300), Turn(1_000))
    rows = tuple(
        Savings(rank, None, 0, PROFILED, False, None, None, None, (), None) for rank in RANKS
    )
    texts = (HOST_FREE, "level:rank:0")
    priced, savings = price_in_job([finding(0, text) for text in texts], rows, RANKS, job)
    assert {row.edits for row in savings} == {texts}
    assert all(row.step_ns == job.baseline.step_ns for row in savings)
    assert savings[0].saves_ns / US == pytest.approx(800, abs=ABOUT)
    assert {x.edit: x.saves_ns / US for x in priced} == {
        "level:rank:0": pytest.approx(800, abs=ABOUT),
        HOST_FREE: pytest.approx(300, abs=ABOUT),
    }


def test_a_job_saves_a_share_of_the_printed_step_and_no_more_than_its_gpus_leave():
    # GIVEN a step of 1,510 of which the GPUs work 1,000, and 500 can be saved
    job = replayed(Turn(1_000, idle=500), Turn(1_000, idle=500))
    for step, saves in ((1_600, 500 * 1_600 / 1_510), (1_100, 100)):
        printed = StepBasis(step * US, 1_510 * US, is_unprofiled=True)
        of_printed = replace(job, baseline=replace(job.baseline, printed=printed))
        rows = (Savings(0, None, 0, PROFILED, False, None, None, None, (), None),)
        # WHEN
        [priced], [row] = price_in_job([finding(0)], rows, RANKS, of_printed)
        # THEN both it and all together save the same share of that, or what is left beside them
        assert (row.step_ns, row.basis) == (step * US, "unprofiled")
        assert priced.saves_ns / US == pytest.approx(saves, abs=ABOUT)
        assert priced.saves_high_ns <= (step - 1_000) * US
        assert row.saves_ns == priced.saves_ns


def test_edits_of_a_job_are_predicted_each_and_together():
    job = replayed(Turn(1_500), Turn(1_000))
    level, balance, together = predict_in_job(["level:rank:0", "balance"], RANKS, job)
    assert level.predicted_ns / US == pytest.approx(1_010, abs=ABOUT)
    assert balance.predicted_ns / US == pytest.approx(1_260, abs=ABOUT)
    assert together.edits == ("level:rank:0", "balance")
