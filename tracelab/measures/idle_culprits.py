"""Culprit of each bubble: the host's call, operator or region, or work on the GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tracelab.base.arrays import Arrays, BoolArray, Int64Array, IntArray, Record
from tracelab.measures.idle_causes import Bubbles, Cause, Pairs
from tracelab.measures.measure import Measure
from tracelab.model.frames import event_as_shown, is_engine_operator, is_sleep, is_thread_wait
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import first_around, groups_of, match_names, rows_of, search_ranges
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite, call_sites, python_frames
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category, Trace

# The longest ones; the culprits of others are in no row.
_MAX_LOCATED_BUBBLES = 20_000
# Functions that returned before a moment, looked behind for the one around it.
_MAX_SIBLINGS = 500


class IdleCulprits(Arrays):
    """Culprits of the pieces of idle time.

    `event_id` and `is_launch` (whether it is the late launch that the bubble ended with) are by
    piece, `launch_id` of what ended each bubble; else ABSENT.
    """

    event_id: Int64Array
    is_launch: BoolArray
    launch_id: Int64Array

    def look_up(self, pairs: Pairs) -> Int64Array:
        """Event ids of the culprits of pieces of bubbles, else ABSENT."""
        row, piece = pairs
        return np.where(self.is_launch[piece], self.launch_id[row], self.event_id[piece])

    def distinct(self, bubbles: Bubbles, is_piece: BoolArray) -> Int64Array:
        """Event ids of the culprits of chosen pieces, ascending, each once."""
        is_seen = is_piece & ~self.is_launch & (bubbles.covered() > 0)
        is_late = bubbles.sums(is_piece & self.is_launch) > 0
        return np.union1d(self.event_id[is_seen], self.launch_id[is_late])


def idle_culprits(graph: Graph, bubbles: Bubbles) -> IdleCulprits:
    """Find what the device waited for in each piece of idle time.

    That is, by cause: `host_blocked`, the blocking call, or the allocation of another thread that
    stalled the one that launched next; `input`, the region or function that loads; `host_busy`,
    what `busy_with` finds half-way through, else the late launch; `dependency`, the activity waited
    for; `launch` and `graph`, the launch call, or the host function that the graph called. Others
    have none.
    """
    host, timeline = graph.host, graph.host.timeline
    next_row = rows_of(timeline.event_id, bubbles.next_id)
    launch_of_bubble = np.where(next_row == ABSENT, ABSENT, timeline.launch_id[next_row])
    row = bubbles.bubble_of
    launch_id = launch_of_bubble[row]
    culprit_id = np.full(len(launch_id), ABSENT, dtype=np.int64)
    for cause in (Cause.HOST_BLOCKED, Cause.INPUT, Cause.HOST_BUSY):
        index = np.flatnonzero((bubbles.cause == cause) & (launch_id != ABSENT))
        start_ns, thread_index = bubbles.start_ns[index], timeline.trace.thread_index
        moments = start_ns + (bubbles.end_ns[index] - start_ns) // 2, thread_index[launch_id[index]]
        culprit_id[index] = _host_culprits(host, cause, *moments)
    is_launch = np.isin(bubbles.cause, (Cause.LAUNCH, Cause.GRAPH))
    is_launch |= (bubbles.cause == Cause.HOST_BUSY) & (culprit_id == ABSENT)
    is_source = bubbles.cause == Cause.DEPENDENCY
    source_row = graph.binding.source_row[next_row[row[is_source]]]
    culprit_id[is_source] = np.where(source_row == ABSENT, ABSENT, timeline.event_id[source_row])
    return IdleCulprits(culprit_id, is_launch, launch_of_bubble)


def _host_culprits(
    host: Host, cause: Cause, times_ns: Int64Array, thread_index: IntArray
) -> Int64Array:
    trace = host.timeline.trace
    if cause == Cause.HOST_BUSY:
        return busy_with(host.timeline, times_ns, thread_index)
    if cause == Cause.INPUT:
        return outermost_around(trace, host.loading_id, times_ns, thread_index)
    calls = outermost_around(trace, host.blocking_calls.event_id, times_ns, thread_index)
    allocations = _stalling_allocations(host, times_ns, thread_index)
    return np.where(allocations == ABSENT, calls, allocations)


def busy_with(timeline: Timeline, times_ns: Int64Array, thread_index: IntArray) -> Int64Array:
    """Event id of the operator or else the function that the host was in at moments, else ABSENT.

    That is one of the moment's thread, or a hook of autograd's engine, else an operator of another
    thread; where the host waited and only one other was in a Python function, that.
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
    timeline: Timeline, times_ns: Int64Array, thread_index: IntArray
) -> Int64Array:
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


