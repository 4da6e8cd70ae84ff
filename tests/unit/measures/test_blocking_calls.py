from dataclasses import replace

from hypothesis import given, strategies as st

from tests.build.random_rows import random_rows
from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    PAGEABLE_H2D,
    US,
    call,
    copy,
    graph,
    kernel,
    launch,
    operator,
    python,
    step,
)
from tests.examples import examples
from tests.reference.ticks import TICK, Account, beside_allocations, scaled
from tracelab.measures.blocking_calls import blocking_call_rows, blocking_calls
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.overlap import device_times
from tracelab.measures.unprofiled_windows import start_up
from tracelab.measures.window_times import window_times
from tracelab.model.program.call_sites import CallSite
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT


def costs(*rows):
    """Event id of each blocking call to the idle that it caused."""
    measured = blocking_calls(graph(*rows))
    return dict(
        zip(measured.calls.event_id.tolist(), measured.caused_idle_ns.tolist(), strict=True)
    )


# What must hold of every trace.


@examples(200)
@given(st.one_of(random_rows(), beside_allocations(random_rows())))
def test_each_call_pays_what_the_definition_says_and_together_no_more_than_the_idle(rows):
    account, made_graph = Account(rows), graph(*scaled(rows))
    timeline = made_graph.host.timeline

    measured = blocking_calls(made_graph)

    paid = dict(
        zip(measured.calls.event_id.tolist(), measured.caused_idle_ns.tolist(), strict=True)
    )
    assert paid == {i: ticks * TICK for i, ticks in account.costs().items()}
    (whole,) = device_times(made_graph, timeline.windows[:1])
    assert measured.caused_idle_ns.sum() <= sum(device.idle_ns for device in whole)
    assert (measured.blocked_ns == measured.calls.end_ns - measured.calls.start_ns).all()
    attributed_ns = [0] * len(measured.calls)
    idle = measured.attributed_idle
    for call_index, length_ns in zip(
        idle.call_index.tolist(), idle.length_ns.tolist(), strict=True
    ):
        attributed_ns[call_index] += length_ns
    assert attributed_ns == measured.caused_idle_ns.tolist()
    assert (measured.idle_after_ns >= 0).all()
    assert (measured.idle_after_ns <= measured.caused_idle_ns).all()
    for i, index in zip(
        measured.calls.event_id.tolist(), measured.step_index.tolist(), strict=True
    ):
        around_it = (
            number
            for number, event in enumerate(account.step_events)
            if rows[event].start <= rows[i].start < rows[event].end
        )
        assert index == next(around_it, ABSENT)


# In these tests the GPU computes in [1, 10), and again from 60 on, launched at 50.


def around(*rows, thread=MAIN):
    return [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        launch(50, 55, 2, thread=thread),
        kernel(60, 70, correlation=2),
        *rows,
    ]


def test_idle_while_blocked_and_after_it_as_far_as_it_delayed_the_host():
    # The call blocks in [5, 30), and the GPU is idle in [10, 60). Without the call, the host would
    # have launched at 25 instead of at 50: 25 ns of the 50 are the call's, 20 of them beside it.
    assert costs(*around(call("cudaStreamSynchronize", 5, 30))) == {4: 25}


def test_idle_after_the_call_is_told_apart_and_what_it_waited_for():
    # Of the 25 ns, 20 are while it blocks and 5 after. It waited for the kernel that ended at 10.
    measured = blocking_calls(graph(*around(call("cudaDeviceSynchronize", 5, 30))))
    assert measured.idle_after_ns.tolist() == [5]
    assert measured.awaited_id.tolist() == [1]


def test_blocking_copy_waits_for_its_own_copy():
    rows = [call("cudaMemcpy", 0, 20, correlation=1), copy(5, 19, correlation=1)]
    assert blocking_calls(graph(*rows)).awaited_id.tolist() == [1]


def test_call_that_begins_in_the_bubble_pays_for_itself_alone():
    assert costs(*around(call("cudaStreamSynchronize", 20, 30))) == {4: 10}


def test_short_call_does_not_pay_for_the_long_one_that_follows():
    # In us: the GPU is idle in [10, 700_000), the host blocks for 0.5 ms, and launches for 628 ms.
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaStreamSynchronize", 5, 505),
        operator("aten::conv1d", 600, 699_990),
        launch(629_000, 699_990, 2),
        kernel(700_000, 700_005, correlation=2),
    ]
    assert costs(*(replace(x, start=x.start * US, end=x.end * US) for x in rows)) == {2: 500 * US}


