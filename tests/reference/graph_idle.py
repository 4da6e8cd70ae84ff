"""Idle time inside replays, one bubble after the other: the slow model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tests.build.flat import flat
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.model.binding import Constraint
from tracelab.model.graph import Graph
from tracelab.model.steps import Window
from tracelab.model.trace import ABSENT


@dataclass(frozen=True)
class Before:
    """What bubbles that are alike have in common; the streams are those of the two events."""

    device: int
    wait: str
    name: str
    stream: int
    awaited: str | None
    awaited_stream: int | None


@dataclass
class Sum:
    """What there is of them."""

    count: int = 0
    idle_ns: int = 0
    waiting_ns: int = 0


def sums(graph: Graph, idle: Bubbles, window: Window) -> dict[Before, Sum]:
    """All bubbles inside replays that reach into a window."""
    timeline, binding, idle = graph.host.timeline, graph.binding, flat(idle)
    trace, found = timeline.trace, defaultdict[Before, Sum](Sum)
    row_of = {event: row for row, event in enumerate(timeline.event_id.tolist())}
    for index in range(len(idle.start_ns)):
        start = max(int(idle.start_ns[index]), window.start_ns)
        end = min(int(idle.end_ns[index]), window.end_ns)
        if idle.cause[index] != Cause.GRAPH or end <= start:
            continue
        node = int(idle.next_id[index])
        row = row_of[node]
        source, constraint = int(binding.source_row[row]), Constraint(binding.constraint[row])
        awaited = ABSENT if source == ABSENT else int(timeline.event_id[source])
        if constraint == Constraint.QUEUE:
            wait = "queue"
        elif source != ABSENT and constraint in (
            Constraint.STREAM,
            Constraint.EVENT,
            Constraint.DEPENDENT_LAUNCH,
        ):
            wait = "not_in_file"
        else:
            wait = "other"
        key = Before(
            int(idle.device_number[index]),
            wait,
            trace.name_of(node),
            int(trace.stream_number[node]),
            None if awaited == ABSENT else trace.name_of(awaited),
            None if awaited == ABSENT else int(trace.stream_number[awaited]),
        )
        found[key].count += 1
        found[key].idle_ns += end - start
        found[key].waiting_ns += max(0, min(int(binding.ready_ns[row]), end) - start)
    return dict(found)
