import base64
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

import tracelab
from tracelab.base.errors import MissingSupportError, OutputError, UsageError
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
from tracelab.record import capture as profiling

torch = pytest.importorskip("torch", reason="torch is not installed")

TRACES = Path(__file__).parents[3] / "traces"
CAPTURED = TRACES / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
RANKS = [TRACES / f"ddp_hook_side_stream_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]

pytestmark = [
    pytest.mark.usefixtures("small_program"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="these pretend that there is a GPU"),
]


class capture_of_a_gpu(profiling.capture):  # noqa: N801
    """As if there were a GPU: the file is a bundled capture."""

    recorded = CAPTURED

    def _arm(self):
        super()._arm()
        self.has_gpu = True

    def _save(self, profiler):
        super()._save(profiler)
        shutil.copy(self.recorded, self.path)
        os.utime(self.path)


def work():
    """Nothing."""


def loop(cap, calls):
    for _ in range(calls):
        torch.randn(4, 4).sum()
        cap.step()


@pytest.fixture
def cap(tmp_path):
    with capture_of_a_gpu(tmp_path / "x.pt.trace.json.gz", skip=1, steps=1) as cap:
        loop(cap, cap.calls)
    return cap


# What was recorded.


def test_report_and_picture_are_of_the_recorded_trace(cap, tmp_path):
    assert cap.report().findings == tracelab.analyze(str(cap.path)).findings
    assert cap.report() is cap.report()  # a trace is analysed once
    picture = cap.png(tmp_path / "new folder" / "timeline.png")
    content = (tmp_path / "new folder" / "timeline.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert picture._repr_png_() == cap.png()._repr_png_()


def test_lines_are_named_by_default(tmp_path):
    path = tmp_path / "x.pt.trace.json"
    with profiling.capture(path, skip=1) as cap:
        loop(cap, cap.calls)
    assert cap.calls == 1 + 6 + 2 + 4
    [source] = find_sources([str(path)])
    assert any(name.endswith(": loop") for name in read_trace(source).strings)


def test_a_loop_can_end_when_all_is_recorded(tmp_path):
    with profiling.capture(tmp_path / "x.pt.trace.json", skip=1) as cap:
        while not cap.done:
            cap.step()
    assert cap.count == cap.calls


def test_without_a_gpu_there_is_no_report(tmp_path, capsys):
    with profiling.capture(tmp_path / "x.pt.trace.json", skip=1) as cap:
        loop(cap, cap.calls)
    assert "there is no GPU here" in capsys.readouterr().err
    with pytest.raises(MissingSupportError, match="there is no GPU here"):
        cap.report()


def test_without_a_gpu_a_notebook_shows_why_and_prints_nothing(tmp_path, capsys, monkeypatch):
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with profiling.capture(tmp_path / "x.pt.trace.json", skip=1) as cap:
        loop(cap, cap.calls)
    assert capsys.readouterr() == ("", "")
    assert "there is no GPU here" in cap._repr_html_()
    assert str(tmp_path) not in cap._repr_html_()


def test_too_short_a_loop_is_told(tmp_path, capsys):
    with profiling.capture(tmp_path / "x.pt.trace.json") as cap:
        loop(cap, 3)
    reason = "there were 3 steps, too few to record any after the 10 that are skipped"
    assert reason in capsys.readouterr().err
    with pytest.raises(UsageError, match="there were 3 steps"):
        cap.report()


def test_an_error_in_the_loop_passes(tmp_path, capsys):
    def fail_in_the_loop():
        with profiling.capture(tmp_path / "x.pt.trace.json") as cap:
            cap.step()
            raise KeyError

    with pytest.raises(KeyError):
        fail_in_the_loop()
    assert "there was 1 step, too few" in capsys.readouterr().err


# What shows itself in a notebook.


def test_capture_shows_its_report_and_its_picture(cap):
    page = cap._repr_html_()
    assert "synchronize" in page
    encoded = page.partition("data:image/png;base64,")[2].partition('"')[0]
    assert base64.b64decode(encoded) == cap.png()._repr_png_()


def test_capture_without_a_report_says_why(tmp_path):
    with profiling.capture(tmp_path / "x.pt.trace.json") as cap:
        loop(cap, 3)
    assert cap._repr_html_().startswith("<p>there were 3 steps, too few")
    with profiling.capture(tmp_path / "x.pt.trace.json", skip=1) as cap:
        loop(cap, cap.calls)
    assert "there is no GPU here" in cap._repr_html_()


def test_capture_that_goes_on_says_how_far_it_is(tmp_path, snapshot):
    with profiling.capture(tmp_path / "x.pt.trace.json") as cap:
        loop(cap, 3)
        assert cap._repr_html_() == snapshot
        loop(cap, 19)


# What prints its report by itself.


def test_report_is_printed_when_all_is_recorded(tmp_path, capsys):
    path = tmp_path / "x.pt.trace.json.gz"
    with capture_of_a_gpu(path, skip=1, steps=1, print_report=True) as cap:
        loop(cap, cap.calls - 1)
        assert capsys.readouterr().out == ""
        loop(cap, 1)
        printed = capsys.readouterr()
        assert "explain synchronize" in printed.out
        assert f"traces: {path}" in printed.err
        assert f"drew {tmp_path / 'timeline.png'}" in printed.err
        loop(cap, 3)
    assert capsys.readouterr() == ("", "")


def test_a_loop_that_ends_early_prints_what_there_is(tmp_path, capsys):
    with capture_of_a_gpu(tmp_path / "x.json.gz", skip=1, steps=4, print_report=True) as cap:
        loop(cap, cap.calls - 2)
    assert "explain synchronize" in capsys.readouterr().out


def test_a_failing_analysis_does_not_end_the_training(tmp_path, capsys, monkeypatch):
    (tmp_path / "details").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "details"))
    monkeypatch.setattr(profiling, "announce", lambda *_, **__: 1 // 0)
    with profiling.capture(tmp_path / "x.json", skip=1, print_report=True) as cap:
        loop(cap, cap.calls + 1)
    assert cap.count == cap.calls + 1
    message = capsys.readouterr().err
    assert "a bug in tracelab" in message
    assert "ZeroDivisionError" in message
    assert f"recorded {tmp_path / 'x.json'}, but the analysis failed" in message
    [details] = (tmp_path / "details").glob("tracelab-error-*")
    assert "ZeroDivisionError" in details.read_text()


def test_a_result_that_cannot_be_printed_does_not_end_the_training(
    tmp_path, capsys, monkeypatch, snapshot
):
    def fail(*_, **__):
        raise OutputError("cannot write the result to stdout: no space left on device")

    monkeypatch.setattr(profiling, "announce", fail)
    with profiling.capture(tmp_path / "x.json", skip=1, print_report=True) as cap:
        loop(cap, cap.calls + 1)
    assert cap.count == cap.calls + 1
    assert capsys.readouterr().err == snapshot


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Be one rank of a job of two on this machine."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")

    def run(rank, **settings):
        monkeypatch.setenv("RANK", str(rank))
        path = tmp_path / "x.pt.trace.json.gz"
        cap = capture_of_a_gpu(path, skip=1, steps=1, print_report=True, **settings)
        cap.recorded = RANKS[rank]
        with cap:
            loop(cap, cap.calls)

    return run


