"""Which collector records, against a torch.profiler that is made up as newer PyTorch has it.

What is made up follows torch/profiler/_cuspy of torch 2.15 (core.py, cupti_python.py). Where such a
torch is installed, it is compared with that, and a recording is made with its own Cuspy.
"""

import gzip
import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import types
import warnings
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.build.torch_writers import Cupti
from tracelab.base.errors import MissingSupportError
from tracelab.record import collector, recorder as recorder_module
from tracelab.record.capture import capture
from tracelab.record.collector import cuspy_was_used, missing_for_cuspy
from tracelab.record.export import export_trace, save_trace
from tracelab.record.recorder import Recorder

torch = pytest.importorskip("torch", reason="torch is not installed")

CPU, CUDA = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA
CUSPY = "torch.profiler._cuspy"


@dataclass
class CuspyConfig:
    """As torch.profiler.CuspyConfig."""

    enable_cuda_sync_events: bool = False
    enable_environment_counters: bool = False


@dataclass
class ProfilerActivityConfig:
    """As torch.profiler.ProfilerActivityConfig."""

    activity_types: list = field(default_factory=list)
    profiler_configs: list = field(default_factory=list)


WITH_SYNCS = CuspyConfig(enable_cuda_sync_events=True)


class Profile:
    """As torch.profiler.profile: counts steps, and says what it was made with."""

    made: list = []  # noqa: RUF012 (each test has its own)
    can_subscribe = True

    def __init__(self, **settings):
        self.settings = settings
        self.metadata = {}
        self.profiler = None
        self.steps = 0
        Profile.made.append(self)

    @property
    def uses_cuspy(self):
        return any(isinstance(activity, dict) for activity in self.settings["activities"])

    def __enter__(self):
        if self.uses_cuspy:
            start_cuspy(subscribes=Profile.can_subscribe)
        self.profiler = session(None if self.uses_cuspy else "cuda")
        self.profiler._prepare_trace()

    def __exit__(self, *error):
        if self.steps > self.settings["schedule"].warmup:
            self.settings["on_trace_ready"](self)

    def step(self):
        self.steps += 1
        schedule = self.settings["schedule"]
        if self.steps == schedule.warmup + schedule.active:
            self.settings["on_trace_ready"](self)

    def add_metadata_json(self, key, value):
        self.metadata[key] = json.loads(value)

    def export_chrome_trace(self, path):
        content = json.dumps({"traceEvents": [], **self.metadata}).encode()
        Path(path).write_bytes(gzip.compress(content) if path.endswith(".gz") else content)


def session(device):
    """A session of the program's, not yet begun."""
    made = torch.autograd.profiler.profile()
    made.use_device, made.entered = device, False
    return made


def begin(self):
    self.entered = True


def start_cuspy(*, subscribes=True):
    """As the program's own use of Cuspy leaves it."""
    core = sys.modules[f"{CUSPY}.core"] = types.ModuleType(f"{CUSPY}.core")
    core.Cuspy = SimpleNamespace(_instance=object())
    core.has_live_subscription = lambda: subscribes


