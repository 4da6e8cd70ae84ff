"""Whether the steps as they are can be replayed, and what predictions are of."""

from __future__ import annotations

import pytest

from tests.build import rows
from tests.build.crowds import crowd
from tests.build.files import write
from tests.build.host_bound_loop import EVENTS_A_STEP, STEP_US, graph_of, recorded_steps
from tests.build.rows import US
from tests.figures import figures
from tests.unit.simulate.test_edits import pageable_copy, synchronized
from tracelab.analysis.analysis import analyze_source
from tracelab.base.options import Options
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.simulate import baseline as baseline_module
from tracelab.simulate.baseline import Bounds, StepBasis, find_baseline, find_basis, gpu_chain
from tracelab.simulate.program import NodeKind
from tracelab.simulate.replay import replay


def test_steps_that_replay_as_they_were(snapshot):
    baseline = find_baseline(graph_of(*recorded_steps()))
    assert baseline.program is not None
    assert baseline.steps == (1, 2, 3)
    assert baseline.step_ns == baseline.replayed_ns == STEP_US * US
    assert (baseline.error, baseline.not_replayed, baseline.is_share) == (0, None, False)
    # A stock recording: with the profiler.
    assert baseline.basis == PROFILED
    assert baseline.not_calibrated == snapshot


def test_steps_that_still_got_faster_while_they_were_timed(snapshot):
    baseline = find_baseline(graph_of(*recorded_steps(), is_unsteady=True))
    assert (baseline.basis, baseline.not_replayed) == (PROFILED, None)
    assert baseline.not_calibrated == snapshot


def test_one_step_is_repeated():
    baseline = find_baseline(graph_of(*recorded_steps(count=1)))
    assert baseline.steps == (0,)
    assert baseline.error == 0


def test_without_steps_it_is_the_whole_trace_once():
    without_steps = [row for row in recorded_steps() if not row.name.startswith("ProfilerStep")]
    baseline = find_baseline(graph_of(*without_steps))
    assert (baseline.steps, baseline.is_share) == ((), True)
    assert baseline.error == pytest.approx(0, abs=0.02)


def test_without_steps_it_is_replayed_a_single_time(monkeypatch):
    # GIVEN kernels of 80 us in one stream that overlap, so that the replay is off
    without_steps = [
        rows.kernel(row.start, row.start + 80 * US, correlation=row.correlation)
        if row.name == "gemm"
        else row
        for row in recorded_steps()
        if not row.name.startswith("ProfilerStep")
    ]
    replayed = []
    monkeypatch.setattr(
        baseline_module, "replay", lambda programs: replayed.append(programs) or replay(programs)
    )
    baseline = find_baseline(graph_of(*without_steps))
    # THEN that is said of the trace, and not that its steps are not steady
    assert baseline.not_replayed.startswith("The replay of the unchanged trace is ")
    assert len(replayed) == 1


def test_without_launches_there_is_nothing_to_replay(snapshot):
    baseline = find_baseline(graph_of(rows.kernel(0, 10 * US), rows.kernel(20 * US, 30 * US)))
    assert baseline.program is baseline.error is None
    assert baseline.not_replayed == snapshot


def test_typical_steps_without_launches_have_nothing_to_replay(snapshot):
    # GIVEN a step of 300 us that launches a kernel, and two of 100 us that launch nothing
    rows_of_steps = [
        rows.step(0, 0, 300 * US),
        rows.launch(10 * US, 20 * US, 1),
        rows.kernel(25 * US, 30 * US, correlation=1),
        rows.step(1, 300 * US, 400 * US),
        rows.step(2, 400 * US, 500 * US),
    ]
    baseline = find_baseline(graph_of(*rows_of_steps))
    assert baseline.program is baseline.error is None
    assert baseline.not_replayed == snapshot


def steps_with_late_starts():
    """In each step a kernel starts 32.112 us after its launch, though its stream was idle."""
    return [
        rows.kernel(row.start + 30 * US, row.end + 30 * US, correlation=row.correlation)
        if row.name == "gemm" and row.correlation % 2
        else row
        for row in recorded_steps()
    ]


@pytest.mark.parametrize(
    ("info", "command"),
    [
        ({}, " Record again: `tracelab run train.py`."),
        ({"world_size": 2}, " Record again: `torchrun ... -m tracelab run train.py`."),
        ({"collector": "kineto"}, ""),  # that is what tracelab records
        ({"software": {"hip": "6.3.0"}}, ""),  # it has no event records
    ],
)
def test_what_to_do_about_late_starts_is_what_helps(info, command):
    said = find_baseline(graph_of(*steps_with_late_starts(), **info)).not_replayed
    assert said.partition("does not say why.")[2] == command


def test_late_starts_that_nothing_explains(snapshot):
    baseline = find_baseline(graph_of(*steps_with_late_starts()))
    assert baseline.program is None
    assert figures(baseline.not_replayed) == ["32 %"]
    assert baseline.not_replayed == snapshot
    assert baseline.error == 0


def test_a_wait_for_something_that_is_not_in_the_file(snapshot):
    # GIVEN an event synchronize of 22 us in each step, during which no kernel ends
    some = recorded_steps(kernel_us=2)
    for number in range(4):
        start = number * STEP_US * US
        some.append(
            rows.call("cudaEventSynchronize", start + 27 * US, start + 49 * US, correlation=90)
        )
    baseline = find_baseline(graph_of(*some))
    assert baseline.program is None
    assert figures(baseline.not_replayed) == ["22 %"]
    assert baseline.not_replayed == snapshot


