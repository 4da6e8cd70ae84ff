"""The scene of a file: the phases of its threads, its memory. Times are in microseconds."""

from dataclasses import replace

from tests.build import files
from tests.build.pictures import make_trace, on_gpu
from tests.build.rows import annotation, kernel, launch, operator, step
from tests.unit.outputs.test_scene_of_job import reduced
from tracelab.analysis.analysis import analyze_source
from tracelab.base.arrays import ABSENT
from tracelab.base.options import Options
from tracelab.model.steps import Window
from tracelab.model.trace import Thread
from tracelab.outputs.scene_of_file import scene_of_file, thread_labels
from tracelab.read.sources import find_sources

US = 1_000


def spans_of(of):
    """List the spans of each lane of phases: kind, start, end, level and name."""
    return {
        lane.id: [
            (
                lane.kinds[kind],
                start / US,
                end / US,
                level,
                None if name == ABSENT else of.names[name],
            )
            for kind, start, end, level, name in zip(
                lane.kind,
                lane.start_ns,
                lane.end_ns,
                lane.more["level"],
                lane.more["name"],
                strict=True,
            )
        ]
        for lane in of.lanes_of_type("phase")
    }


STEP = (
    step(1, 0, 100),
    annotation("DDP.forward", 0, 20),
    annotation("attention", 5, 15),
    annotation("softmax", 6, 9),
    launch(11, 12, 1),
    annotation("loss", 20, 25),
    operator("autograd::engine::evaluate_function: MulBackward0", 30, 40, thread=1),
    launch(31, 32, 2, thread=1),
    annotation("Optimizer.step#SGD.step", 50, 60),
    kernel(100, 200, correlation=1),
    kernel(200, 400, correlation=2),
)


def test_phases_of_each_thread_and_below_them_what_else_is_named():
    """GIVEN a step with regions of phases, others inside and beside them, and autograd's thread
    THEN phases lie at level 0 without a name, other regions nested below, and steps nowhere."""
    autograd, main = spans_of(reduced(*STEP)).values()
    assert main == [
        ("forward", 0, 20, 0, None),
        ("annotation", 5, 15, 1, "attention"),
        ("annotation", 6, 9, 2, "softmax"),
        ("annotation", 20, 25, 1, "loss"),
        ("optimizer", 50, 60, 0, None),
    ]
    # Autograd's thread is in the backward pass while it works, not after it.
    assert autograd == [("backward", 30, 40, 0, None)]


def test_of_one_step_its_own_phases_are_shown():
    rows = (
        annotation("DDP.forward", 300, 320),
        launch(301, 302, 3),
        kernel(310, 330, correlation=3),
    )
    shown = reduced(*STEP, step(2, 300, 340), *rows, window=Window(2, 300 * US, 340 * US))
    assert spans_of(shown) == {"phase:0": [("forward", 300, 320, 0, None)]}


def test_a_file_that_names_nothing_has_no_phases():
    assert spans_of(reduced(launch(0, 1, 1), kernel(100, 200, correlation=1))) == {}


def test_memory_is_a_number_over_time(tmp_path):
    """GIVEN two readings of GPU 0, and one of the host
    THEN each value lasts until the next one of its GPU, the last until the window ends."""
    events = [
        files.kernel(0, 50 * US),
        files.memory(10 * US, 512, 2048),
        files.memory(20 * US, 7, 0, device=-1),
        files.memory(30 * US, 256, 2048),
    ]
    [source] = find_sources([files.write(tmp_path / "a.json", events)])
    scene = scene_of_file(analyze_source(source, Options(cache=False)))
    lane = scene.lane("counter:0/allocated")
    assert (lane.start_ns / US).tolist() == [10, 30]
    assert (lane.end_ns / US).tolist() == [30, 50]
    assert lane.more["value"].tolist() == [512, 256]
    assert scene.lane("counter:0/reserved").more["value"].tolist() == [2048, 2048]
    assert [x.id for x in scene.lanes_of_type("counter")] == [
        "counter:0/allocated",
        "counter:0/reserved",
    ]


def test_threads_are_named_by_what_runs_there_or_as_the_file_does():
    """GIVEN the main threads of two processes, autograd's, a named one and two without a name
    THEN only those that would be alike have an id."""
    threads = (
        Thread("40", "40", "thread 40 (python)"),
        Thread("50", "50", "python3.8"),
        Thread("40", "41", "pt_autograd_0"),
        Thread("40", "42", "thread 42 (loader)"),
        Thread("40", "43", "thread 43 (python)"),
        Thread("40", "44", ""),
    )
    trace = replace(make_trace(on_gpu("gemm", 0, 1)), threads=threads)
    labels = thread_labels(trace, range(6))
    assert list(labels.values()) == [
        "main thread 40",
        "main thread 50",
        "autograd",
        "loader",
        "thread 43",
        "thread 44",
    ]
    assert thread_labels(trace, [4], {4: "main thread"}) == {4: "main thread"}
    assert thread_labels(trace, [4]) == {4: "thread 43"}
