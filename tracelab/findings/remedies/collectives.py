"""Collectives that need not be sent, or not like this."""

from __future__ import annotations

import operator
import re

import numpy as np

from tracelab.base.arrays import IndexArray, Int64Array, IntArray
from tracelab.findings.remedies.recognizers import (
    NO_EVENTS,
    chosen,
    named,
    operators_named,
    outermost,
    recurs_in_most_steps,
)
from tracelab.measures.collective_costs import (
    backward_passes,
    launched_for_gradients,
    small_collectives,
)
from tracelab.measures.exposed import exposed
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.collectives import Operation, collectives
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import Nesting, counts_before, match_names
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

_ISSUES = (
    r"^c10d::|^record_param_comms$|torch/distributed/(distributed_c10d|c10d_logger)\.py\(\d+\): "
)
_NAMED = (Category.OPERATOR, Category.ANNOTATION)
_COPIES_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_COPIES_GRADIENT = re.compile(rf"^torch::distributed::reducer::mul_out$|^{_COPIES_BACK}$")
_OPTIMIZER_STEP = "Optimizer.step#"
_OF_INTEGERS = re.compile(r"AllReduce_.*([iu]32|u?int32)")
_READS = r"^aten::(item|is_nonzero|_local_scalar_dense)$"
_COPIES = r"^aten::(item|_local_scalar_dense|to|_to_copy|copy_)$"

_CHECKS_FOR_INF = "aten::_amp_foreach_non_finite_check_and_unscale_"
_SCALARS_BYTES = 64
# An all-reduce and the read of its result.
_MAX_LAUNCHES_BETWEEN = 2


def search_for_unused(graph: Graph, events: Int64Array) -> Int64Array:
    """The searches, and what asks the other ranks: all-reduces of integers with the gradients."""
    timeline = graph.host.timeline
    rows = np.flatnonzero(timeline.kind == Kind.COMM)
    is_map = match_names(timeline.trace, timeline.event_id[rows], _OF_INTEGERS.search)
    rows = rows[is_map]
    rows = rows[launched_for_gradients(timeline, rows)]
    return np.concatenate((events, _issuing(graph, rows)))


def small_ones(graph: Graph, _events: Int64Array, *, of_gradients: bool) -> Int64Array:
    """The calls that send small collectives in a row, of gradients or others, but one of a row."""
    small = small_collectives(graph.host.timeline)
    return _issuing(graph, small.row[small.is_gradient == of_gradients])


def gradients_of_microbatches(graph: Graph, _events: Int64Array) -> Int64Array:
    """The calls that send gradients of a backward pass before the last one of a step."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    found = collectives(timeline)
    is_chosen = (found.operation == Operation.ALL_REDUCE) & (found.in_bytes > 0)
    rows, sizes = found.row[is_chosen], found.in_bytes[is_chosen]
    is_gradient = launched_for_gradients(timeline, rows)
    rows, sizes = rows[is_gradient], sizes[is_gradient]
    launch_ns = trace.start_ns[timeline.launch_id[rows]]
    order = np.argsort(launch_ns, kind="stable")
    rows, sizes, launch_ns = rows[order], sizes[order], launch_ns[order]
    pass_number = backward_passes(timeline, rows)
    steps = named(trace, lambda name: name.startswith(_OPTIMIZER_STEP), *_NAMED)
    step_ns = np.sort(trace.start_ns[steps])
    if not len(rows):
        return NO_EVENTS
    first = np.unique(pass_number, return_index=True)[1]
    before_step = np.searchsorted(step_ns, launch_ns[first])
    sent = [part.tolist() for part in np.split(sizes, first[1:])]
    passes = list(zip(before_step.tolist(), sent, strict=True))
    is_excess = np.array([*map(operator.eq, passes, passes[1:]), False])
    is_excess &= before_step < len(step_ns)
    sends = _issuing(graph, rows[is_excess[pass_number]])
    copies = named(trace, _COPIES_GRADIENT.search, *_NAMED)
    last_ns = launch_ns[np.append(first[1:], len(rows)) - 1]
    is_back = match_names(trace, copies, _COPIES_BACK.__eq__)
    pass_index = np.searchsorted(last_ns, trace.start_ns[copies]) - is_back
    is_known = (pass_index >= 0) & (pass_index < len(first))
    copies, pass_index = copies[is_known], pass_index[is_known]
    return np.concatenate((sends, copies[is_excess[pass_index]]))


def reduced_and_read(graph: Graph, _events: Int64Array) -> Int64Array:
    """All-reduces of a few numbers that the host reads immediately, and the reads."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    found = collectives(timeline)
    is_chosen = np.isin(found.operation, (Operation.ALL_REDUCE, Operation.REDUCE))
    is_chosen &= (found.in_bytes > 0) & (found.in_bytes <= _SCALARS_BYTES)
    rows = found.row[is_chosen]
    rows = rows[(timeline.launch_id[rows] != ABSENT)]
    rows = rows[~launched_for_gradients(timeline, rows)]
    launch_id = timeline.launch_id[rows]

    reads = outermost(graph, operators_named(timeline, _READS), function=_READS)
    read_index = _next(timeline, launch_id, reads)
    checks = named(trace, _CHECKS_FOR_INF.__eq__, *_NAMED)
    is_check = np.isin(np.arange(len(rows)), _next(timeline, checks, launch_id))
    is_read = (read_index != ABSENT) & ~is_check
    read_ns = trace.start_ns[reads[read_index[is_read]]]
    between = _launches_between(timeline, launch_id[is_read], read_ns)
    is_read[is_read] = between <= _MAX_LAUNCHES_BETWEEN
    found_id = np.concatenate((_issuing(graph, rows[is_read]), reads[read_index[is_read]]))
    return recurs_in_most_steps(graph, np.unique(found_id))


