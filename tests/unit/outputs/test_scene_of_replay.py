"""What a replayed step shows when, worked out by hand."""

import numpy as np
import pytest

from tests.build.files import (
    US,
    call,
    copy,
    kernel,
    launch,
    python,
    step,
    sync_row,
    write,
)
from tracelab.analysis.analysis import analyze_source
from tracelab.base.intervals import measure
from tracelab.base.options import Options
from tracelab.model.trace import ABSENT
from tracelab.outputs.scene_of_replay import (
    moved_activities,
    replayed_times,
    scene_of_replay,
    scenes_of_replay,
)
from tracelab.read.sources import find_sources
from tracelab.render.picture.save import Look
from tracelab.render.picture.timeline import draw_whatif
from tracelab.simulate.edits import Edit, apply_edit
from tracelab.simulate.program import Via, out_of_stream
from tracelab.simulate.replay import replay

STEPS, STEP = 5, 200 * US
COPY, GEMM = 40 * US, 60 * US


def events_of_steps(*, waits):
    """Each step copies 40 us and computes 60 us; in the end the host may wait for that."""
    for number in range(STEPS):
        at, first = number * STEP, 3 * number + 1
        yield step(number, at, at + STEP)
        yield python("train.py(3): step", at, at + STEP - US)
        yield launch(at + 10 * US, at + 15 * US, first, name="cudaMemcpyAsync")
        yield copy(
            at + 20 * US, at + 20 * US + COPY, "Memcpy HtoD (Pinned -> Device)", correlation=first
        )
        yield launch(at + 20 * US, at + 25 * US, first + 1)
        yield kernel(at + 62 * US, at + 62 * US + GEMM, correlation=first + 1)
        if waits:
            ids = {"correlation": first + 2}
            yield call("cudaStreamSynchronize", at + 30 * US, at + 130 * US, **ids)
            yield sync_row("Stream Sync", at + 30 * US, at + 130 * US, stream=7, **ids)


@pytest.fixture
def analyzed(tmp_path):
    def analyze(*, waits=True):
        path = write(tmp_path / "steps.json", [*events_of_steps(waits=waits)])
        [source] = find_sources([str(path)])
        return analyze_source(source, Options(cache=False))

    return analyze


def times_of(analysis, program):
    replayed = replay([program])
    [step_ns] = replayed.step_ns.tolist()
    return replayed_times(analysis.timeline, program, replayed.time_ns[:, 0], step_ns)


def shown(analysis, times, is_moved=None):
    """List the lanes of a step by label: how long each kind covers, ns."""
    moved = np.zeros(len(times.program), dtype=np.bool_) if is_moved is None else is_moved
    scene = scene_of_replay(analysis.phases, times, moved)
    lengths = {
        lane.label: {kind: measure(lane.covered(kind, scene.window)) for kind in lane.kinds}
        for lane in scene.lanes
    }
    return {label: {kind: ns for kind, ns in x.items() if ns} for label, x in lengths.items()}


def test_a_step_has_each_activity_once_and_the_time_that_the_host_was_blocked(analyzed):
    analysis = analyzed()
    program = analysis.baseline.program
    times = times_of(analysis, program)
    start_ns, end_ns = times.step_window()
    lanes = shown(analysis, times)
    assert lanes["stream 7"] == {"copy": COPY, "compute": GEMM}
    blocked_ns = lanes["main thread"]["blocking"]
    assert abs(blocked_ns - 100 * US) < 0.02 * STEP
    assert abs(end_ns - start_ns - STEP) < 0.02 * STEP
    assert not times.runs_ahead


def test_window_begins_with_the_first_compute(analyzed):
    analysis = analyzed()
    times = times_of(analysis, analysis.baseline.program)
    start_ns, end_ns = times.step_window()
    starts_ns, ends_ns, node = times.events(start_ns, end_ns)
    at_start = node[starts_ns == start_ns]
    assert [analysis.timeline.trace.name_of(times.program.event_id[x]) for x in at_start] == [
        "gemm"
    ]
    assert (ends_ns > start_ns).all()
    assert (starts_ns < end_ns).all()


def test_host_that_nothing_holds_back_is_shown_step_by_step(analyzed):
    analysis = analyzed()
    program = analysis.baseline.program
    edited = apply_edit(Edit("unblock"), program, analysis.sites).program
    less = apply_edit(Edit("host", value=0.1), edited, analysis.sites).program
    times = times_of(analysis, less)
    lanes = shown(analysis, times)
    assert times.runs_ahead
    assert lanes["stream 7"] == {"copy": COPY, "compute": GEMM}
    # Its two calls of 5 us each, a tenth of that as edited, in every step.
    assert set(lanes["main thread"]) == {"launch_call"}


def test_what_was_taken_out_of_its_stream_has_a_lane_of_its_own(analyzed):
    analysis = analyzed()
    program = analysis.baseline.program
    copies = np.zeros(len(program), dtype=np.bool_)
    copies[program.row != ABSENT] = program.cost_ns[program.row != ABSENT] == COPY
    edited = apply_edit(Edit("prefetch"), program, analysis.sites).program
    moved = moved_activities(program, edited)
    assert moved.tolist() == copies.tolist()
    assert not moved_activities(program, program).any()
    lanes = shown(analysis, times_of(analysis, edited), moved)
    # Beside the copy it takes a little longer.
    assert set(lanes["stream 7"]) == {"compute"}
    assert lanes["stream 7"]["compute"] == pytest.approx(GEMM, rel=0.01)
    assert lanes["stream 7, new"] == {"copy": COPY}


def test_single_activities_out_of_their_stream_are_moved(analyzed):
    analysis = analyzed()
    program = analysis.baseline.program
    one = np.zeros(len(program), dtype=np.bool_)
    one[np.flatnonzero(program.cost_ns == COPY)[1]] = True
    edited = out_of_stream(program, one, analysis.sites.gap_ns)
    assert ((edited.via == Via.STREAM) & one[edited.target]).any()
    assert moved_activities(program, edited).tolist() == one.tolist()


def test_both_halves_have_the_same_scale_and_lanes(analyzed):
    analysis = analyzed()
    program = analysis.baseline.program
    edited = apply_edit(Edit("unblock"), program, analysis.sites).program
    scenes = scenes_of_replay(analysis.phases, program, edited)
    figure = draw_whatif(scenes, titles=("before", "after"), look=Look()).figure
    above, below = figure.axes
    lengths = [axes.get_xlim()[1] for axes in (above, below)]
    widths = [axes.get_position().width for axes in (above, below)]
    assert lengths[0] > lengths[1]
    assert lengths[0] / widths[0] == pytest.approx(lengths[1] / widths[1], rel=0.01)
    texts = [{text.get_text() for text in axes.texts} for axes in (above, below)]
    assert {"before", "stream 7", "main thread", "GPU 0"} <= texts[0]
    assert {"after", "stream 7", "main thread", "GPU 0"} <= texts[1]
    ticks = [axes.get_xticks() for axes in (above, below)]
    assert set(ticks[1]) <= set(ticks[0])
