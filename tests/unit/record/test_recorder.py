import gzip
import importlib
import json
import linecache
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.figures import figures
from tracelab import analyze
from tracelab.base.errors import OutputError
from tracelab.model.program.source_lines import SourceLines
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
from tracelab.record import collector, recorder as recorder_module
from tracelab.record.program_source import describe_source
from tracelab.record.recorder import Recorder

torch = pytest.importorskip("torch", reason="torch is not installed")


def work():
    return torch.randn(32, 32) @ torch.randn(32, 32)


def run(recorder, calls):
    with recorder:
        for _ in range(calls):
            work()
            recorder.step()


def steps_in(path):
    trace = read_trace(find_sources([str(path)])[0])
    return [name for name in trace.strings if name.startswith("ProfilerStep#")]


def metadata_of(path):
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)["tracelab"]


def test_records_the_steps_after_baseline_and_warmup(tmp_path):
    path = tmp_path / "new folder" / "cpu.pt.trace.json.gz"
    recorder = Recorder(path, steps=2, warmup=1, baseline=3)
    assert recorder.calls == 6
    run(recorder, recorder.calls)
    assert steps_in(path) == ["ProfilerStep#1", "ProfilerStep#2"]


def test_baseline_can_be_left_out(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    run(Recorder(path, steps=1, warmup=1, baseline=0), calls=2)
    assert steps_in(path) == ["ProfilerStep#1"]
    assert "unprofiled_step_ms" not in metadata_of(path)


@pytest.mark.parametrize(
    ("baseline", "blocks"), [(2, [1, 1]), (4, [2, 2]), (6, [2, 2, 2]), (7, [3, 3, 1])]
)
def test_time_without_the_profiler_is_the_median_of_blocks(tmp_path, monkeypatch, baseline, blocks):
    # GIVEN steps of 10 ms, but the very first one takes a second
    clock = [0.0]
    monkeypatch.setattr(recorder_module.time, "perf_counter", lambda: clock[0])
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, steps=1, warmup=1, baseline=baseline)
    with recorder:
        for number in range(recorder.calls):
            clock[0] += 0.01 if number else 1.0
            recorder.step()
    # THEN it does not count
    times = [0.01 * steps for steps in blocks]
    times[0] += 0.99
    means = sorted(time / steps for time, steps in zip(times, blocks, strict=True))
    expected = means[(len(means) - 1) // 2]
    assert float(metadata_of(path)["unprofiled_step_ms"]) == pytest.approx(expected * 1e3, abs=1e-3)
    assert expected == pytest.approx(0.01)


class Program:
    """A program on a clock of its own: each step takes so long on the host, and on one GPU."""

    def __init__(self):
        self.now_s = self.done_s = 0.0
        self.device_lookups = 0

    def step(self, host_ms, gpu_ms):
        self.now_s += host_ms / 1e3
        self.done_s = max(self.now_s, self.done_s) + gpu_ms / 1e3

    def synchronize(self, devices):
        if devices:
            self.now_s = max(self.now_s, self.done_s)

    def find_devices(self):
        self.device_lookups += 1
        return (0,)


@pytest.fixture
def program(monkeypatch):
    """Its clock is the recorder's, and its GPU is there until the profiler would look for it."""
    program, arm = Program(), Recorder._arm

    def arm_without_gpu(recorder):
        recorder.has_gpu = False
        arm(recorder)

    monkeypatch.setattr(Recorder, "_arm", arm_without_gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(recorder_module.time, "perf_counter", lambda: program.now_s)
    for name, value in (("_MIN_BLOCK_MS", 5.0), ("_WARMS_UP", 1.1), ("_NOT_THE_SAME", 0.8)):
        monkeypatch.setattr(recorder_module, name, value)
    monkeypatch.setattr(recorder_module, "_synchronize", program.synchronize)
    monkeypatch.setattr(recorder_module, "_devices_in_use", program.find_devices)
    return program


@pytest.mark.parametrize(
    ("host_ms", "gpu_ms", "baseline", "block_steps", "more_calls", "step_ms"),
    [
        # 2 steps prove too short, then each block has 14 more. The last one's GPU work ends it.
        pytest.param(0.1, 0.05, 6, 16, 2 + 3 * 14, (16 * 0.1 + 0.05) / 16, id="very-short"),
        # The first launch comes with the end of the host's first step.
        pytest.param(0.01, 0.2, 6, 16, 2 + 3 * 14, (0.01 + 16 * 0.2) / 16, id="short-on-gpu"),
        # 3 steps take 4.5 ms, 4 are enough.
        pytest.param(1.5, 0, 6, 4, 2 + 3 * 2, 1.5, id="short"),
        pytest.param(2.6, 0, 6, 2, 0, 2.6, id="long"),
        # The host's part of 2 steps ends after 0.2 ms, the GPU's after 20.
        pytest.param(0.1, 10, 6, 2, 0, (0.1 + 2 * 10) / 2, id="long-on-gpu"),
        pytest.param(0.1, 0, 1, 8, 1 + 7, 0.1, id="one-step"),
        pytest.param(0.1, 0, 0, None, 0, None, id="none"),
    ],
)
def test_short_steps_are_timed_in_longer_blocks(
    tmp_path, program, host_ms, gpu_ms, baseline, block_steps, more_calls, step_ms
):
    path = tmp_path / "a.json"
    recorder = Recorder(path, skip=1, baseline=baseline, warmup=1, steps=2)
    planned_calls = recorder.calls
    with recorder:
        while not recorder.over:
            program.step(host_ms, gpu_ms)
            recorder.step()
            assert recorder.over == (recorder.count == recorder.calls)
    assert recorder.calls == planned_calls + more_calls
    assert len(steps_in(path)) == 2
    about = metadata_of(path)
    assert about.get("unprofiled_block_steps") == (block_steps and str(block_steps))
    if step_ms is not None:
        assert float(about["unprofiled_step_ms"]) == pytest.approx(step_ms, abs=1e-6)
        assert float(about["unprofiled_host_step_ms"]) == pytest.approx(host_ms, abs=1e-6)
    # Looking for devices slows down the steps after it: only before the timing.
    assert program.device_lookups == 1


def test_block_whose_time_counts_says_its_steps(tmp_path, program):
    # GIVEN a first step of a second, with which the first block is long enough
    path = tmp_path / "a.json"
    recorder = Recorder(path, warmup=1, steps=1)
    with recorder:
        while not recorder.over:
            program.step(0.1 if recorder.count else 1000, 0)
            recorder.step()
    # THEN the second is timed again, and the median is of the others
    assert recorder.count == 2 + 2 + 16 + 16 + 1 + 1
    assert metadata_of(path)["unprofiled_block_steps"] == "16"
    assert float(metadata_of(path)["unprofiled_step_ms"]) == pytest.approx(0.1, abs=1e-6)


def record(recorder, program, *host_ms):
    """Steps that take so long of the host, the last one of them again and again."""
    with recorder:
        while not recorder.over:
            program.step(host_ms[min(recorder.count, len(host_ms) - 1)], 0)
            recorder.step()
    return metadata_of(recorder.path)


TIMED = {"unprofiled_step_ms", "unprofiled_host_step_ms", "unprofiled_block_steps"}


def test_a_program_that_warms_up_is_timed_until_it_is_steady(tmp_path, program):
    # GIVEN blocks of 2 steps of 100, 80, 60, 40 and 40 ms
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=1)
    about = record(recorder, program, 100, 100, 80, 80, 60, 60, 40)
    # THEN the fifth is like the fourth, and the median of the last three counts
    assert recorder.count == recorder.calls == 6 + 2 * 2 + 1 + 1
    assert float(about["unprofiled_step_ms"]) == pytest.approx(40)
    assert "unprofiled_unsteady" not in about


def test_what_happens_once_is_no_warm_up(tmp_path, program):
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=1)
    about = record(recorder, program, 100, 20)
    assert recorder.count == 6 + 1 + 1
    assert float(about["unprofiled_step_ms"]) == pytest.approx(20)


