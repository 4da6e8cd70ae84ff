"""Pipes instead of files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli import commands

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "step.pt.trace.json"
    os.mkfifo(path)
    return path


def test_pipes_and_devices_in_a_folder_are_not_looked_at(tracelab, pipe):
    (pipe.parent / "other.pt.trace.json.gz").write_bytes(ITEM.read_bytes())
    os.mkfifo(pipe.parent / "other.pt.trace.json")  # what would be the same file unpacked
    (pipe.parent / "null.json").symlink_to("/dev/null")
    ran = tracelab("analyze", pipe.parent)
    assert (ran.code, ran.err) == (0, "")
    # A file alone is named in the heading; several are counted there.
    assert "other.pt.trace.json.gz" in ran.out.splitlines()[0]


def test_a_folder_of_pipes_holds_no_trace(tracelab, pipe):
    ran = tracelab("analyze", pipe.parent)
    assert ran.code == 3
    assert "holds no .json file" in ran.err


@pytest.mark.parametrize("command", [("analyze",), ("timeline", "-o", "t.png"), ("check",)])
def test_what_comes_out_of_a_pipe_is_read_as_a_file_is(tracelab, monkeypatch, pipe, command):
    """GIVEN a trace that is read more than once, from a pipe, which can be read only once."""
    monkeypatch.chdir(pipe.parent)
    (pipe.parent / "pyproject.toml").write_text("[tool.tracelab.check]\nmax-idle = 50\n")
    writer = threading.Thread(target=lambda: pipe.write_bytes(ITEM.read_bytes()))
    writer.start()
    ran = tracelab(command[0], pipe, *command[1:])
    writer.join()
    assert ran.code == 0
    if command[0] == "analyze":
        file = tracelab("analyze", ITEM)
        assert ran.out.splitlines()[4:] == file.out.splitlines()[4:]  # below the names


def test_stdin_can_be_a_trace():
    ran = commands.tracelab("analyze", "/dev/stdin", input=ITEM.read_bytes())
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"GPU 0  busy " in ran.stdout


def test_two_pipes_of_a_shell_can_be_compared():
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tracelab diff <(cat {ITEM}) <(zcat {ITEM})"],
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
