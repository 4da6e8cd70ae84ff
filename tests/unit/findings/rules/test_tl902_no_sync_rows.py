"""TL902: waits without rows of CUPTI."""

import pytest

from tests.build.files import US, call, complete_event, sync_row, thread_name
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO

SYNC_CALL = call("cudaStreamSynchronize", 4 * US, 44 * US, correlation=8)
PROFILERS_OWN = call("cudaDeviceSynchronize", 300 * US, 305 * US)


def test_waits_without_sync_rows(lacks):
    wait = call("cudaStreamWaitEvent", 8 * US, 9 * US, correlation=9)

    # What the stream waited for is unresolved, too.
    assert lacks(*clean(), SYNC_CALL, wait, PROFILERS_OWN) == [
        ("TL902", INFO, 2),
        ("TL904", INFO, 1),
    ]


@pytest.mark.parametrize(
    "name", ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"]
)
def test_every_sort_of_synchronize_is_a_wait(lacks, name):
    assert lacks(*clean(), call(name, 3 * US, 4 * US, correlation=8)) == [("TL902", INFO, 1)]


def test_synchronize_inside_another_is_one_wait(lacks):
    inner = complete_event("cuStreamSynchronize", "cuda_driver", 5 * US, 43 * US)

    assert lacks(*clean(), SYNC_CALL, inner) == [("TL902", INFO, 1)]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [PROFILERS_OWN],
        [SYNC_CALL, sync_row("Stream Sync", 4 * US, 44 * US, stream=7, correlation=8)],
        [SYNC_CALL | {"tid": 9}, thread_name("pt_nccl_watchdg", tid=9)],
        [call("cudaEventQuery", 8 * US, 9 * US)],
    ],
    ids=["no waits", "the profiler's own", "with its row", "watchdog", "nobody waits"],
)
def test_no_word_of_sync_rows_where_none_are_missing(lacks, more):
    assert lacks(*clean(), *more) == []