def test_of_steps_that_get_faster_to_the_end_no_time_is_known(tmp_path, program):
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=1)
    about = record(recorder, program, *(1000 * 0.9**step for step in range(40)))
    assert recorder.count == 6 + 3 * 2 + 1 + 1
    assert not TIMED & set(about)
    assert read_trace(find_sources([str(recorder.path)])[0]).info.unprofiled_is_unsteady


def test_ranks_of_a_job_that_warms_up_time_no_more_steps(tmp_path, monkeypatch, program):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=1)
    about = record(recorder, program, 100, 100, 80, 80, 60, 60, 60)
    assert recorder.count == 6 + 1 + 1
    assert not TIMED & set(about)


def test_steps_that_are_faster_with_the_profiler_were_timed_too_early(tmp_path, program):
    # GIVEN a warm-up that ends with the timing: 40 ms a step, then 20 with the profiler
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=2)
    about = record(recorder, program, *[40] * 7, 20)
    assert float(about["profiled_host_step_ms"]) == pytest.approx(20)
    assert not TIMED & set(about)
    assert about["unprofiled_unsteady"]


def fill(recorder, program):
    """Steps of 0.1 ms of the host, until there are enough."""
    with recorder:
        while not recorder.over:
            program.step(0.1, 0)
            recorder.step()


