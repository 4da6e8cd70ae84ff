"""What held each bubble: the host's call, operator or region, or the work that was waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.measures.bubbles import Bubbles, Cause
from tracelab.measures.measure import Measure
from tracelab.model.call_sites import NO_CALL_SITE, CallSite, call_sites
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import groups_of
from tracelab.model.source_lines import SourceLines
from tracelab.model.steps import Window
from tracelab.model.thread_states import input_regions
from tracelab.model.trace import ABSENT, Category, Trace

_MOST_LOCATED = 20_000  # bubbles, the longest: the culprit of the rest is in no row
_MOST_SIBLINGS = 500  # functions that returned before, looked over on the way out


def idle_culprits(graph: Graph, bubbles: Bubbles) -> Int64Array:
    """Per piece of idle time, the event that held it: int64[k], ABSENT where the file has none.

    Of `host_blocked` it is the blocking call, where another thread's allocation held up the thread
    that launched next that allocation; of `input` the region or function that loads; of
    `host_busy` the operator or else the Python function that the host was in half-way through, else
    the launch that came late;
    of `dependency` the activity that was waited for; of `launch` and `graph` the launch call. The
    edges of the file and idle of unknown cause have none.
    """
    timeline, blocking = graph.host.timeline, graph.host.blocking_calls
    trace = timeline.trace
    order = np.argsort(timeline.event_id)
    at = np.searchsorted(timeline.event_id[order], bubbles.next_id)
    row = order[np.minimum(at, len(order) - 1)]
    launch = np.where(bubbles.next_id == ABSENT, ABSENT, timeline.launch_id[row])
    source = np.where(bubbles.next_id == ABSENT, ABSENT, graph.awaited_row[row])
    thread = np.where(launch == ABSENT, ABSENT, trace.thread_index[launch])
    middle = bubbles.start_ns + (bubbles.end_ns - bubbles.start_ns) // 2
    held = np.full(len(launch), ABSENT, dtype=np.int64)

    def give(cause: Cause, events: NDArray[np.integer[Any]]) -> None:
        mine = bubbles.cause == cause
        held[mine] = _around(trace, events, middle[mine], thread[mine])

    give(Cause.HOST_BLOCKED, blocking.event_id)
    holder = _holder(graph.host, middle, thread)
    others = (bubbles.cause == Cause.HOST_BLOCKED) & (holder != ABSENT)
    held[others] = holder[others]
    give(Cause.INPUT, input_regions(trace))
    give(Cause.HOST_BUSY, trace.of_category(Category.OPERATOR))
    python = (bubbles.cause == Cause.HOST_BUSY) & (held == ABSENT)
    held[python] = _innermost(trace, middle[python], thread[python])
    late = np.isin(bubbles.cause, (Cause.HOST_BUSY, Cause.LAUNCH, Cause.GRAPH)) & (held == ABSENT)
    held[late] = launch[late]
    waited = (bubbles.cause == Cause.DEPENDENCY) & (source != ABSENT)
    held[waited] = timeline.event_id[source[waited]]
    return held


def _holder(host: Host, moments: Int64Array, threads: NDArray[np.integer[Any]]) -> Int64Array:
    """The allocation that held each thread up at each moment: int64[k], else ABSENT.

    Of several the one that began last.
    """
    held, holder = host.stalled_calls, np.full(len(moments), ABSENT, dtype=np.int64)
    asked_of = dict(groups_of(threads)) if len(held) else {}
    for thread, own in groups_of(held.thread_index):
        asked = asked_of.get(thread, np.zeros(0, dtype=np.intp))
        place = _last_begun(held.start_ns[own], held.end_ns[own], moments[asked], len(own))
        found = place != ABSENT
        holder[asked[found]] = host.blocking_calls.event_id[
            held.allocation_index[own[place[found]]]
        ]
    return holder


def _last_begun(
    start_ns: Int64Array, end_ns: Int64Array, moments: Int64Array, most: int
) -> NDArray[np.intp]:
    """The last of some stretches, by start, to hold each moment: intp[k], else ABSENT.

    It is looked for among the `most` last ones that had begun.
    """
    found = np.full(len(moments), ABSENT, dtype=np.intp)
    reach = np.maximum.accumulate(end_ns)
    place = np.searchsorted(start_ns, moments, side="right") - 1
    open_ = np.arange(len(moments))
    for _ in range(most):  # all that have found nothing yet step back at once
        open_ = open_[place[open_] >= 0]
        open_ = open_[reach[place[open_]] > moments[open_]]
        if not len(open_):
            break
        holds = end_ns[place[open_]] > moments[open_]
        found[open_[holds]] = place[open_[holds]]
        open_ = open_[~holds]
        place[open_] -= 1
    return found


def _around(
    trace: Trace,
    events: NDArray[np.integer[Any]],
    moments: Int64Array,
    threads: NDArray[np.integer[Any]],
) -> Int64Array:
    """The outermost of some events around each moment: of its thread, else of any: int64[k]."""
    around = np.full(len(moments), ABSENT, dtype=np.int64)
    events = events[np.lexsort((-trace.end_ns[events], trace.start_ns[events]))]
    for thread, places in groups_of(trace.thread_index[events]):
        own = events[places]
        reach = np.maximum.accumulate(trace.end_ns[own])
        outer = own[np.concatenate(([True], trace.start_ns[own][1:] >= reach[:-1]))]
        place = np.searchsorted(trace.start_ns[outer], moments, side="right") - 1
        inside = (place >= 0) & (trace.end_ns[outer[place]] > moments)
        inside &= (threads == thread) | (around == ABSENT)
        around[inside] = outer[place[inside]]
    return around


def _innermost(trace: Trace, moments: Int64Array, threads: NDArray[np.integer[Any]]) -> Int64Array:
    """The innermost Python function of its thread around each moment: int64[k], else ABSENT."""
    inner = np.full(len(moments), ABSENT, dtype=np.int64)
    events = trace.of_category(Category.PYTHON)
    events = events[np.lexsort((-trace.end_ns[events], trace.start_ns[events]))]
    of_thread = dict(groups_of(trace.thread_index[events]))
    for thread, asked in groups_of(threads):
        own = events[of_thread.get(thread, np.zeros(0, dtype=np.intp))]
        place = _last_begun(trace.start_ns[own], trace.end_ns[own], moments[asked], _MOST_SIBLINGS)
        found = place != ABSENT
        inner[asked[found]] = own[place[found]]
    return inner


@dataclass(frozen=True, slots=True)
class CulpritMetrics:
    """The idle of one device and cause that one thing at one place held, ns.

    Attributes:
        name: the call, operator, region or activity that held it.
        operator, function, file, line: where it is in the program, of things on the host.
        count: how many bubbles.
        longest_start_ns, longest_ns: the longest of them.
        event: event id of what held the longest.
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


