"""How long starts take once nothing is in the way: ``python tests/benchmarks/latencies.py [FILE
...]``.

Without arguments it reads the bundled captures with event records until `MEASURED_DATE`. For each
GPU and each of `tracelab.model.latencies.LATENCIES` it prints how many starts there were, and how
long they took, us: all starts whose last constraint the file shows and that were not late.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracelab.model.binding import shown_latencies
from tracelab.model.graph import EdgeKind, Graph, build_graph, wake_up_ns
from tracelab.model.host import observe_host
from tracelab.model.kernel_kinds import Kind
from tracelab.model.latencies import (
    AWAITED,
    LATENCIES,
    MIN_STARTS,
    Latency,
    Since,
    lower_median,
)
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import ABSENT
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

TRACES = Path(__file__).parents[2] / "traces"
MEASURED_DATE = "2026-11-21"  # captures made later are judged by the latencies of those until then

Samples = Mapping[str, Sequence[NDArray[np.int64]]]


def captures() -> list[str]:
    """The bundled captures with event records that the latencies were measured on."""
    lines = json.loads((TRACES / "manifest.json").read_text())["traces"]
    return [
        str(TRACES / file)
        for line in lines
        if "--plain" not in line["arguments"] and line["date"] <= MEASURED_DATE
        for file in line["files"]
    ]


def measure(paths: Sequence[str]) -> Samples:
    """By name of the GPU, for each of `LATENCIES` all that was measured: int64[starts], ns."""
    found: dict[str, list[list[NDArray[np.int64]]]] = defaultdict(lambda: [[] for _ in LATENCIES])
    for source in find_sources(list(paths)):
        graph = build_graph(observe_host(build_timeline(read_trace(source))))
        index, latency_ns = shown_latencies(graph.host, graph.binding)
        is_sync = graph.kind == EdgeKind.SYNC
        of_gpu = found[_gpu(graph)]
        of_gpu[AWAITED].append(
            wake_up_ns(graph.host, graph.source_id[is_sync], graph.target_id[is_sync])
        )
        for number in np.unique(index).tolist():
            of_gpu[number].append(latency_ns[index == number])
    return {
        gpu: [np.concatenate([np.zeros(0, np.int64), *of_latency]) for of_latency in of_gpu]
        for gpu, of_gpu in found.items()
    }


def typical_ns(samples: Sequence[NDArray[np.int64]], number: int) -> int:
    """The median of one of `LATENCIES`; of few starts that of all that are counted alike."""
    starts_ns = samples[number]
    if len(starts_ns) < MIN_STARTS:
        since = LATENCIES[number].since
        starts_ns = np.concatenate(
            [
                of_latency
                for latency, of_latency in zip(LATENCIES, samples, strict=True)
                if latency.since == since
            ]
        )
    return lower_median(starts_ns)


def delays(paths: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How long starts came after the last constraint that the file shows, late ones included.

    Without copies that the host waits for.

    Returns:
        int64[starts], ns; and int64[n, 2], ns: of those whose launch was called before all else was
        over and returned after, how long they came after the return, and after all else.
    """
    after_last, after_both = [], []
    for source in find_sources(list(paths)):
        graph = build_graph(observe_host(build_timeline(read_trace(source))))
        timeline, binding = graph.host.timeline, graph.binding
        others_ns = np.maximum(binding.stream_ns, binding.event_ns)
        met_ns = np.maximum(others_ns, binding.launch_ns)
        is_blocking = np.isin(timeline.launch_id, graph.host.blocking_calls.event_id)
        is_launched = (timeline.launch_id != ABSENT) & ~is_blocking
        after_last.append((timeline.start_ns - met_ns)[is_launched])
        call_ns = timeline.trace.start_ns[timeline.launch_id]
        is_between = is_launched & (timeline.kind == Kind.COMPUTE) & ~timeline.overlaps_previous
        is_between &= (call_ns <= others_ns) & (others_ns < binding.launch_ns)
        pairs = np.stack((timeline.start_ns - binding.launch_ns, timeline.start_ns - others_ns))
        after_both.append(pairs.T[is_between])
    return np.concatenate(after_last), np.concatenate(after_both)


def _gpu(graph: Graph) -> str:
    info = graph.host.timeline.trace.info
    return next(iter(info.device_names.values()), "not named")


def main() -> None:
    after_last, after_both = delays(sys.argv[1:] or captures())
    bounds = (0, 20_000, 30_000, 100_000, np.iinfo(np.int64).max)
    counts, _ = np.histogram(after_last, bounds)
    print(f"{len(after_last):,} starts: {counts.tolist()} up to 20, 30, 100 us after, and later")
    for name, column in zip(("the return of the call", "all else"), after_both.T, strict=True):
        shares = np.quantile(column, (0.05, 0.5, 0.99)) / 1000
        print(
            f"{len(column):,} launches in between, from {name}: 5, 50, 99 %: {shares.round(1)} us"
        )
    for gpu, samples in sorted(measure(sys.argv[1:] or captures()).items()):
        print(f"{gpu:40}{'starts':>9}{'median':>9}{'95 %':>9}{'99 %':>9}{'longest':>9}  us")
        for latency, starts_ns in zip(LATENCIES, samples, strict=True):
            if len(starts_ns):
                shares = np.quantile(starts_ns, (0.5, 0.95, 0.99, 1)) / 1000
                columns = "".join(f"{share:9.2f}" for share in shares)
                print(f"  {named(latency):38}{len(starts_ns):9,}{columns}")


def named(latency: Latency) -> str:
    """A latency in words.

    >>> named(LATENCIES[2])
    'compute, then copy'
    """
    kind = latency.kind.name.lower() if latency.kind is not None else ""
    if latency.previous is not None:
        return f"{latency.previous.name.lower()}, then {kind}"
    return {
        Since.LAUNCH: f"launch of {kind}",
        Since.EVENT: f"event, then {kind}",
        Since.AWAITED: "return of a blocking call",
        Since.NODE: "node of a graph, then the next in its stream",
    }[latency.since]


if __name__ == "__main__":
    main()
