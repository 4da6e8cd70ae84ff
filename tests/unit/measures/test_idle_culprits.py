from dataclasses import replace

import pytest
from hypothesis import given

from tests.build.data_parallel import data_parallel
from tests.build.files import (
    call,
    event_row,
    kernel,
    launch,
    operator,
    python,
    step,
    sync_row,
    write,
)
from tests.build.flat import flat
from tests.build.random_rows import random_rows
from tests.build.rows import (
    US,
    call as call_row,
    event_row as reached_row,
    graph,
    kernel as kernel_row,
    launch as launch_row,
    sync_row as wait_row,
)
from tests.examples import examples
from tests.reference.ticks import far_away, scaled
from tracelab import analyze
from tracelab.measures.idle_causes import Cause, bubbles
from tracelab.measures.idle_culprits import culprit_rows, idle_culprits
from tracelab.model.program.source_lines import SourceLines


def culprits(tmp_path, events):
    """(cause, name, function, count, idle in us) of the culprits of device 0, the top first."""
    report = analyze(write(tmp_path / "hand.json", events))
    return [
        (x.cause, x.name, x.function, x.count, x.idle_ns / US)
        for x in report.holders
        if x.device == 0
    ]


def test_each_bubble_names_its_culprit(tmp_path):
    # [10, 20) blocked in the synchronize; [20, 50) half-way in aten::mm; [50, 60) from the launch
    # call to the start.
    events = [
        step(1, 0, 100 * US),
        python("train.py(3): train", 0, 95 * US),
        launch(0, US, 1),
        kernel(2 * US, 10 * US, correlation=1),
        launch(5 * US, 20 * US, 9, name="cudaStreamSynchronize"),
        operator("aten::mm", 21 * US, 51 * US),
        launch(50 * US, 51 * US, 2),
        kernel(60 * US, 100 * US, correlation=2),
    ]
    assert culprits(tmp_path, events) == [
        ("host_busy", "aten::mm", "train", 1, 30.0),
        ("host_blocked", "cudaStreamSynchronize", "train", 1, 10.0),
        ("launch", "cudaLaunchKernel", "train", 1, 10.0),
    ]


@pytest.mark.parametrize(
    ("hook", "operators", "name"),
    [
        # A hook that autograd's engine calls; what the hook calls of the library is its own.
        ((22, 49), [], "train.py(30): on_gradient"),
        # The engine itself, and an operator that it calls.
        ((5, 9), [], "autograd::engine::evaluate_function: MulBackward0"),
        ((22, 49), [(23, 48)], "autograd::engine::evaluate_function: MulBackward0"),
    ],
)
def test_a_hook_of_the_backward_pass_is_named(tmp_path, hook, operators, name):
    events = [
        step(1, 0, 100 * US),
        python("train.py(3): train", 0, 95 * US),
        launch(0, US, 1),
        kernel(2 * US, 10 * US, correlation=1),
        operator("autograd::engine::evaluate_function: MulBackward0", 4 * US, 51 * US),
        python("train.py(30): on_gradient", hook[0] * US, hook[1] * US),
        *(operator("aten::mul", start * US, end * US) for start, end in operators),
        launch(50 * US, 51 * US, 2),
        kernel(60 * US, 100 * US, correlation=2),
    ]

    [first, *_] = culprits(tmp_path, events)

    assert first[:2] == ("host_busy", name)


def test_a_stalled_launch_names_the_allocation_and_not_a_third_threads_call(tmp_path):
    # Device 0 is idle in [10, 412); the launch call lasts from 20 to 410, beside an allocation.
    events = [
        step(1, 0, 500 * US),
        launch(0, US, 1),
        kernel(2 * US, 10 * US, correlation=1),
        launch(20 * US, 410 * US, 2),
        kernel(412 * US, 420 * US, correlation=2),
        call("cudaStreamSynchronize", 15 * US, 415 * US, tid=200),
        call("cudaHostAlloc", 18 * US, 408 * US, tid=300),
    ]
    assert culprits(tmp_path, events) == [
        ("host_blocked", "cudaHostAlloc", None, 1, 390.0),
        ("host_busy", "cudaLaunchKernel", None, 1, 10.0),
        ("launch", "cudaLaunchKernel", None, 1, 2.0),
    ]


