"""The scripts by which shells complete commands, options, words and files."""

import os
import shutil
import subprocess
import sys

import pytest

SHELLS = ("bash", "zsh", "fish")
# What each shell sets before it asks for what may stand at the end of a line.
ASKED = {
    "bash": lambda line: {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
    "zsh": lambda line: {"_TYPER_COMPLETE_ARGS": line},
    "fish": lambda line: {
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    },
}


@pytest.fixture
def complete(tracelab, monkeypatch):
    """What a shell is answered for a line."""

    def complete(shell, line):
        with monkeypatch.context() as patch:
            patch.setenv("_TRACELAB_COMPLETE", f"complete_{shell}")
            for variable, value in ASKED[shell](line).items():
                patch.setenv(variable, value)
            ran = tracelab()
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    return complete


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("tracelab an", "analyze"),
        ("tracelab analyze --js", "--json"),
        ("tracelab run --collector k", "kineto"),
        ("tracelab cache c", "clear"),
        ("tracelab explain TL10", "TL101"),
    ],
)
def test_commands_options_and_words_are_completed(complete, shell, line, word):
    assert word in complete(shell, line)


def test_files_are_left_to_the_shell(complete):
    assert complete("bash", "tracelab analyze tr") == "\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(tracelab, monkeypatch, shell):
    monkeypatch.setenv("_TRACELAB_COMPLETE", f"source_{shell}")
    ran = tracelab()
    assert (ran.code, ran.err) == (0, "")
    assert f"_TRACELAB_COMPLETE=complete_{shell}" in ran.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_a_command_and_an_option_by_the_script(tmp_path):
    # GIVEN a `tracelab` on the path of a shell that has evaluated the script
    command = tmp_path / "tracelab"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tracelab "$@"\n')
    command.chmod(0o755)
    program = """
        eval "$(_TRACELAB_COMPLETE=source_bash tracelab)"
        complete -p tracelab
        for COMP_LINE in 'tracelab an' 'tracelab analyze --js'; do
            COMP_WORDS=($COMP_LINE) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _tracelab_completion tracelab
            echo "${COMPREPLY[@]}"
        done
    """
    ran = subprocess.run(
        ["bash", "--norc", "-c", program],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    # THEN it answers the command and the option, and files where there is no answer
    how, *completed = ran.stdout.splitlines()
    assert completed == ["analyze", "--json"]
    assert "-o default" in how
