"""Which host calls blocked, where in the program, and how much GPU idle each one caused.

A blocking call costs nothing while the GPU has work. Its price is the time in which a device was
idle while the call blocked, and from its return until work launched after it reached the device.
Where several calls stand in one bubble, each pays from its own start to the start of the next. A
call costs nothing where the thread that launched next was at work of its own when it began. An
allocation that held up another thread's call stands for that thread, too, from when both had begun
until that call returned, as if the thread had made it itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.graph import EdgeKind, Graph
from tracelab.host import BlockingCalls, Host
from tracelab.intervals import Int64Array
from tracelab.measures.bubbles import Gaps, device_gaps
from tracelab.places import Place, locate
from tracelab.source_lines import SourceLines
from tracelab.timeline import each_of
from tracelab.trace import ABSENT


@dataclass(frozen=True, slots=True, eq=False)
class Charges:
    """Which stretches of idle time which call caused; disjoint on each device.

    Attributes:
        call: intp[c], index into the blocking calls.
        device: int32[c].
        start_ns, end_ns: int64[c], ns, never empty.
    """

    call: NDArray[np.intp]
    device: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Syncs:
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
    step: NDArray[np.int32]
    blocked_ns: Int64Array
    caused_idle_ns: Int64Array
    idle_after_ns: Int64Array
    charges: Charges
    awaited: Int64Array
    places: tuple[Place, ...]


def syncs(graph: Graph, lines: SourceLines | None = None) -> Syncs:
    """Measure the blocking calls of a file; only where `lines` can look is their line named."""
    host, timeline = graph.host, graph.host.timeline
    calls = host.blocking
    step = np.full(len(calls), ABSENT, dtype=np.int32)
    for index, item in enumerate(timeline.steps):
        start, end = timeline.trace.start_ns[item.event], timeline.trace.end_ns[item.event]
        first, last = np.searchsorted(calls.start_ns, (start, end))
        inside = step[first:last]
        inside[inside == ABSENT] = index
    charged: list[tuple[int, int, int, int]] = []
    if len(calls):
        for device in timeline.devices:
            charged += _charge(host, device, device_gaps(host, device))
    columns = np.array(charged, dtype=np.int64).reshape(-1, 4)
    caused = np.zeros(len(calls), dtype=np.int64)
    np.add.at(caused, columns[:, 0], columns[:, 3] - columns[:, 2])
    after = np.zeros(len(calls), dtype=np.int64)
    begun = np.maximum(columns[:, 2], calls.end_ns[columns[:, 0]])
    np.add.at(after, columns[:, 0], np.maximum(0, columns[:, 3] - begun))
    return Syncs(
        calls=calls,
        step=step,
        blocked_ns=calls.end_ns - calls.start_ns,
        caused_idle_ns=caused,
        idle_after_ns=after,
        charges=Charges(
            columns[:, 0].astype(np.intp),
            columns[:, 1].astype(np.int32),
            columns[:, 2],
            columns[:, 3],
        ),
        awaited=_awaited(graph),
        places=locate(timeline, calls.call, lines),
    )


def _awaited(graph: Graph) -> Int64Array:
    """Per blocking call the last activity that it waited for, else ABSENT."""
    trace, calls = graph.host.timeline.trace, graph.host.blocking
    launched = np.isin(graph.source, calls.call) & (graph.kind == EdgeKind.LAUNCH)
    waited = np.isin(graph.target, calls.call) & (graph.kind == EdgeKind.SYNC)
    # A blocking copy waits for the copy that it launches.
    call = np.concatenate((graph.source[launched], graph.target[waited]))
    activity = np.concatenate((graph.target[launched], graph.source[waited]))
    order = np.argsort(trace.end_ns[activity], kind="stable")
    last = dict(zip(call[order].tolist(), activity[order].tolist(), strict=True))
    return np.array([last.get(x, ABSENT) for x in calls.call.tolist()], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Halts:
    """The stretches in which a thread got no further; what the blocking calls held up comes last.

    Attributes:
        call: intp[h], index into the blocking calls: whose fault it was.
        thread: int32[h], index into `Trace.threads` of who got no further.
        start_ns, end_ns: int64[h], ns.
        groups: the halts of one thread and sort, each by start and by end.
    """

    call: NDArray[np.intp]
    thread: NDArray[np.int32]
    start_ns: Int64Array
    end_ns: Int64Array
    groups: tuple[NDArray[np.intp], ...]


def halts_of(host: Host) -> Halts:
    """The blocking calls, each of its own thread, and what allocations held up."""
    calls, held = host.blocking, host.held
    thread = np.concatenate((calls.thread, held.thread))
    number = np.arange(len(thread))
    return Halts(
        call=np.concatenate((number[: len(calls)], held.holder)),
        thread=thread,
        start_ns=np.concatenate((calls.start_ns, held.start_ns)),
        end_ns=np.concatenate((calls.end_ns, held.end_ns)),
        groups=tuple(
            group
            for _, own in each_of(thread)
            for group in np.split(own, [np.searchsorted(own, len(calls))])
        ),
    )


def _charge(host: Host, device: int, idle: Gaps) -> list[tuple[int, int, int, int]]:
    """(call, device, start, end) of the idle of one device that each call caused."""
    charged = []
    timeline, calls, halts = host.timeline, host.blocking, halts_of(host)
    launched = timeline.of(device=device) & (timeline.launch != ABSENT)
    launch_ns = np.sort(host.launched_ns[timeline.launch[launched]])
    # A call stands before a gap if no work for the device was launched between the two. Of one
    # thread's calls, in order and none inside another, those are neighbours.
    called_ns = host.launched_ns[idle.launch]
    previous_ns = np.concatenate(([ABSENT], launch_ns))[np.searchsorted(launch_ns, called_ns)]
    near = []
    # The launch of a blocking copy is a blocking call itself, and stands before its own gap.
    late = np.isin(idle.launch, calls.call)
    number = {call: i for i, call in enumerate(calls.call.tolist())}
    for own in halts.groups:
        first = np.searchsorted(halts.end_ns[own], previous_ns, side="right")
        last = np.searchsorted(halts.start_ns[own], called_ns)
        near.append((own.tolist(), first, last))
        late |= first < last
    for gap in np.flatnonzero(late & (idle.launch != ABSENT)).tolist():
        launch = int(idle.launch[gap])
        thread = int(timeline.trace.thread[launch])
        owners = [halt for own, first, last in near for halt in own[first[gap] : last[gap]]]
        owners = [
            x
            for x in owners
            if waits_for(host, thread, int(halts.thread[x]), int(halts.start_ns[x]))
        ]
        owners = [*owners, number[launch]] if launch in number else owners
        owners = sorted(owners, key=lambda x: (halts.start_ns[x], x))
        bounds = [*halts.start_ns[owners], idle.end_ns[gap]]
        for halt, since, until in zip(owners, bounds[:-1], bounds[1:], strict=True):
            begun = max(int(since), int(idle.start_ns[gap]))
            ended = min(int(until), int(idle.end_ns[gap]))
            if ended > begun:
                charged.append((int(halts.call[halt]), device, begun, ended))
    return charged


def waits_for(host: Host, thread: int, other: int, moment_ns: int) -> bool:
    """Whether a launching thread waits for what begins at a moment in a thread, itself or not."""
    if other == thread:
        return True
    if other not in host.launching_threads:
        return False
    state = host.states.get(thread)
    if state is None:
        return True
    at = int(np.searchsorted(state.recorded.starts, moment_ns, side="right")) - 1
    return at < 0 or bool(state.recorded.ends[at] <= moment_ns)
