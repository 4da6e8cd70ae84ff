"""Steps that are repeated: which they are, and what a repetition waits for of the one before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build import rows
from tests.build.rows import US
from tracelab.simulate.program import Via
from tracelab.simulate.recorded import record_program, repeat, typical_steps
from tracelab.simulate.replay import replay

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