def test_call_that_drains_a_long_queue_pays_for_the_launches_behind_it():
    # GIVEN 40 ns in which the call blocks while the GPU works, and 25 ns of launching after it
    rows = [
        launch(0, 1, 1),
        kernel(1, 50, correlation=1),
        call("cudaDeviceSynchronize", 10, 51),
        launch(75, 76, 2),
        kernel(80, 90, correlation=2),
    ]

    # THEN it costs all that is idle: without it these launches would run beside the first kernel
    assert costs(*rows) == {2: 30}


def test_two_calls_in_one_bubble_pay_for_what_each_delayed():
    # The first blocks in [5, 20), 10 ns of it in the bubble, and 5 ns until the second begins at
    # 25; that blocks for 1 ns, and delayed the host by no more.
    rows = around(call("cudaStreamSynchronize", 5, 20), call("cudaFree", 25, 26))

    assert costs(*rows) == {4: 15, 5: 1}


def test_what_an_early_call_delayed_is_still_owed_behind_a_later_one():
    # GIVEN a call that blocks in [0, 12) beside the kernel, one in [14, 16), and idle in [16, 60)
    rows = [
        launch(0, 0, 1),
        kernel(0, 16, correlation=1),
        call("cudaStreamSynchronize", 0, 12),
        call("cudaStreamSynchronize", 14, 16),
        launch(50, 55, 2),
        kernel(60, 70, correlation=2),
    ]

    # THEN the host is late by 14 ns, of which the first call has 12
    assert costs(*rows) == {2: 12, 3: 2}


def busy_while_blocked(next_start):
    """The call blocks in [2, 8), the GPU computes in [1, 10), the next kernel is launched at 9."""
    return [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaStreamSynchronize", 2, 8),
        launch(9, 9, 2),
        kernel(next_start, 70, correlation=2),
    ]


def test_call_while_the_gpu_is_busy_costs_nothing():
    assert costs(*busy_while_blocked(next_start=10)) == {2: 0}


def test_call_that_ends_while_the_gpu_is_busy_pays_for_what_came_too_late_after_it():
    # Nothing was launched until 9, so that the GPU ran dry from 10 to 12.
    assert costs(*busy_while_blocked(next_start=12)) == {2: 2}


def test_work_that_was_launched_before_the_call_is_not_late_through_it():
    # The kernel at 60 was launched at 4: what it waited for is not the call at 5.
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        launch(4, 5, 2),
        call("cudaStreamSynchronize", 5, 30),
        kernel(60, 70, correlation=2),
    ]

    assert costs(*rows) == {3: 0}


def test_work_launched_between_the_call_and_the_bubble_acquits_the_call():
    # The call ends at 5; what was launched at 6 ran in [20, 30). The bubble from 30 on is not the
    # call's; of the one before 20 it has as much as it blocked, 3 ns.
    rows = around(
        call("cudaStreamSynchronize", 2, 5), launch(6, 7, 3), kernel(20, 30, correlation=3)
    )

    assert costs(*rows) == {4: 3}


def test_the_gaps_inside_a_replay_are_not_caused_by_the_call_before_it():
    # The graph of two nodes is launched at 20. The GPU idles from 10 to 30 until it begins: of that
    # the call from 2 to 15 causes 13 ns. It also idles from 40 to 50, between the nodes.
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaStreamSynchronize", 2, 15),
        launch(20, 25, 2, name="cudaGraphLaunch"),
        kernel(30, 40, correlation=2),
        kernel(50, 60, correlation=2),
    ]

    assert costs(*rows) == {2: 13}


def test_launch_that_is_not_in_the_file_charges_nobody():
    rows = [kernel(1, 10), call("cudaStreamSynchronize", 5, 30), kernel(60, 70)]

    assert costs(*rows) == {1: 0}


def test_idle_after_the_last_activity_charges_nobody():
    rows = [launch(0, 1, 1), kernel(1, 10, correlation=1), call("cudaStreamSynchronize", 5, 30)]

    assert costs(*rows, kernel(0, 90, device=1)) == {2: 0}


