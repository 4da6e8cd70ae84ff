"""A figure that was changed is told, and whole reports of traces pass."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from tests.bundled_traces import FOLDER
from tracelab.analysis.analysis import analyze_source
from tracelab.analysis.verify import verify, verify_file
from tracelab.base.options import Options

TRACE = FOLDER / "prefetch_copy_stream_pinned.pt.trace.json.gz"


@pytest.fixture
def analysis(tmp_path):
    """Of a copy, for what is made of the trace itself is shared by all tests."""
    path = shutil.copy(TRACE, tmp_path)
    analysis = analyze_source(path, Options(cache=False, prices=False))
    assert analysis.report  # made before a test changes what it is made of
    return analysis


def set_column(result, name, change):
    """The same arrays with one of them changed."""
    column = getattr(result, name).copy()
    change(column)
    return replace(result, **{name: column})


def test_nothing_differs(analysis):
    found = verify(analysis.report, [verify_file(analysis)])

    windows, activities = len(analysis.report.windows), len(analysis.timeline.event_id)
    devices = len(analysis.timeline.device_numbers)
    assert found.differences == ()
    assert found.sums >= 3 * windows * devices
    assert found.tilings == (5 + 9 + 1) * windows * devices
    assert found.bindings == 3 * -(-activities // 100)


@pytest.mark.parametrize("name", ["busy_ns", "compute_ns", "copy_ns"])
def test_a_time_that_is_not_that_of_the_activities_is_told(analysis, name):
    first, *others = analysis.tables["windows"]
    [device] = first.devices
    changed = replace(device, **{name: getattr(device, name) + 1})
    analysis.tables["windows"] = (replace(first, devices=(changed,)), *others)

    [difference] = verify_file(analysis).differences

    assert f"{name.removesuffix('_ns')} time is {getattr(device, name):,} ns" in difference


def test_bubbles_that_overlap_an_activity_are_told(analysis):
    def begin_earlier(start_ns):
        start_ns[len(start_ns) // 2] -= 1

    analysis.bubbles = set_column(analysis.bubbles, "start_ns", begin_earlier)

    assert any("idle time `" in x for x in verify_file(analysis).differences)


def test_bubbles_that_leave_a_hole_are_told(analysis):
    def end_earlier(end_ns):
        end_ns[len(end_ns) // 2] -= 1

    analysis.bubbles = set_column(analysis.bubbles, "end_ns", end_earlier)

    assert any("time that is busy or idle" in x for x in verify_file(analysis).differences)


@pytest.mark.parametrize("name", ["launch_ns", "stream_ns", "event_ns"])
def test_a_wrong_binding_is_told(analysis, name):
    def wait_longer(times_ns):
        times_ns[100] += 1

    binding = set_column(analysis.graph.binding, name, wait_longer)
    analysis.graph = replace(analysis.graph, binding=binding)

    [difference] = verify_file(analysis).differences

    assert difference.startswith("activity 100: ")


def test_a_command_says_what_it_verified(tracelab):
    ran = tracelab("analyze", TRACE, "--verify", "--no-cache")

    assert ran.code == 0
    assert "verified " in ran.err


@pytest.mark.parametrize(("name", "code"), [("", 0), ("busy_ns", 3), ("idle_ns", 3)])
def test_a_saved_report_in_which_a_number_was_changed_fails(
    analysis, tracelab, tmp_path, name, code
):
    saved = json.loads(analysis.report.to_json())
    if name:
        saved["windows"][1]["devices"][0][name] += 7
    path = tmp_path / "report.json"
    path.write_text(json.dumps(saved))

    ran = tracelab("analyze", path, "--verify")

    assert ran.code == code
    assert ("the report is damaged: verified" in ran.err) == (code == 3)


def test_a_wrong_figure_of_a_trace_is_a_bug(tracelab, monkeypatch):
    monkeypatch.setattr("tracelab.analysis.verify._within", lambda *_: 0)

    ran = tracelab("analyze", TRACE, "--verify", "--no-cache")

    assert ran.code == 70
    assert "this is a bug in tracelab: verified" in ran.err
