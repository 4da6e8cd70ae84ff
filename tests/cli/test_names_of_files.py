"""Files whose names are no text, or more than text."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli import commands
from tests.conftest import Ran

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
BYTES = b"step\xff\xfe.json.gz"
NASTY = "step\x1b]0;own\x07\x9b31m\u202e\n::error::.json.gz"


@pytest.fixture(params=[BYTES, NASTY.encode()], ids=["bytes", "nasty"])
def path(request, tmp_path):
    name = os.fsdecode(os.path.join(os.fsencode(tmp_path), request.param))  # noqa: PTH118 (bytes)
    try:
        shutil.copy(ITEM, name)
    except OSError as error:
        pytest.skip(f"this file system has no such names: {error}")
    return name


def has_controls(output: str) -> bool:
    """Whether there is anything that a terminal acts upon, but for the ends of lines."""
    return any(unicodedata.category(c) == "Cc" or c == "\u202e" for c in output.replace("\n", ""))


def as_a_process(*arguments: str) -> Ran:
    """Run a command as `tracelab` does, with the arguments and the streams of a real process."""
    ran = commands.tracelab(*map(os.fsencode, arguments))
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "PATH"),
        ("analyze", "PATH", "--json", "-"),
        ("analyze", "PATH", "--png", "OUT.png"),
        pytest.param(("timeline", "PATH", "-o", "OUT.svg"), marks=pytest.mark.slow),
        ("timeline", "PATH", "-o", "OUT.pdf"),
        ("diff", "PATH", str(ITEM)),
        ("diff", str(ITEM), "PATH", "--json", "-"),
        ("check", "PATH", "--max-idle", "1", "--format", "github", "--junit", "OUT.xml"),
        ("analyze", "PATH", "PATH.missing"),
        ("analyze", "PATH", "BROKEN"),
    ],
    ids=" ".join,
)
def test_no_traceback_and_nothing_that_acts_on_a_terminal(tracelab, path, tmp_path, arguments):
    broken = f"{path}.broken.json"
    Path(broken).write_text("no trace")
    out = str(tmp_path / "out")
    given = [
        x.replace("PATH", path).replace("OUT", out).replace("BROKEN", broken) for x in arguments
    ]
    is_first = arguments == ("analyze", "PATH")  # a process for each would take long
    ran = (as_a_process if is_first else tracelab)(*given)
    expected = {"check": 1, "PATH.missing": 3, "BROKEN": 3}
    assert ran.code == max(expected.get(x, 0) for x in arguments), ran.err
    assert not has_controls(ran.out)
    assert not has_controls(ran.err)
    assert ran.err.count("\n") == ran.err.count("tracelab: ")


def test_a_report_tells_the_name_and_can_be_read_again(tracelab, path, tmp_path):
    report = tmp_path / "report.json"
    assert tracelab("analyze", path, "--json", report).code == 0
    [trace] = json.loads(report.read_text())["traces"]
    expected = r"step\xff\xfe.json.gz" if os.fsencode(path).endswith(BYTES) else NASTY
    assert Path(trace["path"]).name == expected
    ran = tracelab("check", report, "--max-idle", "50")
    assert (ran.code, ran.err) == (0, "")


def test_no_line_of_a_name_is_a_command_of_github(tracelab, path):
    lines = tracelab("check", path, "--max-idle", "1", "--format", "github").out.splitlines()
    assert [line for line in lines if line.lstrip().startswith("::")] == lines[:1]


def test_names_in_junit_are_valid_xml(tracelab, path, tmp_path):
    junit = tmp_path / "junit.xml"
    assert tracelab("check", path, "--max-idle", "1", "--junit", junit).code == 1
    ElementTree.parse(junit)


COMMAND = "::error::mine ##[error]mine ##vso[task.setvariable]mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "PATH", "--full"),
        ("analyze", "PATH", "--json", "-"),
        ("analyze", "PATH", "--markdown"),
        ("diff", "PATH", str(ITEM)),
        ("check", "PATH", str(ITEM), "--max-idle", "1"),
        ("analyze", "PATH.missing"),
        ("analyze", "PATH", "PATH.missing"),
    ],
    ids=" ".join,
)
def test_names_command_no_ci_system(tracelab, tmp_path, monkeypatch, arguments):
    """GIVEN a file and kernels with names that are commands THEN no line that is printed is one."""
    monkeypatch.chdir(tmp_path)
    path = f"{COMMAND}.json"
    content = gzip.decompress(ITEM.read_bytes())
    kernel = re.search(rb'"cat": "kernel", "name": "([^"]+)"', content)[1]
    Path(path).write_bytes(content.replace(kernel, COMMAND.encode()))
    ran = tracelab(*(x.replace("PATH", path) for x in arguments))
    assert ran.code == (3 if "PATH.missing" in arguments else 1 if "check" in arguments else 0)
    assert "mine" in ran.out + ran.err
    assert not re.search(r"^\s*::|##\[|##vso\[", ran.out + ran.err, re.MULTILINE)
    if "--json" in arguments:
        kernels = json.loads(ran.out)["kernels"]
        assert COMMAND in {row["name"] for row in kernels}
