"""Functions in several processes that end at once, and all of them, when they are told to.

The pools of the standard library send all results through one pipe. A process that is ended while
it writes there leaves half a result, for the rest of which they wait for ever; so each process
has a pipe of its own here.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tracelab.errors import UnreadableInputError
from tracelab.system.signals import exit_when_signalled

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
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

    It raises what the function raises, and:

    Raises:
        UnreadableInputError: one of the processes was killed.
    """
    from multiprocessing import Pipe, Process

    processes: list[BaseProcess] = []
    connections = []
    try:
        for _ in range(workers):
            here, there = Pipe()
            connections.append(here)
            process = Process(target=_serve, args=(there, here))
            process.start()
            processes.append(process)
            there.close()  # now that it is open there only, its end is the end of the process
        yield partial(_map_in, connections)
    finally:
        _end(processes)
        for connection in connections:
            connection.close()


def _map_in(
    connections: Sequence[Connection], function: Callable[..., Any], *arguments: Any
) -> Iterator[Any]:
    from multiprocessing.connection import wait

    calls = list(zip(*arguments, strict=True))
    tasks = deque(enumerate(calls))
    busy: dict[Connection, int] = {}
    outcomes: dict[int, tuple[Any, Exception | None]] = {}

    def begin_next(connection: Connection) -> None:
        if tasks:
            busy[connection], each = tasks.popleft()
            connection.send((function, each))

    with _death_told():
        for connection in connections:
            begin_next(connection)
    for number in range(len(calls)):
        with _death_told():
            while number not in outcomes:
                ready: list[Any] = wait(busy)
                for connection in ready:
                    outcomes[busy.pop(connection)] = connection.recv()
                    begin_next(connection)
        result, error = outcomes.pop(number)
        if error is not None:
            raise error
        yield result


@contextmanager
def _death_told() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise UnreadableInputError(
            "a process was killed while it read a file, most likely for lack of memory; "
            "`processes` 1 reads one file after the other",
            option="processes",
        ) from None


def _serve(connection: Connection, other_end: Connection) -> None:
    """What a process does: call functions until nobody wants more of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever waits for this process ends it
    signal.signal(signal.SIGTERM, exit_when_signalled)
    other_end.close()
    with suppress(EOFError, OSError):
        while True:
            connection.send(_outcome(*connection.recv()))


def _outcome(
    function: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[Any, Exception | None]:
    """What a function gives, or raises."""
    try:
        return function(*arguments), None
    except Exception as error:
        error.add_note(f"in a process of its own: {traceback.format_exc()}")
        return None, error


def _end(processes: Sequence[BaseProcess]) -> None:
    """End processes: in good order if they can, in any case soon."""
    for process in processes:
        process.terminate()
    impatient = time.monotonic() + _PATIENCE_S
    for process in processes:
        process.join(max(0, impatient - time.monotonic()))
        process.kill()
        process.join()
