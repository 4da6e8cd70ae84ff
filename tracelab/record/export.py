"""Write what a profiler has recorded into a file."""

from __future__ import annotations

import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.read.streams import Source, ends_as_json, open_source
from tracelab.system.files import hidden_path
from tracelab.system.processes import uninterrupted

if TYPE_CHECKING:
    import torch
import gzip

_ANNOTATIONS = "cuda_graph_annotations"  # a parameter of newer export_chrome_trace


def save_trace(profiler: torch.profiler.profile, path: Path) -> None:
    """Write a Chrome trace in one piece, before Ctrl-C and SIGTERM.

    Raises:
        OSError: it cannot be written.
    """
    partial_file = hidden_path(path.parent, "".join(path.suffixes[-2:]))
    with uninterrupted():
        try:
            export_trace(profiler, partial_file)
            if not ends_as_json(str(partial_file)):
                raise OSError("it is incomplete; is the disk full?")
            partial_file.replace(path)
        except OSError:
            partial_file.unlink(missing_ok=True)
            raise


def export_trace(profiler: torch.profiler.profile, file: Path) -> None:
    """Write a Chrome trace; an `OSError` if it cannot be written."""
    # Cuspy packs every file, and the file's name then says so.
    packed = file.with_name(f"{file.name}.gz")
    profiler.export_chrome_trace(str(file), **_annotations_of_graphs(profiler))
    if packed.exists():
        try:
            with (
                open_source(Source(str(packed), None, named=True)) as source,
                file.open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
        finally:
            packed.unlink()


def _annotations_of_graphs(profiler: torch.profiler.profile) -> dict[str, Any]:
    if _ANNOTATIONS not in inspect.signature(profiler.export_chrome_trace).parameters:
        return {}
    annotations = import_module("torch.cuda.graph_annotations").get_kernel_annotations()
    return {_ANNOTATIONS: annotations} if annotations else {}


def path_of_rank(path: Path, rank: int | None) -> Path:
    """The file of a rank: of a job of several, each rank's name says which.

    >>> path_of_rank(Path("step.pt.trace.json.gz"), 3).name
    'step_rank3.pt.trace.json.gz'
    """
    if rank is None or re.search(rf"rank[-_]?{rank}(?!\d)", path.name):
        return path
    stem, dot, endings = path.name.partition(".")
    return path.with_name(f"{stem}_rank{rank}{dot}{endings}")


_WAIT_RECORD = re.compile(rb'"wait_on_cuda_event_record_corr_id":\s*(-?\d+)')
_SMALL_FILE_BYTES = 64 * 1024 * 1024


def every_wait_is_resolved(path: Path) -> bool | None:
    """True if each stream wait in a trace names the event record that it waits for.

    Searches the text without parsing it. None without waits, or if the file is too large.
    """
    if path.stat().st_size > _SMALL_FILE_BYTES:
        return None
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    records = _WAIT_RECORD.findall(content)
    return all(int(record) >= 0 for record in records) if records else None
