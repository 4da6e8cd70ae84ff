"""What was in the way of a row. Times are ticks of 10 us: 2 ticks need no explanation, 3 do."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    call,
    comm,
    graph,
    kernel,
    launch,
    memset,
    operator,
    sync_row,
)
from tests.examples import examples
from tests.reference.ticks import TICK, beside_allocations, scaled, wait, work
from tests.reference.walks import Walks
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers
from tracelab.model.trace import ABSENT

ROW, OTHER = 0, 2  # event ids: each of the two comes with its launch, see `between`


def between(row, other, *rows, since):
    """What kept the first activity from overlapping the second, which ran since a tick."""
    made_graph = graph(*scaled([*row, *other, *rows]))
    events = made_graph.host.timeline.event_id.tolist()
    [blocker], [blocking_call_id] = OverlapBlockers(made_graph).between(
        *(np.array([x]) for x in (events.index(ROW), events.index(OTHER), since * TICK))
    )
    return blocker, blocking_call_id


@examples(150)
@given(st.one_of(random_rows(), beside_allocations(random_rows())))
def test_blocker_is_the_one_that_a_slow_walk_finds(rows):
    rows = scaled(rows)
    made_graph = graph(*rows)
    walks, start = Walks(rows, made_graph), made_graph.host.timeline.start_ns
    row, other = (x.ravel() for x in np.indices((len(start), len(start))))

    for since in (start[other], np.maximum(start[row] - 8 * TICK, 0)):
        blocker, blocking_call_id = OverlapBlockers(made_graph).between(row, other, since)

        cases = zip(row.tolist(), other.tolist(), since.tolist(), strict=True)
        expected = [walks.between(*case) for case in cases]
        assert list(zip(blocker.tolist(), blocking_call_id.tolist(), strict=True)) == expected


# In every other test, a collective runs in stream 20 of device 0 from tick 10 to 30.


def collective(**changed):
    return work(10, 30, 1, 1, maker=comm, **({"stream": 20} | changed))


def test_same_stream():
    # Both in stream 7, launched at 1 and 3: what begins at 30 had to come after.
    explanation = between(work(30, 40, 3, 3), collective(stream=7), since=10)

    assert explanation == (OverlapBlocker.SAME_STREAM, ABSENT)


def test_same_stream_over_a_memset():
    between_them = work(30, 31, 2, 2, maker=memset)

    explanation = between(work(31, 40, 3, 3), collective(stream=7), *between_them, since=10)

    assert explanation == (OverlapBlocker.SAME_STREAM, ABSENT)


def test_event_wait():
    # The record at 2 comes after the collective's launch at 1, the wait at 3 before the kernel's.
    waits = wait(3, 10, stream=7, of=20, recorded=2)

    assert between(work(30, 40, 4, 4), collective(), *waits, since=10) == (
        OverlapBlocker.EVENT_WAIT,
        ABSENT,
    )


def test_event_wait_over_a_memset():
    # The memset waited for the collective, the kernel for nothing but the memset before it.
    waits = wait(3, 10, stream=7, of=20, recorded=2)
    waiting = work(30, 31, 4, 4, maker=memset)

    explanation = between(work(31, 40, 5, 5), collective(), *waits, *waiting, since=10)

    assert explanation == (OverlapBlocker.EVENT_WAIT, ABSENT)


def test_event_wait_for_what_came_after_in_the_other_stream():
    # In stream 20 a kernel follows the collective until 32; the record comes after both.
    after = work(30, 32, 2, 2, stream=20)
    waits = wait(4, 10, stream=7, of=20, recorded=3)

    explanation = between(work(32, 40, 5, 5), collective(), *after, *waits, since=10)

    assert explanation == (OverlapBlocker.EVENT_WAIT, ABSENT)


@pytest.mark.parametrize(
    ("start", "blocker"), [(33, OverlapBlocker.EVENT_WAIT), (34, OverlapBlocker.UNKNOWN)]
)
def test_wait_that_names_nothing_was_for_what_ended_just_before(start, blocker):
    # The kernel, free and launched at 5, begins 30 us after the collective has ended, or 40. No
    # event was recorded before the wait, so the times alone do not say what it was for.
    waits = [
        call("cudaStreamWaitEvent", 3, 3, correlation=10),
        sync_row("Stream Wait Event", 3, 3, correlation=10, device=0, stream=7),
    ]

    explanation = between(work(start, 50, 4, 4), collective(), *waits, since=10)

    assert explanation == (blocker, ABSENT)


def test_wait_of_which_no_stream_is_known_may_be_any():
    # Without CUPTI's rows the file only tells that some stream was made to wait.
    waits = [call("cudaStreamWaitEvent", 3, 3, correlation=10)]

    assert between(work(30, 40, 4, 4), collective(), *waits, since=10) == (
        OverlapBlocker.EVENT_WAIT,
        ABSENT,
    )


def test_late_launch():
    explanation = between(work(36, 40, 35, 3), collective(), since=10)

    assert explanation == (OverlapBlocker.LATE_LAUNCH, ABSENT)


def test_host_sync_is_the_call_that_held_longest_since_the_other_ran():
    # GIVEN a kernel launched at 35; since 10, the call of event 4 blocked for 2 ticks (although 10
    # in all), event 5 for 19, and event 6 began only after the launch
    calls = [
        call("cudaEventSynchronize", 2, 12),
        call("cudaStreamSynchronize", 13, 32),
        call("cudaStreamSynchronize", 36, 60),
    ]

    # WHEN
    explanation = between(work(36, 40, 35, 3), collective(), *calls, since=10)

    # THEN
    assert explanation == (OverlapBlocker.HOST_SYNC, 5)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 10), (35, 40)], ids=["over before", "only after the launch"]
)
def test_blocking_call_at_another_time_made_no_launch_late(start, end):
    blocking = call("cudaStreamSynchronize", start, end)

    explanation = between(work(37, 45, 35, 3), collective(), blocking, since=10)

    assert explanation == (OverlapBlocker.LATE_LAUNCH, ABSENT)


def test_blocking_call_of_another_thread_is_to_blame_only_if_this_one_waited():
    # GIVEN a synchronize of another thread (event 4) from 12 to 33, and the launching thread in an
    # operator meanwhile, or in nothing
    blocking = call("cudaStreamSynchronize", 12, 33, thread=AUTOGRAD)
    late, busy = work(36, 40, 35, 3), operator("aten::mm", 11, 34)
    other = work(90, 91, 80, 8, thread=AUTOGRAD, stream=9)  # that thread launches, too

    # WHEN
    at_work, waiting = (
        between(late, collective(), blocking, *other, *more, since=10) for more in ([busy], [])
    )

    # THEN
    assert at_work == (OverlapBlocker.LATE_LAUNCH, ABSENT)
    assert waiting == (OverlapBlocker.HOST_SYNC, 4)


# A kernel whose launch call took long: allocations of another thread may have stalled it.


@pytest.mark.parametrize("launched", [12, 5], ids=["after", "before the other began"])
@pytest.mark.parametrize(
    ("allocations", "guilty"),
    [
        ([(4, 34)], 4),
        ([(4, 35)], 4),  # both return together
        ([(13, 15), (15, 34)], 5),  # the second one went on for 19 ticks, the first for 2
        ([(13, 32), (32, 34)], 4),
    ],
)
def test_allocation_that_held_up_the_launch_is_to_blame(launched, allocations, guilty):
    blocked = [kernel(36, 40, correlation=3), launch(launched, 35, 3)]
    calls = [call("cudaHostAlloc", *x, thread=AUTOGRAD) for x in allocations]

    explanation = between(blocked, collective(), *calls, since=10)

    assert explanation == (OverlapBlocker.HOST_SYNC, guilty)


def test_allocation_that_returned_after_the_launch_is_not_to_blame():
    slow = [kernel(36, 40, correlation=3), launch(12, 35, 3)]

    explanation = between(
        slow, collective(), call("cudaHostAlloc", 4, 36, thread=AUTOGRAD), since=10
    )

    assert explanation == (OverlapBlocker.LATE_LAUNCH, ABSENT)


# Nothing orders the two.


def test_hardware_queue():
    # Launched at 2 (until 3) in a stream that is free from 8 on, it could have begun at 10: 20
    # ticks later is more than a launch takes.
    before = work(4, 8, 0, 2)

    explanation = between(work(30, 40, 2, 3), collective(), *before, since=10)

    assert explanation == (OverlapBlocker.HARDWARE_QUEUE, ABSENT)


def test_hardware_queue_that_held_the_work_behind_the_other():
    # The memset of the collective's own stream waits for the collective, and what was launched
    # after it, in a stream that is free, waits for both.
    memset_after = work(30, 33, 2, 2, maker=memset, stream=20)

    explanation = between(work(34, 40, 3, 3), collective(), *memset_after, since=10)

    assert explanation == (OverlapBlocker.HARDWARE_QUEUE, ABSENT)


@pytest.mark.parametrize(
    ("start", "blocker"),
    [
        (11, OverlapBlocker.TRUE_DEPENDENCY),
        (12, OverlapBlocker.UNKNOWN),  # the collective runs, but takes few multiprocessors
        (33, OverlapBlocker.HARDWARE_QUEUE),  # it ended 30 us before
        (34, OverlapBlocker.UNKNOWN),  # it ended 40 us before
    ],
)
def test_start_that_needs_an_explanation(start, blocker):
    # Its launch had returned at 9, before the collective began: 20 us later is not late, 30 us are.
    assert between(work(start, 40, 8, 3), collective(), since=10)[0] == blocker


def test_kernel_that_left_no_multiprocessor():
    # As before at 12, but what runs from 10 on is compute.
    other = work(10, 30, 1, 1, stream=13)

    assert between(work(12, 40, 8, 3), other, since=10) == (OverlapBlocker.NO_FREE_SM, ABSENT)


# A collective behind another one: NCCL runs those of a communicator in turn, whatever their stream.


def second_collective(*, first_device=0):
    """A kernel (other) from 10 to 30, a collective that waits for it, and one more (row).

    The second begins at 41, in stream 21, launched at 5 and waiting for no event.
    """
    blocked = work(41, 50, 5, 5, maker=comm, stream=21)
    compute = work(10, 30, 1, 1, maker=kernel)
    first = work(30, 40, 4, 4, maker=comm, stream=20, device=first_device)
    return [blocked, compute, *first, *wait(3, 10, stream=20, of=7, recorded=2)]


def test_collective_behind_another_waits_for_what_that_one_waited_for():
    assert between(*second_collective(), since=29) == (OverlapBlocker.EVENT_WAIT, ABSENT)


def test_collective_behind_another_in_the_stream_that_computes():
    # The one before it is in stream 7: this one is not, but waited for it all the same.
    row, other, *_ = second_collective()
    first = work(30, 40, 4, 4, maker=comm, stream=7)

    assert between(row, other, *first, since=29) == (OverlapBlocker.EVENT_WAIT, ABSENT)


def test_collective_behind_another_that_was_launched_late():
    # Both collectives are launched at 36 although the compute before them was over at 30.
    other = work(10, 30, 1, 1, maker=kernel)
    late = work(37, 40, 36, 4, maker=comm, stream=20)
    row = work(43, 50, 36, 5, maker=comm, stream=21)

    assert between(row, other, *late, since=29) == (OverlapBlocker.LATE_LAUNCH, ABSENT)


def test_collective_is_not_behind_one_of_another_device():
    assert between(*second_collective(first_device=1), since=29)[0] == OverlapBlocker.UNKNOWN


def test_compute_is_not_behind_a_collective_of_another_stream():
    row, *others = second_collective()
    row = work(41, 50, 5, 5, stream=21)

    assert between(row, *others, since=29)[0] == OverlapBlocker.HARDWARE_QUEUE


# Nothing was in the way.


def test_own_work_that_ended_before_was_not_in_the_way():
    # The stream's last kernel ended at 9, before the collective began at 10, and the row begins at
    # 11, a latency after it could.
    before = work(4, 9, 0, 2)

    explanation = between(work(11, 20, 3, 3), collective(), *before, since=10)

    assert explanation == (OverlapBlocker.TRUE_DEPENDENCY, ABSENT)


def test_own_work_that_ended_before_is_not_in_the_way_even_of_its_kind():
    # As before, and the other is compute as well, in a stream of its own.
    before, other = work(4, 9, 0, 2), work(10, 30, 1, 1, stream=13)

    explanation = between(work(11, 20, 3, 3), other, *before, since=10)

    assert explanation == (OverlapBlocker.TRUE_DEPENDENCY, ABSENT)


def test_of_work_without_a_launch_in_the_file_nothing_is_known():
    unlaunched = [kernel(12, 20, correlation=9), launch(50, 51, 60)]

    assert between(unlaunched, collective(), since=10) == (OverlapBlocker.UNKNOWN, ABSENT)


@pytest.mark.parametrize(
    ("count", "blocker"), [(15, OverlapBlocker.EVENT_WAIT), (16, OverlapBlocker.TRUE_DEPENDENCY)]
)
def test_way_back_is_given_up_after_16_activities(count, blocker):
    # Memsets of one tick, one after the other before the row; the first waited for the collective.
    waits = wait(3, 10, stream=7, of=20, recorded=2)
    memsets = [row for i in range(count) for row in work(30 + i, 31 + i, 4, 20 + i, maker=memset)]

    explanation = between(work(30 + count, 60, 5, 5), collective(), *waits, *memsets, since=10)

    assert explanation == (blocker, ABSENT)
