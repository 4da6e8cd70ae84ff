"""What each activity waited for. Times of hand-made traces are microseconds."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.build.random_rows import random_rows
from tests.build.rows import graph
from tests.reference.binding import Bindings
from tests.reference.ticks import beside_allocations
from tracelab import build_graph, build_timeline, find_sources, observe_host, read_trace
from tracelab.model.latencies import LATENCIES
from tracelab.model.stream_progress import StreamProgress
from tracelab.model.stream_queues import StreamQueues
from tracelab.model.stream_waits import resolve_waits
from tracelab.model.trace import ABSENT

TRACES = sorted((Path(__file__).parents[3] / "traces").glob("*.json.gz"))


def difference(made_graph):
    """The rows, the product's and the slow model's, in which the two do not agree."""
    timeline, binding = made_graph.host.timeline, made_graph.binding
    queues = StreamQueues(timeline)
    expected = Bindings(
        made_graph, resolve_waits(timeline, queues, StreamProgress(timeline, queues))
    )
    columns = (
        binding.launch_ns,
        binding.stream_ns,
        binding.event_ns,
        binding.constraint,
        binding.source_row,
        binding.is_inferred,
        binding.ready_ns,
        binding.delay_ns,
        binding.unexplained_ns,
        binding.reason,
    )
    found = zip(*(column.tolist() for column in columns), strict=True)
    wanted = [
        tuple(ABSENT if value is None else value for value in vars(bound).values())
        for bound in expected.bound
    ]
    typical = [expected.typical[x.since, x.previous, x.kind] for x in LATENCIES]
    own = [(x.since, x.previous, x.kind) in expected.is_own for x in LATENCIES]
    assert binding.latencies.typical_ns.tolist() == typical
    assert binding.latencies.is_own.tolist() == own
    return [
        (row, *pair)
        for row, pair in enumerate(zip(found, wanted, strict=True))
        if pair[0] != pair[1]
    ]


@pytest.mark.parametrize("unit", [1_000, 4_000, 10_000])  # ns; within latencies, and past them
@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.one_of(random_rows(), beside_allocations(random_rows())))
def test_binding_is_that_of_a_slow_account(unit, rows):
    in_ns = [replace(row, start=row.start * unit, end=row.end * unit) for row in rows]

    assert difference(graph(*in_ns)) == []


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_binding_of_bundled_traces_is_that_of_a_slow_account(path):
    [source] = find_sources([str(path)])

    assert difference(build_graph(observe_host(build_timeline(read_trace(source))))) == []
