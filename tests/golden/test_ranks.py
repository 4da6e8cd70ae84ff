"""The ranks of bundled jobs: their operations are matched, and their clocks are one."""

from tests.build.parts import parts_of_job
from tracelab.job.clocks import align
from tracelab.job.matching import match

US = 1_000
# Captures in which a GPU computes beside each all-reduce: by the one clock of both ranks these end
# up to 98 us apart.
CONTENDED = ("late_launch", "backward_delay_logs_gradient")


def test_all_operations_are_matched(bundled_job):
    parts = parts_of_job(bundled_job)

    matches = match(parts)

    assert matches.unmatched.tolist() == [0] * len(parts)
    assert sum(map(len, parts)) == len(matches.part_index)


def test_ranks_of_one_host_keep_their_clock_and_the_residual_is_small(bundled_job):
    parts = parts_of_job(bundled_job)

    alignment = align(parts, match(parts)).alignment

    assert [clock.rank for clock in alignment.per_rank] == [each.rank for each in parts]
    assert all((clock.offset_ns, clock.drift_ppm) == (0, 0) for clock in alignment.per_rank)
    assert 0 < alignment.residual_ns < (60 if bundled_job.startswith(CONTENDED) else 20) * US
