"""Who exchanges messages with whom, where files do not say which rank they are.

Such a file has the number of its place in the report, but the messages of others name it by its
rank: by that number they would be with the wrong file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracelab.job.rank_part import RankPart
from tracelab.model.trace import ABSENT


def with_known_peers(parts: Sequence[RankPart]) -> tuple[RankPart, ...]:
    """The parts with the peers of their messages by the ranks' numbers in the report.

    Two files that exchange messages in a group of two are each other's peer. Otherwise a message
    from or to a file whose rank is not known, or that could be with one, has no known peer.

    Args:
        parts: what the files of one job give to it, by their numbers.
    """
    if all(part.is_rank_known for part in parts):
        return tuple(parts)
    if _are_a_pair(parts):
        peers = [[parts[1].rank], [parts[0].rank]]
        return tuple(
            replace(part, peer_rank=np.where(part.peer_rank == ABSENT, ABSENT, peer))
            for part, peer in zip(parts, peers, strict=True)
        )
    known = [part.rank for part in parts if part.is_rank_known]
    return tuple(
        replace(
            part,
            peer_rank=np.where(
                part.is_rank_known & np.isin(part.peer_rank, known), part.peer_rank, ABSENT
            ),
        )
        for part in parts
    )


def _are_a_pair(parts: Sequence[RankPart]) -> bool:
    """Whether two parts exchange messages with each other alone, as their groups say."""
    if len(parts) != 2:
        return False
    peers_of, groups = [], set()
    for part in parts:
        index = np.flatnonzero(part.peer_rank != ABSENT)
        peers_of.append(set(part.peer_rank[index].tolist()))
        groups |= {part.groups[i].ranks for i in np.unique(part.group_index[index]).tolist()}
    if {len(peers) for peers in peers_of} != {1} or any(len(ranks) != 2 for ranks in groups):
        return False
    (of_second,), (of_first,) = peers_of
    return all(set(ranks) == {of_first, of_second} for ranks in groups) and all(
        not part.is_rank_known or part.rank == rank
        for part, rank in zip(parts, (of_first, of_second), strict=True)
    )
