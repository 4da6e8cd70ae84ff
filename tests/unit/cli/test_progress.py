"""The bar for what takes longer than a moment, and what Ctrl-C leaves of it."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

from tests.build.files import US, operator, text
from tracelab.cli import many_files as progress_module
from tracelab.cli.many_files import Bar, progress
from tracelab.read.reader import CHUNK_BYTES, read_trace
from tracelab.read.sources import size_of
from tracelab.read.streams import Source, watched

MB = 1_000_000
needs_pipes = pytest.mark.skipif(sys.platform == "win32", reason="it has no named pipes")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def open_terminal(monkeypatch):
    """Gives a function that puts a terminal on stderr, on which the bar is drawn at once.

    A test calls it: pytest sets stderr anew after the fixtures.
    """

    def open_one():
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setattr(progress_module, "_MIN_PROGRESS_S", 0)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "120")
        return sys.stderr

    return open_one


def shown(terminal):
    """The frames of a bar, without colours and without the bar itself."""
    frames = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()))
    return [re.sub(r"\W*[━╸╺]+", " |", frame).strip() for frame in frames if frame.strip()]


def test_without_a_terminal_nothing_is_written(capfd):
    with progress([10]) as bar:
        bar.draw = lambda: pytest.fail("a bar without a terminal")
        bar.read(5)
        bar.end_file()
    assert capfd.readouterr() == ("", "")


def test_what_is_over_in_a_moment_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress([10]) as bar:
        bar.end_file()
    assert sys.stderr.getvalue() == ""


def test_it_tells_rate_and_time_left(open_terminal, monkeypatch):
    """GIVEN 25 of 100 MB read in 2 s
    THEN that is 12.5 MB/s, and the rest takes 6 s."""
    terminal = open_terminal()
    clock = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    bar = Bar([100 * MB])
    bar.read(25 * MB)
    clock[0] += 2
    bar.draw()
    bar.stop()
    assert shown(terminal)[-1] == "reading | 25.0/100.0 MB 12 MB/s, 6 s left"


def test_what_is_read_is_analyzed_for_as_long_as_it_takes(open_terminal):
    terminal = open_terminal()
    bar = Bar([4 * MB])
    bar.read(4 * MB)
    bar.draw()
    bar.stop()
    assert shown(terminal)[-1] == "analyzing |"


def test_a_file_of_less_than_a_megabyte_is_counted_in_kilobytes(open_terminal, monkeypatch):
    """GIVEN 200 of 800 kB read in 0.5 s
    THEN that is 400 kB/s, and the rest takes 1.5 s."""
    terminal = open_terminal()
    clock = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    bar = Bar([800_000])
    bar.read(200_000)
    clock[0] += 0.5
    bar.draw()
    bar.stop()
    assert shown(terminal)[-1] == "reading | 200.0/800.0 kB 400 kB/s, 2 s left"


def test_what_is_read_twice_is_counted_once(open_terminal):
    """GIVEN the first of two files, of 1 and 3 MB, read for the third time
    THEN a quarter is read, and nothing of the other file."""
    terminal = open_terminal()
    bar = Bar([1 * MB, 3 * MB])
    for _ in range(3):
        bar.read(MB)
    bar.draw()
    bar.stop()
    assert "reading, 0 of 2 files done | 1.0/4.0 MB" in shown(terminal)[-1]


def test_of_several_files_it_counts_those_that_are_done(open_terminal):
    terminal = open_terminal()
    bar = Bar([1 * MB, 3 * MB, 4 * MB])
    bar.end_file()
    bar.read(MB)
    bar.draw()
    bar.stop()
    assert "reading, 1 of 3 files done | 2.0/8.0 MB" in shown(terminal)[-1]


def test_a_size_that_is_not_known_is_none(open_terminal):
    terminal = open_terminal()
    bar = Bar([0])
    bar.read(5 * MB)
    bar.draw()
    bar.stop()
    assert shown(terminal)[-1].startswith("reading |")


def test_it_is_drawn_while_the_block_runs_and_taken_away(open_terminal, monkeypatch):
    terminal, is_drawn, draw = open_terminal(), threading.Event(), Bar.draw

    def drawn(bar):
        draw(bar)
        is_drawn.set()

    monkeypatch.setattr(Bar, "draw", drawn)
    with progress([2 * MB]) as bar:
        is_drawn.wait()
        bar.read(MB)
        bar._drawn[0].refresh()
    assert any("1.0/2.0 MB" in frame for frame in shown(terminal))
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is blank again


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_byte_of_a_file_is_told_once(tmp_path, pack):
    path = tmp_path / "a.json"
    path.write_bytes(pack(text([operator(f"o{i}", i * US, (i + 1) * US) for i in range(20_000)])))
    source = Source(str(path), None, named=True)
    told = []
    with watched(told.append):
        read_trace(source)
    assert sum(told) == size_of(source) == path.stat().st_size
    read_trace(source)
    assert sum(told) == path.stat().st_size


def test_the_size_of_what_is_not_there_is_not_known():
    assert size_of(Source("/no/such/file", None, named=True)) == 0
    assert size_of(Source("https://example.com/a.json", None, named=True)) == 0


# Run by every process as it starts: one that reads for another process says so, by a byte in a
# pipe, as soon as it opens a trace, and reads nothing of it.
STOP_AT_READING = """
import multiprocessing, os, signal, sys

