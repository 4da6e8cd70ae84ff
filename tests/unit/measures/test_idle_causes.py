from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.flat import flat
from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    PAGEABLE_H2D,
    US,
    WATCHDOG,
    annotation,
    call,
    copy,
    event_row,
    graph,
    kernel,
    launch,
    operator,
    python,
    step,
    sync_row,
)
from tests.examples import examples
from tests.reference.ticks import (
    TICK,
    Account,
    beside_allocations,
    beside_the_profiler_and_waits,
    scaled,
)
from tracelab.base.intervals import union
from tracelab.measures.idle_causes import Cause, bubbles, mark_beginnings_as_edges
from tracelab.model.binding import REASONS, Reason
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT, Category


def pieces(*rows, device=0):
    """Start, end and cause of each piece of a device's idle in the whole trace; reasons as such."""
    made_graph = graph(*rows)
    idle = flat(bubbles(made_graph, made_graph.host.timeline.windows[:1]))
    return [
        (start, end, (Reason(reason) if cause == Cause.UNKNOWN else Cause(cause)).name.lower())
        for number, start, end, cause, reason in zip(
            idle.device_number.tolist(),
            idle.start_ns.tolist(),
            idle.end_ns.tolist(),
            idle.cause.tolist(),
            idle.reason.tolist(),
            strict=True,
        )
        if number == device
    ]


# What must hold of every trace.


@examples(200)
@given(
    st.one_of(
        random_rows(),
        beside_allocations(random_rows()),
        beside_the_profiler_and_waits(random_rows()),
    )
)
def test_every_idle_nanosecond_has_the_cause_of_the_definition(rows):
    # GIVEN
    account, made_graph = Account(rows), graph(*scaled(rows))
    timeline = made_graph.host.timeline
    events, binding = timeline.event_id.tolist(), made_graph.binding
    awaited = {
        event: int(timeline.end_ns[source]) // TICK
        for event, source in zip(events, binding.source_row.tolist(), strict=True)
        if source != ABSENT
        and timeline.device_number[source] != timeline.device_number[events.index(event)]
    }
    reasons = dict(zip(events, map(Reason, binding.reason.tolist()), strict=True))

    # WHEN
    idle = flat(bubbles(made_graph))

    # THEN the pieces of a device are disjoint, in order, and tick for tick what they should be
    for device in timeline.device_numbers:
        causes = {}
        for i in (idle.device_number == device).nonzero()[0].tolist():
            ticks = range(int(idle.start_ns[i]) // TICK, int(idle.end_ns[i]) // TICK)
            assert len(ticks) > 0
            assert not causes or max(causes) < ticks[0]
            causes |= dict.fromkeys(ticks, (Cause(idle.cause[i]), Reason(idle.reason[i])))
        assert causes == account.causes(device, awaited, reasons)


@examples(40)
@given(random_rows())
def test_causes_add_up_to_the_idle_of_every_window_and_reasons_to_the_unknown(rows):
    account, made_graph = Account(rows), graph(*scaled(rows))
    windows = made_graph.host.timeline.windows

    idle = bubbles(made_graph, windows)

    for device in account.devices:
        busy = account.busy(account.of(device))
        for window, causes, reasons in zip(
            account.windows,
            idle.by_cause(device, windows),
            idle.by_reason(device, windows),
            strict=True,
        ):
            expected = sum(t not in busy for t in range(window.start, window.end))
            assert list(causes) == [cause.name.lower() for cause in Cause]
            assert sum(causes.values()) == expected * TICK
            assert sum(reasons.values()) == causes["unknown"]
            assert all(reasons.values())


@st.composite
def selected(draw):
    """Bubbles, and some of them with some of their pieces, each as a mask."""
    idle = bubbles(graph(*scaled(draw(random_rows()))))
    of_bubble, of_piece = (
        np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=np.bool_)
        for count in (len(idle.first), len(idle.cause))
    )
    return idle, of_bubble, of_piece


