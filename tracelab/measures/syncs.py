"""Which host calls blocked, where in the program, and how much GPU idle each one caused.

A blocking call costs nothing while the GPU has work. Its price is the time in which a device was
idle while the call blocked, and from its return until work launched after it reached the device.
Where several calls stand in one bubble, each pays from its own start to the start of the next. A
call costs nothing where the thread that launched next was at work of its own when it began.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.graph import Graph
from tracelab.host import BlockingCalls
from tracelab.intervals import Int64Array
from tracelab.measures.bubbles import Gaps, device_gaps
from tracelab.timeline import Timeline
from tracelab.trace import ABSENT, Category, Trace

# Python frames that are nobody's own code: built-ins, PyTorch, the interpreter's start-up.
_LIBRARY_FRAME = re.compile(
    r"^<|^nn\.Module:|(?:^|/)torch/|(?:^|/)site-packages/|^(?:threading|runpy)\.py\("
)
_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the program a call was made, as far as the trace says.

    Attributes:
        operator: the operator that the program called, None outside any.
        function, file: the innermost Python function of the program's own code, and its file.
    """

    operator: str | None
    function: str | None
    file: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Syncs:
    """The blocking calls, by start, and their price.

    Attributes:
        calls: the calls.
        step: int32[k], index into `Timeline.steps` of the step whose host annotation holds the
            call, else ABSENT.
        blocked_ns: int64[k], ns.
        caused_idle_ns: int64[k], ns, summed over devices.
        places: where each call was made.
    """

    calls: BlockingCalls
    step: NDArray[np.int32]
    blocked_ns: Int64Array
    caused_idle_ns: Int64Array
    places: tuple[Place, ...]


def syncs(graph: Graph) -> Syncs:
    """Measure the blocking calls of a file."""
    host, timeline = graph.host, graph.host.timeline
    calls = host.blocking
    step = np.full(len(calls), ABSENT, dtype=np.int32)
    for index, item in enumerate(timeline.steps):
        start, end = timeline.trace.start_ns[item.event], timeline.trace.end_ns[item.event]
        first, last = np.searchsorted(calls.start_ns, (start, end))
        inside = step[first:last]
        inside[inside == ABSENT] = index
    caused = np.zeros(len(calls), dtype=np.int64)
    if len(calls):
        for device in timeline.devices:
            _charge(graph, device, device_gaps(timeline, device), caused)
    return Syncs(
        calls=calls,
        step=step,
        blocked_ns=calls.end_ns - calls.start_ns,
        caused_idle_ns=caused,
        places=_places(timeline, calls),
    )


def _charge(graph: Graph, device: int, idle: Gaps, caused: Int64Array) -> None:
    """Add the idle of one device to the calls that caused it."""
    host, timeline = graph.host, graph.host.timeline
    trace, calls = timeline.trace, host.blocking
    launched = timeline.of(device=device) & (timeline.launch != ABSENT)
    launch_ns = np.sort(trace.start_ns[timeline.launch[launched]])
    # A call stands before a gap if no work for the device was launched between the two. Of one
    # thread's calls, in order and none inside another, those are neighbours.
    called_ns = trace.start_ns[idle.launch]
    previous_ns = np.concatenate(([ABSENT], launch_ns))[np.searchsorted(launch_ns, called_ns)]
    near = []
    # The launch of a blocking copy is a blocking call itself, and stands before its own gap.
    late = np.isin(idle.launch, calls.call)
    number = {call: i for i, call in enumerate(calls.call.tolist())}
    for thread in np.unique(calls.thread):
        own = np.flatnonzero(calls.thread == thread)
        first = np.searchsorted(calls.end_ns[own], previous_ns, side="right")
        last = np.searchsorted(calls.start_ns[own], called_ns)
        near.append((own.tolist(), first, last))
        late |= first < last
    for gap in np.flatnonzero(late & (idle.launch != ABSENT)).tolist():
        launch = int(idle.launch[gap])
        owners = [call for own, first, last in near for call in own[first[gap] : last[gap]]]
        owners = [x for x in owners if holds_up(graph, x, int(trace.thread[launch]))]
        owners = sorted([*owners, number[launch]] if launch in number else owners)
        bounds = [*calls.start_ns[owners], idle.end_ns[gap]]
        for call, since, until in zip(owners, bounds[:-1], bounds[1:], strict=True):
            begun = max(since, idle.start_ns[gap])
            caused[call] += max(0, min(until, idle.end_ns[gap]) - begun)


def holds_up(graph: Graph, call: int, thread: int) -> bool:
    """Whether a launching thread waited for this call: its own, or made while it did nothing."""
    calls = graph.host.blocking
    if calls.thread[call] == thread:
        return True
    state = graph.host.states.get(thread)
    if state is None:
        return True
    moment = calls.start_ns[call]
    at = int(np.searchsorted(state.recorded.starts, moment, side="right")) - 1
    return at < 0 or bool(state.recorded.ends[at] <= moment)


def _places(timeline: Timeline, calls: BlockingCalls) -> tuple[Place, ...]:
    """The operators and Python functions around each call."""
    trace = timeline.trace
    steps = [step.event for step in timeline.steps]  # old files write them as operators
    operators = _around(trace, calls, np.setdiff1d(trace.of_category(Category.OPERATOR), steps))
    functions = _around(trace, calls, trace.of_category(Category.PYTHON))
    places = []
    for inside, frames in zip(operators, functions, strict=True):
        own = [name for name in frames if not _LIBRARY_FRAME.search(name)]
        frame = _FRAME.match(own[-1]) if own else None
        places.append(
            Place(
                operator=_called_operator(inside),
                function=frame["function"] if frame else None,
                file=frame["file"] if frame else None,
            )
        )
    return tuple(places)


def _called_operator(inside: list[str]) -> str | None:
    """The operator that the program called: of ``aten::item`` and all that it calls, the first."""
    if not inside:
        return None
    called = len(inside) - 1
    while (
        called > 0
        and inside[called].startswith("aten::")
        and inside[called - 1].startswith("aten::")
    ):
        called -= 1
    return inside[called]


def _around(
    trace: Trace, calls: BlockingCalls, events: NDArray[np.integer[Any]]
) -> list[list[str]]:
    """Per call, the names of those events of its thread that enclose it, outermost first."""
    names: list[list[str]] = [[] for _ in range(len(calls))]
    events = events[np.lexsort((-trace.end_ns[events], trace.start_ns[events]))]
    for thread in np.unique(calls.thread):
        own = np.flatnonzero(calls.thread == thread)
        start, end = calls.start_ns[own], calls.end_ns[own]
        rows = events[trace.thread[events] == thread]
        # Calls of a thread are disjoint and in order, so those inside an event are neighbours.
        first = np.searchsorted(start, trace.start_ns[rows], side="left")
        last = np.searchsorted(end, trace.end_ns[rows], side="right")
        for row in np.flatnonzero(first < last).tolist():
            for call in own[first[row] : last[row]].tolist():
                names[call].append(trace.name_of(int(rows[row])))
    return names
