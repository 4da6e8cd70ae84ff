"""The callbacks, driven as the libraries' trainers drive them; ``tests/frameworks`` has these."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.build.trainers import FailureError, HuggingFace, Lightning

torch = pytest.importorskip("torch", reason="torch is not installed")

TRACE = Path("tracelab-run") / "steps.pt.trace.json.gz"

pytestmark = [
    pytest.mark.usefixtures("small_program"),
    pytest.mark.filterwarnings("ignore:no CUDA device"),
]


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=[HuggingFace, Lightning])
def framework(request, monkeypatch):
    return request.param(monkeypatch)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_each_step_of_the_optimizer_is_a_step(framework, accumulate):
    callback = framework.callback(path="mine.pt.trace.json", skip=1, steps=2)
    steps = callback.capture.calls + 2
    assert framework.train(callback, steps, accumulate=accumulate) == steps
    assert callback.capture.done
    assert callback.capture.count == steps
    assert Path("mine.pt.trace.json").exists()


def test_training_ends_when_all_is_recorded_and_the_next_is_left_alone(framework, capsys):
    callback = framework.callback(skip=1, steps=2, stop_after=True)
    assert framework.train(callback, 30) == callback.capture.calls
    recorded, written = callback.capture, TRACE.read_bytes()
    capsys.readouterr()
    assert framework.train(callback, 10) == 10
    assert callback.capture is recorded
    assert TRACE.read_bytes() == written
    assert "tracelab: " not in capsys.readouterr().err  # the folder may be called so, too


def test_too_short_a_training_is_told_and_the_next_is_recorded(framework, capsys):
    callback = framework.callback(skip=1, steps=2)
    framework.train(callback, 3)
    assert "3 steps" in capsys.readouterr().err
    assert not TRACE.exists()
    framework.train(callback, callback.capture.calls)
    assert callback.capture.done
    assert TRACE.exists()


@pytest.mark.parametrize(("batches", "recorded"), [(3, False), (11, True)])
def test_training_after_a_failed_one_is_recorded_if_that_was_not(framework, batches, recorded):
    callback = framework.callback(skip=1, steps=4)
    with pytest.raises(FailureError):
        framework.train(callback, 30, batches=batches)
    failed = callback.capture
    # Hugging Face leaves the failed capture when the next training begins.
    assert TRACE.exists() == (recorded and isinstance(framework, Lightning))
    framework.train(callback, callback.capture.calls)
    assert failed.over
    assert failed.done is recorded
    assert (callback.capture is failed) is recorded
    assert callback.capture.done
    assert TRACE.exists()


def test_settings_are_those_of_capture(framework):
    with pytest.raises(ValueError, match="at least 1"):
        framework.callback(steps=0)
    with pytest.raises(TypeError, match="batches"):
        framework.callback(batches=3)


def test_several_optimizers_make_one_step(monkeypatch):
    lightning = Lightning(monkeypatch)
    callback = lightning.callback(skip=1, steps=2)
    assert lightning.train(callback, 12, accumulate=2, optimizers=2) == 24
    assert callback.capture.count == 12


def test_lightning_says_how_many_processes_there_are(monkeypatch):
    lightning = Lightning(monkeypatch)
    callback = lightning.callback(skip=1, steps=2)
    lightning.train(callback, callback.capture.calls)
    assert callback.capture.local_world_size == 1


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_callback_is_of_the_lightning_package_that_there_is(monkeypatch, package):
    callback = Lightning(monkeypatch, package).callback
    assert issubclass(callback, sys.modules[package].Callback)


@pytest.mark.parametrize("name", ["transformers", "lightning"])
def test_missing_library_is_named(monkeypatch, name):
    for module in ("transformers", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"tracelab.record.frameworks.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=name):
        import_module(f"tracelab.record.frameworks.{name}")
