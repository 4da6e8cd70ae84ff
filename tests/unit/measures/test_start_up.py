"""Which idle time comes from the start of a recording, in steps of one launch or two."""

from itertools import accumulate

import pytest

from tests.build.rows import AUTOGRAD, MAIN, US, kernel, launch, step, trace
from tracelab.base.intervals import union
from tracelab.base.options import PROFILER_STEP
from tracelab.measures.bubbles import bubbles
from tracelab.measures.profiler_overhead import start_up
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline

TAKES = 2  # us, a launch


def program(*intervals_us, works_us=100, launches=1, threads=(MAIN,), early_us=0):
    """Steps of kernels that work for so long, each launched so many us after the one before.

    A step begins where the host ended the one before, or earlier, and the first one 1 us before its
    launch. The threads take turns to launch.
    """
    rows, free_us = [], 0
    launched_us = list(accumulate(intervals_us))
    begun_us = launched_us[0] - 1
    for number in range(len(launched_us) // launches):
        of_step = launched_us[number * launches : (number + 1) * launches]
        ended_us = of_step[-1] + TAKES + 1
        rows.append(step(number, begun_us * US, ended_us * US))
        begun_us = ended_us - early_us
        for place, at_us in enumerate(of_step):
            correlation = len(rows)
            starts_us = max(free_us, at_us + TAKES)
            free_us = starts_us + works_us
            rows += [
                launch(
                    at_us * US,
                    (at_us + TAKES) * US,
                    correlation,
                    thread=threads[place % len(threads)],
                ),
                kernel(starts_us * US, free_us * US, correlation=correlation),
            ]
    return rows


def found(*rows):
    """The idle before the host ran ahead, and where it was slow at first, as (start, end) in us."""
    graph = build_graph(observe_host(build_timeline(trace(*rows), step_pattern=PROFILER_STEP)))
    idle = bubbles(graph)
    origin_ns = graph.host.timeline.steps[0].start_ns

    def of(is_chosen):
        time = union(idle.start_ns[is_chosen] - origin_ns, idle.end_ns[is_chosen] - origin_ns)
        return list(zip((time.starts / US).tolist(), (time.ends / US).tolist(), strict=True))

    result = start_up(graph, idle)
    return of(result.not_ahead), of(result.slow)


def test_idle_time_before_the_host_runs_ahead():
    # GIVEN kernels of 100 us. The first is launched at 10 us and works from 12 to 112; the second
    # at 160, from 162 to 262; the third at 270, from 272 on; then one each 80 us, while the GPU
    # works. The first step begins at 9.
    rows = program(10, 150, 110, 80, 80, 80)

    # THEN all idle time until the third one starts is there because the recording has just begun
    assert found(*rows) == ([(0, 3), (103, 153), (253, 263)], [])


def test_without_steps_in_which_the_host_is_ahead_only_the_start_is_slow():
    # GIVEN kernels of 50 us, launched after 150 us at first, and then each 110 us: from 12, 162,
    # 272, 382, 492 on, each of which the GPU waits for
    rows = program(10, 150, 110, 110, 110, works_us=50)

    # THEN the program has this idle time, and at the start more of it
    assert found(*rows) == ([], [(0, 3), (53, 153)])


@pytest.mark.parametrize(("interval_us", "expected"), [(320, [(103, 323)]), (321, [])])
def test_not_where_the_host_stalls(interval_us, expected):
    # GIVEN a second launch that takes so long, while the others take 80 us: the median is 80
    not_ahead, _ = found(*program(10, interval_us, 80, 80, 80, 80))

    # THEN it is a stall beyond four times as much
    assert not_ahead == [(0, 3), *expected]


@pytest.mark.parametrize("threads", [(MAIN,), (MAIN, AUTOGRAD)], ids=["one thread", "two threads"])
@pytest.mark.parametrize("early_us", [0, 20], ids=["one after another", "overlapping"])
def test_of_two_launches_in_a_step_each_has_its_own_usual_time(threads, early_us):
    # GIVEN steps of two launches, 10 and 150 us after the one before. The kernels work for 100 us:
    # launched at 10 and 160, 170 and 320, 330 and 480 ... they start at 12, 162, 262, 362, ...
    of_launches = (10, 150, 10, 150, 10, 150, 10, 150)
    rows = program(*of_launches, launches=2, threads=threads, early_us=early_us)

    # THEN 150 us are nothing unusual at the second launch, though most take 10
    assert found(*rows) == ([(0, 3), (103, 153)], [])


def test_a_stall_later_on_is_no_start():
    # GIVEN a host that is ahead from the second step on, and stalls before the fourth
    assert found(*program(10, 80, 80, 500, 80, 80, 80)) == ([(0, 3)], [])


def test_a_host_that_is_seldom_ahead_does_not_run_ahead():
    # GIVEN kernels of 100 us, of which only the third and the fourth are launched in time
    rows = program(10, 150, 80, 80, 150, 150, 150, 150, 150)

    # THEN
    assert found(*rows) == ([], [(0, 3), (103, 153)])


def test_work_of_before_the_recording_keeps_the_gpu_busy():
    # GIVEN a kernel that the file has no launch of, until 12 us, when the first one could start
    rows = [kernel(0, 12 * US), *program(10, 80, 80, 80)]

    # THEN the host is ahead from the first step on
    assert found(*rows) == ([], [])


def test_two_steps_show_nothing():
    assert found(*program(10, 150)) == ([], [])
