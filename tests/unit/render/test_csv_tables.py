"""Every table of a report as CSV."""

import csv
import io
from dataclasses import fields
from pathlib import Path

import pytest

from tests.build.report_rows import make_finding, make_report, make_trace
from tests.bundled_traces import files_of, report_of
from tracelab.base.errors import OutputError
from tracelab.findings.finding import Finding, Where
from tracelab.render.csv_tables import csv_tables, write_csv


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def job():
    return report_of(*files_of("straggler_slow_loader"))


def test_every_table_with_rows_is_there(job):
    tables = csv_tables(job)
    assert {key for key, some in job.tables.items() if some} <= tables.keys()
    assert {"traces", "headline", "findings", "job", "job.collectives"} <= tables.keys()
    assert all(len(rows(text)) > 0 for text in tables.values())
    assert "whatif" not in tables
    assert "graph_idle" not in tables


def test_findings_have_their_place_in_columns(job):
    found = rows(csv_tables(job)["findings"])
    assert [row["number"] for row in found] == [str(i + 1) for i in range(len(job.findings))]
    assert {field.name for field in fields(Finding)} - {"where"} <= found[0].keys()
    first = job.findings[0]
    assert found[0]["where.file"] == first.where.file
    assert found[0]["where.line"] == str(first.where.line)
    assert found[0]["saves_ns"] == str(first.saves_ns)
    assert found[0]["evidence"] == "; ".join(map(str, first.evidence))
    assert found[0]["where.waited_in"] == ""  # None


def test_lists_of_rows_are_tables_with_the_keys_of_what_they_belong_to(job):
    tables = csv_tables(job)
    devices = rows(tables["windows.devices"])
    expected = [
        (str(window.rank), "" if window.step is None else str(window.step), device)
        for window in job.windows
        for device in window.devices
    ]
    assert [(x["rank"], x["step"]) for x in devices] == [(rank, step) for rank, step, _ in expected]
    for row, (_, _, device) in zip(devices, expected, strict=True):
        assert row["busy_ns"] == str(device.busy_ns)
        causes = [value for key, value in row.items() if key.startswith("bubbles.") and value]
        assert sum(map(int, causes)) == device.idle_ns
    streams = rows(tables["windows.devices.streams"])
    assert {"rank", "step", "device", "stream", "busy_ns"} <= streams[0].keys()


def test_no_cell_is_a_formula():
    nasty = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", " =1", "\t=1", "\r\n=1"]
    findings = [make_finding(title=text, where=Where(count=1, function=text)) for text in nasty]
    report = make_report(findings=findings, traces=(make_trace(software={"=x": "-1"}),))
    tables = csv_tables(report)
    cells = [cell for row in rows(tables["findings"]) for cell in row.values()]
    assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@"))]
    assert [row["title"][0] for row in rows(tables["findings"])] == ["'"] * len(nasty)
    assert rows(tables["traces"])[0]["software.=x"] == "'-1"


def test_numbers_stay_numbers():
    row = rows(
        csv_tables(make_report(findings=[make_finding(rank=-1, saves_low_ns=-5)]))["findings"]
    )
    assert (row[0]["rank"], row[0]["saves_low_ns"]) == ("-1", "-5")


def test_tables_are_written(job, tmp_path):
    paths = write_csv(job, tmp_path / "new" / "folder")
    assert {path.stem for path in paths} == csv_tables(job).keys()
    for path in paths:
        assert path.read_text(encoding="utf-8") == csv_tables(job)[path.stem]
    assert write_csv(job, tmp_path / "new" / "folder") == paths


def test_no_trace_is_written_over(tmp_path):
    trace = Path(tmp_path, "findings.csv")
    trace.write_text("a trace")
    report = make_report(findings=[make_finding()], traces=(make_trace(path=str(trace)),))
    with pytest.raises(OutputError, match="it is an input"):
        write_csv(report, tmp_path)
    assert trace.read_text() == "a trace"