@examples(60)
@given(selected(), st.integers(1, 6))
def test_selected_pieces_are_those_of_the_bubbles_one_by_one(some, most):
    # GIVEN the pieces of each bubble by themselves
    idle, of_bubble, of_piece = some
    pairs = [
        (row, piece)
        for row in range(len(idle.first))
        for piece in range(int(idle.first[row]), int(idle.end[row]))
    ]
    chosen = [(row, piece) for row, piece in pairs if of_bubble[row] and of_piece[piece]]
    length = (idle.end_ns - idle.start_ns).tolist()

    # THEN their time, their sums and the longest of them are the same
    selection, length_ns = [(of_bubble, of_piece)], np.array(length, dtype=np.int64)
    time = idle.idle(selection)
    for device in {*idle.device_number.tolist()}:
        own = [piece for row, piece in chosen if idle.device_number[row] == device]
        expected = union(idle.start_ns[own], idle.end_ns[own])
        assert time.intervals(device).starts.tolist() == expected.starts.tolist()
        assert time.intervals(device).ends.tolist() == expected.ends.tolist()
    sums, covered = idle.sums(length_ns).tolist(), idle.covered(of_bubble).tolist()
    for row, total in enumerate(sums):
        assert total == sum(length[piece] for other, piece in pairs if other == row)
    for piece, count in enumerate(covered):
        assert count == sum(of_bubble[row] for row, other in pairs if other == piece)
    found = idle.longest(selection, length_ns, most)
    by_length = sorted(chosen, key=lambda pair: (-length[pair[1]], pair))
    assert list(zip(*(x.tolist() for x in found), strict=True)) == by_length[:most]
    for row, piece in enumerate(idle.last_longest(length_ns).tolist()):
        assert piece == max((x for other, x in pairs if other == row), key=lambda x: (length[x], x))


def test_devices_that_wait_for_one_thread_share_its_pieces():
    # GIVEN two devices of which one is idle from 20 on, the other from 25, until the same thread
    # launches on each behind ten operators
    operators = [operator("aten::mm", start, start + 5) for start in range(30, 130, 10)]
    made_graph = graph(
        *(launch(i, i + 1, 1 + i) for i in range(2)),
        *(kernel(5, 20 + 5 * i, device=i, correlation=1 + i) for i in range(2)),
        *operators,
        *(launch(140 + i, 141 + i, 3 + i) for i in range(2)),
        *(kernel(150, 160, device=i, correlation=3 + i) for i in range(2)),
    )

    # WHEN
    idle = bubbles(made_graph)

    # THEN each has all its pieces and the latency, and there are few more than one of them has
    assert [int((flat(idle).device_number == device).sum()) for device in (0, 1)] == [22, 23]
    assert len(idle.cause) < 30


def test_every_reason_is_worded():
    assert set(REASONS) == set(Reason) - {Reason.NONE}


# Before the launch of the next activity: what the host did. In these tests the GPU is idle in
# [10, 60), and the activity that starts at 60 is launched at 50.


def idle_until_launched_at_50(*doing, thread=MAIN):
    return [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        launch(50, 55, 2, thread=thread),
        kernel(60, 70, correlation=2),
        *doing,
    ]


# In us: device 0 is idle in [10, 412); the call that launches what ends it lasts from 50 to 410,
# unless a test says otherwise, and what allocates meanwhile is a thread that launches nothing.


