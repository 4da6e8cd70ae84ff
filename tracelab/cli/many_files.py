"""Run a function over many files: in processes by default, or in any pool that is given."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tracelab.base.errors import MissingSupportError, UsageError
from tracelab.cli.progress import progress
from tracelab.read.sources import size_of
from tracelab.read.streams import Source
from tracelab.system.processes import open_processes, processors

FORMS = "serial, processes, threads, dask://HOST:PORT or MODULE:FUNCTION"

_Result = TypeVar("_Result")

if TYPE_CHECKING:
    from concurrent.futures import Executor


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
        spec: one of `FORMS`; None for processes where there are several files, else serial.
            MODULE:FUNCTION names a function that returns a `concurrent.futures.Executor`.
        jobs: how many at a time; None for one per processor.

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
    """Return the number of processes that may read one huge file: several only for it alone."""
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
