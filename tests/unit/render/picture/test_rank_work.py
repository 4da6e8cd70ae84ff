"""What a rank gives to the picture of its job. Times are in microseconds."""

from dataclasses import replace

from tests.build.rows import US, annotation, comm, copy, graph, kernel, launch, memset, step
from tracelab.model.steps import Window
from tracelab.render.picture.lanes import Mark
from tracelab.render.picture.rank_work import reduce_work


def reduced(*rows, device=0, windows=None):
    made = graph(*(replace(row, start=row.start * US, end=row.end * US) for row in rows))
    return reduce_work(made, windows or made.host.timeline.windows, device)


def in_us(intervals):
    return list(zip((intervals.starts / US).tolist(), (intervals.ends / US).tolist(), strict=True))


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
    work = reduced(
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
    assert {mark: in_us(covered) for mark, covered in work.work.items()} == {
        Mark.FORWARD: [(100, 200)],
        Mark.BACKWARD: [(200, 400)],
        Mark.OTHER_COMPUTE: [(400, 450)],
        Mark.COMM: [(150, 300)],
        Mark.COPY: [(450, 460)],
        Mark.MEMSET: [(470, 480)],
    }


def test_compute_without_a_backward_pass_is_compute():
    work = reduced(launch(0, 1, 1), kernel(100, 200, correlation=1), kernel(300, 400))
    assert list(work.work) == [Mark.COMPUTE]


def test_only_the_device_that_decides():
    rows = (kernel(100, 200), kernel(150, 900, device=1))
    assert in_us(reduced(*rows, device=1).work[Mark.COMPUTE]) == [(150, 900)]


def test_of_very_many_steps_those_in_the_middle():
    work = reduced(*steps(40, apart=1000, length=900, compute=(100, 800)))
    assert len(work.windows) == 41  # all steps are known on the file's clock
    assert work.steps == tuple(range(16, 24))
    # and the work of a step's length around them, which lies beside that of ranks that are late
    assert (work.start_ns / US, work.end_ns / US) == (15_100, 24_800)
    assert len(work.work[Mark.COMPUTE]) == 10


def test_of_one_step_its_neighbors_are_known_too():
    rows = steps(5, apart=100, length=100, compute=(20, 80))
    work = reduced(*rows, windows=(Window(2, 200 * US, 300 * US),))
    assert work.steps == (2,)
    assert in_us(work.work[Mark.COMPUTE]) == [(120, 180), (220, 280), (320, 380)]


def test_a_crowd_of_short_kernels_has_a_bounded_size_and_its_exact_time():
    kernels = [kernel(2 * i, 2 * i + 1) for i in range(50_000)]
    covered = reduced(*kernels).work[Mark.COMPUTE]
    assert len(covered) <= 8193
    assert (covered.ends - covered.starts).sum() == 50_000 * US
