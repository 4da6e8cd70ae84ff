import os
import signal
from pathlib import Path

import pytest

from tests.cli import commands
from tests.conftest import Ran
from tracelab.base import __version__
from tracelab.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]


def test_a_command_from_outside_can_be_added(monkeypatch, capsys):
    def greet(name: str, loud: bool = False) -> None:
        """Say hello."""
        print(f"hello {name}".upper() if loud else f"hello {name}")

    monkeypatch.setattr("sys.argv", ["tracelab", "greet", "trace", "--loud"])
    with pytest.raises(SystemExit) as done:
        main((*COMMANDS, greet))
    assert (done.value.code, capsys.readouterr().out) == (0, "HELLO TRACE\n")


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(tracelab, option):
    assert tracelab(option) == Ran(0, f"{__version__}\n", "")


def test_every_command_has_one_line_of_help(tracelab):
    lines = tracelab("--help").out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == [command.__name__ for command in COMMANDS]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--stpes", "3", "train.py"), "there is no option --stpes: did you mean --steps?"),
        (("--stpes=3", "train.py"), "there is no option --stpes: did you mean --steps?"),
        (("--step", "3", "train.py"), "there is no option --step: did you mean --steps?"),
        (
            ("--steps", "3", "--hole", "train.py"),
            "there is no option --hole: did you mean --whole?",
        ),
        (("--no-stack", "train.py"), "there is no option --no-stack: did you mean --no-stacks?"),
        (
            ("--xyz", "train.py"),
            "there is no option --xyz. Put the script's own options after the script",
        ),
    ],
)
def test_a_mistyped_option_before_the_script_is_no_script(tracelab, arguments, sentence):
    ran = tracelab("run", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:  # as some packages do
    pass
"""


@pytest.mark.parametrize("is_ignored", [False, True])
def test_ctrl_c_while_modules_are_imported(tmp_path, is_ignored):
    """THEN the command ends, with not a word; one that was started without Ctrl-C goes on."""
    (tmp_path / "typer.py").write_text(INTERRUPTED)
    handler = signal.SIG_IGN if is_ignored else signal.SIG_DFL
    ran = commands.tracelab(
        "--version",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )
    if is_ignored:
        assert b"typer" in ran.stderr
    else:
        assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")
