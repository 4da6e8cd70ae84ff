"""Who is late without the profiler, where that made the steps much longer. Times are in us."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.build.jobs import Turn, job_of, one_clock, part_of, rows_of_job, tables_of
from tests.build.rows import US
from tests.figures import figures
from tracelab.job.members import find_members
from tracelab.job.merge import merge
from tracelab.job.replay import JobBaseline
from tracelab.job.unprofiled_stragglers import PlainStep, late_without_profiler

STEPS = 6
# The profiler keeps the host of rank 0 for 140 us a step before it launches 60 us of work.
SLOWED = [Turn(60, idle=140)] * STEPS


def job_of_recorded(*ranks, plain):
    """What is said of a job whose step takes so long without the profiler."""
    rows, _ = rows_of_job(*ranks, transfer=10, collectives_per_step=1)
    parts = [part_of(*of_rank) for of_rank in enumerate(rows)]
    return merge(parts, tables_of(rows, plain))


def test_a_rank_with_more_work_behind_one_that_the_profiler_made_late():
    # Recorded, rank 1 has its 110 us done 90 before rank 0 launches the last of its 60. Without
    # the profiler a step takes 120: rank 1 works all of it, and rank 0 waits for 50.
    merged = job_of_recorded(SLOWED, [110] * STEPS, plain=120)

    [found] = merged.job.stragglers
    assert (found.rank, found.cause, found.waiting_ranks) == (1, "more_work", (0,))
    assert (found.cost_ns, found.wait_ns) == (50 * US, (50 * US,))
    assert found.share == pytest.approx(50 / 120, abs=0.01)
    assert found.evidence
    assert not merged.is_by_recording
    assert merged.job.not_judged is None


def test_a_slow_loader_behind_a_rank_that_the_profiler_made_late(snapshot):
    # Rank 1 waits 80 us for its data, launches 40 us of work and sends it for 10.
    loads = [Turn(40, idle=80, loading=80)] * STEPS

    merged = job_of_recorded([Turn(40, idle=150)] * STEPS, loads, plain=130)

    [found] = merged.job.stragglers
    assert (found.rank, found.cause) == (1, "data_loading")
    assert found.cost_ns == 80 * US
    assert found.why == snapshot


def test_ranks_with_the_same_work_have_no_straggler():
    # Both GPUs work for 70 of 72 us without the profiler.
    merged = job_of_recorded(SLOWED, [60] * STEPS, plain=72)

    assert (merged.job.stragglers, merged.job.not_judged) == ((), None)


def test_where_nothing_decides_nobody_is_late(snapshot):
    # Of a step of 110 us the GPUs work for 70, and neither rank loads data. Either host may be the
    # slow one: recorded, rank 1 took 115 up to the end of the transfer.
    merged = job_of_recorded(SLOWED, [Turn(60, idle=45)] * STEPS, plain=110)

    assert merged.job.stragglers == ()
    assert figures(merged.job.not_judged) == ["1.9"]
    assert merged.job.not_judged == snapshot


def test_a_rank_that_is_late_by_more_than_the_profiler_is_a_straggler():
    # It comes 140 us late, of which the profiler took 40: rank 1 was recorded to take only 70.
    merged = job_of_recorded(SLOWED, [60] * STEPS, plain=170)

    [found] = merged.job.stragglers
    assert (found.rank, found.cause) == (0, "late_launch")
    assert found.cost_ns == pytest.approx(100 * US, rel=0.02)
    assert merged.is_by_recording


def test_a_recording_about_as_fast_as_the_program_says_who_is_late():
    # 190 of 210 us: the profiler's part is taken away, and nothing else is asked.
    merged = job_of_recorded([60] * STEPS, [Turn(60, idle=140)] * STEPS, plain=190)

    [found] = merged.job.stragglers
    assert (found.rank, found.cause) == (1, "late_launch")


@pytest.mark.parametrize(
    ("works", "loads", "cause"),
    [
        ((60, 110), (0, 0), "more_work"),
        ((60, 60), (0, 50), "data_loading"),
        ((60, 60), (0, 0), "late_launch"),
    ],
)
def test_a_replay_without_the_profiler_says_who_waits(works, loads, cause):
    # In three steps rank 0 waits for 150 us: 50 a step for whatever rank 1 does longer.
    parts, matches = job_of([60] * STEPS, [60] * STEPS)
    members = find_members(parts, matches, one_clock(2))
    step = PlainStep(170 * US, 1.5, *(np.array(x) * US for x in (works, loads)))
    replayed = SimpleNamespace(
        baseline=JobBaseline(steps=(1, 2, 3), basis="unprofiled"),
        joined=object(),
        waited_ns=np.array([150, 0]) * US,
    )

    [found], why = late_without_profiler(members, [None, None], step, replayed)

    assert (found.rank, found.cause, found.cost_ns) == (1, cause, 50 * US)
    assert why is None
