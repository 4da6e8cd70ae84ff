"""Which streams are compared with each other: of thousands, only those that matter most."""

from __future__ import annotations

import numpy as np

from tracelab.base.intervals import measure
from tracelab.measures.graph_streams import graph_streams
from tracelab.model.activities import Stream
from tracelab.model.timeline import Timeline

# Their pairs are 496; real programs use a handful, and a few dozen with many collectives at a time.
MOST_COMPARED_STREAMS = 32


def compared_streams(timeline: Timeline, *, all_pairs: bool = False) -> tuple[Stream, ...]:
    """The streams that are compared with each other: all of them, or of very many the busiest.

    Nearly empty streams of CUDA graphs (`graph_streams`) are compared together instead. Among the
    busiest is, as far as there is room, the busiest one of each device that does work of each kind.
    The pairs of thousands of streams would be millions.

    Args:
        timeline: a trace's GPU activities.
        all_pairs: compare each one, however many they are.
    """
    if all_pairs:
        return timeline.streams
    shown_as_one = {index for x in graph_streams(timeline) for index in x.stream_index.tolist()}
    streams = tuple(x for i, x in enumerate(timeline.streams) if i not in shown_as_one)
    if len(streams) <= MOST_COMPARED_STREAMS:
        return streams
    busy_ns = [measure(timeline.busy(slice(x.first_row, x.end_row))) for x in streams]
    busiest_first = np.argsort(-np.array(busy_ns), kind="stable").tolist()
    kinds_of = [np.unique(timeline.kind[x.first_row : x.end_row]).tolist() for x in streams]
    work = [{(x.device_number, kind) for kind in kinds_of[i]} for i, x in enumerate(streams)]
    seen: set[tuple[int, int]] = set()
    is_first = np.zeros(len(streams), dtype=np.bool_)
    for index in busiest_first:
        is_first[index] = not work[index] <= seen
        seen |= work[index]
    by_weight = sorted(busiest_first, key=lambda index: not is_first[index])
    return tuple(streams[index] for index in sorted(by_weight[:MOST_COMPARED_STREAMS]))
