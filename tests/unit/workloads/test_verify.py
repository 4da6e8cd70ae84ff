"""Captures are checked against the manifest; bundled traces stand for those of a GPU here."""

import json
from pathlib import Path

import pytest

from tests.build import verify_workloads as verify
from tests.figures import figures

TRACES = Path(__file__).parents[3] / "traces"
MANIFEST = json.loads((TRACES / "manifest.json").read_text())["traces"]


@pytest.fixture
def captures_are_bundled(monkeypatch):
    """Instead of running on a GPU, a workload's command copies its bundled trace."""

    def copy(line, folder):
        for name in line["files"]:
            target = Path(folder, f"trace{verify._rank_in(name)}.json.gz")
            target.write_bytes((TRACES / name).read_bytes())

    monkeypatch.setattr(verify, "capture", copy)


def write_manifest(folder, lines):
    (folder / "manifest.json").write_text(json.dumps({"traces": lines}))


@pytest.mark.usefixtures("captures_are_bundled")
def test_captures_are_compared_with_the_manifest(tmp_path, capsys):
    # A capture of every fourth workload; golden/test_bundled_traces.py compares every one.
    lines = list({line["workload"]: line for line in MANIFEST}.values())[::4]
    write_manifest(tmp_path, lines)
    assert verify.main([str(tmp_path)]) == 0
    count = sum(line["gpus"] == 1 for line in lines)
    assert count >= 3
    assert capsys.readouterr().out.splitlines()[-1] == f"{count} passed, 0 failed"


@pytest.mark.usefixtures("captures_are_bundled")
@pytest.mark.slow
def test_some_captures_can_be_chosen(capsys):
    assert verify.main([str(TRACES), "--only", "straggler_", "--gpus", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed"


@pytest.mark.usefixtures("captures_are_bundled")
def test_a_broken_expectation_fails(tmp_path, capsys, snapshot):
    [line] = [line for line in MANIFEST if line["files"][0].startswith("events_item.")]
    write_manifest(tmp_path, [{**line, "expect": {**line["expect"], "blocking": {}}}])
    assert verify.main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert {"5"} <= {*figures(out)}
    assert out == snapshot


@pytest.mark.parametrize(("code", "exit_code"), [(1, 1), (4, 4)])
def test_a_program_that_fails_is_told(tmp_path, capsys, monkeypatch, code, exit_code):
    class Failed:
        returncode, stderr = code, "it says why"

    monkeypatch.setattr(verify.subprocess, "run", lambda *_, **__: Failed())
    write_manifest(tmp_path, [line for line in MANIFEST if line["workload"] == "two_streams"])
    assert verify.main([str(tmp_path)]) == exit_code
    printed = capsys.readouterr()
    if code == 4:  # there is no such GPU: no other line can be captured, either
        assert printed.err == "it says why\n"
    else:
        assert "tracelab.workloads.two_streams small" in printed.out
        assert "failed: it says why" in printed.out
        assert printed.out.splitlines()[-1] == "0 passed, 9 failed"
