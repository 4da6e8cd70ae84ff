"""Replay programs: how long a repetition takes once it goes on as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import Int64Array
from tracelab.simulate.program import NEVER, Program, Via

_REPETITIONS = 4
_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replayed(Frozen):
    """How programs went, once each repetition goes on as the one before.

    Attributes:
        step_ns: int64[p], ns, what a step takes.
        time_ns: int64[n, p], ns, when each node was reached in the last repetition.
    """

    step_ns: Int64Array
    time_ns: Int64Array


def replay(programs: Sequence[Program], repetitions: int = _REPETITIONS) -> Replayed:
    base = programs[0]
    n, count = len(base.kind), len(programs)
    order, source, starts, weight = _edges(programs)
    time_ns = np.full((2 * n, count), NEVER, dtype=np.int64)
    time_ns[:n] = NEVER
    ends = []
    first = None
    for repetition in range(repetitions):
        _run(time_ns, n, source, starts, weight, repetition == 0)
        ends.append(time_ns[n:].max(axis=0))
        if repetition < repetitions - 1:
            time_ns[:n] = time_ns[n:]
    period = ends[-1] - ends[-2] if repetitions > 1 else ends[-1]
    return Replayed(period // base.steps, time_ns[n:].copy())


def _edges(programs):
    base = programs[0]
    edge_count = len(base.source)
    order = np.argsort(base.target, kind="stable")
    source = (base.source + np.where(base.lag == 1, 0, len(base.kind)))[order]
    starts = np.searchsorted(base.target[order], np.arange(len(base.kind) + 1))
    weight = np.stack([_weights(p) for p in programs], axis=1)[order]
    return order, source, starts, weight


def _weights(program: Program) -> Int64Array:
    is_wait = program.via == Via.WAIT
    return program.latency_ns + np.where(is_wait, 0, program.cost_ns[program.target])


def _run(time_ns, n, source, starts, weight, is_first):
    maximum, add = np.maximum, np.add
    bounds = starts.tolist()
    sources = source.tolist()
    for node in range(n):
        edge, end = bounds[node], bounds[node + 1]
        if edge == end:
            time_ns[n + node] = 0
            continue
        reached = time_ns[n + node]
        add(time_ns[sources[edge]], weight[edge], out=reached)
        edge += 1
        while edge < end:
            maximum(reached, time_ns[sources[edge]] + weight[edge], out=reached)
            edge += 1
        if is_first:
            maximum(reached, 0, out=reached)
