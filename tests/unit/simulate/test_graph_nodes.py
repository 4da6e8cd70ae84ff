"""Nodes of CUDA graphs in a replay: they keep their dependencies, where the file has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.build.cupti_collector import Collector, rewritten, stream_order, write
from tests.build.rows import US, graph, host_node, kernel, launch
from tests.unit.simulate.test_recorded import edges_of
from tracelab import analyze, build_graph, build_timeline, find_sources, observe_host, read_trace
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
def test_with_dependencies_in_the_file_captures_replay_as_without(name, tmp_path):
    # GIVEN the capture as the new collector would have written it. The branches of these graphs do
    # not wait for each other: the order of their streams is all the dependencies that they have.
    capture = TRACES / f"{name}.pt.trace.json.gz"
    plain = graph_of(capture)
    file = write(rewritten(capture, Collector(links=stream_order)), tmp_path / capture.name)
    linked = graph_of(file)

    assert linked.binding.has_predecessors.any()
    assert not plain.binding.has_predecessors.any()
    assert linked.binding.constraint.tolist() == plain.binding.constraint.tolist()
    baseline, expected = find_baseline(linked), find_baseline(plain)
    assert baseline.replayed_ns == expected.replayed_ns
    assert baseline.error == expected.error


def test_idle_inside_graphs_is_the_same_with_dependencies_and_says_more(tmp_path):
    capture = TRACES / "launches_graph.pt.trace.json.gz"
    file = write(rewritten(capture, Collector(links=stream_order)), tmp_path / capture.name)

    plain, linked = analyze(str(capture)), analyze(str(file))

    assert {row.wait for row in plain.graph_idle} == {"not_in_file"}
    assert {row.wait for row in linked.graph_idle} == {"node"}
    # The collector leaves out some calls, so that events have other ids and times another origin.
    other = {"wait": "", "event": 0, "awaited_event": 0, "longest_start_ns": 0}
    assert [replace(row, **other) for row in linked.graph_idle] == [
        replace(row, **other) for row in plain.graph_idle
    ]


def graph_of(path):
    [source] = find_sources([str(path)])
    return build_graph(observe_host(build_timeline(read_trace(source))))
