from hypothesis import given, settings

from tests.build.files import event, kernel, launch, operator, python, record, step, sync, write
from tests.build.random_rows import random_rows
from tests.build.rows import US, graph
from tests.reference.ticks import far_away, scaled
from tracelab import analyze
from tracelab.measures.bubbles import bubbles
from tracelab.measures.idle_culprits import idle_culprits


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
        step(1, 0, 100),
        python("train.py(3): train", 0, 95),
        launch(0, 1, 1),
        kernel("gemm", 2, 8, correlation=1),
        launch(5, 15, 9, name="cudaStreamSynchronize"),
        operator("aten::mm", 21, 30),
        launch(50, 1, 2),
        kernel("gemm", 60, 40, correlation=2),
    ]
    assert culprits(tmp_path, events) == [
        ("host_busy", "aten::mm", "train", 1, 30.0),
        ("host_blocked", "cudaStreamSynchronize", "train", 1, 10.0),
        ("launch", "cudaLaunchKernel", "train", 1, 10.0),
    ]


def test_a_stalled_launch_names_the_allocation_and_not_a_third_threads_call(tmp_path):
    # Device 0 is idle in [10, 412); the launch call lasts from 20 to 410, beside an allocation.
    events = [
        step(1, 0, 500),
        launch(0, 1, 1),
        kernel("gemm", 2, 8, correlation=1),
        launch(20, 390, 2),
        kernel("gemm", 412, 8, correlation=2),
        event("cudaStreamSynchronize", "cuda_runtime", 15, 400, tid=200),
        event("cudaHostAlloc", "cuda_runtime", 18, 390, tid=300),
    ]
    assert culprits(tmp_path, events) == [
        ("host_blocked", "cudaHostAlloc", None, 1, 390.0),
        ("host_busy", "cudaLaunchKernel", None, 1, 10.0),
        ("launch", "cudaLaunchKernel", None, 1, 2.0),
    ]


def test_a_late_launch_without_an_operator_names_the_launch(tmp_path):
    events = [
        step(1, 0, 100),
        launch(0, 1, 1),
        kernel("gemm", 2, 8, correlation=1),
        launch(30, 1, 2),
        kernel("gemm", 31, 9, correlation=2),
        launch(60, 1, 3),
        kernel("gemm", 61, 9, correlation=3),
    ]
    # Two bubbles, [10, 31) and [40, 61), each with 1 us of launch.
    assert culprits(tmp_path, events) == [
        ("host_busy", "cudaLaunchKernel", None, 2, 40.0),
        ("launch", "cudaLaunchKernel", None, 2, 2.0),
    ]


def test_a_dependency_names_the_work_that_was_waited_for(tmp_path):
    # Device 0 waits from 10 on for a kernel of device 1 that ends at 50.
    events = [
        launch(0, 1, 1),
        kernel("first", 2, 8, correlation=1),
        launch(2, 1, 2),
        kernel("other", 4, 46, device=1, stream=9, correlation=2),
        launch(4, 1, 7, name="cudaEventRecord"),
        sync("Stream Wait Event", 6, 0, stream=7, correlation=8, wait_stream=9, wait_correlation=7),
        launch(6, 1, 8, name="cudaStreamWaitEvent"),
        record(50, 3, 7, device=1, stream=9),
        launch(8, 1, 3),
        kernel("second", 52, 8, correlation=3),
    ]
    assert ("dependency", "other", None, 1, 40.0) in culprits(tmp_path, events)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(random_rows())
def test_culprits_are_the_same_at_the_latest_times(rows):
    early, late = (graph(*x) for x in (scaled(rows), far_away(scaled(rows))))

    first, second = (idle_culprits(x, bubbles(x, x.host.timeline.windows)) for x in (early, late))

    assert second.tolist() == first.tolist()
