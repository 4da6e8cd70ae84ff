"""Devices other than those of CUDA and ROCm: how their files are known, and whether they are read.

The signs are rows that no other profiler writes, by the sources of the profilers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from tracelab.base.arrays import Record


class Platform(Record):
    """A sort of device, or a profiler, and what is in no other file: see ``platforms.toml``."""

    name: str
    categories: frozenset[str] = frozenset()
    processes: str = ""
    is_read: bool = False
    not_kernels: tuple[tuple[str, str], ...] = ()


# The first whose signs are in a file counts.
PLATFORMS = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[Platform, ...]]
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
