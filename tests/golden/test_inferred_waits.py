"""How often inferred waits are right, on captures of H200s whose records are taken away."""

from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.inferred_waits import Score, captures, measure, without_streams
from tracelab import analyze, analyze_source, find_sources, window_graph

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scores():
    return measure()


def test_inferred_waits_are_right_and_complete(scores):
    total = sum(scores.values(), start=Score())
    assert total.delayed > 3_000
    assert total.precision >= 0.995
    assert total.recall >= 0.965
    assert total.same >= 0.9995 * total.activities > 45_000


def test_no_workload_is_far_below_the_total(scores):
    for files in captures().values():
        of_workload = sum((scores[file] for file in files), start=Score())
        assert of_workload.precision >= 0.97
        assert of_workload.recall >= 0.94


def test_a_wait_that_names_the_call_that_recorded_is_nearly_exact():
    total = sum(measure(without_streams).values(), start=Score())
    assert total.inferred > 5_000
    assert total.precision >= 0.995
    assert total.recall >= 0.995
    assert total.same >= 0.9999 * total.activities > 45_000
    # What delayed nothing is a dependency, too.
    assert total.wrong == 0
    assert total.implied < 0.01 * total.recorded
    assert total.matching >= 0.9 * total.recorded > 6_000


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