def test_call_holds_up_every_device():
    # It blocks for 25 ns, and device 1 idles from 20 to 61, device 0 from 10 to 60.
    rows = around(
        call("cudaDeviceSynchronize", 5, 30),
        launch(1, 2, 3),
        kernel(2, 20, device=1, correlation=3),
        launch(56, 57, 4),
        kernel(61, 70, device=1, correlation=4),
    )

    assert costs(*rows) == {4: 25 + 25}


def test_call_of_another_thread_counts_where_the_launching_thread_did_nothing():
    # GIVEN the main thread's call, and a launch by autograd's thread, idle at 5
    rows = around(
        call("cudaStreamSynchronize", 5, 30), operator("Backward", 40, 56), thread=AUTOGRAD
    )

    assert costs(*rows) == {4: 25}


def test_call_of_another_thread_is_free_where_the_launching_thread_was_at_work():
    rows = around(
        call("cudaStreamSynchronize", 5, 30),
        operator("Backward", 2, 56, thread=AUTOGRAD),
        thread=AUTOGRAD,
    )

    assert costs(*rows) == {4: 0}


def test_allocation_that_stalled_another_threads_launch_costs_from_when_both_had_begun():
    # GIVEN in us: idle in [10, 412); a synchronize in [5, 30), a launch call in [50, 410), and in
    # [40, 400) an allocation of a thread that launches nothing
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaStreamSynchronize", 5, 30),
        launch(50, 410, 2),
        kernel(412, 420, correlation=2),
        call("cudaHostAlloc", 40, 400, thread=AUTOGRAD),
    ]

    # THEN the synchronize is attributed what it blocked, 25 us, the allocation what it stalled the
    # launch, 360 us, of which 10 are after it
    measured = blocking_calls(
        graph(*(replace(x, start=x.start * US, end=x.end * US) for x in rows))
    )
    assert measured.calls.event_id.tolist() == [2, 5]
    assert measured.caused_idle_ns.tolist() == [25 * US, 360 * US]
    assert measured.idle_after_ns.tolist() == [5 * US, 10 * US]


def test_allocation_that_stalled_a_call_before_the_launch_costs_what_it_stalled():
    # In us: the record of an event returns at 210 instead of at once, the launch comes at 220.
    rows = [
        launch(0, 1, 1),
        kernel(1, 10, correlation=1),
        call("cudaEventRecord", 60, 210),
        launch(220, 221, 2),
        kernel(225, 230, correlation=2),
        call("cudaHostAlloc", 40, 205, thread=AUTOGRAD),
    ]

    assert costs(*(replace(x, start=x.start * US, end=x.end * US) for x in rows)) == {5: 150 * US}


def test_allocation_costs_nothing_beside_a_short_launch():
    rows = around(call("cudaHostAlloc", 5, 56, thread=AUTOGRAD))

    assert costs(*rows) == {4: 0}


def test_pageable_copy_pays_before_and_after_itself():
    # GIVEN a call in [20, 40) that copies in [30, 38), and the next kernel at 60
    rows = around(
        launch(20, 40, 3, name="cudaMemcpyAsync"), copy(30, 38, PAGEABLE_H2D, correlation=3)
    )

    # THEN it costs the time from its beginning to its copy, 10 ns, the last 2 ns of it, and the 8
    # that it waited for the copy delayed what is launched at 50
    assert costs(*rows) == {4: 10 + 2 + 8}


def test_blocking_calls_that_begin_with_a_blocking_copy_do_not_pay_for_it():
    # Another thread's call begins at the very moment at which the copy is launched.
    rows = around(
        launch(20, 40, 3, name="cudaMemcpyAsync"),
        copy(30, 60, PAGEABLE_H2D, correlation=3),
        call("cudaFree", 20, 60, thread=AUTOGRAD),
    )

    assert costs(*rows) == {4: 10, 6: 0}


# Where in the program.


def test_step_is_the_one_whose_annotation_holds_the_call():
    # Step 1's window reaches to 90, because its work does; the call at 60 is in step 2 still.
    rows = [
        step(1, 0, 50),
        launch(1, 2, 1),
        kernel(10, 90, correlation=1),
        step(2, 50, 100),
        call("cudaStreamSynchronize", 60, 90),
        call("cudaStreamSynchronize", 100, 101),
        call("cudaStreamSynchronize", 0, 1),
    ]

    assert blocking_calls(graph(*rows)).step_index.tolist() == [0, 1, ABSENT]


