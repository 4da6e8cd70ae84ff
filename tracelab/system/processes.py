"""Functions in several processes, which end together even if one ends while it writes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tracelab.base.errors import UnreadableInputError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_PATIENCE_S = 3


def processors() -> int:
    """The number of processors that this process may use; containers often limit it."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def open_processes(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a function that maps like `map`, in order, in several processes.

    It raises what the function raises, and UnreadableInputError if one of them was killed.
    """
    from multiprocessing import Pipe, Process

    processes: list[BaseProcess] = []
    connections = []
    try:
        for _ in range(workers):
            own_end, worker_end = Pipe()
            connections.append(own_end)
            process = Process(target=_serve, args=(worker_end, own_end))
            process.start()
            processes.append(process)
            worker_end.close()  # open in the process only: it closes when the process ends
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
    task_of: dict[Connection, int] = {}  # of the processes that are busy
    outcomes: dict[int, tuple[Any, Exception | None]] = {}

    def begin_next(connection: Connection) -> None:
        if tasks:
            task_of[connection], call = tasks.popleft()
            connection.send((function, call))

    with _killed_process_reported():
        for connection in connections:
            begin_next(connection)
    for task in range(len(calls)):
        with _killed_process_reported():
            while task not in outcomes:
                ready: list[Any] = wait(task_of)
                for connection in ready:
                    outcomes[task_of.pop(connection)] = connection.recv()
                    begin_next(connection)
        result, error = outcomes.pop(task)
        if error is not None:
            raise error
        yield result


@contextmanager
def _killed_process_reported() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise UnreadableInputError(
            "a process was killed while it read a file, most likely because memory ran out; "
            "`processes` 1 reads one file at a time",
            option="processes",
        ) from None


def _serve(connection: Connection, other_end: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one ends it
    signal.signal(signal.SIGTERM, exit_when_signalled)
    other_end.close()
    with suppress(EOFError, OSError):
        while True:
            connection.send(_outcome(*connection.recv()))


def _outcome(
    function: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[Any, Exception | None]:
    try:
        return function(*arguments), None
    except Exception as error:
        error.add_note(f"in a process of its own: {traceback.format_exc()}")
        return None, error


def _end(processes: Sequence[BaseProcess]) -> None:
    # In good order if they can, in any case soon.
    for process in processes:
        process.terminate()
    deadline_s = time.monotonic() + _PATIENCE_S
    for process in processes:
        process.join(max(0, deadline_s - time.monotonic()))
        process.kill()
        process.join()


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
    """Have Ctrl-C and SIGTERM interrupt the main thread and never the one that calls this."""
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
