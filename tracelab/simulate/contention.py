"""How much longer work takes beside other work that it did not run beside before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import measure_within, union
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.simulate.edited import with_cost
from tracelab.simulate.program import Program

# Beside an all-reduce of NCCL's 24 blocks, on an H200 of 132 multiprocessors, matrix products of
# 1.7 ms took 30 % longer, of 0.2 ms 47 % and of 0.04 ms 97 %: their blocks, one for each
# multiprocessor, then come in two waves. Elementwise kernels took 17 to 74 % longer. It is by
# ``tests/benchmarks/contention.py``.
_LONG_NS = 1_000_000
_SLOWER_LONG, _SLOWER = 0.30, 0.47


def slower_beside_comm(
    program: Program, source: NDArray[np.intp], target: NDArray[np.intp]
) -> Program:
    """The same, where compute takes longer for as long as communication now runs beside it.

    Args:
        program: any.
        source: intp[k], activities; those that communicate count.
        target: intp[k], for each of them the first activity, of another stream, beside it.
    """
    is_comm = program.activity_kind[source] == Kind.COMM
    source, target = source[is_comm], target[is_comm]
    slower = np.where(program.cost_ns >= _LONG_NS, _SLOWER_LONG, _SLOWER)
    slower[program.activity_kind != Kind.COMPUTE] = 0
    cost_ns = program.cost_ns.copy()
    for stream, index in groups_of(program.stream_index[target]):
        nodes = np.flatnonzero(program.stream_index == stream)
        end_ns = np.cumsum(program.cost_ns[nodes])
        start_ns = end_ns - program.cost_ns[nodes]
        first = np.searchsorted(nodes, target[index])
        # As long as the communication takes, at the speed that is left for the compute.
        beside_ns = program.cost_ns[source[index]] / (1 + slower[target[index]])
        beside = union(start_ns[first], start_ns[first] + beside_ns.astype(np.int64))
        within_ns = measure_within(beside, start_ns, end_ns)
        cost_ns[nodes] += (within_ns * slower[nodes]).astype(np.int64)
    return with_cost(program, np.ones(len(cost_ns), dtype=np.bool_), cost_ns)
