"""Which captures are calibrated, and why the others are not.

    python -m tests.benchmarks.calibrations [FILE ...]

Each capture whose plain step was timed is replayed without the profiler; without arguments every
bundled one. What the host and the step took is compared with the replay, and where that is off by
more than 2 % of the step, predictions are of the step with the profiler.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.bundled_traces import PATHS
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.read.reader import read_trace_in_chunks
from tracelab.simulate.baseline import Baseline, find_baseline

HEAD = "| capture | profiled | plain | host | block | event us | host off | step off | why not |"


def main() -> None:
    rows = list(table(map(Path, sys.argv[1:]) if sys.argv[1:] else PATHS))
    print(f"{sum(why == '' for why in rows)} of {len(rows)} are calibrated")


def table(paths: Iterable[Path]) -> Iterable[str]:
    """Print a row of each capture whose plain step was timed; why it is not calibrated."""
    print(HEAD)
    print("|---" * HEAD.count(" | ") + "|---|")
    for path in paths:
        graph = _graph_of(path)
        info = graph.host.timeline.trace.info
        if info.unprofiled_step_ns is None or info.unprofiled_host_step_ns is None:
            continue
        baseline = find_baseline(graph)
        why = baseline.not_calibrated or baseline.not_replayed or ""
        print(_row(path, graph, baseline, why), flush=True)
        yield why


def _row(path: Path, graph: Graph, baseline: Baseline, why: str) -> str:
    info, calibration = graph.host.timeline.trace.info, baseline.calibration
    timed_ns, host_ns = info.unprofiled_step_ns, info.unprofiled_host_step_ns
    assert timed_ns is not None
    assert host_ns is not None
    cells = [
        path.name.removesuffix(".pt.trace.json.gz"),
        f"{(baseline.step_ns or 0) / 1e6:.3f}",
        f"{timed_ns / 1e6:.3f}",
        f"{host_ns / 1e6:.3f}",
        f"{info.unprofiled_block_steps}",
        "" if calibration is None else f"{calibration.event_ns / 1e3:.2f}",
        "" if calibration is None else f"{(calibration.host_ns - host_ns) / timed_ns:+.1%}",
        "" if calibration is None else f"{calibration.step_ns / timed_ns - 1:+.1%}",
        why,
    ]
    return f"| {' | '.join(cells)} |"


def _graph_of(path: Path) -> Graph:
    return build_graph(observe_host(build_timeline(read_trace_in_chunks(str(path), 1))))


if __name__ == "__main__":
    main()
