"""Handler for ``torch.profiler`` that writes each trace and logs what the first screen says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import TracelabError
from tracelab.base.options import require_types
from tracelab.base.safe_text import clean
from tracelab.read.streams import Source
from tracelab.record.export import path_of_rank, save_trace
from tracelab.record.pytorch import lacks_gpu, rank_of_process, require_pytorch
from tracelab.render.first_screen import FIXES, first_screen
from tracelab.render.text.hints import analyze_command
from tracelab.report.schema import Report
from tracelab.system.files import make_folder_of

if TYPE_CHECKING:
    import torch

FOLDER = Path("tracelab-run")
# About 180,000 events.
MAX_FILE_MB = 4.0
_WORKER = "steps"
_PREFIX = "tracelab: "
_BYTES_OF_MB = 1_000_000


def trace_handler(
    folder: str | os.PathLike[str] = FOLDER,
    worker_name: str | None = None,
    *,
    log: Callable[[str], object] = print,
    every_rank: bool = False,
    max_mb: float = MAX_FILE_MB,
) -> Callable[[torch.profiler.profile], None]:
    """Return a handler for ``on_trace_ready`` that writes the trace and logs what it says.

    Use it for ``torch.profiler.tensorboard_trace_handler``. After each cycle it
    writes ``NAME_rankN.TIME.pt.trace.json.gz`` and logs a few lines: the step,
    how busy the GPU is, what fixes save, the first finding, and what says more.

    The thread that calls the profiler's ``step()`` analyzes the trace, a second
    or two for 1 MB. What fails is logged in one line and never raised.

    Example::

        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=10, warmup=2, active=4, repeat=1),
            on_trace_ready=tracelab.trace_handler("traces"),
            with_stack=True,
        ) as profiler:
            for batch in loader:
                train(batch)
                profiler.step()

    Args:
        folder: where the traces go; it is made when the first is written.
        worker_name: how their names begin, by default "steps".
        log: called with each line, such as ``logging.getLogger("train").info``.
        every_rank: let all ranks of a job analyze their traces, not only rank 0.
        max_mb: how large a trace may be to be analyzed, packed, in MB.

    Raises:
        MissingSupportError: torch is not installed.
    """
    require_types(
        folder=(folder, str | os.PathLike),
        worker_name=(worker_name, str | None),
        log=(log, Callable),
        every_rank=(every_rank, bool),
        max_mb=(max_mb, Real),
    )
    require_pytorch()
    first = Path(folder).absolute() / f"{worker_name or _WORKER}.pt.trace.json.gz"

    def handle(profiler: torch.profiler.profile) -> None:
        rank = rank_of_process()
        stem, dot, endings = first.name.rpartition(".pt.trace")
        named = first.with_name(f"{stem}.{time.time_ns()}{dot}{endings}")
        path = path_of_rank(named, rank)
        try:
            make_folder_of(path)
            save_trace(profiler, path)
        except Exception as error:  # whatever it is, it is no reason to end somebody's training
            lines = [f"warning: no trace is written: {_error_text(error)}"]
        else:
            logs = every_rank or rank in {None, 0}
            lines = [*_lines(path, max_mb)] if logs else []
        of_rank = f"rank {rank}: " if rank is not None and every_rank else ""
        for line in lines:
            with suppress(Exception):
                log(f"{_PREFIX}{of_rank}{clean(line)}")

    return handle


def _lines(path: Path, max_mb: float) -> Iterator[str]:
    more = f"more: {analyze_command([str(path)])}"
    size_mb = path.stat().st_size / _BYTES_OF_MB
    try:
        if lacks_gpu():
            yield f"recorded {path}: there is no GPU here, so the file holds only the CPU's side"
        elif size_mb > max_mb:
            yield f"recorded {size_mb:.1f} MB, more than is analyzed during a training"
            yield more
        else:
            report = analyze_source(Source(str(path), None, named=True)).report
            yield from report_lines(report)
            yield more
    except Exception as error:
        reason = _error_text(error)
        yield f"warning: {reason if str(path) in reason else f'recorded {path}, but: {reason}'}"


def report_lines(report: Report) -> list[str]:
    """Return what a log says of a file: the step, the GPU, the fixes, and the first finding."""
    said = first_screen(report)
    step, gpu, *others = said.facts
    facts = [step, gpu, *(fact for fact in others if fact.label == FIXES)]
    indent = max(len(fact.label) for fact in facts) + 2
    lines = [f"{fact.label:{indent}}{fact.text}" for fact in facts]
    if not said.items:
        return [*lines, said.answer]
    first = said.items[0]
    place = f" ({first.place})" if first.place else ""
    return [*lines, f"{first.number}  {first.price}: {first.title}{place}"]


def _error_text(error: Exception) -> str:
    text = str(error) if isinstance(error, TracelabError | OSError) else repr(error)
    return " ".join(text.split())
