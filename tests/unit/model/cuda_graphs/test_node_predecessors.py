"""What nodes of CUDA graphs had to wait for, where the file has that. Times are ns."""

from hypothesis import given

from tests.build.random_replays import random_replays
from tests.build.rows import event_node, host_node, kernel, launch, timeline
from tests.examples import examples
from tests.reference.node_predecessors import Predecessors, Waited
from tracelab.model.cuda_graphs.node_predecessors import find_node_predecessors
from tracelab.model.trace import ABSENT

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
