"""Predictions for programs that replay CUDA graphs, compared with what the fixed program takes."""

import pytest

from tests.build import replays, rows
from tests.build.files import write
from tests.build.repeated_scenes import scene
from tests.build.rows import US
from tracelab import analyze
from tracelab.base.options import Options

PROGRAMS = (
    replays.late,
    replays.ahead,
    replays.read_each_step,
    replays.synchronized,
    replays.in_a_row,
    replays.small_graphs,
    replays.one_graph,
    replays.piecewise,
    replays.whole,
    replays.copied_first,
    replays.copied_late,
    replays.copied_ahead,
)


@pytest.fixture
def analyzed(tmp_path):
    """The report of a program, with the prediction of some edits."""

    def analyze_program(program, *edits):
        path = write(tmp_path / "hand.json", replays.run(program))
        return analyze(path, Options(cache=False, edits=edits))

    return analyze_program


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_without_a_change_the_replay_takes_what_the_program_does(analyzed, program):
    [steady] = analyzed(program).steady
    assert steady.step_ns == 1_000 * replays.step_us(program)
    assert steady.baseline_error == pytest.approx(0, abs=0.01)
    assert steady.not_replayed is None


@pytest.mark.parametrize(
    ("defect", "edit", "fixed"),
    [
        (replays.read_each_step, "unblock:decode.item", replays.ahead),
        (replays.synchronized, "unblock:decode.synchronize", replays.in_a_row),
        (replays.small_graphs, "graph", replays.one_graph),
        (replays.piecewise, "graph", replays.whole),
        (replays.late, "host:sample=0", replays.ahead),
        (replays.copied_first, "prefetch", replays.copied_ahead),
        (replays.copied_late, "prefetch", replays.copied_ahead),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_prediction_is_what_the_fixed_program_takes(analyzed, defect, edit, fixed):
    [prediction] = analyzed(defect, edit).whatif.predictions
    fixed_ns = 1_000 * replays.step_us(fixed)
    assert prediction.predicted_ns == pytest.approx(fixed_ns, rel=0.02)
    assert prediction.low_ns <= fixed_ns <= prediction.high_ns


def test_the_nodes_of_merged_graphs_still_take_their_time_in_the_call(analyzed):
    # GIVEN eight graphs of 20 nodes whose calls take 10 us and 1 us more for each node, so that the
    # host needs 8 x 31 us for 8 x 20 us of kernels and their gaps
    def program(machine):
        for _ in range(8):
            machine.replays([0.1] * 20, node_us=1)

    # WHEN they become one graph, THEN its call takes 10 us and 1 us for each of 160 nodes
    [prediction] = analyzed(program, "graph").whatif.predictions
    assert prediction.step_ns == 8 * 31_000 + 2_000
    assert prediction.predicted_ns >= 10_000 + 160_000

    # and not more than eight calls
    assert prediction.high_ns <= prediction.step_ns


def test_one_graph_is_not_merged_with_itself(analyzed):
    [prediction] = analyzed(replays.late, "graph").whatif.predictions
    assert prediction.predicted_ns == prediction.step_ns
    assert prediction.reason == "graph matches nothing in these steps"


def test_branches_of_a_merged_graph_wait_for_each_other_as_before():
    # GIVEN a graph on two streams, whose last node of stream 13 starts 4 us after that of stream 7
    # has ended, and another graph 4 us behind it; the host launches a step every 20 us
    step_ns = 3 * 10 * US + 2 * 4 * US + 1_600

    def of_step(begin, number):
        gpu_ns = number // 100 * step_ns

        def node(start, end, correlation, stream=7):
            start, end = gpu_ns + start * US, gpu_ns + end * US
            return rows.kernel(start, end, stream=stream, correlation=number + correlation)

        return [
            rows.launch(begin, begin + 4 * US, number + 1, name="cudaGraphLaunch"),
            node(10, 20, 1),
            *(node(start, start + 1, 1, stream=13) for start in (10, 12, 14)),
            node(24, 34, 1, stream=13),
            rows.launch(begin + 5 * US, begin + 9 * US, number + 2, name="cudaGraphLaunch"),
            node(38, 48, 2),
        ]

    # THEN three nodes of 10 us decide, with 4 us between them, and 1.6 to the next step
    the_scene = scene(20 * US, of_step)
    assert the_scene.step_ns() == step_ns

    # and as one graph only what was between the two is less: 1 us, as between other nodes
    assert the_scene.step_ns("graph") == step_ns - 3 * US


def test_a_graph_of_many_streams_replays_as_it_ran_and_with_few_edges():
    # GIVEN two graphs a step, each of 40 nodes in streams of their own, one behind the other
    def of_step(begin, number):
        def graph(start, correlation):
            return [
                rows.launch(start, start + 4 * US, number + correlation, name="cudaGraphLaunch"),
                *(
                    rows.kernel(at, at + US, stream=20 + i, correlation=number + correlation)
                    for i in range(40)
                    for at in (start + 10 * US + i * 1_200,)
                ),
            ]

        return [*graph(begin, 1), *graph(begin + 100 * US, 2)]

    # THEN the host decides what a step takes, as it did
    the_scene = scene(200 * US, of_step)
    assert the_scene.step_ns() == pytest.approx(200 * US, rel=0.01)

    # and no node waits for the ends of all others
    assert len(the_scene.program.source) < 8 * len(the_scene.program)


def test_merged_graphs_take_no_less_than_their_kernels_one_after_the_other():
    # GIVEN a kernel of 30 us and, launched late, a graph whose 60 nodes of 3 us run in streams of
    # their own for no reason that the file shows: six every 4 us, each 0.5 us after the one before
    def of_step(begin, number):
        graph = begin + 60 * US
        return [
            rows.launch(begin, begin + 4 * US, number + 1),
            rows.kernel(begin + 10 * US, begin + 40 * US, correlation=number + 1),
            rows.launch(begin + 50 * US, begin + 54 * US, number + 2, name="cudaGraphLaunch"),
            *(
                rows.kernel(at, at + 3 * US, stream=100 + node, correlation=number + 2)
                for node in range(60)
                for at in (graph + node // 6 * 4 * US + node % 6 * US // 2,)
            ),
        ]

    the_scene = scene(110 * US, of_step)
    assert the_scene.step_ns() == 110 * US

    # WHEN one call of 8 us launches both and the host goes on for 56, THEN the graph still follows
    # the kernel, its nodes begin one after another as before, and the next kernel follows the
    # graph: 0.5 us as between nodes, 1.6 us as between kernels
    assert the_scene.step_ns("graph") == 30 * US + 500 + (9 * 4 * US + 5 * 500 + 3 * US) + 1_600
