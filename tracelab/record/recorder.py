"""Record a PyTorch program with ``torch.profiler``, armed so that tracelab can explain it."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tracelab.base.errors import MissingSupportError, reason_of
from tracelab.base.options import require_types
from tracelab.read.json.metadata import CELLS_KEY, SOURCE_KEY, TEXT_KEY
from tracelab.record.collector import (
    COLLECTOR_SETTINGS,
    Choice,
    CollectorSetting,
    choose_collector,
    cuspy_is_collecting,
    gpu_activity,
    has_kineto_session,
    is_kineto_session,
    kineto_loses_records,
    missing_for_cuspy,
    quiet_kineto,
    switch_event_records,
    torch_has_cuspy,
)
from tracelab.record.export import every_wait_is_resolved, path_of_rank, save_trace
from tracelab.record.hooks import watch_session
from tracelab.record.program_source import describe_source
from tracelab.record.pytorch import rank_of_process, require_pytorch
from tracelab.system.files import make_folder_of, require_output
from tracelab.system.processes import uninterrupted

if TYPE_CHECKING:
    import torch

_BASELINE_BLOCKS = 3
# A program that warms up takes less by more than this, or twice in a row: more blocks are timed.
_WARMS_UP = 1.1
_MAX_MORE_BLOCKS = 3
# With the profiler no host takes that much less: what was timed before is another state.
_NOT_THE_SAME = 0.8
# Filling and draining queues took 4 to 70 us on an H200, a seventieth of such a block. Shorter ones
# get more steps, up to a limit: the program may end soon.
_MIN_BLOCK_MS = 5.0
_MAX_TIMES_PLANNED = 8
_BASELINE_KEYS = ("unprofiled_step_ms", "unprofiled_host_step_ms", "unprofiled_block_steps")
_PROGRAM_PROFILES_ITSELF = (
    "the program runs its own profiler, and a process can have only one: analyze the trace that it "
    "writes"
)
_CUSPY_DID_NOT_START = (
    "nothing is recorded: Cuspy, PyTorch's own CUPTI collector, could not start (torch has logged "
    "why); record with Kineto instead, in another process"
)
_NO_GPU_FOR_KINETO = (
    "tracelab has recorded with Cuspy, after which Kineto, which this profiler uses, receives no "
    "GPU activity; where the program profiles itself, let tracelab record with Kineto, too"
)


class Recorder:
    """Record some steps of a loop into one Chrome trace.

    The first `skip` calls of `step` are left alone, the next `baseline` are timed without the
    profiler, in the next `warmup` it is armed, the next `steps` are recorded; then the trace is
    written. Leaving the block earlier writes what there is. Each rank writes its own file. Outside
    jobs, steps that are short or still get shorter are timed longer: up to 44 steps and three
    blocks more.

    Example:
        with Recorder("step.pt.trace.json.gz", skip=10) as recorder:
            for batch in loader:
                train(batch)
                recorder.step()

    Args:
        path: file to write; a name that ends in ``.gz`` is compressed. Where the program has
            several ranks and the name gives none, ``_rankN`` is put before its endings.
        skip, steps: number of steps to leave alone, and to record.
        warmup: number of steps before them during which the profiler is armed, at least 1.
        baseline: least number of steps before these that are timed without it.
        stacks: record Python functions (slows the host).
        shapes: record the operators' input shapes, from which rates of work are computed.
        memory: record what PyTorch's allocator holds.
        source_text: with `stacks`, store the lines of the program that call something.
        event_records: with Kineto, ask CUPTI for CUDA event records, which name what each stream
            wait waited for. None: only where stock Kineto loses them.
        collector: "kineto", "cuspy" (PyTorch's own CUPTI collector), or "auto": Cuspy where torch
            has it and Kineto has not recorded in this process.
        metadata: strings to store in the trace, under ``tracelab``.

    Attributes:
        rank: this process's rank in a job of several, else None.
        local_world_size: ranks of the job on this machine; set it if the launcher does not say.
        has_gpu: False as long as steps are left alone.
        over: nothing more is recorded.
        done: the trace is written.
        reason: why not all is recorded, other than for the number of steps; else "".
        calls: calls of `step` that fill the trace; it grows while short steps are timed.
        count: calls so far.
        created_s: seconds since the epoch.
        waits_are_resolved: as of `every_wait_is_resolved`; None without a file, too.

    Raises:
        MissingSupportError: torch is not installed, or on entering, something that Cuspy needs.
        ValueError: a count is too small, or there is no such collector or format.
    """

    # Of the process, which can have only one profiler at a time.
    _armed: ClassVar[Recorder | None] = None  # the last recorder whose profiler was started
    _sessions_are_watched: ClassVar[bool] = False
    _program_sessions: ClassVar[set[int]] = set()  # ids of the program's own, as they run
    _kineto_was_used: ClassVar[bool] = False  # to record a GPU

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        skip: int = 0,
        steps: int = 4,
        warmup: int = 2,
        baseline: int = 6,
        stacks: bool = False,
        shapes: bool = False,
        memory: bool = False,
        source_text: bool = True,
        event_records: bool | None = None,
        collector: CollectorSetting = "auto",
        metadata: dict[str, str] | None = None,
    ) -> None:
        require_types(
            path=(path, str | os.PathLike),
            skip=(skip, Integral),
            steps=(steps, Integral),
            warmup=(warmup, Integral),
            baseline=(baseline, Integral),
            stacks=(stacks, bool),
            shapes=(shapes, bool),
            memory=(memory, bool),
        )
        require_pytorch()
        if collector not in COLLECTOR_SETTINGS:
            raise ValueError(f"collector must be one of {', '.join(COLLECTOR_SETTINGS)}")
        if ".pftrace" in Path(path).name:  # by which Cuspy would choose another format
            raise ValueError(f"path: a recording is JSON, named .json.gz, not {path}")
        if steps < 1 or warmup < 1:
            raise ValueError("steps and warmup must be at least 1")
        if baseline < 0 or skip < 0:
            raise ValueError("baseline and skip must not be negative")
        self.calls = skip + baseline + warmup + steps
        self.count = 0
        self.created_s = time.time()
        self.waits_are_resolved: bool | None = None
        self._path = Path(path).absolute()  # the program may change its folder
        self._metadata = dict(metadata or {})
        self._skip, self._baseline, self._warmup, self._steps = skip, baseline, warmup, steps
        self._stacks, self._shapes, self._source_text = stacks, shapes, source_text
        self._memory = memory
        self._event_records_setting = event_records
        self._collector_setting = collector
        self._choice = Choice(None)
        self.rank = rank_of_process()
        self.local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.has_gpu = self.over = self.done = False
        self._has_event_records = False
        self.reason = ""
        self._process_id = os.getpid()
        self._profiler: torch.profiler.profile | None = None
        self._timing_start_s = 0.0
        self._devices: tuple[int, ...] = ()  # those that were in use when they were looked for
        self._baseline_left = baseline  # what is still to be timed of it
        self._more_blocks = 0  # that were timed because the program still warmed up
        self._block_steps = 0  # of the one that is being timed, up to now
        self._steps_are_short = False
        self._baseline_blocks: list[tuple[float, float, int]] = []

    @property
    def path(self) -> Path:
        """The file that is written, or will be."""
        return path_of_rank(self._path, self.rank)

    @property
    def is_fork(self) -> bool:
        """True in a fork of the program, which must neither write its file nor print."""
        return os.getpid() != self._process_id

    @property
    def collector(self) -> str | None:
        """The collector, "kineto" or "cuspy", once it is armed for a GPU; else None."""
        return self._choice.collector

    @property
    def collector_reason(self) -> str:
        """Reason for Kineto although this torch has Cuspy; "" otherwise."""
        return self._choice.reason

    def __enter__(self) -> Self:
        if self._collector_setting == "cuspy" and (missing := missing_for_cuspy()):
            raise MissingSupportError(
                f"`collector` is cuspy, which cannot be used here: {'; '.join(missing)}",
                option="collector",
            )
        # A folder that cannot be written is better reported now than after the steps.
        require_output(self.path)
        make_folder_of(self.path)
        Recorder._watch_profilers()
        if self._skip == 0:
            self._begin()
        return self

    def step(self) -> None:
        """Say that one step of the loop has ended."""
        if self.is_fork:
            return
        self.count += 1
        if self.over or self.count < self._skip:
            return
        if self._profiler is None:
            self._step_before_profiler()
        else:
            self._step_under_profiler(self._profiler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_fork:
            return
        if self._profiler is not None and not self.over:
            with uninterrupted():
                self._profiler.__exit__(kind, error, traceback)
        self.over = True

    def why_nothing(self) -> str:
        """Say why there is no trace."""
        if self.reason:
            return self.reason
        if self.count == 0:
            return "no step completed, so nothing was recorded"
        unrecorded = [f"the {self._skip} that are skipped"] if self._skip else []
        timing_steps = self.calls - self._skip - self._steps
        unrecorded.append(f"the {timing_steps} for timing and warm-up")
        steps = "was 1 step" if self.count == 1 else f"were {self.count} steps"
        return f"there {steps}, too few to record any after {' and '.join(unrecorded)}"

    @staticmethod
    def _watch_profilers() -> None:
        """Keep a process from having two profilers, which crashes it.

        The program's own goes first: a recorder at work ends with what it has.
        """
        if Recorder._sessions_are_watched:
            return
        Recorder._sessions_are_watched = True
        if torch_has_cuspy():  # else it makes no difference
            Recorder._kineto_was_used = has_kineto_session()

        def begins(session: Any) -> None:
            Recorder._kineto_was_used |= is_kineto_session(session)
            armed = Recorder._armed
            if armed is None or armed._profiler is None or armed._profiler.profiler is not session:
                if armed is not None and armed.collector == "cuspy" and is_kineto_session(session):
                    warnings.warn(_NO_GPU_FOR_KINETO, stacklevel=2)
                if armed is not None and not armed.over:
                    armed.reason = _PROGRAM_PROFILES_ITSELF
                    armed.__exit__(None, None, None)
                Recorder._program_sessions.add(id(session))

        watch_session(begins, lambda session: Recorder._program_sessions.discard(id(session)))

    def _step_before_profiler(self) -> None:
        if self.count == self._skip:
            self._begin()
            return
        self._block_steps += 1
        planned_steps = min(-(-self._baseline // _BASELINE_BLOCKS), self._baseline_left)
        if self._block_steps < planned_steps:
            return
        if (
            self._steps_are_short
            and self._block_steps < _MAX_TIMES_PLANNED * planned_steps
            and self._elapsed_ms() < _MIN_BLOCK_MS
        ):
            self.calls += 1
            return
        self._end_block(planned_steps)
        self._begin_timing()
        can_go_on = self._may_time_more() and self._more_blocks < _MAX_MORE_BLOCKS
        if self._baseline_left == 0 and can_go_on and self._warms_up():
            self._more_blocks += 1
            self._baseline_left = planned_steps
            self.calls += planned_steps
        if self._baseline_left == 0:
            self._keep_baseline()
            self._arm()

    def _may_time_more(self) -> bool:
        """Return True without ranks, of which each would record other steps by its own clock."""
        return self.has_gpu and self.rank is None

    def _warms_up(self) -> bool:
        first, *others = (step_ms for step_ms, _, _ in self._baseline_blocks[-_BASELINE_BLOCKS:])
        if len(others) < _BASELINE_BLOCKS - 1:
            return False
        before, last = others
        return first >= before > _WARMS_UP * last

    def _keep_baseline(self) -> None:
        if self._warms_up():
            self._metadata["unprofiled_unsteady"] = "1"
            return
        blocks = sorted(self._baseline_blocks[-_BASELINE_BLOCKS:])
        step_ms, host_ms, steps = blocks[(len(blocks) - 1) // 2]
        values = (f"{step_ms:.6f}", f"{host_ms:.6f}", f"{steps}")
        self._metadata |= dict(zip(_BASELINE_KEYS, values, strict=True))

    def _end_block(self, planned_steps: int) -> None:
        steps, host_ms = self._block_steps, self._elapsed_ms()
        _synchronize(self._devices)
        block_ms = self._elapsed_ms()
        is_first = self._may_time_more() and not self._steps_are_short
        if is_first and block_ms < _MIN_BLOCK_MS:
            self._steps_are_short = True
            self.calls += steps
        else:
            self._baseline_blocks.append((block_ms / steps, host_ms / steps, steps))
            self._baseline_left -= planned_steps

    def _step_under_profiler(self, profiler: torch.profiler.profile) -> None:
        if self.count == self.calls:
            # Only the host's time: a synchronize would stand in the trace.
            host_ms = self._elapsed_ms() / self._steps
            self._metadata["profiled_host_step_ms"] = f"{host_ms:.6f}"
            self._check_baseline(host_ms)
            profiler.add_metadata_json("tracelab", json.dumps(self._metadata))
        elif self.count == self.calls - self._steps:
            # What was launched before the recording would run into it without its launch.
            self._find_devices()
            self._begin_timing()
        with uninterrupted() if self.count == self.calls else nullcontext():
            profiler.step()

    def _check_baseline(self, profiled_ms: float) -> None:
        """Forget the baseline where the host takes even less with the profiler, per step."""
        host_ms = float(self._metadata.get("unprofiled_host_step_ms", 0))
        if profiled_ms < _NOT_THE_SAME * host_ms:
            for key in _BASELINE_KEYS:
                del self._metadata[key]
            self._metadata["unprofiled_unsteady"] = "1"

    def _begin(self) -> None:
        """Time the steps after the skipped ones, or start the profiler immediately.

        CUDA is initialized only now: the program may choose devices, or fork, before.
        """
        import torch

        self.rank = rank_of_process()  # the program may have joined its job since
        self.has_gpu = torch.cuda.is_available()
        self._find_devices()
        self._begin_timing()
        if self._baseline == 0:
            self._arm()

    def _arm(self) -> None:
        if Recorder._program_sessions:
            self.reason, self.over = _PROGRAM_PROFILES_ITSELF, True
            return
        if Recorder._armed is not None and not Recorder._armed.over:
            # A loop that failed may not have left its recorder.
            Recorder._armed.reason = "another recording started, and a process can have only one"
            Recorder._armed.__exit__(None, None, None)
        if self.has_gpu:
            self._choice = choose_collector(
                self._collector_setting, kineto_was_used=Recorder._kineto_was_used
            )
            if self.collector is None:
                self.reason, self.over = f"nothing is recorded: {self._choice.reason}", True
                return
        Recorder._armed = self
        self._profiler = self._new_profiler()
        with quiet_kineto():
            self._profiler.__enter__()
        if self.collector == "cuspy" and not cuspy_is_collecting():
            self.reason, self.over = _CUSPY_DID_NOT_START, True
            self._profiler.__exit__(None, None, None)  # within the warm-up it saves nothing
            return
        if self.collector == "kineto":
            # The profiler's CUPTI buffers are registered only now: before, this hung every process
            # of a job. Off beside Cuspy.
            setting = self._event_records_setting
            is_wanted = kineto_loses_records() if setting is None else setting
            self._has_event_records = is_wanted and switch_event_records(on=True)
        self._metadata |= self._provenance()
        self._profiler.add_metadata_json("tracelab", json.dumps(self._metadata))
        if self._stacks:
            # Now, before the first recorded step: later it would stand in the trace.
            source = describe_source(_source_folders())
            self._profiler.add_metadata_json(CELLS_KEY, source.cells)
            self._profiler.add_metadata_json(SOURCE_KEY, source.scopes)
            if self._source_text:
                self._profiler.add_metadata_json(TEXT_KEY, source.texts)

    def _new_profiler(self) -> torch.profiler.profile:
        import torch.profiler
        from torch._C._profiler import _ExperimentalConfig

        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._choice.collector is not None:
            activities.append(gpu_activity(self._choice.collector))
        # torch says this of every schedule with a warm-up; there is only one cycle to keep.
        warnings.filterwarnings("ignore", message=".*Profiler clears events at the end")
        return torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(
                wait=0, warmup=self._warmup, active=self._steps, repeat=1
            ),
            on_trace_ready=self._save,
            with_stack=self._stacks,
            record_shapes=self._shapes,
            profile_memory=self._memory,
            # Of Kineto, which must leave the GPU alone where Cuspy records it.
            experimental_config=_ExperimentalConfig(
                enable_cuda_sync_events=self.collector != "cuspy"
            ),
        )

    def _find_devices(self) -> None:
        # That takes longer than some steps do, and those after it are slower: not between blocks.
        self._devices = _devices_in_use() if self.has_gpu else ()

    def _begin_timing(self) -> None:
        _synchronize(self._devices)
        self._block_steps = 0
        self._timing_start_s = time.perf_counter()

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._timing_start_s) * 1000

    def _provenance(self) -> dict[str, str]:
        import torch

        provenance = {
            "torch": torch.__version__,
            "event_records": "cupti" if self._has_event_records else self.collector or "kineto",
            "source_folders": os.pathsep.join(_source_folders()),
        }
        if self.collector is not None:
            provenance |= {
                "cuda": str(torch.version.cuda),
                "gpu": torch.cuda.get_device_name(),
                "collector": self.collector,
            }
        if self.collector_reason:
            provenance["collector_reason"] = self.collector_reason
        if self.rank is not None:
            provenance["rank"] = str(self.rank)
        return provenance

    def _save(self, profiler: torch.profiler.profile) -> None:
        self.over = True
        if self._has_event_records:
            switch_event_records(on=False)
        try:
            save_trace(profiler, self.path)
        except OSError as error:  # no reason to end somebody's training
            self.reason = f"cannot write {self.path}: {reason_of(error)}"
            return
        self.done = True
        if self.has_gpu:
            self.waits_are_resolved = every_wait_is_resolved(self.path)


def _devices_in_use() -> tuple[int, ...]:
    """List the devices that this process uses: asking another one would cost memory on it."""
    import torch

    return tuple(
        device
        for device in range(torch.cuda.device_count())
        if torch.cuda.memory_allocated(device) or device == torch.cuda.current_device()
    )


def _synchronize(devices: Iterable[int]) -> None:
    import torch

    for device in devices:
        torch.cuda.synchronize(device)


def _source_folders() -> list[str]:
    folders = dict.fromkeys(Path(folder).resolve() for folder in sys.path)
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    return [
        str(folder)
        for folder in folders
        if folder.is_dir() and installed.isdisjoint((folder, *folder.parents))
    ]
