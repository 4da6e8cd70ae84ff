"""`tracelab analyze --redact`: what is written can be sent to others."""

import shutil
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
NAME = "telltale-07_77.1795263371000.pt.trace.json.gz"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "telltale" / NAME
    path.parent.mkdir()
    shutil.copy(TRACES / "events_item.pt.trace.json.gz", path)
    return path


def test_nothing_that_is_written_tells_where(tracelab, trace, tmp_path):
    json, page, picture = (tmp_path / f"out.{ending}" for ending in ("json", "html", "svg"))
    options = ("--json", json, "--html", page, "--png", picture)
    ran = tracelab("analyze", trace, "--full", "--redact", *options)
    assert ran.code == 0
    for text in (ran.out, json.read_text(), page.read_text(), picture.read_text()):
        assert "telltale" not in text
        assert "workloads/" not in text
    assert "events.py:65" in ran.out
    assert ">trace  ·  step 4" in picture.read_text()  # the name of the file below the title
    assert 'id="timeline-columns"' in page.read_text()
    assert "1795263371000" in tracelab("analyze", trace).out


def test_a_picture_of_a_job_and_those_of_other_files_name_ranks(tracelab, tmp_path):
    ranks = sorted(TRACES.glob("straggler_more_work_rank*"))
    assert tracelab("analyze", *ranks, "--redact", "--png", tmp_path / "job.svg").code == 0
    assert ">2 ranks on one clock<" in (tmp_path / "job.svg").read_text()
    files = [TRACES / f"events_{name}.pt.trace.json.gz" for name in ("item", "wait")]
    assert tracelab("analyze", *files, "--redact", "--png", tmp_path / "x.svg").code == 0
    for number in range(2):
        assert f">trace {number}  ·  " in (tmp_path / f"x-{number}.svg").read_text()


def test_a_trace_cannot_be_redacted(tracelab, trace, tmp_path, snapshot):
    ran = tracelab("analyze", trace, "--redact", "--perfetto", tmp_path / "out.json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == snapshot


def test_a_saved_report_can_be_redacted(tracelab, trace, tmp_path):
    saved, shared = tmp_path / "own.json", tmp_path / "shared.json"
    tracelab("analyze", trace, "--json", saved)
    assert "telltale" in saved.read_text()
    assert tracelab("analyze", saved, "--redact", "--json", shared).code == 0
    assert "telltale" not in shared.read_text()
