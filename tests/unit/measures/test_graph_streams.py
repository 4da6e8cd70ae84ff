"""Hundreds of nearly empty streams of CUDA graphs: found by what they are, and measured as one."""

from __future__ import annotations

from itertools import combinations
from unittest import mock

import numpy as np
import pytest

from tests.build.files import (
    annotation,
    copy as copy_event,
    kernel as kernel_event,
    launch as launch_event,
    read,
    write,
)
from tests.build.graph_rows import FIRST_STREAM, replayed
from tests.build.rows import US, Node, graph, kernel, launch
from tracelab import analyze
from tracelab.base.intervals import measure
from tracelab.base.options import Options
from tracelab.measures import overlap
from tracelab.measures.overlap import (
    MAX_COMPARED_STREAMS,
    MIN_STREAMS,
    GraphStreamsTime,
    device_times,
    graph_streams,
    overlaps,
)
from tracelab.model.timeline import build_timeline
from tracelab.render.first_screen import first_screen

MANY = MIN_STREAMS + 4


def replay(*nodes, name="cudaGraphLaunch", others=()):
    """A replay whose nodes are (stream, start, end), and a kernel of 10,000 ns in stream 7."""
    rows = [kernel(start, end, stream=stream, correlation=2) for stream, start, end in nodes]
    return graph(
        launch(0, 10, 1),
        launch(10, 20, 2, name=name),
        kernel(100, 10_100, stream=7, correlation=1),
        *rows,
        *others,
    )


def small_nodes(count):
    return [(100 + i, 11_000 + 10 * i, 11_005 + 10 * i) for i in range(count)]


def test_many_nearly_empty_streams_of_replays_are_shown_as_one():
    timeline = replay(*small_nodes(MANY)).host.timeline
    [found] = graph_streams(timeline)
    assert found.device_number == 0
    numbers = [timeline.streams[index].stream_number for index in found.stream_index]
    assert numbers == list(range(100, 100 + MANY))
    assert timeline.start_ns[found.row].tolist() == [11_000 + 10 * i for i in range(MANY)]
    assert measure(found.busy(timeline)) == 5 * MANY


@pytest.mark.parametrize(
    "dependencies",
    [
        pytest.param(replay(*small_nodes(MIN_STREAMS - 1)), id="few enough to be read"),
        pytest.param(replay(*small_nodes(MANY), name="cudaLaunchKernel"), id="no replay"),
        pytest.param(
            # All at the same time, so that each is busy for 4,000 of the device's 14,000 ns.
            replay(*((100 + i, 11_000, 15_000) for i in range(MANY))),
            id="busy streams",
        ),
    ],
)
def test_other_streams_are_rows_of_their_own(dependencies):
    assert graph_streams(dependencies.host.timeline) == ()


def test_nodes_are_known_without_their_launch():
    """GIVEN nodes of a graph that the file calls so, without the call that launched them."""
    nodes = [
        kernel(start, end, stream=stream, node=Node()) for stream, start, end in small_nodes(MANY)
    ]
    timeline = graph(launch(0, 10, 1), kernel(100, 10_100, correlation=1), *nodes).host.timeline
    [found] = graph_streams(timeline)
    assert len(found.stream_index) == MANY


def test_a_stream_that_matters_by_itself_stays_so():
    # Stream 90 is busy for 2,000 of about 12,100 ns; stream 91 has as many kernels of the program.
    timeline = replay(
        *small_nodes(MANY),
        (90, 12_000, 14_000),
        (91, 11_000, 11_005),
        others=[launch(20, 30, 3), kernel(14_000, 14_005, stream=91, correlation=3)],
    ).host.timeline
    [found] = graph_streams(timeline)
    numbers = [timeline.streams[index].stream_number for index in found.stream_index]
    assert numbers == list(range(100, 100 + MANY))


def test_each_device_by_itself():
    """GIVEN one device with enough of such streams and one with fewer THEN only the first's are."""
    others = [
        kernel(11_000 + 10 * i, 11_005 + 10 * i, device=1, stream=200 + i, correlation=2)
        for i in range(MIN_STREAMS - 1)
    ]
    [found] = graph_streams(replay(*small_nodes(MANY), others=others).host.timeline)
    assert found.device_number == 0


def test_the_union_is_exact_and_the_overlap_table_has_it_as_one_side():
    # Each next one begins 2 ns before the one before it ends: 5 + (MANY - 1) * 3 ns together.
    nodes = [(100 + i, 10_000 + 3 * i, 10_005 + 3 * i) for i in range(MANY)]
    dependencies = replay(*nodes)
    [[device]] = device_times(dependencies)
    together_ns = 5 + (MANY - 1) * 3
    streams = tuple(range(100, 100 + MANY))
    assert device.graph_streams == GraphStreamsTime(streams, together_ns, MANY)
    # Stream 7 runs until 10,100, so that all of it is beside it.
    pairs = [row for row in overlaps(dependencies) if row.a.startswith("stream:")]
    assert [(x.a, x.b, x.a_ns, x.b_ns, x.overlap_ns) for x in pairs] == [
        ("stream:0/7", "stream:0/graphs", 10_000, together_ns, together_ns)
    ]