def _stalling_allocations(host: Host, times_ns: Int64Array, thread_index: IntArray) -> Int64Array:
    stalled, allocation_id = host.stalled_calls, np.full(len(times_ns), ABSENT, dtype=np.int64)
    by_time = np.argsort(times_ns)
    first, last = np.searchsorted(times_ns[by_time], (stalled.start_ns, stalled.end_ns))
    for index in np.argsort(stalled.start_ns, kind="stable").tolist():  # the last one stays
        during = by_time[first[index] : last[index]]
        own = during[thread_index[during] == stalled.thread_index[index]]
        allocation_id[own] = host.blocking_calls.event_id[stalled.allocation_index[index]]
    return allocation_id


def outermost_around(
    trace: Trace, event_id: IntArray, times_ns: Int64Array, thread_index: IntArray
) -> Int64Array:
    """The outermost of some events around each moment: of its thread, else of any."""
    thread, start_ns, end_ns = (
        column[event_id] for column in (trace.thread_index, trace.start_ns, trace.end_ns)
    )
    order = np.lexsort((-end_ns, start_ns, thread))
    thread, start_ns, end_ns = thread[order], start_ns[order], end_ns[order]
    begins = np.diff(thread, prepend=ABSENT) != 0
    ends_of_threads = np.split(end_ns, np.flatnonzero(begins))
    reach_ns = np.concatenate([np.maximum.accumulate(ends) for ends in ends_of_threads])
    is_outer = begins | (start_ns >= np.roll(reach_ns, 1))
    # Those of one thread do not overlap.
    outer_id = np.append(event_id[order[is_outer]], ABSENT).astype(np.int64)
    thread, start_ns, end_ns = thread[is_outer], start_ns[is_outer], end_ns[is_outer]
    wanted = thread_index.astype(thread.dtype)
    first, end = np.searchsorted(thread, wanted), np.searchsorted(thread, wanted, "right")
    index = search_ranges(start_ns, first, end, times_ns, "right") - 1
    is_own = (index >= first) & (times_ns < np.append(end_ns, 0)[index])
    index[~is_own] = first_around(start_ns, end_ns, times_ns[~is_own])
    return outer_id[index]


def innermost_functions(
    timeline: Timeline, times_ns: Int64Array, thread_index: IntArray
) -> Int64Array:
    """The innermost Python function of its thread around each moment, else ABSENT."""
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
    idle_culprits: IdleCulprits,
    lines: SourceLines,
) -> list[CulpritMetrics]:
    """Return the idle time of the first window, by device, cause, culprit and call site.

    The rows of a device stand together, the most expensive first.
    """
    timeline, window = graph.host.timeline, windows[0]
    start_ns = np.maximum(bubbles.start_ns, window.start_ns)
    length_ns = np.minimum(bubbles.end_ns, window.end_ns) - start_ns
    has_culprit = idle_culprits.is_launch | (idle_culprits.event_id != ABSENT)
    selection = bubbles.select(has_culprit & (length_ns > 0))
    row, piece = longest = bubbles.longest(selection, length_ns, _MAX_LOCATED_BUBBLES)
    start_ns, length_ns, culprit_id = (
        start_ns[piece],
        length_ns[piece],
        idle_culprits.look_up(longest),
    )
    on_host = ~np.isin(culprit_id, timeline.event_id)
    site_of = iter(call_sites(timeline, culprit_id[on_host], lines))
    groups: dict[tuple[int, int, str, CallSite], list[int]] = defaultdict(list)
    columns = bubbles.device_number[row], bubbles.cause[piece], culprit_id, on_host
    for index, (device_number, cause, event, is_call) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        name = event_as_shown(timeline.trace.name_of(event))
        site = next(site_of) if is_call else NO_CALL_SITE
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
            event=int(culprit_id[group[0]]),
            waited_in=site.waited_in,
        )
        for (device_number, cause, name, site), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (row.device, -row.idle_ns, row.longest_start_ns))


MEASURE = Measure("holders", CulpritMetrics, culprit_rows)
