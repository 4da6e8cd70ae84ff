"""What the activities of each device waited for, and how much of the time that does not explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelab.base.arrays import OneLine
from tracelab.base.intervals import measure_within, union
from tracelab.measures.measure import Measure, constrained, keyed_by
from tracelab.model.constraints import Constraint
from tracelab.model.graph import Graph
from tracelab.model.steps import Window


@dataclass(frozen=True, slots=True, repr=False)
class StartMetrics(OneLine):
    """What the activities of one device that started in one window waited for.

    Attributes:
        activities: how many started.
        by_constraint: how many of these waited for what: a `Constraint` in lowercase.
        inferred: for how many this is inferred from the times.
        unexplained: how many delays of more than 20 us that neither the file nor the times explain
            overlap the window, even if what was late started after it.
        unexplained_ns: how much of the window lies in them; time that several share counts once.
        unexplained_share: the same as a share of the window. Above 0.02 nothing can be predicted
            from the trace.

    Example row: ``StartMetrics(rank=0, step=3, device=0, activities=40, by_constraint={"stream":
    30, "launch": 9, "unknown": 1, ...}, inferred=0, unexplained=1, unexplained_ns=90_000,
    unexplained_share=0.01)``.
    """

    rank: int
    step: int | None
    device: int
    activities: int
    by_constraint: Mapping[str, int] = field(
        metadata=keyed_by(Constraint, complete=True, added=(Constraint.CALLBACK,))
    )
    inferred: int
    unexplained: int
    unexplained_ns: int
    unexplained_share: float = field(metadata=constrained(minimum=0, maximum=1))


def starts(graph: Graph, windows: Sequence[Window]) -> Iterator[StartMetrics]:
    """What the activities of each device waited for, per window.

    There is no slow reference model beside that of `Binding`:
    ``tests/unit/measures/test_starts.py`` counts its rows one by one.

    Args:
        graph: the file's dependencies.
        windows: what to measure.
    """
    timeline, binding = graph.host.timeline, graph.binding
    start_ns = timeline.start_ns
    is_unexplained = binding.unexplained_ns > 0
    since_ns = start_ns - binding.unexplained_ns
    of_device = {
        device: (
            is_on := timeline.select(device=device),
            union(since_ns[is_on & is_unexplained], start_ns[is_on & is_unexplained]),
        )
        for device in timeline.device_numbers
    }
    for window in windows:
        for device, (is_on, delays) in of_device.items():
            is_here = is_on & (start_ns >= window.start_ns) & (start_ns < window.end_ns)
            reaches_into = is_unexplained & (start_ns > window.start_ns)
            reaches_into &= (since_ns < window.end_ns) & (window.length_ns > 0)
            counts = np.bincount(binding.constraint[is_here], minlength=len(Constraint)).tolist()
            [unexplained_ns] = measure_within(delays, [window.start_ns], [window.end_ns]).tolist()
            yield StartMetrics(
                rank=0,
                step=window.step,
                device=device,
                activities=int(is_here.sum()),
                by_constraint={
                    constraint.name.lower(): count
                    for constraint, count in zip(Constraint, counts, strict=True)
                },
                inferred=int(binding.is_inferred[is_here].sum()),
                unexplained=int((is_on & reaches_into).sum()),
                unexplained_ns=unexplained_ns,
                unexplained_share=unexplained_ns / max(1, window.length_ns),
            )


MEASURE = Measure("starts", StartMetrics, starts)
