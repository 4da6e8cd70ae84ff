"""A typical step of a bundled capture tells the story of the whole capture, or says why not."""

from __future__ import annotations

import pytest

from tests.bundled_traces import FOLDER, PATHS, files_of, name_of, report_of
from tests.shared_traces import each_real_trace, needs_real_traces, path_of
from tracelab.base.options import Options
from tracelab.findings.finding import is_same_place
from tracelab.model.steps import MIN_GPU_SHARE, find_repeated
from tracelab.model.timeline import build_timeline
from tracelab.read.reader import read_trace_in_chunks
from tracelab.read.sources import find_sources


def median_step(report):
    [steady] = report.steady
    by_length = sorted(zip(steady.lengths_ns, steady.steps, strict=True))
    return by_length[(len(by_length) - 1) // 2][1]


def about_program(report):
    return [x for x in report.findings if x.about == "program"]


def tells_the_story(path):
    """Whether the median step's first finding is the capture's; if not, the step's note says so."""
    whole = report_of(path)
    number = median_step(whole)
    of_step = report_of(path, options=Options(step=number))
    first, *_ = (*about_program(whole), None)
    first_of_step, *_ = (*about_program(of_step), None)
    # What the start of the recording made idle is said of the step as of the capture.
    notes = [note for note in of_step.notes if "the recording had just begun" not in note.text]
    if first is None or (first_of_step and is_same_place(first, first_of_step)):
        assert notes == []
        return True
    [note] = notes
    assert (note.step, note.rank) == (number, of_step.traces[0].rank)
    assert f"of the steady steps' first finding, {first.rule}" in note.text
    assert first.title in note.text
    return False


@pytest.mark.parametrize(
    ("name", "tells"),
    [("prefetch_copy_stream_synchronize", True), ("optimizers_average_foreach", False)],
)
def test_median_step_tells_the_story_of_the_capture_or_says_why_not(name, tells):
    [path] = files_of(name)
    assert tells_the_story(path) == tells


@each_real_trace
@pytest.mark.slow
def test_so_does_that_of_a_trace_from_elsewhere(real_trace):
    if report_of(real_trace).steady:
        tells_the_story(real_trace)


@pytest.mark.whole_corpus
def test_most_captures_have_a_median_step_that_tells_their_story():
    assert sum(map(tells_the_story, PATHS)) >= 0.8 * len(PATHS)


def test_the_captures_blocking_call_is_the_first_finding_of_each_step_behind_one():
    # The first step has none before it; the call costs idle time in the step that follows.
    path = FOLDER / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
    for number in (3, 4, 5, 6):
        finding, *_ = report_of(path, options=Options(step=number)).findings
        assert (finding.rule, finding.cause, finding.severity) == ("TL101", "host_sync", "warning")


# Captures whose last step is not typical.
LEFT_OUT = {
    "peer_copy_chain": [6],  # lacks work that it launched
    # The profiler stops: nothing is recorded in the last 90 of 262 µs, 10 to 13 in steps before.
    "recompiled_any_length": [5],
    "two_streams_small": [6],  # in the last 44 of 1,370 µs, 11 to 15 in steps before
}


def test_every_capture_made_here_has_whole_steps(bundled_path):
    [steady] = report_of(bundled_path).steady
    left_out = LEFT_OUT.get(name_of(bundled_path), [])
    assert [x.step for x in steady.left_out] == left_out
    steps = [x.step for x in report_of(bundled_path).windows if x.step is not None]
    assert list(steady.steps) == [x for x in steps if x not in left_out]
    assert steady.step_ns == sorted(steady.lengths_ns)[len(steady.lengths_ns) // 2] or (
        len(steady.lengths_ns) % 2 == 0
    )
    assert 0 < steady.gpu_floor_ns <= max(steady.lengths_ns)


@needs_real_traces
@pytest.mark.parametrize(
    ("name", "numbers", "repeats"),
    [
        # Marked by the profiler, once or more, whatever else is annotated.
        ("deepseek_dualpipe_h800", [1], None),
        ("hta_sampled_rank0", [551, 552], None),
        # One step of vLLM, one of SGLang: too few to be sure, and nothing repeats.
        ("tracelens_b200_eager", [], []),
        ("tracelens_sglang_decode", [], []),
        # No annotation launches most of the work.
        ("hta_simple_add", [], [2, 2]),
        ("tracelens_mi300x_normalization", [], [3] * 10),
        pytest.param("param_linear", [], [40, 40], marks=pytest.mark.slow),
    ],
)
def test_steps_of_traces_from_elsewhere(name, numbers, repeats):
    [source] = find_sources([path_of(name)])
    timeline = build_timeline(read_trace_in_chunks(source, 1))
    assert [step.number for step in timeline.steps] == numbers
    if repeats is not None:
        took_ns = timeline.end_ns - timeline.start_ns
        found = find_repeated(timeline.trace, timeline.launch_id, took_ns)
        assert [x.count for x in found] == repeats
        assert all(x.gpu_share < MIN_GPU_SHARE for x in found)
