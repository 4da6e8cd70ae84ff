"""The host's work between two calls of a program, cut wherever what the host runs changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, concatenated
from tracelab.base.intervals import Int64Array
from tracelab.model.lookup import expand_ranges, groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import Program, Via


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostPieces(Frozen):
    """What the host ran along the edges of a program that stand for its work.

    Example row: ``(edge_index=12, event_id=840, share=0.25)``: a quarter of the work that edge 12
    stands for was done in event 840 itself, outside all that it calls.

    Attributes:
        edge_index: intp[k], by thread, edges by which one host call comes after another.
        event_id: int64[k], the innermost operator, Python function or call that ran, else ABSENT.
        share: float64[k], of the edge's work; those of an edge add up to 1.
    """

    edge_index: NDArray[np.intp]
    event_id: Int64Array
    share: NDArray[np.float64]


def host_pieces(trace: Trace, program: Program) -> HostPieces:
    """Say of the host's work between the calls of a program what it was.

    An edge from one repetition to the next stands for the time just before its call. A thread that
    another one woke slept in its longest piece, which is no work.

    Args:
        trace: the recording that the program is of.
        program: its steps.
    """
    is_host = (program.via == Via.HOST) | (program.via == Via.THREAD)
    edges = np.flatnonzero(is_host & (program.latency_ns > 0))
    source, target = program.source[edges], program.target[edges]
    end_ns = trace.start_ns[program.event_id[target]]
    is_recorded = (program.lag[edges] == 0) & (program.moment_ns[source] < end_ns)
    start_ns = np.where(is_recorded, program.moment_ns[source], end_ns - program.latency_ns[edges])
    woken = np.zeros(len(program.kind), dtype=np.bool_)
    woken[program.target[program.via == Via.THREAD]] = True
    sleeps = woken[target] & (program.via[edges] == Via.HOST) & is_recorded
    nesting = Nesting(trace, _host_events(trace, start_ns, end_ns))
    parts = [
        _of_thread(nesting, thread, edges[own], start_ns[own], end_ns[own], sleeps[own])
        for thread, own in groups_of(program.thread_index[target])
    ]
    none = HostPieces(np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0))
    return concatenated([none, *parts])


def _host_events(trace: Trace, start_ns: Int64Array, end_ns: Int64Array) -> NDArray[np.intp]:
    """Event ids of what the host ran from the first of some starts to the last of some ends."""
    if not len(start_ns):
        return np.zeros(0, dtype=np.intp)
    host = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    in_time = (trace.end_ns[host] > start_ns.min()) & (trace.start_ns[host] < end_ns.max())
    events: NDArray[np.intp] = host[in_time]
    return events


def _of_thread(
    nesting: Nesting,
    thread: int,
    edges: NDArray[np.intp],
    start_ns: Int64Array,
    end_ns: Int64Array,
    sleeps: NDArray[np.bool_],
) -> HostPieces:
    """The pieces along the edges to the calls of one thread."""
    own = nesting.of_thread(thread)
    # Times that occur twice make pieces without a length; `unique` would take many times as long.
    moments_ns = np.sort(
        np.concatenate((nesting.start_ns[own], nesting.end_ns[own], start_ns, end_ns))
    )
    first, last = np.searchsorted(moments_ns, start_ns), np.searchsorted(moments_ns, end_ns)
    of_edge, piece = expand_ranges(first, last)
    length_ns = np.diff(moments_ns)[piece]
    bounds = np.concatenate(([0], np.cumsum(last - first)))
    for edge in np.flatnonzero(sleeps).tolist():
        begin, end = bounds[edge : edge + 2].tolist()
        length_ns[begin + int(length_ns[begin:end].argmax())] = 0
    entry = nesting.innermost_at(thread, moments_ns)[piece]
    event_id = np.append(nesting.event_id, ABSENT)[entry]  # ABSENT is the last one
    work_ns = np.bincount(of_edge, length_ns, len(edges))
    is_work = length_ns > 0
    share = length_ns[is_work] / work_ns[of_edge[is_work]]
    return HostPieces(edges[of_edge[is_work]], event_id[is_work], share)
