"""The bundled pipelines of 2 and 4 ranks: what their schedules are, and what they lose."""

import pytest

from tests.build.pipelines_measured import PIPELINES, measured
from tracelab.findings.rules.waiting_ranks import pipeline_finding

FEW = {"gpipe_few", "1f1b_few_4"}  # of the default run: both schedules, 2 and 4 stages
EACH = [pytest.param(x, marks=() if x in FEW else pytest.mark.whole_corpus) for x in PIPELINES]


@pytest.mark.parametrize("name", EACH)
def test_schedules_are_those_of_the_program(name):
    stages, microbatches, *compute_us = PIPELINES[name]

    _, pipeline = measured(f"pipeline_{name}")

    assert (pipeline.stages, pipeline.microbatches, pipeline.chunks) == (stages, microbatches, 1)
    assert pipeline.schedule == name.partition("_")[0]
    assert (pipeline.pipelines, pipeline.other_pipelines, pipeline.other_steps) == (1, 0, 0)
    assert [stage.rank for stage in pipeline.per_stage] == list(range(stages))
    assert [round(x.microbatch_ns / 1000) for x in pipeline.per_stage] == compute_us
    # The last stage computes the loss, too.
    assert compute_us[-1] == max(compute_us)


@pytest.mark.parametrize("name", EACH)
def test_bubbles_are_beyond_theory_and_explained(name):
    _, pipeline = measured(f"pipeline_{name}")
    parts = pipeline.parts

    assert pipeline.theory_bubble < pipeline.measured_bubble < pipeline.theory_bubble + 0.2
    shares = (parts.theory, parts.imbalance, parts.transfer, parts.host, parts.rest)
    assert sum(shares) == pytest.approx(pipeline.measured_bubble)
    assert parts.rest < 0.06  # between kernels
    for stage in pipeline.per_stage:
        times = (stage.compute_ns, stage.wait_ns, stage.transfer_ns, stage.host_idle_ns)
        times += (stage.other_ns, stage.before_ns, stage.after_ns)
        assert min(times) >= 0
        assert sum(times) == pipeline.schedule_ns
        assert 1 - stage.compute_ns / pipeline.schedule_ns == pytest.approx(stage.bubble)
    # The path through the schedule is as long as the schedule: what is left of it is compute.
    on_path = sum(
        x.critical_transfer_ns + x.critical_host_ns + x.critical_other_ns
        for x in pipeline.per_stage
    )
    assert 0 < on_path < pipeline.schedule_ns


@pytest.mark.whole_corpus
def test_more_microbatches_leave_smaller_bubbles():
    for schedule in ("gpipe", "1f1b"):
        for ranks in ("", "_4"):
            _, few = measured(f"pipeline_{schedule}_few{ranks}")
            _, many = measured(f"pipeline_{schedule}_many{ranks}")
            assert many.theory_bubble < few.theory_bubble
            assert many.measured_bubble < few.measured_bubble - 0.09


@pytest.mark.whole_corpus
def test_1f1b_has_a_steady_phase_and_gpipe_has_none():
    for name in PIPELINES:
        _, pipeline = measured(f"pipeline_{name}")
        steady_ns = [stage.steady_ns for stage in pipeline.per_stage]
        assert all(steady_ns[1:]) if name.startswith("1f1b") else not any(steady_ns)


@pytest.mark.parametrize("name", EACH)
def test_what_is_advised(name):
    parts, pipeline = measured(f"pipeline_{name}")

    finding = pipeline_finding(pipeline, parts)

    # GPipe on four ranks sends and receives one after the other; 1F1B at once. Elsewhere the last
    # stage, which also has the loss, decides.
    expected = "transfer" if name in ("gpipe_few_4", "gpipe_many_4", "1f1b_few_4") else "imbalance"
    assert finding.cause == expected
    if expected == "imbalance":
        assert finding.rank == pipeline.stages - 1
    # With the profiler the host takes about as long for a microbatch as the GPU.
    assert 0.9 < pipeline.smallest_microbatch < 1.5
    assert "The same batch in" not in finding.fix


@pytest.mark.parametrize("name", ["straggler_even", "fsdp_prefetch", "collectives_all_gather_sync"])
def test_other_jobs_have_no_pipeline(name):
    assert measured(name)[1] is None
