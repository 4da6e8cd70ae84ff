import pytest

from tracelab.cli.main import COMMANDS, main


def test_a_command_from_outside_can_be_added(monkeypatch, capsys):
    def greet(name: str, loud: bool = False) -> None:
        """Say hello."""
        print(f"hello {name}".upper() if loud else f"hello {name}")

    monkeypatch.setattr("sys.argv", ["tracelab", "greet", "trace", "--loud"])
    with pytest.raises(SystemExit) as done:
        main((*COMMANDS, greet))
    assert (done.value.code, capsys.readouterr().out) == (0, "HELLO TRACE\n")