pipe = os.open(os.environ["AT_READING"], os.O_WRONLY)  # open for as long as the process is there

def stop(event, arguments):
    is_trace = event == "open" and str(arguments[0]).endswith(".pt.trace.json")
    if is_trace and multiprocessing.parent_process() is not None:
        os.write(pipe, b".")
        while True:
            signal.pause()

sys.addaudithook(stop)
"""


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """A folder of two ranks that two processes never finish to read, the first in chunks."""
    folder, start = tmp_path / "endless", tmp_path / "start"
    folder.mkdir()
    start.mkdir()
    event = json.dumps(operator("o", 0, US)).encode() + b",\n"
    content = b"[%b{}]" % (event * (4 * CHUNK_BYTES // len(event) + 1))
    (folder / "rank0.pt.trace.json").write_bytes(content)
    (folder / "rank1.pt.trace.json").write_bytes(b"[%b{}]" % event)
    (start / "sitecustomize.py").write_text(STOP_AT_READING)
    monkeypatch.setenv("PYTHONPATH", str(start), prepend=os.pathsep)
    monkeypatch.setenv("AT_READING", str(tmp_path / "at_reading"))
    os.mkfifo(tmp_path / "at_reading")
    return folder


@contextmanager
def both_reading(folder):
    """The time from when two processes read; none of the program's is there after it."""
    with open(folder.parent / "at_reading", "rb", buffering=0) as pipe:
        assert pipe.read(1) + pipe.read(1) == b".."
        yield
        os.set_blocking(pipe.fileno(), False)
        assert pipe.read() == b""  # where a process were left, it were None


@needs_pipes
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rank0.pt.trace.json", id="one file", marks=pytest.mark.slow),
        pytest.param("", id="a folder"),
    ],
)
def test_ctrl_c_ends_all_and_leaves_nothing(endless, tmp_path, monkeypatch, name):
    """GIVEN an analysis in a terminal whose reading never ends
    WHEN somebody presses Ctrl-C once two processes read and the bar is drawn
    THEN it does not wait for them, and neither processes nor files are left."""
    import pty

    (own := tmp_path / "own").mkdir()
    outputs = ["--json", str(own / "out.json"), "--png", str(own / "out.png")]
    arguments = ["analyze", "--jobs", "2", str(endless / name), *outputs]
    for variable, value in {"XDG_CACHE_HOME": str(own), "TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(variable, value)
    process, terminal = pty.fork()
    if process == 0:
        # Tests that run in the background of a shell inherit that Ctrl-C is ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-m", "tracelab", *arguments])
    said = b""
    with both_reading(endless):
        while b"reading" not in said:
            said += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        with suppress(OSError):  # the other side is closed
            while more := os.read(terminal, 65536):
                said += more
        _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert b"Traceback" not in said
    assert [file for file in own.rglob("*") if file.is_file()] == []


@needs_pipes
def test_a_job_that_is_ended_ends_its_processes(endless):
    process = subprocess.Popen(
        [sys.executable, "-m", "tracelab", "analyze", "--no-cache", "--jobs", "2", str(endless)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with both_reading(endless):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 143
    assert "Traceback" not in errors
