"""Capture a PyTorch program with ``torch.profiler`` armed so that tracelab can explain it.

This is the only module of the package that imports torch. Compared with a bare
``torch.profiler.profile`` it asks Kineto for the synchronisation rows, brings the CUDA event
records back where Kineto loses them, lets nothing that was launched before the recording run into
it, measures what the profiler costs, and writes into the file what was done.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gzip
import json
import os
import re
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import torch
import torch.profiler
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_post_hook

# CUPTI_ACTIVITY_KIND_CUDA_EVENT of cupti_activity.h.
_CUPTI_KIND_CUDA_EVENT = 36
# From this CUDA version on, stock Kineto no longer receives the event records that name what a
# stream waits for (pytorch/kineto PR 1552), unless the kind above is enabled.
_RECORDS_LOST_SINCE = (12, 9)
_WAIT = re.compile(rb'"wait_on_cuda_event_record_corr_id":\s*(-?\d+)')
_SMALL_FILE_BYTES = 64 * 1024 * 1024

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Capture:
    """Record some steps of a loop into one Chrome trace.

    Example:
        with Capture("step.pt.trace.json.gz") as capture:
            for batch in loader:
                train(batch)
                capture.step()

    or, where a function is the step, ``@Capture("step.pt.trace.json.gz")`` above it.

    The first `baseline` calls of `step` are timed without the profiler, in the next `warmup` it is
    armed, the next `steps` are recorded; then the trace is written, and further calls cost nothing.
    Leaving the block earlier writes what there is. Under torchrun each rank writes its own file.

    Args:
        path: file to write; a name that ends in ``.gz`` is compressed. Where the program has
            several ranks and the name gives none, ``_rankN`` is put before its endings.
        steps: number of steps to record.
        warmup: number of steps before them during which the profiler is armed, at least 1.
        baseline: number of steps before these that are timed without it.
        stacks: record Python functions (slows the host).
        shapes: record the operators' input shapes.
        event_records: ask CUPTI for CUDA event records, which name what each stream wait waited
            for. None: only where stock Kineto loses them.
        metadata: strings to store in the trace, under ``tracelab``.

    Attributes:
        path: the file.
        rank: this process's rank in a job of several, else None.
        has_gpu: whether there is a CUDA device to record.
        calls: how many calls of `step` fill the trace.
        waits_named: whether every stream wait in the file names what it waited for; None where
            there is no wait, no file yet, or the file is too large to look.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        steps: int = 4,
        warmup: int = 2,
        baseline: int = 2,
        stacks: bool = False,
        shapes: bool = False,
        event_records: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        if steps < 1 or warmup < 1:
            raise ValueError("steps and warmup must be at least 1")
        if baseline < 0:
            raise ValueError("baseline must not be negative")
        self.rank = _rank()
        self.path = _path_of_rank(Path(path), self.rank)
        self.calls = baseline + warmup + steps
        self.waits_named: bool | None = None
        self._metadata = dict(metadata or {})
        self._baseline, self._warmup, self._steps = baseline, warmup, steps
        self.has_gpu = torch.cuda.is_available()
        self._event_records = self.has_gpu and (
            kineto_loses_records() if event_records is None else event_records
        )
        self._count = 0
        self._armed = self._recorded = False
        self._begun_s = 0.0
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.has_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=warmup, active=steps, repeat=1),
            on_trace_ready=self._save,
            with_stack=stacks,
            record_shapes=shapes,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )

    @property
    def done(self) -> bool:
        """Whether the trace has been written."""
        return self._recorded

    def __enter__(self) -> Capture:
        if not self.has_gpu:
            warnings.warn("no CUDA device: the trace will hold the host's side alone", stacklevel=2)
        self._begin_timing()
        if self._baseline == 0:
            self._arm()
        return self

    def __call__(self, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """Make each call of a function one step; what is missing at the program's end stays so."""

        @functools.wraps(function)
        def stepped(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            if self._count == 0:
                self.__enter__()
                atexit.register(self.__exit__, None, None, None)
            result = function(*args, **kwargs)
            self.step()
            return result

        return stepped

    def step(self) -> None:
        """Say that one step of the loop has ended."""
        if self._recorded:
            return
        self._count += 1
        if self._count == self._baseline:
            self._write_time("unprofiled_host_step_ms", self._baseline)
            self._synchronize()
            self._write_time("unprofiled_step_ms", self._baseline)
            self._arm()
            return
        if not self._armed:
            return
        if self._count == self.calls:
            self._write_time("profiled_host_step_ms", self._steps)
            self._profiler.add_metadata_json("tracelab", json.dumps(self._metadata))
        elif self._count == self._baseline + self._warmup:
            # What was launched before the recording would run into it without its launch.
            self._begin_timing()
        self._profiler.step()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._armed and not self._recorded:
            self._profiler.__exit__(kind, error, traceback)

    def _arm(self) -> None:
        """Start the profiler's warm-up."""
        # torch says this of every schedule with a warm-up; there is only one cycle to keep.
        warnings.filterwarnings("ignore", message=".*Profiler clears events at the end")
        self._armed = True
        self._profiler.__enter__()
        # Only now are the profiler's CUPTI buffers registered: enabling the kind before them was
        # seen to hang every process of a job.
        if self._event_records:
            self._event_records = _switch_event_records(on=True)
        self._metadata |= self._facts()
        self._profiler.add_metadata_json("tracelab", json.dumps(self._metadata))

    def _begin_timing(self) -> None:
        self._synchronize()
        self._begun_s = time.perf_counter()

    def _write_time(self, name: str, steps: int) -> None:
        """Note the mean time of a step since the timing began.

        Of the recorded steps only the host's time can be had: a synchronize at their end would
        stand in the trace. How long they took on the GPU, the trace itself tells.
        """
        milliseconds = (time.perf_counter() - self._begun_s) * 1000 / steps
        self._metadata[name] = f"{milliseconds:.3f}"

    def _synchronize(self) -> None:
        if self.has_gpu:
            for device in range(torch.cuda.device_count()):
                # Asking a device that this process does not use would cost memory on it.
                if torch.cuda.memory_allocated(device) or device == torch.cuda.current_device():
                    torch.cuda.synchronize(device)

    def _facts(self) -> dict[str, str]:
        facts = {
            "torch": torch.__version__,
            "event_records": "cupti" if self._event_records else "kineto",
        }
        if self.has_gpu:
            facts |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name()}
        if self.rank is not None:
            facts["rank"] = str(self.rank)
        return facts

    def _save(self, profiler: torch.profiler.profile) -> None:
        self._recorded = True
        if self._event_records:
            _switch_event_records(on=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self.path))
        if self.has_gpu:
            self.waits_named = _every_wait_is_named(self.path)


