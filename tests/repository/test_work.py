"""How much work a trace makes: counted, because seconds differ from machine to machine.

Each bound is some way above what was counted when it was set, and far below what a loop over all
events in Python, or one more copy of them, would make of it.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from tests.benchmarks.large_traces import PLAIN, STACKS, repeat
from tracelab.analysis.analysis import analyze_source
from tracelab.base.options import Options
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
