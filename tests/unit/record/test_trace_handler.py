"""A profiler of one's own logs what its trace says, and the training goes on whatever happens."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracelab
from tests.bundled_traces import files_of, report_of
from tracelab.base.errors import MissingSupportError
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
from tracelab.record import trace_handler as handling
from tracelab.record.trace_handler import report_lines

torch = pytest.importorskip("torch", reason="torch is not installed")

SMALL = "prefetch_copy_stream_synchronize"

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="these pretend that there is a GPU"),
    pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end"),
]


def train(handler, cycles=1):
    """Record some cycles of two steps each, as a training with a profiler of its own does."""
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=cycles)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=handler,
    ) as profiler:
        for _ in range(4 * cycles):
            torch.randn(4, 4).sum()
            profiler.step()


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As if there were a GPU: the file is a bundled capture."""

    def save(_, path):
        shutil.copy(files_of(SMALL)[0], path)

    monkeypatch.setattr(handling, "lacks_gpu", lambda: False)
    monkeypatch.setattr(handling, "save_trace", save)


def test_each_cycle_writes_a_trace_and_says_that_there_is_no_gpu(tmp_path, capsys):
    train(tracelab.trace_handler(tmp_path / "new", "mine"), cycles=2)
    lines = capsys.readouterr().out.splitlines()
    files = sorted((tmp_path / "new").iterdir())
    assert [line.startswith("tracelab: recorded ") for line in lines] == [True, True]
    assert len(files) == 2
    for line, file in zip(lines, files, strict=True):
        assert file.name.startswith("mine.")
        assert file.name.endswith(".pt.trace.json.gz")
        assert f"{file}: there is no GPU here" in line
        [source] = find_sources([str(file)])
        assert len(read_trace(source)) > 10


@pytest.mark.usefixtures("on_a_gpu")
def test_four_lines_say_what_the_first_screen_says(tmp_path, capsys):
    train(tracelab.trace_handler(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    [file] = tmp_path.iterdir()
    report = report_of(*files_of(SMALL))
    assert lines[:4] == [f"tracelab: {line}" for line in report_lines(report)]
    assert lines[4:] == [f"tracelab: more: tracelab analyze {file}"]


def test_lines_of_files(snapshot):
    names = ("train_step_sinful", "events_item", "two_models_naive", "two_streams_small_graph")
    assert {name: report_lines(report_of(*files_of(name))) for name in names} == snapshot


@pytest.mark.usefixtures("on_a_gpu")
def test_lines_go_where_the_program_logs(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        train(tracelab.trace_handler(tmp_path, log=logging.getLogger("train").info))
    assert len(caplog.messages) == 5
    assert {record.name for record in caplog.records} == {"train"}


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    ("every_rank", "rank", "count"), [(False, 0, 5), (False, 3, 0), (True, 3, 5)]
)
def test_rank_0_logs_for_its_job(tmp_path, capsys, monkeypatch, every_rank, rank, count):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "8")
    train(tracelab.trace_handler(tmp_path, every_rank=every_rank))
    lines = capsys.readouterr().out.splitlines()
    [file] = tmp_path.iterdir()
    assert file.name.startswith(f"steps_rank{rank}.")
    assert len(lines) == count
    assert all(line.startswith(f"tracelab: rank {rank}: ") == every_rank for line in lines)


@pytest.mark.usefixtures("on_a_gpu")
def test_a_large_trace_is_not_analyzed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(handling, "analyze_source", None)  # nobody calls it
    train(tracelab.trace_handler(tmp_path, max_mb=0.01))
    first, second = capsys.readouterr().out.splitlines()
    assert " MB, more than " in first
    assert "tracelab analyze " in second


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("CUPTI")])
def test_a_trace_that_cannot_be_written_is_one_warning(tmp_path, capsys, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(handling, "save_trace", fail)
    train(tracelab.trace_handler(tmp_path))
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("tracelab: warning: no trace is written: ")
    assert error.args[-1] in line


def test_a_folder_that_is_a_file_is_one_warning(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    train(tracelab.trace_handler(tmp_path / "file"))
    assert capsys.readouterr().out.count("cannot write") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [RuntimeError("a\nbug"), MemoryError()])
def test_an_analysis_that_fails_is_one_warning(tmp_path, capsys, monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(handling, "lacks_gpu", lambda: False)
    monkeypatch.setattr(handling, "analyze_source", fail)
    train(tracelab.trace_handler(tmp_path))
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("tracelab: warning: recorded ")
    assert type(error).__name__ in line


def test_a_trace_without_gpu_activity_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(handling, "lacks_gpu", lambda: False)
    train(tracelab.trace_handler(tmp_path))
    [line] = capsys.readouterr().out.splitlines()
    [file] = tmp_path.iterdir()
    assert line.count(str(file)) == 1
    assert "ProfilerActivity.CUDA" in line


def test_a_log_that_fails_ends_no_training(tmp_path):
    def fail(line):
        raise ValueError(line)

    train(tracelab.trace_handler(tmp_path, log=fail))
    assert len([*tmp_path.iterdir()]) == 1


def test_without_torch_it_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises((MissingSupportError, ImportError)):
        tracelab.trace_handler()


def test_the_package_does_not_import_torch_for_it():
    code = "import sys, tracelab; tracelab.trace_handler; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "False\n"
