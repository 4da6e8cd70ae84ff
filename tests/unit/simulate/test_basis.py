"""The step that is printed: its length, predictions carried over to it, and what remains."""

from __future__ import annotations

import pytest

from tests.build.host_bound_loop import STEP_US, graph_of, recorded_steps
from tests.build.rows import US
from tests.unit.simulate.test_edits import pageable_copy, synchronized
from tracelab.simulate.baseline import find_baseline
from tracelab.simulate.basis import Bounds, StepBasis, find_basis, gpu_chain
from tracelab.simulate.program import NodeKind
from tracelab.simulate.replay import replay


def of(*rows, **timed):
    return find_basis(graph_of(*rows, **timed).host.timeline)


def test_the_step_is_without_the_profiler_where_that_was_timed():
    recorded, timed = of(*recorded_steps()), of(*recorded_steps(), step_us=80, host_us=70)
    assert (recorded.step_ns, recorded.profiled_step_ns) == (STEP_US * US, STEP_US * US)
    assert recorded.name == "profiled"
    assert (timed.step_ns, timed.profiled_step_ns) == (80 * US, STEP_US * US)
    assert timed.name == "unprofiled"


def test_it_is_a_step_that_follows_another_one_where_the_replay_says_that():
    # GIVEN a host that takes 82 us a step without the profiler, and a recorder that waits for the
    # GPU for 40 us behind two of them
    baseline = find_baseline(graph_of(*recorded_steps(), step_us=82 + 40 / 2, host_us=82))
    assert baseline.printed.step_ns == pytest.approx(82 * US, abs=50)
    assert baseline.unprofiled_step_ns == baseline.printed.step_ns


def test_also_where_nothing_explains_what_the_host_took():
    # GIVEN a host that takes 62 us at least, where 10 were timed, in blocks of 2 steps of 100
    baseline = find_baseline(graph_of(*recorded_steps(), step_us=100, host_us=10))
    assert baseline.not_calibrated is not None
    # THEN of what a step took in such a block, 62 + 60 / 2, so much is that of one among others
    assert baseline.printed.step_ns == pytest.approx(100 * US * 62 / 92, rel=0.01)


def test_without_steps_it_is_the_whole_trace():
    graph = graph_of(*(row for row in recorded_steps() if not row.name.startswith("Profiler")))
    window = graph.host.timeline.windows[0]
    assert find_basis(graph.host.timeline) == StepBasis(window.length_ns, window.length_ns)


@pytest.mark.parametrize(
    ("step", "remains", "carried"),
    [
        # The replayed step is the printed one: 30 saved of 100, between 20 and 40.
        (100, 0, (70, 60, 80)),
        # It is half as long: 15 of 50. By how much they differ, once, it may be 0 or 2 * 20.
        (50, 0, (35, 10, 50)),
        # It is a quarter longer: 37.5 of 125; by a fifth more or less it is 20 to 60.
        (125, 0, (125 - 38, 125 - 60, 125 - 20)),
        # Of 100, 75 remain: nothing saves more than 25.
        (100, 75, (75, 75, 80)),
        # More remains than a step takes: nothing is saved.
        (100, 120, (100, 100, 100)),
    ],
)
def test_the_share_that_is_saved_is_carried_over(step, remains, carried):
    basis = StepBasis(step, 100)
    assert basis.carry(100, 100, Bounds(70, 60, 80), remains) == carried


def test_what_makes_a_step_longer_stays_longer():
    # 10 more of 100, at least 5 less and at most 30 more; half as long, 5 more, 5 less to 30 more
    assert StepBasis(50, 100).carry(100, 100, Bounds(110, 95, 130), 0) == (55, 45, 80)


def test_what_the_profiler_slowed_may_be_all_that_is_saved():
    # 20 of 100 are the profiler's, and at least 15 are saved: 30 of 100 is 24 of 80, or nothing.
    assert StepBasis(80, 100).carry(100, 100, Bounds(70, 60, 85), 0) == (56, 40, 80)


def test_what_comes_after_other_changes_starts_from_their_step():
    # Of 200 they leave 150; 30 more are saved, which is 15 of 75, and 70 of them remain.
    basis = StepBasis(100, 200, is_unprofiled=True)
    assert basis.carry(200, 150, Bounds(120, 120, 120), 70).predicted_ns == 70
    assert basis.carry(200, 150, Bounds(120, 120, 120), 0).predicted_ns == 60


@pytest.mark.parametrize("scene", [synchronized, pageable_copy])
def test_the_longest_chain_of_gpu_work_remains(scene):
    program = scene().program
    works = program.kind == NodeKind.ACTIVITY
    # All of it runs in one stream.
    of_step_ns = int(program.cost_ns[works].sum()) // program.steps
    assert int(replay([gpu_chain(program)]).step_ns[0]) == of_step_ns
