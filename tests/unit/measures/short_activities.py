"""GPU activities that took less time than their launch, by name."""

import numpy as np

from tracelab.base.arrays import Record
from tracelab.measures.measure import Measure

_LAUNCH_NS = 5_000


class ShortActivities(Record):
    """The short GPU activities of one name that started in one window.

    Example row: ``ShortActivities(rank=0, step=3, name="add", count=40, total_ns=90_000)``.
    """

    rank: int
    step: int | None
    name: str
    count: int
    total_ns: int


def short_activities(graph, windows):
    timeline, strings = graph.host.timeline, graph.host.timeline.trace.strings
    name_index = timeline.trace.name_index[timeline.event_id]
    start_ns, length_ns = timeline.start_ns, timeline.end_ns - timeline.start_ns
    for window in windows:
        is_short = (start_ns >= window.start_ns) & (start_ns < window.end_ns)
        is_short &= length_ns < _LAUNCH_NS
        for name in np.unique(name_index[is_short]):
            short_ns = length_ns[is_short & (name_index == name)]
            row = len(short_ns), int(short_ns.sum())
            yield ShortActivities(0, window.step, strings[name], *row)


MEASURE = Measure("short_activities", ShortActivities, short_activities)
