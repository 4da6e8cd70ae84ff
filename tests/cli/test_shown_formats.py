"""What analyze, diff and check print instead of text, and the tables that analyze writes."""

import csv
import json
from pathlib import Path

import pytest

from tracelab.render.brief import MAX_BYTES

TRACES = Path(__file__).parents[2] / "traces"
SLOW = TRACES / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
FAST = TRACES / "prefetch_copy_stream_pinned.pt.trace.json.gz"


def test_markdown_instead_of_text(tracelab):
    ran = tracelab("analyze", SLOW, "--markdown")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("<!-- tracelab analyze -->\n")
    ran = tracelab("diff", FAST, SLOW, "--markdown")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("<!-- tracelab diff -->\n")


@pytest.mark.parametrize(("limit", "code"), [(5, 1), (50, 0)])
def test_markdown_leaves_the_exit_code(tracelab, limit, code):
    ran = tracelab("check", SLOW, "--max-idle", limit, "--markdown")
    assert ran.out.startswith("<!-- tracelab check -->\n")
    assert ran.code == code


@pytest.mark.parametrize(("limit", "code"), [(5, 1), (200, 0)])
def test_markdown_of_a_difference_leaves_the_exit_code(tracelab, limit, code):
    ran = tracelab("diff", FAST, SLOW, "--max-regression", limit, "--markdown")
    assert ran.out.startswith("<!-- tracelab diff -->\n")
    assert ran.code == code


def test_brief_is_one_line_of_json(tracelab):
    ran = tracelab("analyze", SLOW, "--brief")
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.out.encode()) <= MAX_BYTES
    brief = json.loads(ran.out)
    assert brief["files"] == [str(SLOW)]
    assert brief["findings"][0]["number"] == 1


def test_next_commands_are_commands(tracelab, monkeypatch):
    monkeypatch.chdir(TRACES)
    brief = json.loads(tracelab("analyze", SLOW.name, "--brief").out)
    assert len(brief["next"]) == 3
    for command in brief["next"]:
        name, *arguments = command.split()
        assert name == "tracelab"
        assert tracelab(*arguments).code == 0


def test_brief_of_a_redacted_report_names_no_folder(tracelab):
    ran = tracelab("analyze", SLOW, "--brief", "--redact")
    assert str(TRACES) not in ran.out


def test_json_goes_to_its_file_beside_them(tracelab, tmp_path):
    ran = tracelab("analyze", SLOW, "--brief", "--json", tmp_path / "report.json")
    assert json.loads(ran.out)["schema"] == "tracelab.brief/1"
    assert json.loads((tmp_path / "report.json").read_bytes())["schema"] == "tracelab.report/1"
    assert tracelab("analyze", tmp_path / "report.json", "--brief").out == ran.out


def test_tables_are_written_beside_the_text(tracelab, tmp_path):
    ran = tracelab("analyze", SLOW, "--csv", tmp_path / "tables")
    assert ran.code == 0
    files = sorted((tmp_path / "tables").iterdir())
    assert f"wrote {len(files)} tables to {tmp_path / 'tables'}" in ran.err
    with (tmp_path / "tables" / "findings.csv").open(newline="", encoding="utf-8") as stream:
        assert next(csv.DictReader(stream))["rule"] == "TL101"


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", SLOW, "--markdown", "--brief"),
        ("analyze", SLOW, "--brief", "--json", "-"),
        ("analyze", SLOW, "--markdown", "--full"),
        ("analyze", SLOW, "--brief", "--top", "3"),
        ("analyze", SLOW, "--brief", "--step", "all"),
        ("diff", SLOW, FAST, "--markdown", "--json", "-"),
        ("check", SLOW, "--max-idle", "5", "--markdown", "--format", "github"),
    ],
    ids=lambda arguments: " ".join(x for x in arguments if isinstance(x, str)),
)
def test_stdout_holds_one_result(tracelab, arguments):
    ran = tracelab(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "stdout holds one result" in ran.err


def test_tables_need_a_folder(tracelab, tmp_path):
    (tmp_path / "file").write_text("")
    broken = tmp_path / "broken.json"
    broken.write_text("no trace: nobody should have looked")
    ran = tracelab("analyze", broken, "--csv", tmp_path / "file")
    assert (ran.code, "not a directory" in ran.err) == (5, True)
