"""What held each bubble: the host's call, operator or region, or the work that was waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.measures.bubbles import Bubbles, Cause
from tracelab.model.graph import Graph
from tracelab.model.host import Host
from tracelab.model.lookup import groups_of
from tracelab.model.thread_states import input_regions
from tracelab.model.trace import ABSENT, Category, Trace

_MOST_SIBLINGS = 500  # functions that returned before, looked over on the way out


def idle_culprits(graph: Graph, found: Bubbles) -> Int64Array:
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
    at = np.searchsorted(timeline.event_id[order], found.next_id)
    row = order[np.minimum(at, len(order) - 1)]
    launch = np.where(found.next_id == ABSENT, ABSENT, timeline.launch_id[row])
    source = np.where(found.next_id == ABSENT, ABSENT, graph.awaited_row[row])
    thread = np.where(launch == ABSENT, ABSENT, trace.thread_index[launch])
    middle = found.start_ns + (found.end_ns - found.start_ns) // 2
    held = np.full(len(launch), ABSENT, dtype=np.int64)

    def give(cause: Cause, events: NDArray[np.integer[Any]]) -> None:
        mine = found.cause == cause
        held[mine] = _around(trace, events, middle[mine], thread[mine])

    give(Cause.HOST_BLOCKED, blocking.event_id)
    holder = _holder(graph.host, middle, thread)
    others = (found.cause == Cause.HOST_BLOCKED) & (holder != ABSENT)
    held[others] = holder[others]
    give(Cause.INPUT, input_regions(trace))
    give(Cause.HOST_BUSY, trace.of_category(Category.OPERATOR))
    python = (found.cause == Cause.HOST_BUSY) & (held == ABSENT)
    held[python] = _innermost(trace, middle[python], thread[python])
    late = np.isin(found.cause, (Cause.HOST_BUSY, Cause.LAUNCH, Cause.GRAPH)) & (held == ABSENT)
    held[late] = launch[late]
    waited = (found.cause == Cause.DEPENDENCY) & (source != ABSENT)
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
