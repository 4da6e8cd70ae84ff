"""Replay programs: what a step takes once each repetition goes on as the one before it.

A node's time is the latest over what leads to it. Nodes are computed by block, as a running
maximum, in all programs of an edit together. A block is a run along one thread or stream, all of
whose other waits are for earlier blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record, read_only
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NEVER, NodeKind, Program, Via

# The rows of one block stay in the cache.
_MAX_BLOCK_NODES = 256


class BlockOrder(Arrays):
    """An order of nodes by block, and of the edges that lead into blocks.

    Attributes:
        node, position: intp[n], the nodes by block, and the position of each.
        along: intp[n], per position the edge from the node before in its block, else ABSENT.
        edge: intp[k], all other edges by block and turn.
        position_of_edge: intp[k], of the target.
        blocks: in order.
    """

    node: IndexArray
    position: IndexArray
    along: IndexArray
    edge: IndexArray
    position_of_edge: IndexArray
    blocks: tuple[Block, ...]


class Block(Record):
    """A range of positions, and of the edges into them.

    Attributes:
        positions: a range of `BlockOrder.node`.
        turns: ranges of `BlockOrder.edge` without a common target, with the targets from the
            block's first position on; None for every one.
    """

    positions: slice
    turns: tuple[tuple[slice, IndexArray | None], ...]


def order_in_blocks(
    node_count: int,
    source: IndexArray,
    target: IndexArray,
    lag: NDArray[np.integer],
    may_be_along: BoolArray,
) -> BlockOrder:
    """Put the nodes of a program in blocks, which may follow some edges without a lag (bool[e])."""
    along = _edge_along(node_count, source, target, may_be_along)
    node, begins = _order_blocks(source, target, lag, along)
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
    node_count: int, source: IndexArray, target: IndexArray, may_be_along: BoolArray
) -> IndexArray:
    """intp[n], of each node one edge to it that may be followed, or ABSENT; one from each node."""
    edge = np.flatnonzero(may_be_along)
    # The latest source: where threads take turns, one follows another and not its own last call.
    edge = edge[np.argsort(-source[edge], kind="stable")]
    edge = edge[np.unique(target[edge], return_index=True)[1]]
    edge = edge[np.unique(source[edge], return_index=True)[1]]
    along = np.full(node_count, ABSENT, dtype=np.intp)
    along[target[edge]] = edge
    return along


def _order_blocks(
    source: IndexArray, target: IndexArray, lag: NDArray[np.integer], along: IndexArray
) -> tuple[IndexArray, BoolArray]:
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
    return order, changes | (since_first % _MAX_BLOCK_NODES == 0)


def _blocks(
    begins: BoolArray, block: IndexArray, turn: IndexArray, at: IndexArray
) -> Iterator[Block]:
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


# The first repetition finds nothing before it; from the third on each takes as long as the last.
REPETITIONS = 4
_MAX_PROGRAMS, _MAX_ROWS = 64, 2**24


class Replayed(Arrays):
    """Times of replayed programs.

    Attributes:
        step_ns: int64[p], ns, what a step takes; of programs that run once, until the last activity
            has ended.
        time_ns: int64[n, p], ns, when each node was reached in the last repetition.
    """

    step_ns: Int64Array
    time_ns: Int64Array


def replay(programs: Sequence[Program], repetitions: int = REPETITIONS) -> Replayed:
    """Replay programs of the same nodes, whose first edges are those of the first program.

    The slow reference model is ``tests/reference/replay.py``.
    """
    parts = list(_replay_in_parts(programs[0], programs, repetitions))
    return Replayed(
        np.concatenate([part.step_ns for part in parts]),
        np.concatenate([part.time_ns for part in parts], axis=1),
    )


def replay_edits(base: Program, edited: Iterable[Program]) -> Iterator[int]:
    """Replay edits of a program as memory allows; return the step's length for each, ns."""
    for part in _replay_in_parts(base, edited, REPETITIONS):
        yield from part.step_ns.tolist()


