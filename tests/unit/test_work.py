"""How much work a trace makes: counted, because seconds differ from machine to machine.

Each bound is some way above what was counted when it was set, and far below what a loop over all
events in Python, or one more copy of them, would make of it.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.benchmarks.large_traces import PLAIN, STACKS, repeat
from tracelab.analysis import DEFAULTS, analyze_source
from tracelab.chrome import read_trace
from tracelab.sources import Source

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[PLAIN, STACKS], ids=["operators", "stacks"])
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


def growth(counted):
    """What one more of the second number costs of the first, from the once to the longer."""
    (once, few), (longer, many) = counted
    return (longer - once) / (many - few)


def test_reading_decodes_many_events_a_call(sources):
    counted = [(calls, trace.objects) for calls, trace in (calls_in(read_trace, x) for x in sources)]
    print(growth(counted))


def test_the_analysis_calls_little_an_event_and_no_more_for_a_longer_trace(sources):
    counted = []
    for source in sources:
        reading, trace = calls_in(read_trace, source)
        calls, _ = calls_in(analyze_source, source, DEFAULTS)
        counted.append((calls - reading, len(trace)))
    print(growth(counted), counted)


def test_an_event_takes_a_few_words_of_memory(sources):
    counted = []
    for source in sources:
        gc.collect()
        tracemalloc.start()
        trace = read_trace(source)
        counted.append((tracemalloc.get_traced_memory()[1], len(trace)))
        tracemalloc.stop()
    print(growth(counted))
