"""How much longer work takes beside other work that it did not run beside before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import measure_within, union
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.simulate.edited import with_cost
from tracelab.simulate.program import Program

# All measured on H200s of 132 multiprocessors, by ``tests/benchmarks/contention.py``.

# Beside an all-reduce of NCCL's 24 blocks matrix products of 1.7 ms took 30 % longer, of 0.2 ms
# 47 % and of 0.04 ms 97 %: their blocks, one for each multiprocessor, then come in two waves.
# Elementwise kernels took 17 to 74 % longer.
_LONG_NS = 1_000_000
_SLOWER_LONG, _SLOWER = 0.30, 0.47
# Beside copies matrix products took so much longer, and those of 0.2 ms and more began later by so
# much, ns. Elementwise kernels took 1.2 % longer beside a copy from the host, 8.8 % to another GPU.
_BESIDE_COPY = {"p2p": (0.035, 3_000), "h2d": (0.01, 3_000), "d2h": (0.01, 1_200)}
_LARGE_NS = 100_000


def slower_beside(
    program: Program,
    copy_direction: NDArray[np.str_],
    source: NDArray[np.intp],
    target: NDArray[np.intp],
) -> Program:
    """The same, where compute takes longer for as long as communication or copies run beside it.

    Args:
        program: any.
        copy_direction: str[n], the direction of each copy, "" for all other nodes.
        source: intp[k], activities that now run beside others.
        target: intp[k], for each of them the first activity, of another stream, beside it.
    """
    is_long = program.cost_ns >= _LONG_NS
    by_comm = np.where(is_long, _SLOWER_LONG, _SLOWER)
    changed = _slower(program, program.activity_kind[source] == Kind.COMM, source, target, by_comm)
    for direction, (share, gap_ns) in _BESIDE_COPY.items():
        later = np.where(program.cost_ns >= _LARGE_NS, gap_ns / np.maximum(program.cost_ns, 1), 0)
        is_such = copy_direction[source] == direction
        changed = _slower(changed, is_such, source, target, share + later)
    return changed


def _slower(
    program: Program,
    chosen: NDArray[np.bool_],
    source: NDArray[np.intp],
    target: NDArray[np.intp],
    slower: NDArray[np.float64],
) -> Program:
    """The same, where compute takes longer beside some activities.

    Args:
        program: any.
        chosen: bool[k], which of the sources.
        source: intp[k], activities.
        target: intp[k], the first activity beside each.
        slower: float64[n], by which share of itself each node takes longer.
    """
    source, target = source[chosen], target[chosen]
    slower = np.where(program.activity_kind == Kind.COMPUTE, slower, 0)
    cost_ns = program.cost_ns.copy()
    for stream, index in groups_of(program.stream_index[target]):
        nodes = np.flatnonzero(program.stream_index == stream)
        end_ns = np.cumsum(program.cost_ns[nodes])
        start_ns = end_ns - program.cost_ns[nodes]
        first = np.searchsorted(nodes, target[index])
        # As long as the other takes, at the speed that is left for the compute.
        beside_ns = program.cost_ns[source[index]] / (1 + slower[target[index]])
        beside = union(start_ns[first], start_ns[first] + beside_ns.astype(np.int64))
        within_ns = measure_within(beside, start_ns, end_ns)
        cost_ns[nodes] += (within_ns * slower[nodes]).astype(np.int64)
    return with_cost(program, np.ones(len(cost_ns), dtype=np.bool_), cost_ns)
