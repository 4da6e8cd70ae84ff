"""How fast a replay is, and how much memory it takes: ``python tests/benchmarks/replay_speed.py``.

A bundled capture is repeated until it has 20,000 GPU activities (its own host events with them).
Programs of a quarter, half and all of them are replayed: one program, then 64 of which each has
other costs. Times are the best of some rounds; what to look at is their ratios, and that a figure
per activity stays the same as programs grow.
"""

from __future__ import annotations

import argparse
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import TypeVar

import numpy as np

from tests.benchmarks.large_traces import STACKS, repeat as repeat_file
from tracelab.model.graph import Graph, build_graph
from tracelab.model.host import observe_host
from tracelab.model.timeline import build_timeline
from tracelab.read.reader import read_trace
from tracelab.read.streams import Source
from tracelab.simulate.baseline import find_baseline
from tracelab.simulate.causal_profile import KERNEL, LINE, OPERATOR, causal_profile
from tracelab.simulate.program import NodeKind, Program
from tracelab.simulate.recorded import record_program, repeat
from tracelab.simulate.replay import replay
from tracelab.simulate.sites import Sites

Result = TypeVar("Result")

EDITS = 64
BYTES_PER_ACTIVITY = 5_300  # of the file of STACKS, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--activities", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    graph = large_graph(arguments.activities)
    timeline = graph.host.timeline
    activities, events = len(timeline.event_id), len(timeline.trace)
    print(f"{activities:,} GPU activities, {events - activities:,} host events\n")
    recorded_s, recorded = best(lambda: record_program(graph), 1)
    steps = len(timeline.steps)
    print(
        "| activities | one program, s | 64 programs, s | of one | one, us an activity | "
        "64, us an activity and program | one, B an activity | 64, B an activity and program |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for part in (4, 2, 1):
        program = repeat(graph, recorded, 1, max(steps // part - 1, 1))
        print(f"| {' | '.join(row(program, arguments.rounds))} |")
    print(f"\nprogram of the file: {recorded_s:.2f} s")
    baseline_s, baseline = best(lambda: find_baseline(graph), 1)
    print(f"baseline with it: {baseline_s:.2f} s")
    if baseline.program is not None:
        for by in (LINE, OPERATOR, KERNEL):
            sites = Sites(graph, None, baseline.program)
            profile_s, rows = best(partial(causal_profile, baseline, sites, by), 1)
            print(f"causal profile by {by}, {len(rows)} rows: {profile_s:.2f} s")


def large_graph(activities: int) -> Graph:
    """The graph of a capture that is repeated."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        repeat_file(STACKS, activities * BYTES_PER_ACTIVITY, path)
        return build_graph(
            observe_host(build_timeline(read_trace(Source(str(path), None, named=True))))
        )


def row(program: Program, rounds: int) -> list[str]:
    """The cells of one program."""
    generator = np.random.default_rng(0)
    edited = [
        replace(
            program, cost_ns=np.where(generator.random(len(program)) < 0.05, 0, program.cost_ns)
        )
        for _ in range(EDITS - 1)
    ]
    activities = int((program.kind == NodeKind.ACTIVITY).sum())
    one_s, _ = best(lambda: replay([program]), rounds)
    many_s, _ = best(lambda: replay([program, *edited]), rounds)
    one_bytes = peak_bytes(lambda: replay([program]))
    many_bytes = peak_bytes(lambda: replay([program, *edited]))
    return [
        f"{activities:,}",
        f"{one_s:.3f}",
        f"{many_s:.3f}",
        f"{many_s / one_s:.1f}",
        f"{1e6 * one_s / activities:.2f}",
        f"{1e6 * many_s / activities / EDITS:.3f}",
        f"{one_bytes / activities:,.0f}",
        f"{many_bytes / activities / EDITS:,.0f}",
    ]


def best(function: Callable[[], Result], rounds: int) -> tuple[float, Result]:
    """The least time of this process in seconds, and the result."""
    times = []
    for _ in range(rounds):
        begun = process_time()
        result = function()
        times.append(process_time() - begun)
    return min(times), result


def peak_bytes(function: Callable[[], object]) -> int:
    """The most memory that arrays took at once."""
    tracemalloc.start()
    function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
