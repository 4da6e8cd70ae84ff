"""Who makes the others wait. Times are in microseconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.build.jobs import Turn, job_of, matches_of, one_clock, part_of, rows_of_job, tables_of
from tests.build.parts import OPERATION_COLUMNS
from tests.build.rows import US
from tests.figures import figures
from tracelab.job.collective_metrics import collective_rows, find_transfers
from tracelab.job.lateness import MoreWork, find_lateness
from tracelab.job.matching import Basis
from tracelab.job.merge import merge
from tracelab.job.operation_members import find_members
from tracelab.job.stragglers import find_stragglers
from tracelab.model.collectives import Operation
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite


def stragglers_of(parts, matches, more_of=None, overhead_ns=None, *, in_pipeline=False):
    members = find_members(parts, matches, one_clock(len(parts)))
    lateness = find_lateness(members)
    more_of = more_of or [None] * len(parts)
    overhead_ns = overhead_ns or [0] * len(parts)
    return find_stragglers(members, more_of, lateness, overhead_ns, in_pipeline=in_pipeline)


def rows_of(parts, matches):
    members = find_members(parts, matches, one_clock(len(parts)))
    lateness = find_lateness(members)
    transfers = find_transfers(members)
    return collective_rows(members, [None] * len(parts), lateness, transfers)


def test_ranks_that_come_together_have_no_straggler():
    assert stragglers_of(*job_of([50] * 6, [50] * 6)) == ()


def test_a_rank_with_more_work_costs_what_the_other_waits(snapshot):
    parts, matches = job_of([50] * 6, [90] * 6)

    [found] = stragglers_of(parts, matches)

    assert (found.rank, found.cause) == (1, "more_work")
    assert figures(found.why) == ["50 µs"]
    assert found.why == snapshot
    # Each step takes 90 us and 10 of transfer; the first collective only shows who was behind.
    assert (found.cost_ns, found.waiting_ranks, found.wait_ns) == (40 * US, (0,), (40 * US,))
    assert found.share == pytest.approx(0.4, abs=0.02)
    assert (found.steps, found.steps_seen) == (6, 5)
    assert set(found.evidence) <= set(parts[1].kernel_id.tolist())


def test_the_operator_with_more_work_is_named(snapshot):
    more = MoreWork(
        "aten::mm", False, "backward", 1.8, 18, 10, 40 * US, 40 * US, NO_CALL_SITE, False
    )

    [found] = stragglers_of(*job_of([50] * 6, [90] * 6), [None, more])

    assert found.what == snapshot
    assert found.why == f"{found.what} (1.8 times as much: 18 calls a step, the others 10)"
    assert found.operator == "aten::mm"


def test_the_line_with_more_work_is_named(snapshot):
    site = CallSite(function="train", file="train.py", line=35, call="__matmul__")
    more = MoreWork("aten::mm", False, "forward", 1.8, 18, 10, 40 * US, 40 * US, site, False)

    [found] = stragglers_of(*job_of([50] * 6, [90] * 6), [None, more])

    assert found.what == snapshot
    assert (found.function, found.file, found.line) == ("train", "train.py", 35)


def test_the_job_gains_no_more_than_what_the_straggler_has_too_much():
    # The rank that waits runs the same faster meanwhile: of its 40 us 30 are work.
    more = MoreWork(
        "aten::mm", False, "forward", 1.5, 18, 12, 40 * US, 30 * US, NO_CALL_SITE, False
    )

    [found] = stragglers_of(*job_of([50] * 6, [90] * 6), [None, more])

    assert (found.cost_ns, found.shared_out_ns) == (30 * US, 15 * US)
    assert found.wait_ns == (40 * US,)


def test_work_that_is_shared_out_comes_back_on_the_others():
    # Only 20 of the 90 us are beyond the next rank; each of the three would do a third of them.
    [found] = stragglers_of(*job_of([50] * 6, [70] * 6, [90] * 6))

    assert (found.rank, found.cost_ns) == (2, 20 * US)
    assert found.shared_out_ns == (20 + 20) * US // 3


def test_an_operator_that_explains_little_is_named_with_all_compute(snapshot):
    more = MoreWork(
        "aten::mm", False, "forward", 1.2, 10, 10, 10 * US, 40 * US, NO_CALL_SITE, False
    )

    [found] = stragglers_of(*job_of([50] * 6, [90] * 6), [None, more])

    assert figures(found.why) == ["50 µs"]
    assert found.why == snapshot


def test_a_slower_gpu_is_named(snapshot):
    more = MoreWork("aten::mm", False, "forward", 1.8, 18, 18, 40 * US, 40 * US, NO_CALL_SITE, True)

    [found] = stragglers_of(*job_of([50] * 6, [90] * 6), [None, more])

    assert (found.cause, found.why) == snapshot


def test_a_late_launch_is_named_with_its_call(snapshot):
    [found] = stragglers_of(*job_of([50] * 6, [Turn(50, idle=40)] * 6))

    assert (found.rank, found.cause) == (1, "late_launch")
    assert (found.function, found.file) == ("prepare", "train.py")
    assert found.what == snapshot


def test_what_the_profiler_made_the_host_late_by_is_not_the_stragglers():
    late = job_of([50] * 6, [Turn(50, idle=40)] * 6)

    [found] = stragglers_of(*late, overhead_ns=[0, 15 * US])

    assert (found.cost_ns, found.wait_ns) == (25 * US, (25 * US,))
    # A step of 100 us takes 85 without the profiler.
    assert found.share == pytest.approx(25 / 85, abs=0.01)
    assert stragglers_of(*late, overhead_ns=[0, 40 * US]) == ()


def test_the_job_gains_what_the_rank_that_waits_least_gains():
    # Without rank 2 the job would wait for rank 1: 60 of the 90 us would remain.
    [found] = stragglers_of(*job_of([50] * 6, [60] * 6, [90] * 6))

    assert (found.rank, found.cost_ns) == (2, 30 * US)
    assert dict(zip(found.waiting_ranks, found.wait_ns, strict=True)) == {0: 30 * US, 1: 30 * US}


def test_ranks_wait_for_a_straggler_of_another_group_through_a_third():
    # Tensor parallel in pairs, then data parallel across them: rank 3 meets rank 0 nowhere. It
    # waits for rank 1 or 2, which waited for rank 0.
    groups = [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    slow, even = [90, 50] * 6, [50, 50] * 6

    parts, matches = job_of(slow, even, even, even, groups=groups, collectives_per_step=2)

    [found] = stragglers_of(parts, matches)

    assert (found.rank, found.cause, found.waiting_ranks) == (0, "more_work", (1, 2, 3))
    assert found.cost_ns == 40 * US
    of_second_step = rows_of(parts, matches)[4:8]
    assert [(x.ranks, x.last_rank, x.cause) for x in of_second_step] == [
        ((0, 1), 0, "more_work"),
        ((2, 3), None, None),
        ((0, 2), 0, "more_work"),
        ((1, 3), 1, "other_collective"),
    ]
    assert of_second_step[-1].why == "waited for rank 0 in another collective"


def test_lateness_behind_compute_costs_nothing():
    # Rank 0 waits for 40 us in each collective, beside 50 us of compute.
    assert stragglers_of(*job_of([Turn(10, beside=50)] * 6, [Turn(50, beside=10)] * 6)) == ()


def test_a_rank_that_is_late_in_one_step_is_no_straggler():
    assert stragglers_of(*job_of([50] * 6, [50, 50, 50, 200, 50, 50])) == ()


def test_ranks_that_are_late_now_and_then_are_no_stragglers():
    assert stragglers_of(*job_of([50, 52, 50, 52, 50, 52], [52, 50, 52, 50, 52, 50])) == ()


def test_ranks_take_turns_in_having_the_most_to_compute(snapshot):
    first, second = [50, 90, 40, 95, 50, 80, 45], [50, 40, 80, 50, 90, 50, 95]

    [found] = stragglers_of(*job_of(first, second))

    assert found.cause == "uneven_work"
    assert figures(found.why) == ["3", "7", "0", "4"]
    assert found.why == snapshot
    # In each step the longest is 40 to 55 us above the other, and so half of that above the mean.
    assert 20 * US <= found.cost_ns <= 23 * US
    assert found.shared_out_ns == found.cost_ns


def test_messages_of_a_pipeline_have_no_straggler():
    parts, matches = job_of([50] * 6, [90] * 6)
    messages = replace(matches, basis=np.full(6, Basis.PEERS, np.int8))

    assert stragglers_of(parts, messages, in_pipeline=True) == ()
    assert len(stragglers_of(parts, matches, in_pipeline=True)) == 1


def exchanges_of(parts):
    """The same ranks where each kernel is a send and a receive instead of a collective."""
    pairs = np.repeat(np.arange(6), 2)
    columns = [name for name in OPERATION_COLUMNS if name != "operation"]
    return [
        replace(
            part,
            **{name: getattr(part, name)[pairs] for name in columns},
            operation=np.tile(np.array([Operation.SEND, Operation.RECV], np.int8), 6),
            exposed_index=2 * part.exposed_index,
        )
        for part in parts
    ]


def test_messages_have_a_straggler_where_ranks_exchange_them():
    parts, matches = job_of([50] * 6, [90] * 6)
    sends = [replace(part, operation=np.full(6, Operation.SEND, np.int8)) for part in parts]
    messages = replace(matches, basis=np.full(6, Basis.PEERS, np.int8))
    exchanges = exchanges_of(parts)
    both = matches_of(*([(0, x), (1, x + 1 - 2 * (x % 2))] for x in range(12)), basis=Basis.PEERS)

    assert stragglers_of(sends, messages) == ()
    [found] = stragglers_of(exchanges, both)
    assert (found.rank, found.cause, found.cost_ns) == (1, "more_work", 40 * US)
    # Both messages of a kernel are late for the same reason.
    assert [(x.last_rank, x.cause) for x in rows_of(exchanges, both)[2:4]] == [(1, "more_work")] * 2


def test_in_a_ring_a_rank_is_waited_for_alone_once_the_other_neighbor_has_come():
    # Each sends to the next and receives from the one before, in one kernel. Rank 1 waits for rank
    # 2 and rank 0 for 50 us, then for rank 0 alone.
    parts, _ = job_of([110] * 6, [10] * 6, [60] * 6)
    ring = [
        sorted([(rank, 2 * number), ((rank + 1) % 3, 2 * number + 1)])
        for number in range(6)
        for rank in range(3)
    ]

    [found] = stragglers_of(exchanges_of(parts), matches_of(*ring, basis=Basis.PEERS))

    assert (found.rank, found.cause, found.cost_ns) == (0, "more_work", 50 * US)
    assert dict(zip(found.waiting_ranks, found.wait_ns, strict=True)) == {1: 50 * US, 2: 50 * US}


def test_without_steps_the_recording_counts_as_one():
    parts, matches = job_of([50] * 6, [90] * 6, collectives_per_step=100)

    [found] = stragglers_of(parts, matches)

    # Of six collectives the first shows only who was behind when the recording began.
    assert (found.steps, found.steps_seen, found.cost_ns) == (0, 0, 5 * 40 * US)


def test_two_collectives_a_step_add_up():
    [found] = stragglers_of(*job_of([50] * 12, [90, 50] * 6, collectives_per_step=2))

    assert (found.steps, found.cost_ns) == (6, 40 * US)


def test_each_collective_says_who_came_last_and_why():
    together, late, _ = rows_of(*job_of([50, 50, 50], [50, 90, 50]))

    assert (together.last_rank, together.cause, together.why) == (None, None, "")
    assert (late.ranks, late.wait_ns, late.transfer_ns) == ((0, 1), (40 * US, 0), (10 * US,) * 2)
    assert (late.operation, late.step, late.sequence) == ("all_reduce", 1, None)
    assert (late.last_rank, late.cause) == (1, "more_work")
    assert (late.message_bytes, late.algorithm_gbps, late.bus_gbps) == (None, None, None)


# --- without the profiler ---

STEPS = 6
# The profiler keeps the host of rank 0 for 140 us a step before it launches 60 us of work.
SLOWED = [Turn(60, idle=140)] * STEPS


def job_of_recorded(*ranks, plain):
    """What is said of a job whose step takes so long without the profiler."""
    rows, _ = rows_of_job(*ranks, transfer=10, collectives_per_step=1)
    parts = [part_of(*of_rank) for of_rank in enumerate(rows)]
    return merge(parts, tables_of(rows, plain))


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