def test_a_late_launch_without_an_operator_names_the_launch(tmp_path):
    events = [
        step(1, 0, 100 * US),
        launch(0, US, 1),
        kernel(2 * US, 10 * US, correlation=1),
        launch(30 * US, 31 * US, 2),
        kernel(31 * US, 40 * US, correlation=2),
        launch(60 * US, 61 * US, 3),
        kernel(61 * US, 70 * US, correlation=3),
    ]
    # Two bubbles, [10, 31) and [40, 61), each with 1 us of launch.
    assert culprits(tmp_path, events) == [
        ("host_busy", "cudaLaunchKernel", None, 2, 40.0),
        ("launch", "cudaLaunchKernel", None, 2, 2.0),
    ]


@pytest.mark.parametrize(
    ("returned", "name"), [(499, "train.py(3): train"), (500, "cudaLaunchKernel")]
)
def test_a_function_is_looked_for_behind_the_last_500(tmp_path, returned, name):
    # Idle from 10 to 61: at 35 the host is in train, where so many other functions have returned.
    starts = [11 * US + 20 * i for i in range(returned)]
    events = [
        launch(0, US, 1),
        kernel(2 * US, 10 * US, correlation=1),
        python("train.py(3): train", 0, 65 * US),
        *(python("train.py(9): f", start, start + 10) for start in starts),
        launch(60 * US, 61 * US, 2),
        kernel(61 * US, 70 * US, correlation=2),
    ]

    assert [(cause, culprit) for cause, culprit, *_ in culprits(tmp_path, events)] == [
        ("host_busy", name),
        ("launch", "cudaLaunchKernel"),
    ]


def test_a_dependency_names_the_work_that_was_waited_for(tmp_path):
    # Device 0 waits from 10 on for a kernel of device 1 that ends at 50.
    events = [
        launch(0, US, 1),
        kernel(2 * US, 10 * US, "first", correlation=1),
        launch(2 * US, 3 * US, 2),
        kernel(4 * US, 50 * US, "other", device=1, stream=9, correlation=2),
        launch(4 * US, 5 * US, 7, name="cudaEventRecord"),
        sync_row(
            "Stream Wait Event",
            6 * US,
            6 * US,
            stream=7,
            correlation=8,
            wait_stream=9,
            wait_correlation=7,
        ),
        launch(6 * US, 7 * US, 8, name="cudaStreamWaitEvent"),
        event_row(50 * US, correlation=7, event=3, device=1, stream=9),
        launch(8 * US, 9 * US, 3),
        kernel(52 * US, 60 * US, "second", correlation=3),
    ]
    assert ("dependency", "other", None, 1, 40.0) in culprits(tmp_path, events)


def test_of_very_many_bubbles_the_longest_20_000_have_a_row():
    # GIVEN 20,001 bubbles of 5 ns before a kernel that was launched in good time; the third is of 4
    rows = []
    for i in range(20_002):
        start = 10 * i - (i == 3)
        rows += [
            launch_row(start - 8, start - 7, i + 1),
            kernel_row(start, 10 * i + 5, correlation=i + 1),
        ]
    made = graph(*rows)
    idle = bubbles(made)

    # WHEN
    [row] = culprit_rows(
        made, made.host.timeline.windows, idle, idle_culprits(made, idle), SourceLines()
    )

    # THEN
    assert (row.cause, row.count, row.idle_ns) == ("launch", 20_000, 5 * 20_000)


@examples(40)
@given(random_rows())
def test_culprits_are_the_same_at_the_latest_times(rows):
    early, late = (graph(*x) for x in (scaled(rows), far_away(scaled(rows))))

    first, second = map(culprits_of_pieces, (early, late))

    assert second.tolist() == first.tolist()


def culprits_of_pieces(made):
    idle = bubbles(made)
    return idle_culprits(made, idle).look_up(idle.pieces_of(slice(None)))


