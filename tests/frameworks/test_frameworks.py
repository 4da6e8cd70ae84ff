"""One training by each of the real libraries, and the document's programs as they stand.

``tests/unit/record/test_frameworks.py`` drives the callbacks without the libraries.

On a machine without a GPU the traces hold the host's side alone, which is enough to count steps.
"""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

torch = pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "tracelab" / "docs" / "reference" / "profile_frameworks.md"
FOLDER = Path("tracelab-run")
TRACE = FOLDER / "steps.pt.trace.json.gz"

pytestmark = [
    pytest.mark.frameworks,
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
    [source] = find_sources([str(path)])
    return [name for name in read_trace(source).strings if name.startswith("ProfilerStep")]


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


# One training of each library, and another one with the same callback.


@dataclass(frozen=True)
class Trained:
    """A training that stops when all is recorded, each step of 3 batches, and the next one.

    Attributes:
        callback: of both.
        steps: of the optimizer, in each training.
        kept: whether the second training left the first one's trace and capture alone.
        folder: where they ran.
    """

    callback: object
    steps: tuple[int, int]
    kept: bool
    folder: Path


@pytest.fixture(scope="session", params=[HuggingFace, Lightning])
def trained(request, tmp_path_factory):
    framework, folder = request.param(), tmp_path_factory.mktemp("training")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("tracelab.record.program_source._MAX_BYTES", 20_000)
        callback = framework.callback(skip=1, steps=2, stop_after=True)
        first = framework.train(callback, 30, accumulate=3)
        recorded, written = callback.capture, TRACE.read_bytes()
        second = framework.train(callback, 4)
        kept = callback.capture is recorded and TRACE.read_bytes() == written
    return Trained(callback, (first, second), kept, folder)


def test_each_step_of_the_optimizer_is_a_step_until_all_is_recorded(trained):
    capture = trained.callback.capture
    assert capture.done
    assert trained.steps[0] == capture.calls
    assert steps_in(trained.folder / TRACE) == ["ProfilerStep#2", "ProfilerStep#3"]


def test_second_training_is_left_alone(trained):
    assert trained.steps[1] == 4
    assert trained.kept


# What only one of them does.


def test_after_an_error_lightning_leaves_what_there_is_at_once():
    lightning = Lightning()
    callback = lightning.callback(skip=1, steps=4)
    with pytest.raises(KeyError, match="a mistake"):
        lightning.train(callback, 30, batches=11)
    assert callback.capture.done
    assert steps_in(TRACE)[:2] == ["ProfilerStep#2", "ProfilerStep#3"]


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
    [message] = messages
    assert str(TRACE) in message
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
    [message] = messages
    assert str(FOLDER / names[0]) in message


# What they need.


def test_package_itself_imports_no_framework():
    code = "import sys, tracelab.record.frameworks; print(*sys.modules)"
    done, _ = run_program(code)
    libraries = {"torch", "transformers", "accelerate", "lightning", "pytorch_lightning"}
    assert "tracelab.record.frameworks" in done.stdout.split()
    assert not libraries & set(done.stdout.split())


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
