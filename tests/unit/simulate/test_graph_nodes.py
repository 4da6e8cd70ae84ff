"""Nodes of CUDA graphs in a replay: they keep their dependencies, where the file has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build.rows import US, graph, host_node, kernel, launch
from tests.unit.simulate.test_recorded import edges_of
from tracelab import build_graph, build_timeline, find_sources, observe_host, read_trace
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.graph import Graph
from tracelab.model.lookup import calls_of_name, groups_of
from tracelab.model.timeline import Timeline
from tracelab.simulate.baseline import find_baseline
from tracelab.simulate.program import Via
from tracelab.simulate.recorded import record_program
from tracelab.simulate.replay import replay

TRACES = Path(__file__).parents[3] / "traces"


def program_of(*rows, links=()):
    return record_program(graph(*rows, node_links=links)).program


def test_a_node_waits_for_its_predecessors_in_other_streams():
    # GIVEN a fork and a join: 3 waits for 1, and 4 for 2 and 3; 4 starts 2 us after 3 has ended
    rows = [
        launch(0, 5 * US, 1, name="cudaGraphLaunch"),
        kernel(10 * US, 20 * US, correlation=1),
        kernel(21 * US, 30 * US, correlation=1),
        kernel(23 * US, 50 * US, correlation=1, stream=13),
        kernel(52 * US, 60 * US, correlation=1),
    ]
    links = [(1, 2), (1, 3), (2, 4), (3, 4)]

    program = program_of(*rows, links=links)

    # THEN there are edges across streams, with the lower median of their latencies of 3 and 2 us
    assert edges_of(program, Via.EVENT) == [(1, 3, 2 * US), (3, 4, 2 * US)]
    assert edges_of(program, Via.STREAM) == [(1, 2, US), (2, 4, US)]


def test_the_function_of_the_host_between_two_nodes_takes_its_time():
    # GIVEN a callback from 22 to 72 us between two kernels that end at 20 and start at 75 us
    rows = [
        launch(0, 5 * US, 1, name="cudaGraphLaunch"),
        kernel(10 * US, 20 * US, correlation=1),
        host_node(22 * US, 72 * US, correlation=1),
        kernel(75 * US, 80 * US, correlation=1),
    ]
    program = program_of(*rows, links=[(1, 2), (2, 3)])

    assert edges_of(program, Via.EVENT) == [(1, 3, 55 * US)]
    assert replay([program]).step_ns.tolist() == [program.length_ns]


def test_a_graph_that_begins_with_a_function_of_the_host_starts_after_it():
    # GIVEN a callback of 40 us that begins a graph, and a kernel before the graph in its stream
    rows = [
        launch(0, 2 * US, 1),
        kernel(4 * US, 10 * US, correlation=1),
        launch(3 * US, 5 * US, 2, name="cudaGraphLaunch"),
        host_node(12 * US, 52 * US, correlation=2),
        kernel(54 * US, 60 * US, correlation=2),
    ]
    program = program_of(*rows, links=[(3, 4)])

    # THEN the kernel comes 42 us after what its stream did before, and 40 us later after the launch
    # than a replay does, 6 us
    assert edges_of(program, Via.EVENT) == [(1, 4, 42 * US)]
    assert (2, 4, 40 * US + 6_000) in edges_of(program, Via.LAUNCH)


@pytest.mark.parametrize("name", ["launches_graph", "two_streams_small_graph"])
def test_with_dependencies_in_the_file_captures_replay_as_without(name):
    [source] = find_sources([str(TRACES / f"{name}.pt.trace.json.gz")])
    timeline = build_timeline(read_trace(source))
    plain = build_graph(observe_host(timeline))
    linked = _with_links(timeline)

    assert linked.binding.has_predecessors.any()
    assert not plain.binding.has_predecessors.any()
    assert linked.binding.constraint.tolist() == plain.binding.constraint.tolist()
    baseline, expected = find_baseline(linked), find_baseline(plain)
    assert baseline.replayed_ns == expected.replayed_ns
    assert baseline.error == expected.error


def _with_links(timeline: Timeline) -> Graph:
    """The graph of a file, had it said that each node of a replay follows its stream.

    The branches of these two captures do not wait for each other: no more dependencies exist.
    """
    trace = timeline.trace
    launch_id = np.where(
        np.isin(timeline.launch_id, calls_of_name(trace, is_graph_launch)), timeline.launch_id, -1
    )
    pairs = [
        (int(timeline.event_id[before]), int(timeline.event_id[row]))
        for _, rows in groups_of(launch_id)
        for before, row in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)
        if timeline.stream_index[before] == timeline.stream_index[row]
    ]
    predecessor_id, successor_id = np.array(pairs, dtype=np.int64).T
    nodes = replace(
        trace.graph_nodes, predecessor_id=predecessor_id.copy(), successor_id=successor_id.copy()
    )
    return build_graph(observe_host(build_timeline(replace(trace, graph_nodes=nodes))))
