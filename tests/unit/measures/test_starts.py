"""What activities waited for, counted, and what of it is not explained."""

from collections import Counter
from dataclasses import replace

from hypothesis import given

from tests.build.random_rows import random_rows
from tests.build.rows import US, call, graph, kernel, launch, memset, sync_row
from tests.examples import examples
from tests.reference.ticks import scaled
from tracelab.measures.starts import LatencyMetrics, latency_rows, starts
from tracelab.model.binding import Constraint


@examples(60)
@given(random_rows())
def test_rows_are_those_of_the_binding_counted_one_by_one(rows):
    made_graph = graph(*scaled(rows))
    timeline, binding = made_graph.host.timeline, made_graph.binding

    found = list(starts(made_graph, timeline.windows))

    assert [(row.step, row.device) for row in found] == [
        (window.step, device) for window in timeline.windows for device in timeline.device_numbers
    ]
    for row, window in zip(
        found, (x for x in timeline.windows for _ in timeline.device_numbers), strict=True
    ):
        here = [
            i
            for i, start in enumerate(timeline.start_ns.tolist())
            if timeline.device_number[i] == row.device and window.start_ns <= start < window.end_ns
        ]
        counts = Counter(Constraint(binding.constraint[i]).name.lower() for i in here)
        assert row.activities == len(here) == sum(row.by_constraint.values())
        assert {name: count for name, count in row.by_constraint.items() if count} == counts
        assert row.inferred == sum(bool(binding.is_inferred[i]) for i in here)
        delays = [
            (start - delay, start)
            for start, delay, device in zip(
                timeline.start_ns, binding.unexplained_ns, timeline.device_number, strict=True
            )
            if delay and device == row.device
        ]
        # Nothing is inside a step without a length.
        inside = [x for x in delays if max(x[0], window.start_ns) < min(x[1], window.end_ns)]
        assert row.unexplained == len(inside)
        assert (row.unexplained_ns > 0) == (row.unexplained_share > 0) == bool(inside)
        assert 0 <= row.unexplained_ns <= window.length_ns


def test_delays_at_once_count_once():
    # GIVEN two kernels of two streams that could have started at 3 us and did at 100 and 110; each
    # stream had waited for something that is not named, and all other work was over at 5
    rows = [
        kernel(0, 5, correlation=1),
        kernel(100, 200, correlation=2, stream=13),
        kernel(110, 200, correlation=3, stream=20),
        launch(-2, -1, 1),
        launch(1, 3, 2),
        launch(1, 3, 3),
        sync_row("Stream Wait Event", 0, 0, correlation=8, stream=13),
        sync_row("Stream Wait Event", 0, 0, correlation=9, stream=20),
    ]
    made_graph = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))

    # WHEN
    [row] = starts(made_graph, made_graph.host.timeline.windows)

    # THEN 97 us of the first, and 10 of the second until the first one ran beside it: of 200 us
    assert (row.activities, row.unexplained, row.inferred) == (3, 2, 0)
    assert (row.unexplained_ns, row.unexplained_share) == (107 * US, 0.535)
    assert row.by_constraint["unknown"] == 2


def test_rows_of_what_the_trace_shows():
    # GIVEN 21 kernels of 10 us that were launched long before, 3 us after the one before each; a
    # memset 1 us after the last, and a call that returned 4 us after all that
    rows = []
    for i in range(21):
        begin = 100 * US + i * 13 * US
        rows += [kernel(begin, begin + 10 * US, correlation=i), launch(i, i + 1, i)]
    end = 100 * US + 20 * 13 * US + 10 * US
    rows += [memset(end + US, end + 2 * US, correlation=50), launch(30, 31, 50)]
    rows += [call("cudaStreamSynchronize", 40, end + 6 * US)]
    made_graph = graph(*rows)

    # WHEN
    found = list(latency_rows(made_graph, made_graph.host.timeline.windows))

    # THEN the first kernel waited for its launch, for 100 us: late, but it is the only one
    assert found == [
        LatencyMetrics(0, None, "previous", "compute", "compute", 3 * US, 20, True),
        LatencyMetrics(0, None, "previous", "compute", "memset", 1_536, 1, False),
        LatencyMetrics(0, None, "launch", None, "compute", 2_112, 1, False),
        LatencyMetrics(0, None, "awaited", None, None, 4_923, 1, False),
    ]
