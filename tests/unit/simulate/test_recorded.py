"""A file as a program: hand-made traces whose edges are worked out in the tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build import rows
from tests.build.rows import AUTOGRAD, US
from tests.examples import examples
from tests.reference.hand_overs import slow_hand_overs
from tracelab.simulate.host_edges import LAUNCHES_IN_QUEUE, find_calls, find_hand_overs
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.recorded import record_program, repeat, typical_steps
from tracelab.simulate.replay import replay


def program_of(*some: rows.Row) -> Program:
    return record_program(rows.graph(*some)).program


def edges_of(program: Program, via: Via) -> list[tuple[int, int, int]]:
    """The edges of one kind, as event ids and ns, by target."""
    chosen = np.flatnonzero(program.via == via)
    pairs = zip(
        program.event_id[program.source[chosen]].tolist(),
        program.event_id[program.target[chosen]].tolist(),
        program.latency_ns[chosen].tolist(),
        strict=True,
    )
    return sorted(pairs, key=lambda edge: edge[1])


def cost_of(program: Program, event_id: int, kind: NodeKind) -> int:
    [node] = np.flatnonzero((program.event_id == event_id) & (program.kind == kind))
    return int(program.cost_ns[node])


def test_two_launches_and_their_kernels():
    program = program_of(
        rows.launch(0, 5 * US, 1),
        rows.launch(9 * US, 12 * US, 2),
        rows.kernel(7 * US, 40 * US, correlation=1),
        rows.kernel(42 * US, 60 * US, correlation=2),
    )
    # Calls as they return, activities as they start.
    assert program.event_id.tolist() == [0, 2, 1, 3]
    assert program.cost_ns.tolist() == [5 * US, 33 * US, 3 * US, 18 * US]
    assert edges_of(program, Via.HOST) == [(0, 1, 4 * US)]
    # The latencies of the captures: the trace has too few of its own.
    assert edges_of(program, Via.LAUNCH) == [(0, 2, 2_112), (1, 3, 2_112)]
    assert edges_of(program, Via.STREAM) == [(2, 3, 1_600)]
    assert program.launch_node.tolist() == [-1, 0, -1, 2]


def test_activity_that_starts_in_its_call_is_launched_at_its_begin():
    program = program_of(
        rows.launch(0, 5 * US, 1),
        rows.launch(10 * US, 50 * US, 2),
        rows.kernel(7 * US, 9 * US, correlation=1),
        rows.kernel(13 * US, 20 * US, correlation=2),
    )
    kinds = [NodeKind(kind).name for kind in program.kind]
    assert kinds == ["CALL", "ACTIVITY", "BEGIN", "ACTIVITY", "CALL"]
    # From the call before to the begin, and from there to the return, which costs 40 us.
    assert edges_of(program, Via.HOST) == [(0, 1, 5 * US), (1, 1, 0)]
    assert edges_of(program, Via.LAUNCH) == [(0, 2, 2_112), (1, 3, 3 * US)]


def test_synchronization_waits_and_costs_little_itself():
    program = program_of(
        rows.launch(0, 5 * US, 1),
        rows.call("cudaStreamSynchronize", 6 * US, 105 * US, correlation=2),
        rows.sync_row("Stream Sync", 6 * US, 105 * US, correlation=2, stream=7),
        rows.kernel(7 * US, 100 * US, correlation=1),
    )
    assert edges_of(program, Via.WAIT) == [(3, 1, 4_923)]
    assert cost_of(program, 1, NodeKind.CALL) == 4_000


@pytest.mark.parametrize(("count", "wake_up_ns"), [(4, 4_923), (5, 2_500)])
def test_calls_return_as_soon_as_five_of_them_did(count, wake_up_ns):
    # GIVEN calls that return 2.5 us after the kernel for which they wait
    some = []
    for number in range(count):
        begin, correlation = 200 * US * number, 1 + 2 * number
        end = begin + 102_500
        some += [
            rows.launch(begin, begin + 5 * US, correlation),
            rows.call("cudaStreamSynchronize", begin + 6 * US, end, correlation=correlation + 1),
            rows.sync_row(
                "Stream Sync", begin + 6 * US, end, correlation=correlation + 1, stream=7
            ),
            rows.kernel(begin + 7 * US, begin + 100 * US, correlation=correlation),
        ]
    waits = edges_of(program_of(*some), Via.WAIT)
    assert [latency_ns for *_, latency_ns in waits] == [wake_up_ns] * count


def test_a_graph_follows_as_late_as_others_in_the_trace():
    # GIVEN a graph that starts 6 us after its call, a second one 5 us behind it, and a third one
    # that is launched when the second is over; then a kernel, 1 us behind it
    program = program_of(
        rows.launch(0, 4 * US, 1, name="cudaGraphLaunch"),
        rows.launch(5 * US, 9 * US, 2, name="cudaGraphLaunch"),
        rows.launch(70 * US, 74 * US, 3, name="cudaGraphLaunch"),
        rows.launch(75 * US, 79 * US, 4),
        rows.kernel(10 * US, 20 * US, correlation=1),
        rows.kernel(20_500, 30 * US, correlation=1),
        rows.kernel(35 * US, 45 * US, correlation=2),
        rows.kernel(80 * US, 90 * US, correlation=3),
        rows.kernel(91 * US, 95 * US, correlation=4),
    )
    # THEN a graph comes 5 us after another one, a node 0.5 us after another one, and a kernel after
    # a graph as after a kernel
    assert edges_of(program, Via.STREAM) == [
        (4, 5, 500),
        (5, 6, 5 * US),
        (6, 7, 5 * US),
        (7, 8, 1_600),
    ]


def test_a_node_that_waits_for_another_branch_says_nothing_of_its_stream():
    # GIVEN a graph whose other branch ends 10 us after its own, and a graph 1 us behind that
    program = program_of(
        rows.launch(0, 4 * US, 1, name="cudaGraphLaunch"),
        rows.launch(5 * US, 9 * US, 2, name="cudaGraphLaunch"),
        rows.kernel(10 * US, 20 * US, correlation=1),
        rows.kernel(10 * US, 30 * US, correlation=1, stream=13),
        rows.kernel(31 * US, 40 * US, correlation=2),
    )
    assert edges_of(program, Via.STREAM) == [(2, 4, 1_600)]
    assert (3, 4, US) in edges_of(program, Via.EVENT)


def test_what_is_around_a_graph_of_several_streams_keeps_its_place():
    # GIVEN a kernel, a graph on two other streams that is launched when the kernel is over, and a
    # kernel that is launched when the graph is
    program = program_of(
        rows.launch(0, 4 * US, 1),
        rows.launch(20 * US, 24 * US, 2, name="cudaGraphLaunch"),
        rows.launch(60 * US, 64 * US, 3),
        rows.kernel(6 * US, 16 * US, correlation=1),
        rows.kernel(30 * US, 40 * US, correlation=2, stream=13),
        rows.kernel(30 * US, 50 * US, correlation=2, stream=14),
        rows.kernel(66 * US, 70 * US, correlation=3),
    )
    # THEN both branches follow the first kernel, and the second one what ended last of them
    assert edges_of(program, Via.EVENT) == [(3, 4, 1_600), (3, 5, 1_600), (5, 6, 1_600)]


def test_what_nothing_launched_does_not_hide_how_soon_a_graph_follows():
    # GIVEN a graph queued 5 us behind a kernel whose launch is the last event, and in stream 8 a
    # kernel without a launch that ends later
    program = program_of(
        rows.launch(12 * US, 16 * US, 2, name="cudaGraphLaunch"),
        rows.kernel(6 * US, 40 * US, correlation=1),
        rows.kernel(45 * US, 50 * US, correlation=2),
        rows.kernel(60 * US, 70 * US, stream=8),
        rows.launch(0, 4 * US, 1),
    )
    # THEN the graph follows the kernel as soon as it did, and not as soon as a kernel would
    assert edges_of(program, Via.STREAM) == [(1, 2, 5 * US)]


def test_what_overtakes_a_graph_of_several_streams_is_neither_before_nor_after_it():
    # GIVEN the same twice, and in stream 8 a kernel each time that is launched later than the graph
    # and over when the graph begins
    some = []
    for number, start in enumerate((0, 100 * US)):
        first, replay, over, last = range(4 * number, 4 * number + 4)
        some += [
            rows.launch(start, start + 4 * US, first),
            rows.launch(start + 20 * US, start + 24 * US, replay, name="cudaGraphLaunch"),
            rows.launch(start + 26 * US, start + 30 * US, over),
            rows.launch(start + 70 * US, start + 74 * US, last),
            rows.kernel(start + 6 * US, start + 16 * US, correlation=first),
            rows.kernel(start + 34 * US, start + 38 * US, correlation=over, stream=8),
            rows.kernel(start + 40 * US, start + 50 * US, correlation=replay, stream=13),
            rows.kernel(start + 40 * US, start + 60 * US, correlation=replay, stream=14),
            rows.kernel(start + 76 * US, start + 80 * US, correlation=last),
        ]
    # THEN each graph follows what was launched before it and not that kernel, and what was launched
    # last follows the graph; the second graph follows the branches of the first one as well
    assert sorted(edges_of(program_of(*some), Via.EVENT)) == [
        (4, 6, 1_600),
        (4, 7, 1_600),
        (6, 16, 1_600),
        (7, 8, 1_600),
        (7, 15, 1_600),
        (13, 15, 1_600),
        (13, 16, 1_600),
        (16, 17, 1_600),
    ]


def test_pageable_copy_returns_with_its_copy():
    program = program_of(
        rows.call("cudaMemcpyAsync", 0, 80 * US, correlation=1),
        rows.copy(20 * US, 78 * US, rows.PAGEABLE_H2D, correlation=1),
    )
    assert edges_of(program, Via.LAUNCH) == [(0, 1, 20 * US)]
    assert edges_of(program, Via.WAIT) == [(1, 0, 2 * US)]
    assert cost_of(program, 0, NodeKind.CALL) == 10_000


def test_autograd_goes_on_after_the_main_thread_and_back():
    program = program_of(
        rows.launch(0, 5 * US, 1),
        rows.operator("backward", 100 * US, 150 * US, thread=AUTOGRAD),
        rows.launch(110 * US, 115 * US, 2, thread=AUTOGRAD),
        rows.launch(120 * US, 125 * US, 3, thread=AUTOGRAD),
        rows.operator("step", 200 * US, 230 * US),
        rows.launch(210 * US, 215 * US, 4),
        *(
            rows.kernel(300 * US + i, 301 * US + i, correlation=1 + i // US)
            for i in range(0, 4 * US, US)
        ),
    )
    # The main thread slept from 5 to 200 us, then worked for 10 us before it launched.
    assert edges_of(program, Via.HOST) == [(2, 3, 5 * US), (0, 5, 10 * US)]
    assert edges_of(program, Via.THREAD) == [(0, 2, 105 * US), (3, 5, 85 * US)]


def test_thread_that_works_is_not_woken_by_another():
    busy = [rows.operator("aten::add", start * US, (start + 9) * US) for start in range(5, 200, 10)]
    program = program_of(
        rows.launch(0, 5 * US, 1),
        rows.launch(100 * US, 105 * US, 2, thread=AUTOGRAD),
        rows.launch(205 * US, 210 * US, 3),
        *(
            rows.kernel(300 * US + i, 301 * US + i, correlation=1 + i // US)
            for i in range(0, 3 * US, US)
        ),
        *busy,
    )
    assert (0, 2, 200 * US) in edges_of(program, Via.HOST)
    assert [target for _, target, _ in edges_of(program, Via.THREAD)] == [1]


def test_launch_waits_for_room_in_the_queue_of_its_stream():
    count = LAUNCHES_IN_QUEUE + 2
    launches = [rows.launch(10 * i, 10 * i + 5, 1 + i) for i in range(count - 1)]
    # The kernels take 1 us each: the first two end while the last call waits for the second.
    first_ns = 10 * count
    blocked = rows.launch(first_ns, first_ns + 200 * US, count)
    kernels = [
        rows.kernel(first_ns + 99 * US * i, first_ns + 99 * US * (i + 1), correlation=1 + i)
        for i in range(count)
    ]
    program = program_of(*launches, blocked, *kernels)
    # The call before the last one returned long before the first kernel ended: no limit for it.
    assert edges_of(program, Via.LIMIT) == [(count + 1, count - 1, 0)]
    assert cost_of(program, count - 1, NodeKind.CALL) == 5  # as the other launches


# --- steps that are repeated ---

STEP = 100 * US


def loop(count, *, kernel_us):
    """Steps of 100 us, each with one launch of 5 us after 10 us, and a kernel."""
    some, free_ns = [], 0
    for number in range(count):
        begin = number * STEP
        some.append(rows.step(number, begin, begin + STEP))
        some.append(rows.launch(begin + 10 * US, begin + 15 * US, 1 + number))
        start = max(free_ns + 1_600, begin + 15 * US + 2_112)
        free_ns = start + kernel_us * US
        some.append(rows.kernel(start, free_ns, correlation=1 + number))
    return rows.graph(*some)


def repeated(graph, first, last):
    return repeat(graph, record_program(graph), first, last)


def test_host_bound_steps_take_what_the_host_takes():
    program = repeated(loop(4, kernel_us=50), 1, 3)
    assert program.steps == 3
    assert replay([program]).step_ns.tolist() == [STEP]


def test_gpu_bound_steps_take_what_the_kernel_takes():
    program = repeated(loop(4, kernel_us=300), 1, 3)
    # The gap of the captures lies between two kernels of a stream.
    assert replay([program]).step_ns.tolist() == [300 * US + 1_600]


def test_one_step_alone_goes_on_as_it_ended():
    program = repeated(loop(1, kernel_us=300), 0, 0)
    assert replay([program]).step_ns.tolist() == [300 * US + 1_600]
    assert program.lag.sum() == 2  # of the thread and the stream


def test_first_step_waits_for_the_end_of_the_last():
    program = repeated(loop(4, kernel_us=50), 1, 3)
    wraps = np.flatnonzero(program.lag)
    pairs = {
        Via(program.via[edge]): (
            program.event_id[program.source[edge]],
            program.event_id[program.target[edge]],
        )
        for edge in wraps
    }
    # Events: per step the annotation, the launch, the kernel.
    assert pairs == {Via.HOST: (10, 4), Via.STREAM: (11, 5)}


def test_without_steps_all_of_it_runs_once():
    program = record_program(
        rows.graph(rows.launch(0, 5 * US, 1), rows.kernel(7_112, 50 * US, correlation=1))
    ).program
    assert not program.is_repeated
    # From the return of the first call to the end of the kernel.
    assert replay([program]).step_ns.tolist() == [45 * US]


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        ([10, 10, 10, 10], (1, 3)),  # the first has none before it
        ([10], (0, 0)),
        ([10, 10, 90, 10, 10, 10], (3, 5)),  # the longest run without the irregular step
        ([10, 10, 90, 10, 10], (3, 4)),  # of two equal ones the last
    ],
)
def test_typical_steps(lengths, steps):
    some, begin = [], 0
    for number, length in enumerate(lengths):
        end = begin + length * US
        some += [
            rows.step(number, begin, end),
            rows.launch(begin + 1, begin + 100, 1 + number),
            rows.kernel(begin + 200, begin + 300, correlation=1 + number),
        ]
        begin = end
    timeline = rows.timeline(*some)
    assert typical_steps(timeline, node_count=2 * len(lengths)) == steps


def test_fewer_steps_are_repeated_of_a_huge_file():
    timeline = loop(10, kernel_us=50).host.timeline
    # 10 steps of 2,000 nodes each: 8,000 nodes are 4 steps; but never fewer than two.
    assert typical_steps(timeline, node_count=20_000) == (1, 4)
    assert typical_steps(timeline, node_count=1_000_000) == (1, 2)


@st.composite
def turns(draw):
    """The rows of up to four threads that launch and run operators, now and then at one moment."""
    kinds = st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 30), st.integers(0, 4))
    found = [rows.kernel(900 * US, 901 * US, correlation=0)]
    for correlation, (is_launch, thread, start, length) in enumerate(
        draw(st.lists(kinds, min_size=1, max_size=14))
    ):
        begin_ns, end_ns = start * 15 * US, (start + length) * 15 * US
        if is_launch:
            found.append(rows.launch(begin_ns, end_ns, correlation, thread=thread))
            found.append(rows.kernel(800 * US, 801 * US, correlation=correlation))
        else:
            found.append(rows.operator("aten::mm", begin_ns, end_ns, thread=thread))
    return found


@examples(200)
@given(turns())
def test_hand_overs_agree_with_the_slow_reference(some):
    host = rows.host(*some)
    calls = find_calls(host)

    found = find_hand_overs(host.timeline.trace, calls)

    assert list(zip(*(column.tolist() for column in found), strict=True)) == slow_hand_overs(
        host.timeline.trace, calls
    )
