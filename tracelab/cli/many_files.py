"""Run a function over many files in any pool, with progress on stderr."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tracelab.base.errors import MissingSupportError, UsageError
from tracelab.read.sources import size_of
from tracelab.read.streams import Source, watched
from tracelab.system.processes import leave_signals_to_the_main_thread, open_processes, processors

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rich.progress import Progress, TaskID

FORMS = "serial, processes, threads, dask://HOST:PORT or MODULE:FUNCTION"

_Result = TypeVar("_Result")

# A shorter bar only flickers.
_MIN_PROGRESS_S = 1.0


def map_files(
    function: Callable[..., _Result],
    sources: Sequence[Source],
    *more: Iterable[Any],
    spec: str | None = None,
    jobs: int | None = None,
) -> list[_Result]:
    """Map a function over files, in order, with a bar if that takes long.

    Args:
        function: takes a source, and an item of each of `more`.
        sources: the files.
        more: further arguments, one for each file.
        spec: one of `FORMS`; by default processes for several files, else serial.
            MODULE:FUNCTION names a function that returns a `concurrent.futures.Executor`.
        jobs: how many at a time, by default one per processor.

    Raises:
        UsageError: the form is not one of these.
        MissingSupportError: it needs a package that is not installed.
    """
    results = []
    with (
        _open_map(len(sources), spec, jobs) as run,
        progress([size_of(source) for source in sources]) as bar,
    ):
        for result in run(function, sources, *more):
            results.append(result)
            bar.end_file()
    return results


def processes_for_one(files: int, spec: str | None = None, jobs: int | None = None) -> int:
    """Return the number of processes that read a file: several for a huge one alone."""
    return (jobs or processors()) if files == 1 and spec is None else 1


@contextmanager
def _open_map(
    tasks: int, spec: str | None, jobs: int | None
) -> Iterator[Callable[..., Iterable[Any]]]:
    workers = max(1, min(tasks, jobs or processors()))
    form = spec or ("processes" if workers > 1 else "serial")
    if form == "serial":
        yield map
    elif form == "processes":
        with open_processes(workers) as run:
            yield run
    else:
        with _open_pool(form, workers) as pool:
            yield pool.map


@contextmanager
def _open_pool(form: str, workers: int) -> Iterator[Executor]:
    if form == "threads":
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers) as pool:
            yield pool
    elif form.startswith("dask://"):
        with _connect(form) as client:
            yield client.get_executor()
    else:
        with _made_by(form) as pool:
            yield pool


def _connect(form: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise MissingSupportError(
            "a dask cluster needs dask.distributed", extra="cluster"
        ) from None
    try:
        return Client(form.replace("dask://", "tcp://"), timeout="10s")
    except (OSError, ValueError) as error:
        raise UsageError(f"{form}: no dask scheduler answers: {error}") from None


def _made_by(form: str) -> Executor:
    from concurrent.futures import Executor

    module, _, function = form.partition(":")
    if not module or not function:
        raise UsageError(f"--executor {form!r} is not one of: {FORMS}")
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, TypeError, ValueError, SyntaxError) as error:
        raise UsageError(f"--executor {form!r}: {error}") from None
    if not isinstance(made, Executor):
        raise UsageError(f"--executor {form!r} did not return a concurrent.futures.Executor")
    return made


class Bar:
    """Read bytes of files whose sizes are given, 0 if unknown."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._total = sum(sizes)
        self._begun = time.monotonic()
        self._ended = 0  # files
        self._ended_bytes = 0
        self._read_bytes = 0  # of this process's file
        self._drawn: tuple[Progress, TaskID, TaskID] | None = None

    def draw(self) -> None:
        """Show it."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        words, figures = TextColumn("{task.description}"), TextColumn("{task.fields[figures]}")
        progress = Progress(
            words, BarColumn(), figures, console=Console(stderr=True), transient=True
        )
        # A bar cannot lose its total, and the time of the analysis is unknown.
        reading = progress.add_task("reading", total=self._total or None, figures="")
        analyzing = progress.add_task("analyzing", total=None, figures="", visible=False)
        self._drawn = progress, reading, analyzing
        self._update()
        progress.start()

    def stop(self) -> None:
        """Remove it."""
        if self._drawn:
            self._drawn[0].stop()

    def read(self, count: int) -> None:
        """Count read bytes."""
        self._read_bytes += count
        self._update()

    def end_file(self) -> None:
        """Finish one file, the next in the order of the sizes."""
        self._ended_bytes += self._sizes[self._ended]
        self._ended += 1
        self._read_bytes = 0
        self._update()

    def _update(self) -> None:
        if self._drawn is None:
            return
        progress, reading, analyzing = self._drawn
        done = self._ended_bytes + self._read_bytes_once()
        is_read = done >= self._total > 0
        count = len(self._sizes)
        files = f", {self._ended} of {count} files done" if count > 1 else ""
        progress.update(
            reading,
            description=f"reading{files}",
            completed=done,
            figures=self._figures(done),
            visible=not is_read,
        )
        progress.update(analyzing, description=f"analyzing{files}", visible=is_read)

    def _read_bytes_once(self) -> int:
        if self._ended == len(self._sizes):
            return 0
        return min(self._read_bytes, self._sizes[self._ended])

    def _figures(self, done: int) -> str:
        if not 0 < done < self._total:
            return ""
        unit, name = (1e6, "MB") if self._total >= 1e6 else (1e3, "kB")
        rate = done / (time.monotonic() - self._begun)
        return (
            f"{done / unit:.1f}/{self._total / unit:.1f} {name} "
            f"{rate / unit:.0f} {name}/s, {(self._total - done) / rate:.0f} s left"
        )


@contextmanager
def progress(sizes: Sequence[int]) -> Iterator[Bar]:
    """A bar for a `with` block; hidden if stderr is no terminal."""
    bar = Bar(sizes)
    if not sys.stderr.isatty():
        yield bar
        return
    timer = threading.Timer(_MIN_PROGRESS_S, _draw_beside, (bar,))
    timer.daemon = True
    timer.start()
    try:
        with watched(bar.read):
            yield bar
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _draw_beside(bar: Bar) -> None:
    """Draw it from a thread that Ctrl-C does not wake."""
    leave_signals_to_the_main_thread()
    bar.draw()
