"""One clock for the ranks of a job. Planted differences are found again in real captures."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.parts import (
    all_reduce,
    eight_ranks,
    part,
    parts_of_job,
    receive,
    repeated,
    send,
    shifted,
)
from tests.examples import examples
from tests.shared_traces import needs_real_traces
from tracelab.job import clocks
from tracelab.job.clocks import align
from tracelab.job.matching import match
from tracelab.model.collectives import Group, Operation

US, MS, SECOND, HOUR = 1_000, 1_000_000, 1_000_000_000, 3_600_000_000_000
# Of bundled jobs of one host: how far ends of one collective are apart at the median.
APART = 25 * US
JOBS = ["fsdp_prefetch", "ddp_hook_side_stream", "straggler_even", "pipeline_1f1b_few_4"]


def aligned(*parts):
    return align(parts, match(parts))


def errors(clocks, parts, true_parts):
    """By rank how far ends are from where they are by the clock of the unchanged first part, ns."""
    origin = true_parts[0].origin_ns
    return [
        np.abs(clocks.job_ns_of(index, each.end_ns) - (true.end_ns + true.origin_ns - origin))
        for index, (each, true) in enumerate(zip(parts, true_parts, strict=True))
    ]


def every(period, count, length=500 * US, jitter=0, seed=0, **fields):
    """All-reduces with a period, whose ends differ at random."""
    late = np.random.default_rng(seed).integers(-jitter, jitter + 1, count)
    return [
        all_reduce(period * i, period * i + length + int(late[i]), step=i, **fields)
        for i in range(count)
    ]


@needs_real_traces
def test_eight_ranks_without_process_groups_or_base_time_have_one_clock():
    parts = eight_ranks()
    moved = [shifted(each, offset=each.rank * HOUR) for each in parts]

    alignment, moved_clocks = aligned(*parts).alignment, aligned(*moved)

    assert alignment.residual_ns < 5 * US
    assert [clock.offset_ns for clock in alignment.per_rank] == [0] * 8
    assert max(error.max() for error in errors(moved_clocks, moved, parts)) < 10 * US


@pytest.mark.parametrize("offset", [300 * US, -3 * MS, SECOND, -5 * HOUR])
@pytest.mark.parametrize("ppm", [0, 100, -60])
@pytest.mark.parametrize("name", JOBS)
def test_planted_offsets_and_drifts_are_found_again(name, offset, ppm):
    parts = parts_of_job(name)
    moved = [*parts[:-1], shifted(parts[-1], offset=offset, ppm=ppm)]

    clocks = aligned(*moved)

    assert max(np.percentile(error, 90) for error in errors(clocks, moved, parts)) < APART
    assert clocks.alignment.residual_ns < 30 * US


@pytest.mark.parametrize("name", JOBS)
def test_a_clock_that_was_set_shows_in_the_residual(name):
    parts = parts_of_job(name)
    last = parts[-1]
    middle = int(last.start_ns[len(last) // 2])
    moved = [*parts[:-1], shifted(last, jump=5 * MS, jump_at=middle)]

    assert aligned(*moved).alignment.per_rank[-1].residual_ns > 2 * MS


@needs_real_traces
@pytest.mark.parametrize("ppm", [40, -25])
def test_a_planted_drift_is_found_in_the_ends_of_eight_foreign_ranks(ppm):
    """Their only step, again and again for four seconds."""
    true = [repeated(each, 200, 20 * MS) for each in eight_ranks()]
    parts = [*true[:-1], shifted(true[-1], offset=HOUR, ppm=ppm)]

    clocks = aligned(*parts)

    drifts = [clock.drift_ppm for clock in clocks.alignment.per_rank]
    assert drifts[:-1] == [0] * 7
    assert drifts[-1] == pytest.approx(ppm, abs=1)
    assert clocks.alignment.residual_ns < 5 * US
    assert errors(clocks, parts, true)[-1].max() < 20 * US


def test_a_long_recording_shows_a_small_drift():
    true = [part(rank, *every(20 * MS, 500, jitter=20 * US, seed=rank)) for rank in (0, 1)]
    parts = [true[0], shifted(true[1], offset=HOUR, ppm=12.5)]

    clocks = aligned(*parts)

    clock = clocks.alignment.per_rank[1]
    assert clock.basis == "collectives"
    assert clock.drift_ppm == pytest.approx(12.5, abs=1)
    assert clock.offset_ns == pytest.approx(HOUR, abs=20 * US)
    assert errors(clocks, parts, true)[1].max() < 50 * US


def test_no_drift_is_made_of_ends_that_differ():
    parts = [part(rank, *every(5 * MS, 100, jitter=20 * US, seed=rank)) for rank in (0, 1)]

    alignment = aligned(*parts).alignment

    assert (alignment.per_rank[1].offset_ns, alignment.per_rank[1].drift_ppm) == (0, 0)


def test_long_transfers_whose_ends_differ_are_no_other_clock():
    parts = [part(0, *every(5 * MS, 20)), part(1, *every(5 * MS, 20, length=590 * US))]

    assert aligned(*parts).alignment.per_rank[1].offset_ns == 0


def test_short_transfers_say_more_than_long_ones():
    short = [
        all_reduce(5 * MS * i + 2 * MS, 5 * MS * i + 2 * MS + 30 * US, step=100 + i)
        for i in range(20)
    ]
    late = every(5 * MS, 20, length=590 * US)
    parts = [part(0, *every(5 * MS, 20), *short), part(1, *late, *short, origin=SECOND)]

    clock = aligned(*parts).alignment.per_rank[1]

    assert (clock.offset_ns, clock.residual_ns) == (SECOND, 0)


def test_outliers_change_nothing():
    operations = every(MS, 40, jitter=5 * US, seed=1)
    wrong = [
        all_reduce(op.start, op.end + (400 * US if i % 9 == 4 else 0), step=op.step)
        for i, op in enumerate(operations)
    ]
    true = [part(0, *every(MS, 40)), part(1, *operations)]
    parts = [true[0], part(1, *wrong, origin=7 * MS)]

    clock = aligned(*parts).alignment.per_rank[1]

    assert clock.offset_ns == pytest.approx(7 * MS, abs=5 * US)
    assert clock.drift_ppm == 0


def test_groups_are_joined_through_common_members():
    pairs = [Group(name=str(i), ranks=ranks, size=2) for i, ranks in enumerate([(0, 1), (2, 3)])]
    middle = Group(name="2", ranks=(1, 2), size=2)
    offsets = [0, HOUR, -2 * HOUR, 5 * MS]

    def of(rank):
        own = every(2 * MS, 30, jitter=5 * US, seed=rank, group=pairs[rank // 2])
        common = every(2 * MS, 30, jitter=5 * US, seed=9 - rank, group=middle)
        return part(rank, *own, *(common if rank in middle.ranks else ()), origin=offsets[rank])

    alignment = aligned(*map(of, range(4))).alignment

    found = [clock.offset_ns for clock in alignment.per_rank]
    assert found == pytest.approx(
        [offset - offsets[found.index(0)] for offset in offsets], abs=15 * US
    )
    assert alignment.residual_ns < 10 * US


def test_a_rank_that_shares_nothing_keeps_its_recorded_clock_and_says_so():
    alone = Group(name="9", ranks=(2, 3), size=2)
    parts = [
        part(0, *every(MS, 10)),
        part(1, *every(MS, 10), origin=HOUR),
        part(2, *every(MS, 10, group=alone), origin=3 * HOUR),
    ]

    clocks = aligned(*parts)

    clock = clocks.alignment.per_rank[2]
    assert (clock.basis, clock.offset_ns, clock.matched) == ("recorded clock", 0, 0)
    assert clock.residual_ns is None
    assert clocks.job_ns_of(2, np.array([5])).tolist() == [3 * HOUR + 5]
    assert clocks.job_ns_of(1, np.array([5])).tolist() == [5]


def test_messages_in_both_directions_hold_a_clock_between_them():
    def delays(rank):
        """Ten messages each way; a send ends 13 us before its receive, or long before."""
        for i in range(20):
            is_sender = i % 2 == rank
            late = 0 if is_sender else 13 * US + (i % 5) * 200 * US
            make = send if is_sender else receive
            yield make(MS * i, MS * i + 100 * US + late, 1 - rank, step=1)

    parts = [part(0, *delays(0)), part(1, *delays(1), origin=-HOUR)]

    alignment = aligned(*parts).alignment

    clock = alignment.per_rank[1]
    assert (clock.basis, clock.offset_ns, clock.residual_ns) == ("point_to_point", -HOUR, 13 * US)


def test_a_kernel_that_sends_and_receives_ends_with_that_of_its_peer():
    def exchanges(rank):
        for i in range(6):
            fields = {"step": 1, "kernel": i}
            yield send(MS * i, MS * i + 100 * US, 1 - rank, **fields)
            yield receive(MS * i, MS * i + 100 * US, 1 - rank, **fields)

    parts = [part(0, *exchanges(0)), part(1, *exchanges(1), origin=HOUR)]

    clock = aligned(*parts).alignment.per_rank[1]

    assert (clock.basis, clock.offset_ns, clock.residual_ns) == ("point_to_point", HOUR, 0)


def test_collectives_say_more_than_broadcasts():
    both = [*every(MS, 8), *(op for op in every(MS, 8, group=Group("b", (0, 1), 2)))]
    broadcasts = [
        op
        if op.group.name != "b"
        else type(op)(
            Operation.BROADCAST, op.start, op.end - 300 * US, step=op.step, group=op.group
        )
        for op in both
    ]

    clock = aligned(part(0, *broadcasts), part(1, *both, origin=SECOND)).alignment.per_rank[1]

    assert clock.offset_ns == SECOND


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_anything_to_go_by_is_no_error(count):
    parts = [part(0, *every(MS, count)), part(1, *every(MS, count), origin=HOUR)]

    clocks = aligned(*parts)

    assert clocks.alignment.per_rank[1].offset_ns == (HOUR if count else 0)


def test_one_rank_is_its_own_reference():
    clocks = aligned(part(3, *every(MS, 3)))

    assert clocks.alignment.reference_rank == 3
    assert clocks.alignment.residual_ns is None
    assert clocks.job_ns_of(0, np.array([1, 2])).tolist() == [1, 2]


@examples(100)
@given(st.data())
def test_any_offsets_and_drifts_are_found(data):
    ranks = data.draw(st.integers(2, 4))
    count = data.draw(st.integers(24, 80))
    true = [
        part(rank, *every(10 * MS, count, length=100 * US, jitter=10 * US, seed=rank))
        for rank in range(ranks)
    ]
    parts = [true[0]]
    for each in true[1:]:
        offset = data.draw(st.integers(-HOUR, HOUR))
        ppm = data.draw(st.integers(-100, 100))
        parts.append(shifted(each, offset=offset, ppm=ppm))

    clocks = aligned(*parts)

    for index, error in enumerate(errors(clocks, parts, true)):
        assert error.max() < 60 * US, clocks.alignment.per_rank[index]


def test_of_many_clocks_few_are_tried_on_each_rank(monkeypatch):
    random = np.random.default_rng(0)
    true = [part(rank, *every(5 * MS, 20, jitter=5 * US, seed=rank)) for rank in range(40)]
    offsets = random.integers(-SECOND, SECOND, 40).tolist()
    parts = [shifted(each, offset=offset) for each, offset in zip(true, offsets, strict=True)]
    tried = []
    is_believable = clocks._is_believable
    monkeypatch.setattr(clocks, "_is_believable", lambda x: tried.append(x) or is_believable(x))

    found = aligned(*parts)

    assert [x.offset_ns for x in found.alignment.per_rank] == pytest.approx(
        [offset - offsets[0] for offset in offsets], abs=30 * US
    )
    assert len(tried) < 2 * len(parts)
