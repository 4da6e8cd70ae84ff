"""Callbacks that record steps of a training loop which a framework runs; their common part."""

from __future__ import annotations

import functools
from typing import Any

from tracelab.record.capture import capture


class TrainingCallback:
    """Holds the `capture` of a training, and counts its steps; see a framework's callback."""

    def __init__(self, *, stop_after: bool = False, **settings: Any) -> None:
        self._stop_after = stop_after
        self._new_capture = functools.partial(capture, print_report=True, **settings)
        self.capture = self._new_capture()

    def end_step(self) -> bool:
        """End one step of the optimizer; return True if the training should end with it."""
        was_done = self.capture.done
        self.capture.step()
        return self._stop_after and self.capture.done and not was_done