def _replay_in_parts(
    base: Program, programs: Iterable[Program], repetitions: int
) -> Iterator[Replayed]:
    rest = iter(programs)
    at_once = max(1, min(_MAX_PROGRAMS, _MAX_ROWS // (len(base) + len(base.source) + 1)))
    while some := list(islice(rest, at_once)):
        yield _replay(some, base, repetitions)


def _replay(programs: Sequence[Program], base: Program, repetitions: int) -> Replayed:
    node_count = len(base)
    source, target, lag, weight_ns = _joined_edges(programs, base)
    is_along = np.zeros(len(weight_ns), dtype=np.bool_)
    edge = np.flatnonzero(np.isin(base.via, (Via.HOST, Via.THREAD, Via.STREAM)))
    is_along[edge] = (weight_ns[edge] > NEVER // 2).all(axis=1)
    order = order_in_blocks(node_count, source, target, lag, is_along & (lag == 0))
    follows = order.along != ABSENT
    along_ns = np.zeros((node_count, len(programs)), dtype=np.int64)
    along_ns[follows] = weight_ns[order.along[follows]]
    np.cumsum(along_ns, axis=0, out=along_ns)
    weight_ns = weight_ns[order.edge]
    weight_ns -= along_ns[order.position_of_edge]
    origin = order.position[source[order.edge]] + np.where(lag[order.edge] == 1, node_count, 0)
    time_ns = np.full((2 * node_count, len(programs)), NEVER, dtype=np.int64)
    begins = np.ones(node_count, dtype=np.bool_)
    begins[base.target[base.lag == 0]] = False
    recorded_ns = 0 if base.is_repeated else base.moment_ns - base.moment_ns.min()
    earliest_ns = np.where(begins, recorded_ns, NEVER)[order.node, np.newaxis]
    for _ in range(repetitions if base.is_repeated else 1):
        time_ns[node_count:] = time_ns[:node_count]
        _run(time_ns, order.blocks, origin, weight_ns, along_ns, earliest_ns)
        earliest_ns = np.full_like(earliest_ns, NEVER)
    reached_ns, since_ns = time_ns[:node_count], time_ns[node_count:]
    counts = np.ones((node_count, 1), dtype=np.bool_)
    if not base.is_repeated:
        since_ns = np.zeros_like(reached_ns)
        counts[:, 0] = (base.kind == NodeKind.ACTIVITY)[order.node]
    # What takes longest decides, also where something that nothing waits for is ahead of it yet.
    is_reached = counts & (reached_ns > NEVER // 2) & (since_ns > NEVER // 2)
    step_ns = np.where(is_reached, reached_ns - since_ns, NEVER).max(axis=0) // base.steps
    return Replayed(step_ns, time_ns[order.position])


def _run(
    time_ns: NDArray[np.int64],
    blocks: Sequence[Block],
    origin: IndexArray,
    weight_ns: NDArray[np.int64],
    along_ns: NDArray[np.int64],
    earliest_ns: NDArray[np.int64],
) -> None:
    for block in blocks:
        reached_ns, along = time_ns[block.positions], along_ns[block.positions]
        np.subtract(earliest_ns[block.positions], along, out=reached_ns)
        for edges, targets in block.turns:
            arrived_ns = time_ns[origin[edges]]
            arrived_ns += weight_ns[edges]
            if targets is None:
                np.maximum(reached_ns, arrived_ns, out=reached_ns)
            else:
                reached_ns[targets] = np.maximum(reached_ns[targets], arrived_ns)
        np.maximum.accumulate(reached_ns, axis=0, out=reached_ns)
        reached_ns += along


def _joined_edges(
    programs: Sequence[Program], base: Program
) -> tuple[IndexArray, IndexArray, NDArray[np.int8], NDArray[np.int64]]:
    shared = len(base.source)
    columns = np.concatenate(
        [np.stack((of.source[shared:], of.target[shared:], of.lag[shared:])) for of in programs],
        axis=1,
    )
    added, index = np.unique(columns, axis=1, return_inverse=True)
    source, target, lag = (
        np.concatenate((getattr(base, name), added[row].astype(getattr(base, name).dtype)))
        for row, name in enumerate(("source", "target", "lag"))
    )
    base_ns = weights_ns(base)
    weight_ns = np.full((len(source), len(programs)), NEVER, dtype=np.int64)
    weight_ns[:shared] = base_ns[:, np.newaxis]
    added_index = shared + index.ravel()
    for number, program in enumerate(programs):
        of_program = weights_ns(program)
        changed = np.flatnonzero(of_program[:shared] != base_ns)
        weight_ns[changed, number] = of_program[changed]
        count = len(of_program) - shared
        np.maximum.at(weight_ns[:, number], added_index[:count], of_program[shared:])
        added_index = added_index[count:]
    return source, target, lag, weight_ns


def weights_ns(program: Program) -> Int64Array:
    """int64[e], ns, from one node to the next: a blocking call returns when what it awaited did."""
    adds_cost = program.via != Via.WAIT
    return program.latency_ns + np.where(adds_cost, program.cost_ns[program.target], 0)
