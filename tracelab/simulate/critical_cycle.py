"""The critical cycle of a replay: what one repetition really takes so long for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NodeKind, Program, Via

_HOST = (Via.HOST, Via.THREAD)
_GPU = (Via.STREAM, Via.EVENT, Via.QUEUE, Via.SM)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CriticalCycle(Frozen):
    """What decides how long a step is: the nodes and edges that each wait for the one before.

    Walked back from the last node, from each to the one that it waited for last, until a node comes
    again. All times of a cycle add up to its repetitions; a program that runs once has a path.

    Attributes:
        edge: intp[k], the edges, each from the node that decides when the next one is reached.
        steps: how many steps it is long.
        host_ns: ns per step that work of the host decides.
        gpu_ns: ns per step that GPU activities decide, with the gaps between those of a stream.
        between_ns: ns per step from one to the other: launches, and waking up from a wait.

    Example: ``CriticalCycle(edge=[41, 40, 12], steps=3, host_ns=300_000, gpu_ns=9_100_000,
    between_ns=8_000)``.
    """

    edge: NDArray[np.intp]
    steps: int
    host_ns: int
    gpu_ns: int
    between_ns: int


def critical_cycle(program: Program, time_ns: Int64Array, step_ns: int) -> CriticalCycle:
    """Walk the critical cycle of a replayed program.

    Args:
        program: what was replayed.
        time_ns: int64[n], ns, when each node was reached.
        step_ns: ns, what a step took.
    """
    last_edge = _last_edges(program, time_ns, step_ns).tolist()
    sources = program.source.tolist()
    node, path, seen = int(time_ns.argmax()), list[int](), dict[int, int]()
    while node not in seen and last_edge[node] != ABSENT:
        seen[node] = len(path)
        path.append(last_edge[node])
        node = sources[last_edge[node]]
    edge = np.array(path[seen.get(node, 0) :], dtype=np.intp)
    steps = program.steps * max(int(program.lag[edge].sum()), 1)

    via, target = program.via[edge], program.target[edge]
    cost_ns = np.where(via == Via.WAIT, 0, program.cost_ns[target])
    latency_ns = program.latency_ns[edge]
    is_activity = program.kind[target] == NodeKind.ACTIVITY
    host_ns = cost_ns[~is_activity].sum() + latency_ns[np.isin(via, _HOST)].sum()
    gpu_ns = cost_ns[is_activity].sum() + latency_ns[np.isin(via, _GPU)].sum()
    between_ns = latency_ns[~np.isin(via, (*_HOST, *_GPU))].sum()
    return CriticalCycle(
        edge, steps, *(int(part_ns // steps) for part_ns in (host_ns, gpu_ns, between_ns))
    )


def _last_edges(program: Program, time_ns: Int64Array, step_ns: int) -> NDArray[np.intp]:
    """intp[n], of each node the edge by which it was reached last; ABSENT without any."""
    adds_cost = program.via != Via.WAIT
    arrived_ns = time_ns[program.source] + program.latency_ns
    arrived_ns += np.where(adds_cost, program.cost_ns[program.target], 0)
    arrived_ns[program.lag == 1] -= step_ns * program.steps
    order = np.lexsort((arrived_ns, program.target))
    last_edge = np.full(len(program), ABSENT, dtype=np.intp)
    last_edge[program.target[order]] = order  # the last one written stays
    return last_edge
