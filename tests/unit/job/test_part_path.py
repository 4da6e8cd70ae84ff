"""What one rank's file gives to its job's critical path."""

from collections import Counter

import numpy as np
from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import US, comm, graph, kernel, launch, python, step
from tests.examples import examples
from tests.reference.ticks import scaled
from tracelab.job.part_path import NO_PATH, path_part
from tracelab.measures.critical_path import PathKind, critical_paths
from tracelab.model.collectives import collectives
from tracelab.model.program.call_sites import CallSite
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.trace import ABSENT


def ways_of(made_graph, cuts_ns=()):
    row = collectives(made_graph.host.timeline).row
    return path_part(made_graph, row, SourceLines(()), np.array(sorted(cuts_ns), dtype=np.int64))


def walked(ways, node, since_ns):
    """The kinds of the path from a node to a moment at which it is cut, without other ranks."""
    spent, now_ns = Counter(), int(ways.at_ns[node])
    while now_ns > since_ns and node != ABSENT:
        for piece in range(ways.first[node], ways.first[node + 1]):
            spent[PathKind(ways.kind[piece]).name.lower()] += int(ways.length_ns[piece])
        now_ns, node = int(ways.reached_ns[node]), ways.next_node[node]
        if node != ABSENT and ways.operation_index[node] != ABSENT:
            begun_ns = max(since_ns, int(ways.at_ns[node]))
            spent["comm"] += now_ns - begun_ns
            now_ns = begun_ns
    spent["unknown"] += now_ns - since_ns
    return {kind: length for kind, length in spent.items() if length}


@examples(150)
@given(random_rows())
def test_ways_of_one_rank_make_its_own_critical_path(rows):
    made_graph = graph(*scaled(rows))
    timeline = made_graph.host.timeline

    ways = ways_of(made_graph, {window.start_ns for window in timeline.windows})

    if not len(ways):
        assert ways is NO_PATH
        return
    sums = [ways.length_ns[a:b].sum() for a, b in zip(ways.first, ways.first[1:], strict=False)]
    assert sums == (ways.at_ns - ways.reached_ns).tolist()
    assert (ways.length_ns > 0).all()
    follows = ways.next_node != ABSENT
    assert (ways.reached_ns >= ways.at_ns[ways.next_node])[follows].all()
    windows = [*timeline.windows[1:], timeline.windows[0]]
    for window, node, path in zip(
        windows, ways.end_node.tolist(), critical_paths(made_graph, windows), strict=True
    ):
        expected = {kind: length for kind, length in path.by_kind().items() if length}
        assert walked(ways, node, window.start_ns) == expected


def test_ways_are_few_however_many_kernels_lie_between():
    # GIVEN two collectives with a hundred, or a thousand kernels of two names before each
    def part(count):
        rows, now = [step(0, 0, 10)], 10
        for number in range(2):
            for index in range(count):
                rows += [
                    launch(1, 2, now),
                    kernel(now, now + 2, f"k{index % 2}", correlation=now),
                ]
                now += 2
            rows += [launch(3, 4, now), comm(now, now + 5, correlation=now)]
            now += 5 + number
        return ways_of(graph(*rows))

    few, many = part(100), part(1_000)

    # THEN the ways of both have as many pieces: two names of compute, and the launch
    assert len(few) == len(many) == 4
    assert len(few.kind) == len(many.kind)
    assert {place.name for place in many.places} <= {"k0", "k1", "ncclDevKernel_AllReduce"}


def test_host_work_is_named_by_what_the_host_was_in():
    # GIVEN a host that prepares for 900 us, and then trains until the launch at 1000
    rows = [
        step(0, 0, 1_100 * US),
        python("train.py(3): prepare", 0, 900 * US),
        python("train.py(9): train", 900 * US, 1_100 * US),
        launch(1_000 * US, 1_001 * US, 1),
        comm(1_010 * US, 1_100 * US, correlation=1),
    ]

    ways = ways_of(graph(*rows))

    node = ways.node[0]
    pieces = slice(ways.first[node], ways.first[node + 1])
    figures = {
        (PathKind(kind), ways.places[place].name, length // US)
        for kind, place, length in zip(
            ways.kind[pieces].tolist(),
            ways.place_index[pieces].tolist(),
            ways.length_ns[pieces].tolist(),
            strict=True,
        )
    }
    # THEN it is sampled 16 times, 62.5 us apart: 14 of these are in what it prepares
    assert figures == {
        (PathKind.HOST, "train.py(3): prepare", 875),
        (PathKind.HOST, "train.py(9): train", 125),
        (PathKind.LAUNCH, "ncclDevKernel_AllReduce", 10),
    }
    assert ways.next_node[node] == ABSENT
    assert CallSite(function="train", file="train.py") in {place.site for place in ways.places}
