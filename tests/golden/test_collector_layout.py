"""Captures in the layout of PyTorch's own CUPTI collector: the same report as from Kineto's file.

The files are made, not captured: `tests.build.cupti_collector`. Here is one program of each kind;
``python -m tests.benchmarks.collector_layout`` compares all bundled captures.
"""

from pathlib import Path

import pytest

from tests.benchmarks.collector_layout import differences, unexpected
from tests.build.cupti_collector import LINK_BASE, Collector, load, rewritten, stream_order
from tests.bundled_traces import files_of
from tests.shared_traces import path_of


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("prefetch_copy_stream_pinned", marks=pytest.mark.slow),
        pytest.param("events_event_synchronize", marks=pytest.mark.slow),
        "two_streams_early_wait",  # whether kernels fit side by side, by their grids
        pytest.param("peer_copy_both", marks=pytest.mark.slow),
        "launches_graph",
        "collectives_all_reduce_async",  # a job of two ranks
    ],
)
def test_both_layouts_give_one_report(name):
    assert unexpected(differences(files_of(name))) == {}


@pytest.mark.parametrize("name", ["hta_simple_add", "tracelens_h100_qwen05b"])
@pytest.mark.slow
def test_both_layouts_give_one_report_of_a_real_trace(name):
    assert unexpected(differences([Path(path_of(name))])) == {}


def test_what_the_collector_writes_of_graphs():
    """GIVEN five replays of 40 kernels in two streams, one of which is moved to a lane."""
    collector = Collector(
        links=stream_order,
        lanes={142: (1, "branch")},
        annotations={0: {"name": "first"}},
        event_nodes=True,
        host_nodes=True,
    )
    [path] = files_of("two_streams_small_graph")
    events = rewritten(load(path), collector)["traceEvents"]
    rows = {
        category: [event for event in events if event.get("cat") == category]
        for category in ("kernel", "graph_event_node", "graph_host_node", "cuda_event", "cuda_sync")
    }
    kernels = rows["kernel"]
    ends = [event for event in events if event["ph"] == "f" and event["cat"] == "ac2g"]
    launched = {_moment(event) for event in ends if event["id"] < LINK_BASE}
    linked = {_moment(event) for event in ends if event["id"] >= LINK_BASE}

    # THEN of each replay only the first kernel of each stream has a flow from the launch
    assert sum(_moment(event) in launched for event in kernels) == 5 * 2
    assert sum(_moment(event) in linked for event in kernels) == 200 - 5 * 2
    assert len(rows["graph_event_node"]) == len(rows["graph_host_node"]) == 5
    assert rows["cuda_event"] == []
    assert {event["args"].get("wait_on_stream", -1) for event in rows["cuda_sync"]} == {-1}
    moved = [event["args"] for event in kernels if event["tid"] == 1]
    assert {(args["stream"], args["original_stream"]) for args in moved} == {(1, 142)}
    assert sum(event["args"].get("name") == "first" for event in kernels) == 5


def _moment(event):
    return event["pid"], event["tid"], event["ts"]