def launched_slowly(*allocations, until=410, thread=AUTOGRAD):
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        launch(50, until, 2),
        kernel(412, 420, correlation=2),
        *(call("cudaHostAlloc", *times, thread=thread) for times in allocations),
    ]
    scaled_rows = (replace(row, start=row.start * US, end=row.end * US) for row in rows)
    return [(start // US, end // US, cause) for start, end, cause in pieces(*scaled_rows)]


@pytest.mark.parametrize(
    "allocations",
    [
        [(40, 400)],  # 350 of the 360 us
        [(40, 410)],  # both return together
        [(40, 230)],  # 180 us: half of it
        [(40, 140), (140, 240)],  # 90 and 100 us: more than half
    ],
)
def test_launch_that_another_threads_allocation_stalled_was_blocked(allocations):
    assert launched_slowly(*allocations) == [
        (10, 50, "host_not_recorded"),
        (50, 410, "host_blocked"),
        (410, 412, "launch"),
    ]


def test_stalled_launch_is_blocked_from_the_allocations_beginning():
    assert launched_slowly((60, 400))[1:3] == [(50, 60, "host_busy"), (60, 410, "host_blocked")]


@pytest.mark.parametrize(
    "allocations",
    [
        [],
        [(40, 229)],  # 179 of 360 us: less than half of it
        [(40, 411)],  # it returns after the launch, which therefore did not wait for it
        [(200, 200)],
    ],
)
def test_long_launch_that_no_allocation_stalled_is_a_launch(allocations):
    assert launched_slowly(*allocations) == [(10, 50, "host_not_recorded"), (50, 412, "launch")]


def test_short_launch_beside_an_allocation_is_a_launch():
    # The call lasts for 100 us, not for more; it must be more for the allocation to be to blame.
    assert launched_slowly((40, 350), until=350)[1] == (50, 350, "host_blocked")
    assert launched_slowly((40, 150), until=150)[1] == (50, 412, "nothing_in_the_way")


def test_allocation_of_the_launching_thread_itself_is_an_ordinary_blocking_call():
    assert launched_slowly((20, 45), thread=MAIN) == [
        (10, 20, "host_not_recorded"),
        (20, 45, "host_blocked"),
        (45, 50, "host_not_recorded"),
        (50, 412, "launch"),
    ]


def test_step_hides_neither_what_another_thread_waited_for_nor_what_is_unknown_outside_it():
    # The step has a name and no events: [20, 30) another thread is blocked, which is; the rest of
    # the step, [10, 20) and [30, 40), is taken for Python; in [40, 50) nothing is known at all.
    rows = idle_until_launched_at_50(
        annotation("ProfilerStep#1", 5, 40),
        call("cudaStreamSynchronize", 20, 30, thread=AUTOGRAD),
        launch(70, 71, 9, thread=AUTOGRAD),
        kernel(72, 73, correlation=9, stream=9),
    )

    assert pieces(*rows)[:4] == [
        (10, 20, "host_busy"),
        (20, 30, "host_blocked"),
        (30, 40, "host_busy"),
        (40, 50, "host_not_recorded"),
    ]


def test_a_thread_that_launches_nothing_holds_up_nobody():
    rows = idle_until_launched_at_50(
        annotation("ProfilerStep#1", 5, 50),
        call("cudaStreamSynchronize", 20, 30, thread=AUTOGRAD),
    )

    assert pieces(*rows) == [(10, 50, "host_busy"), (50, 60, "launch")]


def test_host_blocked():
    # [10, 30) the call blocks; [30, 50) nothing is recorded; [50, 60) from launch to start.
    rows = idle_until_launched_at_50(call("cudaStreamSynchronize", 5, 30))

    assert pieces(*rows) == [
        (10, 30, "host_blocked"),
        (30, 50, "host_not_recorded"),
        (50, 60, "launch"),
    ]


def test_input():
    # The data loader is entered at 20 and left at 45.
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 45)

    assert pieces(*idle_until_launched_at_50(operator("aten::mm", 5, 50), loader)) == [
        (10, 20, "host_busy"),
        (20, 45, "input"),
        (45, 50, "host_busy"),
        (50, 60, "launch"),
    ]


@pytest.mark.parametrize(
    "doing",
    [
        operator("aten::mm", 10, 50),
        python("train.py(3): step", 10, 50),
        annotation("forward", 10, 50),
        launch(10, 50, 9),
        call("cudaFuncGetAttributes", 10, 50),
        call("cudaEventQuery", 10, 50),
        call("cudaStreamWaitEvent", 10, 50),
    ],
)
def test_host_busy(doing):
    assert pieces(*idle_until_launched_at_50(doing)) == [
        (10, 50, "host_busy"),
        (50, 60, "launch"),
    ]


def test_blocking_call_comes_before_the_loader_and_that_before_the_operator_around_it():
    rows = idle_until_launched_at_50(
        step(1, 0, 80),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 15, 45),
        call("cudaStreamSynchronize", 20, 40),
    )

    assert pieces(*rows) == [
        (10, 15, "host_busy"),
        (15, 20, "input"),
        (20, 40, "host_blocked"),
        (40, 45, "input"),
        (45, 50, "host_busy"),
        (50, 60, "launch"),
    ]


