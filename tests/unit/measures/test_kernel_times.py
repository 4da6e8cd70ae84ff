"""The times of GPU activities by name, in nanoseconds."""

from tests.build.rows import copy, graph, kernel, launch, step
from tracelab.measures.kernel_times import KernelTotal, kernel_times, unrecognised_kernels


def test_kernels_are_added_up_by_name_and_launching_step():
    two_steps = graph(
        step(1, 0, 10),
        step(2, 10, 20),
        launch(1, 2, 1),
        launch(3, 4, 2),
        launch(11, 12, 3),
        kernel(2, 5, "a", correlation=1),
        kernel(5, 9, "a", correlation=2, stream=9),
        kernel(12, 19, "b", correlation=3),
        kernel(30, 35, "a"),
    )

    a, b = kernel_times(two_steps)

    assert (a.name, a.steps_ns, a.step_counts) == ("a", (7, 0), (2, 0))
    assert (a.total_ns, a.count) == (12, 3)
    assert (b.name, b.steps_ns, b.total_ns) == ("b", (0, 7), 7)


def test_without_steps_there_is_only_the_whole_trace():
    [times] = kernel_times(graph(kernel(2, 5, "a"), kernel(5, 9, "a", device=1)))

    assert (times.steps_ns, times.step_counts, times.total_ns, times.count) == ((), (), 7, 2)


def test_unrecognised_kernels_are_the_long_ones_that_no_rule_knows():
    # Of 10,000 ns busy, a hundredth is 100: "brief" is below that, and copies are no kernels.
    rows = [
        kernel(0, 9_000, "gemm"),
        kernel(9_000, 9_150, "my_own"),
        kernel(9_150, 9_300, "my_own"),
        kernel(9_300, 9_600, "another"),
        kernel(9_600, 9_700, "just_enough"),
        kernel(9_700, 9_799, "brief"),
        copy(9_799, 10_000),
    ]

    assert unrecognised_kernels(graph(*rows)) == (
        KernelTotal("another", 1, 300),
        KernelTotal("my_own", 2, 300),
        KernelTotal("just_enough", 1, 100),
    )
