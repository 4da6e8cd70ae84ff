"""Host calls that blocked: where in the program, and how much GPU idle each one caused.

A blocking call costs the time in which a device was idle while it blocked. From its return until
work launched after it reaches the device, it costs the idle time as far as it delayed the host: by
the time in which it blocked beside a busy device.

Of several calls before one bubble, a moment in which they block is that of the first of them; idle
time after them is that of the last, then of the one before it. A call costs nothing where the
thread that launched next was busy when it began. An allocation that stalled another thread's call
counts for that thread, too. The launch of a blocking copy blocks until the copy starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from tracelab.base.arrays import (
    Arrays,
    IndexArray,
    Int32Array,
    Int64Array,
    Record,
    concatenated,
    rows_at,
)
from tracelab.base.intervals import Intervals, measure_within, overlapping_pairs, union
from tracelab.measures.idle_causes import Gaps, device_gaps, inside_replays
from tracelab.measures.measure import Measure, constrained, summed
from tracelab.model.blocking_calls import Blocking, BlockingCalls
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.host import Host, HostStalls, host_stalls, waits_for
from tracelab.model.lookup import expand_ranges, groups_of, reach_in_group, rows_of
from tracelab.model.program.call_sites import CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Trace

_MAX_PAIRS = 2**18


class AttributedIdle(Arrays):
    """Stretches of idle time ([c]) by the blocking call that they are attributed to.

    They are disjoint on each device, and never empty.
    """

    call_index: IndexArray
    device_number: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array

    @property
    def length_ns(self) -> Int64Array:
        """int64[c], ns."""
        return self.end_ns - self.start_ns


def attributed_idle(host: Host) -> AttributedIdle:
    """Find the idle time of each device that blocking calls caused."""
    stalls = host_stalls(host)
    # Without a stall no device has any: then one says so.
    devices = host.timeline.device_numbers[: None if len(stalls.call_index) else 1]
    return concatenated([_device_idle(host, stalls, device) for device in devices])


class _Delays(Arrays):
    """Delays of the launch that ends a gap; by gap and start, disjoint in each gap, never empty."""

    gap_index: IndexArray
    call_index: IndexArray
    start_ns: Int64Array
    end_ns: Int64Array


def _device_idle(host: Host, stalls: HostStalls, device: int) -> AttributedIdle:
    idle = device_gaps(host, device)
    delays = _disjoint(_delays(host, stalls, idle, device))
    gap_start_ns, gap_end_ns = idle.start_ns[delays.gap_index], idle.end_ns[delays.gap_index]
    start_ns = np.maximum(delays.start_ns, gap_start_ns)
    end_ns = np.minimum(delays.end_ns, gap_end_ns)
    during = np.flatnonzero(end_ns > start_ns)
    start_ns, end_ns = start_ns[during], end_ns[during]
    # Before the gap it held the host up as well, while the device was busy: no moment counts twice.
    until_ns = np.maximum(delays.start_ns, np.minimum(delays.end_ns, gap_start_ns))
    owed_ns = until_ns - delays.start_ns
    owed_ns -= measure_within(union(start_ns, end_ns), delays.start_ns, until_ns)
    owing, owed_start_ns, owed_end_ns = _owed(idle, delays, owed_ns)
    call_index = delays.call_index[np.concatenate((during, owing))]
    return AttributedIdle(
        call_index=call_index,
        device_number=np.full(len(call_index), device, dtype=np.int32),
        start_ns=np.concatenate((start_ns, owed_start_ns)),
        end_ns=np.concatenate((end_ns, owed_end_ns)),
    )


def _owed(
    idle: Gaps, delays: _Delays, owed_ns: Int64Array
) -> tuple[IndexArray, Int64Array, Int64Array]:
    """Attribute idle time after delays until each delay is used up, the last one first."""
    gap_index = delays.gap_index
    gap_start_ns, gap_end_ns = idle.start_ns[gap_index], idle.end_ns[gap_index]
    changes = gap_index[1:] != gap_index[:-1]
    next_start_ns = np.where(np.append(changes, True), gap_end_ns, np.roll(delays.start_ns, -1))
    start_ns = np.clip(delays.end_ns, gap_start_ns, gap_end_ns)
    length_ns = np.clip(next_start_ns, start_ns, gap_end_ns) - start_ns
    place_ns = np.cumsum(length_ns) - length_ns
    first = np.flatnonzero(np.append(True, changes)[: len(gap_index)])
    count = np.diff(np.append(first, len(gap_index)))
    group = np.repeat(np.arange(len(first)), count)
    last_first = (first + first + count - 1)[group] - np.arange(len(gap_index))
    owed_ns = owed_ns[last_first]
    owed_before_ns = np.cumsum(owed_ns) - owed_ns
    owed_place_ns = (place_ns - owed_before_ns)[first][group] + owed_before_ns
    place_end_ns = (place_ns + length_ns)[first + count - 1][group]
    owed_end_ns = np.minimum(owed_place_ns + owed_ns, place_end_ns)
    idle_index = np.flatnonzero(length_ns > 0)
    owing_index = np.flatnonzero(owed_end_ns > owed_place_ns)
    given, by = overlapping_pairs(
        Intervals(place_ns[idle_index], (place_ns + length_ns)[idle_index]),
        Intervals(owed_place_ns[owing_index], owed_end_ns[owing_index]),
    )
    given, by = idle_index[given], owing_index[by]
    offset_ns = start_ns[given] - place_ns[given]
    return (
        last_first[by],
        offset_ns + np.maximum(place_ns[given], owed_place_ns[by]),
        offset_ns + np.minimum((place_ns + length_ns)[given], owed_end_ns[by]),
    )


def _disjoint(delays: _Delays) -> _Delays:
    """The same delays by gap and start: a moment of several in one gap is that of the first."""
    order = np.lexsort((delays.call_index, delays.start_ns, delays.gap_index))
    ordered = rows_at(delays, order)
    gap_index, start_ns = ordered.gap_index, ordered.start_ns.copy()
    reach_ns = reach_in_group(gap_index, ordered.end_ns)[:-1]
    is_followed = gap_index[1:] == gap_index[:-1]
    start_ns[1:] = np.where(is_followed, np.maximum(start_ns[1:], reach_ns), start_ns[1:])
    is_left = ordered.end_ns > start_ns
    return rows_at(replace(ordered, start_ns=start_ns), is_left)


def _delays(host: Host, stalls: HostStalls, idle: Gaps, device: int) -> _Delays:
    """The host stalls that delayed the launch which ends a gap, from the launch before it on."""
    timeline, calls = host.timeline, host.blocking_calls
    is_launched = timeline.select(device=device) & (timeline.launch_id != ABSENT)
    launched_ns = np.sort(host.launched_ns[timeline.launch_id[is_launched]])
    launched_gaps = np.flatnonzero((idle.launch_id != ABSENT) & ~inside_replays(timeline, idle))
    next_ns = host.launched_ns[idle.launch_id[launched_gaps]]
    launched_gaps = launched_gaps[by_launch := np.argsort(next_ns, kind="stable")]
    next_ns = next_ns[by_launch]
    previous_ns = np.concatenate(([ABSENT], launched_ns))[np.searchsorted(launched_ns, next_ns)]
    by_thread = np.argsort(stalls.thread_index, kind="stable")
    first = np.searchsorted(next_ns, stalls.start_ns[by_thread], side="right")
    end = np.searchsorted(previous_ns, stalls.end_ns[by_thread])
    # Some at a time: of thousands side by side, hardly any is waited for.
    turn = np.cumsum(np.maximum(end - first, 0)) // _MAX_PAIRS
    delays = []
    for _, of_turn in groups_of(turn):
        range_index, gap = expand_ranges(first[of_turn], end[of_turn])
        stall_index = by_thread[of_turn[range_index]]
        launching_thread = timeline.trace.thread_index[idle.launch_id[launched_gaps[gap]]]
        is_awaited = waits_for(
            host, launching_thread, stalls.thread_index[stall_index], stalls.start_ns[stall_index]
        )
        gap, stall_index = gap[is_awaited], stall_index[is_awaited]
        delays.append(
            _Delays(
                launched_gaps[gap],
                stalls.call_index[stall_index],
                np.maximum(stalls.start_ns[stall_index], previous_ns[gap]),
                np.minimum(stalls.end_ns[stall_index], next_ns[gap]),
            )
        )
    # The launch of a blocking copy is a blocking call itself, and stands before its own gap.
    blocking_gaps = np.flatnonzero(np.isin(idle.launch_id, calls.event_id))
    by_event = np.argsort(calls.event_id)
    own_index = by_event[
        np.searchsorted(calls.event_id, idle.launch_id[blocking_gaps], sorter=by_event)
    ]
    own = _Delays(blocking_gaps, own_index, calls.start_ns[own_index], idle.end_ns[blocking_gaps])
    return concatenated([*delays, own])


class BlockingCallCosts(Arrays):
    """The blocking calls, by start, and what they cost; idle time summed over devices.

    `step_index` is the first of `Timeline.steps` whose host annotation holds the call, `awaited_id`
    the event id of the last activity that it waited for; else ABSENT.
    """

    calls: BlockingCalls
    step_index: Int32Array
    blocked_ns: Int64Array
    caused_idle_ns: Int64Array
    idle_after_ns: Int64Array
    attributed_idle: AttributedIdle
    awaited_id: Int64Array
    call_sites: tuple[CallSite, ...]


def blocking_calls(graph: Graph, lines: SourceLines | None = None) -> BlockingCallCosts:
    """Measure the blocking calls of a file."""
    host, timeline = graph.host, graph.host.timeline
    calls = host.blocking_calls
    idle = attributed_idle(host)
    after_start_ns = np.maximum(idle.start_ns, calls.end_ns[idle.call_index])
    after_ns = np.maximum(0, idle.end_ns - after_start_ns)
    awaited_row = rows_awaited_by_calls(graph, with_staged=True)[calls.event_id]
    return BlockingCallCosts(
        calls=calls,
        step_index=_step_index(timeline, calls),
        blocked_ns=calls.end_ns - calls.start_ns,
        caused_idle_ns=summed(idle.call_index, idle.length_ns, len(calls)),
        idle_after_ns=summed(idle.call_index, after_ns, len(calls)),
        attributed_idle=idle,
        awaited_id=np.where(awaited_row == ABSENT, ABSENT, timeline.event_id[awaited_row]),
        call_sites=call_sites(timeline, calls.event_id, lines),
    )


def _step_index(timeline: Timeline, calls: BlockingCalls) -> Int32Array:
    step_index = np.full(len(calls), ABSENT, dtype=np.int32)
    for index, step in enumerate(timeline.steps):
        start_ns = timeline.trace.start_ns[step.event_id]
        end_ns = timeline.trace.end_ns[step.event_id]
        first, last = np.searchsorted(calls.start_ns, (start_ns, end_ns))
        inside = step_index[first:last]
        inside[inside == ABSENT] = index
    return step_index


def rows_awaited_by_calls(graph: Graph, *, with_staged: bool) -> Int64Array:
    """Per event ([n]) the row that it waited for, if it is a blocking call, else ABSENT.

    A copy whose memory was only staged may begin when its call has returned.
    """
    timeline, calls = graph.host.timeline, graph.host.blocking_calls
    trace, launch_id = timeline.trace, timeline.launch_id
    sync = np.flatnonzero(graph.kind == EdgeKind.SYNC)
    # The last of a call's assignments stays: what ended last, of several the first edge.
    sync = sync[np.lexsort((-sync, trace.end_ns[graph.source_id[sync]]))]
    awaited_row = np.full(len(trace), ABSENT, dtype=np.int64)
    awaited_row[graph.target_id[sync]] = rows_of(timeline.event_id, graph.source_id[sync])
    # A blocking copy waits for what it launches itself.
    is_copy = np.isin(launch_id, calls.event_id[calls.kind == Blocking.COPY])
    if not with_staged:
        is_copy &= timeline.start_ns < trace.end_ns[launch_id]
    awaited_row[launch_id[is_copy]] = np.flatnonzero(is_copy)
    return awaited_row


class BlockingCallMetrics(Record):
    """The blocking calls of one API at one call site, ns.

    What a call costs often falls into the next step. In the rows of a step `count` and `blocked_ns`
    are of the calls that the step made (none, where a call before it costs idle time in it), and
    `caused_idle_ns` is the idle time in the step, whichever step made the call.

    Attributes:
        idle_after_ns: the part of the caused idle after the calls had returned.
        waited_for: the activity for which they blocked longest.
    """

    rank: int
    step: int | None
    api: str
    kind: Annotated[str, constrained(enum=[kind.name.lower() for kind in Blocking])]
    count: int
    blocked_ns: int
    caused_idle_ns: int
    idle_after_ns: int
    waited_for: str | None
    operator: str | None
    annotation: str | None
    function: str | None
    file: str | None
    line: int | None


def blocking_call_rows(
    graph: Graph, windows: Sequence[Window], blocking_calls: BlockingCallCosts
) -> Iterator[BlockingCallMetrics]:
    """The blocking calls of each window by API and call site, the most expensive first."""
    timeline = graph.host.timeline
    trace, calls = timeline.trace, blocking_calls.calls
    names = [trace.name_of(event_id) for event_id in calls.event_id.tolist()]
    keys = list(zip(names, calls.kind.tolist(), blocking_calls.call_sites, strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    row_of_call = np.array([numbers[key] for key in keys], dtype=np.intp)
    distinct = list(numbers)
    index_of_step = {step.number: index for index, step in enumerate(timeline.steps)}
    made_in_step = dict(groups_of(blocking_calls.step_index))
    none_made = np.zeros(0, dtype=np.intp)
    for window, (idle_index, idle_ns, after_ns) in zip(
        windows, _idle_within(blocking_calls, windows), strict=True
    ):
        made_index = (
            np.arange(len(calls))
            if window.step is None
            else made_in_step.get(index_of_step[window.step], none_made)
        )
        made, causing = row_of_call[made_index], row_of_call[idle_index]
        count = np.bincount(made, minlength=len(numbers))
        blocked_ns = summed(made, blocking_calls.blocked_ns[made_index], len(numbers))
        caused_ns, later_ns = (
            summed(causing, values, len(numbers)) for values in (idle_ns, after_ns)
        )
        call_index = np.concatenate((made_index, idle_index))
        row, first = np.unique(row_of_call[call_index], return_index=True)
        rows = (
            BlockingCallMetrics(
                rank=0,
                step=window.step,
                api=api,
                kind=Blocking(kind).name.lower(),
                count=int(count[number]),
                blocked_ns=int(blocked_ns[number]),
                caused_idle_ns=int(caused_ns[number]),
                idle_after_ns=int(later_ns[number]),
                waited_for=_longest_awaited(
                    trace, blocking_calls, np.unique(call_index[row_of_call[call_index] == number])
                ),
                operator=site.operator,
                annotation=site.annotation,
                function=site.function,
                file=site.file,
                line=site.line,
            )
            for number in row[np.argsort(first)].tolist()
            for api, kind, site in [distinct[number]]
        )
        yield from sorted(rows, key=lambda row: (-row.caused_idle_ns, -row.blocked_ns, row.api))


def _idle_within(
    costs: BlockingCallCosts, windows: Sequence[Window]
) -> Iterator[tuple[IndexArray, Int64Array, Int64Array]]:
    idle = costs.attributed_idle
    by_start = np.argsort(idle.start_ns, kind="stable")
    starts_ns, reach_ns = idle.start_ns[by_start], np.maximum.accumulate(idle.end_ns[by_start])
    for window in windows:
        first = np.searchsorted(reach_ns, window.start_ns, side="right")
        last = np.searchsorted(starts_ns, window.end_ns)
        index = by_start[first:last]
        index = index[idle.end_ns[index] > window.start_ns]
        call_index = idle.call_index[index]
        start_ns = np.maximum(idle.start_ns[index], window.start_ns)
        end_ns = np.minimum(idle.end_ns[index], window.end_ns)
        after_start_ns = np.maximum(start_ns, costs.calls.end_ns[call_index])
        yield call_index, end_ns - start_ns, np.maximum(0, end_ns - after_start_ns)


def _longest_awaited(trace: Trace, costs: BlockingCallCosts, calls: IndexArray) -> str | None:
    blocked_ns: Counter[int] = Counter()
    for call_index in calls[costs.awaited_id[calls] != ABSENT].tolist():
        name_index = int(trace.name_index[costs.awaited_id[call_index]])
        blocked_ns[name_index] += int(costs.blocked_ns[call_index])
    if not blocked_ns:
        return None
    return trace.strings[max(blocked_ns, key=lambda name_index: blocked_ns[name_index])]


MEASURE = Measure("syncs", BlockingCallMetrics, blocking_call_rows)
