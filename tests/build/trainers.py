"""Trainers that call a callback as those of the libraries do, without the libraries.

Each makes as many steps of an optimizer as it is told, `accumulate` batches a step, and fails after
`batches` batches. ``tests/frameworks`` trains with the real ones.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace


class FailureError(Exception):
    """A mistake in the model."""


def callback_of(monkeypatch, library, base):
    """Import our callback for a library, of which nothing is there but the base class."""
    for name in ("transformers", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    package = ModuleType(library)
    setattr(package, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, library, package)
    module = f"tracelab.record.frameworks.{library.split('.')[0].removeprefix('pytorch_')}"
    monkeypatch.setitem(sys.modules, module, None)  # also takes away what is imported now
    del sys.modules[module]
    return import_module(module).TracelabCallback


class HuggingFace:
    """Says nothing of errors; one event for each step of the optimizer."""

    def __init__(self, monkeypatch):
        self.callback = callback_of(monkeypatch, "transformers", "TrainerCallback")

    def train(self, callback, steps, *, accumulate=1, batches=None):
        """Train for so many steps of the optimizer; how many there were."""
        state, control = SimpleNamespace(), SimpleNamespace(should_training_stop=False)
        callback.on_train_begin(None, state, control, model=None)
        for step in range(1, steps + 1):
            if batches is not None and step * accumulate > batches:
                raise FailureError
            callback.on_step_end(None, state, control, model=None)
            if control.should_training_stop:
                break
        callback.on_train_end(None, state, control, model=None)
        return step


class Lightning:
    """An event for each batch, and one for an error; `optimizers` step after the same batch."""

    def __init__(self, monkeypatch, package="lightning.pytorch"):
        self.callback = callback_of(monkeypatch, package, "Callback")

    def train(self, callback, steps, *, accumulate=1, batches=None, optimizers=1):
        """Train for so many steps of the optimizers; how many there were."""
        trainer = SimpleNamespace(global_step=0, num_devices=1, should_stop=False)
        callback.on_train_start(trainer, None)
        for batch in range(1, steps * accumulate + 1):
            if batches is not None and batch > batches:
                callback.on_exception(trainer, None, error := FailureError())
                raise error
            if batch % accumulate == 0:
                trainer.global_step += optimizers
            callback.on_train_batch_end(trainer, None, None, None, batch - 1)
            if trainer.should_stop:
                break
        callback.on_train_end(trainer, None)
        return trainer.global_step
