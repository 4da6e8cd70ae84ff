"""The figures that are said first add up as printed, and are of one step."""

from __future__ import annotations

import json

import pytest

from tests.bundled_traces import FOLDER, report_of
from tracelab import load_report
from tracelab.report.headline import in_parts


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
    assert in_parts(amounts, whole) == parts


def test_the_headline_is_of_one_step_and_adds_up(tmp_path):
    report = report_of(FOLDER / "train_step_sinful.pt.trace.json.gz")
    [headline], [savings], [steady] = report.headline, report.savings, report.steady
    assert headline.step_ns == savings.step_ns == steady.unprofiled_step_ns
    assert headline.profiled_step_ns == steady.step_ns
    assert headline.busy_share + headline.idle_share == pytest.approx(1)
    assert sum(headline.causes.values()) == pytest.approx(headline.idle_share)
    # They are means of the steady window.
    [device] = [x for x in steady.devices if x.device == headline.device]
    assert headline.busy_share == pytest.approx(device.busy_ns / steady.length_ns, abs=0.0006)
    assert headline.predicted_step_ns == savings.step_ns - savings.saves_ns
    assert headline.saves_share == pytest.approx(savings.saves_ns / savings.step_ns)
    # It is in the JSON, and made anew of a report that is loaded.
    report.save(tmp_path / "report.json")
    [saved] = json.loads((tmp_path / "report.json").read_text())["headline"]
    assert saved["causes"] == dict(headline.causes)
    assert load_report(tmp_path / "report.json").headline == report.headline
