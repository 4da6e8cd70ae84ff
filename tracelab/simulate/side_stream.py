"""The edit that gives activities a stream of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.contention import slower_beside
from tracelab.simulate.edited import (
    Edited,
    in_order,
    kept_before,
    out_of_stream,
    with_edges,
    without,
)
from tracelab.simulate.program import NEVER, Program, Via
from tracelab.simulate.sites import Selection, Sites

_MAY_FILL_GPU = "whether these kernels leave multiprocessors free for others is not known"
_USE_UNKNOWN = "where the result is used is not known: at the latest at the end of the step"


def side_stream(program: Program, selection: Selection) -> Edited:
    """Its activities run in a stream of their own and are waited for where the result is used.

    They begin once what came before them in their stream is over, which may be their input; a copy
    from the host has none. Where a result is used the file does not say. Predicted is the next time
    that the same stream waits for such an activity, at the latest the end of the step, which is the
    lower bound. Compute that moves may find no free multiprocessor: of that only the bounds are
    known.
    """
    sites, nodes = selection.sites, selection.activities
    count = int(nodes.sum())
    if not count:
        return Edited.exactly(program, 0)
    feeds = _find_feeds(program, sites, nodes)
    moved = _moved(program, sites, nodes)
    by_step_end, by_next_wait = (
        slower_beside(
            _waited_for(moved, sites, feeds, uses), sites.copy_direction, feeds.source, feeds.target
        )
        for uses in (feeds.step_end, feeds.next_wait)
    )
    if (program.activity_kind[nodes] == Kind.COMPUTE).any():
        return Edited(program, by_step_end, program, count, _MAY_FILL_GPU)
    return Edited(by_next_wait, by_step_end, by_next_wait, count, _USE_UNKNOWN)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Uses(Frozen):
    """By when results are needed.

    Attributes:
        target: intp[k], the activity that needs each result, ABSENT for none.
        lag: int8[k], 1 where it is of the next repetition.
    """

    target: NDArray[np.intp]
    lag: NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Feeds(Frozen):
    """Activities that move, and what waits for them.

    Attributes:
        source: intp[k], nodes that move.
        target: intp[k], what waits for each now.
        lag: int8[k], 1 where that is of the next repetition.
        next_wait: by when each is needed if that is the next wait of the target's stream.
        step_end: the same if it is the end of the step.
    """

    source: NDArray[np.intp]
    target: NDArray[np.intp]
    lag: NDArray[np.int8]
    next_wait: _Uses
    step_end: _Uses


def _find_feeds(program: Program, sites: Sites, nodes: NDArray[np.bool_]) -> _Feeds:
    """What waits for activities that move, by stream or event."""
    edges = np.isin(program.via, (Via.STREAM, Via.EVENT)) & (program.latency_ns != NEVER)
    edges &= nodes[program.source] & ~nodes[program.target]
    source, target, lag = program.source[edges], program.target[edges], program.lag[edges]
    step_index = sites.gpu_step_index
    end, end_lag = np.full(len(target), ABSENT, dtype=np.intp), lag.copy()
    wait, wait_lag = np.full(len(target), ABSENT, dtype=np.intp), lag.copy()
    for stream, index in groups_of(program.stream_index[target]):
        of_stream = np.flatnonzero((program.stream_index == stream) & ~nodes)
        first = np.searchsorted(step_index[of_stream], step_index[target[index]], side="right")
        is_over = first == len(of_stream)
        end[index], end_lag[index] = of_stream[np.where(is_over, 0, first)], lag[index] + is_over
        waiting = np.unique(target[index])
        next_index = np.searchsorted(waiting, target[index], side="right")
        following = waiting[np.minimum(next_index, len(waiting) - 1)]
        is_same_step = (next_index < len(waiting)) & (
            step_index[following] == step_index[target[index]]
        )
        wait[index] = np.where(is_same_step, following, end[index])
        wait_lag[index] = np.where(is_same_step, lag[index], end_lag[index])
    return _Feeds(source, target, lag, _Uses(wait, wait_lag), _Uses(end, end_lag))


def _moved(program: Program, sites: Sites, nodes: NDArray[np.bool_]) -> Program:
    """The same, where activities run in order in streams of their own, and nothing waits for them.

    What fed them in their stream they wait for as for an event.
    """
    before, lag = kept_before(program, nodes)
    has_input = nodes & (before != ABSENT) & (sites.copy_direction != "h2d")
    feeds = np.isin(program.via, (Via.STREAM, Via.EVENT)) & nodes[program.source]
    feeds &= ~nodes[program.target]
    changed = out_of_stream(program, nodes, sites.gap_ns)
    changed = without(changed, np.append(feeds, np.zeros(len(changed.via) - len(feeds), np.bool_)))
    for edge_lag in (0, 1):
        target = np.flatnonzero(has_input & (lag == edge_lag))
        latency_ns = sites.event_ns[program.activity_kind[target]]
        changed = with_edges(changed, before[target], target, Via.EVENT, latency_ns, edge_lag)
    for _, moved in groups_of(np.where(nodes, program.stream_index, ABSENT)):
        kinds = program.activity_kind[moved]
        changed = in_order(changed, moved, sites.gap_ns[np.roll(kinds, 1), kinds])
    return changed


def _waited_for(program: Program, sites: Sites, feeds: _Feeds, uses: _Uses) -> Program:
    """The same, where moved activities are waited for by the time their results are used."""
    for lag in (0, 1):
        of_lag = (uses.target != ABSENT) & (uses.lag == lag)
        of_lag &= (uses.lag == 1) | (feeds.source < uses.target)
        source, target = feeds.source[of_lag], uses.target[of_lag]
        latency_ns = sites.event_ns[program.activity_kind[target]]
        program = with_edges(program, source, target, Via.EVENT, latency_ns, lag)
    return program
