"""Pipelines, measured: schedules carried out by their definitions, with and without defects."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.pipelines import UNIT, gpipe, job, one_f_one_b
from tests.examples import examples
from tracelab.job.clocks import align
from tracelab.job.operation_members import find_members
from tracelab.job.pipeline import find_pipeline, theory_bubble
from tracelab.model.trace import ABSENT

SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b}


def measured(made):
    clocks = align(made.parts, made.matches)
    return find_pipeline(find_members(made.parts, made.matches, clocks))


def parts_of(pipeline):
    """The parts of a bubble, by name."""
    return {name: getattr(pipeline.parts, name) for name in pipeline.parts.__dataclass_fields__}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("microbatches", range(1, 7))
def test_even_stages_have_the_bubble_of_theory(name, stages, microbatches):
    made = job(SCHEDULES[name], stages, microbatches, steps=2, optimizer_ns=UNIT // 2)

    pipeline = measured(made)

    assert pipeline.schedule_ns == made.schedule_ns == 4 * (microbatches + stages - 1) * UNIT
    assert pipeline.theory_bubble == (stages - 1) / (microbatches + stages - 1)
    assert pipeline.measured_bubble == pytest.approx(pipeline.theory_bubble, abs=1e-12)
    assert pipeline.parts.theory == pytest.approx(pipeline.theory_bubble, abs=1e-9)
    for stage in pipeline.per_stage:
        assert stage.compute_ns == 4 * microbatches * UNIT
        assert stage.bubble == pytest.approx(pipeline.theory_bubble, abs=1e-12)
        # The first forward pass arrives that much later, the last backward pass leaves so early.
        assert stage.before_ns == stage.after_ns == 2 * stage.stage * UNIT
        assert stage.transfer_ns == stage.host_idle_ns == stage.other_ns == 0


def test_warm_up_steady_and_drain_of_1f1b():
    # A unit each: stage 0 does F F . B F B F B . B, stage 1 does . F B F B F B F B . meanwhile.
    first, last = measured(job(one_f_one_b, 2, 4)).per_stage

    spans = [(x.warm_up_ns, x.steady_ns, x.drain_ns) for x in (first, last)]
    bubbles = [(x.warm_up_bubble_ns, x.steady_bubble_ns, x.drain_bubble_ns) for x in (first, last)]
    assert spans == [(3 * UNIT, 4 * UNIT, 3 * UNIT)] * 2
    assert bubbles == [(UNIT, 0, UNIT)] * 2


def test_a_stage_that_computes_longer_is_imbalance():
    # F and B take 3 units on stage 2, and 2 on the others.
    made = job(one_f_one_b, 4, 8, length_ns=lambda stage, _: (3 if stage == 2 else 2) * UNIT)

    pipeline = measured(made)

    assert pipeline.schedule_ns == made.schedule_ns
    compute = 8 * 2 * (2 + 2 + 3 + 2)
    bubble = 1 - compute * UNIT / (4 * pipeline.schedule_ns)
    theory = compute * UNIT * (3 / 8) / (4 * pipeline.schedule_ns)
    assert pipeline.measured_bubble == pytest.approx(bubble)
    assert parts_of(pipeline) == pytest.approx(
        {"theory": theory, "imbalance": bubble - theory, "transfer": 0, "host": 0, "rest": 0}
    )
    assert [x.microbatch_ns for x in pipeline.per_stage] == [4 * UNIT, 4 * UNIT, 6 * UNIT, 4 * UNIT]


def test_messages_that_stages_wait_for_are_transfer():
    # Each message is 0.1 units on its way: three forward and three backward on the path.
    pipeline = measured(job(gpipe, 4, 1, transfer_ns=UNIT // 10))

    length_ns = 8 * UNIT + 6 * UNIT // 10
    assert pipeline.schedule_ns == length_ns
    assert parts_of(pipeline) == pytest.approx(
        {
            "theory": 6 * UNIT / length_ns,
            "imbalance": 0,
            "transfer": 0.6 * UNIT / length_ns,
            "host": 0,
            "rest": 0,
        }
    )


def test_a_late_host_counts_where_the_path_passes():
    late_ns = UNIT // 2
    pipeline = measured(job(gpipe, 3, 2, late_ns=lambda stage, _: late_ns * (stage == 1)))

    # Stage 1 does four passes late; its first forward and first backward pass delay the others,
    # and so do its second ones, which wait for the first.
    assert pipeline.parts.host == pytest.approx(4 * late_ns / pipeline.schedule_ns)
    assert [x.critical_host_ns for x in pipeline.per_stage] == [0, 4 * late_ns, 0]
    assert [x.host_idle_ns for x in pipeline.per_stage] == [0, 3 * late_ns, 0]


def test_what_a_stage_computes_before_its_first_activation_is_not_of_the_schedule():
    # The second stage prepares its targets while the first is still busy with the step before.
    made = job(gpipe, 2, 3)
    part = made.parts[1]
    early = replace(part.passes, start_ns=part.passes.start_ns - UNIT)
    made.parts[1] = replace(part, passes=early)

    pipeline = measured(made)

    assert pipeline.schedule_ns == made.schedule_ns
    assert pipeline.measured_bubble == pytest.approx(pipeline.theory_bubble)


def test_how_small_a_microbatch_may_become():
    # Two passes take 2 units on the GPU, and the host 0.5 of them to launch.
    pipeline = measured(job(one_f_one_b, 3, 4, host_ns=UNIT // 4))

    assert [x.host_microbatch_ns for x in pipeline.per_stage][1:] == [UNIT // 2] * 2
    assert pipeline.smallest_microbatch == pytest.approx(0.25, abs=0.05)


def test_without_launches_nothing_is_said_of_the_host():
    made = job(gpipe, 2, 3)
    for i, part in enumerate(made.parts):
        launched_ns = np.full(len(part), ABSENT)
        made.parts[i] = replace(part, passes=replace(part.passes, launched_ns=launched_ns))

    pipeline = measured(made)

    assert pipeline.smallest_microbatch is None
    assert [stage.host_microbatch_ns for stage in pipeline.per_stage] == [None, None]


def test_an_unknown_schedule_is_not_measured():
    made = job(gpipe, 3, 2)
    pipeline = measured(replace(made, parts=made.parts[:2], matches=_matches_of(made, 2)))

    assert (pipeline.schedule, pipeline.why) == ("unknown", "no file of rank 2")
    assert pipeline.theory_bubble is pipeline.measured_bubble is pipeline.parts is None
    assert pipeline.per_stage == ()


def _matches_of(made, count):
    """The matches between the first parts."""
    matches = made.matches
    is_kept = (matches.part_index.reshape(-1, 2) < count).all(axis=1)
    return replace(
        matches,
        first=2 * np.arange(is_kept.sum() + 1),
        part_index=matches.part_index[np.repeat(is_kept, 2)],
        operation_index=matches.operation_index[np.repeat(is_kept, 2)],
        basis=matches.basis[is_kept],
        unmatched=matches.unmatched[:count],
        unmatched_why=matches.unmatched_why[:count],
    )


def test_theory_of_an_unknown_schedule():
    assert theory_bubble(4, None) is None


def critical(step, transfer_ns, late_ns):
    """What the path through a schedule consists of, from the account of its passes.

    Returns:
        time in messages, and idle because of the host, ns.
    """
    of_stage = {}
    for one in step:
        of_stage.setdefault(one.stage, []).append(one)
    one = max(step, key=lambda one: (one.end, -one.stage))
    begin = min(one.start for one in step)
    transfers = late = 0
    while True:
        late += min(late_ns, one.start - begin)
        if one.start - late_ns <= begin:
            return transfers, late
        if one.source is not None:
            transfers += transfer_ns
        if one.source is not None and one.sent > one.free:
            one = next(x for x in of_stage[one.source] if x.end == one.sent)
        else:
            one = next(x for x in of_stage[one.stage] if x.end == one.free)


@st.composite
def jobs(draw):
    stages, microbatches = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    length = draw(st.lists(st.integers(1, 5), min_size=stages * 2, max_size=stages * 2))
    transfer, late = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    made = job(
        draw(st.sampled_from([gpipe, one_f_one_b])),
        stages,
        microbatches,
        steps=draw(st.integers(1, 2)),
        length_ns=lambda stage, one: UNIT * length[2 * stage + (one.kind == "B")],
        transfer_ns=transfer * UNIT // 4,
        late_ns=lambda _stage, _pass: late * UNIT // 4,
        optimizer_ns=UNIT,
    )
    return made, transfer * UNIT // 4, late * UNIT // 4


@examples(100)
@given(jobs())
def test_times_of_any_schedule_are_those_of_its_account(case):
    made, transfer_ns, late_ns = case

    pipeline = measured(made)

    assert pipeline.schedule_ns == made.schedule_ns
    for stage in pipeline.per_stage:
        own = [x for step in made.steps for x in step if x.stage == stage.stage]
        assert stage.compute_ns == sum(x.end - x.start for x in own)
        times = (stage.compute_ns, stage.wait_ns, stage.transfer_ns, stage.host_idle_ns)
        times += (stage.other_ns, stage.before_ns, stage.after_ns)
        assert min(times) >= 0
        assert sum(times) == stage.warm_up_ns + stage.steady_ns + stage.drain_ns
        assert sum(times) == pipeline.schedule_ns
        bubbles = (stage.warm_up_bubble_ns, stage.steady_bubble_ns, stage.drain_bubble_ns)
        assert min(bubbles) >= 0
        assert sum(bubbles) == pipeline.schedule_ns - stage.compute_ns
    shares = parts_of(pipeline)
    assert min(shares.values()) >= 0
    assert sum(shares.values()) == pytest.approx(pipeline.measured_bubble)
    on_path = [critical(step, transfer_ns, late_ns) for step in made.steps]
    assert sum(x.critical_transfer_ns for x in pipeline.per_stage) == sum(x for x, _ in on_path)
    assert sum(x.critical_host_ns for x in pipeline.per_stage) == sum(x for _, x in on_path)
    assert sum(x.critical_other_ns for x in pipeline.per_stage) == 0