def culprit_rows(
    graph: Graph,
    windows: Sequence[Window],
    bubbles: Bubbles,
    idle_culprits: Int64Array,
    lines: SourceLines,
) -> list[CulpritMetrics]:
    """What kept the devices idle in the first window, by device, cause, culprit and call site.

    The rows of a device stand together, the most expensive first.
    """
    timeline, window = graph.host.timeline, windows[0]
    start_ns = np.maximum(bubbles.start_ns, window.start_ns)
    length_ns = np.minimum(bubbles.end_ns, window.end_ns) - start_ns
    bubble_index = np.flatnonzero((length_ns > 0) & (idle_culprits != ABSENT))
    by_length = np.argsort(-length_ns[bubble_index], kind="stable")
    longest = bubble_index[by_length][:_MOST_LOCATED]
    on_host = ~np.isin(idle_culprits[longest], timeline.event_id)
    site_of = iter(call_sites(timeline, idle_culprits[longest[on_host]], lines))
    groups: dict[tuple[int, int, str, CallSite], list[int]] = defaultdict(list)
    for index, is_call in zip(longest.tolist(), on_host.tolist(), strict=True):
        name = timeline.trace.name_of(int(idle_culprits[index]))
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
        )
        for (device_number, cause, name, site), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (row.device, -row.idle_ns, row.longest_start_ns))


MEASURE = Measure("holders", CulpritMetrics, culprit_rows)
