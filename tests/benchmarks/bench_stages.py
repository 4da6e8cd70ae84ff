"""The time of each stage from a file to its report, to compare one commit with another.

    python -m pytest tests/benchmarks/bench_stages.py --benchmark-autosave
    python -m pytest tests/benchmarks/bench_stages.py --benchmark-compare

pytest does not collect this file by itself: seconds are for people to look at, not for CI.
"""

from __future__ import annotations

import gzip
import zlib
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks.large_traces import PLAIN, STACKS, repeat
from tracelab.analysis.analysis import analyze_source
from tracelab.base.options import Options
from tracelab.measures.blocking_calls import blocking_calls
from tracelab.measures.critical_path import critical_paths
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import bubbles
from tracelab.measures.overlap import overlaps
from tracelab.model.graph import build_graph
from tracelab.model.host import observe_host
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.timeline import build_timeline
from tracelab.read import cache, streams
from tracelab.read.reader import read_trace
from tracelab.read.streams import Source
from tracelab.render.text.report import render_text

MEGABYTES = 20


@pytest.fixture(scope="module", params=[PLAIN, STACKS], ids=["plain", "stacks"])
def source(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("stages") / "trace.json"
    repeat(request.param, MEGABYTES * 1e6, path)
    return Source(str(path), None, named=True)


@pytest.fixture(scope="module")
def trace(source):
    return read_trace(source)


@pytest.fixture(scope="module")
def timeline(trace):
    return build_timeline(trace)


@pytest.fixture(scope="module")
def graph(timeline):
    return build_graph(observe_host(timeline))


def test_read_trace(benchmark, source):
    benchmark(read_trace, source)


def test_open_what_the_cache_has(benchmark, source, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    cache.load_trace(source)
    benchmark(cache.load_trace, source)


def test_build_timeline(benchmark, trace):
    benchmark(build_timeline, trace)


def test_observe_host(benchmark, timeline):
    benchmark(observe_host, timeline)


def test_build_graph(benchmark, timeline):
    benchmark(lambda: build_graph(observe_host(timeline)))


def test_bubbles(benchmark, graph, timeline):
    benchmark(bubbles, graph, timeline.windows)


def test_syncs(benchmark, graph):
    benchmark(lambda: blocking_calls(graph, SourceLines(())))


def test_exposed(benchmark, graph):
    benchmark(exposed, graph)


def test_overlaps(benchmark, timeline):
    benchmark(overlaps, timeline, timeline.windows)


def test_critical_paths(benchmark, graph, timeline):
    benchmark(critical_paths, graph, timeline.windows)


def test_whole_analysis(benchmark, source):
    benchmark(analyze_source, source, Options(cache=False))


def test_text(benchmark, source):
    report = analyze_source(source, Options(cache=False)).report
    benchmark(partial(render_text, report, width=100, color=False))


@pytest.mark.parametrize("package", ["isal", "zlib"])
def test_unpack(benchmark, source, tmp_path, monkeypatch, package):
    if package == "zlib":
        monkeypatch.setattr(streams, "fast_zlib", zlib)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(Path(source.path).read_bytes()))

    def unpack():
        with streams.open_source(Source(str(packed), None, named=True)) as stream:
            while stream.read1(1 << 19):
                pass

    benchmark(unpack)
