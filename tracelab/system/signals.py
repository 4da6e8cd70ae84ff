"""Behavior of a program that a person or its launcher asks to end."""

from __future__ import annotations

import signal
import threading
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SIGNALLED = 128


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM, by which a launcher ends its job, end the program as an exit would."""
    with _handled({signal.SIGTERM: exit_when_signalled}):
        yield


def exit_when_signalled(number: int, _: types.FrameType | None) -> None:
    """End the program as an exit would, with 128 and the signal's number."""
    raise SystemExit(SIGNALLED + number)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold off Ctrl-C and SIGTERM while something short is finished; they come after it."""
    held: list[int] = []

    def hold(number: int, _: types.FrameType | None) -> None:
        held.append(number)

    try:
        with _handled(dict.fromkeys((signal.SIGINT, signal.SIGTERM), hold)):
            yield
    finally:
        if held:
            signal.raise_signal(max(held))  # SIGTERM asks for more


def leave_signals_to_the_main_thread() -> None:
    """Have Ctrl-C and SIGTERM interrupt the main thread and never the one that calls this.

    Python runs handlers in the main thread, which sleeps on where another one was woken.
    """
    if hasattr(signal, "pthread_sigmask"):  # Windows has none
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # other threads may not
        return
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
