"""Columns that come from the arguments of events: where they ran, and their communication."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from tracelab.model.trace import ABSENT, GPU_ACTIVITIES, HOST_CALLS, Category, GroupText, Messages
from tracelab.read.json.buffers import ColumnBuffers, KeyTable
from tracelab.read.json.events import Arguments, Event, MessageArguments
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
    """Position of a column's value in an event."""

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
        sources: list[Any] = arguments if field.in_arguments else events
        chosen = map(sources.__getitem__, indices.tolist())
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


_MAY_COMMUNICATE = is_one_of(Category.KERNEL, Category.OPERATOR)


class _Bytes(dict[str, int]):
    """Bytes of an element by PyTorch's name of its type; 0 for other names."""

    def __missing__(self, name: str) -> int:
        return 0


_BYTES_OF_TYPE = _Bytes(
    {
        **dict.fromkeys(("Bool", "Byte", "Char", "QInt8", "QUInt8"), 1),
        **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fn", "e5m2", "e8m0fnu")), 1),
        **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fnuz", "e5m2fnuz")), 1),
        **dict.fromkeys(("BFloat16", "Half", "Short", "UInt16"), 2),
        **dict.fromkeys(("ComplexHalf", "Float", "Int", "QInt32", "UInt32"), 4),
        **dict.fromkeys(("ComplexFloat", "Double", "Long", "UInt64"), 8),
        "ComplexDouble": 16,
    }
)
_NUMBERS = (
    "group_size",
    "first_rank",
    "rank_stride",
    "sequence",
    "source",
    "destination",
    "in_elements",
    "out_elements",
)


class MessageBuffers:
    """Collects the rows of a `Messages` from pieces of a file.

    >>> from tracelab.read.json.events import decode
    >>> buffers = MessageBuffers()
    >>> args = b'{"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Half"}'
    >>> events = decode(b'[{"ph": "X", "args": %b}, {"ph": "X"}]' % args)
    >>> buffers.add(events, np.full(2, Category.KERNEL)).tolist()
    [0, -1]
    >>> messages = buffers.finish()
    >>> messages.names, messages.in_bytes.tolist()
    (('allreduce',), [16, -1])
    """

    def __init__(self) -> None:
        self._names = KeyTable(str)
        self._groups = KeyTable(GroupText._make)
        self._rows = ColumnBuffers()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, events: list[Event], category: NDArray[np.int8]) -> NDArray[np.int32]:
        """Take the rows of these events.

        Args:
            events: any.
            category: int8[n], their categories.

        Returns:
            int32[n], each event's row, ABSENT for those without one.
        """
        row = np.full(len(events), ABSENT, dtype=np.int32)
        chosen = np.flatnonzero(_MAY_COMMUNICATE[category]).tolist()
        messages = [
            None if (arguments := events[i].args) is None else arguments.message for i in chosen
        ]
        chosen = [i for i, message in zip(chosen, messages, strict=True) if message]
        if chosen:
            row[chosen] = np.arange(self._count, self._count + len(chosen))
            self._count += len(chosen)
            self._rows.append(self._columns(list(filter(None, messages))))
        return row

    def add_all(self, following: MessageBuffers) -> None:
        """Take the rows of what follows in the file; they come after all that are here."""
        rows = following._rows.arrays()
        if not rows:
            return
        for name, table, keys in (
            ("name_index", self._names, following._names.rows),
            ("group_index", self._groups, following._groups.rows),
        ):
            new_index = np.append(table.indices(keys), np.int32(ABSENT))
            rows[name] = new_index[rows[name]]
        self._rows.append(rows)
        self._count += following._count

    def finish(self) -> Messages:
        """All the rows; afterward nothing can be added."""
        if not self._count:
            self._rows.append(self._columns([]))
        self._rows.append_absent()
        columns: dict[str, Any] = self._rows.arrays()
        return Messages(**columns, names=tuple(self._names.rows), groups=tuple(self._groups.rows))

    def _columns(self, arguments: list[MessageArguments]) -> dict[str, NDArray[Any]]:
        names, types, groups, ranks = (
            list(map(str, map(attrgetter(field), arguments)))
            for field in ("collective", "dtype", "group", "group_ranks")
        )
        size, first_rank, stride, sequence, source, destination, elements_in, elements_out = (
            natural_numbers(list(map(attrgetter(field), arguments))) for field in _NUMBERS
        )
        bytes_of_one = np.fromiter(map(_BYTES_OF_TYPE.__getitem__, types), np.int64, len(types))
        group_keys = zip(
            groups, ranks, size.tolist(), first_rank.tolist(), stride.tolist(), strict=True
        )
        return {
            "name_index": self._names.indices(names),
            "group_index": self._groups.indices(list(group_keys)),
            "sequence": sequence,
            "peer_rank": np.where(source == ABSENT, destination, source),
            "in_bytes": _bytes(elements_in, bytes_of_one),
            "out_bytes": _bytes(elements_out, bytes_of_one),
        }


def _bytes(elements: NDArray[np.int64], bytes_of_one: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[k], bytes of that many elements, ABSENT where they are not known."""
    most = np.iinfo(np.int64).max // np.maximum(bytes_of_one, 1)
    is_known = (bytes_of_one > 0) & (elements != ABSENT) & (elements <= most)
    return np.where(is_known, np.where(is_known, elements, 0) * bytes_of_one, ABSENT)
