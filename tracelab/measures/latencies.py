"""How long starts typically take in a trace, by what they are counted from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tracelab.base.arrays import OneLine
from tracelab.measures.measure import Measure, constrained
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import LATENCIES, Since
from tracelab.model.steps import Window

_KINDS = [kind.name.lower() for kind in Kind]


@dataclass(frozen=True, slots=True, repr=False)
class LatencyMetrics(OneLine):
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

    Example row: ``LatencyMetrics(rank=0, step=None, since="previous", previous="compute",
    kind="copy", typical_ns=3_329, starts=12, own=False)``.
    """

    rank: int
    step: int | None
    since: str = field(metadata=constrained(enum=[since.name.lower() for since in Since]))
    previous: str | None = field(metadata=constrained(enum=[*_KINDS, None]))
    kind: str | None = field(metadata=constrained(enum=[*_KINDS, None]))
    typical_ns: int
    starts: int
    own: bool


def latency_rows(graph: Graph, windows: Sequence[Window]) -> Iterator[LatencyMetrics]:
    """The latencies that a file shows; they are those of the file, whatever the windows."""
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


MEASURE = Measure("latencies", LatencyMetrics, latency_rows)