def test_launch_by_another_thread_while_the_main_thread_sat_in_item():
    # GIVEN autograd's thread launches at 50; it did nothing before 45, when .item() had ended
    rows = idle_until_launched_at_50(
        operator("aten::item", 8, 40),
        call("cudaStreamSynchronize", 10, 35),
        operator("MmBackward0", 45, 56, thread=AUTOGRAD),
        thread=AUTOGRAD,
    )

    # THEN before, the main thread is what all waited for: blocked until 35, busy until 40
    assert pieces(*rows) == [
        (10, 35, "host_blocked"),
        (35, 40, "host_busy"),
        (40, 45, "host_not_recorded"),
        (45, 50, "host_busy"),
        (50, 60, "launch"),
    ]


def test_what_the_launching_thread_did_comes_before_what_others_did():
    # Autograd's thread is busy all the time that the main thread is blocked.
    rows = idle_until_launched_at_50(
        call("cudaStreamSynchronize", 10, 50),
        operator("MmBackward0", 5, 56, thread=AUTOGRAD),
        thread=AUTOGRAD,
    )

    assert pieces(*rows) == [(10, 50, "host_busy"), (50, 60, "launch")]


def test_a_thread_in_a_lock_waits_for_what_the_others_do():
    # In ticks: the main thread waits [1, 5) and launches at 5. Autograd's is blocked [2, 3) and in
    # an operator [3, 4); of the rest the file does not say what the other thread did.
    rows = scaled(
        [
            kernel(0, 1, correlation=1),
            launch(0, 1, 1),
            kernel(6, 7, correlation=2),
            launch(5, 6, 2),
            python("train.py(3): step", 0, 6),
            python("threading.py(1087): join", 1, 5),
            call("cudaStreamSynchronize", 2, 3, thread=AUTOGRAD),
            operator("aten::mm", 3, 4, thread=AUTOGRAD),
            launch(9, 10, 3, thread=AUTOGRAD),
            kernel(11, 12, correlation=3, stream=9),
        ]
    )

    assert [(start // TICK, end // TICK, cause) for start, end, cause in pieces(*rows)][:5] == [
        (1, 2, "host_busy"),
        (2, 3, "host_blocked"),
        (3, 4, "host_busy"),
        (4, 5, "host_busy"),
        (5, 6, "launch"),
    ]


def test_watchdog_explains_nothing():
    rows = idle_until_launched_at_50(
        call("cudaEventSynchronize", 10, 30, thread=WATCHDOG),
        call("cudaEventQuery", 30, 50, thread=WATCHDOG),
    )

    assert pieces(*rows) == [(10, 50, "host_not_recorded"), (50, 60, "launch")]


def test_host_that_is_not_recorded():
    assert pieces(*idle_until_launched_at_50()) == [
        (10, 50, "host_not_recorded"),
        (50, 60, "launch"),
    ]


# After the launch: what the GPU waited for.


def test_launched_while_the_gpu_was_busy_leaves_the_latency_of_a_launch():
    rows = [
        launch(0, 1, 1),
        launch(2, 3, 2),
        kernel(1, 10, correlation=1),
        kernel(12, 70, correlation=2),
    ]

    assert pieces(*rows) == [(10, 12, "launch")]


def test_activity_that_starts_within_its_launch_call():
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        launch(20, 90, 2),
        kernel(30, 70, correlation=2),
        operator("aten::mm", 0, 90),
    ]

    assert pieces(*rows) == [(10, 20, "host_busy"), (20, 30, "launch")]


@pytest.mark.parametrize(("late_ns", "cause"), [(22_112, "launch"), (22_113, "nothing_in_the_way")])
def test_start_long_after_the_end_of_the_launch_with_nothing_in_the_way(late_ns, cause):
    # The launch call ends at 53 us. A kernel typically starts 2,112 ns after that; 20 us more are
    # still taken for a launch, another nanosecond is not.
    start = 53 * US + late_ns
    rows = [
        launch(0, US, 1),
        kernel(US, 50 * US, correlation=1),
        launch(10 * US, 53 * US, 2),
        kernel(start, 200 * US, correlation=2),
    ]

    assert pieces(*rows) == [(50 * US, start, cause)]


