"""What nodes of graphs had to wait for, asked one event after the other: the slow model."""

from __future__ import annotations

from dataclasses import dataclass

from tracelab.model.driver_api import is_graph_launch
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

WAKE_UP_NS = 35_000


@dataclass(frozen=True)
class Waited:
    """One row of `NodePredecessors`, in event ids; None where there is nothing."""

    is_known: bool = False
    activity: int | None = None
    callback: int | None = None
    before_callback: int | None = None
    is_inferred: bool = False


class Predecessors:
    """What the definitions say of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        trace = timeline.trace
        self.timeline, self.trace = timeline, trace
        self.start, self.end = trace.start_ns.tolist(), trace.end_ns.tolist()
        self.activities = timeline.event_id.tolist()
        self.callbacks = trace.of_category(Category.GRAPH_HOST_NODE).tolist()
        nodes = trace.graph_nodes
        self.links = list(
            zip(nodes.predecessor_id.tolist(), nodes.successor_id.tolist(), strict=True)
        )

    def of(self, event: int) -> Waited:
        """What one activity waited for."""
        nearest = self.through_records(event)
        activity = self.last([x for x in nearest if x in self.activities])
        callback = self.last([x for x in nearest if x in self.callbacks])
        before = None if callback is None else self.last(self.activities_before(callback))
        just_before = self.just_before(event)
        if just_before is not None and (
            callback is None or self.end[just_before] > self.end[callback]
        ):
            row_before = self.row_before(event)
            return Waited(bool(self.direct(event)), activity, just_before, row_before, True)
        return Waited(bool(self.direct(event)), activity, callback, before)

    def direct(self, event: int) -> list[int]:
        """Its predecessors that began before it."""

        def order(x: int) -> tuple[int, int]:
            return self.start[x], x

        return [
            before
            for before, after in self.links
            if after == event and order(before) < order(event)
        ]

    def through_records(self, event: int) -> list[int]:
        """Its predecessors, those of recorded events in the place of these."""
        found = []
        for before in self.direct(event):
            is_record = before not in self.activities and before not in self.callbacks
            found += self.through_records(before) if is_record else [before]
        return found

    def activities_before(self, event: int) -> list[int]:
        """The nearest activities on every way back."""
        found = []
        for before in self.direct(event):
            found += [before] if before in self.activities else self.activities_before(before)
        return found

    def last(self, events: list[int]) -> int | None:
        return max(events, key=lambda x: (self.end[x], x), default=None)

    def row_before(self, event: int) -> int | None:
        """The activity before it in its stream."""
        row = self.activities.index(event)
        stream = self.timeline.stream_index
        return self.activities[row - 1] if row and stream[row] == stream[row - 1] else None

    def just_before(self, event: int) -> int | None:
        """The callback without dependencies that returned just before a node, in its stream."""
        launch = int(self.timeline.launch_id[self.activities.index(event)])
        if launch == ABSENT or not is_graph_launch(self.trace.name_of(launch)):
            return None

        def lane(x: int) -> tuple[int, int]:
            return int(self.trace.device_number[x]), int(self.trace.stream_number[x])

        predecessors = {before for before, _ in self.links}
        done = [
            x
            for x in self.callbacks
            if x not in predecessors and lane(x) == lane(event) and self.end[x] <= self.start[event]
        ]
        last, row_before = self.last(done), self.row_before(event)
        if last is None or self.start[event] - self.end[last] > WAKE_UP_NS:
            return None
        return None if row_before is not None and self.end[row_before] > self.end[last] else last
