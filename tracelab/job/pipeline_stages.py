"""Ranks that are the stages of a pipeline, their order, and the schedule by which they work.

Sends and receives tell it, in the order in which each rank launched them. Everybody but the first
stage has to receive before it has anything to send. Activations go to the next stage and
gradients come back; with several chunks of the model on each rank (interleaved schedules) the last
rank sends activations to the first one.

With m microbatches and v chunks per rank every rank but the last sends v*m activations to the next,
and the last one (v-1)*m to the first. A ring that passes blocks around (context parallelism) has no
rank that begins alone, and sends as many from the last rank to the first as between all others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Record
from tracelab.job.part import RankPart
from tracelab.model.collectives import Operation
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT

GPIPE = "gpipe"
ONE_F_ONE_B = "1f1b"
INTERLEAVED_GPIPE = "interleaved gpipe"
INTERLEAVED = "interleaved 1f1b"
UNKNOWN = "unknown"

_BOTH_WAYS = "activations go both ways between neighbors"
_MANY_IN_FLIGHT = "more is in flight than 1F1B has"
_NO_GRADIENTS = "no gradients are sent"
_NO_PHASES = ", and the files do not say which pass sends what"
# A message that is smaller, compared with the largest, agrees on a shape: it is no activation.
_MAX_SIZE_FACTOR = 100
# The share of sends whose phase may contradict their direction.
_MAX_OUT_OF_PLACE_SHARE = 0.25


class Message(NamedTuple):
    """Message for one microbatch that one rank sends to a neighbor, or receives from it.

    Attributes:
        peer: the neighbor's rank.
        is_send: whether it goes to the neighbor.
        is_forward: whether it carries activations, not gradients.
        operation_index: position of its last operation in the columns of the rank's part.
    """

    peer: int
    is_send: bool
    is_forward: bool
    operation_index: int


class Order(Record):
    """Order of the messages of a pipeline.

    Attributes:
        stages: ranks in it.
        microbatches: per step; None where the schedule is unknown.
        chunks: of the model on each rank.
        schedule: what the order of sends and receives shows; "unknown" where it shows none.
        why: what was seen instead, where the schedule is unknown.
    """

    stages: int
    microbatches: int | None
    chunks: int
    schedule: str
    why: str


class Chain(Record):
    """One pipeline of the job.

    Attributes:
        ranks: by stage; with several chunks per rank those of the first p stages.
        order: that of its messages.
        steps: the numbers of the steady steps that have this order, ascending.
        other_steps: how many steady steps have another.
        messages: per step, per stage, the messages in the order of their launches; without those
            of an unknown schedule.
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
    """The numbers of the steps that are steady, and compute, in all of these files."""
    steady = [
        set(part.steps.number[part.steps.is_steady & (part.passes.start_ns != ABSENT)].tolist())
        for part in parts
    ]
    return sorted(set.intersection(*steady)) if steady else []


def _select_messages(part: RankPart, step: int | None) -> NDArray[np.intp]:
    """intp[k], the sends and receives of one step, or of all, by launch."""
    is_chosen = part.peer_rank != ABSENT
    if step is not None:
        is_chosen &= np.isin(part.step_index, np.flatnonzero(part.steps.number == step))
    index = np.flatnonzero(is_chosen)
    size = np.maximum(part.in_bytes[index], part.out_bytes[index])
    index = index[(_MAX_SIZE_FACTOR * size >= size.max(initial=0)) | (size == ABSENT)]
    by_launch: NDArray[np.intp] = index[np.argsort(part.passes.launched_ns[index], kind="stable")]
    return by_launch


def _components(
    part_of: Mapping[int, RankPart], chosen: Mapping[int, NDArray[np.intp]]
) -> list[tuple[int, ...]]:
    """The ranks that exchange messages in a step, directly or through others."""
    components: list[set[int]] = []
    for rank, index in chosen.items():
        if len(index):
            joined = {rank, *part_of[rank].peer_rank[index].tolist()}
            apart = [members for members in components if not members & joined]
            components = [*apart, joined.union(*(x for x in components if x & joined))]
    return sorted(tuple(sorted(members)) for members in components)


