"""The figures that are said first add up as printed, and are of one step."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.build.report_rows import (
    MS,
    make_device,
    make_report,
    make_savings,
    make_steady,
    make_steady_report,
    make_window,
)
from tests.bundled_traces import FOLDER, report_of
from tracelab import load_report
from tracelab.report.headline import apportion


def headline(*devices, **figures):
    [found] = make_steady_report(*devices, **figures).headline
    return found


@pytest.mark.parametrize(
    ("amounts", "whole", "parts"),
    [
        ([500, 250, 250], 100, [50, 25, 25]),
        ([2, 2, 2], 100, [34, 33, 33]),  # what is left of 100 goes to the largest rests, first ones
        ([999, 1], 10, [10, 0]),
        ([], 10, []),
        ([0], 10, [0]),
    ],
)
def test_parts_add_up_to_the_whole(amounts, whole, parts):
    assert apportion(amounts, whole) == parts


def test_busy_and_idle_are_of_all_steady_steps_together():
    # GIVEN a GPU that works 19.011 of 20 ms: 95.055 and 4.945 %, whose rest is larger
    device = make_device(busy_ns=19_011_000, idle_ns=989_000)
    # WHEN
    found = headline(device, gpu_floor_ns=9_900_000)
    # THEN they add up, though the median step has 9.9 of 10 ms
    assert (found.busy_share, found.idle_share) == (0.95, 0.05)


def test_what_blocking_calls_delay_is_theirs_and_what_the_loader_takes_is_the_loaders():
    # GIVEN 6 of 20 ms idle: 3 of loading, half a millisecond of it behind a blocking call, 1 in
    # blocking calls, and 2 of the CPU's work, 1 of it delayed by such a call
    device = make_device(
        busy_ns=14 * MS,
        idle_ns=6 * MS,
        bubbles={"input": 3 * MS, "host_blocked": MS, "host_busy": 2 * MS},
        bubbles_by_calls={"input": MS // 2, "host_blocked": MS, "host_busy": MS},
    )
    # THEN it is 3 of loading, 1 + 1 of blocking calls and 2 - 1 of the CPU's work, of 20
    assert headline(device).causes == {"input": 0.15, "host_blocked": 0.1, "host_busy": 0.05}


@pytest.mark.parametrize(
    ("profiler_ms", "host_busy_ms", "causes"),
    [
        # Of 8 ms 4 are the profiler's: 3 + 1 of the first two; what is left is 2 and 2 of 16.
        (3, 3, {"host_busy": 0.13, "launch": 0.12}),
        # All 4 are in the first; 1 + 1 + 2 are left.
        (5, 1, {"launch": 0.13, "profiler": 0.06, "host_busy": 0.06}),
        # Only 2 of 4 are found, and the 6 of launches stand for 4.
        (1, 1, {"launch": 0.25}),
    ],
)
def test_what_the_profiler_adds_is_taken_from_its_own_and_then_the_cpus_work(
    profiler_ms, host_busy_ms, causes
):
    # GIVEN two steps that take 20 ms together, 16 without the profiler, and 12 of work
    bubbles = {"profiler": profiler_ms * MS, "host_busy": host_busy_ms * MS}
    bubbles["launch"] = 8 * MS - sum(bubbles.values())
    device = make_device(busy_ns=12 * MS, idle_ns=8 * MS, bubbles=bubbles)
    # WHEN
    found = headline(device, unprofiled_step_ns=8 * MS, unprofiled_ns=16 * MS)
    # THEN it is 12 of 16 busy
    assert (found.busy_share, found.idle_share) == (0.75, 0.25)
    assert found.causes == causes


def test_causes_of_idle_add_up_to_it_as_printed():
    # 5 of 20 ms in three equal parts: 25 % are 9, 8 and 8.
    part = 5 * MS // 3
    bubbles = {"launch": part, "host_busy": part, "graph": part}
    found = headline(make_device(busy_ns=15 * MS, idle_ns=5 * MS, bubbles=bubbles))
    assert found.causes == {"launch": 0.09, "host_busy": 0.08, "graph": 0.08}


def test_a_saving_is_a_share_of_the_step_that_is_printed():
    # GIVEN a replay of a step of 10 ms, of which 4 (3 to 5) are saved, and 9 without the profiler
    found = headline(savings=make_savings(4, 3, 5), unprofiled_step_ns=9 * MS)
    # THEN 40 % of 9 are 3.6, and 5.4 are left
    assert (found.step_ns, found.profiled_step_ns) == (9 * MS, 10 * MS)
    assert (found.saves_share, found.saves_low_share, found.saves_high_share) == (0.4, 0.3, 0.5)
    assert (found.saves_ns, found.predicted_step_ns) == (3_600_000, 5_400_000)


def test_of_a_job_it_is_the_jobs_step():
    # GIVEN ranks that were replayed together: a step of 12 ms, of which 3 are saved
    savings = make_savings(3, 2, 4, step_ns=12 * MS, is_of_job=True)
    # THEN the step is the job's, not the rank's of 10 or, without the profiler, 9 ms
    found = headline(savings=savings, unprofiled_step_ns=9 * MS)
    assert (found.step_ns, found.predicted_step_ns) == (12 * MS, 9 * MS)
    assert (found.saves_share, found.profiled_step_ns) == (0.25, 10 * MS)


def test_nothing_is_predicted_without_a_replay():
    why = "The file has no calls that launch its GPU work."
    savings = make_savings(None, None, None, step_ns=None, edits=(), not_replayed=why)
    for found in (headline(), headline(savings=savings)):
        assert found.predicted_step_ns is found.saves_ns is found.saves_share is None


def test_of_the_step_that_was_asked_for():
    report = make_report(
        make_window(make_device(busy_ns=3 * MS, idle_ns=MS), step=7), steady=(make_steady(),)
    )
    [found] = report.headline
    assert (found.step, found.step_ns, found.busy_share) == (7, 4 * MS, 0.75)


def test_without_a_gpu_all_is_idle_and_of_no_length_nothing_is_said():
    [found] = make_report(replace(make_window(), devices=())).headline
    assert (found.device, found.busy_share, found.causes) == (None, 0, {})
    [found] = make_report(make_window(make_device(busy_ns=0))).headline
    assert (found.step_ns, found.busy_share, found.idle_share) == (0, 0, 0)


def test_the_headline_is_of_one_step_and_adds_up(tmp_path):
    report = report_of(FOLDER / "train_step_sinful.pt.trace.json.gz")
    [found], [savings], [steady] = report.headline, report.savings, report.steady
    assert found.step_ns == steady.unprofiled_step_ns
    assert found.profiled_step_ns == steady.step_ns
    assert found.busy_share + found.idle_share == pytest.approx(1)
    assert sum(found.causes.values()) == pytest.approx(found.idle_share)
    # They are means of the steady window.
    [device] = [x for x in steady.devices if x.device == found.device]
    assert found.busy_share == pytest.approx(device.busy_ns / steady.length_ns, abs=0.005)
    share = savings.saves_ns / savings.step_ns
    assert found.predicted_step_ns == pytest.approx(found.step_ns * (1 - share))
    assert found.saves_share == pytest.approx(share, abs=0.005)
    # It is in the JSON, and made anew of a report that is loaded.
    report.save(tmp_path / "report.json")
    [saved] = json.loads((tmp_path / "report.json").read_text())["headline"]
    assert saved["causes"] == dict(found.causes)
    assert load_report(tmp_path / "report.json").headline == report.headline
