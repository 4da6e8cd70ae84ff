"""When host threads made no progress. Times are ticks of 10 us."""

import numpy as np
import pytest

from tests.build.rows import AUTOGRAD, MAIN, WATCHDOG, call, host, kernel, launch, operator
from tests.reference.ticks import TICK, scaled
from tracelab.measures.host_stalls import host_stalls, waits_for


def observed(*rows):
    return host(*scaled(rows))


def both_threads_launch():
    return [
        kernel(2, 4, correlation=1),
        launch(0, 1, 1),
        kernel(6, 8, correlation=2),
        launch(5, 6, 2, thread=AUTOGRAD),
    ]


def test_blocking_call_stalls_its_own_thread():
    stalls = host_stalls(observed(call("cudaStreamSynchronize", 10, 30), *both_threads_launch()))

    assert stalls.call_index.tolist() == [0]
    assert stalls.thread_index.tolist() == [MAIN]
    assert (stalls.start_ns.tolist(), stalls.end_ns.tolist()) == ([10 * TICK], [30 * TICK])


def test_allocation_stalls_another_threads_call_as_well():
    # The launch call lasts from 12 to 31, and the allocation of the other thread from 10 to 30.
    allocation = call("cudaFree", 10, 30, thread=AUTOGRAD)
    stalled = launch(12, 31, 3)

    stalls = host_stalls(
        observed(allocation, stalled, kernel(32, 33, correlation=3), *both_threads_launch())
    )

    assert stalls.call_index.tolist() == [0, 0]
    assert stalls.thread_index.tolist() == [AUTOGRAD, MAIN]
    assert stalls.start_ns.tolist() == [10 * TICK, 12 * TICK]
    assert stalls.end_ns.tolist() == [30 * TICK, 31 * TICK]
    assert [group.tolist() for group in stalls.groups if len(group)] == [[1], [0]]


def test_file_without_blocking_calls_has_no_stalls():
    stalls = host_stalls(observed(*both_threads_launch()))

    assert stalls.call_index.tolist() == []
    assert stalls.groups == ()


@pytest.mark.parametrize(
    ("thread", "other", "tick", "waits"),
    [
        pytest.param(MAIN, MAIN, 22, True, id="for itself"),
        pytest.param(MAIN, AUTOGRAD, 30, True, id="nothing is recorded of it"),
        pytest.param(MAIN, AUTOGRAD, 22, False, id="it is in an operator"),
        pytest.param(MAIN, AUTOGRAD, 25, True, id="its operator is over"),
        pytest.param(AUTOGRAD, MAIN, 22, True, id="the operator is another thread's"),
        pytest.param(MAIN, WATCHDOG, 30, False, id="the other one launches nothing"),
    ],
)
def test_thread_waits_for(thread, other, tick, waits):
    observed_host = observed(operator("aten::mm", 20, 25), *both_threads_launch())

    is_waiting = waits_for(
        observed_host, *(np.array([value]) for value in (thread, other, tick * TICK))
    )

    assert is_waiting.tolist() == [waits]
