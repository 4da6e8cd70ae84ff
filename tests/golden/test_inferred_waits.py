"""How often inferred waits are right, on captures of H200s whose records are taken away."""

from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.inferred_waits import (
    Score,
    captures,
    score_of,
    without_records,
    without_streams,
)
from tracelab import analyze
from tracelab.analysis.analysis import analyze_source
from tracelab.model.graph import window_graph
from tracelab.read.sources import find_sources

ROOT = Path(__file__).parents[2]


RECORDED = sorted(file for files in captures().values() for file in files)
HOW = (without_records, without_streams)
# Of the default run: events of one GPU, collectives, and sends and receives.
FEW = {"two_streams_early_wait", "ddp_hook_default_stream_rank0", "pipeline_1f1b_few_rank0"}


def total(how, files=RECORDED):
    return sum((score_of(file, how) for file in files), start=Score())


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=() if file.split(".")[0] in FEW else pytest.mark.whole_corpus)
        for file in RECORDED
    ],
)
def test_of_a_capture_hardly_any_wait_is_inferred_wrongly(file):
    blind, named = (score_of(file, how) for how in HOW)
    assert blind.precision >= 0.94
    assert blind.recall >= 0.69  # sends and receives of a pipeline
    assert named.precision >= 0.98
    assert named.recall >= 0.95
    # What delayed nothing is a dependency, too.
    assert named.wrong == 0


@pytest.mark.whole_corpus
def test_inferred_waits_are_right_and_complete():
    found = total(without_records)
    assert found.delayed > 3_000
    assert found.precision >= 0.995
    assert found.recall >= 0.965
    assert found.same >= 0.9995 * found.activities > 45_000


@pytest.mark.whole_corpus
def test_no_workload_is_far_below_the_total():
    for files in captures().values():
        of_workload = total(without_records, files)
        assert of_workload.precision >= 0.97
        assert of_workload.recall >= 0.94


@pytest.mark.whole_corpus
def test_a_wait_that_names_the_call_that_recorded_is_nearly_exact():
    found = total(without_streams)
    assert found.inferred > 5_000
    assert found.precision >= 0.995
    assert found.recall >= 0.995
    assert found.same >= 0.9999 * found.activities > 45_000
    assert found.implied < 0.01 * found.recorded
    # The others delayed nothing: a wait around a peer copy, or for the stream that goes on next.
    assert found.matching >= 0.88 * found.recorded > 6_000


@pytest.mark.parametrize(
    "name",
    [
        "two_models_naive_plain",  # no record is named
        "peer_copy_receiver",  # a peer copy in the default stream, which no wait tells
    ],
)
def test_nearly_no_idle_is_of_unknown_cause(name):
    report = analyze(str(ROOT / "traces" / f"{name}.pt.trace.json.gz"))
    causes = Counter()
    for device in report.windows[0].devices:
        causes.update(device.bubbles)
    assert causes["unknown"] < 0.02 * causes.total()
    assert causes["dependency"] > 0.2 * causes.total()


def test_an_edge_says_whether_it_is_inferred():
    [source] = find_sources([str(ROOT / "traces" / "events_wait_plain.pt.trace.json.gz")])
    analysis = analyze_source(source)
    whole = analysis.windows[0]
    network = window_graph(analysis.graph, whole.start_ns, whole.end_ns)
    kinds = Counter((edge["kind"], edge.get("inferred")) for _, _, edge in network.edges(data=True))
    assert kinds["event", True] == analysis.report.traces[0].event_links.inferred
    assert kinds["event", False] == 0
    assert kinds["stream", None] > 0
