"""What the project's own rules say of its code; the same commands as `make lint types layers`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
        pytest.param(["-m", "mypy"], marks=pytest.mark.slow),  # half a minute where it has no cache
        ["-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"],
    ],
    ids=["ruff check", "ruff format", "mypy", "import-linter"],
)
def test_rules_are_kept(arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy():
    heavy = {"torch", "pandas", "matplotlib", "numpy", "networkx", "orjson", "rich", "typer"}
    assert not heavy & _modules_after("import tracelab")


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["timeline", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    heavy = {"torch", "pandas", "matplotlib", "numpy", "networkx", "orjson", "msgspec"}
    heavy |= {"rich", "platformdirs", "multiprocessing", "concurrent.futures"}
    run = (
        f"sys.argv = ['tracelab', *{arguments!r}]; from tracelab.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass"
    )
    assert not heavy & _modules_after(run.replace("; from", "\nfrom"))


def test_analyzing_a_trace_imports_neither_torch_nor_matplotlib():
    trace = "traces/events_item.pt.trace.json.gz"
    loaded = _modules_after(f"import tracelab; tracelab.analyze({trace!r})")
    heavy = {"torch", "pandas", "matplotlib", "networkx", "rich", "multiprocessing", "jinja2"}
    assert not heavy & loaded
    assert "numpy" in loaded
