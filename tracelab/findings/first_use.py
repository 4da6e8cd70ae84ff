"""First use: what a program does once, found once; it is one finding, and in no other's saving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen, read_only
from tracelab.base.intervals import Int64Array, Intervals, intersect, measure, union
from tracelab.findings.recognition import Recognized
from tracelab.findings.remedy import FIRST_USE, Remedy
from tracelab.measures.idle_causes import Bubbles
from tracelab.model.graph import Graph
from tracelab.model.nesting import Nesting
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Trace


@dataclass(frozen=True, eq=False, repr=False)
class FirstUse(Frozen):
    """Host events of things that a program does once: loading, planning, compiling.

    A pause in which nothing was recorded does not count: its reason is unknown.

    Attributes:
        trace: the file.
        parts: each kind of it with its host events (int64[k], event ids).
        is_most: whether most of a file without steps is idle in it: then nothing in it is typical.
    """

    trace: Trace
    parts: tuple[tuple[Remedy, Int64Array], ...]
    is_most: bool = False

    @cached_property
    def event_id(self) -> Int64Array:
        """int64[k], all its host events, ascending."""
        events = [events for _, events in self.parts]
        return read_only(np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *events])))

    @cached_property
    def time(self) -> Intervals:
        """Time in which any thread was in one of them."""
        return union(self.trace.start_ns[self.event_id], self.trace.end_ns[self.event_id])

    def holds(self, events: Int64Array) -> NDArray[np.bool_]:
        """bool[k], which host events (event ids) are among them, or inside one of their thread."""
        held: NDArray[np.bool_] = self._regions.innermost(events) != ABSENT
        return held

    @cached_property
    def _regions(self) -> Nesting:
        return Nesting(self.trace, self.event_id)


def find_first_use(graph: Graph, recognized: Recognized, bubbles: Bubbles) -> FirstUse:
    """Choose the things that come once in a program from those that remedies recognize.

    Anything inside something that recurs does not count: what is compiled in each step is loaded.
    """
    trace = graph.host.timeline.trace
    again = [
        events
        for remedy, events in recognized.events_of
        if FIRST_USE in remedy.rules and not remedy.is_first_use
    ]
    goes_on = Nesting(trace, np.concatenate([np.zeros(0, dtype=np.int64), *again]))
    parts = [
        (remedy, events[goes_on.innermost(events) == ABSENT])
        for remedy, events in recognized.events_of
        if remedy.is_first_use
    ]
    found = FirstUse(trace, tuple((remedy, events) for remedy, events in parts if len(events)))
    return replace(found, is_most=_is_most(found, graph.host.timeline, bubbles))


def _is_most(first_use: FirstUse, timeline: Timeline, bubbles: Bubbles) -> bool:
    if timeline.steps:
        return False
    [window, *_] = timeline.windows
    of_device = bubbles.device_number == timeline.busiest_device(window)
    idle = union(bubbles.start_ns[of_device], bubbles.end_ns[of_device])
    once = intersect(intersect(idle, first_use.time), union([window.start_ns], [window.end_ns]))
    return 2 * measure(once) > window.length_ns
