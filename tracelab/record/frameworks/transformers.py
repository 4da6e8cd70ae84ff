"""Record steps of a Hugging Face ``Trainer``."""

from __future__ import annotations

import atexit
from typing import Any

from transformers import TrainerCallback

from tracelab.record.frameworks import TrainingCallback


class TracelabCallback(TrainingCallback, TrainerCallback):
    """Make each optimizer step of a ``Trainer`` one step of a `capture`, which prints its report.

    The first training that is long enough is recorded; those after it are left alone.

    Example:
        Trainer(..., callbacks=[TracelabCallback()]).train()

    Args:
        stop_after: end the training when all is recorded.
        settings: as of `capture`, whose `report` and `png` are in `self.capture`.
    """

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Enter a new capture, unless there is a trace already."""
        if self.capture.count:
            # A training that failed did not end: the library says nothing of errors.
            self._leave()
        if not self.capture.done:
            self.capture = self._new_capture()
            self.capture.__enter__()
            atexit.register(self.capture.__exit__, None, None, None)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """One optimizer step has ended, however many batches its gradients are of."""
        if self.end_step():
            control.should_training_stop = True

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Leave the capture."""
        self._leave()

    def _leave(self) -> None:
        self.capture.__exit__(None, None, None)
        atexit.unregister(self.capture.__exit__)