@pytest.fixture
def kineto_torch(monkeypatch):
    """A GPU that nobody has recorded, and a torch without Cuspy."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.version, "cuda", "13.3")
    for name in ("CuspyConfig", "ProfilerActivityConfig"):
        monkeypatch.delattr(torch.profiler, name, raising=False)
    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", SimpleNamespace)
    monkeypatch.setattr(torch.profiler, "schedule", SimpleNamespace)
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    # A class of its own: what other tests have left of theirs is not looked at.
    sessions = type("profile", (), {"_prepare_trace": begin, "__exit__": lambda *_: None})
    monkeypatch.setattr(torch.autograd.profiler, "profile", sessions)
    monkeypatch.setattr(Profile, "made", [])
    monkeypatch.setattr(Recorder, "_sessions_are_watched", False)
    monkeypatch.setattr(Recorder, "_kineto_was_used", False)
    monkeypatch.setattr(Recorder, "_program_sessions", set())
    monkeypatch.setattr(Recorder, "_armed", None)
    monkeypatch.setattr(recorder_module, "every_wait_is_resolved", lambda _: True)
    calls = []
    monkeypatch.setattr(
        recorder_module, "switch_event_records", lambda *, on: bool(calls.append(on) or True)
    )
    return SimpleNamespace(event_record_calls=calls)


@pytest.fixture
def cuspy_torch(kineto_torch, monkeypatch):
    """The same with Cuspy."""
    monkeypatch.setattr(torch.profiler, "CuspyConfig", CuspyConfig, raising=False)
    monkeypatch.setattr(
        torch.profiler, "ProfilerActivityConfig", ProfilerActivityConfig, raising=False
    )
    version = 130300
    modules = {name: types.ModuleType(name) for name in ("cupti", CUSPY)}
    modules["cupti"].__spec__ = importlib.machinery.ModuleSpec("cupti", None)
    cupti = modules[f"{CUSPY}.cupti_python"] = types.ModuleType("cupti_python")
    cupti.LIBCUPTI_MIN_VERSION = 130300
    cupti.pylibcupti = lambda: SimpleNamespace(get_version=lambda: version)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"{CUSPY}.core", raising=False)
    monkeypatch.setattr(collector, "_DRIVER", None)  # this process itself
    yield kineto_torch
    sys.modules.pop(f"{CUSPY}.core", None)


def record(path, *, skip=0, **settings):
    recorder = Recorder(path, skip=skip, steps=1, warmup=1, baseline=0, **settings)
    with recorder:
        for _ in range(recorder.calls):
            recorder.step()
    return recorder


def metadata_of(path):
    return json.loads(gzip.decompress(path.read_bytes()))["tracelab"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "step.pt.trace.json.gz"


# Where Cuspy is available.


@pytest.mark.usefixtures("cuspy_torch")
def test_cuspy_records_where_torch_has_it(path):
    recorder = record(path)
    [profiler] = Profile.made
    assert profiler.settings["activities"] == [
        CPU,
        {CUDA: ProfilerActivityConfig(profiler_configs=[WITH_SYNCS])},
    ]
    # Kineto records the host, and must not ask for rows of the GPU.
    assert profiler.settings["experimental_config"] == SimpleNamespace(
        enable_cuda_sync_events=False
    )
    assert (recorder.done, recorder.collector, recorder.collector_reason) == (True, "cuspy", "")
    about = metadata_of(path)
    assert (about["collector"], about["event_records"]) == ("cuspy", "cuspy")
    assert "collector_reason" not in about


def test_event_records_are_not_switched_beside_cuspy(cuspy_torch, path):
    record(path, event_records=True)
    assert cuspy_torch.event_record_calls == []


@pytest.mark.usefixtures("cuspy_torch")
def test_neither_profiler_nor_cuspy_is_made_while_steps_are_skipped(path):
    recorder = Recorder(path, skip=5, steps=1, warmup=1, baseline=0)
    with recorder:
        recorder.step()
        assert Profile.made == []
        assert not cuspy_was_used()


def test_kineto_on_request(cuspy_torch, path):
    recorder = record(path, collector="kineto")
    [profiler] = Profile.made
    assert profiler.settings["activities"] == [CPU, CUDA]
    assert (recorder.collector, recorder.collector_reason) == ("kineto", "")
    assert cuspy_torch.event_record_calls == [True, False]


def test_there_is_no_other_collector(path):
    with pytest.raises(ValueError, match="must be one of auto, kineto, cuspy"):
        Recorder(path, collector="other")


def test_a_name_by_which_cuspy_would_write_another_format(tmp_path):
    with pytest.raises(ValueError, match=r"path: .* named .json.gz"):
        Recorder(tmp_path / "step.pftrace")


# Where it is not.


def test_without_cuspy_the_profiler_is_asked_for_what_it_always_was(kineto_torch, path):
    recorder = record(path)
    [profiler] = Profile.made
    settings = dict(profiler.settings)
    assert settings.pop("on_trace_ready") == recorder._save
    assert settings == {
        "activities": [CPU, CUDA],
        "schedule": SimpleNamespace(wait=0, warmup=1, active=1, repeat=1),
        "with_stack": False,
        "record_shapes": False,
        "profile_memory": False,
        "experimental_config": SimpleNamespace(enable_cuda_sync_events=True),
    }
    assert kineto_torch.event_record_calls == [True, False]
    about = metadata_of(path)
    assert (about["collector"], about["event_records"]) == ("kineto", "cupti")
    assert recorder.collector_reason == ""  # nobody misses what their torch never had


def without(name):
    return lambda patch: patch.delattr(torch.profiler, name)


def no_package(patch):
    patch.delitem(sys.modules, "cupti", raising=False)
    patch.setattr(importlib.util, "find_spec", lambda _: None)


def cupti(**attributes):
    def change(patch):
        for name, value in attributes.items():
            patch.setattr(sys.modules[f"{CUSPY}.cupti_python"], name, value)

    return change


def fail(error):
    def failing():
        raise error

    return failing


MISSING = [
    (
        without("ProfilerActivityConfig"),
        f"torch {torch.__version__} has no torch.profiler.ProfilerActivityConfig",
    ),
    (
        no_package,
        "libcupti 13.3 and the package cupti-python are needed, and the package is not installed: "
        "pip install 'cupti-python>=13.3' brings both",
    ),
    (
        lambda patch: patch.setattr(collector, "_DRIVER", "libcuda.so.0"),
        "libcupti cannot be loaded (libcuda.so.0: cannot open shared object file: no such file or "
        "directory)",
    ),
    (
        lambda patch: patch.setitem(sys.modules, f"{CUSPY}.cupti_python", None),
        f"libcupti cannot be loaded (import of {CUSPY}.cupti_python halted; none in sys.modules)",
    ),
    (
        cupti(pylibcupti=fail(OSError("libcupti.so.13: no such file"))),
        "libcupti cannot be loaded (libcupti.so.13: no such file)",
    ),
    (
        cupti(pylibcupti=fail(RuntimeError("Cuspy requires CUPTI major version 13"))),
        "libcupti cannot be loaded (cuspy requires cupti major version 13)",
    ),
    (
        cupti(LIBCUPTI_MIN_VERSION=130400),
        "libcupti 13.4 and the package cupti-python are needed, and libcupti is 13.3: "
        "pip install 'cupti-python>=13.4' brings both",
    ),
]


@pytest.mark.parametrize(("remove", "says"), MISSING)
@pytest.mark.usefixtures("cuspy_torch")
def test_what_is_missing_is_said_and_kineto_records(path, monkeypatch, remove, says):
    remove(monkeypatch)
    assert missing_for_cuspy() == (says,)
    recorder = record(path)
    assert Profile.made[0].settings["activities"] == [CPU, CUDA]
    assert (recorder.collector, recorder.collector_reason) == ("kineto", says)
    assert metadata_of(path)["collector_reason"] == says
    assert not cuspy_was_used()


@pytest.mark.parametrize(("remove", "says"), MISSING)
@pytest.mark.usefixtures("cuspy_torch")
def test_cuspy_on_request_is_an_error_before_the_program_runs(path, monkeypatch, remove, says):
    remove(monkeypatch)
    with pytest.raises(MissingSupportError) as error, Recorder(path, collector="cuspy"):
        pass
    assert str(error.value).endswith(f": {says}")
    assert (error.value.exit_code, error.value.option) == (4, "collector")
    assert not path.exists()


@pytest.mark.usefixtures("kineto_torch")
def test_all_that_is_missing_is_listed(path, monkeypatch, snapshot):
    no_package(monkeypatch)
    [classes, package] = missing_for_cuspy()
    assert classes == snapshot
    assert package == snapshot
    with pytest.raises(MissingSupportError, match=r"CuspyConfig.*; libcupti 13.3 and the package"):
        Recorder(path, collector="cuspy").__enter__()


@pytest.mark.usefixtures("cuspy_torch")
def test_on_rocm_nobody_misses_cuspy(path, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    recorder = record(path)
    assert (recorder.collector, recorder.collector_reason) == ("kineto", "")
    assert missing_for_cuspy() == (f"torch {torch.__version__} has no CUDA",)


@pytest.mark.usefixtures("cuspy_torch")
def test_without_a_gpu_only_the_host_is_recorded(path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recorder = record(path)
    assert Profile.made[0].settings["activities"] == [CPU]
    assert (recorder.collector, recorder.done) == (None, True)
    assert not cuspy_was_used()


# Never both in one process.

ONLY_ONE = "Kineto has recorded in this process before, and a process can have only one"


@pytest.mark.usefixtures("cuspy_torch")
def test_after_kineto_kineto_records_again(tmp_path):
    first = record(tmp_path / "a.json.gz", collector="kineto")
    second = record(tmp_path / "b.json.gz")
    assert (first.collector, first.collector_reason) == ("kineto", "")
    assert (second.collector, second.collector_reason) == ("kineto", ONLY_ONE)


@pytest.mark.usefixtures("cuspy_torch")
def test_kineto_of_the_program_between_entering_and_the_first_step(path):
    recorder = Recorder(path, skip=1, steps=1, warmup=1, baseline=0)
    with recorder:
        program = session("cuda")
        program._prepare_trace()
        program.__exit__(None, None, None)
        for _ in range(recorder.calls):
            recorder.step()
    assert (recorder.collector, recorder.collector_reason) == ("kineto", ONLY_ONE)


@pytest.mark.usefixtures("cuspy_torch")
def test_kineto_of_the_program_before_the_recorder_was_entered(path):
    program = session("cuda")
    program.entered = True
    assert record(path).collector_reason == ONLY_ONE
    assert program.entered


@pytest.mark.parametrize(("device", "entered"), [(None, True), ("cuda", False)])
@pytest.mark.usefixtures("cuspy_torch")
def test_a_profiler_of_the_host_or_one_not_entered_does_not_count(path, device, entered):
    program = session(device)
    program.entered = entered
    assert record(path).collector == "cuspy"
    assert program.use_device == device


@pytest.mark.usefixtures("cuspy_torch")
def test_cuspy_on_request_after_kineto_records_nothing(tmp_path):
    record(tmp_path / "a.json.gz", collector="kineto")
    recorder = record(tmp_path / "b.json.gz", collector="cuspy")
    assert (recorder.done, recorder.over, recorder.collector) == (False, True, None)
    assert recorder.why_nothing() == f"nothing is recorded: {ONLY_ONE}"
    assert len(Profile.made) == 1


@pytest.mark.usefixtures("cuspy_torch")
def test_where_the_program_uses_cuspy_the_recorder_does_too(path, monkeypatch):
    start_cuspy()
    monkeypatch.setattr(Recorder, "_kineto_was_used", True)  # it decides, as it is there now
    assert record(path).collector == "cuspy"


@pytest.mark.usefixtures("cuspy_torch")
def test_kineto_on_request_where_the_program_uses_cuspy_records_nothing(path, snapshot):
    start_cuspy()
    recorder = record(path, collector="kineto")
    assert not recorder.done
    assert recorder.why_nothing() == snapshot
    assert Profile.made == []


@pytest.mark.usefixtures("cuspy_torch")
def test_cuspy_that_cannot_subscribe_is_left_and_said(path, monkeypatch, snapshot):
    # GIVEN a program whose other profiler was not seen
    monkeypatch.setattr(Profile, "can_subscribe", False)
    recorder = record(path)
    assert (recorder.done, path.exists()) == (False, False)
    assert recorder.why_nothing() == snapshot
    assert len(Profile.made) == 1


@pytest.mark.usefixtures("cuspy_torch")
def test_program_that_profiles_itself_with_kineto_afterward_is_warned(path):
    record(path)
    with pytest.warns(UserWarning, match="Kineto, which this profiler uses, receives no GPU"):
        session("cuda")._prepare_trace()


@pytest.mark.usefixtures("cuspy_torch")
def test_program_that_profiles_itself_with_cuspy_afterward_is_not(path):
    record(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(None)._prepare_trace()


@pytest.mark.usefixtures("cuspy_torch")
def test_program_whose_profiler_runs_keeps_it(path):
    recorder = Recorder(path, skip=1, steps=1, warmup=1, baseline=0)
    with recorder:
        start_cuspy()
        session(None)._prepare_trace()
        recorder.step()
        assert recorder.over
    assert recorder.why_nothing().startswith("the program runs its own profiler")
    assert Profile.made == []


# On the screen.


@pytest.mark.parametrize("prints_report", [True, False])
@pytest.mark.usefixtures("cuspy_torch")
def test_the_reason_is_on_the_screen(path, monkeypatch, capsys, prints_report, snapshot):
    no_package(monkeypatch)
    with capture(
        path, skip=0, baseline=0, warmup=1, steps=1, stacks=False, print_report=prints_report
    ) as cap:
        for _ in range(cap.calls):
            cap.step()
    assert capsys.readouterr().err == snapshot


@pytest.mark.usefixtures("kineto_torch")
def test_nothing_is_said_where_torch_has_no_cuspy(path, capsys):
    with capture(path, skip=0, baseline=0, warmup=1, steps=1, stacks=False) as cap:
        for _ in range(cap.calls):
            cap.step()
    assert "Cuspy" not in capsys.readouterr().err


# What is written.


class Exporter:
    """Takes annotations of graph nodes, as newer torch does."""

    def __init__(self):
        self.arguments = None

    def export_chrome_trace(self, path, *, cuda_graph_annotations=None):
        self.arguments = cuda_graph_annotations
        Path(path).write_text("{}")


@pytest.mark.parametrize("annotations", [{7: [{"name": "attention"}]}, {}])
def test_annotations_of_graph_nodes_reach_the_file(monkeypatch, tmp_path, annotations):
    module = types.ModuleType("torch.cuda.graph_annotations")
    module.get_kernel_annotations = lambda: annotations
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exporter = Exporter()
    export_trace(exporter, tmp_path / "a.json")
    # Without any the exporter stays the one that always wrote the file.
    assert exporter.arguments == (annotations or None)


class PackingExporter:
    def export_chrome_trace(self, path):
        Path(f"{path}.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))


def test_a_file_that_torch_packs_unasked_is_unpacked(tmp_path):
    export_trace(PackingExporter(), tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text() == '{"traceEvents": []}'
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


class InterruptedExporter:
    def export_chrome_trace(self, path):
        os.kill(os.getpid(), signal.SIGINT)
        Path(path).write_text('{"traceEvents": []}')


def test_ctrl_c_while_a_recording_is_written_comes_after_it(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        save_trace(InterruptedExporter(), tmp_path / "a.json")
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


HAS_CUSPY = hasattr(torch.profiler, "CuspyConfig") and importlib.util.find_spec("cupti") is not None


@pytest.mark.skipif(not HAS_CUSPY, reason="needs torch 2.15 with CUDA, and cupti-python")
@pytest.mark.usefixtures("small_program")
def test_the_installed_cuspy_writes_a_recording(path, monkeypatch):
    """GIVEN all of its own but the connection to CUPTI, which gives no records."""
    core = importlib.import_module(f"{CUSPY}.core")
    monkeypatch.setattr(core, "Cuspy", lambda: Cupti([]))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(collector, "missing_for_cuspy", tuple)
    monkeypatch.setattr(recorder_module, "missing_for_cuspy", tuple)
    monkeypatch.setattr(recorder_module, "cuspy_is_collecting", lambda: True)
    monkeypatch.setattr(Recorder, "_kineto_was_used", False)
    recorder = record(path, collector="cuspy")
    assert (recorder.done, recorder.collector) == (True, "cuspy")
    content = json.loads(gzip.decompress(path.read_bytes()))
    assert content["tracelab"]["collector"] == "cuspy"
    assert any(event["name"] == "ProfilerStep#1" for event in content["traceEvents"])


def test_what_is_made_up_is_in_the_installed_torch():
    source = Path(torch.__file__).parent / "profiler/_cuspy/cupti_python.py"
    if not source.exists():
        pytest.skip("torch has Cuspy since 2.15")
    assert f"LIBCUPTI_MIN_VERSION = {collector.MIN_LIBCUPTI}\n" in source.read_text()
    for made_up in (CuspyConfig, ProfilerActivityConfig):
        real = getattr(torch.profiler, made_up.__name__)
        assert {x.name for x in fields(made_up)} <= {x.name for x in fields(real)}


@pytest.mark.gpu
@pytest.mark.skipif(bool(missing_for_cuspy()), reason="; ".join(missing_for_cuspy()))
def test_gpu_capture_with_cuspy(tmp_path):
    """In a process of its own: another test may have used Kineto. Not yet run: see the head."""
    program = """
        import sys, torch, tracelab
        from tracelab.record.recorder import Recorder
        side, matrix = torch.cuda.Stream(), torch.randn(1024, 1024, device="cuda")
        graph = torch.cuda.CUDAGraph()
        recorder = Recorder(sys.argv[1], skip=1, steps=2, warmup=1, collector="cuspy")
        with recorder:
            with torch.cuda.graph(graph):
                product = matrix @ matrix @ matrix
            while not recorder.over:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    matrix @ matrix
                torch.cuda.current_stream().wait_stream(side)
                graph.replay()
                recorder.step()
        assert recorder.waits_are_resolved, recorder.why_nothing()
        trace = tracelab.read_trace(tracelab.find_sources([sys.argv[1]])[0])
    """
    path = tmp_path / "gpu.pt.trace.json.gz"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
