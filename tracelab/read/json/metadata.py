"""Metadata of a file, from the keys that Kineto and tracelab's recorder write."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from tracelab.base.arrays import Int8Array, Record
from tracelab.base.names import is_share
from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, FileInfo, SparseColumn
from tracelab.read.json.events import mapping
from tracelab.read.json.numbers import natural_number
from tracelab.read.streams import Source

SOURCE_KEY = "tracelab_source"  # under which the recorder stores what the source files call
TEXT_KEY = "tracelab_source_text"  # and the text of the lines that do
CELLS_KEY = "tracelab_cells"  # and which files are cells of a notebook
_CELL = re.compile(r"In\[\d{1,9}\]")


def read_file_info(
    metadata: Mapping[str, Any], source: Source, platform: str = "", devices: Collection[int] = ()
) -> FileInfo:
    """Read a file's metadata, or its name instead."""
    rank, rank_source = _rank(metadata, source)
    recorder = {key: str(value) for key, value in mapping(metadata.get("tracelab")).items()}
    collector = recorder.get("collector", "")
    return FileInfo(
        rank=rank,
        rank_source=rank_source,
        world_size=_world_size(metadata),
        software=MappingProxyType(_software(metadata, recorder)),
        device_names=MappingProxyType(_device_names(metadata, devices)),
        multiprocessors=MappingProxyType(_multiprocessors(metadata, devices)),
        source_folders=_source_folders(recorder),
        source_scopes=MappingProxyType(mapping(metadata.get(SOURCE_KEY))),
        source_texts=MappingProxyType(mapping(metadata.get(TEXT_KEY))),
        unprofiled_step_ns=_positive_ns(recorder, "unprofiled_step_ms"),
        unprofiled_host_step_ns=_positive_ns(recorder, "unprofiled_host_step_ms"),
        unprofiled_block_steps=_unprofiled_block_steps(recorder),
        unprofiled_is_unsteady="unprofiled_unsteady" in recorder,
        world_groups=_world_groups(metadata),
        clock_base_ns=max(natural_number(metadata.get("baseTimeNanoseconds")), 0),
        platform=platform,
        collector=collector if collector in {"kineto", "cuspy"} else "",
    )


def name_cells(names: Iterable[str], metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the functions of a notebook by their cells: "In[3](2): step"."""
    given = mapping(metadata.get(CELLS_KEY))
    cells = {x: str(cell) for x, cell in given.items() if _CELL.fullmatch(str(cell))}
    if not cells:
        return tuple(names)
    parts = (name.partition("(") for name in names)
    return tuple(f"{cells.get(file, file)}{bracket}{rest}" for file, bracket, rest in parts)


def used_devices(category: Int8Array, device_number: SparseColumn) -> list[int]:
    """The devices on which something ran, ascending."""
    used: list[int] = np.unique(device_number[np.isin(category, GPU_ACTIVITIES)]).tolist()
    return used


def _rank(metadata: Mapping[str, Any], source: Source) -> tuple[int | None, str]:
    # In a job of one every rank is 0; there a name says more, which may count jobs side by side.
    rank = natural_number(mapping(metadata.get("distributedInfo")).get("rank"))
    if source.rank is not None and (rank == ABSENT or _world_size(metadata) == 1):
        return source.rank, "filename"
    return (rank, "metadata") if rank != ABSENT else (None, "none")


def _world_size(metadata: Mapping[str, Any]) -> int | None:
    size = mapping(metadata.get("distributedInfo")).get("world_size")
    if isinstance(size, bool) or not isinstance(size, int):
        return None
    return size if 0 < size < 2**63 else None


def _world_groups(metadata: Mapping[str, Any]) -> int | None:
    groups = mapping(metadata.get("distributedInfo")).get("pg_config")
    if not isinstance(groups, list):
        return None
    world_size = _world_size(metadata)
    return [mapping(group).get("pg_size") for group in groups].count(world_size)


def _software(metadata: Mapping[str, Any], recorder: Mapping[str, str]) -> dict[str, str]:
    versions = {name: recorder[name] for name in ("torch", "cuda") if recorder.get(name)}
    for key, name in (("cuda_runtime_version", "cuda"), ("hip_runtime_version", "hip")):
        version = metadata.get(key)
        if isinstance(version, int) and name not in versions:
            versions[name] = (_cuda_version if name == "cuda" else _hip_version)(version)
    return versions


def _cuda_version(number: int) -> str:
    # 12.4 is written 12040.
    return f"{number // 1000}.{number % 1000 // 10}"


def _hip_version(number: int) -> str:
    # 6.4.43483 is written 60443483.
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _device_names(metadata: Mapping[str, Any], used: Collection[int]) -> dict[int, str]:
    names = _read_devices(metadata, "name", used)
    return {number: str(name) for number, name in names.items() if name}


def _multiprocessors(metadata: Mapping[str, Any], used: Collection[int]) -> dict[int, int]:
    counts = _read_devices(metadata, "numSms", used)
    return {number: count for number, count in counts.items() if type(count) is int and count > 0}


def _read_devices(metadata: Mapping[str, Any], key: str, used: Collection[int]) -> dict[int, Any]:
    # The list numbers what `CUDA_VISIBLE_DEVICES` left, from 0; events may have the machine's own
    # numbers. Then what all devices in the list have is known, or which is which, if all were used.
    devices = metadata.get("deviceProperties")
    if not isinstance(devices, list):
        return {}
    listed = {
        device["id"]: device.get(key)
        for device in map(mapping, devices)
        if type(device.get("id")) is int and device["id"] >= 0
    }
    if not listed or listed.keys() >= set(used):
        return listed
    values = [listed[number] for number in sorted(listed)]
    if all(value == values[0] for value in values):
        return dict.fromkeys(used, values[0])
    return dict(zip(used, values, strict=True)) if len(used) == len(values) else {}


def _source_folders(recorder: Mapping[str, str]) -> tuple[str, ...]:
    folders = recorder.get("source_folders", "").split(os.pathsep)
    return tuple(folder for folder in folders if folder and not is_share(folder))


def _positive_ns(recorder: Mapping[str, str], key: str) -> float | None:
    try:
        time_ns = float(recorder.get(key, "")) * 1e6
    except ValueError:
        return None
    return time_ns if 1 <= time_ns < math.inf else None


def _unprofiled_block_steps(recorder: Mapping[str, str]) -> int | None:
    steps = recorder.get("unprofiled_block_steps", "")
    return int(steps) if re.fullmatch(r"[1-9][0-9]{0,8}", steps) else None


class Platform(Record):
    """A sort of device, or a profiler, and what is in no other file: see ``platforms.toml``."""

    name: str
    categories: frozenset[str] = frozenset()
    processes: str = ""
    is_read: bool = False
    not_kernels: tuple[tuple[str, str], ...] = ()


# The first whose signs are in a file counts.
PLATFORMS = msgspec.toml.decode(
    Path(__file__).with_name("platforms.toml").read_bytes(), type=dict[str, tuple[Platform, ...]]
)["platform"]

READ_PLATFORMS = tuple(platform.name for platform in PLATFORMS if platform.is_read)


def platform_of(categories: Iterable[str], processes: Collection[str]) -> Platform | None:
    """The platform of a file, by its categories (in small letters) and its processes."""
    found = frozenset(categories)
    for platform in PLATFORMS:
        if platform.categories & found:
            return platform
        if platform.processes and any(re.fullmatch(platform.processes, x) for x in processes):
            return platform
    return None
