"""The nodes of a program in blocks, each of which is computed at once.

A block is a run of nodes along one thread or stream. What one of its nodes waits for besides the
node before it lies in an earlier block: a new block begins where the host waits for a GPU, where a
stream waits for what the host launched after that, where a thread goes on after another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, read_only
from tracelab.model.trace import ABSENT

_LONGEST_BLOCK = 256  # nodes: the rows of one block stay in the cache


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockOrder(Frozen):
    """An order of nodes by block, and of the edges that lead into blocks.

    Attributes:
        node: intp[n], the nodes by block.
        position: intp[n], where each node stands in `node`.
        along: intp[n], per position the edge from the node before it in its block, else ABSENT.
        edge: intp[k], all other edges by block, then by their turn.
        position_of_edge: intp[k], where the target of each of these stands.
        blocks: what to compute, one after another.
    """

    node: NDArray[np.intp]
    position: NDArray[np.intp]
    along: NDArray[np.intp]
    edge: NDArray[np.intp]
    position_of_edge: NDArray[np.intp]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A range of positions, and of the edges into them.

    Example: ``Block(slice(40, 44), ((slice(90, 94), None), (slice(94, 95), np.array([2]))))``:
    four nodes with one edge each, and a second one into the third.

    Attributes:
        positions: their range.
        turns: ranges of `BlockOrder.edge` in which no two edges have the same target, each with the
            targets, counted from the block's first position; None where that is every one.
    """

    positions: slice
    turns: tuple[tuple[slice, NDArray[np.intp] | None], ...]


def order_in_blocks(
    node_count: int,
    source: NDArray[np.intp],
    target: NDArray[np.intp],
    lag: NDArray[np.integer],
    may_be_along: NDArray[np.bool_],
) -> BlockOrder:
    """Put the nodes of a program in blocks.

    Args:
        node_count: n; without a lag, sources come before their targets.
        source: intp[e], nodes.
        target: intp[e], nodes.
        lag: int[e], 1 where the source is of the repetition before, else 0.
        may_be_along: bool[e], edges without a lag that a block may follow.
    """
    along = _edge_along(node_count, source, target, may_be_along)
    node, begins = _by_block(source, target, lag, along)
    position = np.empty(node_count, dtype=np.intp)
    position[node] = np.arange(node_count)
    along = np.where(begins, ABSENT, along[node])
    is_into = np.ones(len(source), dtype=np.bool_)
    is_into[along[along != ABSENT]] = False
    edge = np.flatnonzero(is_into)
    at = position[target[edge]]
    edge, at = edge[by_target := np.argsort(at, kind="stable")], at[by_target]
    turn = np.arange(len(at)) - np.searchsorted(at, at)
    block = np.cumsum(begins) - 1
    by_turn = np.lexsort((at, turn, block[at]))
    edge, at, turn = edge[by_turn], at[by_turn], turn[by_turn]
    return BlockOrder(node, position, along, edge, at, tuple(_blocks(begins, block[at], turn, at)))


def _edge_along(
    node_count: int,
    source: NDArray[np.intp],
    target: NDArray[np.intp],
    may_be_along: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """intp[n], of each node one edge to it that may be followed, or ABSENT; one from each node."""
    edge = np.flatnonzero(may_be_along)
    edge = edge[np.unique(target[edge], return_index=True)[1]]
    edge = edge[np.unique(source[edge], return_index=True)[1]]
    along = np.full(node_count, ABSENT, dtype=np.intp)
    along[target[edge]] = edge
    return along


def _by_block(
    source: NDArray[np.intp],
    target: NDArray[np.intp],
    lag: NDArray[np.integer],
    along: NDArray[np.intp],
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The nodes in the order of their blocks, and which of them begin one: intp[n] and bool[n]."""
    count = len(along)
    before = np.where(along == ABSENT, ABSENT, source[along] if len(source) else ABSENT)
    is_across = lag == 0
    is_across[along[along != ABSENT]] = False
    across = np.flatnonzero(is_across)
    across = across[np.argsort(target[across], kind="stable")]
    bounds = np.searchsorted(target[across], np.arange(count + 1)).tolist()
    sources = source[across].tolist()
    # A block of one level waits, besides the node before it, for blocks of lower levels only.
    level, chain = [0] * count, list(range(count))
    for node, previous in enumerate(before.tolist()):
        lowest = 0
        if previous != ABSENT:
            lowest, chain[node] = level[previous], chain[previous]
        for other in sources[bounds[node] : bounds[node + 1]]:
            if level[other] >= lowest:
                lowest = level[other] + 1
        level[node] = lowest
    levels, chains = np.array(level, dtype=np.intp), np.array(chain, dtype=np.intp)
    order = np.lexsort((np.arange(count), chains, levels))
    changes = np.diff(levels[order], prepend=ABSENT) != 0
    changes |= np.diff(chains[order], prepend=ABSENT) != 0
    first = np.flatnonzero(changes)
    since_first = np.arange(count) - first[np.cumsum(changes) - 1]
    return order, changes | (since_first % _LONGEST_BLOCK == 0)


def _blocks(
    begins: NDArray[np.bool_],
    block: NDArray[np.intp],
    turn: NDArray[np.intp],
    at: NDArray[np.intp],
) -> Iterator[Block]:
    """The blocks, of the block, the turn and the target's position of each edge."""
    changes = (np.diff(block, prepend=ABSENT) != 0) | (np.diff(turn, prepend=ABSENT) != 0)
    first_edge = np.flatnonzero(changes)
    edge_bounds = np.append(first_edge, len(block)).tolist()
    turn_bounds = np.searchsorted(block[first_edge], np.arange(begins.sum() + 1)).tolist()
    bounds = np.append(np.flatnonzero(begins), len(begins)).tolist()
    for index, (first, end) in enumerate(pairwise(bounds)):
        turns = []
        for i in range(turn_bounds[index], turn_bounds[index + 1]):
            edges = slice(edge_bounds[i], edge_bounds[i + 1])
            is_all = edges.stop - edges.start == end - first
            turns.append((edges, None if is_all else read_only(at[edges] - first)))
        yield Block(slice(first, end), tuple(turns))