def _look_at(
    part_of: Mapping[int, RankPart], chosen: Mapping[int, NDArray[np.intp]], members: Sequence[int]
) -> tuple[_Ranked, _OfStages] | None:
    """Find the pipeline that members are in one step; None if they are no pipeline.

    `chosen` are the sends and receives of those that have a file.
    """
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
    messages = _messages(part_of, chosen)
    by_direction = _split_by_direction(messages, ranks)
    by_phase = _split_by_phase(part_of, messages, ranks)
    forward = by_phase if by_phase is not None and len(ranks) == 2 else by_direction
    if not ranks or not _is_pipeline(messages, forward, by_phase):
        return None
    why = _why_unknown(messages, forward, by_phase)
    if why:
        return _unknown(ranks, why)
    activations = [sum(of_rank) for of_rank in forward.values()]
    microbatches = activations[0] - activations[-1]
    chunks = activations[0] // microbatches
    of_stages = _directed(messages, forward)
    schedule = _schedule(of_stages, chunks)
    if schedule in (_NO_GRADIENTS, _MANY_IN_FLIGHT):
        return _unknown(ranks, schedule + ("" if by_phase is not None else _NO_PHASES))
    return (tuple(ranks), Order(len(ranks), microbatches, chunks, schedule, "")), of_stages


def _unknown(ranks: Sequence[int], why: str) -> tuple[_Ranked, _OfStages]:
    """Return what is known of a pipeline without a known schedule."""
    return (tuple(ranks), Order(len(ranks), None, 1, UNKNOWN, why)), ()


def _begins(part: RankPart, index: NDArray[np.intp]) -> bool:
    """Return true if the first kernel of a rank's messages sends anything."""
    of_kernel = index[part.kernel_id[index] == part.kernel_id[index[0]]]
    return bool((part.operation[of_kernel] == Operation.SEND).any())


def _order_stages(
    part_of: Mapping[int, RankPart],
    chosen: Mapping[int, NDArray[np.intp]],
    peers: Mapping[int, Set[int]],
    first: int,
) -> list[int]:
    """The ranks from the first stage to the last; none where they are not in one line, or ring."""
    ranks, following = [first], int(part_of[first].peer_rank[chosen[first][0]])
    while following not in ranks:
        ranks.append(following)
        further = peers[following] - {ranks[-2]}
        following = next(iter(further), first)
    return ranks if len(ranks) == len(peers) else []


def _messages(
    part_of: Mapping[int, RankPart], chosen: Mapping[int, NDArray[np.intp]]
) -> dict[int, list[Message]]:
    """The messages of each rank, all taken for activations; tensors of one microbatch are one.

    A rank computes between the sends of two microbatches. How many tensors it sends for each says
    how many its neighbor receives for each.
    """
    tensors: dict[tuple[int, int], int] = {}
    for rank, index in chosen.items():
        part = part_of[rank]
        sends = index[part.operation[index] == Operation.SEND]
        for peer in set(part.peer_rank[sends].tolist()):
            computes = part.passes.computes[sends[part.peer_rank[sends] == peer]]
            count = len(np.unique(computes))
            tensors[rank, peer] = 1 if len(computes) % count else len(computes) // count
    messages: dict[int, list[Message]] = {}
    for rank, index in chosen.items():
        part, counts = part_of[rank], Counter[tuple[int, int]]()
        messages[rank] = []
        for operation_index in index.tolist():
            peer = int(part.peer_rank[operation_index])
            is_send = bool(part.operation[operation_index] == Operation.SEND)
            key = (rank, peer) if is_send else (peer, rank)
            counts[key] += 1
            if counts[key] % tensors.get(key, 1) == 0:
                messages[rank].append(Message(peer, is_send, True, operation_index))
    return messages


_Forward = Mapping[int, Sequence[bool]]  # rank, by stage, to which of its sends carry activations
_Messages = Mapping[int, Sequence[Message]]


def _split_by_direction(messages: _Messages, ranks: Sequence[int]) -> _Forward:
    """Take what is sent to the next stage for activations.

    Between two ranks everything goes both to the next and to the previous one: one chunk per rank
    is assumed.
    """
    following = dict(zip(ranks, [*ranks[1:], *ranks[:1]], strict=True))
    if len(ranks) == 2:
        following[ranks[1]] = ABSENT
    return {
        rank: [x.peer == following[rank] for x in messages[rank] if x.is_send] for rank in ranks
    }


def _split_by_phase(
    part_of: Mapping[int, RankPart], messages: _Messages, ranks: Sequence[int]
) -> _Forward | None:
    """Choose what is sent after compute that no backward pass launched; None if not recorded."""
    phases = {
        rank: [
            int(part_of[rank].passes.phase[x.operation_index]) for x in messages[rank] if x.is_send
        ]
        for rank in ranks
    }
    if any(Phase.UNKNOWN in of_rank for of_rank in phases.values()):
        return None
    return {rank: [x != Phase.BACKWARD for x in of_rank] for rank, of_rank in phases.items()}


