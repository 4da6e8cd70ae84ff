"""Steps of a program that serves requests: prefill and decode apart, by how many requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from tracelab.base.arrays import Record
from tracelab.base.intervals import measure_within
from tracelab.measures.measure import Measure
from tracelab.model.graph import Graph
from tracelab.model.steps import Window, bounds_of, find_steps, known_steps


class ServedSteps(Record):
    """The steps of one phase that serve equally many requests.

    Attributes:
        phase: "decode", "prefill" or "mixed", as their names say; "" where they do not.
        sequences: how many requests each of them serves.
        count: how many such steps there are.
        length_ns: the median of their windows, ns.
        longest_ns: the longest of them, ns.
        busy_ns: the median of the time in which the GPU that is the busiest in them works, ns.
    """

    rank: int
    step: int | None
    phase: str
    sequences: int
    count: int
    length_ns: int
    longest_ns: int
    busy_ns: int


def served_steps(graph: Graph, windows: Sequence[Window]) -> Iterator[ServedSteps]:
    """Measure the steps of vLLM or SGLang, all of the file, whatever the windows and the steps."""
    timeline = graph.host.timeline
    known, _ = known_steps(timeline.step_pattern)
    if known is None or not known.phases:
        return
    steps, *_ = find_steps(timeline.trace, known.pattern, timeline.launch_id, timeline.end_ns)
    start_ns, end_ns = bounds_of(steps)
    busy_ns = np.max(
        [
            measure_within(timeline.busy(timeline.select(device=device)), start_ns, end_ns)
            for device in timeline.device_numbers
        ],
        axis=0,
    )
    kinds: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        name = timeline.trace.name_of(step.event_id)
        kinds[known.phase_of(name), known.sequences_of(name)].append(index)
    for (phase, sequences), alike in sorted(kinds.items()):
        length_ns = (end_ns - start_ns)[alike]
        yield ServedSteps(
            rank=0,
            step=windows[0].step,
            phase=phase,
            sequences=sequences,
            count=len(alike),
            length_ns=int(np.median(length_ns)),
            longest_ns=int(length_ns.max()),
            busy_ns=int(np.median(busy_ns[alike])),
        )


MEASURE = Measure("served_steps", ServedSteps, served_steps)
