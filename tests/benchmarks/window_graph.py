"""How large a window the networkx view is for: ``python tests/benchmarks/window_graph.py FILE``.

Builds the graph of longer and longer parts of one trace, each in a process of its own, and prints
its size, the time that building it took and by how much the process grew.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from multiprocessing import get_context

from tracelab.model.graph import build_graph, window_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.read.cache import load_trace
from tracelab.read.streams import Source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("--parts", type=float, nargs="+", default=[0.01, 0.1, 0.5, 1])
    arguments = parser.parse_args()
    print(f"{'nodes':>10} {'edges':>10} {'seconds':>9} {'MB':>7}")
    for part in arguments.parts:
        with get_context("spawn").Pool(1) as pool:
            nodes, edges, seconds, megabytes = pool.apply(measure, (arguments.trace, part))
        print(f"{nodes:10,} {edges:10,} {seconds:9.2f} {megabytes:7.0f}")


def measure(path: str, part: float) -> tuple[int, int, float, float]:
    """Nodes, edges, seconds and MB of the graph of the first part of a trace."""
    timeline = build_timeline(load_trace(Source(path, None, named=True)))
    graph = build_graph(observe_host(timeline))
    window = timeline.windows[0]
    before, begun = _peak_mb(), time.perf_counter()
    found = window_graph(graph, window.start_ns, window.start_ns + int(part * window.length_ns))
    seconds = time.perf_counter() - begun
    return found.number_of_nodes(), found.number_of_edges(), seconds, _peak_mb() - before


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
