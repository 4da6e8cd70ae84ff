"""How much work a trace makes: counted, because seconds differ from machine to machine.

Each bound is some way above what was counted when it was set, and far below what a loop over all
events in Python, or one more copy of them, would make of it.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc

import numpy as np
import pytest

from tests.benchmarks.large_traces import PLAIN, STACKS, repeat
from tests.build.crowds import CROWDS, crowd
from tests.build.files import write
from tracelab import analyze
from tracelab.analysis.analysis import analyze_source
from tracelab.base.options import Options
from tracelab.model.lookup import first_around
from tracelab.model.trace import GPU_ACTIVITIES
from tracelab.read import cache
from tracelab.read.reader import read_trace
from tracelab.read.streams import Source


@pytest.fixture(
    scope="module",
    params=[PLAIN, pytest.param(STACKS, marks=pytest.mark.slow)],
    ids=["operators", "stacks"],
)
def sources(request, tmp_path_factory):
    """The same program recorded for a while, and for four times as long."""
    once, longer = (tmp_path_factory.mktemp("work") / name for name in ("once", "longer"))
    repeat(request.param, 1, once)
    repeat(request.param, 4 * once.stat().st_size, longer)
    return [Source(str(path), None, named=True) for path in (once, longer)]


def calls_in(function, *arguments):
    """How many functions Python called, its own and the interpreter's, and what came out."""
    calls = 0

    def count(_frame, event, _):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(None)
    return calls, result


def for_one_more(counted):
    """What one more of the second number costs of the first, from the short trace to the long."""
    (once, few), (longer, many) = counted
    return (longer - once) / (many - few)


def test_reading_decodes_many_events_a_call(sources):
    """A loop that calls anything for each event would be at one at least."""
    counted = []
    for source in sources:
        calls, trace = calls_in(read_trace, source)
        counted.append((calls, trace.objects))
    assert for_one_more(counted) < 0.5  # 0.23 and 0.25 when this was set


@pytest.mark.slow
def test_the_analysis_calls_little_for_a_gpu_activity(sources):
    """They are a twelfth of the events, so one call for each event would be twelve more."""
    analyze_source(sources[0], Options(cache=False))  # imports, and what is worked out once
    counted = []
    for source in sources:
        reading, trace = calls_in(read_trace, source)
        calls, _ = calls_in(analyze_source, source, Options(cache=False))
        counted.append((calls - reading, len(trace.of_category(*GPU_ACTIVITIES))))
    # 40.4 with operators: steps are replayed for the findings, and once more as they were recorded;
    # more remedies look at what was called (34.7 before them).
    assert for_one_more(counted) < 44


def test_an_event_takes_a_few_words_of_memory(sources):
    """At the peak of reading, beside what any trace takes."""
    counted = []
    for source in sources:
        gc.collect()
        tracemalloc.start()
        trace = read_trace(source)
        counted.append((tracemalloc.get_traced_memory()[1], len(trace)))
        tracemalloc.stop()
    # 58 bytes, 9 of them for the ends of arrows, by which lost work is told.
    assert for_one_more(counted) < 65


@pytest.mark.slow
def test_what_was_kept_is_opened_without_copying_it(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(cache, "MIN_FILE_BYTES", 0)
    monkeypatch.setattr(cache, "_BLOCK_BYTES", 1 << 16)  # in memory while the file is known again
    counted = []
    for source in sources:
        cache.load_trace(source)
        gc.collect()
        tracemalloc.start()
        trace = cache.load_trace(source)
        counted.append((tracemalloc.get_traced_memory()[1], len(trace)))
        tracemalloc.stop()
    assert for_one_more(counted) < 20  # bytes; 10 and 8, and the columns take 33 at least


# With very many devices, threads or process groups. Four times as many take about four times the
# calls, and the memory too.


def grown(measure, tmp_path, name, few):
    """How much more four times as many of a crowd make of a measure of a trace."""
    analyze(write(tmp_path / "first.json", crowd(name, 4)), Options(cache=False))
    once, more = (
        measure(write(tmp_path / f"{count}.json", crowd(name, count))) for count in (few, 4 * few)
    )
    return more / once


@pytest.mark.parametrize("name", CROWDS)
def test_calls_grow_with_a_crowd(tmp_path, name):
    def calls(path):
        return calls_in(analyze, path, Options(cache=False))[0]

    assert grown(calls, tmp_path, name, 25) < 4


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("threads", 1_200),  # 1,030; 1,760 when each was replayed alone
        ("devices", 9_500),  # 8,830; 16,700 when each was searched for what others have
    ],
)
def test_one_more_takes_few_calls(tmp_path, name, most):
    """It has three events in each of the four steps."""
    analyze(write(tmp_path / "first.json", crowd(name, 4)), Options(cache=False))
    counted = []
    for count in (25, 100):
        path = write(tmp_path / f"{count}.json", crowd(name, count))
        counted.append((calls_in(analyze, path, Options(cache=False))[0], count))
    assert for_one_more(counted) < most


def test_2_000_devices_that_wait_for_one_thread_share_its_pieces(tmp_path):
    """There were a thousand pieces for each event when each device had its own."""
    path = write(tmp_path / "trace.json", crowd("devices", 2_000))

    analysis = analyze_source(path, Options(cache=False))

    assert len(analysis.bubbles.cause) < 2 * len(analysis.trace)
    assert len(analysis.bubbles.first) < 2 * len(analysis.trace)


@pytest.mark.parametrize("name", CROWDS)
def test_memory_grows_with_a_crowd(tmp_path, name):
    def peak(path):
        gc.collect()
        tracemalloc.start()
        analyze(path, Options(cache=False))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    assert grown(peak, tmp_path, name, 100) < 3  # 2.0; 4.0 when all was kept for each thread


def test_threads_side_by_side_take_no_memory_for_each_two():
    """All work at all moments: what each does then would be the square of them."""
    count = 2_000
    start_ns = np.arange(count)
    tracemalloc.start()
    found = first_around(start_ns, start_ns + 2 * count, start_ns + count)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found == 0).all()
    assert peak_bytes < 200 * count  # 81; 8 of each two


class Counted(np.ndarray):
    """A column that counts the numbers that NumPy's functions look at."""

    looked_at = 0

    def __array_ufunc__(self, function, method, *inputs, **options):
        Counted.looked_at += max(np.size(x) for x in inputs)
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        return getattr(function, method)(*plain, **options)


@pytest.mark.parametrize("name", ["devices", "devices with peer copies"])
def test_bubbles_are_looked_at_as_often_whatever_the_devices(tmp_path, name):
    """A loop over all of them for each device would look at each four times as often."""

    def looked_at(path):
        analysis = analyze_source(path, Options(cache=False))
        bubbles = analysis.bubbles
        vars(analysis)["bubbles"] = type(bubbles)(
            *(getattr(bubbles, name).view(Counted) for name in bubbles.__struct_fields__)
        )
        Counted.looked_at = 0
        assert analysis.report.windows
        assert Counted.looked_at > len(bubbles.cause)
        return Counted.looked_at / len(bubbles.cause)

    assert grown(looked_at, tmp_path, name, 12) < 1.5
