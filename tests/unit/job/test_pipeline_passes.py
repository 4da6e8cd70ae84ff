"""When the passes of a rank ran, and what each message came after. Times are in microseconds."""

from dataclasses import replace

import numpy as np

from tests.build.rows import (
    AUTOGRAD,
    US,
    annotation,
    call as host_call,
    graph,
    kernel,
    launch,
    operator,
    step,
)
from tracelab.job.part import find_passes
from tracelab.model.phases import Phase, Phases
from tracelab.model.trace import ABSENT

ENGINE = "autograd::engine::evaluate_function: MmBackward0"
SENDRECV = "ncclDevKernel_SendRecv"


def passes_of(*rows):
    """The passes of these rows, and of the messages among them."""
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    timeline = made.host.timeline
    names = [timeline.trace.name_of(event_id) for event_id in timeline.event_id.tolist()]
    row = np.array([i for i, name in enumerate(names) if name == SENDRECV], dtype=np.intp)
    return find_passes(made, Phases(made.host), row, 0)


def training_step(start):
    """Forward, a message, backward, a message, the optimizer; 100 us, on the GPU 20 us later."""
    first = start
    return [
        step(start // 100, start, start + 95),
        annotation("forward", start + 1, start + 9),
        launch(start + 2, start + 3, first + 1),
        kernel(start + 20, start + 30, correlation=first + 1),
        launch(start + 10, start + 11, first + 2),
        kernel(start + 30, start + 32, SENDRECV, stream=20, correlation=first + 2),
        operator(ENGINE, start + 20, start + 29, thread=AUTOGRAD),
        launch(start + 22, start + 23, first + 3, thread=AUTOGRAD),
        kernel(start + 40, start + 60, correlation=first + 3),
        launch(start + 30, start + 31, first + 4),
        kernel(start + 60, start + 62, SENDRECV, stream=20, correlation=first + 4),
        annotation("Optimizer.step#SGD.step", start + 50, start + 60),
        launch(start + 51, start + 52, first + 5),
        kernel(start + 70, start + 90, correlation=first + 5),
    ]


def test_passes_end_before_the_optimizer():
    passes = passes_of(*training_step(0), *training_step(100))

    assert passes.start_ns.tolist() == [20 * US, 120 * US]
    assert passes.end_ns.tolist() == [60 * US, 160 * US]


def test_what_each_message_came_after():
    passes = passes_of(*training_step(0), *training_step(100))

    assert passes.launched_ns.tolist() == [10 * US, 30 * US, 110 * US, 130 * US]
    assert passes.computes.tolist() == [1, 2, 4, 5]
    assert passes.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD] * 2


def test_time_in_which_the_host_was_blocked_is_not_its_own():
    passes = passes_of(*training_step(0), host_call("cudaDeviceSynchronize", 12, 18))

    before, after = passes.waited_ns.tolist()
    assert (before, after) == (0, 6 * US)


def test_a_message_without_a_launch():
    passes = passes_of(
        kernel(0, 10, SENDRECV, stream=20),
        launch(12, 13, 1),
        kernel(20, 30, correlation=1),
        launch(32, 33, 2),
        kernel(40, 50, SENDRECV, stream=20, correlation=2),
    )

    assert passes.launched_ns.tolist() == [ABSENT, 32 * US]
    assert passes.computes.tolist() == [ABSENT, 1]
    assert passes.phase.tolist() == [Phase.UNKNOWN, Phase.OTHER]


def test_a_step_without_compute_has_no_passes():
    passes = passes_of(
        *training_step(0),
        step(1, 100, 190),
        launch(110, 111, 110),
        kernel(130, 132, SENDRECV, stream=20, correlation=110),
    )

    assert passes.start_ns.tolist() == [20 * US, ABSENT]
    assert passes.end_ns.tolist() == [60 * US, ABSENT]
