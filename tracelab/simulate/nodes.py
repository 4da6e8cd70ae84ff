"""Nodes of a recorded program before they are ordered, and the edges between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.model.host import Host
from tracelab.model.nesting import is_nested
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import Via

# A thread that waits for another one records nothing meanwhile. Between two operators of a thread
# that works pass up to some 20 us.
_ASLEEP_NS = 20_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Calls(Frozen):
    """The outermost calls that launch or block, by thread and begin.

    Attributes:
        event_id: int64[c].
        index_of: int64[n], per event of the trace the call that it is or lies in, else ABSENT.
        thread_index: int32[c], index into `Trace.threads`.
        begin_ns, end_ns: int64[c], ns.
        blocking: int8[c], a `Blocking`, ABSENT for calls that do not block.

    Example row: ``(event_id=40, thread_index=0, begin_ns=100, end_ns=400, blocking=ABSENT)``.
    """

    event_id: Int64Array
    index_of: Int64Array
    thread_index: NDArray[np.int32]
    begin_ns: Int64Array
    end_ns: Int64Array
    blocking: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.event_id)


def find_calls(host: Host) -> Calls:
    """The calls of the threads that launch work."""
    trace, launch_id = host.timeline.trace, host.timeline.launch_id
    blocking_calls = host.blocking_calls
    event_id = np.union1d(launch_id[launch_id != ABSENT], blocking_calls.event_id)
    thread_index = trace.thread_index[event_id]
    event_id = event_id[np.isin(thread_index, list(host.launching_threads))]
    event_id = event_id[
        np.lexsort(
            (-trace.end_ns[event_id], trace.start_ns[event_id], trace.thread_index[event_id])
        )
    ]
    is_outermost = ~is_nested(trace, event_id)
    index_of = np.full(len(trace), ABSENT, dtype=np.int64)
    index_of[event_id] = np.cumsum(is_outermost) - 1
    blocking = np.full(int(is_outermost.sum()), ABSENT, dtype=np.int8)
    call_index = index_of[blocking_calls.event_id]
    blocking[call_index[call_index != ABSENT]] = blocking_calls.kind[call_index != ABSENT]
    event_id = event_id[is_outermost].astype(np.int64)
    return Calls(
        event_id=event_id,
        index_of=index_of,
        thread_index=trace.thread_index[event_id],
        begin_ns=trace.start_ns[event_id],
        end_ns=trace.end_ns[event_id],
        blocking=blocking,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HandOvers(Frozen):
    """Hand-overs: a thread continues because another one stopped, as autograd's after the main one.

    Attributes:
        call_index: int64[h], the first call of the thread that goes on.
        source_index: int64[h], the last call of the other thread before that.
        latency_ns: int64[h], ns, from the return of the one to the begin of the other.
        asleep_ns: int64[h], ns, how long the thread had waited: not its own work.

    Example row: ``(call_index=80, source_index=40, latency_ns=60_000, asleep_ns=4_000_000)``.
    """

    call_index: Int64Array
    source_index: Int64Array
    latency_ns: Int64Array
    asleep_ns: Int64Array


def find_hand_overs(trace: Trace, calls: Calls) -> HandOvers:
    """Find where threads waited for others between two of their calls, and for which call.

    A thread that records nothing while another one returns from calls, and then goes on, waited for
    the last of those. There is no slow reference model: tests have programs made by hand.
    """
    columns: list[tuple[int, int, int, int]] = []
    event_id = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
    by_end = np.argsort(calls.end_ns, kind="stable")
    threads = np.unique(calls.thread_index).tolist()
    for thread in threads if len(threads) > 1 else ():
        of_thread = np.flatnonzero(calls.thread_index == thread)
        others = by_end[calls.thread_index[by_end] != thread]
        events = event_id[trace.thread_index[event_id] == thread]
        marks_ns = np.sort(np.concatenate((trace.start_ns[events], trace.end_ns[events])))
        columns += _hand_overs_of(calls, of_thread, others, marks_ns)
    by_column = np.array(columns, dtype=np.int64).reshape(-1, 4).T
    return HandOvers(*by_column)


def _hand_overs_of(
    calls: Calls, of_thread: NDArray[np.intp], others: NDArray[np.intp], marks_ns: Int64Array
) -> list[tuple[int, int, int, int]]:
    """The rows of one thread.

    Args:
        calls: all calls.
        of_thread: intp[k], those of the thread.
        others: intp[l], those of other threads, by end.
        marks_ns: int64[t], ns, when anything of the thread began or ended, ascending.
    """
    others_end_ns = calls.end_ns[others]
    begin_ns = calls.begin_ns[of_thread]
    previous_ns = np.concatenate((marks_ns[:1], calls.end_ns[of_thread[:-1]]))
    # Only where another thread returned from a call, and there was time to sleep.
    returned = np.searchsorted(others_end_ns, begin_ns) > np.searchsorted(
        others_end_ns, previous_ns
    )
    returned &= begin_ns - previous_ns > _ASLEEP_NS
    returned[:1] = True  # a thread begins because another one made it
    rows = []
    for position in np.flatnonzero(returned).tolist():
        since_ns, until_ns = int(previous_ns[position]), int(begin_ns[position])
        first, end = np.searchsorted(marks_ns, (since_ns, until_ns), side="right")
        moments_ns = np.concatenate(([since_ns], marks_ns[first:end], [until_ns]))
        silences_ns = np.diff(moments_ns)
        longest = int(silences_ns.argmax())
        asleep_ns = int(silences_ns[longest])
        slept_ns, woke_ns = int(moments_ns[longest]), int(moments_ns[longest + 1])
        if position == 0:
            asleep_ns, slept_ns, woke_ns = 0, 0, since_ns
        elif asleep_ns < _ASLEEP_NS:
            continue
        last = int(np.searchsorted(others_end_ns, woke_ns, side="right")) - 1
        if last >= 0 and others_end_ns[last] > slept_ns:
            latency_ns = until_ns - int(others_end_ns[last])
            rows.append((int(of_thread[position]), int(others[last]), latency_ns, asleep_ns))
    return rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nodes(Frozen):
    """First the return of each call, then the begins of some, then the end of each activity.

    Attributes:
        calls: the calls; call *i* is node *i*.
        begin_call: intp[b], the calls that have a node for their begin: those that return after
            what they launch has started.
        entry: intp[c], the node that each call begins with, its own where that is the return.
        launch_call: int64[m], per timeline row the call that launched it, ABSENT where the file
            does not have that.
        activity: intp[m], the node of each timeline row.

    Example: of two calls the second has a begin, and each launches an activity:
    ``begin_call=[1], entry=[0, 2], launch_call=[0, 1], activity=[3, 4]``.
    """

    calls: Calls
    begin_call: NDArray[np.intp]
    entry: NDArray[np.intp]
    launch_call: Int64Array
    activity: NDArray[np.intp]

    @property
    def is_launched(self) -> NDArray[np.bool_]:
        """bool[m], which timeline rows have their launch in the file."""
        is_launched: NDArray[np.bool_] = self.launch_call != ABSENT
        return is_launched

    @property
    def host_call(self) -> NDArray[np.intp]:
        """intp[c + b], the call of each node of the host."""
        return np.concatenate((np.arange(len(self.calls)), self.begin_call))

    def __len__(self) -> int:
        return len(self.calls) + len(self.begin_call) + len(self.activity)


def find_nodes(host: Host) -> Nodes:
    """The nodes of a file."""
    timeline, calls = host.timeline, find_calls(host)
    launch_call = np.where(timeline.launch_id == ABSENT, ABSENT, calls.index_of[timeline.launch_id])
    starts_inside = launch_call != ABSENT
    starts_inside &= timeline.start_ns < calls.end_ns[launch_call]
    begin_call = np.unique(launch_call[starts_inside]).astype(np.intp)
    entry = np.arange(len(calls))
    entry[begin_call] = len(calls) + np.arange(len(begin_call))
    first_activity = len(calls) + len(begin_call)
    return Nodes(
        calls=calls,
        begin_call=begin_call,
        entry=entry,
        launch_call=launch_call,
        activity=first_activity + np.arange(len(timeline.event_id)),
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Edges(Frozen):
    """Edges of one or more kinds; columns as in `Program`.

    Example row: ``(source=40, target=41, via=Via.LAUNCH, latency_ns=2_100)``.
    """

    source: NDArray[np.intp]
    target: NDArray[np.intp]
    via: NDArray[np.int8]
    latency_ns: Int64Array


def edges(
    source: NDArray[np.integer[Any]],
    target: NDArray[np.integer[Any]],
    via: Via,
    latency_ns: NDArray[np.integer[Any]] | int,
) -> Edges:
    """Edges of one kind; the latency may be the same for all."""
    return Edges(
        source.astype(np.intp),
        target.astype(np.intp),
        np.full(len(source), via, dtype=np.int8),
        np.broadcast_to(np.asarray(latency_ns, dtype=np.int64), len(source)).copy(),
    )
