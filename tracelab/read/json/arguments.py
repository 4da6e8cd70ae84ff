"""The columns that come from the arguments of events: where they ran, and what belongs to them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category
from tracelab.read.json.events import Arguments, Event
from tracelab.read.json.numbers import natural_numbers


def is_one_of(*categories: Category) -> NDArray[np.bool_]:
    """bool[len(Category)], to be indexed by a column of categories."""
    return np.isin(np.arange(len(Category)), categories)


IS_GPU_ACTIVITY = is_one_of(*GPU_ACTIVITIES)
_IS_COPY = is_one_of(Category.MEMCPY, Category.MEMSET)
_IS_SYNC = is_one_of(Category.SYNC, Category.CUDA_EVENT)
# What can be a node of a CUDA graph.
IS_NODE = IS_GPU_ACTIVITY | is_one_of(Category.GRAPH_EVENT_NODE, Category.GRAPH_HOST_NODE)
_IS_ON_DEVICE = IS_NODE | _IS_SYNC
HAS_ARGUMENTS = _IS_ON_DEVICE | is_one_of(*HOST_CALLS)

_NO_ARGUMENTS = Arguments()


class _Field(NamedTuple):
    """Where a column's value stands in an event."""

    column: str
    has_column: NDArray[np.bool_]  # bool[len(Category)]
    in_arguments: bool  # else in the event itself
    key: str


# A column's later keys stand in for an earlier one that is absent.
_FIELDS = (
    _Field("correlation", HAS_ARGUMENTS, True, "correlation"),
    _Field("stream_number", _IS_ON_DEVICE, True, "stream"),
    # Intel's streams are queues of SYCL.
    _Field("stream_number", IS_GPU_ACTIVITY, True, "sycl_queue"),
    _Field("device_number", _IS_ON_DEVICE, True, "device"),
    # A peer copy has no "device": this one's engine copies.
    _Field("device_number", IS_GPU_ACTIVITY, True, "inDevice"),
    # Old files tell where a GPU activity ran only by the row that they draw it in.
    _Field("stream_number", IS_GPU_ACTIVITY, False, "tid"),
    _Field("device_number", IS_GPU_ACTIVITY, False, "pid"),
    _Field("wait_stream_number", _IS_SYNC, True, "wait_on_stream"),
    _Field("wait_correlation", _IS_SYNC, True, "wait_on_cuda_event_record_corr_id"),
    _Field("cuda_event_number", _IS_SYNC, True, "wait_on_cuda_event_id"),
    _Field("cuda_event_number", _IS_SYNC, True, "event_id"),
    _Field("copied_bytes", _IS_COPY, True, "bytes"),
)


def argument_columns(events: list[Event], category: NDArray[np.int8]) -> dict[str, NDArray[Any]]:
    """The sparse columns of a trace, by the names of `Trace`'s fields.

    Args:
        events: GPU activities, syncs, CUDA events and host calls.
        category: int8[n], their categories.

    Returns:
        int64[n] for each name, but int32[n] for the device; `ABSENT` where the file does not say.
    """
    arguments = [event.args or _NO_ARGUMENTS for event in events]
    columns = {field.column: np.full(len(events), ABSENT, dtype=np.int64) for field in _FIELDS}
    for field in _FIELDS:
        values = columns[field.column]
        indices = np.flatnonzero(field.has_column[category] & (values == ABSENT))
        if not len(indices):
            continue
        holders: list[Any] = arguments if field.in_arguments else events
        chosen = map(holders.__getitem__, indices.tolist())
        values[indices] = natural_numbers(list(map(attrgetter(field.key), chosen)))
    columns["device_number"][columns["device_number"] >= 2**31] = ABSENT
    return {**columns, "device_number": columns["device_number"].astype(np.int32)}


def merged_arguments(begin: Arguments | None, end: Arguments | None) -> Arguments | None:
    """The arguments of a begin event with those that its end event has beside or instead.

    >>> merged = merged_arguments(Arguments(stream=7), Arguments(correlation=3))
    >>> merged.stream, merged.correlation
    (7, 3)
    """
    if begin is None or end is None:
        return begin or end
    pairs = zip(astuple(begin), astuple(end), strict=True)
    return Arguments(*[old if new in (ABSENT, None) else new for old, new in pairs])
