"""The callbacks in trainings of the real libraries, and the document's programs as they stand.

On a machine without a GPU the traces hold the host's side alone, which is enough to count steps.
"""

import os
import re
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import tracelab

torch = pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "tracelab" / "docs" / "profile_frameworks.md"
FOLDER = Path("tracelab-run")
TRACE = FOLDER / "steps.pt.trace.json.gz"

pytestmark = [
    pytest.mark.usefixtures("small_program"),
    pytest.mark.filterwarnings("ignore:no CUDA device"),
    # Of the libraries, where torch is newer than they are or there is no GPU.
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated"),
    # Of Lightning, on trainings as small as these.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*The number of training batches"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
]


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def steps_in(path):
    [source] = tracelab.find_sources([str(path)])
    return [name for name in tracelab.read_trace(source).strings if name.startswith("ProfilerStep")]


def needs(library):
    return pytest.importorskip(library, reason=f"{library} is not installed")


def run_program(code):
    """Run a program that sees no GPU; it, and tracelab's messages."""
    Path("program.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "program.py"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
    )
    return done, re.findall("^tracelab: .*", done.stderr, re.MULTILINE)


class Model(torch.nn.Module):
    """A layer; its training fails after so many batches."""

    def __init__(self, batches):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.batches_left = batches

    def forward(self, rows, labels=None):
        del labels
        if self.training:
            if self.batches_left == 0:
                raise KeyError("a mistake in the model")
            self.batches_left -= 1
        return {"loss": self.layer(rows).square().mean()}


class HuggingFace:
    """Trainings by transformers, with an evaluation before and after each step."""

    def __init__(self):
        needs("accelerate")  # transformers' Trainer does
        self.library = needs("transformers")
        self.callback = import_module("tracelab.record.frameworks.transformers").TracelabCallback

    def train(self, callback, steps, *, accumulate=1, batches=-1):
        """Train for so many steps of the optimizer; how many there were."""
        rows = [{"rows": row, "labels": row} for row in torch.randn(64, 8)]
        trainer = self.library.Trainer(
            Model(batches),
            self.library.TrainingArguments(
                "out",
                max_steps=steps,
                gradient_accumulation_steps=accumulate,
                per_device_train_batch_size=4,
                eval_strategy="steps",
                eval_steps=1,
                eval_on_start=True,
                save_strategy="no",
                report_to="none",
            ),
            train_dataset=rows,
            eval_dataset=rows[:8],
            callbacks=[callback],
        )
        trainer.train()
        return trainer.state.global_step


class Lightning:
    """Trainings by one of Lightning's packages, with sanity checks and validations."""

    def __init__(self, package="lightning.pytorch"):
        self.library = needs(package)
        self.callback = import_module("tracelab.record.frameworks.lightning").TracelabCallback

    def train(self, callback, steps, *, accumulate=1, batches=-1):
        """Train for so many steps of the optimizer; how many there were."""

        class Module(self.library.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = Model(batches)

            def training_step(self, batch, _):
                return self.model(batch)

            def validation_step(self, batch, _):
                self.model(batch)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)

        settings = {"max_steps": steps, "accumulate_grad_batches": accumulate}
        return self.fit(Module(), callback, val_check_interval=accumulate, **settings)

    def fit(self, module, callback, **settings):
        """Train it; how many steps its optimizers made."""
        loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
        validation = torch.utils.data.DataLoader(torch.randn(4, 8))  # after each step
        trainer = self.library.Trainer(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            callbacks=[callback],
            **settings,
        )
        trainer.fit(module, loader, validation)
        return trainer.global_step


@pytest.fixture(params=["transformers", "lightning"])
def framework(request):
    return HuggingFace() if request.param == "transformers" else Lightning()


# What is documented.


def run_block(library):
    """Run the one program of the document that imports a library; its names."""
    needs(library)
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if re.search(rf"^(from|import) {library}\b", block, re.M)]
    names = {}
    exec(compile(block, DOCUMENT.name, "exec"), names)
    return names


