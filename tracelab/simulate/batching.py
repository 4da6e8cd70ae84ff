"""Edits that launch in one call what many calls launched."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.frames import is_backward, is_optimizer_step
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import lower_median
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT, Category
from tracelab.simulate.program import (
    NEVER,
    Edited,
    NodeKind,
    Program,
    Via,
    replace_cost,
    replace_latency,
    times,
)
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import scale_host_work


class _GraphLaunch(NamedTuple):
    """Cost of one replay of a CUDA graph.

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
_MIN_GRAPH = _GraphLaunch(call_ns=4_000, node_ns=0, gap_ns=100)
_MAX_GRAPH = _GraphLaunch(call_ns=10_000, node_ns=700, gap_ns=700)


def fuse(program: Program, selection: Selection) -> Edited:
    """Its launches become one, as of one fused kernel; their GPU time stays."""
    runs = _find_runs(program, selection)
    within = _within(program, runs)
    middle, low, high = (
        _limit_gaps(_merge_calls(program, runs, np.zeros(len(stays)), stays), within, 0)
        for stays in _stays(selection.sites)
    )
    return Edited(middle, low, high, runs.count)


def graph(program: Program, selection: Selection) -> Edited:
    """Its launches are replayed as one CUDA graph: one call, and short gaps between its nodes.

    What is a replay already becomes part of that graph, with its nodes.
    """
    runs = _find_runs(program, selection)
    stays = _stays(selection.sites)
    goes = np.zeros(len(stays[0])) if selection.is_everywhere else selection.host_share
    is_replay = match_names(selection.sites.timeline.trace, program.event_id, is_graph_launch)
    within = _within(program, runs)
    in_replay = within & _find_edges_in_launches(program, is_replay)
    costs = (_GRAPH, _MIN_GRAPH, _MAX_GRAPH)
    gaps_ns = [cost.gap_ns for cost in costs]
    is_gap = in_replay & (program.via == Via.STREAM)
    if is_gap.any():  # the trace has gaps of its own
        own_ns = lower_median(program.latency_ns[is_gap])
        gaps_ns = [own_ns, min(own_ns, *gaps_ns), max(own_ns, *gaps_ns)]
    middle, low, high = (
        _limit_gaps(
            replace_cost(
                _merge_calls(program, runs, goes, of_bound),
                runs.is_first,
                _call_ns(program, is_replay, runs, cost),
            ),
            within & ~in_replay,
            gap_ns,
        )
        for cost, gap_ns, of_bound in zip(costs, gaps_ns, stays, strict=True)
    )
    return Edited(middle, low, high, runs.count)


def one_batch(program: Program, selection: Selection) -> Edited:
    """Its micro-batches become one batch, which is launched once; what loads the data stays.

    A kernel of that batch takes at least as long as one of a micro-batch, and at most as long as
    those of all of them: predicted is the mean. At most, memory is enough for batches of two.
    """
    number = _micro_batches(selection)
    if number < 2:
        return Edited.exactly(program, 0)
    middle, low, high = (
        _rebatch(program, selection, batches / number, kernels)
        for batches, kernels in (
            (1, (1 + number) / (2 * number)),
            (1, 1 / number),
            (math.ceil(number / 2), 1),
        )
    )
    return Edited(middle, low, high, int(selection.calls.sum()))


def _micro_batches(selection: Selection) -> int:
    """Count the backward passes of a place before each optimizer step."""
    trace = selection.sites.timeline.trace
    passes, steps = (
        events[match_names(trace, events, test)].astype(np.int64)
        for events, test in (
            (trace.of_category(Category.PYTHON), is_backward),
            (trace.of_category(Category.ANNOTATION, Category.OPERATOR), is_optimizer_step),
        )
    )
    passes = passes[selection.made_there(passes)]
    if not len(passes):
        return 0
    batch = np.searchsorted(np.sort(trace.start_ns[steps]), trace.start_ns[passes])
    return lower_median(np.unique(batch, return_counts=True)[1])


def _rebatch(program: Program, selection: Selection, launches: float, kernels: float) -> Program:
    """Scale the number of batches that the CPU works for in a place.

    Args:
        program: any.
        selection: the place of the batches.
        launches: how many times as many there are.
        kernels: how many times as long their kernels take altogether.
    """
    share = selection.host_share * (1 - selection.sites.loading_share)
    changed = replace_cost(program, selection.calls, times(program.cost_ns, launches))
    changed = scale_host_work(changed, share, launches)
    computes = selection.activities & (program.activity_kind == Kind.COMPUTE)
    gaps = (program.via == Via.STREAM) & computes[program.source] & computes[program.target]
    changed = replace_latency(changed, gaps, times(program.latency_ns, launches))
    return replace_cost(changed, computes, times(program.cost_ns, kernels))