@pytest.mark.slow
def test_first_rank_speaks_for_all(job, tmp_path, capsys):
    job(1)
    assert capsys.readouterr().out == ""
    # The file of rank 1 was there before rank 0 began: as if they had begun together.
    os.utime(tmp_path / "x_rank1.pt.trace.json.gz", (2**33, 2**33))
    job(0)
    printed = capsys.readouterr()
    assert "2 ranks" in " ".join(printed.out.split())
    assert "x_rank0.pt.trace.json.gz" in printed.err
    assert "x_rank1.pt.trace.json.gz" in printed.err


@pytest.mark.slow
def test_files_of_an_earlier_run_are_left_out(job, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profiling, "MAX_WAIT_S", 0.0)
    job(1)
    os.utime(tmp_path / "x_rank1.pt.trace.json.gz", (1, 1))
    capsys.readouterr()
    job(0)
    # A file alone is named in the heading; several are counted there.
    printed = capsys.readouterr().out
    assert "x_rank0.pt.trace.json.gz" in printed.splitlines()[0]
    assert "rank 0" in printed.splitlines()[0]


# A function that is the step.


def test_each_call_is_a_step(tmp_path, capsys):
    @profiling.profile_step(path=tmp_path / "x.pt.trace.json", skip=1, steps=2)
    def step(number, *, twice=False):
        """A step."""
        return 2 * number if twice else number

    assert [step(number, twice=True) for number in range(11)] == [*range(0, 22, 2)]
    assert step.__doc__ == "A step."
    [source] = find_sources([str(tmp_path / "x.pt.trace.json")])
    names = read_trace(source).strings
    steps = [name for name in names if name.startswith("ProfilerStep#")]
    assert steps == ["ProfilerStep#2", "ProfilerStep#3"]
    assert "there is no GPU here" in capsys.readouterr().err


def test_a_method_can_be_the_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Trainer:
        @profiling.profile_step
        def train_step(self, batch):
            return self, batch

    trainer = Trainer()
    assert [trainer.train_step(i) for i in range(22)] == [(trainer, i) for i in range(22)]
    assert (tmp_path / "tracelab-run" / "train_step.pt.trace.json.gz").exists()


def test_what_has_no_name_can_be_the_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = profiling.profile_step(skip=1, steps=1)(torch.nn.Linear(2, 2))
    for _ in range(10):
        step(torch.ones(2))
    assert (tmp_path / "tracelab-run" / "Linear.pt.trace.json.gz").exists()


def test_settings_are_looked_at_when_decorating():
    with pytest.raises(TypeError, match="stepz"):
        profiling.profile_step(stepz=3)(work)


def test_nothing_begins_before_the_first_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    profiling.profile_step(lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_at_the_programs_end_what_there_is_is_told(tmp_path, snapshot):
    program = """
        import tracelab
        @tracelab.profile_step
        def step(): pass
        for _ in range(3): step()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert done.stderr == snapshot
