"""Record steps of a Lightning ``Trainer``, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from tracelab.record.frameworks import TrainingCallback


def _callback_class() -> Any:
    packages = ["lightning.pytorch", "pytorch_lightning"]
    for package in sorted(packages, key=lambda package: package not in sys.modules):
        with suppress(ModuleNotFoundError):
            return import_module(package).Callback
    raise ModuleNotFoundError("neither lightning nor pytorch-lightning is installed")


_Callback: Any = _callback_class()


class TracelabCallback(TrainingCallback, _Callback):
    """Make each optimizer step of a ``Trainer`` one step of a `capture`, which prints its report.

    The first training that is long enough is recorded. Where both packages are installed, import
    the one whose Trainer takes this callback first.

    Example:
        Trainer(..., callbacks=[TracelabCallback()]).fit(model)

    Args:
        stop_after: end the training when all is recorded.
        settings: as of `capture`, whose `report` and `png` are in `self.capture`.
    """

    def __init__(self, *, stop_after: bool = False, **settings: Any) -> None:
        super().__init__(stop_after=stop_after, **settings)
        self._steps_before = 0

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Enter a new capture, unless there is a trace already."""
        self._steps_before = trainer.global_step
        if not self.capture.done:
            self.capture = self._new_capture()
            self.capture.local_world_size = trainer.num_devices  # its own launcher does not say so
            self.capture.__enter__()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End a step if the optimizers stepped after this batch."""
        if trainer.global_step == self._steps_before:
            return
        self._steps_before = trainer.global_step
        if self.end_step():
            trainer.should_stop = True

    def on_train_end(self, *_: Any) -> None:
        """Leave the capture."""
        self.capture.__exit__(None, None, None)

    def on_exception(self, _trainer: Any, _module: Any, error: BaseException) -> None:
        """Leave the capture, which writes what there is."""
        self.capture.__exit__(type(error), error, error.__traceback__)