def test_a_replay_that_is_off():
    # GIVEN kernels of 80 us in one stream, which would take 160 us a step if they did not overlap
    some = recorded_steps(kernel_us=8)
    late = [
        rows.kernel(row.start, row.start + 80 * US, correlation=row.correlation, stream=7)
        if row.name == "gemm"
        else row
        for row in some
    ]
    baseline = find_baseline(graph_of(*late))
    assert baseline.program is None
    assert baseline.error > 0.02
    assert baseline.not_replayed.startswith("The replay of the unchanged step is ")
    assert " longer than recorded. " in baseline.not_replayed


class TestStepsThatAreNotSteady:
    """The GPU needs 123.2 us a step, the host 100 and, behind the last step, 95 us more."""

    some = tuple(
        rows.step(3, row.start, row.end + 95 * US) if row.name == "ProfilerStep#3" else row
        for row in recorded_steps(kernel_us=60)
    )

    def test_with_the_profiler_nothing_is_predicted(self, snapshot):
        # GIVEN the host ahead of the GPU, so that the recorded steps take what the GPU needs
        baseline = find_baseline(graph_of(*self.some))
        # THEN one after the other they would take (300 + 95) / 3 us, 6.9 % more than 123.2
        assert baseline.program is None
        assert baseline.error == pytest.approx(395 / 3 / 123.2 - 1, abs=0.001)
        assert figures(baseline.not_replayed.replace("(", "")) == ["7 %"]
        assert baseline.not_replayed == snapshot

    def test_without_the_profiler_they_are_compared_with_what_the_recorder_timed(self):
        # GIVEN a recorder that timed 60 such steps
        graph = graph_of(*self.some, host_us=395 / 3, step_us=395 / 3, block_steps=60)
        baseline = find_baseline(graph)
        assert (baseline.basis, baseline.not_replayed) == (UNPROFILED, None)
        assert baseline.step_ns == pytest.approx(395 / 3 * US, rel=0.005)


class TestWithoutTheProfiler:
    host_us = STEP_US - 3 * EVENTS_A_STEP

    def test_predictions_are_of_the_step_without_it(self):
        # GIVEN a recorder whose last wait took 2 x 10 us for two steps
        graph = graph_of(*recorded_steps(), host_us=self.host_us, step_us=self.host_us + 10)
        baseline = find_baseline(graph)
        # THEN a step that follows another one does not take these
        assert baseline.basis == UNPROFILED
        assert baseline.not_calibrated is None
        assert baseline.error == pytest.approx(0, abs=1e-3)
        assert baseline.step_ns == pytest.approx(self.host_us * US, abs=50)

    def test_a_host_that_is_faster_or_slower_by_what_hosts_drift_is_possible_as_well(self):
        baseline = find_baseline(
            graph_of(*recorded_steps(), host_us=self.host_us, step_us=self.host_us + 10)
        )
        step_ns = replay(baseline.loose).step_ns
        assert step_ns == pytest.approx(
            [0.85 * self.host_us * US, 1.15 * self.host_us * US], abs=50
        )
        # Its kernels take what they took.
        is_kernel = baseline.program.kind == NodeKind.ACTIVITY
        for program in baseline.loose:
            assert program.cost_ns[is_kernel].tolist() == [8 * US] * 6

    def test_a_host_whose_time_no_cost_explains(self, snapshot):
        baseline = find_baseline(graph_of(*recorded_steps(), host_us=STEP_US / 10))
        # THEN it is of the step with it, and the fastest host is possible as well
        assert (baseline.basis, baseline.step_ns) == (PROFILED, STEP_US * US)
        assert figures(baseline.not_calibrated) == ["10.00 µs", "62.00 µs"]
        assert baseline.not_calibrated == snapshot
        assert replay(baseline.loose[:1]).step_ns == [62 * US]

    def test_a_host_that_is_far_ahead_need_not_be_explained(self):
        # GIVEN a GPU that needs 323.2 us, and a host that takes 10, or 62 in the replay
        some = recorded_steps(kernel_us=160)
        step_us = (22 + 4 * 160 + 3 * 1.6) / 2
        baseline = find_baseline(graph_of(*some, host_us=STEP_US / 10, step_us=step_us))
        assert (baseline.basis, baseline.not_calibrated) == (UNPROFILED, None)

    def test_a_step_whose_gpu_took_longer_without_it(self, snapshot):
        graph = graph_of(*recorded_steps(), host_us=self.host_us, step_us=300)
        baseline = find_baseline(graph)
        assert baseline.basis == PROFILED
        assert {"300.00 µs"} <= {*figures(baseline.not_calibrated)}
        assert baseline.not_calibrated == snapshot


def test_what_lost_its_gpu_work_is_not_replayed(snapshot):
    lost = [row for row in recorded_steps() if row.name == "gemm"][::2]
    some = [x for x in recorded_steps() if x not in lost and not x.name.startswith("Profiler")]
    assert find_baseline(graph_of(*some)).not_replayed == snapshot


def test_very_many_streams_are_not_replayed(tmp_path, snapshot):
    def of(count):
        path = write(tmp_path / "trace.json", crowd("devices", count))
        return analyze_source(path, Options(cache=False)).baseline

    assert of(128).program is not None
    assert of(129).program is None
    assert of(129).not_replayed == snapshot


# --- the step that is printed ---


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
