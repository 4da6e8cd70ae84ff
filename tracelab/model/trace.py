"""One profiler trace as frozen numpy columns: a row per complete event of the file.

Row *i* of every column describes the same event, and *i* is the event id that graphs, results
and findings cite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from tracelab.base import arrays
from tracelab.base.arrays import (
    Arrays,
    BoolArray,
    IndexArray,
    Int8Array,
    Int32Array,
    Int64Array,
    Record,
    read_only,
)

ABSENT = arrays.ABSENT  # in an integer column: the file does not say


class FileInfo(Record):
    """Metadata of a file, each value once, with one type; None or empty if it does not say.

    Attributes:
        rank, rank_source: the rank in the whole job that the file or its name gives: "metadata",
            "filename" or "none".
        software: versions by "torch", "cuda" and "hip", in this order, those that are known.
        device_names, multiprocessors: by device number.
        source_folders: where the recorded program had its modules.
        source_scopes: source file of the program to what it calls, as of `scopes_as_lists`.
        source_texts: source file to line, in digits, to its text, as of `text_as_stored`.
        unprofiled_step_ns, unprofiled_host_step_ns: how long a step took without the profiler, as
            the recorder measured it, and how much of that until the host went on with the next
            step.
        unprofiled_block_steps: how many steps it timed together; None of the first recorders, which
            timed two, and took longer to begin to wait.
        unprofiled_is_unsteady: whether these are missing because steps still got shorter.
        world_groups: how many process groups have all ranks in them.
        clock_base_ns: ns since 1970 from which the times of the file count, else 0.
        collector: "kineto" or "cuspy", where tracelab's recorder says so.
        platform: the devices, where they are not those of CUDA or ROCm.
    """

    rank: int | None = None
    rank_source: str = "none"
    world_size: int | None = None
    software: Mapping[str, str] = MappingProxyType({})
    device_names: Mapping[int, str] = MappingProxyType({})
    multiprocessors: Mapping[int, int] = MappingProxyType({})
    source_folders: tuple[str, ...] = ()
    source_scopes: Mapping[str, Any] = MappingProxyType({})
    source_texts: Mapping[str, Any] = MappingProxyType({})
    unprofiled_step_ns: float | None = None
    unprofiled_host_step_ns: float | None = None
    unprofiled_block_steps: int | None = None
    unprofiled_is_unsteady: bool = False
    world_groups: int | None = None
    clock_base_ns: int = 0
    platform: str = ""
    collector: str = ""


class GroupText(NamedTuple):
    """A process group as one event describes it; "" or ABSENT for what it does not say.

    `ranks` lists its global ranks (a long list ends in dots), from `first_rank` on, `rank_stride`
    apart.
    """

    name: str
    ranks: str
    size: int
    first_rank: int
    rank_stride: int


class Messages(Arrays):
    """The arguments of k communication operations; in one more row, the last, all is `ABSENT`.

    `name_index` and `group_index`, int32[k + 1], index `names` and `groups`; `sequence` is the
    number of the operation in its group.
    """

    name_index: Int32Array
    group_index: Int32Array
    sequence: Int64Array
    peer_rank: Int64Array
    in_bytes: Int64Array
    out_bytes: Int64Array
    names: tuple[str, ...]
    groups: tuple[GroupText, ...]

    def __len__(self) -> int:
        return len(self.sequence) - 1


class GraphNodes(Arrays):
    """Node of each of k runs, with an index into `annotations` (int32[k + 1]).

    These are the regions in which nodes were captured. The last row, of other events, is ABSENT.
    """

    annotation_index: Int32Array
    annotations: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.annotation_index) - 1


class MemoryReadings(Arrays):
    """Bytes that allocators held after each of k calls that changed them, by time.

    `thread_index` called; `device_number` is ABSENT for the host. Allocated are bytes in tensors,
    reserved those taken from the GPU.
    """

    time_ns: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    thread_index: Int32Array = field(default_factory=lambda: np.zeros(0, np.int32))
    device_number: Int32Array = field(default_factory=lambda: np.zeros(0, np.int32))
    allocated_bytes: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    reserved_bytes: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.time_ns)


class OperatorInputs(Arrays):
    """Inputs of each of k operators that multiply, where the profiler recorded shapes.

    The last row is ABSENT. `text_index`, int32[k + 1], is into `texts`: JSON as the file has it, of
    each input its shape, its type and its value: ``[[[2, 3], [3, 4]], ["float", "float"], ["",
    ""]]``.
    """

    text_index: Int32Array = field(default_factory=lambda: np.array([ABSENT], np.int32))
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.text_index) - 1


# Reads the "args" of a few events from the file, by event id.
ReadArguments = Callable[[Iterable[int]], Mapping[int, Mapping[str, Any]]]


class Category(IntEnum):
    """Category of an event, whatever the profiler's version called it."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    RUNTIME = 3  # a CUDA or HIP runtime call on the host
    DRIVER = 4  # a CUDA driver call on the host
    OPERATOR = 5
    PYTHON = 6
    ANNOTATION = 7  # a region that the user or a library named, on the host
    GPU_ANNOTATION = 8
    SYNC = 9  # CUPTI's record of what a synchronization or a stream wait waits for
    CUDA_EVENT = 10  # CUPTI's record of an event reached on the GPU
    OVERHEAD = 11
    OTHER = 12
    GRAPH_EVENT_NODE = 13  # a CUDA event that a node of a CUDA graph recorded
    GRAPH_HOST_NODE = 14  # a host function that ran as a node of a CUDA graph


