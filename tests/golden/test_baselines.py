"""The replay of unchanged steps against what was measured, on real captures."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from tests.bundled_traces import PATHS
from tests.shared_traces import PATHS as REAL_PATHS, needs_real_traces
from tracelab.analysis import order
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.trace import ABSENT
from tracelab.options import DEFAULTS
from tracelab.read.reader import read_trace
from tracelab.simulate.program import NodeKind
from tracelab.simulate.recorded import record_program
from tracelab.simulate.repeat import repeat, typical_steps
from tracelab.simulate.replay import replay


@cache
def replayed(path: Path) -> tuple[float, float] | None:
    """By how much the replayed step is off, and starts in it in the median, as shares of the step.

    None for a file without steps or launches.
    """
    graph = build_graph(observe_host(order(read_trace(path), DEFAULTS)))
    timeline = graph.host.timeline
    recorded = record_program(graph)
    steps = typical_steps(timeline, len(recorded.program))
    if steps is None or not (timeline.launch_id != ABSENT).any():
        return None
    program = repeat(graph, recorded, *steps)
    replayed = replay([program])
    measured_ns = program.length_ns / program.steps
    is_activity = program.kind == NodeKind.ACTIVITY
    shift_ns = replayed.time_ns[is_activity, 0] - program.moment_ns[is_activity]
    apart_ns = np.median(np.abs(shift_ns - np.median(shift_ns)))
    return abs(replayed.step_ns[0] / measured_ns - 1), apart_ns / measured_ns


def check(paths: list[Path]) -> None:
    errors = [error for path in paths if (error := replayed(path)) is not None]
    assert errors
    assert np.mean([of_step <= 0.02 for of_step, _ in errors]) >= 0.9
    # Starts within 1 % of the step, in the median trace as in most.
    assert np.mean([of_starts <= 0.01 for _, of_starts in errors]) >= 0.9


def test_bundled_captures_replay_as_they_were():
    check(PATHS)


@needs_real_traces
def test_so_do_those_and_the_traces_from_elsewhere_together():
    check([*PATHS, *REAL_PATHS])
