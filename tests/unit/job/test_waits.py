"""How a rank spent its steps. Times are in microseconds."""

from dataclasses import replace

import numpy as np

from tests.build.jobs import one_clock
from tests.build.rows import US, comm, copy, graph, kernel, launch, step
from tracelab.job.part import rank_part
from tracelab.job.waits import rank_times
from tracelab.measures.blocking_calls import blocking_calls
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.idle_culprits import idle_culprits
from tracelab.measures.profiler_overhead import start_up
from tracelab.measures.window_times import window_times
from tracelab.model.collectives import collectives
from tracelab.model.program.source_lines import SourceLines
from tracelab.simulate.baseline import Baseline


def times_of(*rows, waits):
    """compute, wait, transfer, copy and idle of the only step, from 0 to 100."""
    rows = (step(1, 0, 99), launch(0, 1, 1), kernel(0, 15, correlation=1), *rows)
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    timeline = made.host.timeline
    idle, alone = bubbles(made), exposed(made)
    part = rank_part(
        made,
        collectives(timeline),
        idle,
        idle_culprits(made, idle),
        alone,
        SourceLines(()),
        0,
        timeline.windows,
        Baseline(),
        {},
    )
    start = start_up(made, idle)
    windows = window_times(made, None, idle, start, alone, blocking_calls(made, idle))
    wait_ns = np.array(waits, dtype=np.int64) * US
    [of_step] = rank_times(part, 0, one_clock(1), wait_ns, windows).steps
    times = (of_step.compute_ns, of_step.wait_ns, of_step.transfer_ns, of_step.copy_ns)
    assert (
        sum(times) + of_step.idle_ns + of_step.unmatched_ns
        == of_step.end_ns - of_step.start_ns
        == 100 * US
    )
    return [ns // US for ns in (*times, of_step.idle_ns)]


def test_the_times_of_a_step_add_up():
    assert times_of(
        launch(1, 2, 2),
        launch(2, 3, 3),
        launch(3, 4, 4),
        comm(15, 60, stream=20, correlation=2),
        copy(60, 70, correlation=3),
        kernel(90, 100, correlation=4),
        waits=[30],
    ) == [25, 30, 15, 10, 20]


def test_a_wait_beside_the_transfer_of_another_kernel_is_a_wait():
    assert times_of(
        launch(1, 2, 2),
        launch(2, 3, 3),
        comm(10, 100, stream=20, correlation=2),
        comm(20, 50, stream=30, correlation=3),
        waits=[0, 25],
    ) == [15, 25, 60, 0, 0]


def test_what_is_not_known_is_transfer():
    assert times_of(launch(1, 2, 2), comm(15, 100, stream=20, correlation=2), waits=[-1]) == [
        15,
        0,
        85,
        0,
        0,
    ]
