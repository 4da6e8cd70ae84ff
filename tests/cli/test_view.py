"""`tracelab view` as a user runs it: in a process of its own, until Ctrl-C."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
TIMEOUT_S = 300
# In the background of a script Ctrl-C is ignored, and so would it be here.
START = """import signal, tracelab.cli.main
signal.signal(signal.SIGINT, signal.default_int_handler)
tracelab.cli.main.main()"""


@contextlib.contextmanager
def viewing(*arguments, **environment):
    """The command while it serves; by then its address is known."""
    command = [sys.executable, "-c", START, "view", *map(str, arguments)]
    # What the user of these tests sets would decide what is opened and told.
    own = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION")
    inherited = {name: value for name, value in os.environ.items() if name not in own}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=inherited | environment,
        text=True,
    ) as process:
        process.url = process.stdout.readline().strip()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def end(process, signal_=signal.SIGINT):
    """Its exit code and what it has told, after a signal."""
    process.send_signal(signal_)
    _, told = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, told


def fetched(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return answer.read()


def is_with_tracks(served, trace):
    """Whether that is a trace and more."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    more = json.loads(served)["traceEvents"]
    return more[: len(events)] == events and len(more) > len(events)


def test_page_and_trace_are_served_until_ctrl_c():
    with viewing(ITEM, "--no-browser") as process:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/", process.url)
        page = fetched(process.url).decode()
        assert "cudaStreamSynchronize" in page
        assert 'id="timeline-columns"' in page
        assert "connect-src &#39;self&#39;" in page
        assert '"perfetto":"https://ui.perfetto.dev"' in page
        assert is_with_tracks(fetched(f"{process.url}trace/0"), ITEM)
        without_token = process.url.rsplit("/", 2)[0]
        for wrong in (f"{without_token}/", f"{process.url[:-2]}/", f"{process.url}trace/1"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetched(wrong)
        code, told = end(process)
        assert code == 0
        port = process.url.split(":")[2].split("/")[0]
        assert re.fullmatch(
            rf"tracelab: serving until Ctrl-C; from another machine: ssh -L {port}:127\.0\.0\.1:"
            rf"{port} \S+@\S+\n",
            told,
        )
    with pytest.raises(urllib.error.URLError):
        fetched(process.url)


def test_a_launcher_ends_it_in_silence():
    with viewing(ITEM, "--no-browser", "--no-prices", "--step", "5") as process:
        code, told = end(process, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in told


def test_what_a_killed_one_has_written_goes_with_the_next(tmp_path):
    for signal_ in (signal.SIGKILL, signal.SIGINT):
        with viewing(ITEM, "--no-browser", "--step", "5", TMPDIR=str(tmp_path)) as process:
            fetched(f"{process.url}trace/0")
            assert len([*tmp_path.iterdir()]) == 1
            end(process, signal_)
    assert not [*tmp_path.iterdir()]


def test_over_ssh_the_tunnel_is_said_first_and_no_browser_opens_there(snapshot):
    with viewing(
        ITEM, "--no-prices", SSH_CONNECTION="10.0.0.9 50000 10.0.0.1 22", DISPLAY=":10"
    ) as process:
        _, told = end(process)
    first, command = told.splitlines()
    assert first == snapshot
    assert re.fullmatch(r"tracelab:     ssh -L (\d+):127\.0\.0\.1:\1 \S+@\S+", command)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_browser_is_opened_unless_none_is_wanted(tmp_path, is_wanted):
    log, browser = tmp_path / "log", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {log}.part\nmv {log}.part {log}\n')
    browser.chmod(0o755)
    options = () if is_wanted else ("--no-browser",)
    # Where Python does not buffer, what is told is not held back either.
    with viewing(
        ITEM, "--no-prices", *options, BROWSER=str(browser), PYTHONUNBUFFERED="1"
    ) as process:
        fetched(process.url)
        process.stderr.readline()
        if is_wanted:
            while not log.exists():
                assert process.poll() is None
            assert log.read_text() == process.url
        code, _ = end(process)
        assert code == 0
    assert log.exists() == is_wanted


def test_a_saved_report_is_shown_without_the_timeline(tracelab, tmp_path):
    report = tmp_path / "report.json"
    tracelab("analyze", ITEM, "--json", report)
    with viewing(report, "--no-browser") as process:
        page = fetched(process.url).decode()
        assert "cudaStreamSynchronize" in page
        assert 'id="timeline-columns"' not in page
        assert 'id="served"' not in page


def test_the_ranks_of_a_job_are_all_served():
    ranks = sorted(TRACES.glob("straggler_more_work_rank*"))
    with viewing(*ranks, "--no-browser", "--jobs", "2", "--no-prices") as process:
        for rank, trace in enumerate(ranks):
            assert is_with_tracks(fetched(f"{process.url}trace/{rank}"), trace)


def test_a_port_that_is_taken_is_told_before_anything_is_read(tracelab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        _, port = taken.getsockname()
        ran = tracelab("view", ITEM, "--port", port)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"tracelab: cannot listen on port {port}: address already in use\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--step", "3"), "--step needs the trace: this is a saved report"),
        (("--comm-pattern", "x"), "--comm-pattern applies only to traces"),
    ],
)
def test_what_needs_the_trace_is_refused_for_a_saved_report(tracelab, tmp_path, options, said):
    report = tmp_path / "report.json"
    tracelab("analyze", ITEM, "--json", report)
    ran = tracelab("view", report, *options)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_what_cannot_be_read_ends_it(tracelab, tmp_path):
    ran = tracelab("view", tmp_path / "none.json")
    assert (ran.code, ran.out) == (3, "")
