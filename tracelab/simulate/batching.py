"""Edits that launch in one call what many calls launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen
from tracelab.intervals import Int64Array
from tracelab.model.lookup import groups_of
from tracelab.model.trace import ABSENT
from tracelab.simulate.edited import Edited, times, with_cost, with_latency
from tracelab.simulate.program import NEVER, NodeKind, Program, Via
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import with_less_host_work


class _GraphLaunch(NamedTuple):
    """What a replay of a CUDA graph costs.

    Attributes:
        call_ns: ns, the call that launches it.
        node_ns: ns more for each of its nodes.
        gap_ns: ns, between two of its nodes.
    """

    call_ns: int
    node_ns: int
    gap_ns: int


# Of H200s. A call took 3 to 25 us for 100 nodes without the profiler, and 0.7 us a node with it.
# Gaps were 0.1 us between tiny kernels, 0.1 to 0.4 us in graphs of models, 0.5 us in the mean.
_GRAPH = _GraphLaunch(call_ns=10_000, node_ns=0, gap_ns=500)
_LEAST_GRAPH = _GraphLaunch(call_ns=4_000, node_ns=0, gap_ns=100)
_MOST_GRAPH = _GraphLaunch(call_ns=10_000, node_ns=700, gap_ns=700)


def fuse(program: Program, selection: Selection) -> Edited:
    """Its launches become one, as of one fused kernel; their GPU time stays."""
    runs = _find_runs(program, selection)
    fused = _with_gaps(_in_one_call(program, selection.sites, runs), runs, 0)
    return Edited.exactly(fused, runs.count)


def graph(program: Program, selection: Selection) -> Edited:
    """Its launches are replayed as one CUDA graph: one call, and short gaps between its nodes."""
    runs = _find_runs(program, selection)
    changed = _in_one_call(program, selection.sites, runs)
    if not selection.is_everywhere:
        changed = with_less_host_work(changed, selection.host_share, 0)
    middle, low, high = (
        _with_gaps(
            with_cost(changed, runs.is_first, cost.call_ns + cost.node_ns * runs.launch_count),
            runs,
            cost.gap_ns,
        )
        for cost in (_GRAPH, _LEAST_GRAPH, _MOST_GRAPH)
    )
    return Edited(middle, low, high, runs.count)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Runs(Frozen):
    """Launches of a place that come one after another on a thread in one step, at least two.

    What blocks is not in a run, and ends it, as does host work other than launching.

    Attributes:
        number: int64[n], the run of each call and of what it launched, else ABSENT.
        is_first: bool[n], the call with which each run begins.
        launch_count: int64[n], how many calls of each one's run launch, else 0.
    """

    number: Int64Array
    is_first: NDArray[np.bool_]
    launch_count: Int64Array

    @property
    def count(self) -> int:
        """How many launches are in the runs."""
        return int(self.launch_count[self.is_first].sum())


def _find_runs(program: Program, selection: Selection) -> _Runs:
    sites, launch = selection.sites, program.launch_node
    is_call = program.kind == NodeKind.CALL
    chosen = is_call & selection.calls & ~_still_blocks(program, sites)
    number = np.full(len(chosen), ABSENT, dtype=np.int64)
    is_first = np.zeros(len(chosen), dtype=np.bool_)
    step_index = sites.host_step_index
    follows_other_work = np.zeros(len(chosen), dtype=np.bool_)
    follows_other_work[sites.program.target[sites.other_work]] = True
    for _, calls in groups_of(np.where(is_call, program.thread_index, ABSENT)):
        goes_on = np.append(False, chosen[calls[:-1]])
        goes_on[1:] &= step_index[calls[1:]] == step_index[calls[:-1]]
        goes_on &= ~follows_other_work[calls]
        is_first[calls] = chosen[calls] & ~goes_on
    number[chosen] = _number_by_thread(program, chosen, is_first)
    launches = np.zeros(len(chosen), dtype=np.bool_)
    launches[launch[launch != ABSENT]] = True
    count = np.bincount(number[chosen & launches], minlength=int(is_first.sum()) + 1)
    number[~(count[number] > 1)] = ABSENT
    is_launched = launch != ABSENT
    number[is_launched] = number[launch[is_launched]]
    begins = program.kind == NodeKind.BEGIN
    of_event = np.full(len(sites.timeline.trace), ABSENT, dtype=np.int64)
    of_event[program.event_id[is_call]] = number[is_call]
    number[begins] = of_event[program.event_id[begins]]
    in_run = number != ABSENT
    return _Runs(number, is_first & in_run, np.where(in_run, count[number], 0))


def _still_blocks(program: Program, sites: Sites) -> NDArray[np.bool_]:
    """bool[n], the blocking calls that an edit before this one has left as they are.

    A call no longer blocks where it waited for something and now waits for nothing, or where it
    took time and now takes none.
    """
    waits_now, waited = (np.zeros(len(of.kind), dtype=np.bool_) for of in (program, sites.program))
    for of, waits in ((program, waits_now), (sites.program, waited)):
        waits[of.target[(of.via == Via.WAIT) & (of.latency_ns != NEVER)]] = True
    took_time = sites.program.cost_ns > 0
    is_freed = np.where(waited, ~waits_now, took_time & (program.cost_ns == 0))
    still: NDArray[np.bool_] = (sites.blocking != ABSENT) & ~is_freed
    return still


def _number_by_thread(
    program: Program, chosen: NDArray[np.bool_], is_first: NDArray[np.bool_]
) -> Int64Array:
    """int64[chosen], the number of each chosen call's run: they are counted thread by thread."""
    calls = np.flatnonzero(chosen)
    order = np.argsort(program.thread_index[calls], kind="stable")
    number = np.empty(len(calls), dtype=np.int64)
    number[order] = np.cumsum(is_first[calls[order]]) - 1
    return number


def _in_one_call(program: Program, sites: Sites, runs: _Runs) -> Program:
    """The same, where of each run only the first call takes time, and what loads data."""
    is_later = (runs.number != ABSENT) & (program.kind == NodeKind.CALL) & ~runs.is_first
    changed = with_cost(program, is_later, 0)
    between = _within(program, runs) & np.isin(program.via, (Via.HOST, Via.THREAD))
    loading = np.zeros(len(program.via))
    loading[: len(sites.loading_share)] = sites.loading_share
    return with_latency(changed, between, times(program.latency_ns, loading))


def _with_gaps(program: Program, runs: _Runs, gap_ns: int) -> Program:
    """The same, where the activities of a run follow one another so soon, or as soon as before."""
    between = _within(program, runs) & np.isin(program.via, (Via.STREAM, Via.EVENT))
    return with_latency(program, between, np.minimum(program.latency_ns, gap_ns))


def _within(program: Program, runs: _Runs) -> NDArray[np.bool_]:
    """bool[e], the edges from one node of a run to another."""
    of_source = runs.number[program.source]
    within: NDArray[np.bool_] = of_source == runs.number[program.target]
    within &= (of_source != ABSENT) & (program.lag == 0)
    return within
