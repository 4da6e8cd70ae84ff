"""Idle time inside replays of CUDA graphs. Times of hand-made traces are ns."""

import pytest
from hypothesis import given, strategies as st

from tests.build.random_replays import random_replays
from tests.build.rows import graph, kernel, launch
from tests.examples import examples
from tests.reference.graph_idle import Before, Sum, sums
from tracelab.measures.graph_idle import graph_idle_rows
from tracelab.measures.idle_causes import bubbles
from tracelab.model.steps import Window


def rows_of(*rows, windows=None):
    made_graph = graph(*rows)
    idle = bubbles(made_graph)
    return list(graph_idle_rows(made_graph, windows or made_graph.host.timeline.windows, idle))


@pytest.mark.parametrize("unit", [100, 10_000])
@examples(150)
@given(data=st.data())
def test_rows_add_up_to_the_idle_time_inside_graphs(unit, data):
    rows = data.draw(random_replays(unit))
    made_graph = graph(*rows)
    idle, windows = bubbles(made_graph), made_graph.host.timeline.windows[:1]

    found = list(graph_idle_rows(made_graph, windows, idle))

    for device in made_graph.host.timeline.device_numbers:
        [by_cause] = idle.by_cause(device, windows)
        assert sum(row.idle_ns for row in found if row.device == device) == by_cause["graph"]
    expected = sums(made_graph, idle, windows[0])
    assert {
        Before(row.device, row.wait, row.name, row.stream, row.awaited, row.awaited_stream): Sum(
            row.count, row.idle_ns, row.waiting_ns
        )
        for row in found
    } == expected


@examples(100)
@given(random_replays())
def test_causes_of_idle_time_add_up(rows):
    made_graph = graph(*rows)
    [whole] = made_graph.host.timeline.windows

    idle = bubbles(made_graph)

    for device in made_graph.host.timeline.device_numbers:
        [by_cause] = idle.by_cause(device, [whole])
        of_device = made_graph.host.timeline.select(device=device)
        busy = made_graph.host.timeline.busy(of_device)
        busy_ns = int((busy.ends - busy.starts).sum())
        assert sum(by_cause.values()) == whole.length_ns - busy_ns


# A fork and a join: `b` and `c` wait for `a`, `d` for both, 20 ns after `c` has ended.
REPLAY = [
    launch(-20, -10, 1, name="cudaGraphLaunch"),
    kernel(0, 100, "a", correlation=1),
    kernel(110, 150, "b", correlation=1),
    kernel(130, 400, "c", correlation=1, stream=15),
    kernel(420, 500, "d", correlation=1),
]


def test_without_dependencies_the_node_before_it_in_its_stream_is_all_that_is_known():
    # `d` follows `b`, which ended at 150 in its stream: that `c` ended at 400 is another stream's.
    rows = rows_of(*REPLAY)

    assert [(x.wait, x.name, x.awaited, x.idle_ns, x.latency_ns) for x in rows] == [
        ("not_in_file", "d", "b", 20, 270),
        ("not_in_file", "b", "a", 10, 10),
    ]


def test_bubbles_of_all_replays_are_one_row_and_cut_to_the_window():
    # GIVEN three replays of 1,000 ns with 40 ns idle before `b`, of which the window cuts the last
    rows = []
    for number in range(3):
        at = 1_000 * number
        rows += [
            launch(at - 20, at - 10, number + 1, name="cudaGraphLaunch"),
            kernel(at, at + 100, "a", correlation=number + 1),
            kernel(at + 140, at + 1_000, "b", correlation=number + 1),
        ]

    [row] = rows_of(*rows, windows=[Window(None, 0, 2_110)])

    assert (row.count, row.replays, row.idle_ns, row.longest_ns) == (3, 3, 90, 40)
    assert row.longest_start_ns == 100


def test_what_is_beyond_a_hundred_rows_is_one_row():
    # GIVEN 103 nodes of different names, each 10 ns and the last three 5 ns after the one before
    rows, now = [launch(-20, -10, 1, name="cudaGraphLaunch"), kernel(0, 100, correlation=1)], 100
    for number in range(103):
        start = now + (10 if number < 100 else 5)
        rows.append(kernel(start, start + 50, f"kernel {number}", correlation=1))
        now = start + 50

    found = rows_of(*rows)

    assert len(found) == 101
    rest = found[-1]
    assert (rest.name, rest.awaited, rest.count, rest.idle_ns) == (None, None, 3, 15)
    assert sum(row.idle_ns for row in found) == 1_015
