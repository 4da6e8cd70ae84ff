"""Thousands of streams: only the busiest are compared with each other, and that is told."""

from __future__ import annotations

from itertools import combinations
from unittest import mock

import numpy as np
import pytest

from tests.build.files import annotation, copy as copy_event, kernel as kernel_event, launch, write
from tests.build.rows import US, comm, copy, graph, kernel, memset
from tracelab import Options, analyze
from tracelab.measures import overlap
from tracelab.measures.graph_streams import MAX_COMPARED_STREAMS, compared_streams
from tracelab.measures.overlap import overlaps
from tracelab.render.first_screen import first_screen

MANY = MAX_COMPARED_STREAMS + 8


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
    rows = [kernel(0, i + 1, stream=i) for i in range(MANY)]
    names = stream_names(range(8, MANY))
    assert pairs_of_streams(overlaps(graph(*rows))) == set(combinations(names, 2))


def test_one_stream_of_each_device_and_kind_is_among_them():
    # 40 busy streams compute; of the others each does some other work for 1 ns, or less of it.
    busy = [kernel(0, 100 + i, stream=i) for i in range(MANY)]
    others = [
        comm(0, 2, stream=100),
        comm(0, 1, stream=101),
        copy(0, 1, stream=102),
        memset(0, 1, stream=103),
        kernel(0, 1, device=1, stream=104),
    ]
    compared = compared_streams(graph(*busy, *others).host.timeline)
    numbers = [(stream.device_number, stream.stream_number) for stream in compared]
    assert len(numbers) == MAX_COMPARED_STREAMS
    assert {(0, 100), (0, 102), (0, 103), (1, 104)} <= set(numbers)
    assert (0, 101) not in numbers
    # Beside these four there is room for the 28 that compute longest.
    assert [n for d, n in numbers if n < 100] == list(range(MANY - 28, MANY))


def test_all_of_them_on_request():
    rows = [kernel(0, i + 1, stream=i) for i in range(MANY)]
    names = stream_names(range(MANY))
    measured = overlaps(graph(*rows), all_pairs=True)
    assert pairs_of_streams(measured) == set(combinations(names, 2))


@pytest.fixture
def trace(tmp_path):
    """Two steps: all streams work in the first, streams 0 to 9 in the second."""
    events = [
        annotation("ProfilerStep#0", 0, 500 * US),
        annotation("ProfilerStep#1", 500 * US, 1000 * US),
    ]
    for i in range(MANY + 10):
        stream, begin = (i, i) if i < MANY else (i - MANY, 500 + i)
        events += [
            launch(begin * US, begin * US + 500, i + 1),
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
    count = MANY * (MANY - 1) // 2
    assert sum(row.a.startswith("stream:") for row in whole.overlaps) == 2 * count + 45


def test_streams_that_did_nothing_in_a_step_are_not_listed_there(trace):
    whole, first, second = (window.devices[0].streams for window in analyze(trace).windows)
    assert [x.stream for x in whole] == [x.stream for x in first] == list(range(MANY))
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
                launch(i * US, i * US + 500, i + 1),
                make((i + 1) * US, (i + 9) * US, stream=i, correlation=i + 1),
            ]
        path = write(tmp_path / f"{streams}.json", events)
        with mock.patch.object(overlap, "intersect", wraps=overlap.intersect) as intersect:
            report = analyze(path)
        rows = sum(map(len, report.tables.values()))
        counts.append((intersect.call_count, rows, len(report.to_json())))
    assert np.all(np.array(counts[1]) < 2.5 * np.array(counts[0]))