def test_ranks_of_a_job_record_the_same_steps(tmp_path, monkeypatch, program):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=1)
    fill(recorder, program)
    assert recorder.count == recorder.calls == 6 + 1 + 1
    assert metadata_of(recorder.path)["unprofiled_block_steps"] == "2"


def test_without_a_gpu_no_more_steps_are_timed(tmp_path, monkeypatch, program):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recorder = Recorder(tmp_path / "a.json", warmup=1, steps=1)
    fill(recorder, program)
    assert recorder.count == recorder.calls == 6 + 1 + 1
    assert metadata_of(recorder.path)["unprofiled_block_steps"] == "2"
    assert program.device_lookups == 0


def test_too_few_steps_are_counted_with_those_that_were_timed_in_addition(
    tmp_path, program, snapshot
):
    recorder = Recorder(tmp_path / "a.json")
    with recorder:
        for _ in range(18 + 3):
            program.step(0.1, 0)
            recorder.step()
    # 2 and 16 are timed; 3 of the next block were too few, so at least a 4th one comes, and 2 more.
    assert figures(recorder.why_nothing()) == ["21", "26"]
    assert recorder.why_nothing() == snapshot


def test_further_steps_change_nothing(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, steps=1, warmup=1)
    with recorder:
        for _ in range(recorder.calls):
            work()
            recorder.step()
        written = path.read_bytes()
        for _ in range(5):
            work()
            recorder.step()
    assert path.read_bytes() == written


