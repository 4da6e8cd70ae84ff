"""Which calls lost their GPU work, worked out by hand."""

import pytest

from tests.build.rows import US, call, copy, event_node, kernel, launch, step, timeline
from tracelab.model.timeline import APART, CUT, LeftOut

NODES = (("norm", 4), ("gemm", 10), ("gelu", 4), ("gemm", 10), ("add", 6))  # us


def graph_launch(start, correlation):
    return call("cudaGraphLaunch", start, start + US, correlation=correlation)


def replay(start, correlation, nodes=NODES, lost=()):
    """One replay at `start`: its call, and its nodes without pauses between them."""
    rows, at = [graph_launch(start, correlation)], start + 5 * US
    for i, (name, length) in enumerate(nodes):
        if i not in lost:
            rows.append(kernel(at, at + length * US, name, correlation=correlation))
        at += length * US
    return rows


def counts(*rows):
    return {name: count for name, count in timeline(*rows).lost_work.counts().items() if count}


def test_nothing_is_lost_where_every_call_has_its_activity():
    rows = [launch(0, 1, 1), kernel(5, 9, correlation=1)]
    rows += [call("cudaMemcpyAsync", 2, 3, correlation=2), copy(9, 12, correlation=2)]
    rows += replay(20 * US, 3) + replay(70 * US, 4)
    assert counts(*rows) == {}
    assert timeline(*rows).missing_work == ("", False)


def test_calls_without_activity_are_counted_by_what_they_launch():
    rows = [launch(0, 1, 1), kernel(5, 9, correlation=1), launch(10, 11, 2)]
    rows += [call("cudaMemcpyAsync", 12, 13, correlation=3), graph_launch(20, 4)]
    assert counts(*rows) == {
        "launches_without_activity": 1,
        "copies_without_activity": 1,
        "replays_without_activity": 1,
    }
    words = "1 of 2 kernel launches, 1 of 1 copies, 1 of 1 graph replays"
    assert timeline(*rows).missing_work == (words, True)


def test_a_graph_of_events_alone_has_lost_nothing():
    rows = [launch(0, 1, 1), kernel(5, 9, correlation=1)]
    assert counts(*rows, graph_launch(20, 2), event_node(30, correlation=2)) == {}


def test_a_replay_lacks_the_nodes_that_it_has_a_pause_for():
    # The third lacks 10 of 34 us, where a pause is.
    rows = replay(0, 1) + replay(50 * US, 2) + replay(100 * US, 3, lost=[1])
    assert counts(*rows) == {"incomplete_replays": 1}


def test_of_two_replays_that_differ_the_fuller_one_may_be_whole():
    assert counts(*replay(0, 1), *replay(50 * US, 2, lost=[1])) == {"incomplete_replays": 1}


@pytest.mark.parametrize(
    "other",
    [
        (*NODES[:3], ("gemm of more rows", 10), NODES[4]),  # another kernel in the same place
        (NODES[0], *NODES[2:]),  # shorter by the kernel that it does not have
    ],
    ids=["another", "fewer"],
)
def test_replays_of_different_graphs_are_whole(other):
    rows = replay(0, 1) + replay(50 * US, 2) + replay(100 * US, 3, other) + replay(150 * US, 4)
    assert counts(*rows) == {}


def test_a_replay_that_breaks_off_where_all_is_lost_is_incomplete():
    # The records end within the second replay; of the third nothing is there.
    rows = replay(0, 1) + replay(50 * US, 2, lost=[3, 4]) + [graph_launch(100 * US, 3)]
    assert counts(*rows) == {"incomplete_replays": 1, "replays_without_activity": 1}


def steps_that_lack(*lacking, count=5):
    rows = []
    for number in range(count):
        start = 100 * number
        rows += [step(number, start, start + 90), launch(start + 10, start + 15, number)]
        if number not in lacking:
            rows.append(kernel(start + 30, start + 50, correlation=number))
    return rows


def test_no_step_that_lacks_work_lies_in_the_steady_window():
    # Steps 2 to 4 are three in a row; 0 is apart from them.
    steady = timeline(*steps_that_lack(1)).steady
    assert (steady.indices, steady.window.start_ns) == ((2, 3, 4), 200)
    assert steady.left_out == (LeftOut(0, APART), LeftOut(1, CUT))


def test_work_of_steps_that_are_left_out_is_not_missing():
    assert timeline(*steps_that_lack(1)).missing_work == ("", False)
    everywhere = timeline(*steps_that_lack(*range(5)), *replay(600, 9))
    assert everywhere.missing_work == ("5 of 5 kernel launches", True)


def test_little_is_missing_up_to_2_percent_of_a_kind():
    rows = [kernel(10 * i, 10 * i + 5, correlation=i) for i in range(99)]
    rows += [launch(10 * i, 10 * i + 1, correlation=i) for i in range(100)]
    assert timeline(*rows).missing_work == ("1 of 100 kernel launches", False)