def on_optimizer_step(call: Callable[[], None]) -> None:
    """Call a function after each step of the program's first optimizer, from now on.

    A program with several optimizers makes one step with each of them; when the first one is gone,
    the next to step takes its place.
    """
    first: weakref.ref[torch.optim.Optimizer] | None = None

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal first
        if first is None or first() is None:
            first = weakref.ref(optimizer)
        if first() is optimizer:
            call()

    register_optimizer_step_post_hook(stepped)


def on_annotation(name: str, call: Callable[[], None]) -> None:
    """Call a function whenever a region of this name (`record_function`) has ended, from now on."""
    leave = record_function.__exit__

    def left(region: record_function, *error: Any) -> None:
        leave(region, *error)
        if region.name == name:
            call()

    record_function.__exit__ = left


def kineto_loses_records() -> bool:
    """Whether this torch's CUDA is one whose event records stock Kineto does not receive."""
    version = re.match(r"(\d+)\.(\d+)", torch.version.cuda or "")
    return version is not None and (int(version[1]), int(version[2])) >= _RECORDS_LOST_SINCE


def _rank() -> int | None:
    """This process's rank in a job of several, as torchrun and its like say it."""
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "1")
    return int(rank) if rank.isdigit() and size != "1" else None


def _path_of_rank(path: Path, rank: int | None) -> Path:
    if rank is None or "rank" in path.name:
        return path
    stem, dot, endings = path.name.partition(".")
    return path.with_name(f"{stem}_rank{rank}{dot}{endings}")


def _every_wait_is_named(path: Path) -> bool | None:
    """Look at the result: Kineto's versions differ in what they lose."""
    if path.stat().st_size > _SMALL_FILE_BYTES:
        return None
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    records = _WAIT.findall(content)
    return all(int(record) >= 0 for record in records) if records else None


def _switch_event_records(*, on: bool) -> bool:
    """Turn CUPTI's event records on or off in this process; whether CUPTI accepted it."""
    library = _loaded_cupti()
    if library is None:
        return False
    function = library.cuptiActivityEnable if on else library.cuptiActivityDisable
    return int(function(ctypes.c_int(_CUPTI_KIND_CUDA_EVENT))) == 0


def _loaded_cupti() -> Any:
    """The libcupti that this process has already loaded; a second copy would be another CUPTI."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps.splitlines() if "libcupti" in line}
    return ctypes.CDLL(min(paths)) if paths else None