def test_leaving_early_writes_what_there_is(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    run(Recorder(path, steps=5, warmup=1, baseline=0), calls=3)
    assert steps_in(path)[:2] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_leaving_before_the_profiler_was_armed_writes_nothing(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    run(Recorder(path, baseline=5), calls=2)
    assert not path.exists()


def test_an_error_in_the_loop_passes_and_leaves_the_trace(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, steps=5, warmup=1, baseline=0)

    def fail_in_the_loop():
        with recorder:
            for number in (2, 1, 0):
                work()
                recorder.step()
                1 / number

    with pytest.raises(ZeroDivisionError):
        fail_in_the_loop()
    assert "ProfilerStep#1" in steps_in(path)


def test_first_steps_are_left_alone(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, skip=4, steps=2, warmup=1, baseline=1)
    assert recorder.calls == 8
    with recorder:
        for number in range(1, 9):
            work()
            recorder.step()
            assert recorder.done == recorder.over == (number == 8)
    assert steps_in(path) == ["ProfilerStep#1", "ProfilerStep#2"]


def test_cuda_is_not_asked_for_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked too early"))
    with Recorder(tmp_path / "cpu.pt.trace.json", skip=2) as recorder:
        recorder.step()


def test_a_recorder_that_was_left_stays_left(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, steps=5, warmup=1, baseline=0)
    run(recorder, calls=3)
    written = path.read_bytes()
    for _ in range(5):
        recorder.step()
    recorder.__exit__(None, None, None)
    assert path.read_bytes() == written


def test_program_may_change_its_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    recorder = Recorder("out/cpu.pt.trace.json", steps=1, warmup=1, baseline=0)
    with recorder:
        monkeypatch.chdir(tmp_path / "elsewhere")
        for _ in range(recorder.calls):
            recorder.step()
    assert recorder.path == tmp_path / "out" / "cpu.pt.trace.json"
    assert recorder.path.exists()


def test_failing_to_write_does_not_end_the_training(tmp_path):
    path = tmp_path / "taken.json"
    with Recorder(path, steps=1, warmup=1, baseline=0) as recorder:
        path.mkdir()  # by another program, meanwhile
        for _ in range(recorder.calls + 2):
            recorder.step()
    assert recorder.over
    assert not recorder.done
    assert recorder.why_nothing() == f"cannot write {path}: is a directory"
    assert list(tmp_path.iterdir()) == [path]


def test_a_trace_that_breaks_off_unnoticed_is_none(tmp_path, monkeypatch):
    """GIVEN a full disk, of which the profiler's own writer says nothing"""
    path = tmp_path / "cpu.pt.trace.json.gz"
    export = torch.profiler.profile.export_chrome_trace

    def broken(profiler, name):
        export(profiler, name)
        content = gzip.decompress(Path(name).read_bytes())
        Path(name).write_bytes(gzip.compress(content[: len(content) // 2]))

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", broken)
    recorder = Recorder(path, steps=1, warmup=1, baseline=0)
    run(recorder, calls=recorder.calls)
    assert not recorder.done
    assert recorder.why_nothing() == f"cannot write {path}: it is incomplete; is the disk full?"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_writing_does_not_lose_the_trace(tmp_path, monkeypatch):
    export = torch.profiler.profile.export_chrome_trace

    def interrupted(profiler, name):
        os.kill(os.getpid(), signal.SIGINT)
        export(profiler, name)

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", interrupted)
    recorder = Recorder(tmp_path / "cpu.json", steps=1, warmup=1, baseline=0)
    with pytest.raises(KeyboardInterrupt):
        run(recorder, calls=recorder.calls)
    assert recorder.done
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.json"]


def test_a_fork_of_the_program_does_not_record(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "cpu.json", steps=1, warmup=1, baseline=0)
    with recorder:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        recorder.step()
        recorder.__exit__(None, None, None)
        assert (recorder.count, recorder.over) == (0, False)
        monkeypatch.undo()


def test_unwritable_folder_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OutputError, match="not a directory"),
        Recorder(tmp_path / "file" / "a.json", skip=3),
    ):
        pass


def test_file_appears_whole(tmp_path, monkeypatch):
    path = tmp_path / "cpu.pt.trace.json"
    export = torch.profiler.profile.export_chrome_trace

    def watched(profiler, name):
        export(profiler, name)
        assert not path.exists()

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", watched)
    run(Recorder(path, steps=1, warmup=1, baseline=0), calls=2)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("counts", "calls", "expected"),
    [
        ({}, 0, "no step completed, so nothing was recorded"),
        (
            {"skip": 5},
            7,
            "there were 7 steps, too few to record any after the 5 that are skipped and the 8 for "
            "timing and warm-up",
        ),
        ({}, 1, "there was 1 step, too few to record any after the 8 for timing and warm-up"),
    ],
)
def test_why_there_is_nothing_is_said(tmp_path, counts, calls, expected):
    recorder = Recorder(tmp_path / "cpu.pt.trace.json", **counts)
    run(recorder, calls)
    assert not recorder.done
    assert recorder.why_nothing() == expected


def test_a_recorder_that_was_never_left_makes_way_for_the_next(tmp_path, snapshot):
    # A second profiler beside the first would crash the process.
    first, second = (
        Recorder(tmp_path / f"{name}.json", steps=2, warmup=1, baseline=0) for name in "ab"
    )
    for recorder, calls in ((first, 2), (second, 3)):
        recorder.__enter__()
        for _ in range(calls):
            work()
            recorder.step()
    assert first.done
    assert second.done
    first.__exit__(None, None, None)
    assert steps_in(second.path) == ["ProfilerStep#1", "ProfilerStep#2"]
    assert first.why_nothing() == snapshot


def test_file_says_where_the_program_has_its_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "cpu.pt.trace.json.gz"
    recorder = Recorder(path, steps=1, warmup=1)
    run(recorder, recorder.calls)
    folders = metadata_of(path)["source_folders"].split(os.pathsep)
    assert str(tmp_path.resolve()) in folders
    assert not any("site-packages" in folder for folder in folders)


def test_file_says_how_it_was_made_and_what_that_cost(tmp_path):
    path = tmp_path / "cpu.pt.trace.json.gz"
    recorder = Recorder(path, steps=1, warmup=1, metadata={"workload": "mine"})
    run(recorder, recorder.calls)
    about = metadata_of(path)
    assert about["torch"] == torch.__version__
    assert about["workload"] == "mine"
    assert about["event_records"] in {"cupti", "kineto"}
    assert float(about["unprofiled_step_ms"]) > 0
    assert float(about["unprofiled_step_ms"]) >= float(about["unprofiled_host_step_ms"])
    assert float(about["profiled_host_step_ms"]) > 0


@pytest.mark.slow
def test_stacks_are_recorded_on_request(tmp_path):
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, steps=1, warmup=1, stacks=True)
    run(recorder, recorder.calls)
    trace = read_trace(find_sources([str(path)])[0])
    assert any(name.endswith(": work") for name in trace.strings)


# With all that JSON escapes, which Kineto spoils.
CALL = r"""return x.item() if s != '\n' else "50 % ü" """.strip()


@pytest.mark.parametrize(
    ("settings", "line", "code"),
    [
        ({"stacks": True}, 3, CALL),
        ({"stacks": True, "source_text": False}, 3, None),
        ({"stacks": False}, None, None),
    ],
)
def test_with_stacks_the_file_knows_the_lines_of_the_programs_calls(
    tmp_path, monkeypatch, settings, line, code
):
    # GIVEN a module of the program
    source = tmp_path / "my_program.py"
    source.write_text(f"def step(x):\n    secret = 'of the user'\n    {CALL}\n")
    monkeypatch.setattr("tracelab.record.program_source._MAX_BYTES", 20_000)  # not all tests
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_program", raising=False)
    importlib.import_module("my_program")

    # WHEN
    path = tmp_path / "cpu.pt.trace.json"
    recorder = Recorder(path, steps=1, warmup=1, **settings)
    run(recorder, recorder.calls)
    source.unlink()

    # THEN its lines are in the file, and the text of none but those that call something; nor
    # anything of tracelab's own
    info = read_trace(find_sources([str(path)])[0]).info
    lines = SourceLines((), info.source_scopes, info.source_texts)
    assert lines.line_of("my_program.py", "step", 1, "item") == line
    assert lines.text_of("my_program.py", "step", 1, 3) == code
    assert "of the user" not in path.read_text()
    assert ("return x.item()" in path.read_text()) == (code is not None)
    assert json.loads(path.read_text())["traceEvents"]
    assert not any(name.startswith("tracelab/record") for name in info.source_scopes)


def test_cells_of_a_notebook_are_stored_as_ipython_keeps_them(monkeypatch):
    cell = "/tmp/ipykernel_7/12345.py"
    rows = ["def step(x):\n", "    # of the user\n", "    return x.item()\n"]
    monkeypatch.setitem(linecache.cache, cell, (sum(map(len, rows)), None, rows, cell))
    compiled = SimpleNamespace(format_code_name=lambda x: ("Cell", "In[3]") if x == cell else None)
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=compiled))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    source = describe_source([])
    assert json.loads(source.cells) == {cell: "In[3]"}
    lines = SourceLines((), json.loads(source.scopes), json.loads(source.texts))
    assert lines.line_of("In[3]", "step", 1, "item") == 3
    assert lines.text_of("In[3]", "step", 1, 3) == "return x.item()"
    assert "of the user" not in source.texts


