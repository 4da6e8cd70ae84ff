"""Replays against the slow reference, and what must be true of every replay."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.reference.replay import replay_one
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NEVER, NodeKind, Program, Via
from tracelab.simulate.replay import order_in_blocks, replay, replay_edits

EDITS_OF_EDGES = st.sampled_from((0, 1, 900, NEVER))


def program(kinds, costs, edges, *, steps=1, is_repeated=True) -> Program:
    """A program of (source, target, via, lag, latency) edges; moments are 10 ns apart."""
    count = len(kinds)
    source, target, via, lag, latency = np.array(edges, dtype=np.int64).reshape(-1, 5).T
    is_activity = np.array(kinds, dtype=np.int8) == NodeKind.ACTIVITY
    return Program(
        kind=np.array(kinds, dtype=np.int8),
        event_id=np.arange(count),
        row=np.where(is_activity, np.arange(count), ABSENT),
        cost_ns=np.array(costs, dtype=np.int64),
        moment_ns=np.arange(count) * 10,
        thread_index=np.where(is_activity, ABSENT, 0).astype(np.int32),
        stream_index=np.where(is_activity, 0, ABSENT),
        activity_kind=np.where(is_activity, 0, ABSENT).astype(np.int8),
        launch_node=np.full(count, ABSENT),
        source=source,
        target=target,
        via=via.astype(np.int8),
        lag=lag.astype(np.int8),
        latency_ns=latency,
        steps=steps,
        length_ns=count * 10,
        is_repeated=is_repeated,
    )


@st.composite
def programs(draw, most=14) -> list[Program]:
    """A random program, and edits of it: other costs and latencies, further edges."""
    count = draw(st.integers(1, most))
    number = st.integers(0, count - 1)
    latency = st.integers(-30, 500)

    def edge(lag):
        first, second = draw(number), draw(number)
        if lag == 0 and first == second:
            lag = 1
        if lag == 0:
            first, second = min(first, second), max(first, second)
        return (first, second, draw(st.sampled_from(Via)), lag, draw(latency))

    def edges(least):
        lags = draw(st.lists(st.sampled_from((0, 0, 0, 1)), min_size=least, max_size=3 * count))
        return [edge(lag) for lag in lags]

    # Most nodes are on a thread or a stream, as they are in a recording.
    threads = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    along = []
    for thread in range(3):
        own = [node for node in range(count) if threads[node] == thread]
        via = Via.STREAM if thread else Via.HOST
        along += [(a, b, via, 0, draw(latency)) for a, b in pairwise(own)]
        along += [(own[-1], own[0], via, 1, draw(latency))] if own else []
    costs = st.lists(st.integers(0, 900), min_size=count, max_size=count)
    base = program(
        [NodeKind.ACTIVITY if thread else NodeKind.CALL for thread in threads],
        draw(costs),
        along + edges(0),
        steps=draw(st.integers(1, 3)),
        is_repeated=draw(st.booleans()),
    )
    edited = [base]
    for _ in range(draw(st.integers(0, 3))):
        is_changed = draw(
            st.lists(st.booleans(), min_size=len(base.source), max_size=len(base.source))
        )
        latency_ns = np.where(is_changed, draw(EDITS_OF_EDGES), base.latency_ns)
        more = np.array(edges(0), dtype=np.int64).reshape(-1, 5).T
        edited.append(
            replace(
                base,
                cost_ns=np.array(draw(costs), dtype=np.int64),
                source=np.append(base.source, more[0]),
                target=np.append(base.target, more[1]),
                via=np.append(base.via, more[2]).astype(np.int8),
                lag=np.append(base.lag, more[3]).astype(np.int8),
                latency_ns=np.append(latency_ns, more[4]),
            )
        )
    return edited


@given(programs())
def test_a_replay_agrees_with_the_slow_reference(edited):
    replayed = replay(edited)
    for number, one in enumerate(edited):
        step_ns, times_ns = replay_one(one, base=edited[0])
        reached = replayed.time_ns[:, number]
        assert {node: t for node, t in enumerate(reached.tolist()) if t > NEVER // 2} == times_ns
        if times_ns:
            assert replayed.step_ns[number] == step_ns


@given(programs())
def test_what_is_replayed_beside_a_program_does_not_change_it(edited):
    together = replay(edited)
    for number, one in enumerate(edited):
        alone = replay([edited[0], one]).time_ns[:, 1]
        assert (
            np.maximum(alone, NEVER // 2) == np.maximum(together.time_ns[:, number], NEVER // 2)
        ).all()


@given(programs(), st.integers(0, 13))
def test_no_node_is_reached_later_where_a_cost_is_less(edited, number):
    base = edited[0]
    node = number % len(base)
    cost_ns = base.cost_ns.copy()
    cost_ns[node] //= 2
    times_ns = replay([base, replace(base, cost_ns=cost_ns)]).time_ns
    assert (times_ns[:, 1] <= times_ns[:, 0]).all()


CALL, ACTIVITY = NodeKind.CALL, NodeKind.ACTIVITY


def host_and_gpu(*, host_ns: int, gpu_ns: int) -> Program:
    """Two launches a step on one thread, two kernels on one stream."""
    return program(
        [CALL, ACTIVITY, CALL, ACTIVITY],
        [host_ns, gpu_ns, host_ns, gpu_ns],
        [
            (0, 2, Via.HOST, 0, 0),
            (2, 0, Via.HOST, 1, 0),
            (0, 1, Via.LAUNCH, 0, 5),
            (2, 3, Via.LAUNCH, 0, 5),
            (1, 3, Via.STREAM, 0, 1),
            (3, 1, Via.STREAM, 1, 1),
        ],
    )


@pytest.mark.parametrize(
    ("host_ns", "gpu_ns", "step_ns"),
    [(100, 10, 200), (10, 100, 202), (100, 99, 200), (100, 0, 200)],
)
def test_a_step_takes_what_the_slower_of_host_and_gpu_takes(host_ns, gpu_ns, step_ns):
    assert replay([host_and_gpu(host_ns=host_ns, gpu_ns=gpu_ns)]).step_ns.tolist() == [step_ns]


def test_a_blocking_call_returns_after_what_it_waited_for_or_after_its_own_cost():
    def waiting(gpu_ns):
        return program(
            [CALL, ACTIVITY, CALL],
            [10, gpu_ns, 40],
            [
                (0, 1, Via.LAUNCH, 0, 5),
                (0, 2, Via.HOST, 0, 2),
                (1, 2, Via.WAIT, 0, 7),
                (2, 0, Via.HOST, 1, 3),
            ],
        )

    assert replay([waiting(1), waiting(100)]).step_ns.tolist() == [
        10 + 2 + 40 + 3,
        10 + 5 + 107 + 3,
    ]


def test_an_edit_that_adds_edges_and_takes_others_away_is_replayed_beside_its_base():
    base = host_and_gpu(host_ns=10, gpu_ns=100)
    latency_ns = base.latency_ns.copy()
    latency_ns[4] = NEVER  # the second kernel in a stream of its own
    latency_ns[5] = NEVER
    freed = replace(
        base,
        source=np.append(base.source, [1, 3]),
        target=np.append(base.target, [1, 3]),
        via=np.append(base.via, [Via.STREAM, Via.STREAM]).astype(np.int8),
        lag=np.append(base.lag, [1, 1]).astype(np.int8),
        latency_ns=np.append(latency_ns, [1, 1]),
    )
    assert replay([base, freed, base]).step_ns.tolist() == [202, 101, 202]


def test_a_program_that_runs_once_takes_from_its_first_to_its_last_node():
    once = program([CALL, ACTIVITY], [10, 100], [(0, 1, Via.LAUNCH, 0, 5)], is_repeated=False)
    assert replay([once]).step_ns.tolist() == [105]


def test_more_programs_than_one_pass_takes_give_the_same():
    base = host_and_gpu(host_ns=10, gpu_ns=100)
    edits = [replace(base, cost_ns=base.cost_ns * number) for number in range(70)]
    # As an edit may: the first kernel waits for itself, one repetition before.
    edits[3] = replace(
        edits[3],
        source=np.append(base.source, 1),
        target=np.append(base.target, 1),
        via=np.append(base.via, np.int8(Via.EVENT)),
        lag=np.append(base.lag, np.int8(1)),
        latency_ns=np.append(base.latency_ns, 7_000),
    )
    expected = [max(20 * number, 2 + 200 * number) for number in range(70)]
    expected[3] = 7_300
    assert replay([base, *edits]).step_ns.tolist() == [202, *expected]
    assert list(replay_edits(base, iter(edits))) == expected
    assert list(replay_edits(base, reversed(edits))) == expected[::-1]


def test_threads_that_take_turns_are_few_blocks():
    """A call of each follows the call of the one before, and its own of the last round."""
    threads, rounds = 500, 4
    call = np.arange(threads * rounds)
    source = np.concatenate((call[:-1], call[:-threads]))
    target = np.concatenate((call[1:], call[threads:]))
    every = np.ones(len(source), dtype=np.bool_)

    order = order_in_blocks(len(call), source, target, np.zeros(len(source), dtype=np.int8), every)

    assert order.node.tolist() == call.tolist()
    assert len(order.blocks) == rounds * 2  # of 256 nodes at most
