"""The scene of a rank in the picture of its job. Times are in microseconds."""

from dataclasses import replace

import numpy as np

from tests.build.rows import US, annotation, comm, copy, graph, kernel, launch, memset, step
from tracelab.model.steps import Window
from tracelab.outputs.scene_of_file import scene_of_timeline
from tracelab.outputs.scene_of_job import scene_of_rank


def reduced(*rows, device=0, window=None):
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    timeline, no_calls = made.host.timeline, np.zeros(0, dtype=np.int64)
    scene = scene_of_timeline(timeline, no_calls, window or timeline.windows[0], device)
    return scene_of_rank(scene, made)


def work_of(scene):
    """List the spans of each kind of work."""
    [lane] = scene.lanes_of_type("work")
    spans = {}
    for start, end, kind in zip(lane.start_ns / US, lane.end_ns / US, lane.kind, strict=True):
        spans.setdefault(lane.kinds[kind], []).append((start, end))
    return spans


def steps(count, *, apart, length, compute):
    """Rows of so many steps, each with one kernel that runs at these times after its start."""
    start, end = compute
    return [
        row
        for number in range(count)
        for begin in [apart * number]
        for row in (
            step(number, begin, begin + length),
            launch(begin + 10, begin + 20, number),
            kernel(begin + start, begin + end, correlation=number),
        )
    ]


def test_work_by_kind_and_compute_by_phase():
    scene = reduced(
        annotation("DDP.forward", 0, 10),
        launch(1, 2, 1),
        annotation("backward", 10, 20),
        launch(11, 12, 2),
        launch(21, 22, 3),
        kernel(100, 200, correlation=1),
        kernel(200, 400, correlation=2),
        kernel(400, 450, correlation=3),
        comm(150, 300, stream=20),
        copy(450, 460),
        memset(470, 480),
    )
    assert work_of(scene) == {
        "forward": [(100, 200)],
        "backward": [(200, 400)],
        "other_compute": [(400, 450)],
        "comm": [(150, 300)],
        "copy": [(450, 460)],
        "memset": [(470, 480)],
    }


def test_compute_without_a_backward_pass_is_compute():
    scene = reduced(launch(0, 1, 1), kernel(100, 200, correlation=1), kernel(300, 400))
    assert list(work_of(scene)) == ["compute"]


def test_only_the_device_that_decides():
    rows = (kernel(100, 200), kernel(150, 900, device=1))
    assert work_of(reduced(*rows, device=1))["compute"] == [(150, 900)]


def test_of_one_step_its_neighbors_are_known_too():
    rows = steps(5, apart=100, length=100, compute=(20, 80))
    scene = reduced(*rows, window=Window(2, 200 * US, 300 * US))
    assert scene.usual_steps == (2,)
    whole = [(100 * number + 20, 100 * number + 80) for number in range(5)]
    assert work_of(scene)["compute"] == whole
