"""Jobs replayed with changes, with the answers worked out by hand. Times in microseconds."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.build.jobs import Turn, job_of, one_clock
from tests.build.rows import US
from tests.examples import examples
from tests.figures import figures
from tracelab.job.lateness import MoreWork
from tracelab.job.operation_members import find_members
from tracelab.job.replay import (
    MAX_RANKS,
    Change,
    balanced,
    leveled,
    predict_job,
    replay_job,
)
from tracelab.measures.window_times import PROFILED
from tracelab.model.program.call_sites import NO_CALL_SITE

STEPS = 5
ABOUT = 12  # us: launches, wake-ups, gaps between kernels


def replayed(*ranks, more_of=None, transfer=10, **fields):
    """A job of ranks that do the same in each step: microseconds of compute, or a `Turn`."""
    steps = [of_rank if isinstance(of_rank, list) else [of_rank] * STEPS for of_rank in ranks]
    parts, matches = job_of(*steps, transfer=transfer, is_replayed=True, **fields)
    members = find_members(parts, matches, one_clock(len(ranks)))
    return replay_job(members, more_of or [None] * len(ranks))


def predicted_us(job, programs):
    """What the step takes with other programs of some ranks."""
    [prediction] = predict_job(job, [Change(programs, programs, programs)])
    assert prediction.low_ns <= prediction.predicted_ns <= prediction.high_ns
    return prediction.predicted_ns / US


def test_a_job_replays_as_long_as_its_step():
    job = replayed(1_000, 1_500)
    assert job.baseline.not_replayed is None
    assert job.baseline.basis == PROFILED
    assert job.baseline.step_ns / US == pytest.approx(1_510, abs=ABOUT)
    assert abs(job.baseline.error) < 0.01
    assert job.waited_ns / US / len(job.baseline.steps) == pytest.approx([500, 0], abs=ABOUT)


def test_the_rank_with_more_work_is_leveled():
    job = replayed(1_000, 1_500)
    assert predicted_us(job, leveled(job, {}, 1)) == pytest.approx(1_010, abs=ABOUT)
    assert predicted_us(job, leveled(job, {}, 0)) == pytest.approx(1_510, abs=ABOUT)


def test_another_rank_decides_once_one_is_leveled():
    job = replayed(1_000, 1_500, 1_400, 1_000)
    assert predicted_us(job, leveled(job, {}, 1)) == pytest.approx(1_410, abs=ABOUT)
    both = leveled(job, leveled(job, {}, 1), 2)
    # The median of the others of rank 2 was 1,000.
    assert predicted_us(job, both) == pytest.approx(1_010, abs=ABOUT)


def test_a_rank_that_launches_more_keeps_its_own_speed():
    # 15 calls of 100 rather than ten, which the other rank's GPU, as it waits, runs in 90 each.
    more = MoreWork(
        name="aten::mm",
        is_kernel=False,
        phase=None,
        ratio=1.5,
        calls=15,
        usual_calls=10,
        excess_ns=600 * US,
        surplus_ns=500 * US,
        site=NO_CALL_SITE,
        is_slower=False,
    )
    job = replayed(900, 1_500, more_of=[None, more])
    assert predicted_us(job, leveled(job, {}, 1)) == pytest.approx(1_010, abs=ABOUT)
    larger = replace(more, calls=10)
    job = replayed(900, 1_500, more_of=[None, larger])
    assert predicted_us(job, leveled(job, {}, 1)) == pytest.approx(910, abs=ABOUT)


def test_host_work_that_only_one_rank_does_is_taken_away():
    job = replayed(Turn(1_000), Turn(1_000, idle=800))
    assert job.baseline.step_ns / US == pytest.approx(1_810, abs=ABOUT)
    assert predicted_us(job, leveled(job, {}, 1)) == pytest.approx(1_010, abs=2 * ABOUT)


def test_all_ranks_do_the_mean_of_the_work():
    job = replayed(1_000, 1_600)
    assert predicted_us(job, balanced(job, {})) == pytest.approx(1_310, abs=ABOUT)
    in_turn = replayed([1_000, 1_600, 1_000, 1_600, 1_000], [1_600, 1_000, 1_600, 1_000, 1_600])
    assert in_turn.baseline.step_ns / US == pytest.approx(1_610, abs=ABOUT)
    assert predicted_us(in_turn, balanced(in_turn, {})) == pytest.approx(1_310, abs=ABOUT)


def test_compute_beside_a_waiting_kernel_is_faster_once_nobody_waits():
    job = replayed(Turn(400, beside=1_000), Turn(1_400))
    [prediction] = predict_job(job, [change(leveled(job, {}, 1))])
    # Rank 0 computes 1,000 beside its wait: 24 of 132 multiprocessors less.
    by_hand_us = 400 + 1_000 * (1 - 24 / 132)
    assert prediction.predicted_ns / US == pytest.approx(by_hand_us, abs=40)
    assert prediction.high_ns / US >= 1_400 - ABOUT


def change(programs):
    return Change(programs, programs, programs)


def test_a_job_of_many_ranks_is_not_replayed(snapshot):
    job = replayed(*[100] * (MAX_RANKS + 1))
    assert figures(job.baseline.not_replayed) == ["16"]
    assert job.baseline.not_replayed == snapshot
    assert predict_job(job, [change({})]) == ()


def test_what_keeps_one_rank_from_a_replay_keeps_the_job():
    parts, matches = job_of([1_000] * STEPS, [1_000] * STEPS, is_replayed=True)
    job = replay_with(parts, matches, "The file has no steps.")
    assert job.baseline.not_replayed == "Rank 1: The file has no steps."
    assert replay_with(parts, matches, None) is None


def replay_with(parts, matches, program):
    """Replay two ranks, the second with another program."""
    others = [parts[0], replace(parts[1], program=program)]
    return replay_job(find_members(others, matches, one_clock(2)), [None, None])


def test_ranks_that_recorded_different_steps_are_not_replayed(snapshot):
    parts, matches = job_of([1_000] * STEPS, [1_500] * STEPS, is_replayed=True)
    [short] = {part.program.steps for part in parts}
    other = replace(parts[1].program, steps=tuple(number + 1 for number in short))
    job = replay_with(parts, matches, other)
    assert job.baseline.not_replayed == snapshot


WORK = st.lists(st.integers(600, 9_000), min_size=STEPS, max_size=STEPS)


@examples(30)
@given(st.lists(WORK, min_size=2, max_size=4))
def test_leveling_never_makes_a_job_longer(ranks):
    job = replayed(*ranks)
    if job.baseline.not_replayed is None:
        base_us = predicted_us(job, {})
        for rank in range(len(ranks)):
            assert predicted_us(job, leveled(job, {}, rank)) <= base_us + 1e-9
