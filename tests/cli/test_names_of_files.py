"""Files whose names are no text, or more than text."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli import commands

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
BYTES = b"step\xff\xfe.json.gz"
NASTY = "step\x1b]0;own\x07\x9b31m\u202e\n::error::.json.gz"


@pytest.fixture(params=[BYTES, NASTY.encode()], ids=["bytes", "nasty"])
def path(request, tmp_path):
    name = os.path.join(os.fsencode(tmp_path), request.param)  # noqa: PTH118 (bytes)
    try:
        shutil.copy(ITEM, name)
    except OSError as error:
        pytest.skip(f"this file system has no such names: {error}")
    return name


def has_controls(output: bytes) -> bool:
    """Whether there is anything that a terminal acts upon, but for the ends of lines."""
    return any(
        unicodedata.category(c) == "Cc" or c == "\u202e" for c in output.decode().replace("\n", "")
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "PATH"),
        ("analyze", "PATH", "--json", "-"),
        ("analyze", "PATH", "--png", "OUT.png"),
        ("timeline", "PATH", "-o", "OUT.svg"),
        ("timeline", "PATH", "-o", "OUT.pdf"),
        ("diff", "PATH", str(ITEM)),
        ("diff", str(ITEM), "PATH", "--json", "-"),
        ("check", "PATH", "--max-idle", "1", "--format", "github", "--junit", "OUT.xml"),
        ("analyze", "PATH", "PATH.missing"),
        ("analyze", "PATH", "BROKEN"),
    ],
    ids=" ".join,
)
def test_no_traceback_and_nothing_that_acts_on_a_terminal(path, tmp_path, arguments):
    out = os.fsencode(tmp_path / "out")
    broken = path + b".broken.json"
    Path(os.fsdecode(broken)).write_text("no trace")
    given = [
        x.encode().replace(b"PATH", path).replace(b"OUT", out).replace(b"BROKEN", broken)
        for x in arguments
    ]
    ran = commands.tracelab(*given)
    expected = {"check": 1, "PATH.missing": 3, "BROKEN": 3}
    assert ran.returncode == max(expected.get(x, 0) for x in arguments), ran.stderr
    assert not has_controls(ran.stdout)
    assert not has_controls(ran.stderr)
    assert ran.stderr.count(b"\n") == ran.stderr.count(b"tracelab: ")


def test_a_report_tells_the_name_and_can_be_read_again(path, tmp_path):
    report = tmp_path / "report.json"
    ran = commands.tracelab("analyze", path, "--json", report)
    assert ran.returncode == 0
    [trace] = json.loads(report.read_text())["traces"]
    name = os.path.basename(path)  # noqa: PTH119 (bytes)
    expected = r"step\xff\xfe.json.gz" if name == BYTES else NASTY
    assert Path(trace["path"]).name == expected
    ran = commands.tracelab("check", report, "--max-idle", "50")
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_no_line_of_a_name_is_a_command_of_github(path):
    ran = commands.tracelab("check", path, "--max-idle", "1", "--format", "github")
    lines = ran.stdout.decode().splitlines()
    assert [line for line in lines if line.lstrip().startswith("::")] == lines[:1]


def test_names_in_junit_are_valid_xml(path, tmp_path):
    junit = tmp_path / "junit.xml"
    assert commands.tracelab("check", path, "--max-idle", "1", "--junit", junit).returncode == 1
    ElementTree.parse(junit)
