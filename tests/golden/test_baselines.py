"""The replay of unchanged steps against the measured ones, on real captures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bundled_traces import PATHS, name_of, shared
from tests.shared_traces import PATHS as REAL_PATHS, needs_real_traces
from tracelab.base.options import DEFAULTS
from tracelab.measures.measured import order
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.trace import ABSENT
from tracelab.read.reader import read_trace
from tracelab.simulate.program import NodeKind
from tracelab.simulate.recorded import record_program, repeat, typical_steps
from tracelab.simulate.replay import replay

LARGEST = 0.02, 0.01  # of the replayed step, and of the starts in it, as shares of the step


@shared
def errors_of(path: Path) -> tuple[float, float] | None:
    """By how much the replayed step is off, and the median start in it, as shares of the step.

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


def check(paths):
    errors = np.array([errors for path in paths if (errors := errors_of(path)) is not None])
    assert (np.mean(errors <= LARGEST, axis=0) >= 0.9).all()


# Captures that replay worse: most are replays of CUDA graphs, whose nodes the profiler slows.
OFF = {
    "accumulation_no_sync_rank0",
    "data_parallel_one_gpu",
    "graphs_decoded_whole",
    "graphs_parts",
    "graphs_recorded_once",
    "graphs_whole",
    "graphs_work_seldom",
    "launches_graph",
    "memory_reserved",  # steps of 0.1 to 0.3 ms
    "peer_copy_both",
    "prefetch_copy_stream_synchronize",
    "recompiled_any_length",  # two steps of 0.18 ms: 5 µs
    "two_streams_small_graph",
}


def test_capture_replays_as_it_was(bundled_path):
    errors = errors_of(bundled_path)
    assert (name_of(bundled_path) in OFF) == bool(np.any(np.greater(errors, LARGEST)))


@pytest.mark.whole_corpus
def test_most_captures_replay_as_they_were():
    check(PATHS)


@needs_real_traces
@pytest.mark.whole_corpus
def test_so_do_those_and_the_traces_from_elsewhere_together():
    check([*PATHS, *REAL_PATHS])