def test_dependency_on_another_device():
    # GIVEN device 1's kernel, launched at 4, waits for an event of device 0, which computes until
    # 50; device 1 idles from 10 on
    rows = [
        launch(0, 1, 1),
        kernel(2, 50, correlation=1),
        launch(1, 2, 2),
        kernel(2, 10, device=1, correlation=2),
        call("cudaEventRecord", 2, 2, correlation=3),
        event_row(50, correlation=3, event=8),
        sync_row("Stream Wait Event", 3, 3, correlation=4, device=1, stream=7, event=8),
        launch(4, 5, 5),
        kernel(53, 60, device=1, correlation=5),
    ]

    # THEN it waited from 10 to 50, and started 3 ns after that
    assert pieces(*rows, device=1) == [(10, 50, "dependency"), (50, 53, "launch")]
    assert pieces(*rows, device=0) == [(50, 60, "edge")]


def test_dependency_counts_from_the_launch_on():
    # As before, but launched only at 30: until then the host is what it waited for.
    rows = [
        launch(0, 1, 1),
        kernel(2, 50, correlation=1),
        launch(1, 2, 2),
        kernel(2, 10, device=1, correlation=2),
        call("cudaEventRecord", 2, 2, correlation=3),
        event_row(50, correlation=3, event=8),
        sync_row("Stream Wait Event", 3, 3, correlation=4, device=1, stream=7, event=8),
        operator("aten::mm", 3, 35),
        launch(30, 31, 5),
        kernel(53, 60, device=1, correlation=5),
    ]

    assert pieces(*rows, device=1) == [
        (10, 30, "host_busy"),
        (30, 50, "dependency"),
        (50, 53, "launch"),
    ]


def waits_for_something_unnamed(device):
    return [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        operator("aten::mm", 0, 20),
        sync_row("Stream Wait Event", 15, 15, correlation=3, device=0, stream=7),
        launch(20, 21, 2),
        kernel(50, 60, correlation=2),
        kernel(0, 60, device=device, stream=13),
    ]


def test_wait_without_a_record():
    # Until the launch at 20 it is the host; after it, whatever device 0 waited for.
    rows = waits_for_something_unnamed(device=1)

    assert pieces(*(replace(row, start=row.start * US, end=row.end * US) for row in rows)) == [
        (0, 1 * US, "edge"),
        (10 * US, 20 * US, "host_busy"),
        (20 * US, 50 * US, "wait_without_record"),
    ]


def test_wait_without_a_record_explains_nothing_where_there_is_no_other_device():
    # A stream of the one device that is idle can only wait for another one that is idle too.
    rows = waits_for_something_unnamed(device=1)[:-1]

    assert pieces(*rows) == [(10, 20, "host_busy"), (20, 50, "launch")]


def test_pageable_copy_blocks_from_the_beginning_of_its_call():
    # The call at 20 launches the copy and waits for it; the host was busy before.
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        operator("aten::to", 8, 60),
        launch(20, 55, 2, name="cudaMemcpyAsync"),
        copy(50, 54, PAGEABLE_H2D, correlation=2),
    ]

    assert pieces(*rows) == [(10, 20, "host_busy"), (20, 50, "host_blocked")]


def test_launch_that_is_not_in_the_file():
    rows = [kernel(0, 10, correlation=1), operator("aten::mm", 0, 90), kernel(40, 50)]

    assert pieces(*rows) == [(10, 40, "launch_not_in_file")]


def test_graph():
    # GIVEN a replay launched at 12, with two streams, and a copy of its own in between
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        operator("aten::mm", 0, 90),
        call("cudaGraphLaunch", 12, 14, correlation=2),
        kernel(20, 25, correlation=2),
        kernel(28, 30, correlation=2, stream=13),
        kernel(35, 40, correlation=2),
    ]

    # THEN before its first node it is a launch like any other, after it one graph
    assert pieces(*rows) == [
        (10, 12, "host_busy"),
        (12, 20, "launch"),
        (25, 28, "graph"),
        (30, 35, "graph"),
    ]


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"])
def test_bubble_inside_a_replay_is_the_graphs_whatever_ran_before_it(name):
    # A copy that is not of the graph ends last before the bubble.
    rows = [
        call(name, 0, 2, correlation=1),
        launch(2, 3, 2, name="cudaMemcpyAsync"),
        kernel(5, 20, correlation=1),
        copy(18, 25, correlation=2, stream=13),
        kernel(30, 40, correlation=1),
    ]

    assert pieces(*rows) == [(25, 30, "graph")]


def test_two_kernels_of_one_launch_that_is_no_graph():
    # Old files repeat a correlation: that alone makes no graph.
    rows = [launch(0, 1, 1), kernel(5, 10, correlation=1), kernel(12, 20, correlation=1)]

    assert pieces(*rows) == [(10, 12, "launch")]


