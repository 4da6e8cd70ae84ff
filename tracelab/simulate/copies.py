"""Edits of copies, and of the stream that activities run in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory
from tracelab.model.lookup import groups_of, match_names
from tracelab.model.trace import ABSENT
from tracelab.simulate.edited import (
    Edited,
    add_edges,
    chain_activities,
    kept_before,
    out_of_stream,
    remove_edges,
    replace_cost,
    replace_latency,
    slower_beside,
)
from tracelab.simulate.program import NEVER, NodeKind, Program, Via
from tracelab.simulate.sites import Selection, Sites
from tracelab.simulate.waits import (
    asynchronous_call_ns,
    calls_in_same_operators,
    remove_waits,
    waits_for_gpu,
)

# From and to pinned memory over PCIe Gen 5, as measured on H100 and H200: shared/REPLAY.md.
_GEN5_GB_PER_S = (49.0, 57.0)
_GEN5 = ("H100", "H200")
# Of a GPU that nothing is known of: PCIe Gen 3 with 16 lanes to Gen 5.
_ANY_GB_PER_S = (11.0, 57.0)
_OF_GPU_UNKNOWN = "how fast this GPU copies pinned memory is not known"
_BYTES_UNKNOWN = "the file does not say how many bytes its copies move"
# A copy takes this long before the first byte.
_MIN_COPY_NS = 1_000
_MAX_SIZE_FACTOR = 4


class _Bandwidth(NamedTuple):
    """Bandwidth of copies of pinned memory, bytes/ns (GB/s)."""

    low: float
    high: float
    reason: str | None = None


def pin(program: Program, selection: Selection) -> Edited:
    """Its pageable copies become pinned and asynchronous, and stay in their stream."""
    return _pinned(program, selection.sites, selection.activities & _is_pageable(selection.sites))


def prefetch(program: Program, selection: Selection) -> Edited:
    """Its copies to the GPU run one step ahead in a stream of their own, from pinned memory."""
    sites = selection.sites
    copies = selection.activities & (sites.copy_direction == "h2d")
    pinned = _pinned(_asynchronous(program, sites, copies), sites, copies & _is_pageable(sites))
    middle, low, high = (
        _ahead(of, sites, copies) for of in (pinned.program, pinned.low, pinned.high)
    )
    return Edited(middle, low, high, int(copies.sum()), pinned.reason)


# --- pinned ---


def _pinned(program: Program, sites: Sites, copies: NDArray[np.bool_]) -> Edited:
    """Copies become pinned and asynchronous, and as fast as that is."""
    if not copies.any():
        return Edited.exactly(program, 0)
    changed = _launched_when_called(_asynchronous(program, sites, copies), sites, copies)
    bandwidth = _pinned_bandwidth(sites, copies)
    is_unknown = copies & (sites.copied_bytes == ABSENT)
    middle, low, high = (
        replace_cost(changed, copies, _copy_ns(program, sites.copied_bytes, speed))
        for speed in ((bandwidth.low + bandwidth.high) / 2, bandwidth.high, bandwidth.low)
    )
    reason = _BYTES_UNKNOWN if is_unknown.any() else bandwidth.reason
    return Edited(middle, low, high, int(copies.sum()), reason)


def _is_pageable(sites: Sites) -> NDArray[np.bool_]:
    """bool[n], the copies of which one side is pageable memory."""
    is_pageable: NDArray[np.bool_] = sites.program.activity_kind == Kind.COPY
    is_pageable[is_pageable] = match_names(
        sites.timeline.trace, sites.program.event_id[is_pageable], copies_pageable_memory
    )
    return is_pageable


def _asynchronous(program: Program, sites: Sites, copies: NDArray[np.bool_]) -> Program:
    """The same, where the calls of copies return without a wait; nor does their operator wait."""
    is_copy_call = np.zeros(len(copies), dtype=np.bool_)
    launch = program.launch_node[copies]
    is_copy_call[launch[launch != ABSENT]] = True
    calls = calls_in_same_operators(sites, is_copy_call)
    return remove_waits(program, calls & waits_for_gpu(sites), is_copy_call)


def _launched_when_called(program: Program, sites: Sites, copies: NDArray[np.bool_]) -> Program:
    """The same, where copies begin once their call has returned, whatever it did before.

    Where they began before that, they depend on the begin of the call.
    """
    edges = (program.via == Via.LAUNCH) & copies[program.target]
    from_begin = program.kind[program.source] == NodeKind.BEGIN
    after_begin_ns = asynchronous_call_ns(program) + sites.copy_launch_ns
    latency_ns = np.where(from_begin, after_begin_ns, sites.copy_launch_ns)
    return replace_latency(program, edges, latency_ns)


def _copy_ns(program: Program, size_bytes: Int64Array, speed: float) -> Int64Array:
    """int64[n], ns, what copies take at a speed in bytes a nanosecond, at most as before."""
    copy_ns = _MIN_COPY_NS + (size_bytes / speed).astype(np.int64)
    return np.where(size_bytes == ABSENT, program.cost_ns, np.minimum(program.cost_ns, copy_ns))


def _pinned_bandwidth(sites: Sites, copies: NDArray[np.bool_]) -> _Bandwidth:
    """Return the bandwidth of similar pinned copies of the file; by default that of such GPUs."""
    size_bytes = sites.copied_bytes
    typical_bytes = np.median(size_bytes[copies])
    is_alike = (sites.program.activity_kind == Kind.COPY) & ~_is_pageable(sites)
    is_alike &= np.isin(sites.copy_direction, np.unique(sites.copy_direction[copies]))
    is_alike &= size_bytes >= max(typical_bytes / _MAX_SIZE_FACTOR, 1)
    is_alike &= size_bytes <= typical_bytes * _MAX_SIZE_FACTOR
    if is_alike.any():
        speed = size_bytes[is_alike] / np.maximum(sites.program.cost_ns[is_alike], 1)
        return _Bandwidth(float(speed.min()), float(speed.max()))
    names = sites.timeline.trace.info.device_names.values()
    if names and all(any(known in name for known in _GEN5) for name in names):
        return _Bandwidth(*_GEN5_GB_PER_S)
    return _Bandwidth(*_ANY_GB_PER_S, _OF_GPU_UNKNOWN)


# --- one step ahead ---


def _ahead(program: Program, sites: Sites, copies: NDArray[np.bool_]) -> Program:
    """The same, where copies run in a stream of their own, launched by the call of the step before.

    What followed them in their stream waits for them as for an event.
    """
    kind = program.activity_kind
    feeds = (program.via == Via.STREAM) & (program.latency_ns != NEVER)
    feeds &= copies[program.source] & ~copies[program.target]
    waits = np.isin(program.via, (Via.LAUNCH, Via.EVENT)) & copies[program.target]
    changed = out_of_stream(remove_edges(program, waits), copies, sites.gap_ns)
    changed = slower_beside(
        changed, sites.copy_direction, program.source[feeds], program.target[feeds]
    )
    for lag in (0, 1):
        edges = feeds & (program.lag == lag)
        source, target = program.source[edges], program.target[edges]
        latency_ns = sites.event_ns[kind[target]]
        changed = add_edges(changed, source, target, Via.EVENT, latency_ns, lag)
    for _, nodes in groups_of(np.where(copies, sites.device_number, ABSENT)):
        changed = chain_activities(changed, nodes, sites.gap_ns[Kind.COPY, Kind.COPY])
        changed = _launched_ahead(changed, nodes, sites.copy_launch_ns)
    return changed


def _launched_ahead(program: Program, nodes: NDArray[np.intp], launch_ns: int) -> Program:
    """The same, where each copy is launched when the one of the step before it was."""
    # Without steps it is when the copy before it was.
    per_step = -(-len(nodes) // program.steps) if program.is_repeated else 1
    call = np.roll(program.launch_node[nodes], per_step)
    is_first = np.arange(len(nodes)) < per_step
    for lag in (0, 1):
        of_lag = (is_first == lag) & (call != ABSENT)
        program = add_edges(program, call[of_lag], nodes[of_lag], Via.LAUNCH, launch_ns, lag)
    return program


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
    """Deadlines of results.

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
    """Find the work that waits for moved activities, by stream or event."""
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
    changed = remove_edges(
        changed, np.append(feeds, np.zeros(len(changed.via) - len(feeds), np.bool_))
    )
    for edge_lag in (0, 1):
        target = np.flatnonzero(has_input & (lag == edge_lag))
        latency_ns = sites.event_ns[program.activity_kind[target]]
        changed = add_edges(changed, before[target], target, Via.EVENT, latency_ns, edge_lag)
    for _, moved in groups_of(np.where(nodes, program.stream_index, ABSENT)):
        kinds = program.activity_kind[moved]
        changed = chain_activities(changed, moved, sites.gap_ns[np.roll(kinds, 1), kinds])
    return changed


def _waited_for(program: Program, sites: Sites, feeds: _Feeds, uses: _Uses) -> Program:
    """The same, where moved activities are waited for by the time their results are used."""
    for lag in (0, 1):
        of_lag = (uses.target != ABSENT) & (uses.lag == lag)
        of_lag &= (uses.lag == 1) | (feeds.source < uses.target)
        source, target = feeds.source[of_lag], uses.target[of_lag]
        latency_ns = sites.event_ns[program.activity_kind[target]]
        program = add_edges(program, source, target, Via.EVENT, latency_ns, lag)
    return program
