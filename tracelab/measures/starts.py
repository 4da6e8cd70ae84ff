"""Starts of GPU activities: what each device waited for, and the latencies that are typical."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np

from tracelab.base.arrays import Record
from tracelab.base.intervals import measure_within, union
from tracelab.measures.measure import Measure, constrained, keyed_by
from tracelab.model.binding import Constraint
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import LATENCIES, Since
from tracelab.model.steps import Window

_KINDS = [kind.name.lower() for kind in Kind]


class LatencyMetrics(Record):
    """One latency that the trace shows.

    Attributes:
        since: what it is counted from: "previous" (the end of the activity before it in its
            stream), "launch" (the return of the launch call), "event" (the end of what its stream
            waited for), "awaited" (of a blocking call: the end of what it waited for) or "node" (of
            a node of a CUDA graph: the end of the node before it in its stream).
        previous: the kind of the activity before it in its stream, None unless counted from there.
        kind: the kind of what starts; None for the return of a blocking call and for any node.
        typical_ns: the latency that counts as typical, ns.
        starts: how many of the trace's starts show it.
        own: whether it is the median of this trace; otherwise it is that of H200 captures.
    """

    rank: int
    step: int | None
    since: Annotated[str, constrained(enum=[since.name.lower() for since in Since])]
    previous: Annotated[str, constrained(enum=[*_KINDS])] | None
    kind: Annotated[str, constrained(enum=[*_KINDS])] | None
    typical_ns: int
    starts: int
    own: bool


def latency_rows(graph: Graph, windows: Sequence[Window]) -> Iterator[LatencyMetrics]:
    """The latencies that a file shows, whatever the windows."""
    latencies = graph.binding.latencies
    for latency, typical_ns, is_own, count in zip(
        LATENCIES,
        latencies.typical_ns.tolist(),
        latencies.is_own.tolist(),
        latencies.start_count.tolist(),
        strict=True,
    ):
        if count:
            yield LatencyMetrics(
                rank=0,
                step=windows[0].step,
                since=latency.since.name.lower(),
                previous=_named(latency.previous),
                kind=_named(latency.kind),
                typical_ns=typical_ns,
                starts=count,
                own=is_own,
            )


def _named(kind: Kind | None) -> str | None:
    return None if kind is None else kind.name.lower()


TYPICAL = Measure("latencies", LatencyMetrics, latency_rows)


class StartMetrics(Record):
    """Waits of the activities of one device that started in one window.

    Attributes:
        activities: how many started.
        by_constraint: how many of these waited for what: a `Constraint` in lowercase.
        inferred: for how many this is inferred from the times.
        unexplained: how many delays of more than 20 us that neither the file nor the times explain
            overlap the window, even if what was late started after it.
        unexplained_ns: how much of the window lies in them; time that several share counts once.
        unexplained_share: the same as a share of the window. Above 0.02 nothing can be predicted
            from the trace.
    """

    rank: int
    step: int | None
    device: int
    activities: int
    by_constraint: Annotated[
        Mapping[str, int], keyed_by(Constraint, complete=True, added=(Constraint.CALLBACK,))
    ]
    inferred: int
    unexplained: int
    unexplained_ns: int
    unexplained_share: Annotated[float, constrained(minimum=0, maximum=1)]


def starts(graph: Graph, windows: Sequence[Window]) -> Iterator[StartMetrics]:
    """Measure the waits of each device's activities, per window."""
    timeline, binding = graph.host.timeline, graph.binding
    start_ns = timeline.start_ns
    is_unexplained = binding.unexplained_ns > 0
    since_ns = start_ns - binding.unexplained_ns
    of_device = {
        device: (
            own := timeline.rows_of(device),
            union(since_ns[own][is_unexplained[own]], start_ns[own][is_unexplained[own]]),
        )
        for device in timeline.device_numbers
    }
    for window in windows:
        for device, (own, delays) in of_device.items():
            is_here = (start_ns[own] >= window.start_ns) & (start_ns[own] < window.end_ns)
            reaches_into = is_unexplained[own] & (start_ns[own] > window.start_ns)
            reaches_into &= (since_ns[own] < window.end_ns) & (window.length_ns > 0)
            constraint = binding.constraint[own][is_here]
            counts = np.bincount(constraint, minlength=len(Constraint)).tolist()
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
                inferred=int(binding.is_inferred[own][is_here].sum()),
                unexplained=int(reaches_into.sum()),
                unexplained_ns=unexplained_ns,
                unexplained_share=unexplained_ns / max(1, window.length_ns),
            )


MEASURE = Measure("starts", StartMetrics, starts)