GPU_ACTIVITIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
HOST_CALLS = (Category.RUNTIME, Category.DRIVER)
# PyTorch's operator around a collective, which says what the collective moves.
COLLECTIVE_OPERATOR = "record_param_comms"


class Thread(Record):
    """A thread as the file names it: ids in text, because some files use words; "" for no name."""

    process: str
    thread: str
    name: str


class SparseColumn(Arrays):
    """Integers that few events have, read like an array of one per event.

    `value_index`, int32[n], is into `values`, whose last one is ABSENT.
    """

    value_index: Int32Array
    values: NDArray[np.signedinteger[Any]]

    def __len__(self) -> int:
        return len(self.value_index)

    def __getitem__(self, event_ids: Any) -> Any:  # as many forms as an array's
        return self.values[self.value_index[event_ids]]

    def __eq__(self, other: object) -> BoolArray:  # type: ignore[override]
        return np.asarray(self[:] == other)

    def __ne__(self, other: object) -> BoolArray:  # type: ignore[override]
        return np.asarray(self[:] != other)

    __hash__ = None  # type: ignore[assignment]  # as an array's

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


class Trace(Arrays, dict=True):
    """One file's complete events, in the file's order; every array is read-only.

    Device, stream and CUDA event are sparse columns. Times are ns since the first event.

    Attributes:
        origin_ns: the first event's time in the file's own clock.
        start_ns, duration_ns: int64[n]; no duration is negative.
        category: int8[n], a `Category`.
        name_index, thread_index: int32[n], into `strings` and `threads`.
        device_number: int32[n], of GPU activities, syncs, CUDA events and nodes of graphs.
        stream_number: int64[n], of the same.
        correlation: int64[n], shared by a host call and what it put on the GPU.
        wait_stream_number, wait_correlation: int64[n], of syncs, the stream waited for, and the
            correlation of the event record.
        cuda_event_number: int64[n], the CUDA event of a sync or a record; reused over time.
        copied_bytes: int64[n], of copies and memsets.
        occupancy_percent: int8[n], of kernels, as the profiler estimates it; 0 where it does not,
            as of kernels with much shared memory.
        message_row, graph_node_row, operator_input_row: int32[n], the row of `messages`,
            `graph_nodes` or `operator_inputs`.
        file_index: int32[n], the event's index in the file's array of events.
        metadata: all that the file says beside its events, as it is written there.
        objects: events of every phase that the file holds, read or not.
        losses: what could not be used: a count by the names in `tracelab.model.losses.LOSSES`.
        loss_names: of some losses a count by the file's own name for it.
        unknown_gpu_ns: GPU time of "unknown_categories", by name and device.
    """

    path: str
    origin_ns: int
    start_ns: Int64Array
    duration_ns: Int64Array
    category: Int8Array
    name_index: Int32Array
    thread_index: Int32Array
    device_number: SparseColumn
    stream_number: SparseColumn
    correlation: SparseColumn
    wait_stream_number: SparseColumn
    wait_correlation: SparseColumn
    cuda_event_number: SparseColumn
    copied_bytes: SparseColumn
    message_row: SparseColumn
    graph_node_row: SparseColumn
    operator_input_row: SparseColumn
    occupancy_percent: SparseColumn
    file_index: Int32Array
    messages: Messages
    graph_nodes: GraphNodes
    strings: tuple[str, ...]
    threads: tuple[Thread, ...]
    metadata: Mapping[str, Any]
    objects: int
    losses: Mapping[str, int]
    loss_names: Mapping[str, Mapping[str, int]]
    info: FileInfo = field(default_factory=FileInfo)
    memory: MemoryReadings = field(default_factory=MemoryReadings)
    operator_inputs: OperatorInputs = field(default_factory=OperatorInputs)
    unknown_gpu_ns: Mapping[str, Mapping[int, int]] = MappingProxyType({})

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64Array:
        """int64[n], the first nanosecond after each event."""
        return read_only(self.start_ns + self.duration_ns)

    def name_of(self, event_id: int) -> str:
        """The name of one event."""
        return self.strings[int(self.name_index[event_id])]

    def of_category(self, *categories: Category) -> IndexArray:
        """Ids of the events of these categories, ascending."""
        by_category, first = self._ids_by_category
        parts = [by_category[first[x] : first[x + 1]] for x in categories]
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts), kind="stable")

    @cached_property
    def _ids_by_category(self) -> tuple[IndexArray, list[int]]:
        """Ids of all events by category, ascending, and the place of the first of each one."""
        ids = read_only(np.argsort(self.category, kind="stable"))
        return ids, np.searchsorted(self.category[ids], range(len(Category) + 1)).tolist()

    @property
    def activities(self) -> IndexArray:
        """Ids of the GPU activities, ascending."""
        return read_only(self.of_category(*GPU_ACTIVITIES))
