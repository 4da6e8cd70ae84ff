"""Functions in several processes that end at once, and all of them, when they are told to."""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracelab.errors import UnreadableInputError
from tracelab.signals import exit_when_signalled

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.process import BaseProcess

_PATIENCE_S = 3


def processors() -> int:
    """Those that this process may use: a container often has fewer than the machine."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def open_processes(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A function that maps like `map`, in order, in so many processes, during a `with` block.

    Raises:
        UnreadableInputError: one of the processes was killed.
    """
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
    from multiprocessing import active_children

    others = set(active_children())
    try:
        with ProcessPoolExecutor(workers, initializer=_end_when_told) as pool:
            try:
                yield _map_in(pool)
            except BaseException:  # Ctrl-C above all: what they are at is of no use any more
                _end([child for child in active_children() if child not in others])
                raise
    except BrokenExecutor:
        raise UnreadableInputError(
            "a process was killed while it read a file, most likely for lack of memory; "
            "--jobs 1 reads one file after the other"
        ) from None


def _map_in(pool: Executor) -> Callable[..., Iterator[Any]]:
    def run(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        # The pool's own `map` cancels what is left when it is given up, and a pool of Python 3.11
        # that then loses its processes complains.
        futures = deque(pool.submit(function, *each) for each in zip(*arguments, strict=True))
        while futures:
            yield futures.popleft().result()

    return run


def _end(workers: list[BaseProcess]) -> None:
    """End processes: in good order if they can, in any case soon."""
    impatient = time.monotonic() + _PATIENCE_S
    while any(worker.is_alive() for worker in workers):
        for worker in workers:
            if time.monotonic() < impatient:
                worker.terminate()
            else:
                worker.kill()
        for worker in workers:
            worker.join(0.1)


def _end_when_told() -> None:
    """Leave Ctrl-C to the process that waits for this one; it ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _tidy_up)


def _tidy_up(number: int, frame: types.FrameType | None) -> None:
    """End the function that runs; the next signal ends the process, whatever it is at."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    exit_when_signalled(number, frame)
