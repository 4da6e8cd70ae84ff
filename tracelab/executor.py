"""Run a function over many files: in processes by default, or in any pool that is given."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tracelab.errors import MissingSupportError, UsageError

FORMS = "serial, processes, threads, dask://HOST:PORT or MODULE:FUNCTION"


@contextmanager
def open_map(
    tasks: int, spec: str | None = None, jobs: int | None = None
) -> Iterator[Callable[..., Iterable[Any]]]:
    """A function that maps like `map`, in order, for the time of a `with` block.

    Args:
        tasks: how many items will be mapped.
        spec: one of `FORMS`; None for processes where there are several items, else serial.
            MODULE:FUNCTION names a function that returns a `concurrent.futures.Executor`.
        jobs: how many at once, where the form leaves it open; None for one per processor.

    Raises:
        UsageError: the form is none of these.
        MissingSupportError: it needs a package that is not installed.
    """
    workers = max(1, min(tasks, jobs or os.cpu_count() or 1))
    form = spec or ("processes" if workers > 1 else "serial")
    if form == "serial":
        yield map
        return
    with _open_pool(form, workers) as pool:
        yield pool.map


@contextmanager
def _open_pool(form: str, workers: int) -> Iterator[Executor]:
    if form == "processes":
        with ProcessPoolExecutor(workers) as pool:
            yield pool
    elif form == "threads":
        with ThreadPoolExecutor(workers) as pool:
            yield pool
    elif form.startswith("dask://"):
        with _connect(form) as client:
            yield client.get_executor()
    else:
        with _made_by(form) as pool:
            yield pool


def _connect(form: str) -> Any:
    """A client of the dask cluster whose scheduler listens there."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingSupportError(
            "a dask cluster needs dask.distributed: pip install 'tracelab[dask]'"
        ) from None
    try:
        return Client(form.replace("dask://", "tcp://"), timeout="10s")
    except OSError as error:
        raise UsageError(f"{form}: no dask scheduler answers there: {error}") from None


def _made_by(form: str) -> Executor:
    """The pool that MODULE:FUNCTION returns."""
    module, _, function = form.partition(":")
    if not module or not function:
        raise UsageError(f"--executor {form!r} is none of: {FORMS}")
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--executor {form!r}: {error}") from None
    if not isinstance(made, Executor):
        raise UsageError(f"--executor {form!r} gave no concurrent.futures.Executor")
    return made
