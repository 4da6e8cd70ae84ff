"""Compute in two streams of a device that took turns, and what made it.

Only streams that both compute are looked at, and only time in which one of them computed while the
other one's next kernel was held. Whether there was room for both at once, the kernels' sizes tell,
which a rule asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array, intersect, measure, measure_within, union
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.timeline import Stream, Timeline
from tracelab.model.trace import ABSENT

_MUCH_OF_A_STREAM = 0.05  # of the whole trace: less compute than this is no independent work
_AT_ONCE = 0.2  # of the lesser: streams that overlap more than this do not take turns


@dataclass(frozen=True, slots=True, eq=False)
class SerializedStreams:
    """Where one stream of a device computed and the next kernel of another could not.

    Attributes:
        row: intp[k], the timeline row that was held.
        other: intp[k], the last timeline row that ran before it in the other stream.
        start_ns, end_ns: int64[k], ns, while the other stream ran.
        obstacle: int8[k], an `Obstacle`.
        held_by: int64[k], event id of the blocking call behind HOST_SYNC, else ABSENT.
        bound_ns: int64[k], the compute that the held stream then did before it was held again, at
            most the length.
    """

    row: NDArray[np.intp]
    other_row: NDArray[np.intp]
    start_ns: Int64Array
    end_ns: Int64Array
    blocker: NDArray[np.int8]
    blocking_call_id: Int64Array
    bound_ns: Int64Array


def serialized_streams(graph: Graph) -> SerializedStreams:
    """Find the streams that took turns, on every device."""
    timeline = graph.host.timeline
    obstacles = OverlapBlockers(graph)
    found = [
        _turns_of(timeline, obstacles, a, b)
        for a, b in combinations(_computing(timeline), 2)
        if a.device_number == b.device_number and _exclude_each_other(timeline, a, b)
    ]
    nothing = np.zeros(0, dtype=np.int64)
    none = SerializedStreams(
        nothing, nothing, nothing, nothing, nothing.astype(np.int8), nothing, nothing
    )
    return SerializedStreams(
        *(
            np.concatenate([getattr(x, y.name) for x in (none, *found)])
            for y in fields(SerializedStreams)
        )
    )


def _computing(timeline: Timeline) -> list[Stream]:
    """The streams that computed for a good part of the trace."""
    least = _MUCH_OF_A_STREAM * timeline.windows[0].length_ns
    return [x for x in timeline.streams if measure(timeline.busy(_compute(timeline, x))) >= least]


def _compute(timeline: Timeline, lane: Stream) -> NDArray[np.bool_]:
    rows = np.zeros(len(timeline.event_id), dtype=np.bool_)
    rows[lane.first_row : lane.end_row] = (
        timeline.kind[lane.first_row : lane.end_row] == Kind.COMPUTE
    )
    return rows


def _exclude_each_other(timeline: Timeline, a: Stream, b: Stream) -> bool:
    one, other = (timeline.busy(_compute(timeline, x)) for x in (a, b))
    return measure(intersect(one, other)) <= _AT_ONCE * min(measure(one), measure(other))


def _turns_of(
    timeline: Timeline, obstacles: OverlapBlockers, a: Stream, b: Stream
) -> SerializedStreams:
    """Every change from one of two streams to the other, unless the launch alone came late."""
    rows = np.flatnonzero(_compute(timeline, a) | _compute(timeline, b))
    rows = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
    begins = np.flatnonzero(np.diff(timeline.stream_index[rows], prepend=ABSENT))
    worked = np.add.reduceat(timeline.end_ns[rows] - timeline.start_ns[rows], begins)
    row, other = rows[begins[1:]], rows[begins[1:] - 1]
    start = timeline.start_ns[rows[begins[:-1]]]
    end = np.minimum(timeline.end_ns[other], timeline.start_ns[row])
    blocked = union(obstacles.blocking.start_ns, obstacles.blocking.end_ns)
    launch_ns = obstacles.launch_ns[row]
    waited = measure_within(blocked, start, np.maximum(start, launch_ns)) > 0
    turns = np.flatnonzero((end > start) & ((launch_ns < start) | waited))
    obstacle, held_by = obstacles.between(row[turns], other[turns], start[turns])
    held = ~np.isin(obstacle, (OverlapBlocker.TRUE_DEPENDENCY, OverlapBlocker.LATE_LAUNCH))
    turns = turns[held]
    return SerializedStreams(
        row=row[turns],
        other_row=other[turns],
        start_ns=start[turns],
        end_ns=end[turns],
        blocker=obstacle[held],
        blocking_call_id=held_by[held],
        bound_ns=np.minimum(end[turns] - start[turns], worked[turns + 1]),
    )
