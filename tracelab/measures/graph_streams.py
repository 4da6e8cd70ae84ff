"""Streams that only carry a few nodes of CUDA graphs each: of very many, one row is enough.

CUPTI reports the nodes of a replay on whatever streams the executor used: often hundreds, none of
which the program made or named.
"""

from __future__ import annotations

import numpy as np

from tracelab.base.arrays import Arrays
from tracelab.base.intervals import IndexArray, Intervals, measure
from tracelab.model.activities import Stream
from tracelab.model.cuda_graphs.graph_replays import replayed
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

MIN_STREAMS = 16
# Of all activities of a stream.
_MIN_REPLAYED_SHARE = 0.9
# Of the time in which the device is busy. Where six nodes run at a time, each of 64 streams has
# about a tenth.
_MAX_BUSY_SHARE = 0.1
# Their pairs are 496; real programs use a handful, and a few dozen with many collectives at a time.
MAX_COMPARED_STREAMS = 32


class GraphStreams(Arrays):
    """The nearly empty streams of CUDA graphs of one device, and the rows of their activities."""

    device_number: int
    stream_index: IndexArray
    row: IndexArray

    @property
    def selection(self) -> str:
        """Their activities together, as a selection of the overlap table."""
        return f"stream:{self.device_number}/graphs"

    def busy(self, timeline: Timeline) -> Intervals:
        """Intervals in which at least one of them worked."""
        is_theirs = np.zeros(len(timeline.event_id), dtype=np.bool_)
        is_theirs[self.row] = True
        return timeline.busy(is_theirs)


def graph_streams(timeline: Timeline) -> tuple[GraphStreams, ...]:
    """Return, per device, the streams that are shown as one if they are at least `MIN_STREAMS`.

    Nearly all activities of such a stream are from replays, and it is busy for less than a tenth of
    the time of its device. The rule looks at the whole trace, so that each step shows the same.
    """
    streams = timeline.streams
    if len(streams) < MIN_STREAMS:
        return ()
    is_replayed = replayed(timeline)
    is_replayed |= timeline.trace.graph_node_row[timeline.event_id] != ABSENT
    first_row = np.array([stream.first_row for stream in streams])
    count = np.array([stream.end_row - stream.first_row for stream in streams])
    device_number = np.array([stream.device_number for stream in streams])
    replayed_count = np.add.reduceat(is_replayed.astype(np.int64), first_row)
    are_of_graphs = replayed_count >= _MIN_REPLAYED_SHARE * count
    found = []
    for device in timeline.device_numbers:
        candidates = np.flatnonzero(are_of_graphs & (device_number == device))
        if len(candidates) < MIN_STREAMS:
            continue
        most_ns = _MAX_BUSY_SHARE * measure(timeline.busy(timeline.select(device=device)))
        busy_ns = [
            measure(timeline.busy(slice(streams[index].first_row, streams[index].end_row)))
            for index in candidates.tolist()
        ]
        chosen = candidates[np.array(busy_ns) < most_ns]
        if len(chosen) >= MIN_STREAMS:
            row = np.flatnonzero(np.isin(timeline.stream_index, chosen))
            by_start = np.lexsort((timeline.end_ns[row], timeline.start_ns[row]))
            found.append(GraphStreams(device, chosen, row[by_start]))
    return tuple(found)


def compared_streams(timeline: Timeline, *, all_pairs: bool = False) -> tuple[Stream, ...]:
    """The streams that are compared with each other: all of them, or of very many the busiest.

    Nearly empty streams of CUDA graphs (`graph_streams`) are compared together instead. The pairs
    of thousands of streams would be millions.
    """
    if all_pairs:
        return timeline.streams
    shown_as_one = {index for x in graph_streams(timeline) for index in x.stream_index.tolist()}
    streams = tuple(x for i, x in enumerate(timeline.streams) if i not in shown_as_one)
    if len(streams) <= MAX_COMPARED_STREAMS:
        return streams
    busy_ns = [measure(timeline.busy(slice(x.first_row, x.end_row))) for x in streams]
    busiest_first = np.argsort(-np.array(busy_ns), kind="stable")
    return tuple(streams[i] for i in np.sort(busiest_first[:MAX_COMPARED_STREAMS]).tolist())