def test_edges_of_a_device():
    # Device 1 starts 30 ns after device 0 and ends 40 ns before it.
    rows = [kernel(10, 100), kernel(40, 60, device=1)]

    assert pieces(*rows, device=1) == [(10, 40, "edge"), (60, 100, "edge")]
    assert pieces(*rows, device=0) == []


def test_before_the_first_activity_of_a_step_the_host_is_what_it_waits_for():
    # GIVEN a step that launches its first kernel at 30; what was before the step is no step's
    rows = [
        kernel(0, 5, device=1),
        step(0, 8, 60),
        operator("aten::mm", 10, 30),
        launch(30, 31, 1),
        kernel(33, 50, correlation=1),
    ]
    # A step is an annotation of its thread: without Python's stacks it runs between its operators.
    named = [(8, 10, "host_busy"), (10, 30, "host_busy"), (30, 33, "launch")]
    assert pieces(*rows, device=0) == [(0, 8, "edge"), *named]
    # WHEN the launch belongs to no step, or is not in the file
    of_no_step = [row for row in rows if row.category != Category.ANNOTATION]
    of_no_call = [row for row in rows if row.category != Category.RUNTIME]
    # THEN it is the edge of the recording
    for some in (of_no_step, of_no_call):
        assert pieces(*some, device=0)[0] == (0, 33, "edge")


def test_beginnings_are_edges_for_who_asks_what_a_step_waits_for():
    made_graph = graph(
        step(0, 0, 60),
        operator("aten::mm", 5, 50),
        launch(10, 11, 1),
        kernel(20, 25, correlation=1),
        launch(40, 41, 2),
        kernel(45, 50, correlation=2),
    )
    idle = bubbles(made_graph)
    asked = flat(mark_beginnings_as_edges(made_graph.host.timeline, idle))
    names = [Cause(cause).name for cause in asked.cause]
    assert names == ["EDGE"] * 3 + ["HOST_BUSY", "LAUNCH", "EDGE"]
    assert asked.next_id.tolist() == flat(idle).next_id.tolist()


def test_activities_of_no_length_neither_begin_nor_end_a_bubble():
    # GIVEN zero-length activities before, within and after what keeps the device busy
    rows = [
        kernel(0, 0),
        launch(1, 2, 1),
        kernel(5, 10, correlation=1),
        kernel(15, 15),
        launch(12, 13, 2),
        kernel(20, 30, correlation=2),
        kernel(40, 40, stream=13),
    ]

    # THEN
    assert pieces(*rows) == [
        (0, 5, "edge"),
        (10, 12, "host_not_recorded"),
        (12, 20, "launch"),
        (30, 40, "edge"),
    ]


def test_device_with_nothing_but_activities_of_no_length_was_idle_throughout():
    rows = [kernel(0, 50), kernel(10, 10, device=1), kernel(30, 30, device=1)]

    assert pieces(*rows, device=1) == [(0, 50, "edge")]


def test_of_activities_that_start_together_the_one_of_the_lowest_stream_tells_the_cause():
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        kernel(20, 25, stream=13),
        launch(5, 6, 2),
        kernel(20, 30, correlation=2),
    ]

    assert pieces(*rows) == [(10, 20, "launch")]


def test_next_event_is_the_activity_that_ended_the_bubble():
    made_graph = graph(kernel(10, 20), kernel(30, 40), kernel(0, 90, device=1))

    idle = bubbles(made_graph, made_graph.host.timeline.windows[:1])

    # Before the first, between the two, and after the last activity of device 0.
    assert idle.next_id.tolist() == [0, 1, ABSENT]


def test_windows_cut_the_bubbles():
    # GIVEN idle in [10, 50) for the host and in [50, 60) for the launch
    made_graph = graph(*idle_until_launched_at_50(operator("aten::mm", 0, 50)))
    windows = [Window(1, 0, 30), Window(2, 30, 55), Window(3, 55, 70), Window(4, 70, 90)]

    # WHEN
    causes = bubbles(made_graph, windows).by_cause(0, windows)

    # THEN each window has its part, and what is after the last activity is the edge
    empty = dict.fromkeys((cause.name.lower() for cause in Cause), 0)
    assert causes == [
        empty | {"host_busy": 20, "edge": 1},  # [0, 1) is before the first activity
        empty | {"host_busy": 20, "launch": 5},
        empty | {"launch": 5},
        empty | {"edge": 20},
    ]


