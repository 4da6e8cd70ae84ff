"""Jobs of many ranks, made of the files of two: who is late, by how much, and on which clock."""

from pathlib import Path

import numpy as np
import pytest

from tests.build.planted_jobs import PlantedClock, plant_job
from tracelab import analyze
from tracelab.analysis.analysis import analyze_source
from tracelab.base.options import Options
from tracelab.read.sources import find_sources

CAPTURES = [
    Path(__file__).parents[2] / f"traces/ddp_hook_default_stream_rank{rank}.pt.trace.json.gz"
    for rank in (0, 1)
]
COLLECTIVES_PER_STEP = 8
LATENESS_NS = 2_000_000
OPTIONS = Options(job=True)
CLOCKS = [
    PlantedClock(),
    PlantedClock(offset_ns=-3_000_000_000, drift_ppm=20),
    PlantedClock(offset_ns=40_000_000),
    PlantedClock(offset_ns=1_500_000_000, drift_ppm=-35),
    PlantedClock(offset_ns=3),
    PlantedClock(offset_ns=-700_000),
    PlantedClock(offset_ns=9_000_000_000, drift_ppm=5),
    PlantedClock(offset_ns=-9_000_000_000),
]
# By how much the ends of a collective differ on the two recorded ranks, whose clock is one.
ENDS_APART_NS = 30_000


def plant(folder, **late):
    return plant_job(folder, CAPTURES, CLOCKS, late_every=COLLECTIVES_PER_STEP, **late)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("job"), straggler=5, lateness_ns=LATENESS_NS)


@pytest.fixture(scope="module")
def report(planted):
    return analyze(planted.paths, OPTIONS)


def test_files_have_the_planted_times(planted):
    for rank in (0, 5, 6):
        [source] = find_sources([planted.paths[rank]])
        part = analyze_source(source, Options(cache=False)).part
        arrival_ns = planted.by_clock(rank, planted.arrival_ns[rank])
        assert part.rank == rank
        assert part.groups[0].ranks == tuple(range(len(CLOCKS)))
        assert (part.origin_ns + part.start_ns).tolist() == arrival_ns.tolist()


def test_late_rank_is_found_with_its_cost(report):
    [straggler] = report.job.stragglers
    assert (straggler.rank, straggler.cause) == (5, "more_work")
    assert straggler.cost_ns == pytest.approx(LATENESS_NS, rel=0.02)
    assert straggler.waiting_ranks == (0, 1, 2, 3, 4, 6, 7)
    assert [finding.rank for finding in report.findings if finding.rule == "TL304"] == [5]


def test_waiting_ranks_are_not_advised_to_communicate_less(report):
    """Of their collectives only the transfers are left, as in a job without a late rank."""
    by_rank = {finding.rank: finding for finding in report.findings if finding.rule == "TL202"}
    steps = len(report.job.per_rank[0].steps)
    transfer_ns = [metrics.transfer_ns[0] for metrics in report.job.collectives]
    for rank in range(len(CLOCKS)):
        assert by_rank[rank].cost_ns <= 1.1 * sum(transfer_ns)
    assert len(report.job.collectives) == steps * COLLECTIVES_PER_STEP
    assert not report.job.unmatched


def test_arrivals_and_waits_are_the_planted_ones(report, planted):
    job = report.job
    reference = job.alignment.reference_rank
    [origin_ns] = [x.recorded.origin_ns for x in report.traces if x.rank == reference]
    really_ns = planted.by_clock(reference, planted.arrival_ns) - origin_ns
    arrival_ns = np.array([metrics.arrival_ns for metrics in job.collectives]).T
    wait_ns = np.array([metrics.wait_ns for metrics in job.collectives]).T
    assert np.abs(arrival_ns - really_ns).max() < ENDS_APART_NS
    assert np.abs(wait_ns - planted.wait_ns).max() < 2 * ENDS_APART_NS
    assert job.alignment.residual_ns < ENDS_APART_NS
    late = [job.collectives[i] for i in planted.late_at.tolist()]
    assert {metrics.last_rank for metrics in late} == {5}


@pytest.mark.slow
def test_even_ranks_have_no_straggler(tmp_path):
    job = analyze(plant(tmp_path, straggler=5, lateness_ns=0).paths, OPTIONS).job
    assert job.stragglers == ()
