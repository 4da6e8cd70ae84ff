"""Write what a profiler has recorded into a file, with all that its torch can put into it."""

from __future__ import annotations

import inspect
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.read.streams import Source, open_source

if TYPE_CHECKING:
    import torch

_ANNOTATIONS = "cuda_graph_annotations"  # a parameter of newer export_chrome_trace


def export_trace(profiler: torch.profiler.profile, file: Path) -> None:
    """Write a Chrome trace.

    Raises:
        OSError: it cannot be written.
    """
    # Cuspy packs every file, and the file's name then says so.
    packed = file.with_name(f"{file.name}.gz")
    for left in (file, packed):  # by a run that was killed
        left.unlink(missing_ok=True)
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
    """The argument that puts what the program said of its CUDA graphs' nodes into the file.

    Empty where this torch has no such argument or the program said nothing: with it, another
    exporter writes the file.
    """
    if _ANNOTATIONS not in inspect.signature(profiler.export_chrome_trace).parameters:
        return {}
    annotations = import_module("torch.cuda.graph_annotations").get_kernel_annotations()
    return {_ANNOTATIONS: annotations} if annotations else {}