def test_causes_of_neighbouring_windows_add_up_to_those_of_both():
    made_graph = graph(*idle_until_launched_at_50(call("cudaStreamSynchronize", 5, 30)))
    bounds = [0, 7, 13, 30, 31, 70]
    parts = [Window(i, start, end) for i, (start, end) in enumerate(pairwise(bounds))]
    whole = Window(None, 0, 70)

    *each, together = bubbles(made_graph, [*parts, whole]).by_cause(0, [*parts, whole])

    assert {name: sum(part[name] for part in each) for name in together} == together


# The profiler's own work.

STEP_CALL = "torch/profiler/profiler.py(884): step"


def test_the_profilers_step_call_is_the_profilers():
    # [10, 90) idle: the launching thread is in the profiler in [20, 50), as its frame says.
    assert pieces(
        python("train.py(3): step", 0, 100),
        launch(0, 1, 1),
        kernel(2, 10, correlation=1),
        python(STEP_CALL, 20, 50),
        launch(88, 89, 2),
        kernel(90, 100, correlation=2),
    ) == [(10, 20, "host_busy"), (20, 50, "profiler"), (50, 88, "host_busy"), (88, 90, "launch")]


@pytest.mark.parametrize(
    "frame",
    [
        "tracelab/record/recorder.py(154): step",
        "/opt/torch/autograd/profiler.py(398): _start_trace",
    ],
)
def test_so_are_the_recorder_and_the_beginning_of_the_recording(frame):
    assert pieces(
        kernel(0, 10, correlation=1),
        launch(0, 1, 1),
        python(frame, 5, 30),
        launch(30, 31, 2),
        kernel(30, 40, correlation=2),
    ) == [(10, 30, "profiler")]


def test_a_region_of_the_users_is_not_the_profilers():
    assert pieces(
        kernel(0, 10, correlation=1),
        launch(0, 1, 1),
        python("torch/autograd/profiler.py(854): __enter__", 5, 30),
        launch(30, 31, 2),
        kernel(30, 40, correlation=2),
    ) == [(10, 30, "host_busy")]


def test_a_call_that_blocks_in_the_profiler_is_the_profilers():
    assert pieces(
        kernel(0, 10, correlation=1),
        launch(0, 1, 1),
        python(STEP_CALL, 5, 30),
        call("cudaDeviceSynchronize", 6, 25),
        launch(30, 31, 2),
        kernel(30, 40, correlation=2),
        step(1, 0, 40),
    ) == [(10, 30, "profiler")]


def between_steps(*more, until=30 * US):
    return pieces(
        step(1, 0, 10 * US),
        launch(0, US, 1),
        kernel(US, 5 * US, correlation=1),
        *more,
        step(2, until, until + 20 * US),
        launch(until + 5 * US, until + 6 * US, 2),
        kernel(until + 5 * US, until + 9 * US, correlation=2),
    )


def test_without_stacks_the_time_between_two_steps_is_the_profilers():
    assert between_steps() == [
        (5 * US, 10 * US, "host_busy"),
        (10 * US, 30 * US, "profiler"),
        (30 * US, 35 * US, "host_busy"),
    ]


@pytest.mark.parametrize(
    "more",
    [
        operator("aten::mm", 12 * US, 13 * US),
        call("cudaEventQuery", 12 * US, 13 * US),
        python("train.py(3): step", 12 * US, 13 * US),
    ],
    ids=["an operator", "a call", "stacks that show no profiler"],
)
def test_unless_something_else_ran_there(more):
    assert "profiler" not in {cause for *_, cause in between_steps(more)}


def test_unless_it_is_longer_than_a_step_call():
    assert "profiler" not in {cause for *_, cause in between_steps(until=600 * US)}


def test_autograds_thread_waits_for_the_main_threads_profiler():
    assert pieces(
        launch(0, 1, 1),
        kernel(0, 10, correlation=1),
        python(STEP_CALL, 5, 30),
        launch(30, 31, 2, thread=AUTOGRAD),
        kernel(30, 40, correlation=2),
    ) == [(10, 30, "profiler")]