def split_sizes(graph: Graph, events: Int64Array) -> Int64Array:
    """Copies to the host right before an all-to-all whose splits they decide."""
    timeline, trace = graph.host.timeline, graph.host.timeline.trace
    names = trace.messages.names
    name_index = trace.messages.name_index[trace.message_row[events]]
    is_split = np.array(["alltoallv" in name.replace("_", "").lower() for name in names] + [False])
    events = events[is_split[name_index]]
    launch_id = timeline.launch_id[timeline.copies("d2h") & (timeline.launch_id != ABSENT)]
    next_index = _next(timeline, launch_id, events)
    launch_id, next_index = launch_id[next_index != ABSENT], next_index[next_index != ABSENT]
    between = _launches_between(timeline, launch_id, trace.start_ns[events[next_index]])
    launch_id = launch_id[between <= _MAX_LAUNCHES_BETWEEN]
    return outermost(graph, launch_id, function=_COPIES)


def late_gathers(graph: Graph, events: Int64Array) -> Int64Array:
    """All-gathers, where compute that ran before some of them could have overlapped these."""
    timeline = graph.host.timeline
    pieces = exposed(graph)
    row = pieces.row[(pieces.blocker == OverlapBlocker.EVENT_WAIT) & (pieces.bound_ns > 0)]
    row = np.unique(row[(timeline.kind[row] == Kind.COMM) & (timeline.launch_id[row] != ABSENT)])
    late = Nesting(timeline.trace, events).innermost(timeline.launch_id[row])
    return events if (late != ABSENT).any() else NO_EVENTS


def _issuing(graph: Graph, rows: IntArray) -> Int64Array:
    launch_id = graph.host.timeline.launch_id[rows]
    calls = outermost(graph, launch_id, function=_ISSUES)
    return chosen(calls, ~np.isin(calls, launch_id))


def _next(timeline: Timeline, events: Int64Array, others: Int64Array) -> Int64Array:
    trace = timeline.trace
    thread = trace.thread_index[events]
    order = np.lexsort((trace.start_ns[others], trace.thread_index[others]))
    threads = np.append(trace.thread_index[others[order]], ABSENT)  # the last is for none
    place = counts_before(trace, others, events, trace.start_ns[events], "right")
    place += np.searchsorted(threads[:-1], thread)
    return np.where(threads[place] == thread, np.append(order, ABSENT)[place], ABSENT)


def _launches_between(
    timeline: Timeline, launch_id: Int64Array, until_ns: Int64Array
) -> IndexArray:
    trace = timeline.trace
    is_compute = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    compute_id = timeline.launch_id[is_compute]
    first = counts_before(trace, compute_id, launch_id, trace.start_ns[launch_id], "right")
    return counts_before(trace, compute_id, launch_id, until_ns) - first
