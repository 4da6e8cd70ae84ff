"""Edits of a job's work: a rank as the median rank, all ranks alike, a rank that no one waits for.

Ranks do the same between the same collectives, so their work is compared stretch by stretch: what
the host launched from one of them to the next, and how long it took to do so. Where ranks meet in
pairs only, as the stages of a pipeline do, a stretch is the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import NEVER, NodeKind, Program, Via


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stretches(Frozen):
    """The work of one rank by stretch; s stretches, the same on all ranks.

    Attributes:
        node_stretch: intp[n], of each node of its program; ABSENT of communication.
        edge_stretch: intp[e], of edges that are the host's work and of those that are blocking
            calls' waits, else ABSENT.
        gpu_ns: int64[s], ns, how long its activities take.
        host_ns: int64[s], ns, how long the host works between and in its calls.
        waits: int64[s], how many calls wait for the GPU.

    Example row: ``(gpu_ns=8_400_000, host_ns=900_000, waits=0)``.
    """

    node_stretch: NDArray[np.intp]
    edge_stretch: NDArray[np.intp]
    gpu_ns: Int64Array
    host_ns: Int64Array
    waits: Int64Array


def find_stretches(
    programs: Sequence[Program], meeting_nodes: Sequence[Int64Array], *, in_pairs: bool
) -> tuple[Stretches, ...]:
    """The work of each rank by stretch.

    Args:
        programs: of each rank.
        meeting_nodes: of each rank the activities that meet others.
        in_pairs: whether some meet in pairs only.
    """
    are_alike = len({len(nodes) for nodes in meeting_nodes}) == 1 and not in_pairs
    return tuple(
        _stretches(program, nodes if are_alike else nodes[:0])
        for program, nodes in zip(programs, meeting_nodes, strict=True)
    )


def level(
    program: Program, rank: int, stretches: Sequence[Stretches], surplus_ns: int | None
) -> Program:
    """A rank's work as the median rank's, where it is more.

    Args:
        program: of the rank.
        rank: its index.
        stretches: the work of each rank.
        surplus_ns: ns, what its GPU computes too much in all steps, at its own speed, where that is
            known: GPUs that wait clock higher, so that the others are no measure of its speed.
    """
    own, usual = stretches[rank], _usual(stretches, rank)
    too_much_ns = np.maximum(own.gpu_ns - usual["gpu_ns"], 0)
    if surplus_ns is not None:
        too_much_ns = too_much_ns * min(1.0, surplus_ns / max(1, int(too_much_ns.sum())))
    scaled = _scaled(program, own, 1 - too_much_ns / np.maximum(own.gpu_ns, 1))
    return _remove_waits(_capped(scaled, own, usual["host_ns"]), own, usual["waits"])


def balance(programs: Mapping[int, Program], stretches: Sequence[Stretches]) -> dict[int, Program]:
    """All ranks do the mean of the GPU work.

    Args:
        programs: of all ranks, by their index.
        stretches: the work of each.
    """
    mean_ns = np.mean([of_rank.gpu_ns for of_rank in stretches], axis=0)
    return {
        rank: _scaled(programs[rank], own, mean_ns / np.maximum(own.gpu_ns, 1))
        for rank, own in enumerate(stretches)
    }


def _stretches(program: Program, meeting_nodes: Int64Array) -> Stretches:
    launched = np.sort(program.launch_node[meeting_nodes])
    is_comm = program.activity_kind == Kind.COMM
    is_activity = program.kind == NodeKind.ACTIVITY
    call = np.where(is_activity, program.launch_node, np.arange(len(program)))
    stretch = np.searchsorted(launched, call, side="left")
    node_stretch = np.where(is_comm, ABSENT, stretch)
    is_host = (program.via == Via.HOST) & (program.latency_ns != NEVER)
    is_wait = (program.via == Via.WAIT) & (program.latency_ns != NEVER)
    edge_stretch = np.where(is_host | is_wait, stretch[program.target], ABSENT)
    waiting = np.unique(program.target[is_wait])
    return Stretches(
        node_stretch=node_stretch,
        edge_stretch=edge_stretch,
        gpu_ns=_sums(stretch, program.cost_ns, is_activity & ~is_comm, len(launched) + 1),
        host_ns=_sums(stretch, program.cost_ns, ~is_activity, len(launched) + 1)
        + _sums(stretch[program.target], program.latency_ns, is_host, len(launched) + 1),
        waits=np.bincount(stretch[waiting], minlength=len(launched) + 1).astype(np.int64),
    )


def _sums(
    stretch: NDArray[np.intp], ns: Int64Array, chosen: NDArray[np.bool_], count: int
) -> Int64Array:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, stretch[chosen], ns[chosen])
    return sums


def _usual(stretches: Sequence[Stretches], rank: int) -> Mapping[str, Int64Array]:
    """The median of the other ranks by stretch, the lower of two; by name of the column."""
    others = [of_rank for index, of_rank in enumerate(stretches) if index != rank]
    middle = (len(others) - 1) // 2
    return {
        name: np.sort([getattr(of_rank, name) for of_rank in others], axis=0)[middle]
        for name in ("gpu_ns", "host_ns", "waits")
    }


def _scaled(program: Program, own: Stretches, share: NDArray[np.float64]) -> Program:
    """A program whose GPU work takes other times by stretch, as shares of its own."""
    is_work = (program.kind == NodeKind.ACTIVITY) & (own.node_stretch != ABSENT)
    cost_ns = np.rint(program.cost_ns * share[own.node_stretch]).astype(np.int64)
    return replace(program, cost_ns=np.where(is_work, cost_ns, program.cost_ns))


def _capped(program: Program, own: Stretches, most_ns: Int64Array) -> Program:
    """A program whose host works no longer than so, by stretch.

    What is too much is taken off its longest pieces: ranks that run the same program differ by what
    one of them does beside it.
    """
    call = np.flatnonzero(program.kind != NodeKind.ACTIVITY)
    shared = len(own.edge_stretch)  # an edit may have added further ones
    edge = np.flatnonzero((program.via[:shared] == Via.HOST) & (own.edge_stretch != ABSENT))
    stretch = np.concatenate((own.node_stretch[call], own.edge_stretch[edge]))
    piece_ns = np.concatenate((program.cost_ns[call], program.latency_ns[edge]))
    for index, pieces in groups_of(
        np.where(own.host_ns[stretch] > most_ns[stretch], stretch, ABSENT)
    ):
        piece_ns[pieces] = np.minimum(piece_ns[pieces], _cap_ns(piece_ns[pieces], most_ns[index]))
    cost_ns, latency_ns = program.cost_ns.copy(), program.latency_ns.copy()
    cost_ns[call], latency_ns[edge] = piece_ns[: len(call)], piece_ns[len(call) :]
    return replace(program, cost_ns=cost_ns, latency_ns=latency_ns)


def _cap_ns(piece_ns: Int64Array, most_ns: int) -> int:
    """Return how long pieces may be, ns, to be no longer than a limit together.

    >>> _cap_ns(np.array([10, 2, 7]), 12), _cap_ns(np.array([10, 2, 7]), 3)
    (5, 1)
    """
    ordered = np.sort(piece_ns)
    left = np.arange(len(ordered), 0, -1)
    # With a cap at the piece before: that and all shorter ones whole, the others as long as it.
    shorter_ns = np.cumsum(ordered) - ordered
    first = int(np.argmax(shorter_ns + left * ordered > most_ns))
    return max(0, int(most_ns - shorter_ns[first]) // int(left[first]))


def _remove_waits(program: Program, own: Stretches, usual: Int64Array) -> Program:
    """A program whose host waits for the GPU no more often than is usual, by stretch."""
    latency_ns = program.latency_ns.copy()
    is_wait = (program.via[: len(own.edge_stretch)] == Via.WAIT) & (own.edge_stretch != ABSENT)
    for stretch, edges in groups_of(np.where(is_wait, own.edge_stretch, ABSENT)):
        calls = np.unique(program.target[edges])
        kept = calls[max(0, len(calls) - int(usual[stretch])) :]
        latency_ns[edges[~np.isin(program.target[edges], kept)]] = NEVER
    return replace(program, latency_ns=latency_ns)
