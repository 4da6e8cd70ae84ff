"""Capture a PyTorch program with ``torch.profiler`` armed so that tracelab can explain it.

This is the only module of the package that imports torch. Compared with a bare
``torch.profiler.profile`` it asks Kineto for the synchronisation rows, brings the CUDA event
records back where Kineto loses them, and writes into the file what was done.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.profiler
from torch._C._profiler import _ExperimentalConfig

# CUPTI_ACTIVITY_KIND_CUDA_EVENT of cupti_activity.h.
_CUPTI_KIND_CUDA_EVENT = 36
# From this CUDA version on, stock Kineto no longer receives the event records that name what a
# stream waits for (pytorch/kineto PR 1552), unless the kind above is enabled.
_RECORDS_LOST_SINCE = (12, 9)


class Capture:
    """Record some steps of a loop into one Chrome trace.

    Example:
        with Capture("step.pt.trace.json.gz") as capture:
            for batch in loader:
                train(batch)
                capture.step()

    The first `warmup` calls of `step` arm the profiler, the next `steps` are recorded, then the
    trace is written; further calls cost nothing. Leaving the block earlier writes what there is.

    Args:
        path: file to write; a name that ends in ``.gz`` is compressed.
        steps: number of steps to record.
        warmup: number of steps before them during which the profiler is armed, at least 1.
        stacks: record Python functions (slows the host).
        shapes: record the operators' input shapes.
        event_records: ask CUPTI for CUDA event records, which name what each stream wait waited
            for. None: only where stock Kineto loses them.
        metadata: strings to store in the trace, under ``tracelab``.

    Attributes:
        path: the file.
        calls: how many calls of `step` fill the trace.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        steps: int = 4,
        warmup: int = 2,
        stacks: bool = False,
        shapes: bool = False,
        event_records: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        if steps < 1 or warmup < 1:
            raise ValueError("steps and warmup must be at least 1")
        self.path = Path(path)
        self._metadata = dict(metadata or {})
        self._cuda = torch.cuda.is_available()
        self._event_records = self._cuda and (
            _kineto_loses_records() if event_records is None else event_records
        )
        self._recorded = False
        self.calls = warmup + steps
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._cuda:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=warmup, active=steps, repeat=1),
            on_trace_ready=self._save,
            with_stack=stacks,
            record_shapes=shapes,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )

    def __enter__(self) -> Capture:
        # torch says this of every schedule with a warm-up; there is only one cycle to keep.
        warnings.filterwarnings("ignore", message=".*Profiler clears events at the end")
        self._profiler.__enter__()
        # Only now, in the profiler's warm-up, are its CUPTI buffers registered: enabling the kind
        # before them was seen to hang every process of a job.
        if self._event_records:
            self._event_records = _switch_event_records(on=True)
        self._profiler.add_metadata_json("tracelab", json.dumps(self._describe()))
        return self

    def step(self) -> None:
        """Say that one step of the loop has ended."""
        if not self._recorded:
            self._profiler.step()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._recorded:
            self._profiler.__exit__(kind, error, traceback)

    def _save(self, profiler: torch.profiler.profile) -> None:
        self._recorded = True
        if self._event_records:
            _switch_event_records(on=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self.path))

    def _describe(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "event_records": "cupti" if self._event_records else "kineto",
        }
        if self._cuda:
            about["gpu"] = torch.cuda.get_device_name()
        return about | self._metadata


def _kineto_loses_records() -> bool:
    version = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return version is not None and (int(version[1]), int(version[2])) >= _RECORDS_LOST_SINCE


def _switch_event_records(*, on: bool) -> bool:
    """Turn CUPTI's event records on or off in this process; True when CUPTI accepted it."""
    library = _loaded_cupti()
    if library is None:
        warnings.warn("no CUPTI is loaded in this process: no CUDA event records", stacklevel=3)
        return False
    function = library.cuptiActivityEnable if on else library.cuptiActivityDisable
    status = int(function(ctypes.c_int(_CUPTI_KIND_CUDA_EVENT)))
    if status != 0:
        warnings.warn(f"CUPTI answered {status}: no CUDA event records", stacklevel=3)
    return status == 0


def _loaded_cupti() -> ctypes.CDLL | None:
    """The libcupti that this process has already loaded; a second copy would be another CUPTI."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "libcupti" in line}
    return ctypes.CDLL(min(paths)) if paths else None
