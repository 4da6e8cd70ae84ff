"""TL303: what makes the bubble of a pipeline larger than its schedule has to cost."""

from dataclasses import replace

import pytest

from tests.build.pipelines import UNIT, gpipe, job, one_f_one_b
from tests.figures import figures
from tracelab.findings.finding import CRITICAL, WARNING
from tracelab.findings.rules.waiting_ranks import pipeline_finding
from tracelab.job.clocks import align
from tracelab.job.operation_members import find_members
from tracelab.job.pipeline import find_pipeline


def found(made):
    clocks = align(made.parts, made.matches)
    members = find_members(made.parts, made.matches, clocks)
    pipeline = find_pipeline(members)
    return pipeline_finding(pipeline, made.parts)


def test_a_stage_with_more_layers(snapshot):
    # 8 microbatches of 2 x 2 units on each stage, 2 x 3 on stage 2, which is rank 5.
    made = job(
        one_f_one_b,
        4,
        8,
        steps=2,
        ranks=(1, 3, 5, 7),
        length_ns=lambda stage, _: (3 if stage == 2 else 2) * UNIT,
    )

    finding = found(made)

    assert (finding.rule, finding.cause, finding.severity) == ("TL303", "imbalance", CRITICAL)
    assert figures(finding.title) == ["2"]
    assert finding.title == snapshot
    assert (finding.rank, finding.steps_seen) == (5, 2)
    # Of 58 units each stage computes 36 on average; theory leaves 36 * 3 / 8 of them.
    assert finding.bound_ns == finding.cost_ns == 2 * (58 - 36 - 13.5) * UNIT
    assert {"2", "50.0 %"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_messages_that_stages_wait_for():
    finding = found(job(gpipe, 4, 8, transfer_ns=UNIT // 10))

    assert (finding.cause, finding.severity) == ("transfer", WARNING)
    assert finding.evidence


def test_a_host_that_launches_late(snapshot):
    finding = found(job(gpipe, 4, 8, late_ns=lambda stage, _: UNIT // 4 * (stage == 1)))

    assert (finding.cause, finding.rank) == ("launch_bound", 1)
    assert figures(finding.title) == ["1"]
    assert finding.title == snapshot


def test_microbatches_that_take_unevenly_long():
    finding = found(
        job(gpipe, 3, 6, length_ns=lambda _, one: UNIT * (3 if one.microbatch == 2 else 1))
    )

    assert finding.cause == "uneven_microbatches"


@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
def test_few_microbatches_are_worth_splitting_where_the_host_is_fast(schedule, snapshot):
    finding = found(job(schedule, 4, 4, host_ns=UNIT // 8))

    assert (finding.cause, finding.severity) == ("few_microbatches", CRITICAL)
    # Of 14 units 8 are compute, 6 are theory's; with 8 microbatches 3 would be.
    assert (finding.cost_ns, finding.bound_ns) == (6 * UNIT, 3 * UNIT)
    assert {"8", "27.3 %"} <= {*figures(finding.fix)}
    assert finding.fix == snapshot


def test_more_microbatches_are_not_advised_where_a_stage_would_be_launch_bound(snapshot):
    # The host takes 0.75 of the GPU's time for a microbatch: half of one would wait for it.
    assert found(job(gpipe, 4, 4, host_ns=3 * UNIT // 4)) is None

    finding = found(job(gpipe, 4, 4, host_ns=3 * UNIT // 4, transfer_ns=UNIT // 4))

    assert finding.cause == "transfer"
    assert finding.fix == snapshot


def test_many_microbatches_on_even_stages_need_nothing():
    assert found(job(one_f_one_b, 2, 16)) is None


def test_an_unknown_schedule_has_no_finding():
    made = job(gpipe, 3, 2)
    clocks = align(made.parts, made.matches)
    members = find_members(made.parts, made.matches, clocks)

    # One rank alone knows no schedule.
    pipeline = find_pipeline(replace(members, parts=members.parts[:1]))

    assert pipeline.schedule == "unknown"
    assert pipeline_finding(pipeline, made.parts) is None
