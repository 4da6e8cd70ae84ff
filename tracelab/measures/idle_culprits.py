"""Culprit of each bubble: the host's call, operator or region, or work on the GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Record, read_only
from tracelab.base.intervals import Int64Array
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.measures.measure import Measure
from tracelab.model.frames import event_as_shown, is_engine_operator, is_sleep, is_thread_wait
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import expand_ranges, groups_of, match_names, rows_of
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites, python_frames
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, Trace

# The longest ones. The culprits of the others are in no row.
_MAX_LOCATED_BUBBLES = 20_000
# Functions that returned before a moment, looked behind for the one around it: behind more it tells
# less than the call that came late.
_MAX_SIBLINGS = 500


def idle_culprits(graph: Graph, bubbles: Bubbles) -> Int64Array:
    """int64[k], event id of what the device waited for in each piece of idle time, else ABSENT.

    Of `host_blocked` it is the blocking call, or the allocation of another thread that stalled the
    thread that launched next; of `input` the region or function that loads; of `host_busy` what
    `busy_with` finds half-way through, else the launch that came late; of `dependency` the activity
    that was waited for; of `launch` and `graph` the launch call, or the host function that the
    graph called. The edges of the file and idle of unknown cause have none.
    """
    host, timeline = graph.host, graph.host.timeline
    next_row = rows_of(timeline.event_id, bubbles.next_id)
    launch_id = np.where(next_row == ABSENT, ABSENT, timeline.launch_id[next_row])
    culprit_id = np.full(len(launch_id), ABSENT, dtype=np.int64)
    for cause in (Cause.HOST_BLOCKED, Cause.INPUT, Cause.HOST_BUSY):
        index = np.flatnonzero((bubbles.cause == cause) & (launch_id != ABSENT))
        start_ns, thread_index = bubbles.start_ns[index], timeline.trace.thread_index
        moments = start_ns + (bubbles.end_ns[index] - start_ns) // 2, thread_index[launch_id[index]]
        culprit_id[index] = _host_culprits(host, cause, *moments)
    is_launch = np.isin(bubbles.cause, (Cause.LAUNCH, Cause.GRAPH))
    is_launch |= (bubbles.cause == Cause.HOST_BUSY) & (culprit_id == ABSENT)
    culprit_id[is_launch] = launch_id[is_launch]
    is_source = (bubbles.cause == Cause.DEPENDENCY) & (next_row != ABSENT)
    source_row = graph.binding.source_row[next_row[is_source]]
    culprit_id[is_source] = np.where(source_row == ABSENT, ABSENT, timeline.event_id[source_row])
    return read_only(culprit_id)


def _host_culprits(
    host: Host, cause: Cause, times_ns: Int64Array, thread_index: NDArray[np.integer[Any]]
) -> Int64Array:
    """int64[k], event id of what threads did at some moments, int64[k], ns, that has a cause."""
    trace = host.timeline.trace
    if cause == Cause.HOST_BUSY:
        return busy_with(host.timeline, times_ns, thread_index)
    if cause == Cause.INPUT:
        return outermost_around(trace, host.loading_id, times_ns, thread_index)
    calls = outermost_around(trace, host.blocking_calls.event_id, times_ns, thread_index)
    allocations = _stalling_allocations(host, times_ns, thread_index)
    return np.where(allocations == ABSENT, calls, allocations)


def busy_with(
    timeline: Timeline, times_ns: Int64Array, thread_index: NDArray[np.integer[Any]]
) -> Int64Array:
    """int64[k], event id of the operator or else the function that the host was in, else ABSENT.

    Also one that autograd's engine called, but not the engine's own operator where there is one.
    Where the host waited for another thread, and only one was in a Python function, that function.
    The moments are int64[k], ns; each is of a thread, of operators of another one where that is in
    none.
    """
    trace = timeline.trace
    operators = trace.of_category(Category.OPERATOR)
    is_engine = match_names(trace, operators, is_engine_operator)
    busy_id = outermost_around(trace, operators, times_ns, thread_index)
    # Autograd's engine calls hooks of the program as well as operators.
    of_program = outermost_around(trace, operators[~is_engine], times_ns, thread_index)
    index = np.flatnonzero(of_program == ABSENT)
    function_id = innermost_functions(timeline, times_ns[index], thread_index[index])
    is_inside = function_id != ABSENT
    is_inside &= trace.start_ns[function_id] >= trace.start_ns[busy_id[index]]
    is_inside |= busy_id[index] == ABSENT
    busy_id[index] = np.where(is_inside, function_id, busy_id[index])
    # Nothing is recorded of a thread that waits, or that was started while the profiler ran.
    recorded = trace.of_category(Category.OPERATOR, Category.PYTHON)
    is_open = (busy_id == ABSENT) & ~np.isin(thread_index, trace.thread_index[recorded])
    is_known = np.flatnonzero(busy_id != ABSENT)
    is_open[is_known] = match_names(trace, busy_id[is_known], is_thread_wait)
    open_ = np.flatnonzero(is_open)
    other_id = _only_other_function(timeline, times_ns[open_], thread_index[open_])
    busy_id[open_] = np.where(other_id == ABSENT, busy_id[open_], other_id)
    return busy_id


def _only_other_function(
    timeline: Timeline, times_ns: Int64Array, thread_index: NDArray[np.integer[Any]]
) -> Int64Array:
    """The innermost function of the only other thread that ran Python: int64[k], or ABSENT."""
    only_id = np.full(len(times_ns), ABSENT, dtype=np.int64)
    count = np.zeros(len(times_ns), dtype=np.int64)
    for thread in np.unique(python_frames(timeline).thread_index) if len(times_ns) else ():
        function_id = innermost_functions(timeline, times_ns, np.full(len(times_ns), thread))
        is_busy = (function_id != ABSENT) & (thread_index != thread)
        is_busy[is_busy] = ~match_names(
            timeline.trace,
            function_id[is_busy],
            lambda name: is_thread_wait(name) or is_sleep(name),
        )
        count += is_busy
        only_id[is_busy] = function_id[is_busy]
    only_id[count != 1] = ABSENT
    return only_id


def _stalling_allocations(
    host: Host, times_ns: Int64Array, thread_index: NDArray[np.integer[Any]]
) -> Int64Array:
    """The allocation that stalled each thread at each moment: int64[k], else ABSENT."""
    stalled, allocation_id = host.stalled_calls, np.full(len(times_ns), ABSENT, dtype=np.int64)
    by_time = np.argsort(times_ns)
    first, last = np.searchsorted(times_ns[by_time], (stalled.start_ns, stalled.end_ns))
    for index in np.argsort(stalled.start_ns, kind="stable").tolist():  # the last one stays
        during = by_time[first[index] : last[index]]
        own = during[thread_index[during] == stalled.thread_index[index]]
        allocation_id[own] = host.blocking_calls.event_id[stalled.allocation_index[index]]
    return allocation_id


def outermost_around(
    trace: Trace,
    event_id: NDArray[np.integer[Any]],
    times_ns: Int64Array,
    thread_index: NDArray[np.integer[Any]],
) -> Int64Array:
    """The outermost of some events around each moment: of its thread, else of any: int64[k]."""
    own_id, around_id = np.full((2, len(times_ns)), ABSENT, dtype=np.int64)
    outermost_first = np.lexsort((-trace.end_ns[event_id], trace.start_ns[event_id]))
    event_id = event_id[outermost_first]
    by_time = np.argsort(times_ns, kind="stable")
    for thread, indices in reversed(list(groups_of(trace.thread_index[event_id]))):
        of_thread = event_id[indices]
        start_ns, reach_ns = (
            trace.start_ns[of_thread],
            np.maximum.accumulate(trace.end_ns[of_thread]),
        )
        outer_id = of_thread[np.concatenate(([True], start_ns[1:] >= reach_ns[:-1]))]
        bounds_ns = trace.start_ns[outer_id], trace.end_ns[outer_id]
        index, during = expand_ranges(*np.searchsorted(times_ns, bounds_ns, sorter=by_time))
        inside = by_time[during]
        # Of several threads the first one stays.
        around_id[inside] = outer_id[index]
        is_own = thread_index[inside] == thread
        own_id[inside[is_own]] = outer_id[index[is_own]]
    return np.where(own_id == ABSENT, around_id, own_id)


def innermost_functions(
    timeline: Timeline, times_ns: Int64Array, thread_index: NDArray[np.integer[Any]]
) -> Int64Array:
    """The innermost Python function of its thread around each moment: int64[k], else ABSENT."""
    frames = python_frames(timeline)
    innermost_id = np.full(len(times_ns), ABSENT, dtype=np.int64)
    for thread, indices in groups_of(thread_index):
        by_time = indices[np.argsort(times_ns[indices])]
        index, own = frames.innermost_at(thread, times_ns[by_time]), frames.entries_of(thread)
        begun = own.start - 1 + np.searchsorted(frames.start_ns[own], times_ns[by_time], "right")
        is_near = (index != ABSENT) & (begun - index < _MAX_SIBLINGS)
        innermost_id[by_time[is_near]] = frames.event_id[index[is_near]]
    return innermost_id


class CulpritMetrics(Record):
    """The idle of one device and cause with one culprit at one call site, ns.

    Attributes:
        name: the call, operator, region or activity that the device waited for.
        operator, function, file, line, waited_in: where it is in the program, of calls and
            operators; see `CallSite`.
        count: how many bubbles.
        longest_start_ns, longest_ns: the longest of them.
        event: event id of the culprit of the longest.
    """

    rank: int
    step: int | None
    device: int
    cause: str
    name: str
    operator: str | None
    function: str | None
    file: str | None
    line: int | None
    count: int
    idle_ns: int
    longest_start_ns: int
    longest_ns: int
    event: int
    waited_in: Annotated[str | None, {"added": True}] = None


def culprit_rows(
    graph: Graph,
    windows: Sequence[Window],
    bubbles: Bubbles,
    idle_culprits: Int64Array,
    lines: SourceLines,
) -> list[CulpritMetrics]:
    """Return the idle time of the first window, by device, cause, culprit and call site.

    The rows of a device stand together, the most expensive first.
    """
    timeline, window = graph.host.timeline, windows[0]
    start_ns = np.maximum(bubbles.start_ns, window.start_ns)
    length_ns = np.minimum(bubbles.end_ns, window.end_ns) - start_ns
    bubble_index = np.flatnonzero((length_ns > 0) & (idle_culprits != ABSENT))
    by_length = np.argsort(-length_ns[bubble_index], kind="stable")
    longest = bubble_index[by_length][:_MAX_LOCATED_BUBBLES]
    on_host = ~np.isin(idle_culprits[longest], timeline.event_id)
    site_of = iter(call_sites(timeline, idle_culprits[longest[on_host]], lines))
    groups: dict[tuple[int, int, str, CallSite], list[int]] = defaultdict(list)
    for index, is_call in zip(longest.tolist(), on_host.tolist(), strict=True):
        name = event_as_shown(timeline.trace.name_of(int(idle_culprits[index])))
        site = next(site_of) if is_call else NO_CALL_SITE
        device_number, cause = int(bubbles.device_number[index]), int(bubbles.cause[index])
        groups[device_number, cause, name, site].append(index)
    rows = [
        CulpritMetrics(
            rank=0,
            step=window.step,
            device=device_number,
            cause=Cause(cause).name.lower(),
            name=name,
            operator=site.operator,
            function=site.function,
            file=site.file,
            line=site.line,
            count=len(group),
            idle_ns=int(length_ns[group].sum()),
            longest_start_ns=int(start_ns[group[0]]),
            longest_ns=int(length_ns[group[0]]),
            event=int(idle_culprits[group[0]]),
            waited_in=site.waited_in,
        )
        for (device_number, cause, name, site), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (row.device, -row.idle_ns, row.longest_start_ns))


MEASURE = Measure("holders", CulpritMetrics, culprit_rows)