def test_place_of_each_call(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("def step(x):\n    y = x.item()\n    return x.nonzero()\n")
    item, nonzero = (f"<built-in method {x} of Tensor object at 0x7f>" for x in ("item", "nonzero"))
    rows = around(
        python(f"{file}(1): step", 0, 48),
        python(item, 3, 21),
        operator("aten::item", 4, 20),
        call("cudaStreamSynchronize", 5, 15),
        python(nonzero, 22, 41),
        operator("aten::nonzero", 23, 40),
        call("cudaStreamSynchronize", 25, 30),
        call("cudaFree", 42, 44),
    )

    where = {"function": "step", "file": str(file)}
    assert list(blocking_calls(graph(*rows), SourceLines()).call_sites) == [
        CallSite(operator="aten::item", call="item", line=2, **where),
        CallSite(operator="aten::nonzero", call="nonzero", line=3, **where),
        CallSite(**where),
    ]


def test_without_a_place_to_look_no_source_is_read(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("def step(x):\n    synchronize()\n")
    rows = around(
        python(f"{file}(1): step", 0, 48),
        python("<built-in function synchronize>", 3, 40),
        call("cudaStreamSynchronize", 5, 30),
    )

    assert [site.line for site in blocking_calls(graph(*rows)).call_sites] == [None]
    assert [site.line for site in blocking_calls(graph(*rows), SourceLines()).call_sites] == [2]


def test_file_without_blocking_calls():
    measured = blocking_calls(graph(*around()))

    assert (len(measured.calls), measured.call_sites) == (0, ())
    assert measured.caused_idle_ns.tolist() == []


# The rows of windows.


@examples(100)
@given(random_rows())
def test_a_steps_row_has_the_idle_in_the_step_whoever_caused_it(rows):
    made = graph(*scaled(rows))
    measured, windows = blocking_calls(made), made.host.timeline.windows
    idle, calls = measured.attributed_idle, measured.calls
    found = list(blocking_call_rows(made, windows, measured))
    all_idle = bubbles(made)
    start = start_up(made, all_idle)
    times = window_times(made, windows, all_idle, start, exposed(made), measured)
    for window, of_window in zip(windows, times, strict=True):
        of_calls = [row for row in found if row.step == window.step]
        caused_ns = after_ns = 0
        for index, first, last in zip(idle.call_index, idle.start_ns, idle.end_ns, strict=True):
            start, end = max(first, window.start_ns), min(last, window.end_ns)
            caused_ns += max(0, end - start)
            after_ns += max(0, end - max(start, calls.end_ns[index]))
        assert sum(row.caused_idle_ns for row in of_calls) == caused_ns
        assert sum(row.idle_after_ns for row in of_calls) == after_ns
        assert sum(device.idle_by_calls_ns for device in of_window.devices) == caused_ns
        assert all(0 <= x.idle_by_calls_ns <= x.idle_ns for x in of_window.devices)
        if window.step is not None:
            position = [step.number for step in made.host.timeline.steps].index(window.step)
            is_made = measured.step_index == position
            assert sum(row.count for row in of_calls) == is_made.sum()
            assert sum(row.blocked_ns for row in of_calls) == measured.blocked_ns[is_made].sum()


def test_a_call_at_the_end_of_a_step_costs_idle_in_the_next():
    # Two steps of 100 ns. In the first the host waits from 20 to 90 for the kernel that ends at 70;
    # the next step launches at 130, and its kernel starts at 140. Of the 70 ns idle, 30 (70 to 100)
    # are in the first step, 10 of them after the return at 90, and 40 (100 to 140) in the second.
    made = graph(
        step(1, 0, 100),
        step(2, 100, 200),
        launch(5, 8, 1),
        kernel(10, 70, correlation=1),
        call("cudaStreamSynchronize", 20, 90),
        launch(130, 135, 2),
        kernel(140, 180, correlation=2),
    )
    rows = blocking_call_rows(made, made.host.timeline.windows, blocking_calls(made))
    assert [
        (row.step, row.count, row.blocked_ns, row.caused_idle_ns, row.idle_after_ns) for row in rows
    ] == [(None, 1, 70, 70, 50), (1, 1, 70, 30, 10), (2, 0, 0, 40, 40)]