@pytest.mark.slow
def test_a_report_keeps_every_stream_and_loses_none(tmp_path):
    """GIVEN 300 streams with two nodes of each of 20 replays
    THEN none is left out of the overlap table, each is in the JSON, and pairs of them on request.
    """
    path = write(tmp_path / "replays.json", replayed())
    report = analyze(path)
    assert "streams_not_compared" not in report.traces[0].losses
    whole, *steps = (window.devices[0] for window in report.windows)
    numbers = tuple(range(FIRST_STREAM, FIRST_STREAM + 300))
    # The six nodes that begin every 4 us cover it, and the last 1.5 us after it: 401.5 us a step.
    assert whole.graph_streams == GraphStreamsTime(numbers, 20 * 401_500, 12_000)
    assert [x.graph_streams for x in steps] == [GraphStreamsTime(numbers, 401_500, 600)] * 20
    assert [x.stream for x in whole.streams] == [7, 8, *numbers]
    pairs = {(x.a, x.b) for x in report.overlaps if x.a.startswith("stream:")}
    assert pairs == {
        ("stream:0/7", "stream:0/8"),
        ("stream:0/7", "stream:0/graphs"),
        ("stream:0/8", "stream:0/graphs"),
    }


def test_every_pair_is_compared_on_request(tmp_path):
    path = write(tmp_path / "replays.json", replayed(streams=100, replays=2))
    timeline = build_timeline(read(path))
    assert len(graph_streams(timeline)) == 1
    whole = [x for x in analyze(path, Options(all_pairs=True)).overlaps if x.step is None]
    sides = {x.a for x in whole if x.a.startswith("stream:")} | {
        x.b for x in whole if x.b.startswith("stream:")
    }
    assert sides == {f"stream:0/{stream.stream_number}" for stream in timeline.streams}


# --- the busiest of thousands of streams ---

MANY_COMPARED = MAX_COMPARED_STREAMS + 8


def pairs_of_streams(rows):
    return {(row.a, row.b) for row in rows if row.a.startswith("stream:")}


def stream_names(numbers, device=0):
    return [f"stream:{device}/{number}" for number in numbers]


def test_as_many_as_may_be_are_all_compared():
    rows = [kernel(0, 10, stream=i) for i in range(MAX_COMPARED_STREAMS)]
    names = stream_names(range(MAX_COMPARED_STREAMS))
    pairs = pairs_of_streams(overlaps(graph(*rows)))
    assert pairs == set(combinations(names, 2))
    assert len(pairs) == 496


def test_of_more_the_busiest_are():
    # Stream i is busy for i + 1 ns: the first eight are left out.
    rows = [kernel(0, i + 1, stream=i) for i in range(MANY_COMPARED)]
    names = stream_names(range(8, MANY_COMPARED))
    assert pairs_of_streams(overlaps(graph(*rows))) == set(combinations(names, 2))


def test_all_of_them_on_request():
    rows = [kernel(0, i + 1, stream=i) for i in range(MANY_COMPARED)]
    names = stream_names(range(MANY_COMPARED))
    measured = overlaps(graph(*rows), all_pairs=True)
    assert pairs_of_streams(measured) == set(combinations(names, 2))


@pytest.fixture
def trace(tmp_path):
    """Two steps: all streams work in the first, streams 0 to 9 in the second."""
    events = [
        annotation("ProfilerStep#0", 0, 500 * US),
        annotation("ProfilerStep#1", 500 * US, 1000 * US),
    ]
    for i in range(MANY_COMPARED + 10):
        stream, begin = (i, i) if i < MANY_COMPARED else (i - MANY_COMPARED, 500 + i)
        events += [
            launch_event(begin * US, begin * US + 500, i + 1),
            kernel_event((begin + 1) * US, (begin + 9) * US, stream=stream, correlation=i + 1),
        ]
    return write(tmp_path / "many.json", events)


def test_what_is_left_out_is_told_and_how_to_have_it(tracelab, trace):
    report = analyze(trace)
    assert report.traces[0].losses["streams_not_compared"] == 8
    left_out = "streams left out of the overlap table, which compares only the busiest streams"
    notes = first_screen(report).notes
    assert [note.is_warning for note in notes if note.text == f"8 {left_out}"] == [False]
    printed = tracelab("analyze", trace, "--full").out
    assert f"8 {left_out} (--all-pairs has all)" in " ".join(printed.split())
    printed = tracelab("analyze", trace, "--full", "--all-pairs").out
    assert "left out of the overlap table" not in printed
    whole = analyze(trace, Options(all_pairs=True))
    assert not whole.traces[0].losses
    # Every pair of the whole trace, of the first step, and of the ten streams of the second.
    count = MANY_COMPARED * (MANY_COMPARED - 1) // 2
    assert sum(row.a.startswith("stream:") for row in whole.overlaps) == 2 * count + 45


def test_streams_that_did_nothing_in_a_step_are_not_listed_there(trace):
    whole, first, second = (window.devices[0].streams for window in analyze(trace).windows)
    assert [x.stream for x in whole] == [x.stream for x in first] == list(range(MANY_COMPARED))
    assert [(x.stream, x.activities) for x in second] == [(i, 1) for i in range(10)]


def test_the_cost_of_streams_is_not_that_of_their_pairs(tmp_path):
    """GIVEN 600 and 1,200 streams, with as many activities each
    THEN twice as many streams cost twice the comparisons and rows, not four times."""
    counts = []
    for streams in (600, 1200):
        events = []
        for i in range(streams):
            make = copy_event if i % 3 == 0 else kernel_event
            events += [
                launch_event(i * US, i * US + 500, i + 1),
                make((i + 1) * US, (i + 9) * US, stream=i, correlation=i + 1),
            ]
        path = write(tmp_path / f"{streams}.json", events)
        with mock.patch.object(overlap, "intersect", wraps=overlap.intersect) as intersect:
            report = analyze(path)
        rows = sum(map(len, report.tables.values()))
        counts.append((intersect.call_count, rows, len(report.to_json())))
    assert np.all(np.array(counts[1]) < 2.5 * np.array(counts[0]))
