"""Time the variants of a workload in turns, without a profiler, and then record them.

Each variant has a process of its own, which settles and then waits for its turn: a host that
becomes slower meanwhile is slower for all of them, and what one leaves behind (memory, settings,
objects) is not another's. Between two turns a process does nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Timer

from tracelab.workloads.catalog import CATALOG, Entry

ROUNDS = 15
TIMEOUT_S = 150  # of all that the variants do on the GPU


def takes_turns_with(entry: Entry) -> tuple[Entry, ...]:
    """A variant, its fix, and whatever else that mends; empty where there is nothing of these."""
    fix = entry.fix or entry.variant
    some = [x for x in CATALOG if x.workload == entry.workload and fix in {x.variant, x.fix}]
    return tuple(some) if len(some) > 1 else ()


def take_turns(
    entries: Sequence[Entry],
    arguments: Mapping[str, Sequence[str]],
    gpu: AbstractContextManager[object],
    rounds: int = ROUNDS,
) -> dict[str, list[float]]:
    """Run variants in turns; those that are given arguments are recorded afterwards.

    Args:
        entries: variants of one workload, each one process.
        arguments: of the variants to record, by their names: what their command lines end in.
        gpu: held while the GPU is used; the processes start before it.
        rounds: how many turns each variant gets.

    Returns:
        by variant, what a step of it takes in each of its turns, in milliseconds.

    Raises:
        RuntimeError: a process ended early, or took too long.
    """
    with ExitStack() as stack:
        running = {
            entry.variant: stack.enter_context(_started(entry, arguments.get(entry.variant, ())))
            for entry in entries
        }
        for process in running.values():
            _answer(process)
        with gpu, _watched([*running.values()]):
            _settle([*running.values()], in_turns=any(entry.ranks for entry in entries))
            turns_ms: dict[str, list[float]] = {name: [] for name in running}
            for _ in range(rounds):
                for name, process in running.items():
                    turns_ms[name].append(round(float(_ask(process, "time")), 3))
            for name in arguments:
                _ask(running[name], "record")
                if running[name].wait() != 0:
                    raise RuntimeError(f"{name} ended with an error while it was recorded")
    return turns_ms


def summary(turns_ms: Sequence[float]) -> list[float]:
    """The median, the shortest and the longest of some turns.

    >>> summary([3.0, 1.0, 2.0])
    [2.0, 1.0, 3.0]
    """
    return [statistics.median(turns_ms), min(turns_ms), max(turns_ms)]


@contextmanager
def _started(entry: Entry, arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    command = [*_program(entry), "--turns", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _program(entry: Entry) -> list[str]:
    return [sys.executable, "-m", f"tracelab.workloads.{entry.workload}", entry.variant]


@contextmanager
def _watched(processes: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """End the processes once their time is over: whoever waits for an answer then gets none."""
    timers = [Timer(TIMEOUT_S, process.kill) for process in processes]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _settle(processes: Sequence[subprocess.Popen[str]], *, in_turns: bool) -> None:
    """Let all loops settle: those of jobs one at a time, or ranks wait for ranks without a GPU."""
    for some in ([process] for process in processes) if in_turns else [processes]:
        for process in some:
            _tell(process, "settle")
        for process in some:
            _answer(process)


def _ask(process: subprocess.Popen[str], question: str) -> str:
    _tell(process, question)
    return _answer(process)


def _tell(process: subprocess.Popen[str], what: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    raise RuntimeError(f"no answer of the process of: {process.args!r}")
