"""When host threads made no progress. Times are ticks of 10 us."""

import numpy as np
import pytest

from tests.build.rows import (
    AUTOGRAD,
    MAIN,
    US,
    WATCHDOG,
    annotation,
    call,
    host,
    kernel,
    launch,
    operator,
)
from tests.reference.ticks import TICK, scaled
from tracelab.model.host import host_stalls, unrecorded_waits, waits_for


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


def test_file_without_blocking_calls_has_no_stalls():
    stalls = host_stalls(observed(*both_threads_launch()))

    assert stalls.call_index.tolist() == []


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


# The host does nothing that is recorded while the GPU works: it waits in a way that is not seen.


def silent_host(*, until, worked_until, doing=()):
    """The host launches until 10 us, and again at a moment; meanwhile the GPU works."""
    return host(
        launch(0, 10 * US, 1),
        kernel(2 * US, worked_until, correlation=1),
        launch(until, until + US, 2),
        kernel(until + 2 * US, until + 9 * US, correlation=2),
        *doing,
    )


@pytest.mark.parametrize(("silence_ns", "count"), [(1_000 * US, 0), (1_000 * US + 1, 1)])
def test_silence_of_more_than_a_millisecond_is_a_wait(silence_ns, count):
    until = 10 * US + silence_ns
    waits = unrecorded_waits(silent_host(until=until, worked_until=until))

    assert list(zip(waits.starts.tolist(), waits.ends.tolist(), strict=True)) == (
        [(10 * US, until)] * count
    )


@pytest.mark.parametrize(("worked_us", "count"), [(1_899, 0), (1_900, 1)])
def test_gpu_must_have_worked_throughout(worked_us, count):
    # The silence takes 2 ms; 95 % of it are 1.9.
    silent = silent_host(until=2_010 * US, worked_until=(10 + worked_us) * US)

    assert len(unrecorded_waits(silent)) == count


@pytest.mark.parametrize(
    ("doing", "count"),
    [
        (operator("aten::mm", 1_000 * US, 1_005 * US), 0),
        (annotation("forward", 20 * US, 1_500 * US), 1),  # that says where, and not what
        (operator("aten::mm", 1_000 * US, 1_001 * US, thread=AUTOGRAD), 1),  # it launches nothing
    ],
)
def test_thread_that_is_recorded_at_work_does_not_wait(doing, count):
    silent = silent_host(until=2_000 * US, worked_until=2_000 * US, doing=[doing])

    assert len(unrecorded_waits(silent)) == count


def test_host_of_which_nothing_is_recorded():
    assert len(unrecorded_waits(host(kernel(0, 3_000 * US)))) == 0
