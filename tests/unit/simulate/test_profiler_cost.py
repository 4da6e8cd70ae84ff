"""The cost of recording, fitted to what the host takes without it: see `loops` for the counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.build import rows
from tests.build.host_bound_loop import (
    EVENTS_A_STEP,
    STEP_US,
    graph_of,
    graph_steps,
    recorded_steps,
)
from tests.build.rows import AUTOGRAD, US
from tracelab.model.graph import Graph
from tracelab.model.trace import Category
from tracelab.simulate.profiler_cost import (
    _fitting_shares,
    calibrate,
    count_recorded,
    remove_profiler,
)
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.recorded import record_program, repeat
from tracelab.simulate.replay import replay


def program_of(graph: Graph) -> Program:
    """All steps but the first."""
    return repeat(graph, record_program(graph), 1, len(graph.host.timeline.steps) - 1)


def test_events_are_counted_where_they_were_recorded():
    graph = graph_of(*recorded_steps(count=3))
    program = program_of(graph)
    recording = count_recorded(graph, program)
    assert recording.of_node[program.kind == NodeKind.CALL].tolist() == [2, 2, 2, 2]
    assert recording.of_node[program.kind == NodeKind.ACTIVITY].tolist() == [0, 0, 0, 0]
    by_host = program.via == Via.HOST
    assert recording.of_edge[by_host & (program.lag == 0)].tolist() == [1, 1, 1]
    assert recording.of_edge[by_host & (program.lag == 1)].tolist() == [1]
    assert not recording.of_edge[~by_host].any()
    assert not recording.profiler_ns.any()


def test_a_python_function_counts_a_quarter_and_the_call_of_a_module_whole():
    # GIVEN three functions and a module between two calls, 20 and 60 us after each step's begin
    some = recorded_steps(count=3)
    for number in range(3):
        at = number * STEP_US * US
        for begin_us in (27, 30, 33):
            begin_ns = at + begin_us * US
            some.append(rows.python("train.py(3): log", begin_ns, begin_ns + US))
        some.append(rows.python("nn.Module: Linear_0", at + 36 * US, at + 39 * US))
    graph = graph_of(*some)
    program = program_of(graph)
    between = (program.via == Via.HOST) & (program.lag == 0)
    # THEN there they count beside the operators' end and begin; between two steps are only those
    assert count_recorded(graph, program).of_edge[between].tolist() == [2.75, 1, 2.75]


def test_functions_take_no_more_than_the_time_between_them():
    # GIVEN ten functions of 100 ns, 100 ns apart, between two calls, from 26 us after the begin on
    some = recorded_steps(count=3)
    for number in range(3):
        for begin in range(10):
            start = number * STEP_US * US + 26 * US + begin * 200
            some.append(rows.python("train.py(3): log", start, start + 100))
    graph = graph_of(*some)
    program = program_of(graph)
    recording = count_recorded(graph, program)
    [first, *_] = np.flatnonzero((program.via == Via.HOST) & (program.lag == 0))
    assert recording.of_edge[first] == 1 + 10 / 4
    # WHEN an event takes 1 us, a function 250 ns: 125 of each piece of 100 between two of them
    taken_ns = recording.edge_overheads_ns(1_000)
    # THEN each of the 19 pieces loses 90; the operators and the ends of the row lose what they take
    assert taken_ns[first] == 1_000 + 2 * 125 / 2 + 19 * 90
    # AND with a tenth of that cost they lose all that functions take
    assert recording.edge_overheads_ns(100)[first] == pytest.approx(100 + 10 * 25)


def test_other_work_took_longer_where_recording_costs_nothing():
    # GIVEN 1 ms in a function of the program's, in steps of 1.1 ms, and a host that took 1.2
    some = []
    for number in range(4):
        start = number * 1_100 * US
        some += [
            rows.step(number, start, start + 1_100 * US),
            rows.operator("aten::add", start + 5 * US, start + 25 * US),
            rows.launch(start + 10 * US, start + 20 * US, 1 + 2 * number),
            rows.python("train.py(3): augment", start + 30 * US, start + 1_030 * US),
            rows.operator("aten::add", start + 1_050 * US, start + 1_075 * US),
            rows.launch(start + 1_060 * US, start + 1_070 * US, 2 + 2 * number),
            rows.kernel(start + 23 * US, start + 30 * US, correlation=1 + 2 * number),
            rows.kernel(start + 1_073 * US, start + 1_080 * US, correlation=2 + 2 * number),
        ]
    calibration = calibrate(graph := graph_of(*some, host_us=1_200), program_of(graph))
    # THEN events take what they typically do, 2 us each, and that work the rest
    assert calibration.event_ns == 2_000
    assert calibration.host_ns == pytest.approx(1_200 * US, rel=0.001)
    program = calibration.program
    between = (program.via == Via.HOST) & (program.lag == 0)
    # Of the 10 us of a call 2 events leave 6, and of the 40 us to the next step one leaves 38: so
    # the 1,040 us in which a function ran take what remains
    assert program.latency_ns[between][:2].tolist() == pytest.approx(
        [(1_200 - 2 * 6 - 38) * US, 38 * US], rel=0.001
    )
    # AND that it all was that work is possible as well, and larger costs
    assert len(calibration.ends) == 2


def test_the_pace_of_all_work_is_fitted_where_no_cost_is_enough():
    # GIVEN a host that took 30 us, where the highest cost leaves 62
    calibration = calibrate(graph := graph_of(*recorded_steps(), host_us=30), program_of(graph))
    assert calibration.host_ns == pytest.approx(30 * US, rel=0.001)
    # THEN calls of 10 us with 2 events of 2 us each, and 40 us between them with one, keep as much
    program = calibration.program
    call_ns = program.cost_ns[program.kind == NodeKind.CALL]
    host_ns = program.latency_ns[(program.via == Via.HOST) & (program.lag == 0)]
    pace = 30 / (100 - 2 * EVENTS_A_STEP)
    assert call_ns.tolist() == pytest.approx([6 * pace * US] * len(call_ns), rel=0.01)
    assert host_ns.tolist() == pytest.approx([38 * pace * US] * len(host_ns), rel=0.01)
    assert len(calibration.ends) == 2


@pytest.mark.parametrize("event_us", [0, 1, 3])
def test_the_fitted_cost_is_what_each_event_took(event_us):
    # GIVEN a host that took so much less without the profiler
    host_us = STEP_US - EVENTS_A_STEP * event_us
    graph = graph_of(*recorded_steps(), host_us=host_us)
    # WHEN, THEN
    calibration = calibrate(graph, program_of(graph))
    assert calibration.event_ns == pytest.approx(event_us * US, abs=5)
    assert calibration.host_ns == pytest.approx(host_us * US, abs=50)
    assert replay([calibration.program]).step_ns[0] == pytest.approx(host_us * US, abs=50)
    assert calibration.ends == ()


def test_the_profilers_own_code_goes_first():
    # GIVEN 10 us in the profiler between two steps, and a host that took just those less
    graph = graph_of(*recorded_steps(apart_us=10), host_us=STEP_US)
    program = program_of(graph)
    # THEN the events cost nothing
    assert replay([program]).step_ns.tolist() == [110 * US]
    calibration = calibrate(graph, program)
    assert calibration.event_ns == 0
    assert replay([calibration.program]).step_ns.tolist() == [STEP_US * US]


def test_no_stretch_of_time_vanishes():
    # GIVEN a cost of 10 us for each event, as much as a call with two of them took in all
    graph = graph_of(*recorded_steps())
    program = program_of(graph)
    fast = remove_profiler(program, count_recorded(graph, program), 10.0 * US)
    # THEN a tenth of each call is left; the 40 us between calls lose one event
    assert fast.cost_ns[program.kind == NodeKind.CALL].tolist() == [US] * 6
    host_ns = fast.latency_ns[(program.via == Via.HOST) & (program.lag == 0)]
    assert host_ns.tolist() == [30 * US] * 5
    assert np.array_equal(
        fast.cost_ns[program.kind == NodeKind.ACTIVITY],
        program.cost_ns[program.kind == NodeKind.ACTIVITY],
    )


def test_nothing_makes_a_tenth_of_a_host():
    # GIVEN a host that took a tenth without the profiler, more than 6 events can explain
    graph = graph_of(*recorded_steps(), host_us=STEP_US / 10)
    calibration = calibrate(graph, program_of(graph))
    # THEN the highest cost comes nearest: 2 us in calls and 60 us between them are left
    assert calibration.event_ns == 10 * US
    assert calibration.host_ns == 62 * US


def waiting_steps() -> list[rows.Row]:
    """Four steps of 600 us, with a synchronization after a kernel of 500 us in each."""
    some = []
    for number in range(4):
        start = number * 600 * US
        correlation = 1 + 2 * number
        some += [
            rows.step(number, start, start + 600 * US),
            rows.operator("aten::add", start + 5 * US, start + 25 * US),
            rows.launch(start + 10 * US, start + 20 * US, correlation),
            rows.kernel(start + 22_112, start + 522_112, correlation=correlation),
            rows.call(
                "cudaStreamSynchronize",
                start + 30 * US,
                start + 527_035,
                correlation=correlation + 1,
            ),
            rows.sync_row(
                "Stream Sync",
                start + 30 * US,
                start + 527_035,
                correlation=correlation + 1,
                stream=7,
            ),
        ]
    return some


def test_where_the_host_waits_many_costs_fit():
    graph = graph_of(*waiting_steps(), host_us=595)
    low, high = calibrate(graph, program_of(graph)).ends
    # THEN the programs with least and most cost are those of 2 % more and less
    slow_ns, fast_ns = replay([low]).step_ns[0], replay([high]).step_ns[0]
    assert fast_ns < 595 * US < slow_ns


@pytest.mark.parametrize("block_steps", [3, 5, 16, 1000])
@pytest.mark.parametrize("event_us", [0, 1])
def test_of_a_host_that_decides_a_longer_block_has_more_such_steps(block_steps, event_us):
    # GIVEN 3 steps to repeat, and blocks after which the recorder waited for an idle GPU for 10 us
    host_us = STEP_US - EVENTS_A_STEP * event_us
    step_us = host_us + 10 / block_steps
    graph = graph_of(*recorded_steps(), host_us=host_us, step_us=step_us, block_steps=block_steps)
    # WHEN, THEN
    calibration = calibrate(graph, program_of(graph))
    assert calibration.event_ns == pytest.approx(event_us * US, abs=5)
    assert calibration.host_ns == pytest.approx(host_us * US, abs=50)
    assert calibration.step_ns == pytest.approx(step_us * US, abs=50)


def test_wait_for_an_idle_gpu_is_shared_by_all_steps_of_a_block():
    # GIVEN steps of 1 ms, of which the host knows nothing
    graph = graph_of(*recorded_steps(), host_us=STEP_US, step_us=1_000, block_steps=16)
    # THEN at most 60 us of a block are explained
    calibration = calibrate(graph, program_of(graph))
    assert calibration.step_ns == (STEP_US + 60 / 16) * US


@pytest.mark.parametrize(
    ("block_steps", "block_us"),
    [
        # As it is recorded: 6 kernels of 80 us, and 1.6 us between them, after the first launch.
        (3, 22.112 + 6 * 80 + 5 * 1.6),
        # Each further step has 2 kernels more. The host takes no part in it.
        (5, 22.112 + 10 * 80 + 9 * 1.6),
        (16, 22.112 + 32 * 80 + 31 * 1.6),
        (1000, 22.112 + 2000 * 80 + 1999 * 1.6),
    ],
)
def test_of_a_gpu_that_decides_a_longer_block_is_filled_once(block_steps, block_us):
    # GIVEN a host that is 63.2 us further ahead of the GPU with each step of 100 us
    some, free = [], 0
    for row in recorded_steps():
        if row.category == Category.KERNEL:
            start = max(row.start, free)
            some.append(replace(row, start=start, end=start + 80 * US))
            free = start + 80 * US + 1_600
        else:
            some.append(row)
    step_us = block_us / block_steps
    graph = graph_of(*some, host_us=STEP_US, step_us=step_us, block_steps=block_steps)
    calibration = calibrate(graph, program_of(graph))
    # THEN the host is as fast as ever, so that its events cost nothing
    assert calibration.event_ns == 0
    assert calibration.host_ns == STEP_US * US
    assert calibration.step_ns == pytest.approx(step_us * US, abs=1)
    # AND a step among others is that of the GPU
    assert replay([calibration.program]).step_ns.tolist() == [163_200]


def block_us(kernel_us):
    """A block of 3 steps of a GPU that decides: kernels behind the first launch, 1.6 us apart."""
    return 22.112 + 6 * kernel_us + 5 * 1.6


@pytest.mark.parametrize("kernel_us", [74, 84])
def test_kernels_took_what_the_steps_that_were_timed_leave_for_them(kernel_us):
    # GIVEN kernels of 80 us, which took more or less while the steps were timed
    step_us = block_us(kernel_us) / 3
    some = recorded_steps(kernel_us=80)
    graph = graph_of(*some, host_us=STEP_US, step_us=step_us, block_steps=3)
    calibration = calibrate(graph, program_of(graph))
    # THEN their kernels do as well, and those that were recorded are possible, too
    assert calibration.host_ns == STEP_US * US
    assert calibration.step_ns == pytest.approx(step_us * US, abs=10)
    for program, cost_us in (
        (calibration.program, kernel_us),
        (calibration.ends[0], 80),
        (calibration.ends[1], kernel_us),
    ):
        of_kernels_ns = program.cost_ns[program.kind == NodeKind.ACTIVITY]
        assert of_kernels_ns == pytest.approx(cost_us * US, rel=0.001)


def test_where_the_host_decides_its_steps_do_not_show_how_fast_kernels_are():
    # GIVEN kernels of 45 us, whose last ends 11 us after the host of a block; timed were 6
    graph = graph_of(*recorded_steps(kernel_us=45), host_us=STEP_US, step_us=102, block_steps=3)
    calibration = calibrate(graph, program_of(graph))
    # THEN they take what they took
    assert calibration.step_ns == 102 * US
    of_kernels_ns = calibration.program.cost_ns[calibration.program.kind == NodeKind.ACTIVITY]
    assert set(of_kernels_ns.tolist()) == {45 * US}


@pytest.mark.parametrize("name", ["gemm", "ncclDevKernel_AllReduce"])
def test_no_clock_explains_more_nor_a_wait_for_other_ranks(name):
    some = [
        replace(row, name=name) if row.category == Category.KERNEL else row
        for row in recorded_steps(kernel_us=80)
    ]
    # GIVEN steps with kernels of a fifth more, or of a tenth that wait for other ranks
    step_us = block_us(80 * 1.2 if name == "gemm" else 88) / 3
    graph = graph_of(*some, host_us=STEP_US, step_us=step_us, block_steps=3)
    calibration = calibrate(graph, program_of(graph))
    # THEN the step stays as it is recorded
    assert calibration.ends == ()
    assert calibration.step_ns < 0.98 * step_us * US


def test_a_host_that_waits_in_each_step_does_so_in_a_longer_block():
    # GIVEN a synchronization after a kernel of 500 us, in each step of 600 us
    graph = graph_of(*waiting_steps(), host_us=600, step_us=600 + 10 / 16, block_steps=16)
    calibration = calibrate(graph, program_of(graph))
    assert calibration.host_ns == pytest.approx(600 * US, abs=50)
    assert calibration.step_ns == pytest.approx((600 + 10 / 16) * US, abs=50)


def test_the_profiler_delays_the_nodes_of_graphs():
    # GIVEN graphs of 80 us, with 9 x 0.5 and 5 us of gaps: 89.5 us, of which the program took 82
    graph = graph_of(*graph_steps(host_us=40), host_us=40, step_us=82, block_steps=1_000)
    program = program_of(graph)
    assert replay([program]).step_ns.tolist() == [89_500]
    calibration = calibrate(graph, program)
    # THEN 7.5 of the 9.5 us are the profiler's, 2 % of the step more or less
    assert replay([calibration.program]).step_ns[0] == pytest.approx(82 * US, rel=0.005)
    slow_ns, fast_ns = replay(calibration.ends).step_ns.tolist()
    assert slow_ns == pytest.approx(82 * US * 1.02, rel=0.01)
    assert fast_ns == pytest.approx(82 * US * 0.98, rel=0.01)


def test_where_the_host_decides_the_gaps_of_graphs_may_be_the_profilers_or_not():
    graph = graph_of(*graph_steps(host_us=200), host_us=200, block_steps=1_000)
    calibration = calibrate(graph, program_of(graph))
    # THEN those within a graph are halved, and all and none of them are possible; no graph was
    # queued behind another one, and how soon it would follow is what is typical of kernels
    gaps_ns = [
        sorted(set(program.latency_ns[program.via == Via.STREAM].tolist()))
        for program in (calibration.program, *calibration.ends)
    ]
    assert gaps_ns == [[250, 1_600], [500, 1_600], [0, 1_600]]


def test_all_shares_of_the_gaps_count_where_less_of_them_takes_longer_for_once():
    # GIVEN a step of 100 us, and what it takes without a quarter more of the gaps each time: longer
    # without a half of them than without a quarter
    steps_us = (122, 82, 110, 90, 80)
    fits = [SimpleNamespace(shortest_ns=us, longest_ns=us, host_ns=0) for us in steps_us]
    least, most = _fitting_shares(fits, (0, 0.25, 0.5, 0.75, 1), timed_ns=100, measured_ns=100)
    # THEN it takes 102 us first a half of the way from 122 to 82, and 98 us last three fifths of
    # the way from 110 to 90
    assert least == pytest.approx(0.25 / 2)
    assert most == pytest.approx(0.5 + 0.25 * 3 / 5)


def test_what_two_threads_record_counts_once_each():
    # GIVEN autograd's thread, which goes on 40 us after the main thread's launch
    graph = graph_of(
        rows.step(0, 0, 300 * US),
        rows.operator("aten::add", 5 * US, 25 * US),
        rows.launch(10 * US, 20 * US, 1),
        rows.operator("backward", 50 * US, 90 * US, thread=AUTOGRAD),
        rows.launch(60 * US, 70 * US, 2, thread=AUTOGRAD),
        rows.kernel(22_112, 30 * US, correlation=1),
        rows.kernel(72_112, 90 * US, correlation=2),
    )
    program = record_program(graph).program
    [edge] = np.flatnonzero(program.via == Via.THREAD)
    # THEN the main thread's operator ends meanwhile, and autograd's begins
    assert count_recorded(graph, program).of_edge[edge] == 1


def test_without_the_hosts_time_there_is_nothing_to_fit():
    graph = graph_of(*recorded_steps())
    assert calibrate(graph, program_of(graph)) is None


def test_a_thread_of_steps_that_launches_nothing_cannot_be_compared():
    some = [
        rows.step(number, number * 100 * US, (number + 1) * 100 * US) for number in range(3)
    ] + [
        row
        for number in range(3)
        for start in [number * 100 * US]
        for row in (
            rows.launch(start + 10 * US, start + 20 * US, 1 + number, thread=AUTOGRAD),
            rows.kernel(start + 22_112, start + 50 * US, correlation=1 + number),
        )
    ]
    graph = graph_of(*some, host_us=90)
    assert calibrate(graph, program_of(graph)) is None
