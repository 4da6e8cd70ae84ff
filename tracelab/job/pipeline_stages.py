"""Ranks that are the stages of a pipeline, their order, and the schedule by which they work.

The order in which each rank launched its messages tells these. With m microbatches and v chunks the
first rank sends v*m activations to the next, the last (v-1)*m to the first: several chunks are not
measured. A ring that sends as many everywhere (context parallelism) is no pipeline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tracelab.base.arrays import IndexArray, Record
from tracelab.job.part import RankPart
from tracelab.model.collectives import Operation
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT

GPIPE = "gpipe"
ONE_F_ONE_B = "1f1b"
UNKNOWN = "unknown"

_BOTH_WAYS = "activations go both ways between neighbors"
_CHUNKS = "each rank has several chunks of the model"
_MANY_IN_FLIGHT = "more is in flight than 1F1B has"
_NO_GRADIENTS = "no gradients are sent"
_UNANSWERED = "not every activation is answered by a gradient"
# A message that is smaller, compared with the largest, agrees on a shape: it is no activation.
_MAX_SIZE_FACTOR = 100
# Of sends whose phase contradicts their direction.
_MAX_OUT_OF_PLACE_SHARE = 0.25


class Message(NamedTuple):
    """Message for one microbatch to or from a neighbor: activations (forward) or gradients."""

    is_send: bool
    is_forward: bool
    operation_index: int


class Order(Record):
    """Order of the messages of a pipeline: the microbatches of a step, and the schedule."""

    stages: int
    microbatches: int | None
    schedule: str
    why: str


class Chain(Record):
    """One pipeline of the job; ranks are by stage.

    Steps of this order, with the messages of each stage, by launch; other steady steps are counted.
    """

    ranks: tuple[int, ...]
    order: Order
    steps: tuple[int, ...]
    other_steps: int
    messages: tuple[tuple[tuple[Message, ...], ...], ...]


_OfStages = tuple[tuple[Message, ...], ...]
_Ranked = tuple[tuple[int, ...], Order]  # the ranks by stage, and their order of messages
_Seen = tuple[int | None, _Ranked, _OfStages]  # in a step


def find_chains(parts: Sequence[RankPart]) -> tuple[Chain, ...]:
    """Find the pipelines of a job, by their first rank; none if no messages are of one."""
    part_of = {part.rank: part for part in parts if (part.peer_rank != ABSENT).any()}
    steps = _common_steps(part_of.values())
    found: dict[tuple[int, ...], list[_Seen]] = defaultdict(list)
    all_steps: Sequence[int | None] = steps or (None,)
    for step in all_steps:
        chosen = {rank: _select_messages(part, step) for rank, part in part_of.items()}
        for members in _components(part_of, chosen):
            member_values = {rank: chosen[rank] for rank in members if rank in chosen}
            seen = _look_at(part_of, member_values, members)
            if seen is not None:
                found[members].append((step, *seen))
    chains = []
    for of_chain in found.values():
        [(ranked, count)] = Counter(ranked for _, ranked, _ in of_chain).most_common(1)
        ranks, order = ranked
        if not steps:
            why = "the files have no steady steps in common"
            order = replace(order, microbatches=None, schedule=UNKNOWN, why=why)
        is_measured = order.microbatches is not None
        chains.append(
            Chain(
                ranks=ranks,
                order=order,
                steps=tuple(
                    step for step, other, _ in of_chain if step is not None and other == ranked
                ),
                other_steps=len(of_chain) - count,
                messages=tuple(x for _, other, x in of_chain if is_measured and other == ranked),
            )
        )
    return tuple(sorted(chains, key=lambda chain: chain.ranks))


def _common_steps(parts: Iterable[RankPart]) -> list[int]:
    steady = [
        set(part.steps.number[part.steps.is_steady & (part.passes.start_ns != ABSENT)].tolist())
        for part in parts
    ]
    return sorted(set.intersection(*steady)) if steady else []


def _select_messages(part: RankPart, step: int | None) -> IndexArray:
    is_chosen = part.peer_rank != ABSENT
    if step is not None:
        is_chosen &= np.isin(part.step_index, np.flatnonzero(part.steps.number == step))
    index = np.flatnonzero(is_chosen)
    size = np.maximum(part.in_bytes[index], part.out_bytes[index])
    index = index[(_MAX_SIZE_FACTOR * size >= size.max(initial=0)) | (size == ABSENT)]
    return np.asarray(index[np.argsort(part.passes.launched_ns[index], kind="stable")])


def _components(
    part_of: Mapping[int, RankPart], chosen: Mapping[int, IndexArray]
) -> list[tuple[int, ...]]:
    components: list[set[int]] = []
    for rank, index in chosen.items():
        if len(index):
            joined = {rank, *part_of[rank].peer_rank[index].tolist()}
            apart = [members for members in components if not members & joined]
            components = [*apart, joined.union(*(x for x in components if x & joined))]
    return sorted(tuple(sorted(members)) for members in components)


def _look_at(
    part_of: Mapping[int, RankPart], chosen: Mapping[int, IndexArray], members: Sequence[int]
) -> tuple[_Ranked, _OfStages] | None:
    """Find the pipeline that members are in one step; None if they are no pipeline."""
    peers = {rank: set(part_of[rank].peer_rank[index].tolist()) for rank, index in chosen.items()}
    if any(not 0 < len(of_rank) <= 2 for of_rank in peers.values()):
        return None
    begin = [rank for rank, index in chosen.items() if _begins(part_of[rank], index)]
    missing = [str(rank) for rank in members if rank not in chosen]
    if missing:
        *others, last = missing
        which = f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"
        return _unknown(members, f"no file of {which}") if len(begin) < 2 else None
    ranks = _order_stages(part_of, chosen, peers, begin[0]) if len(begin) == 1 else []
    if not ranks:
        return None
    of_stages = _messages(part_of, chosen, ranks)
    if len(ranks) > 2 and ranks[-1] in peers[ranks[0]]:
        to_next, to_first = (
            np.count_nonzero(part_of[rank].peer_rank[_sends(part_of[rank], chosen[rank])] == peer)
            for rank, peer in ((ranks[0], ranks[1]), (ranks[-1], ranks[0]))
        )
        schedule = _CHUNKS if to_next > to_first else None
    else:
        schedule = _find_schedule(of_stages, _phases_of_sends(part_of, ranks, of_stages))
    if schedule is None:
        return None
    if schedule not in (GPIPE, ONE_F_ONE_B):
        return _unknown(ranks, schedule)
    microbatches = sum(x.is_send and x.is_forward for x in of_stages[0])
    return (tuple(ranks), Order(len(ranks), microbatches, schedule, "")), of_stages


def _unknown(ranks: Sequence[int], why: str) -> tuple[_Ranked, _OfStages]:
    return (tuple(ranks), Order(len(ranks), None, UNKNOWN, why)), ()


def _begins(part: RankPart, index: IndexArray) -> bool:
    return len(_sends(part, index[part.kernel_id[index] == part.kernel_id[index[0]]])) > 0


def _sends(part: RankPart, index: IndexArray) -> IndexArray:
    return np.asarray(index[part.operation[index] == Operation.SEND])


def _order_stages(
    part_of: Mapping[int, RankPart],
    chosen: Mapping[int, IndexArray],
    peers: Mapping[int, Set[int]],
    first: int,
) -> list[int]:
    """Order ranks from the first stage to the last; none where they are not in a line, or ring."""
    ranks, following = [first], int(part_of[first].peer_rank[chosen[first][0]])
    while following not in ranks:
        ranks.append(following)
        further = peers[following] - {ranks[-2]}
        following = next(iter(further), first)
    return ranks if len(ranks) == len(peers) else []


def _messages(
    part_of: Mapping[int, RankPart], chosen: Mapping[int, IndexArray], ranks: Sequence[int]
) -> _OfStages:
    """Find the messages of each stage; tensors of one microbatch are one.

    A rank computes between the sends of two microbatches.
    """
    tensors: dict[tuple[int, int], int] = {}
    for rank in ranks:
        part, sends = part_of[rank], _sends(part_of[rank], chosen[rank])
        for peer in set(part.peer_rank[sends].tolist()):
            computes = part.passes.computes[sends[part.peer_rank[sends] == peer]]
            count = len(np.unique(computes))
            tensors[rank, peer] = 1 if len(computes) % count else len(computes) // count
    of_stages = []
    for rank in ranks:
        part, counts, messages = part_of[rank], Counter[tuple[int, int]](), []
        for operation_index in chosen[rank].tolist():
            peer = int(part.peer_rank[operation_index])
            is_send = bool(part.operation[operation_index] == Operation.SEND)
            pair = (rank, peer) if is_send else (peer, rank)
            counts[pair] += 1
            if counts[pair] % tensors.get(pair, 1) == 0:
                is_forward = ranks.index(pair[0]) < ranks.index(pair[1])
                messages.append(Message(is_send, is_forward, operation_index))
        of_stages.append(tuple(messages))
    return tuple(of_stages)


def _phases_of_sends(
    part_of: Mapping[int, RankPart], ranks: Sequence[int], of_stages: _OfStages
) -> list[tuple[bool, int]]:
    return [
        (message.is_forward, int(part_of[rank].passes.phase[message.operation_index]))
        for rank, messages in zip(ranks, of_stages, strict=True)
        for message in messages
        if message.is_send
    ]


def _find_schedule(of_stages: _OfStages, phases_of_sends: list[tuple[bool, int]]) -> str | None:
    # Two ranks may also send one another single messages, or take turns.
    words = [_word(messages, stage, len(of_stages)) for stage, messages in enumerate(of_stages)]
    forward, backward, received, answered = (
        [sum((x.is_send, x.is_forward) == kind for x in messages) for messages in of_stages]
        for kind in ((True, True), (True, False), (False, True), (False, False))
    )
    phases = {phase for _, phase in phases_of_sends}
    turns = [message.is_send for message in of_stages[0]]
    if Phase.UNKNOWN in phases:
        is_pipeline = len(of_stages) > 2 or _most_in_flight(turns) > 1
    else:
        is_pipeline = not any(backward) or Phase.BACKWARD in phases
    if not is_pipeline or (forward[0] == 1 and not any(backward)):
        return None
    out_of_place = [
        is_forward == (phase == Phase.BACKWARD)
        for is_forward, phase in phases_of_sends
        if Phase.UNKNOWN not in phases
    ]
    if sum(out_of_place) > _MAX_OUT_OF_PLACE_SHARE * len(out_of_place):
        return _BOTH_WAYS
    if not any(backward):
        return _NO_GRADIENTS
    if {*forward[:-1], *received[1:], *backward[1:], *answered[:-1]} != {forward[0]}:
        return _UNANSWERED
    if all(word == sorted(word, reverse=True) for word in words):
        return GPIPE
    # One more than there are stages left: a receive may be launched before its time.
    is_early = [_most_in_flight(word) <= len(words) - stage + 1 for stage, word in enumerate(words)]
    return ONE_F_ONE_B if all(is_early) else _MANY_IN_FLIGHT


def _word(messages: Sequence[Message], stage: int, stages: int) -> list[bool]:
    """The passes of a stage in order, True for a forward pass, as far as its messages show them."""
    return [
        x.is_forward
        for x in messages
        if x.is_send != (stage == (stages - 1 if x.is_forward else 0))
    ]


def _most_in_flight(word: Sequence[bool]) -> int:
    """Count the most microbatches that had gone forward and not yet back.

    >>> _most_in_flight([True, True, False, True, False, False])
    2
    """
    return int(np.cumsum(np.where(word, 1, -1)).max(initial=0))
