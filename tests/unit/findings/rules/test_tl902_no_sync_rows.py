"""TL902: waits without rows of CUPTI."""

import pytest

from tests.build.files import event, sync, thread_name
from tests.unit.findings.hand_made import clean
from tracelab.findings.finding import INFO

SYNC_CALL = event("cudaStreamSynchronize", "cuda_runtime", 4, 40, correlation=8)
PROFILERS_OWN = event("cudaDeviceSynchronize", "cuda_runtime", 300, 5)


def test_waits_without_sync_rows(lacks):
    wait = event("cudaStreamWaitEvent", "cuda_runtime", 8, 1, correlation=9)

    # What the stream waited for is unresolved, too.
    assert lacks(*clean(), SYNC_CALL, wait, PROFILERS_OWN) == [
        ("TL902", INFO, 2),
        ("TL904", INFO, 1),
    ]


def test_synchronize_inside_another_is_one_wait(lacks):
    inner = event("cuStreamSynchronize", "cuda_driver", 5, 38)

    assert lacks(*clean(), SYNC_CALL, inner) == [("TL902", INFO, 1)]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [PROFILERS_OWN],
        [SYNC_CALL, sync("Stream Sync", 4, 40, stream=7, correlation=8)],
        [SYNC_CALL | {"tid": 9}, thread_name("pt_nccl_watchdg", tid=9)],
        [event("cudaEventQuery", "cuda_runtime", 8, 1)],
    ],
    ids=["no waits", "the profiler's own", "with its row", "watchdog", "nobody waits"],
)
def test_no_word_of_sync_rows_where_none_are_missing(lacks, more):
    assert lacks(*clean(), *more) == []
