"""What tests of every folder share: the command line as a function, a cache folder, GPU tests.

``unit/`` mirrors the package, module by module; ``cli/`` runs each command as a user does;
``golden/`` compares whole reports of bundled and of real traces with what is known of them;
``frameworks/`` records real trainings; ``fuzz/`` makes inputs that lie; ``repository/`` holds the
documents, the imports and the style; ``reference/`` defines the measures once more, slowly;
``build/`` makes traces and reports by hand; ``programs/`` are recorded, ``benchmarks/`` are run by
hand. Screens and sentences are kept in ``__snapshots__`` next to their tests; ``pytest
--snapshot-update`` writes them anew. Fixtures of a single folder stand in its own ``conftest.py``.
"""

import gc
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from tests import bundled_traces, corpus, examples
from tracelab.cli.main import main

settings.load_profile(examples.FEW)  # another one with --hypothesis-profile
LEFT = "left to make check: the time given by --until is over"


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code, and what it wrote where."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory):
    """What commands keep of the files that they read goes where the tests' files are.

    Reports that several tests share are kept for all workers of a run, and programs that tests
    start keep what they compiled: compiling it anew is a third of their time.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of the folders of all workers
    (folder / "reports").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv(bundled_traces.KEPT, str(folder / "reports"))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setattr("tracelab.analysis.analysis.Analysis.open", bundled_traces.open_once)
        yield


@pytest.fixture
def snapshot(snapshot, tmp_path_factory):
    """Texts as they were last read: ``assert text == snapshot``, without names of this machine.

    ``pytest --snapshot-update`` keeps the new texts.
    """
    names = {
        re.escape(str(Path(__file__).parents[1])): "ROOT",
        f"{re.escape(str(tmp_path_factory.getbasetemp()))}/[^/\\s]+": "TMP",
        f"{re.escape(tempfile.gettempdir())}/[^/\\s]+": "TMP",
        r"\btorch \d+\.\d+\S*": "torch VERSION",
    }

    def replaced(data, **_):
        if isinstance(data, str):
            for pattern, name in names.items():
                data = re.sub(pattern, name, data)
        return data

    return snapshot(matcher=replaced)


@pytest.fixture
def small_program(monkeypatch):
    """Let a recording look at no module of the program; here that is all tests, each time."""
    monkeypatch.setattr("tracelab.record.program_source._own_files", lambda _: ())


@pytest.fixture
def tracelab(monkeypatch, capsys):
    """Run the command line in this process: ``tracelab("analyze", path)``."""
    monkeypatch.delenv("COLUMNS", raising=False)  # of the terminal that runs the tests

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tracelab", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        else:
            code = 0
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def pytest_addoption(parser):
    parser.addoption(
        "--corpus",
        choices=("small", "all"),
        default="small",
        help="the bundled captures to look at: those of tests/corpus.py, or all",
    )
    parser.addoption(
        "--until",
        type=float,
        metavar="TIME",
        help="skip the tests that have not begun by then, in seconds since 1970",
    )


def pytest_generate_tests(metafunc):
    """Give `bundled_path` each file of the corpus, `bundled_capture` each name."""
    captures = corpus.chosen(metafunc.config.getoption("corpus"))
    values = {
        "bundled_path": [path for files in captures.values() for path in files],
        "bundled_capture": list(captures),
        "bundled_job": [name for name, files in captures.items() if len(files) > 1],
    }
    for name in values.keys() & set(metafunc.fixturenames):
        ids = bundled_traces.name_of if name == "bundled_path" else None
        metafunc.parametrize(name, values[name], ids=ids, scope="module")


def pytest_collection_modifyitems(config, items):
    """Begin with the longest; leave out what is about captures or GPUs that are not there."""
    # At the end one would keep one worker busy alone; and what looks at whole analyses keeps their
    # reports for others.
    longest = ["test_quality.py", "test_every_trace.py", "test_diff_truth.py"]
    places = {name: place for place, name in enumerate(longest)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    if config.getoption("corpus") != "all":
        whole = [item for item in items if item.get_closest_marker("whole_corpus")]
        config.hook.pytest_deselected(items=whole)
        items[:] = [item for item in items if item not in whole]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _cuda_is_there():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA GPU, or no torch"))


def pytest_collection_finish():
    """Collect garbage seldom, and never look through what 8,000 tests are made of.

    It is a twentieth of a run else.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def pytest_runtest_setup(item):
    until = item.config.getoption("until")
    if until is not None and time.time() > until:
        pytest.skip(LEFT)


def pytest_terminal_summary(terminalreporter):
    left = [x for x in terminalreporter.getreports("skipped") if LEFT in str(x.longrepr)]
    if left:
        terminalreporter.write_line(f"{len(left)} tests are left to make check: no time for them")


def _cuda_is_there():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