def test_documented_hugging_face_program_records_and_stops(capsys):
    names = run_block("transformers")
    assert names["trainer"].state.global_step == names["callback"].capture.count == 22
    assert steps_in(TRACE) == [f"ProfilerStep#{number}" for number in (2, 3, 4, 5)]
    assert str(TRACE) in capsys.readouterr().out


def test_documented_lightning_program_records_and_stops(capsys):
    names = run_block("lightning")
    assert names["trainer"].global_step == names["callback"].capture.count == 22
    assert steps_in(TRACE) == [f"ProfilerStep#{number}" for number in (2, 3, 4, 5)]
    assert str(TRACE) in capsys.readouterr().out


def test_documented_accelerate_program_records_steps_of_the_optimizer():
    names = run_block("accelerate")
    steps = {int(state["step"]) for state in names["optimizer"].state.values()}
    assert steps == {names["cap"].count} == {22}
    assert steps_in(TRACE) == [f"ProfilerStep#{number}" for number in (2, 3, 4, 5)]


# What the callbacks do, in each framework.


@pytest.mark.parametrize("accumulate", [1, 3])
def test_each_step_of_the_optimizer_is_a_step(framework, accumulate):
    callback = framework.callback(path="mine.pt.trace.json", skip=1, steps=2)
    assert framework.train(callback, callback.capture.calls + 2, accumulate=accumulate) == 13
    assert callback.capture.done
    assert callback.capture.count == 13
    assert steps_in("mine.pt.trace.json") == ["ProfilerStep#2", "ProfilerStep#3"]


def test_training_ends_when_all_is_recorded_on_request(framework):
    callback = framework.callback(skip=1, steps=2, stop_after=True)
    assert framework.train(callback, 30) == callback.capture.calls


def test_second_training_is_left_alone(framework, capsys):
    callback = framework.callback(skip=1, steps=2, stop_after=True)
    framework.train(callback, 30)
    recorded, written = callback.capture, TRACE.read_bytes()
    capsys.readouterr()
    assert framework.train(callback, 10) == 10
    assert callback.capture is recorded
    assert TRACE.read_bytes() == written
    assert "tracelab: " not in capsys.readouterr().err  # the folder may be called so, too


def test_training_that_ends_early_leaves_what_there_is(framework):
    callback = framework.callback(skip=1, steps=4)
    framework.train(callback, callback.capture.calls - 2)
    assert steps_in(TRACE)[:2] == ["ProfilerStep#2", "ProfilerStep#3"]


def test_too_short_a_training_is_told_and_the_next_is_recorded(framework, capsys):
    callback = framework.callback(skip=1, steps=2)
    framework.train(callback, 3)
    assert "tracelab: there were 3 steps, too few to record any" in capsys.readouterr().err
    assert not TRACE.exists()
    framework.train(callback, callback.capture.calls)
    assert len(steps_in(TRACE)) == 2


@pytest.mark.parametrize(("batches", "recorded"), [(3, False), (11, True)])
def test_training_after_a_failed_one_is_recorded_if_that_was_not(framework, batches, recorded):
    callback = framework.callback(skip=1, steps=4)
    with pytest.raises(KeyError, match="a mistake"):
        framework.train(callback, 30, batches=batches)
    failed = callback.capture
    framework.train(callback, callback.capture.calls)
    assert failed.over
    assert failed.done is recorded
    assert (callback.capture is failed) is recorded
    assert callback.capture.done


def test_settings_are_those_of_capture(framework):
    with pytest.raises(ValueError, match="at least 1"):
        framework.callback(steps=0)
    with pytest.raises(TypeError, match="batches"):
        framework.callback(batches=3)


# What only one of them does.