def _call_ns(
    program: Program, is_replay: NDArray[np.bool_], runs: _Runs, cost: _GraphLaunch
) -> Int64Array:
    """int64[n], ns, what the call takes that launches all of each one's run.

    A replay takes the longer the more nodes it has: what one takes beyond a call comes on top, and
    with replays it is no more than all calls of the run took.

    Args:
        program: any.
        is_replay: bool[n], what launches a graph.
        runs: what becomes one graph each.
        cost: of a graph.
    """
    is_call = (program.kind == NodeKind.CALL) & (runs.number != ABSENT)
    replays = is_call & is_replay

    def sum_of(nodes: NDArray[np.bool_], ns: Int64Array) -> Int64Array:
        sums = np.bincount(runs.number[nodes], ns[nodes], int(runs.number.max(initial=0)) + 1)
        return sums.astype(np.int64)[runs.number]

    replay_count = sum_of(replays, np.ones_like(program.cost_ns))
    of_nodes_ns = sum_of(replays, np.maximum(program.cost_ns - cost.call_ns, 0))
    eager_count = runs.launch_count - replay_count
    call_ns = cost.call_ns + cost.node_ns * eager_count + of_nodes_ns
    all_calls_ns = sum_of(is_call, program.cost_ns)
    return np.where(replay_count > 0, np.minimum(call_ns, all_calls_ns), call_ns)


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
        """Number of launches in the runs."""
        return int(self.launch_count[self.is_first].sum())


def _find_runs(program: Program, selection: Selection) -> _Runs:
    sites, launch = selection.sites, program.launch_node
    is_call = program.kind == NodeKind.CALL
    chosen = is_call & selection.calls & ~_still_blocks(program, sites)
    number = np.full(len(chosen), ABSENT, dtype=np.int64)
    is_first = np.zeros(len(chosen), dtype=np.bool_)
    step_index = sites.host_step_index
    # Such work ends where its call begins, which may be a node of its own.
    late_id = program.event_id[sites.program.target[sites.other_work]]
    follows_other_work = np.isin(program.event_id, late_id)
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


def _stays(sites: Sites) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the host work that a batch keeps: predicted, least and most.

    Each is float64[e], the share of each edge of the recorded program. Data loading stays, and work
    other than launching, and time of which the file does not even name a region: no saving
    contains it. Other silence that is longer than PyTorch takes from one launch to the next stays
    at most.
    """
    silent, unknown = sites.silent_shares
    stays = np.maximum(np.maximum(sites.loading_share, sites.other_work), unknown)
    return stays, stays, np.maximum(stays, silent)


def _merge_calls(
    program: Program, runs: _Runs, goes: NDArray[np.float64], stays: NDArray[np.float64]
) -> Program:
    """The same, where of each run only the first call takes time, and what stays between calls.

    Args:
        program: any.
        runs: what is launched in one call each.
        goes: float64[edges of the recorded program], the share of work outside the runs that goes.
        stays: the share of any work that stays.
    """
    is_later = (runs.number != ABSENT) & (program.kind == NodeKind.CALL) & ~runs.is_first
    is_work = np.isin(program.via, (Via.HOST, Via.THREAD))
    is_between = (_within(program, runs) & is_work)[: len(stays)]
    share = np.ones(len(program.via))
    share[: len(stays)] = np.where(is_between, stays, np.maximum(1 - goes, stays))
    changed = replace_cost(program, is_later, 0)
    return replace_latency(changed, share < 1, times(program.latency_ns, share))


def _limit_gaps(program: Program, within: NDArray[np.bool_], gap_ns: int) -> Program:
    """The same, where activities follow one another so soon, or as soon as before.

    Args:
        program: any.
        within: bool[e], the edges between nodes of one run.
        gap_ns: ns.
    """
    between = within & np.isin(program.via, (Via.STREAM, Via.EVENT))
    return replace_latency(program, between, np.minimum(program.latency_ns, gap_ns))


def _find_edges_in_launches(program: Program, is_launch: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[e], the edges from one activity to another of the same launch.

    Args:
        program: any.
        is_launch: bool[n], the launches that count.
    """
    of_source, of_target = program.launch_node[program.source], program.launch_node[program.target]
    in_one: NDArray[np.bool_] = (of_source == of_target) & (of_source != ABSENT)
    in_one &= is_launch[of_source]
    return in_one


def _within(program: Program, runs: _Runs) -> NDArray[np.bool_]:
    """bool[e], the edges from one node of a run to another."""
    of_source = runs.number[program.source]
    within: NDArray[np.bool_] = of_source == runs.number[program.target]
    within &= (of_source != ABSENT) & (program.lag == 0)
    return within
