"""Which ranks are the stages of a pipeline, and by which schedule, found in simulated ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.pipelines import (
    Pass,
    gpipe,
    interleaved,
    job,
    one_f_one_b,
    rank_that,
)
from tests.examples import examples
from tracelab.job.pipeline_stages import find_chains
from tracelab.model.collectives import Operation
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT

SEND, RECV = Operation.SEND, Operation.RECV


def chain_of(parts):
    [chain] = find_chains(parts)
    return chain


def shown(parts):
    chain = chain_of(parts)
    return chain.order.schedule, chain.order.microbatches


@examples(100)
@given(
    st.sampled_from([(gpipe, "gpipe"), (one_f_one_b, "1f1b")]),
    st.permutations(range(5)),
    st.integers(2, 5),
    st.integers(2, 8),
    st.integers(1, 3),
    st.booleans(),
)
def test_order_of_messages_tells_stages_microbatches_and_schedule(
    schedule, numbers, stages, microbatches, tensors, has_phases
):
    carried_out, name = schedule
    ranks = tuple(numbers[:stages])

    made = job(
        carried_out,
        stages,
        microbatches,
        ranks=ranks,
        steps=2,
        tensors=tensors,
        has_phases=has_phases,
    )

    chain = chain_of(made.parts)
    assert (chain.ranks, chain.steps, chain.other_steps) == (ranks, (0, 1), 0)
    assert (chain.order.schedule, chain.order.microbatches) == (name, microbatches)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_with_one_microbatch_all_schedules_are_the_same(stages):
    assert shown(job(gpipe, stages, 1).parts) == ("gpipe", 1)
    assert shown(job(one_f_one_b, stages, 1).parts) == ("gpipe", 1)


@pytest.mark.parametrize(
    ("stages", "microbatches", "chunks"), [(2, 4, 2), (2, 6, 3), (4, 8, 2), (3, 6, 4), (3, 3, 2)]
)
def test_several_chunks_on_each_rank_are_of_no_known_schedule(stages, microbatches, chunks):
    made = job(interleaved(chunks), stages, microbatches, chunks=chunks)

    assert shown(made.parts) == ("unknown", None)
    why = "each rank has several chunks" if stages > 2 else "activations go both ways"
    assert chain_of(made.parts).order.why.startswith(why)


def test_two_ranks_without_phases_are_taken_for_one_chunk_each():
    made = job(interleaved(2), 2, 2, chunks=2, has_phases=False)

    # What one rank sends is no different from 1F1B with three times as many microbatches.
    assert shown(made.parts) == ("1f1b", 6)


def test_more_in_flight_than_1f1b_has_is_of_no_known_schedule():
    def eager(stage, stages, microbatches):
        warm_up = min(microbatches, 2 * (stages - 1 - stage) + 1)
        order = [Pass("F", i) for i in range(warm_up)]
        for i in range(microbatches):
            order.append(Pass("B", i))
            if warm_up + i < microbatches:
                order.append(Pass("F", warm_up + i))
        return order

    assert shown(job(eager, 4, 12).parts) == ("unknown", None)
    assert chain_of(job(eager, 4, 12).parts).order.why == "more is in flight than 1F1B has"


def test_forward_passes_alone_are_of_no_known_schedule():
    def inference(stage, stages, microbatches):
        return gpipe(stage, stages, microbatches)[:microbatches]

    assert shown(job(inference, 3, 4).parts) == ("unknown", None)
    assert chain_of(job(inference, 3, 4).parts).order.why == "no gradients are sent"
    assert find_chains(job(inference, 3, 1).parts) == ()  # one message that is sent on


def test_replicas_are_pipelines_of_their_own():
    first = job(gpipe, 2, 3, ranks=(0, 2)).parts
    second = job(gpipe, 2, 3, ranks=(1, 3)).parts

    assert [chain.ranks for chain in find_chains([*first, *second])] == [(0, 2), (1, 3)]


def test_a_step_with_another_order_is_left_out():
    parts = job(gpipe, 2, 3, steps=3).parts
    sends = [part.operation == SEND for part in parts]
    first = [
        np.flatnonzero(is_send & (part.step_index == 1))[0]
        for is_send, part in zip(sends, parts, strict=True)
    ]
    receives = [
        np.flatnonzero(~is_send & (part.step_index == 1))[0]
        for is_send, part in zip(sends, parts, strict=True)
    ]
    # Of the step in the middle one message less each way.
    for i, part in enumerate(parts):
        peer = part.peer_rank.copy()
        peer[[first[i], receives[i]]] = ABSENT
        parts[i] = replace(part, peer_rank=peer)

    chain = chain_of(parts)

    assert (chain.order.microbatches, chain.steps, chain.other_steps) == (3, (0, 2), 1)


def test_steps_that_are_not_steady_are_left_out():
    parts = job(gpipe, 2, 3, steps=3).parts
    steps = replace(parts[1].steps, is_steady=np.array([False, True, True]))
    parts[1] = replace(parts[1], steps=steps)

    assert chain_of(parts).steps == (1, 2)


def test_messages_that_agree_on_a_shape_are_left_out():
    parts = []
    for part in job(gpipe, 3, 4, tensors=2).parts:
        size = part.in_bytes.copy()
        size[::2] = 64
        parts.append(replace(part, in_bytes=size, out_bytes=size))

    assert shown(parts) == ("gpipe", 4)


def test_a_missing_file_is_told():
    made = job(one_f_one_b, 4, 3)

    chain = chain_of(made.parts[:3])

    assert (chain.order.schedule, chain.order.microbatches) == ("unknown", None)
    assert chain.order.why == "no file of rank 3"
    assert chain_of(made.parts[1:3]).order.why == "no file of ranks 0 and 3"


def test_activations_both_ways_between_neighbors_are_of_no_known_schedule():
    # V-shaped: each rank has a stage on the way to the last rank and one on the way back.
    parts = []
    for part in job(gpipe, 3, 4).parts:
        phase = np.where(np.arange(len(part)) % 2, Phase.FORWARD, Phase.BACKWARD).astype(np.int8)
        parts.append(replace(part, passes=replace(part.passes, phase=phase)))

    chain = chain_of(parts)

    assert (chain.order.schedule, chain.order.microbatches) == ("unknown", None)
    assert chain.order.why.startswith("activations go both ways")


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.UNKNOWN])
def test_a_ring_exchange_is_no_pipeline(ranks, phase):
    parts = [
        rank_that(
            rank, *[[(SEND, (rank + 1) % ranks), (RECV, (rank - 1) % ranks)]] * 4, phase=phase
        )
        for rank in range(ranks)
    ]

    assert find_chains(parts) == ()


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.OTHER, Phase.UNKNOWN])
def test_a_ring_whose_ranks_receive_first_but_for_one_is_no_pipeline(phase):
    def order(rank):
        send, receive = [(SEND, (rank + 1) % 3)], [(RECV, (rank - 1) % 3)]
        return [send, receive] if rank == 0 else [receive, send]

    assert find_chains([rank_that(rank, *order(rank) * 4, phase=phase) for rank in range(3)]) == ()


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.OTHER, Phase.UNKNOWN])
def test_two_ranks_that_take_turns_are_no_pipeline(phase):
    parts = [
        rank_that(0, *[[(SEND, 1)], [(RECV, 1)]] * 4, phase=phase),
        rank_that(1, *[[(RECV, 0)], [(SEND, 0)]] * 4, phase=phase),
    ]

    assert find_chains(parts) == ()


@pytest.mark.parametrize("phase", [Phase.OTHER, Phase.UNKNOWN])
def test_a_single_message_is_no_pipeline(phase):
    one_way = [rank_that(0, [(SEND, 1)], phase=phase), rank_that(1, [(RECV, 0)], phase=phase)]
    and_back = [
        rank_that(0, [(SEND, 1)], [(RECV, 1)], phase=phase),
        rank_that(1, [(RECV, 0)], [(SEND, 0)], phase=phase),
    ]

    assert find_chains(one_way) == find_chains(and_back) == ()


def test_a_rank_with_three_neighbors_is_in_no_pipeline():
    parts = [
        rank_that(0, [(SEND, 1)], [(SEND, 2)], [(SEND, 3)]),
        *(rank_that(rank, [(RECV, 0)]) for rank in (1, 2, 3)),
    ]

    assert find_chains(parts) == ()


def test_files_without_steps_do_not_say_how_many_microbatches_a_step_has():
    parts = [
        replace(part, steps=replace(part.steps, is_steady=np.zeros(2, dtype=np.bool_)))
        for part in job(gpipe, 3, 4, steps=2).parts
    ]

    chain = chain_of(parts)

    assert (chain.order.schedule, chain.order.microbatches, chain.steps) == ("unknown", None, ())
    assert chain.order.why == "the files have no steady steps in common"


def test_a_step_in_which_a_gradient_is_missing_is_of_no_known_schedule(snapshot):
    parts = job(gpipe, 3, 4).parts
    peer_rank = parts[2].peer_rank.copy()
    peer_rank[-1] = ABSENT
    parts[2] = replace(parts[2], peer_rank=peer_rank)

    chain = chain_of(parts)

    assert (chain.order.schedule, chain.order.microbatches) == ("unknown", None)
    assert chain.order.why == snapshot


def test_a_rank_whose_messages_are_not_recorded_is_in_no_pipeline():
    parts = job(gpipe, 3, 4, steps=2).parts
    peer_rank = np.where(parts[2].step_index == 0, ABSENT, parts[2].peer_rank)
    parts[2] = replace(parts[2], peer_rank=peer_rank)

    assert chain_of(parts).steps == (1,)


# What torch.distributed.pipelining (2.13) sends and receives on two ranks with two stages each and
# four microbatches: + is sent after a forward pass, - after a backward pass, . is received.
TORCH = {
    "ScheduleInterleaved1F1B": ("+.+.++.+-.+.-.+..+.-.-..", ".+.+..-..-.+.-.+-.-.-.--"),
    "ScheduleLoopedBFS": ("+.+.+.+.++++.-.-.-.-....", ".+.+.+.+....-.-.-.-.----"),
    "ScheduleInterleavedZeroBubble": ("+.+.++.-.+-..+..+.+-.-..", ".+.+..-.-..+-.+-.-..-.--"),
    "ScheduleZBVZeroBubble": ("++.+.--.+.-..-..", "..+.+..-.+.-+.--"),
}


def of_torch(name, *, has_phases=True):
    """The two ranks of a schedule of PyTorch."""
    parts = []
    for rank, order in enumerate(TORCH[name]):
        part = rank_that(rank, *([(RECV if x == "." else SEND, 1 - rank)] for x in order))
        phase = [Phase.BACKWARD if x == "-" else Phase.FORWARD for x in order]
        phase = np.array(phase if has_phases else [Phase.UNKNOWN] * len(order), dtype=np.int8)
        parts.append(replace(part, passes=replace(part.passes, phase=phase)))
    return parts


@pytest.mark.parametrize("name", TORCH)
def test_schedules_of_torch_with_several_chunks_are_not_known(name):
    chain = chain_of(of_torch(name))

    assert (chain.order.schedule, chain.order.microbatches) == ("unknown", None)
    assert chain.order.why.startswith("activations go both ways")


@pytest.mark.parametrize("name", TORCH)
def test_two_ranks_do_not_tell_chunks_without_phases(name, snapshot):
    chain = chain_of(of_torch(name, has_phases=False))

    assert (chain.order.schedule, chain.order.microbatches) == ("unknown", None)
    assert chain.order.why == snapshot
