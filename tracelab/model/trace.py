"""One profiler trace as frozen numpy columns: a row per complete event of the file.

Row *i* of every column speaks of the same event, and *i* is the event id that graphs, results
and findings cite. The strings are kept once, in a table. What could not be read is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array

ABSENT = -1  # in an integer column: the file does not say


class Category(IntEnum):
    """What an event is, whatever the profiler's version called it."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    RUNTIME = 3  # a CUDA or HIP runtime call on the host
    DRIVER = 4  # a CUDA driver call on the host
    OPERATOR = 5
    PYTHON = 6
    ANNOTATION = 7  # a region that the user or a library named, on the host
    GPU_ANNOTATION = 8
    SYNC = 9  # CUPTI's record of what a synchronisation or a stream wait waits for
    CUDA_EVENT = 10  # CUPTI's record of an event reached on the GPU
    OVERHEAD = 11  # the profiler's own
    OTHER = 12


GPU_ACTIVITIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
HOST_CALLS = (Category.RUNTIME, Category.DRIVER)

# Every way in which something of a file can fail to reach the numbers. A loss that is zero is not
# listed; one that is not stands at the head of the report.
LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "truncated": "the file breaks off: what would follow is missing",
        "unparsable_events": "events that are not valid JSON were left out",
        "repairs": "places that were not valid JSON (bare nan or inf, bare quotes or backslashes, "
        "broken UTF-8, stray commas) were mended and used",
        "incomplete_events": "events without a name, a time or a duration were left out",
        "negative_durations": "events with a negative duration were left out",
        "absurd_times": "events with an impossible time or duration were left out",
        "unmatched_begin_end": "begin or end events without their partner were left out",
        "unknown_phases": "events of a phase that the format does not define were left out",
        "unreadable_metadata": "the text after the events is not valid JSON: rank or versions "
        "may be missing",
        "activities_without_lane": "GPU activities without a device or stream were left out",
        "activities_without_launch": "GPU activities whose launch is not in the file: they are "
        "busy time, but belong to no step",
        "overlapping_activities": "GPU activities that start before the previous one on their "
        "stream has ended, as their launch does not allow: their common time is counted once",
        "waits_without_record": "stream waits whose event record is not named: what they waited "
        "for is not known",
        "edges_against_time": "dependencies that would run against time were left out: there, "
        "activities or calls overlap that should not, or two clocks disagree",
    }
)


def count_losses(losses: Mapping[str, int]) -> str:
    """The losses in brackets, for the end of a sentence; "" without any."""
    counted = ", ".join(f"{name}: {count}" for name, count in losses.items() if count)
    return f" ({counted})" if counted else ""


@dataclass(frozen=True, slots=True)
class Thread:
    """A row of the timeline as the file names it: strings, because some files use words."""

    process: str
    thread: str
    name: str  # "" when the file gives none


@dataclass(frozen=True, slots=True, eq=False)
class SparseColumn:
    """Integers that few events have, read like an array of one per event.

    Attributes:
        row: int32[n], each event's index into `values`; that of the last one for most.
        values: int64[k + 1] or int32[k + 1]; the last is `ABSENT`.
    """

    row: NDArray[np.int32]
    values: Int64Array | NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, events: Any) -> Any:  # as many forms as an array's
        return self.values[self.row[events]]

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.asarray(self[:] == other)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.asarray(self[:] != other)

    __hash__ = None  # type: ignore[assignment]  # as an array's

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True, eq=False)
class Trace:
    """One file's complete events, in the file's order; every array is read-only.

    Large files are mostly host events, which have no device, stream or event: those columns are
    sparse.

    Attributes:
        path: where it came from.
        rank: the rank that the file or its name gives, else None.
        rank_source: "metadata", "filename" or "none".
        origin_ns: the first event's time in the file's own clock.
        start_ns: int64[n], ns since the first event.
        duration_ns: int64[n], ns, never negative.
        category: int8[n], a `Category`.
        name: int32[n], index into `strings`.
        thread: int32[n], index into `threads`.
        device: int32[n] and stream: int64[n], of GPU activities, syncs and CUDA events.
        correlation: int64[n], shared by a host call and what it put on the GPU.
        wait_stream, wait_correlation: int64[n], of syncs: the stream and the event record
            waited for.
        event: int64[n], the CUDA event of a sync or a record; reused over time.
        position: int32[n], the event's place in the file's array of events.
        strings: the string table.
        threads: the threads, in order of appearance.
        metadata: what the file says beside its events.
        objects: events of every phase that the file holds, read or not.
        losses: what could not be used, by the names in `LOSSES`.
    """

    path: str
    rank: int | None
    rank_source: str
    origin_ns: int
    start_ns: Int64Array
    duration_ns: Int64Array
    category: NDArray[np.int8]
    name_index: NDArray[np.int32]
    thread_index: NDArray[np.int32]
    device_number: SparseColumn
    stream_number: SparseColumn
    correlation: SparseColumn
    wait_stream_number: SparseColumn
    wait_correlation: SparseColumn
    cuda_event_number: SparseColumn
    file_index: NDArray[np.int32]
    strings: tuple[str, ...]
    threads: tuple[Thread, ...]
    metadata: Mapping[str, Any]
    objects: int
    losses: Mapping[str, int]

    def __post_init__(self) -> None:
        for field in fields(self):
            column = getattr(self, field.name)
            parts = (column.row, column.values) if isinstance(column, SparseColumn) else (column,)
            for array in parts:
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64Array:
        """int64[n], ns since the first event; the first nanosecond after each event."""
        end = self.start_ns + self.duration_ns
        end.flags.writeable = False
        return end

    @cached_property
    def about(self) -> Mapping[str, str]:
        """What tracelab's recorder wrote into the file; empty where another one recorded it."""
        about = self.metadata.get("tracelab")
        return {k: str(v) for k, v in about.items()} if isinstance(about, dict) else {}

    def name_of(self, event_id: int) -> str:
        """The name of one event."""
        return self.strings[int(self.name_index[event_id])]

    def of_category(self, *categories: Category) -> NDArray[np.intp]:
        """Ids of the events of these categories, ascending."""
        return np.flatnonzero(np.isin(self.category, categories))
