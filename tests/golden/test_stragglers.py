"""Stragglers of the bundled jobs, and what they cost beside twins whose ranks are even."""

import pytest

from tests import bundled_traces
from tests.bundled_traces import files_of
from tracelab.findings.finding import INFO

MS = 1_000_000
# Job, straggler, cause, its even twin, and by how much of the difference its cost may be off.
STRAGGLERS = (
    ("straggler_more_work", 0, "more_work", "straggler_even", 0.06),
    # The even twin reads no result in each step.
    ("straggler_slow_loader", 0, "data_loading", "straggler_even", 0.15),
    ("waiting_rank_uneven", 1, "more_work", "waiting_rank_even", 0.02),
    ("waiting_rank_uneven_plain", 1, "more_work", "waiting_rank_even", 0.02),
)
EVEN = (
    "straggler_even",
    "straggler_even_plain",
    "straggler_slow_loader_hidden",  # one rank is late, and nobody waits
    "waiting_rank_even",
    "collectives_all_reduce_sync",
    "collectives_broadcast_async",
    "ddp_hook_default_stream",
    "fsdp_no_prefetch",
    "pipeline_1f1b_few",
)


def report_of(name):
    return bundled_traces.report_of(*files_of(name))


def step_ns(name):
    return max(row.step_ns for row in report_of(name).steady)


@pytest.mark.parametrize(("name", "rank", "cause", "twin", "off"), STRAGGLERS, ids=lambda x: x)
def test_stragglers_are_found_with_their_cause_and_cost(name, rank, cause, twin, off):
    report = report_of(name)

    [found] = report.job.stragglers
    assert (found.rank, found.cause, found.waiting_ranks) == (rank, cause, (1 - rank,))
    assert found.cost_ns == pytest.approx(step_ns(name) - step_ns(twin), rel=off)
    [finding] = [x for x in report.findings if x.rule == "TL304"]
    assert (finding.rank, finding.cause, finding.severity) == (rank, cause, "critical")
    # The rank that waits is not advised to communicate less.
    waiting = [x for x in report.findings if x.rule == "TL202" and x.rank != rank]
    assert all(x.severity == INFO and x.cause != "peer_wait" for x in waiting)
    assert sum(x.cost_ns for x in waiting) < 0.04 * 5 * step_ns(name)


@pytest.mark.parametrize("name", EVEN)
def test_even_ranks_have_no_straggler(name):
    report = report_of(name)

    assert report.job.stragglers == ()
    assert "TL304" not in {x.rule for x in report.findings}


def test_bandwidths_of_a_bundled_job_are_those_of_its_links():
    # 128 MiB between two H200s: 0.55 ms on the rank that comes last.
    [row] = report_of("straggler_even").job.bandwidths

    assert (row.operation, row.count, row.ranks, row.message_bytes) == ("all_reduce", 5, 2, 2**27)
    assert 230 < row.bus_gbps < 260
    assert row.algorithm_gbps == row.bus_gbps  # 2 (n - 1) / n is 1 for two ranks
