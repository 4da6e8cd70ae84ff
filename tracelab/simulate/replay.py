"""Replay programs: what a step takes once each repetition goes on as the one before it.

The time at which a node is reached is the latest over what leads to it, a recurrence of maxima and
sums. Of many programs that differ by an edit the same node is computed at once, as one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import Int64Array
from tracelab.simulate.program import NEVER, Program, Via

# The first repetition finds nothing before it; from the third on each takes as long as the last.
_REPETITIONS = 4
_AT_ONCE = 64  # programs: the memory of one pass is bounded


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replayed(Frozen):
    """How programs went.

    Attributes:
        step_ns: int64[p], ns, what a step takes; of programs that run once, all of it.
        time_ns: int64[n, p], ns, when each node was reached in the last repetition.

    Example row of three programs: ``step_ns=[9_500_000, 9_100_000, 8_000_000]``.
    """

    step_ns: Int64Array
    time_ns: Int64Array


def replay(programs: Sequence[Program]) -> Replayed:
    """Replay a program and edits of it.

    The slow reference model is ``tests/reference/replay.py``.

    Args:
        programs: at least one; all with the same nodes, and the edges of the first at the same
            places, before those that an edit added.
    """
    parts = [
        _replay(programs[first : first + _AT_ONCE], programs[0])
        for first in range(0, len(programs), _AT_ONCE)
    ]
    return Replayed(
        np.concatenate([part.step_ns for part in parts]),
        np.concatenate([part.time_ns for part in parts], axis=1),
    )


def _replay(programs: Sequence[Program], base: Program) -> Replayed:
    node_count, repetitions = len(base), _REPETITIONS if base.is_repeated else 1
    source, target, lag, weight_ns = _joined_edges(programs, base)
    order = np.argsort(target, kind="stable")
    bounds = np.searchsorted(target[order], np.arange(node_count + 1)).tolist()
    # The upper half of the table is the repetition before.
    sources = (source + np.where(lag == 1, 0, node_count))[order].tolist()
    weight_ns = weight_ns[order]
    time_ns = np.full((2 * node_count, len(programs)), NEVER, dtype=np.int64)
    earliest_ns = _earliest_ns(base, target, lag)
    ends_ns = []
    for _ in range(repetitions):
        time_ns[:node_count] = time_ns[node_count:]
        _run(time_ns, sources, bounds, weight_ns, earliest_ns)
        ends_ns.append(time_ns[node_count:].max(axis=0))
        earliest_ns[:] = NEVER
    begun_ns = ends_ns[-2] if base.is_repeated else time_ns[node_count:].min(axis=0)
    step_ns = ends_ns[-1] - begun_ns
    return Replayed(step_ns // base.steps, time_ns[node_count:])


def _earliest_ns(
    base: Program, target: NDArray[np.intp], lag: NDArray[np.int8]
) -> NDArray[np.int64]:
    """int64[n], ns, when each node can be reached at first: what nothing leads to, as recorded."""
    has_source = np.zeros(len(base), dtype=np.bool_)
    has_source[target[lag == 0]] = True
    begun_ns = base.moment_ns - base.moment_ns.min(initial=0)
    return np.where(has_source | base.is_repeated, np.where(has_source, NEVER, 0), begun_ns)


def _joined_edges(
    programs: Sequence[Program], base: Program
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int8], NDArray[np.int64]]:
    """The edges of all programs: sources, targets, lags, and int64[e, p] of what each takes, ns."""
    shared = len(base.source)
    counts = [len(program.source) - shared for program in programs]
    source, target, lag = (
        np.concatenate([getattr(base, name), *(getattr(of, name)[shared:] for of in programs)])
        for name in ("source", "target", "lag")
    )
    weight_ns = np.full((len(source), len(programs)), NEVER, dtype=np.int64)
    first = shared
    for index, (program, count) in enumerate(zip(programs, counts, strict=True)):
        of_program = _weights_ns(program)
        weight_ns[:shared, index] = of_program[:shared]
        weight_ns[first : first + count, index] = of_program[shared:]
        first += count
    return source, target, lag, weight_ns


def _weights_ns(program: Program) -> Int64Array:
    """int64[e], ns, from one node to the next: a blocking call returns when what it awaited did."""
    adds_cost = program.via != Via.WAIT
    return program.latency_ns + np.where(adds_cost, program.cost_ns[program.target], 0)


def _run(
    time_ns: NDArray[np.int64],
    sources: list[int],
    bounds: list[int],
    weight_ns: NDArray[np.int64],
    earliest_ns: NDArray[np.int64],
) -> None:
    """Reach every node once, in order: the lower half of the table is written."""
    maximum, add = np.maximum, np.add
    node_count = len(earliest_ns)
    earliest = earliest_ns.tolist()
    for node in range(node_count):
        reached = time_ns[node_count + node]
        reached[:] = earliest[node]
        for edge in range(bounds[node], bounds[node + 1]):
            maximum(reached, add(time_ns[sources[edge]], weight_ns[edge]), out=reached)
