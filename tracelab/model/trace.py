"""One profiler trace as frozen numpy columns: a row per complete event of the file.

Row *i* of every column speaks of the same event, and *i* is the event id that graphs, results
and findings cite. The strings are kept once, in a table. What could not be read is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.arrays import Frozen, read_only
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
    """A thread as the file names it: strings, because some files use words.

    Example: ``Thread(process="1204", thread="1204", name="thread 1204 (python)")``.
    """

    process: str
    thread: str
    name: str  # "" when the file gives none


@dataclass(frozen=True, slots=True, eq=False)
class SparseColumn(Frozen):
    """Integers that few events have, read like an array of one per event.

    Attributes:
        value_index: int32[n], each event's index into `values`; that of the last one for most.
        values: int64[k + 1] or int32[k + 1]; the last is `ABSENT`.

    >>> index, values = np.array([1, 0, 1], dtype=np.int32), np.array([7, ABSENT])
    >>> SparseColumn(index, values)[:].tolist()
    [-1, 7, -1]
    """

    value_index: NDArray[np.int32]
    values: Int64Array | NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.value_index)

    def __getitem__(self, events: Any) -> Any:  # as many forms as an array's
        return self.values[self.value_index[events]]

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.asarray(self[:] == other)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.asarray(self[:] != other)

    __hash__ = None  # type: ignore[assignment]  # as an array's

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True, eq=False)
class Trace(Frozen):
    """One file's complete events, in the file's order; every array is read-only.

    Large files are mostly host events, which have no device, stream or event: those columns are
    sparse.

    Example row: ``(start_ns=120_000, duration_ns=3_500, category=Category.KERNEL, name_index=7,
    thread_index=2, device_number=0, stream_number=7, correlation=311, wait_stream_number=ABSENT,
    wait_correlation=ABSENT, cuda_event_number=ABSENT, file_index=42)``.

    Attributes:
        path: where it came from.
        rank: the rank that the file or its name gives, else None.
        rank_source: "metadata", "filename" or "none".
        origin_ns: the first event's time in the file's own clock.
        start_ns: int64[n], ns since the first event.
        duration_ns: int64[n], ns, never negative.
        category: int8[n], a `Category`.
        name_index: int32[n], index into `strings`.
        thread_index: int32[n], index into `threads`.
        device_number: int32[n], of GPU activities, syncs and CUDA events.
        stream_number: int64[n], likewise.
        correlation: int64[n], shared by a host call and what it put on the GPU.
        wait_stream_number, wait_correlation: int64[n], of syncs: the stream and the event record
            waited for.
        cuda_event_number: int64[n], the CUDA event of a sync or a record; reused over time.
        file_index: int32[n], the event's index in the file's array of events.
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

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64Array:
        """int64[n], ns since the first event; the first nanosecond after each event."""
        return read_only(self.start_ns + self.duration_ns)

    @cached_property
    def about(self) -> Mapping[str, str]:
        """What tracelab's recorder wrote into the file; empty where another one recorded it."""
        about = self.metadata.get("tracelab")
        entries = about if isinstance(about, dict) else {}
        return MappingProxyType({key: str(value) for key, value in entries.items()})

    def name_of(self, event_id: int) -> str:
        """The name of one event."""
        return self.strings[int(self.name_index[event_id])]

    def of_category(self, *categories: Category) -> NDArray[np.intp]:
        """Ids of the events of these categories, ascending."""
        return np.flatnonzero(np.isin(self.category, categories))
