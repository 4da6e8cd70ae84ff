"""What is written is whole, or is as it was before; and nothing is written over what was read."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import threading
from pathlib import Path

import pytest

from tests.bundled_traces import KEPT
from tests.cli import commands
from tracelab import analyze, draw
from tracelab.base.errors import OutputError

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
WAIT = TRACES / "events_wait.pt.trace.json.gz"


@pytest.fixture
def trace(tmp_path):
    return Path(shutil.copy(ITEM, tmp_path / "step.pt.trace.json.gz"))


def hard_link(path):
    other = path.with_name("hard.json")
    other.hardlink_to(path)
    return other


def soft_link(path):
    other = path.with_name("soft.json")
    other.symlink_to(path)
    return other


@pytest.mark.parametrize("name_of", [lambda path: path, hard_link, soft_link])
@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "TRACE", "--json", "OUTPUT"),
        ("diff", "TRACE", WAIT, "--json", "OUTPUT"),
        ("diff", WAIT, "TRACE", "--json", "OUTPUT"),
        ("check", "TRACE", "--max-idle", "5", "--junit", "OUTPUT"),
        ("check", WAIT, "--max-regression", "5", "--baseline", "TRACE", "--junit", "OUTPUT"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1] + arguments[-2:])),
)
def test_an_input_is_no_output_by_whatever_name(tracelab, trace, name_of, arguments, snapshot):
    output = name_of(trace)
    ran = tracelab(*({"TRACE": trace, "OUTPUT": output}.get(x, x) for x in arguments))
    assert ran.code == 5
    assert ran.out == ""
    assert ran.err == snapshot
    assert trace.read_bytes() == ITEM.read_bytes()


def test_an_input_is_no_picture(tracelab, trace):
    trace = trace.rename(trace.with_name("step.png"))
    for command in (("analyze", trace, "--png", trace), ("timeline", trace, "-o", trace)):
        ran = tracelab(*command)
        assert (ran.code, "it is an input" in ran.err) == (5, True)
    assert trace.read_bytes() == ITEM.read_bytes()


def test_a_file_of_a_folder_is_an_input(tracelab, trace):
    ran = tracelab("analyze", trace.parent, "--json", trace)
    assert (ran.code, "it is an input" in ran.err) == (5, True)


def test_budgets_are_an_input(tracelab, trace):
    budgets = trace.with_name("budgets.toml")
    budgets.write_text("max-idle = 5\n")
    ran = tracelab("check", trace, "--budgets", budgets, "--junit", budgets)
    assert (ran.code, "it is an input" in ran.err) == (5, True)
    assert budgets.read_text() == "max-idle = 5\n"


def test_python_writes_over_no_trace_either(trace):
    with pytest.raises(OutputError, match="it is an input"):
        analyze(trace).save(trace)
    png = trace.rename(trace.with_name("step.png"))
    with pytest.raises(OutputError, match="it is an input"):
        draw(png, png)
    assert png.read_bytes() == ITEM.read_bytes()


def test_two_results_have_two_files(tracelab, trace):
    ran = tracelab("analyze", trace, "--json", "a.png", "--png", "./a.png")
    assert (ran.code, "two results" in ran.err) == (5, True)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("s3://bucket/report.json", "results are written to local files only"),
        ("FOLDER", "is a directory"),
        ("FOLDER/file/report.json", "not a directory"),
        ("/proc/none/report.json", "no such file or directory"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_read(tracelab, tmp_path, path, reason):
    (tmp_path / "file").write_text("")
    broken = tmp_path / "broken.json"
    broken.write_text("no trace: nobody should have looked")
    output = path.replace("FOLDER", str(tmp_path))
    ran = tracelab("analyze", broken, "--json", output)
    assert ran.code == (3 if "/proc" in path else 5)  # there, only writing fails
    assert f"cannot write {output}: {reason}" in ran.err or "/proc" in path
    ran = tracelab("analyze", ITEM, "--json", output)
    assert (ran.code, f"cannot write {output}: {reason}" in ran.err) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "endings"),
    [
        (("analyze", ITEM, "--json", "OUT.json"), "json"),
        (("analyze", ITEM, "--png", "OUT.png"), "png"),
        (("timeline", ITEM, "-o", "OUT.svg"), "svg"),
        (("diff", ITEM, WAIT, "--json", "OUT.json"), "json"),
        (("diff", ITEM, WAIT, "--png", "OUT.png"), "png"),
    ],
    ids=lambda x: " ".join(map(str, x[:1] + x[-2:])) if isinstance(x, tuple) else "",
)
@pytest.mark.parametrize(
    "before", [pytest.param(None, marks=pytest.mark.slow), b"a good older result"]
)
def test_a_full_disk_changes_nothing(tracelab, tmp_path, monkeypatch, arguments, endings, before):
    """GIVEN a limit of 2 KB on the size of a file, as a disk that becomes full
    THEN what was there is there as it was, nothing is beside it, and the exit code is 5."""
    output = tmp_path / f"out.{endings}"
    if before is not None:
        output.write_bytes(before)

    command = [str(x).replace("OUT", str(tmp_path / "out")) for x in arguments]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv(KEPT, raising=False)  # a report kept for other tests is larger
    before_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before_limit[1]))
    try:
        ran = tracelab(*command, "--no-cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before_limit)
    assert ran.code == 5
    assert "cannot write" in ran.err
    assert "file too large" in ran.err
    assert [(x.name, x.read_bytes()) for x in tmp_path.iterdir()] == (
        [] if before is None else [(output.name, before)]
    )


def test_a_link_stands_for_its_file_and_rights_stay(tracelab, tmp_path):
    real = tmp_path / "real.json"
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    assert tracelab("analyze", ITEM, "--json", link).code == 0
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert real.read_text().startswith('{\n  "schema"')


def test_a_device_is_written_in_place(tracelab):
    assert tracelab("analyze", ITEM, "--json", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "command",
    [
        ("analyze", ITEM, "--json", "OUT"),
        ("timeline", ITEM, "-o", "OUT"),
        ("check", ITEM, "--max-idle", "50", "--junit", "OUT"),
    ],
    ids=lambda x: x[0],
)
def test_a_pipe_from_which_nobody_reads_is_told(tracelab, tmp_path, command):
    pipe = tmp_path / "out.png"
    os.mkfifo(pipe)
    ran = tracelab(*(pipe if x == "OUT" else x for x in command))
    assert ran.code == 5
    assert f"cannot write {pipe}: is a pipe that nobody reads from" in ran.err
    assert pipe.is_fifo()


def test_a_pipe_takes_a_result(tracelab, tmp_path):
    pipe = tmp_path / "out.json"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # before the command looks for a reader
    writing = os.open(pipe, os.O_WRONLY)  # so that the end is where this is closed
    os.set_blocking(reading, True)
    read = []

    def read_all():
        with open(reading, "rb") as stream:
            read.append(stream.read())

    reader = threading.Thread(target=read_all)
    reader.start()
    ran = tracelab("analyze", ITEM, "--json", pipe)
    os.close(writing)
    reader.join()
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(read[0])["schema"] == "tracelab.report/1"


@pytest.mark.parametrize(
    "name",
    [
        "/dev/stdout",
        pytest.param("/dev/fd/1", marks=pytest.mark.slow),
        pytest.param("/proc/self/fd/1", marks=pytest.mark.slow),
    ],
)
def test_an_open_file_is_written_from_where_it_stands(tmp_path, name):
    """GIVEN a log to which a shell appends WHEN a result goes to it THEN what is there stays."""
    log = tmp_path / "log"
    log.write_text("older\n")
    with open(log, "ab") as stream:
        ran = commands.tracelab(
            "analyze", ITEM, "--json", name, "--png", tmp_path / "t.png", stdout=stream
        )
    assert ran.returncode == 0
    assert ran.stderr.count(b"\n") == 1  # of the picture
    assert log.read_text().startswith('older\n{\n  "schema"')
    assert log.read_text().endswith(commands.tracelab("analyze", ITEM).stdout.decode())


def test_a_file_of_budgets_that_is_found_is_an_input(tracelab, tmp_path, monkeypatch):
    budgets = tmp_path / "pyproject.toml"
    budgets.write_text("[tool.tracelab.check]\nmax-idle = 50\n")
    monkeypatch.chdir(tmp_path)
    ran = tracelab("check", ITEM, "--junit", "pyproject.toml")
    assert (ran.code, "it is an input" in ran.err) == (5, True)
    assert budgets.read_text().startswith("[tool")


def test_the_files_of_a_baseline_are_inputs(tracelab, tmp_path):
    baseline = tmp_path / "baseline" / "step.pt.trace.json.gz"
    baseline.parent.mkdir()
    shutil.copy(WAIT, baseline)
    options = ("--max-regression", "5", "--baseline", baseline.parent, "--junit", baseline)
    ran = tracelab("check", ITEM, *options)
    assert (ran.code, "it is an input" in ran.err) == (5, True)
    assert baseline.read_bytes() == WAIT.read_bytes()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--json", ""), 5, "cannot write a result without the name of a file"),
        (("--json", "folder/"), 5, "cannot write folder/: is a directory"),
        (("--json", "loop"), 5, "cannot write loop: too many levels of symbolic links"),
        (("--png", ""), 2, "a timeline is written as .png, .svg or .pdf"),
        (("--png", "/"), 2, "/: a timeline is written as"),
        (("--png", ".png"), 2, ".png: a timeline is written as"),
    ],
)
def test_odd_names_of_outputs(tracelab, tmp_path, monkeypatch, options, code, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    ran = tracelab("analyze", ITEM, WAIT, *options)
    assert (ran.code, sentence in ran.err) == (code, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_in_a_folder_that_must_not_be_written_is_refused_at_once(tracelab, tmp_path):
    broken, report = tmp_path / "broken.json", tmp_path / "folder" / "report.json"
    broken.write_text("no trace: nobody should have looked")
    report.parent.mkdir()
    report.write_text("{}")
    report.parent.chmod(0o500)
    ran = tracelab("analyze", broken, "--json", report)
    assert (ran.code, "permission denied" in ran.err) == (5, True)