def test_after_an_error_hugging_face_leaves_what_there_is_at_the_programs_end():
    HuggingFace()
    done, messages = run_program(
        """
        import torch
        from transformers import Trainer, TrainingArguments
        from tracelab.record.frameworks.transformers import TracelabCallback

        class Failing(torch.nn.Linear):
            def forward(self, rows, labels, left=[11]):
                left[0] -= 1
                return {"loss": super().forward(rows).sum() * (1 / (left[0] >= 0))}

        row = torch.randn(8)
        rows = [{"rows": row, "labels": row}] * 64
        arguments = TrainingArguments("out", report_to="none", per_device_train_batch_size=4)
        callback = TracelabCallback(skip=1, steps=4)
        Trainer(Failing(8, 1), arguments, train_dataset=rows, callbacks=[callback]).train()
        """
    )
    assert "ZeroDivisionError" in done.stderr
    assert done.returncode == 1
    assert len(messages) == 1
    assert f"{TRACE}, but there is no GPU" in messages[0]
    assert steps_in(TRACE)[:2] == ["ProfilerStep#2", "ProfilerStep#3"]


def test_after_an_error_lightning_leaves_what_there_is_at_once():
    lightning = Lightning()
    callback = lightning.callback(skip=1, steps=4)
    with pytest.raises(KeyError, match="a mistake"):
        lightning.train(callback, 30, batches=11)
    assert steps_in(TRACE)[:2] == ["ProfilerStep#2", "ProfilerStep#3"]


def test_several_optimizers_make_one_step():
    lightning = Lightning()

    class TwoOptimizers(lightning.library.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            if index % 4 == 3:
                return  # a batch after which no optimizer steps
            for optimizer in self.optimizers():
                self.manual_backward(self.layer(batch).sum())
                optimizer.step()

        def validation_step(self, *_):
            pass

        def configure_optimizers(self):
            return [torch.optim.SGD([weight], lr=0.01) for weight in self.layer.parameters()]

    callback = lightning.callback(skip=1, steps=2)
    assert lightning.fit(TwoOptimizers(), callback, max_epochs=1) == 2 * 12
    assert callback.capture.count == 12


def test_lightnings_processes_write_a_file_each_and_the_first_one_speaks():
    needs("pytorch_lightning")
    # It stands alone, not in a list: Lightning takes it for a callback by its class.
    done, messages = run_program(
        """
        import pytorch_lightning as pl
        import torch
        from tracelab.record.frameworks.lightning import TracelabCallback

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 1)

            def training_step(self, batch, _):
                return self.layer(batch).square().mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)

        callback = TracelabCallback(skip=1, steps=2, stop_after=True)
        trainer = pl.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", logger=False, callbacks=callback
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 8)))
        """
    )
    assert done.returncode == 0, done.stderr
    names = [f"steps_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
    assert sorted(file.name for file in FOLDER.iterdir()) == names
    assert [steps_in(FOLDER / name) for name in names] == [["ProfilerStep#2", "ProfilerStep#3"]] * 2
    assert len(messages) == 1
    assert str(FOLDER / names[0]) in messages[0]


# What they need.


def test_package_itself_imports_no_framework():
    code = "import sys, tracelab.record.frameworks; print(*sys.modules)"
    done, _ = run_program(code)
    libraries = {"torch", "transformers", "accelerate", "lightning", "pytorch_lightning"}
    assert "tracelab.record.frameworks" in done.stdout.split()
    assert not libraries & set(done.stdout.split())


@pytest.mark.parametrize("name", ["transformers", "lightning"])
def test_missing_library_is_named(monkeypatch, name):
    for module in ("transformers", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"tracelab.record.frameworks.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=name):
        import_module(f"tracelab.record.frameworks.{name}")


def test_callback_is_of_the_lightning_package_that_there_is(monkeypatch):
    Lightning()
    choose = import_module("tracelab.record.frameworks.lightning")._callback_class
    assert choose() is needs("lightning.pytorch").Callback
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    assert choose() is needs("pytorch_lightning").Callback


def test_in_a_list_lightnings_other_package_takes_it_too():
    lightning = Lightning("pytorch_lightning")
    callback = lightning.callback(skip=1, steps=2)
    assert lightning.train(callback, 13, accumulate=2) == callback.capture.count == 13
    assert len(steps_in(TRACE)) == 2
