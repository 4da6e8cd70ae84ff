"""What a file says beside its events: the job, the software, the devices, the recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tracelab.base.arrays import OneLine


@dataclass(frozen=True, slots=True, repr=False)
class FileInfo(OneLine):
    """What a file says beside its events, each thing once, with one type.

    Example: ``FileInfo(rank=3, rank_source="metadata", world_size=8, software={"cuda": "12.4"},
    device_names={3: "NVIDIA H200"}, multiprocessors={3: 132}, source_folders=("/home/me/train",),
    unprofiled_step_ns=9_500_000.0)``. Without arguments it is that of a file that says nothing.

    Attributes:
        rank: the rank in the whole job that the file or its name gives, else None.
        rank_source: "metadata", "filename" or "none".
        world_size: how many ranks the job has; None where the file does not say.
        software: versions by "torch", "cuda" and "hip", in this order, those that are known.
        device_names: device number to the name of the GPU.
        multiprocessors: device number to how many multiprocessors the GPU has.
        source_folders: where the recorded program had its modules.
        source_scopes: source file of the program to what it calls, as of `scopes_as_lists`, where
            the recorder stored it.
        source_texts: source file of the program to line, in digits, to its text, as of
            `text_as_stored`, of lines that call something, where the recorder stored them.
        unprofiled_step_ns: how long a step took without the profiler, as the recorder measured
            it; None if it did not.
        unprofiled_host_step_ns: how much of that passed until the host went on with the next step;
            the time until the GPU was done is not in it.
        unprofiled_block_steps: how many steps it timed at once, from empty queues on, for these two
            times; None where it did not say: the first recorders timed two, and took longer to
            begin to wait.
        unprofiled_is_unsteady: whether these times are missing because steps still took less and
            less, so that those that were timed are not like those that were recorded.
        world_groups: how many process groups have all ranks in them; None where the file does not
            list its groups.
        clock_base_ns: ns since 1970 from which the times of the file count; 0 where it does not
            say: its times may be since 1970 themselves.
        collector: who recorded the GPU, "kineto" or "cuspy", where tracelab's recorder says so.
        platform: the devices, where its events show that they are not those of CUDA or ROCm.
    """

    rank: int | None = None
    rank_source: str = "none"
    world_size: int | None = None
    software: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    device_names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    multiprocessors: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    source_folders: tuple[str, ...] = ()
    source_scopes: Mapping[str, Any] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    source_texts: Mapping[str, Any] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    unprofiled_step_ns: float | None = None
    unprofiled_host_step_ns: float | None = None
    unprofiled_block_steps: int | None = None
    unprofiled_is_unsteady: bool = False
    world_groups: int | None = None
    clock_base_ns: int = 0
    platform: str = ""
    collector: str = ""