@pytest.mark.slow
def test_what_is_stored_of_the_source_is_limited(tmp_path, monkeypatch):
    (tmp_path / "my_large_program.py").write_text("def step(x):\n" + "    x.item()\n" * 40_000)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("my_large_program")

    source = describe_source([str(tmp_path)])
    assert "my_large_program.py" not in json.loads(source.scopes)
    assert "my_large_program.py" not in json.loads(source.texts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.pt.trace.json.gz", "a_rank3.pt.trace.json.gz"),
        ("my-rank-3.json", "my-rank-3.json"),
        ("ranker.json", "ranker_rank3.json"),
    ],
)
def test_each_rank_of_a_job_has_its_file(monkeypatch, tmp_path, name, expected):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    recorder = Recorder(tmp_path / name, steps=1, warmup=1)
    run(recorder, recorder.calls)
    assert recorder.path == tmp_path / expected
    assert metadata_of(recorder.path)["rank"] == "3"
    [source] = find_sources([str(recorder.path)])
    assert read_trace(source).info.rank == 3


def test_a_job_of_one_process_has_no_rank(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Recorder(tmp_path / "a.json").path == tmp_path / "a.json"


@pytest.mark.parametrize("counts", [{"steps": 0}, {"warmup": 0}, {"baseline": -1}, {"skip": -1}])
def test_counts_must_make_sense(tmp_path, counts):
    with pytest.raises(ValueError, match="must"):
        Recorder(tmp_path / "x.json", **counts)


@pytest.mark.gpu
@pytest.mark.parametrize("event_records", [None, False])
def test_gpu_capture_names_what_each_stream_waited_for(tmp_path, event_records):
    path = tmp_path / "gpu.pt.trace.json.gz"
    side = torch.cuda.Stream()
    matrix = torch.randn(1024, 1024, device="cuda")
    recorder = Recorder(path, steps=2, warmup=1, event_records=event_records)
    with recorder:
        while not recorder.over:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                product = matrix @ matrix
            torch.cuda.current_stream().wait_stream(side)
            product @ matrix
            recorder.step()
    trace = analyze(str(path)).traces[0]
    is_resolved = event_records is None or not collector.kineto_loses_records()
    assert recorder.waits_are_resolved is is_resolved
    links = trace.event_links
    assert (links.exact, links.inferred + links.unresolved) == ((4, 0) if is_resolved else (0, 4))
    assert "activities_without_launch" not in trace.losses
    assert analyze(str(path)).syncs == ()
