"""The bundled pipelines of 2 and 4 ranks: what their schedules are, and what they lose.

``python -m tests.golden.test_pipelines`` prints the table of tracelab/docs/findings.md anew.
"""

from functools import cache

import pytest

from tests.bundled_traces import FOLDER
from tracelab import Options, find_sources
from tracelab.analysis import analyze_source
from tracelab.findings.rules.tl303_pipeline_bubble import pipeline_finding
from tracelab.job.clocks import align
from tracelab.job.collectives import match
from tracelab.job.pipeline import find_pipeline
from tracelab.job.waits import find_waits

DOCUMENT = FOLDER.parent / "tracelab" / "docs" / "findings.md"

# name: stages, microbatches, and the stages' compute of one, in us.
PIPELINES = {
    "gpipe_few": (2, 4, 1060, 1258),
    "gpipe_many": (2, 16, 1115, 1318),
    "1f1b_few": (2, 4, 1039, 1249),
    "1f1b_many": (2, 16, 1054, 1318),
    "gpipe_few_4": (4, 4, 1065, 1117, 1117, 1239),
    "gpipe_many_4": (4, 16, 1128, 1140, 1147, 1310),
    "1f1b_few_4": (4, 4, 1067, 1114, 1120, 1238),
    "1f1b_many_4": (4, 16, 1061, 1149, 1181, 1305),
}


@cache
def measured(name):
    """A bundled job, its parts and its pipeline."""
    sources = find_sources(sorted(map(str, FOLDER.glob(f"pipeline_{name}_rank?.pt.trace.json.gz"))))
    parts = [analyze_source(source, Options()).part for source in sources]
    matches = match(parts)
    clocks = align(parts, matches)
    pipeline = find_pipeline(parts, matches, clocks, find_waits(parts, matches, clocks))
    return parts, pipeline


def row(name):
    """A line of the table of the documents."""
    _, pipeline = measured(name)
    parts = pipeline.parts
    shares = (pipeline.theory_bubble, pipeline.measured_bubble)
    shares += (parts.imbalance, parts.transfer, parts.host, parts.rest)
    listed = " | ".join(f"{100 * share:.1f} %" for share in shares)
    return (
        f"| `pipeline_{name}` | {pipeline.stages} stages, {pipeline.schedule}, "
        f"{pipeline.microbatches} microbatches | {listed} | {pipeline.smallest_microbatch:.2f} |"
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_table_of_the_documents_is_what_is_measured(name):
    assert row(name) in DOCUMENT.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", PIPELINES)
def test_schedules_are_those_of_the_program(name):
    stages, microbatches, *compute_us = PIPELINES[name]

    _, pipeline = measured(name)

    assert (pipeline.stages, pipeline.microbatches, pipeline.chunks) == (stages, microbatches, 1)
    assert pipeline.schedule == name.partition("_")[0]
    assert (pipeline.pipelines, pipeline.other_pipelines, pipeline.other_steps) == (1, 0, 0)
    assert [stage.rank for stage in pipeline.per_stage] == list(range(stages))
    assert [round(x.microbatch_ns / 1000) for x in pipeline.per_stage] == compute_us
    # The last stage computes the loss, too.
    assert compute_us[-1] == max(compute_us)


@pytest.mark.parametrize("name", PIPELINES)
def test_bubbles_are_beyond_theory_and_explained(name):
    _, pipeline = measured(name)
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


def test_more_microbatches_leave_smaller_bubbles():
    for schedule in ("gpipe", "1f1b"):
        for ranks in ("", "_4"):
            _, few = measured(f"{schedule}_few{ranks}")
            _, many = measured(f"{schedule}_many{ranks}")
            assert many.theory_bubble < few.theory_bubble
            assert many.measured_bubble < few.measured_bubble - 0.09


def test_1f1b_has_a_steady_phase_and_gpipe_has_none():
    for name in PIPELINES:
        _, pipeline = measured(name)
        steady_ns = [stage.steady_ns for stage in pipeline.per_stage]
        assert all(steady_ns[1:]) if name.startswith("1f1b") else not any(steady_ns)


@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_advised(name):
    parts, pipeline = measured(name)

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
    sources = find_sources(sorted(map(str, FOLDER.glob(f"{name}_rank?.pt.trace.json.gz"))))
    parts = [analyze_source(source, Options()).part for source in sources]
    matches = match(parts)
    clocks = align(parts, matches)

    assert find_pipeline(parts, matches, clocks, find_waits(parts, matches, clocks)) is None


if __name__ == "__main__":
    print("\n".join(map(row, PIPELINES)))