def waits_for_another_thread(*others):
    """A step that waits for a thread from 10 to 50 us, and then launches."""
    return [
        step(1, 0, 100 * US),
        python("train.py(3): train", 0, 95 * US),
        launch(0, US, 1),
        kernel(2 * US, 10 * US, correlation=1),
        python("concurrent/futures/_base.py(428): result", 8 * US, 50 * US),
        launch(50 * US, 51 * US, 2),
        kernel(52 * US, 100 * US, correlation=2),
        *others,
    ]


@pytest.mark.parametrize(
    ("others", "name", "function"),
    [
        ([("tokens.py(9): tokenize", 7)], "tokens.py(9): tokenize", "tokenize"),
        # Which of two threads it waited for is not said; one that sleeps is none of them.
        (
            [("tokens.py(9): tokenize", 7), ("images.py(9): read", 8)],
            "concurrent/futures/_base.py(428): result",
            "train",
        ),
        (
            [("<built-in function sleep>", 7)],
            "concurrent/futures/_base.py(428): result",
            "train",
        ),
        ([], "concurrent/futures/_base.py(428): result", "train"),
    ],
)
def test_a_wait_for_another_thread_is_what_that_did(tmp_path, others, name, function):
    rows = [python(of, 9 * US, 49 * US, tid=thread) for of, thread in others]

    [busy, *_] = culprits(tmp_path, waits_for_another_thread(*rows))

    assert busy == ("host_busy", name, function, 1, 40.0)


def test_launches_of_threads_without_python_say_who_waited_for_them(tmp_path):
    report = analyze(write(tmp_path / "hand.json", data_parallel()))

    by_threads = [x for x in report.holders if x.waited_in == "parallel_apply"]
    assert {(x.device, x.name, x.function) for x in by_threads} == {
        (0, "cudaLaunchKernel", "step"),
        (1, "cudaLaunchKernel", "step"),
    }
    # Before its first launch of a step, GPU 1 waited for the main thread's optimizer.
    assert "torch/optim/sgd.py(105): step" in {x.name for x in report.holders if x.device == 1}


def test_the_main_threads_lock_is_no_work_in_the_tables(tmp_path):
    report = analyze(write(tmp_path / "hand.json", data_parallel()))

    # Of 1,960 us of a step the main thread is in `join` [120, 980), of which the lock is a part.
    phases = {row.name: (row.launches, row.host_ns / US) for row in report.phases}
    assert phases == {
        "forward": (21, 130),
        "optimizer": (5, 540),
        "other": (4, 430),
        "waiting": (0, 860),
    }
    operators = {row.name: row.host_ns / US for row in report.operators}
    assert operators == {"outside any operator": 1_100, "waiting for other threads": 860}


def test_a_graph_that_waits_for_another_device_names_what_it_waits_for():
    # GIVEN a graph whose stream waits for an event of GPU 1, launched long before that is reached
    rows = [
        launch_row(0, 5, 1),
        kernel_row(10, 110, "far", device=1, correlation=1),
        launch_row(1, 4, 2),
        kernel_row(6, 12, correlation=2),
        call_row("cudaEventRecord", 6, 7, correlation=3),
        call_row("cudaStreamWaitEvent", 8, 9, correlation=4),
        wait_row(
            "Stream Wait Event", 8, 9, stream=7, correlation=4, wait_stream=7, wait_correlation=3
        ),
        reached_row(110, correlation=3, event=9, device=1),
        launch_row(12, 22, 5, name="cudaGraphLaunch"),
        kernel_row(118, 128, "node", correlation=5),
        kernel_row(130, 140, "node", correlation=5),
    ]

    # THEN it waits for the kernel there, then for its start, then inside itself
    found = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    idle = flat(bubbles(found))
    of_gpu = idle.device_number == 0
    names = [rows[i].name for i in culprits_of_pieces(found)[of_gpu].tolist()]
    assert [Cause(x).name for x in idle.cause[of_gpu]] == ["DEPENDENCY", "LAUNCH", "GRAPH"]
    assert names == ["far", "cudaGraphLaunch", "cudaGraphLaunch"]
    assert (idle.end_ns - idle.start_ns)[of_gpu].tolist() == [98 * US, 8 * US, 2 * US]
