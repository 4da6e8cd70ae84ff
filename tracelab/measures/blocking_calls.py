"""Which host calls blocked, where in the program, and how much GPU idle each one caused.

A blocking call costs nothing while the GPU has work. Its price is the time in which a device was
idle while the call blocked, and from its return until work launched after it reached the device.
Where several calls stand in one bubble, each pays from its own start to the start of the next. A
call costs nothing where the thread that launched next was at work of its own when it began. An
allocation that held up another thread's call stands for that thread, too, from when both had begun
until that call returned, as if the thread had made it itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.measures.bubbles import Gaps, device_gaps
from tracelab.measures.host_stalls import host_stalls, waits_for
from tracelab.measures.measure import Measure, constrained
from tracelab.model.blocking_calls import Blocking, BlockingCalls
from tracelab.model.call_sites import CallSite, call_sites
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.host import Host
from tracelab.model.lookup import expand_ranges
from tracelab.model.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT, Trace


@dataclass(frozen=True, slots=True, eq=False)
class AttributedIdle:
    """Which stretches of idle time which call caused; disjoint on each device.

    Attributes:
        call: intp[c], index into the blocking calls.
        device: int32[c].
        start_ns, end_ns: int64[c], ns, never empty.
    """

    call_index: NDArray[np.intp]
    device_number: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class BlockingCallCosts:
    """The blocking calls, by start, and their price.

    Attributes:
        calls: the calls.
        step: int32[k], index into `Timeline.steps` of the step whose host annotation holds the
            call, else ABSENT.
        blocked_ns: int64[k], ns.
        caused_idle_ns: int64[k], ns, summed over devices.
        idle_after_ns: int64[k], ns, the part of it after the call had returned.
        charges: the stretches that make it up.
        awaited: int64[k], event id of the activity that each call waited for; of several the one
            that ended last, ABSENT if the file does not say.
        places: where each call was made.
    """

    calls: BlockingCalls
    step_index: NDArray[np.int32]
    blocked_ns: Int64Array
    caused_idle_ns: Int64Array
    idle_after_ns: Int64Array
    attributed_idle: AttributedIdle
    awaited_id: Int64Array
    call_sites: tuple[CallSite, ...]


def blocking_calls(graph: Graph, lines: SourceLines | None = None) -> BlockingCallCosts:
    """Measure the blocking calls of a file; only where `lines` can look is their line named."""
    host, timeline = graph.host, graph.host.timeline
    calls = host.blocking_calls
    step = np.full(len(calls), ABSENT, dtype=np.int32)
    for index, item in enumerate(timeline.steps):
        start, end = timeline.trace.start_ns[item.event_id], timeline.trace.end_ns[item.event_id]
        first, last = np.searchsorted(calls.start_ns, (start, end))
        inside = step[first:last]
        inside[inside == ABSENT] = index
    charged = [np.zeros((0, 4), dtype=np.int64)]
    if len(calls):
        charged += [_charge(host, x, device_gaps(host, x)) for x in timeline.device_numbers]
    columns = np.concatenate(charged)
    caused = np.zeros(len(calls), dtype=np.int64)
    np.add.at(caused, columns[:, 0], columns[:, 3] - columns[:, 2])
    after = np.zeros(len(calls), dtype=np.int64)
    begun = np.maximum(columns[:, 2], calls.end_ns[columns[:, 0]])
    np.add.at(after, columns[:, 0], np.maximum(0, columns[:, 3] - begun))
    return BlockingCallCosts(
        calls=calls,
        step_index=step,
        blocked_ns=calls.end_ns - calls.start_ns,
        caused_idle_ns=caused,
        idle_after_ns=after,
        attributed_idle=AttributedIdle(
            columns[:, 0].astype(np.intp),
            columns[:, 1].astype(np.int32),
            columns[:, 2],
            columns[:, 3],
        ),
        awaited_id=_awaited(graph),
        call_sites=call_sites(timeline, calls.event_id, lines),
    )


def _awaited(graph: Graph) -> Int64Array:
    """Per blocking call the last activity that it waited for, else ABSENT."""
    trace, calls = graph.host.timeline.trace, graph.host.blocking_calls
    launched = np.isin(graph.source_id, calls.event_id) & (graph.kind == EdgeKind.LAUNCH)
    waited = np.isin(graph.target_id, calls.event_id) & (graph.kind == EdgeKind.SYNC)
    # A blocking copy waits for the copy that it launches.
    call = np.concatenate((graph.source_id[launched], graph.target_id[waited]))
    activity = np.concatenate((graph.target_id[launched], graph.source_id[waited]))
    order = np.argsort(trace.end_ns[activity], kind="stable")
    last = dict(zip(call[order].tolist(), activity[order].tolist(), strict=True))
    return np.array([last.get(x, ABSENT) for x in calls.event_id.tolist()], dtype=np.int64)


def _charge(host: Host, device: int, idle: Gaps) -> Int64Array:
    """The idle of one device that calls caused: int64[c, 4]: call, device, start and end."""
    timeline, calls, halts = host.timeline, host.blocking_calls, host_stalls(host)
    launched = timeline.select(device=device) & (timeline.launch_id != ABSENT)
    launch_ns = np.sort(host.launched_ns[timeline.launch_id[launched]])
    # A call stands before a gap if no work for the device was launched between the two. Of one
    # thread's calls, in order and none inside another, those are neighbours.
    known = np.flatnonzero(idle.launch_id != ABSENT)
    called_ns = host.launched_ns[idle.launch_id[known]]
    previous_ns = np.concatenate(([ABSENT], launch_ns))[np.searchsorted(launch_ns, called_ns)]
    gaps, owners = [], []
    for own in halts.groups:
        first = np.searchsorted(halts.end_ns[own], previous_ns, side="right")
        number, place = expand_ranges(first, np.searchsorted(halts.start_ns[own], called_ns))
        gaps.append(known[number])
        owners.append(own[place])
    gap, owner = np.concatenate(gaps), np.concatenate(owners)
    thread = timeline.trace.thread_index[idle.launch_id[gap]]
    waits = waits_for(host, thread, halts.thread_index[owner], halts.start_ns[owner])
    # The launch of a blocking copy is a blocking call itself, and stands before its own gap.
    blocking = np.flatnonzero(np.isin(idle.launch_id, calls.event_id))
    by_event = np.argsort(calls.event_id)
    launch = by_event[np.searchsorted(calls.event_id, idle.launch_id[blocking], sorter=by_event)]
    gap, owner = np.append(gap[waits], blocking), np.append(owner[waits], launch)
    order = np.lexsort((owner, halts.start_ns[owner], gap))
    gap, owner = gap[order], owner[order]
    since = halts.start_ns[owner]
    until = idle.end_ns[gap]
    followed = np.flatnonzero(gap[1:] == gap[:-1])
    until[followed] = since[followed + 1]
    begun, ended = np.maximum(since, idle.start_ns[gap]), np.minimum(until, idle.end_ns[gap])
    paid = ended > begun
    call = halts.call_index[owner[paid]]
    return np.stack((call, np.full(len(call), device), begun[paid], ended[paid]), axis=1)


@dataclass(frozen=True, slots=True)
class BlockingCallMetrics:
    """The blocking calls of one API at one place, ns.

    Attributes:
        idle_after_ns: the part of the caused idle after the calls had returned.
        waited_for: the activity for which they blocked longest.
    """

    rank: int
    step: int | None
    api: str
    kind: str = field(metadata=constrained(enum=[kind.name.lower() for kind in Blocking]))
    count: int = field(metadata=constrained(minimum=1))
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
    numbers = [step.number for step in timeline.steps]
    groups: dict[int | None, dict[tuple[str, Blocking, CallSite], list[int]]] = defaultdict(dict)
    for call_index, event_id in enumerate(calls.event_id.tolist()):
        step_index = int(blocking_calls.step_index[call_index])
        kind = Blocking(int(calls.kind[call_index]))
        key = (trace.name_of(event_id), kind, blocking_calls.call_sites[call_index])
        for step in (None, numbers[step_index]) if step_index != ABSENT else (None,):
            groups[step].setdefault(key, []).append(call_index)
    for window in windows:
        rows = (
            BlockingCallMetrics(
                rank=0,
                step=window.step,
                api=api,
                kind=kind.name.lower(),
                count=len(group),
                blocked_ns=int(blocking_calls.blocked_ns[group].sum()),
                caused_idle_ns=int(blocking_calls.caused_idle_ns[group].sum()),
                idle_after_ns=int(blocking_calls.idle_after_ns[group].sum()),
                waited_for=_longest_awaited(trace, blocking_calls, group),
                operator=site.operator,
                annotation=site.annotation,
                function=site.function,
                file=site.file,
                line=site.line,
            )
            for (api, kind, site), group in groups[window.step].items()
        )
        yield from sorted(rows, key=lambda row: (-row.caused_idle_ns, -row.blocked_ns, row.api))


def _longest_awaited(trace: Trace, costs: BlockingCallCosts, group: list[int]) -> str | None:
    """The name of the activity for which these calls blocked longest; None if none is known."""
    blocked_ns: Counter[int] = Counter()
    for call_index in group:
        if costs.awaited_id[call_index] != ABSENT:
            name_index = int(trace.name_index[costs.awaited_id[call_index]])
            blocked_ns[name_index] += int(costs.blocked_ns[call_index])
    if not blocked_ns:
        return None
    return trace.strings[max(blocked_ns, key=lambda name_index: blocked_ns[name_index])]


MEASURE = Measure("syncs", BlockingCallMetrics, blocking_call_rows)
