"""TL910: the profiler's own cost."""

import pytest

from tests.build.files import US, kernel, launch, python, step
from tests.build.finding_events import clean
from tracelab.findings.finding import INFO


@pytest.mark.parametrize(
    ("unprofiled_ms", "said"),
    [
        (0.3, []),
        (0.273, []),
        (0.272, [("TL910", INFO, 1)]),
        ("0.1", [("TL910", INFO, 1)]),
        # Stacks were recorded, and what a step takes without the profiler is not known.
        (0, [("TL910", INFO, 1)]),
        (-1, [("TL910", INFO, 1)]),
        ("soon", [("TL910", INFO, 1)]),
        ("nan", [("TL910", INFO, 1)]),
        ("inf", [("TL910", INFO, 1)]),
        (None, [("TL910", INFO, 1)]),
    ],
)
def test_a_window_that_is_a_tenth_longer_than_without_the_profiler(lacks, unprofiled_ms, said):
    # 300 us, in which the GPU waits for the host for 100: 10 % more than 272.7.
    rows = [
        python("train.py(3): step", 0, 300 * US),
        launch(US, 3 * US, 1),
        kernel(10 * US, 100 * US, correlation=1),
        launch(190 * US, 192 * US, 2),
        kernel(200 * US, 300 * US, correlation=2),
        step(1, 0, 300 * US),
    ]
    assert lacks(*rows, before={"tracelab": {"unprofiled_step_ms": unprofiled_ms}}) == said


def test_the_profiler_is_not_blamed_for_one_slow_step(lacks):
    # GIVEN three steps of 100 us, and a fourth in which Python takes 900
    times = (0, 100, 200, 300)
    rows = [
        python("train.py(3): step", 0, 1_300 * US),
        *(
            row
            for i, t in enumerate(times)
            for row in (step(i, t * US, (t + 100) * US), launch(t * US, (t + 2) * US, i + 1))
        ),
        *(kernel((t + 2) * US, (t + 92) * US, correlation=i + 1) for i, t in enumerate(times)),
        step(4, 400 * US, 1_300 * US),
        launch(1_200 * US, 1_202 * US, 5),
        kernel(1_202 * US, 1_292 * US, correlation=5),
    ]
    assert lacks(*rows, before={"tracelab": {"unprofiled_step_ms": 0.1}}) == []
    # 5 steps of 100 us, where half of it is the profiler's
    assert lacks(*rows, before={"tracelab": {"unprofiled_step_ms": 0.05}}) == [("TL910", INFO, 1)]


def test_the_profiler_is_not_blamed_where_the_gpu_did_not_wait_for_the_host(lacks):
    assert (
        lacks(*clean(), step(1, 0, 200 * US), before={"tracelab": {"unprofiled_step_ms": 0.1}})
        == []
    )


def test_file_without_steps_has_no_step_to_compare(lacks):
    assert lacks(*clean(), before={"tracelab": {"unprofiled_step_ms": 0.01}}) == []


def test_capture_that_says_something_else_has_no_time_to_compare(lacks):
    assert lacks(*clean(), step(1, 0, 250 * US), before={"tracelab": "0.2"}) == []
