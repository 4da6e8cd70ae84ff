"""Reports that older versions saved: ``tests/data/reports``, one trace by date and commit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tracelab.analysis.verify import verify
from tracelab.render.html.page import render_page
from tracelab.render.registry import render_as
from tracelab.report.load import load_report
from tracelab.report.schema import SCHEMA

REPORTS = sorted((Path(__file__).parents[2] / "data/reports").glob("*.json.gz"))


def test_there_is_a_report_of_each_schema():
    schemas = {json.loads(gzip.decompress(path.read_bytes()))["schema"] for path in REPORTS}
    name, newest = SCHEMA.split("/")
    assert schemas == {f"{name}/{number}" for number in range(1, int(newest) + 1)}


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name.partition(".")[0])
def test_an_old_report_is_shown(path):
    report = load_report(path)

    assert [(len(report.traces), len(report.windows))] == [(1, 6)]
    assert report.findings[0].rule == "TL101"
    assert verify(report).differences == ()
    for look in ({}, {"full": True, "every_step": True}):
        assert "item" in render_as(report, "text", width=80, color=False, **look)
    assert "item" in render_as(report, "markdown")
    assert "item" in render_page(report)
    assert load_report(render_as(report, "json")) == report
