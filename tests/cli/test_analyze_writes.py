"""What `tracelab analyze` writes beside its text: pages, traces with tracks; and saved reports."""

import gzip
import json
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
PACKETS = Path(__file__).parents[1] / "data/torch_2.15/cuspy.pftrace.gz"
JOB = sorted(TRACES.glob("straggler_more_work_rank*"))


@pytest.fixture
def saved(tracelab, tmp_path):
    file = tmp_path / "report.json"
    assert tracelab("analyze", ITEM, "--json", file).code == 0
    return file


def test_a_page_is_written_and_told_on_stderr(tracelab, tmp_path):
    file = tmp_path / "new" / "page.html"
    ran = tracelab("analyze", ITEM, "--html", file)
    assert (ran.code, ran.err) == (0, f"tracelab: wrote {file}\n")
    assert "cudaStreamSynchronize" in file.read_text()
    assert 'id="timeline-columns"' in file.read_text()


def test_a_trace_is_written_with_the_users_own_events_in_it(tracelab, tmp_path):
    file = tmp_path / "item.json.gz"
    ran = tracelab("analyze", ITEM, "--perfetto", file)
    wrote, where = ran.err.splitlines()
    assert (ran.code, wrote) == (0, f"tracelab: wrote {file}")
    assert 'ui.perfetto.dev: the process "tracelab:' in where
    before, after = (
        json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] for path in (ITEM, file)
    )
    assert after[: len(before)] == before
    assert len(after) > len(before)


def test_packets_are_written_as_json_with_the_tracks(tracelab, tmp_path):
    file = tmp_path / "found.json"
    assert tracelab("analyze", PACKETS, "--perfetto", file).code == 0
    events = json.loads(file.read_text())["traceEvents"]
    assert {"softmax_forward", "aten::mm"} <= {event.get("name") for event in events}
    assert any("tracelab:" in str(event.get("args")) for event in events)


def test_each_rank_of_a_job_has_a_trace_of_its_own_and_the_job_one_page(tracelab, tmp_path):
    ran = tracelab(
        "analyze", *JOB, "--perfetto", tmp_path / "job.json.gz", "--html", tmp_path / "job.html"
    )
    assert ran.code == 0
    assert ran.err.count("https://ui.perfetto.dev") == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "job.html",
        *(f"job-{i}.json.gz" for i in range(len(JOB))),
    }


def test_a_saved_report_is_shown_again_and_has_a_page_without_the_timeline(
    tracelab, saved, tmp_path
):
    page = tmp_path / "page.html"
    ran = tracelab("analyze", saved, "--html", page)
    assert ran.out == tracelab("analyze", ITEM).out
    assert 'id="timeline-columns"' not in page.read_text()


@pytest.mark.parametrize(
    "asked",
    [("--png", "x.png"), ("--perfetto", "x.json"), ("--step", "3")],
    ids=lambda x: x[0],
)
def test_what_needs_the_trace_is_refused_for_a_saved_report(tracelab, saved, tmp_path, asked):
    flag, value = asked
    value = tmp_path / value if "." in value else value
    ran = tracelab("analyze", saved, flag, value)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"tracelab: {flag} needs the trace: this is a saved report\n"


def test_a_saved_report_is_shown_alone(tracelab, saved, snapshot):
    ran = tracelab("analyze", saved, ITEM)
    assert ran.code == 2
    assert ran.err == snapshot


@pytest.mark.parametrize(
    ("flag", "name", "said"),
    [
        ("--html", "page.png", "a page is .html, not"),
        (
            "--perfetto",
            "trace.html",
            "a trace for Perfetto is .json or .json.gz, not",
        ),
    ],
)
def test_other_endings_are_refused_before_anything_is_read(tracelab, tmp_path, flag, name, said):
    ran = tracelab("analyze", ITEM, flag, tmp_path / name)
    assert (ran.code, ran.err) == (2, f"tracelab: {said} {str(tmp_path / name)!r}\n")
    assert not list(tmp_path.iterdir())


def test_a_trace_is_never_written_over(tracelab, tmp_path):
    own = tmp_path / "own.json.gz"
    own.write_bytes(ITEM.read_bytes())
    ran = tracelab("analyze", own, "--perfetto", own)
    assert ran.code == 5
    assert own.read_bytes() == ITEM.read_bytes()
