"""What nodes of CUDA graphs had to wait for, where the file has that. Times are ns."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from tests.build.random_replays import random_replays
from tests.build.rows import Node, event_node, graph, host_node, kernel, launch, timeline
from tests.examples import examples
from tests.reference.node_predecessors import Predecessors, Waited
from tracelab.model.constraints import Constraint
from tracelab.model.cuda_graphs.node_predecessors import find_node_predecessors, node_dependencies
from tracelab.model.graph import EdgeKind
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES

REPLAY = launch(0, 100, 1, name="cudaGraphLaunch")


def waited(*rows, links):
    """By event id what each row waited for."""
    made = timeline(*rows, node_links=links)
    found = find_node_predecessors(made)
    event_id = [*made.event_id.tolist(), None]
    return {
        event_id[row]: Waited(
            is_known,
            event_id[activity],
            None if callback == ABSENT else callback,
            event_id[before],
            is_inferred,
        )
        for row, (is_known, activity, callback, before, is_inferred) in enumerate(
            zip(
                found.is_known.tolist(),
                found.row.tolist(),
                found.callback_id.tolist(),
                found.row_before_callback.tolist(),
                found.callback_is_inferred.tolist(),
                strict=True,
            )
        )
    }


@examples(300)
@given(random_replays())
def test_predecessors_are_those_of_a_slow_account(replays):
    rows, links = replays
    expected = Predecessors(timeline(*rows, node_links=links))

    assert waited(*rows, links=links) == {x: expected.of(x) for x in expected.activities}


def test_of_several_predecessors_the_one_that_ended_last_counts():
    # GIVEN a join: 3 waits for 1, in its stream until 300, and for 2, in another one until 400
    rows = [
        REPLAY,
        kernel(200, 300, correlation=1),
        kernel(200, 400, correlation=1, stream=13),
        kernel(500, 600, correlation=1),
    ]
    assert waited(*rows, links=[(1, 3), (2, 3)]) == {
        1: Waited(),
        2: Waited(),
        3: Waited(is_known=True, activity=2),
    }


def test_a_recorded_event_stands_for_what_is_before_it():
    # GIVEN 3 waits for the event 2, which was recorded after 1 had ended at 300
    rows = [
        REPLAY,
        kernel(200, 300, correlation=1),
        event_node(305, correlation=1),
        kernel(310, 400, correlation=1, stream=13),
    ]
    assert waited(*rows, links=[(1, 2), (2, 3)])[3] == Waited(is_known=True, activity=1)


def test_a_callback_counts_with_what_it_waited_for():
    # GIVEN 4 waits for the callback 2, which waits for 1, and for 3, which ended meanwhile
    rows = [
        REPLAY,
        kernel(200, 300, correlation=1),
        host_node(310, 900, correlation=1),
        kernel(200, 500, correlation=1, stream=13),
        kernel(950, 1_000, correlation=1),
    ]
    assert waited(*rows, links=[(1, 2), (2, 4), (3, 4)])[4] == Waited(
        is_known=True, activity=3, callback=2, before_callback=1
    )


def test_a_callback_without_correlation_counts_for_what_starts_just_after_it():
    # GIVEN a replay that was queued behind another one: CUPTI gives its callback no correlation, so
    # that it has no dependencies. Kernel 3 starts 50 ns after it in its stream, 4 after that.
    rows = [
        REPLAY,
        kernel(200, 300, correlation=1),
        host_node(310, 900),
        kernel(950, 1_000, correlation=1),
        kernel(1_001, 1_100, correlation=1),
    ]
    found = waited(*rows, links=[(3, 4)])

    assert found[3] == Waited(callback=2, before_callback=1, is_inferred=True)
    assert found[4] == Waited(is_known=True, activity=3)


def test_dependencies_in_a_circle_are_not_followed():
    rows = [
        REPLAY,
        event_node(200, correlation=1),
        event_node(300, correlation=1),
        kernel(400, 500, correlation=1),
    ]
    assert waited(*rows, links=[(1, 2), (2, 1), (3, 3), (2, 3)])[3] == Waited(is_known=True)


# --- dependencies between rows ---

CORRELATION = 4


def node(maker, *times, number, stream=7):
    return maker(*times, stream=stream, correlation=CORRELATION, node=Node(number))


def pairs_of(rows, links):
    made = timeline(*rows, node_links=links)
    row, source_row = node_dependencies(made)
    ids = made.event_id
    return sorted(zip(ids[source_row].tolist(), ids[row].tolist(), strict=True))


def test_a_host_node_passes_on_what_it_waits_for():
    """Kernel 0, a host function, an event, then kernels 3 and 4 of other streams."""
    rows = [
        node(kernel, 10, 20, number=1),
        node(host_node, 20, 50, number=2),
        node(event_node, 50, number=3, stream=8),
        node(kernel, 60, 70, number=4, stream=8),
        node(kernel, 62, 70, number=5, stream=9),
        launch(0, 5, CORRELATION, name="cudaGraphLaunch"),
    ]
    links = [(0, 1), (1, 2), (2, 3), (1, 4), (0, 4)]
    assert pairs_of(rows, links) == [(0, 3), (0, 4)]


def test_a_damaged_file_does_not_stand_for_the_square_of_its_links():
    """2,000 kernels before an event that 2,000 more wait for would be 4 million pairs."""
    before = [node(kernel, 10, 20, number=i) for i in range(2_000)]
    after = [node(kernel, 30, 40, number=i, stream=8) for i in range(2_000)]
    rows = [*before, node(event_node, 25, number=2_000), *after]
    links = [(i, 2_000) for i in range(2_000)] + [(2_000, 2_001 + i) for i in range(2_000)]
    assert pairs_of(rows, [(0, 2_001), *links]) == [(0, 2_001)]


def test_a_link_against_time_is_none():
    rows = [node(kernel, 10, 20, number=1), node(kernel, 5, 8, number=2, stream=8)]
    assert pairs_of(rows, [(0, 1)]) == []


def test_a_node_waits_for_its_predecessor_on_another_stream():
    """The fork runs 20 to 40 beside 20 to 90; the join at 92 waits for the longer branch."""
    rows = [
        node(kernel, 10, 20, number=1),
        node(kernel, 22, 40, number=2),
        node(kernel, 22, 90, number=3, stream=8),
        node(kernel, 92, 99, number=4),
        launch(0, 5, CORRELATION, name="cudaGraphLaunch"),
    ]
    made = graph(*rows, node_links=[(0, 1), (0, 2), (1, 3), (2, 3)])
    ids = made.host.timeline.event_id
    [join] = np.flatnonzero(ids == 3)
    assert made.binding.constraint[join] == Constraint.EVENT
    assert ids[made.binding.source_row[join]] == 2
    assert not made.binding.is_inferred[join]
    is_event = made.kind == EdgeKind.EVENT
    edges = zip(made.source_id[is_event].tolist(), made.target_id[is_event].tolist(), strict=True)
    assert sorted(edges) == [(0, 2), (2, 3)]
    assert made.links.exact == 0  # no stream was made to wait


@st.composite
def _replays(draw):
    """Nodes of any sort at random times, and random links between them."""
    rows = []
    for number in range(draw(st.integers(1, 9))):
        maker = draw(st.sampled_from([kernel, kernel, host_node, event_node]))
        start = draw(st.integers(0, 20))
        times = (start,) if maker is event_node else (start, start + draw(st.integers(0, 5)))
        rows.append(node(maker, *times, number=number, stream=draw(st.integers(7, 9))))
    index = st.integers(0, len(rows) - 1)
    links = draw(st.lists(st.tuples(index, index), max_size=20))
    return rows, links


def slow_pairs(rows, links):
    """Every way from an activity to another over nodes that are none, by a search from each."""
    forward = {(one, two) for one, two in links if (rows[one].start, one) < (rows[two].start, two)}

    def reached(source):
        for one, two in forward:
            if one == source:
                yield from [two] if rows[two].category in GPU_ACTIVITIES else reached(two)

    return sorted(
        {
            (source, target)
            for source, row in enumerate(rows)
            if row.category in GPU_ACTIVITIES
            for target in reached(source)
        }
    )


@given(_replays())
def test_dependencies_are_those_that_a_search_finds(replay):
    rows, links = replay
    assert pairs_of(rows, links) == slow_pairs(rows, links)
