"""stdout and stderr that are full, closed, or that nobody reads any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import commands
from tracelab.cli.main import COMMANDS, main

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
WAIT = TRACES / "events_wait.pt.trace.json.gz"

PRINTING = [
    ("--help",),
    pytest.param(("--version",), marks=pytest.mark.slow),
    pytest.param(("analyze", "--help"), marks=pytest.mark.slow),
    pytest.param(("analyze", ITEM), marks=pytest.mark.slow),
    ("analyze", ITEM, "--json", "-"),
    pytest.param(("check", ITEM, "--max-idle", "50"), marks=pytest.mark.slow),
    pytest.param(("diff", ITEM, WAIT), marks=pytest.mark.slow),
    pytest.param(("explain", "TL101"), marks=pytest.mark.slow),
    pytest.param(("workload", "--list"), marks=pytest.mark.slow),
]
full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no device that is always full"
)


def close_stdout():
    os.close(1)


def close_stderr():
    os.close(2)


@full
@pytest.mark.parametrize("arguments", PRINTING, ids=lambda x: " ".join(map(str, x[:2])))
def test_a_full_stdout_is_one_sentence(arguments):
    with open("/dev/full", "wb") as stdout:
        ran = commands.tracelab(*arguments, stdout=stdout)
    assert ran.returncode == 5
    assert ran.stderr == b"tracelab: cannot write the result to stdout: no space left on device\n"


@pytest.mark.parametrize("arguments", PRINTING, ids=lambda x: " ".join(map(str, x[:2])))
def test_a_closed_stdout_is_one_sentence(arguments):
    ran = commands.tracelab(*arguments, stdout=None, preexec_fn=close_stdout)
    assert ran.returncode == 5
    assert ran.stderr == b"tracelab: cannot write the result to stdout: it is closed\n"


@pytest.mark.parametrize("arguments", PRINTING, ids=lambda x: " ".join(map(str, x[:2])))
def test_a_pipe_that_nobody_reads_any_more_is_a_quiet_end(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    ran = commands.tracelab(*arguments, stdout=writing)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_what_a_check_found_does_not_depend_on_who_reads_it():
    """GIVEN a budget that fails, and nobody reads the table THEN the exit code still says so."""
    reading, writing = os.pipe()
    os.close(reading)
    ran = commands.tracelab("check", ITEM, "--max-idle", "1", stdout=writing)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (1, b"")


def test_nothing_to_print_needs_no_stdout(tmp_path):
    ran = commands.tracelab(
        "timeline", ITEM, "-o", tmp_path / "t.png", stdout=None, preexec_fn=close_stdout
    )
    assert ran.returncode == 0
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("how", ["closed", pytest.param("full", marks=[full, pytest.mark.slow])])
def test_without_stderr_the_result_is_there(tracelab, tmp_path, how):
    arguments = ("analyze", ITEM, tmp_path, "--json", "-")
    (tmp_path / "other.json").write_text("{}")  # of which there is something to tell
    expected = tracelab(*arguments)
    assert expected.err
    if how == "closed":
        ran = commands.tracelab(*arguments, stderr=None, preexec_fn=close_stderr)
    else:
        with open("/dev/full", "wb") as stderr:
            ran = commands.tracelab(*arguments, stderr=stderr)
    assert (ran.returncode, ran.stdout.decode()) == (expected.code, expected.out)


def test_wrong_usage_without_stderr_is_wrong_usage():
    ran = commands.tracelab("nonsense", stderr=None, preexec_fn=close_stderr)
    assert (ran.returncode, ran.stdout) == (2, b"")


@pytest.mark.slow
def test_a_script_has_the_streams_that_it_would_have_alone(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "train.py"
    script.write_text("import sys\nassert sys.stdout is sys.__stdout__\nprint('ran')\n")
    ran = commands.tracelab("run", "--whole", "-o", tmp_path, script)
    assert (ran.stdout, ran.returncode) == (b"ran\n", 0)


def test_what_a_program_printed_before_comes_first():
    program = (
        "import sys; from tracelab.cli.main import main; print('first')\n"
        "sys.argv = ['tracelab', '--version']; main()"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env=environment
    )
    assert ran.stdout.startswith(b"first\n")


def test_a_script_and_what_comes_after_it_are_in_order():
    program = (
        "from tracelab.system.console import guarded_streams, plain_streams, write_result\n"
        "with guarded_streams():\n"
        "    with plain_streams():\n"
        "        print('script')\n"
        "    write_result('report\\n')\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env=environment
    )
    assert ran.stdout == b"script\nreport\n"


class TestErrorsOfOurs:
    @staticmethod
    def run(monkeypatch, error):
        def breaks() -> None:
            """Break."""
            raise error

        monkeypatch.setattr("sys.argv", ["tracelab", "breaks"])
        with pytest.raises(SystemExit) as done:
            main((*COMMANDS, breaks))
        return done.value.code

    def test_are_told_with_the_details_in_a_file(self, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert self.run(monkeypatch, KeyError("stream\n7")) == 70
        [details] = tmp_path.iterdir()
        err = capsys.readouterr().err
        assert "a bug in tracelab" in err
        assert "KeyError" in err
        assert "report it" in err
        assert str(details) in err
        assert err.count("\n") == 1
        assert "in breaks" in details.read_text()
        assert details.stat().st_mode & 0o777 == 0o600

    def test_show_the_details_where_no_file_can_be_written(self, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
        assert self.run(monkeypatch, ValueError("7")) == 70
        err = capsys.readouterr().err
        assert "in breaks" in err
        assert "with the details above" in err

    def test_a_missing_package_is_none(self, monkeypatch, capsys):
        assert self.run(monkeypatch, ModuleNotFoundError("No module named 'numpy'")) == 4
        assert capsys.readouterr().err.startswith("tracelab: No module named 'numpy': ")

    def test_lack_of_memory_is_none(self, monkeypatch, capsys, snapshot):
        assert self.run(monkeypatch, MemoryError()) == 3
        assert capsys.readouterr().err == snapshot


def test_the_closed_descriptor_is_not_taken_for_a_file(tmp_path):
    """GIVEN a closed stderr WHEN a file is opened THEN C code that writes to 2 does not hit it."""
    program = (
        "import os, sys; os.close(2); sys.stderr = None\n"
        "from tracelab.system.console import guarded_streams\n"
        "with guarded_streams():\n"
        f"    descriptor = os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_RDWR)\n"
        "    print(descriptor)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert int(ran.stdout) > 2
