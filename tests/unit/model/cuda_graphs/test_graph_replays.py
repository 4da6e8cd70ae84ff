"""Which GPU work was launched as replays of CUDA graphs."""

import pytest

from tests.build.rows import kernel, launch, timeline
from tracelab.model.cuda_graphs import mostly_replays, replayed

GRAPH = launch(0, 5, 1, name="cudaGraphLaunch")
NODES = [kernel(10, 12, correlation=1), kernel(12, 14, correlation=1)]
ALONE = [launch(6, 8, 2), kernel(14, 16, correlation=2)]
WITHOUT_LAUNCH = [kernel(16 + i, 17 + i) for i in range(4)]


def test_nodes_of_replayed_graphs():
    assert replayed(timeline(GRAPH, *NODES, *ALONE)).tolist() == [True, True, False]


def test_what_was_launched_before_the_recording_is_not_known_to_be_replayed():
    found = replayed(timeline(*WITHOUT_LAUNCH, GRAPH, *NODES))
    assert found.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("rows", "mostly"),
    [
        ([GRAPH, *NODES, *ALONE], True),
        ([GRAPH, *NODES[:1], *ALONE], False),  # half of it
        ([GRAPH, *NODES, *WITHOUT_LAUNCH], True),  # nobody knows how those were launched
        (ALONE, False),
        (WITHOUT_LAUNCH, False),
    ],
    ids=["most", "half", "others are not launched", "none", "no launch"],
)
def test_a_program_of_replays(rows, mostly):
    assert mostly_replays(timeline(*rows)) is mostly
