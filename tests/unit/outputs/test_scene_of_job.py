"""The work of a rank in the picture of its job. Times are in microseconds."""

from dataclasses import replace

from tests.build.pictures import scene
from tests.build.rows import US, annotation, comm, copy, graph, kernel, launch, memset, step
from tracelab.model.steps import Window


def reduced(*rows, window=None):
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    return scene(made.host.timeline, window)


def work_of(of):
    """List the spans of each kind of work."""
    [lane] = of.lanes_of_type("work")
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
    shown = reduced(
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
    assert work_of(shown) == {
        "forward": [(100, 200)],
        "backward": [(200, 400)],
        "other_compute": [(400, 450)],
        "comm": [(150, 300)],
        "copy": [(450, 460)],
        "memset": [(470, 480)],
    }


def test_compute_without_a_backward_pass_is_compute():
    shown = reduced(launch(0, 1, 1), kernel(100, 200, correlation=1), kernel(300, 400))
    assert list(work_of(shown)) == ["compute"]


def test_only_the_device_that_decides():
    rows = (kernel(100, 200), kernel(150, 900, device=1))
    assert work_of(reduced(*rows))["compute"] == [(150, 900)]


def test_of_one_step_its_neighbors_are_known_too():
    rows = steps(5, apart=100, length=100, compute=(20, 80))
    shown = reduced(*rows, window=Window(2, 200 * US, 300 * US))
    assert shown.usual_steps == (2,)
    whole = [(100 * number + 20, 100 * number + 80) for number in range(5)]
    assert work_of(shown)["compute"] == whole
