"""The work of a rank in the picture of its job. Times are in microseconds."""

from tests.build.jobs import part_of
from tests.build.rows import US, annotation, comm, copy, kernel, launch, memset, step
from tracelab.model.steps import Window


def reduced(*rows, windows=None):
    return part_of(0, rows, windows=windows)


def work_of(part):
    """List the spans of each kind of work."""
    return {
        name: list(zip((x.starts / US).tolist(), (x.ends / US).tolist(), strict=True))
        for name, x in part.shown.items()
        if len(x)
    }


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
    shown = reduced(*rows, windows=[Window(2, 200 * US, 300 * US)])
    assert shown.steps.number[shown.steps.is_steady].tolist() == [2]
    assert (shown.first_ns, shown.last_ns) == (20 * US, 480 * US)
    whole = [(100 * number + 20, 100 * number + 80) for number in range(5)]
    assert work_of(shown)["compute"] == whole