def _is_pipeline(messages: _Messages, forward: _Forward, by_phase: _Forward | None) -> bool:
    """Return true if activations pass along the stages, not only around, or back and forth."""
    activations = [sum(of_rank) for of_rank in forward.values()]
    microbatches = activations[0] - activations[-1]
    is_training = not all(map(all, forward.values()))
    if len(forward) == 2 and microbatches == 0 and is_training:
        return True  # of no known schedule: each has stages at both ends
    if microbatches <= 0 or (microbatches == 1 and not is_training):
        return False
    if by_phase is None:
        [first, *_] = forward
        turns = [message.is_send for message in messages[first]]
        return len(forward) > 2 or _most_in_flight(turns) > 1
    # Gradients come from backward passes, if there are any.
    return not is_training or not all(map(all, by_phase.values()))


def _why_unknown(messages: _Messages, forward: _Forward, by_phase: _Forward | None) -> str:
    """Describe what there is instead of a known schedule; "" for a known one."""
    if by_phase is not None:
        pairs = [
            pair for rank in forward for pair in zip(forward[rank], by_phase[rank], strict=True)
        ]
        if sum(x != y for x, y in pairs) > _MAX_OUT_OF_PLACE_SHARE * len(pairs):
            return _BOTH_WAYS
    activations = [sum(of_rank) for of_rank in forward.values()]
    gradients = [len(of_rank) - sum(of_rank) for of_rank in forward.values()]
    if activations[0] == activations[-1]:
        return _BOTH_WAYS
    if len(set(activations[:-1])) > 1 or activations[0] % (activations[0] - activations[-1]):
        return "neighbors exchange different numbers of activations"
    if any(gradients) and gradients[::-1] != activations:
        return "not every activation is answered by a gradient"
    sent = Counter((rank, x.peer) for rank in forward for x in messages[rank] if x.is_send)
    received = Counter((x.peer, rank) for rank in forward for x in messages[rank] if not x.is_send)
    return "" if sent == received else "not every message is received in the step that sends it"


def _directed(messages: _Messages, forward: _Forward) -> _OfStages:
    """The messages by stage, with what they carry; those received do by their order."""
    sent: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for rank, of_rank in forward.items():
        sends = (message for message in messages[rank] if message.is_send)
        for message, is_forward in zip(sends, of_rank, strict=True):
            sent[rank, message.peer].append(is_forward)
    of_stages = []
    for rank in forward:
        counts = Counter[tuple[int, int]]()
        directed = []
        for message in messages[rank]:
            pair = (rank, message.peer) if message.is_send else (message.peer, rank)
            directed.append(message._replace(is_forward=sent[pair][counts[pair]]))
            counts[pair] += 1
        of_stages.append(tuple(directed))
    return tuple(of_stages)


def _schedule(of_stages: _OfStages, chunks: int) -> str:
    """The schedule that the messages of each stage are of, or why they are of no known one."""
    words = [_word(messages, stage, len(of_stages)) for stage, messages in enumerate(of_stages)]
    if not any(False in word for word in words):
        return _NO_GRADIENTS
    if all(word == sorted(word, reverse=True) for word in words):
        return GPIPE if chunks == 1 else INTERLEAVED_GPIPE
    if chunks > 1:
        return INTERLEAVED
    # One more than there are stages left: a receive may be launched before its time.
    is_early = [_most_in_flight(word) <= len(words) - stage + 1 for stage, word in enumerate(words)]
    return ONE_F_ONE_B if all(is_early) else _MANY_IN_FLIGHT


def _word(messages: Sequence[Message], stage: int, stages: int) -> list[bool]:
    """The passes of a stage in order, True for a forward pass, as far as its messages show them.

    Each pass but the last stage's forward and the first stage's backward ends with a send.
    """
    return [
        x.is_forward
        for x in messages
        if x.is_send != (stage == (stages - 1 if x.is_forward else 0))
    ]


def _most_in_flight(word: Sequence[bool]) -> int:
    """The most microbatches that had gone forward and not yet back.

    >>> _most_in_flight([True, True, False, True, False, False])
    2
    """
    return int(np.cumsum(np.where(word, 1, -1)).max(initial=0))
