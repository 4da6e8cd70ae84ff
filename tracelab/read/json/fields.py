"""Fields of an event that are used, and the columns of a `Trace` that they become."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from tracelab.base.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from tracelab.model.operator_flops import PRODUCTS
from tracelab.model.trace import (
    ABSENT,
    COLLECTIVE_OPERATOR,
    GPU_ACTIVITIES,
    HOST_CALLS,
    Category,
    GraphNodes,
    GroupText,
    MemoryReadings,
    Messages,
    OperatorInputs,
)
from tracelab.read.json.numbers import Number, nanoseconds, natural_numbers

GRAPH_NODE = "graph node id"  # a key of arguments that only nodes of graphs have
_NOTHING = msgspec.Raw(b"null")
_MAX_INPUT_LETTERS = 4_096  # a convolution's take 500


class Arguments(msgspec.Struct, gc=False):
    """Used part of an event's "args"; as written, for old files have some as text."""

    correlation: Number = ABSENT
    stream: Number = ABSENT
    device: Number = ABSENT
    inDevice: Number = ABSENT  # noqa: N815  the file's name for it
    wait_on_stream: Number = ABSENT
    wait_on_cuda_event_record_corr_id: Number = ABSENT
    wait_on_cuda_event_id: Number = ABSENT
    event_id: Number = ABSENT
    bytes: Number = ABSENT
    sycl_queue: Number = msgspec.field(default=ABSENT, name="sycl queue")
    # Of a communication operation: its name at first, and then a `MessageArguments`.
    message: Any = msgspec.field(default=None, name="Collective name")
    # Of a node of a CUDA graph: its number at first, and then a `NodeArguments`.
    node: Any = msgspec.field(default=None, name=GRAPH_NODE)
    # Of a reading of an allocator: what is allocated at first, and then a `MemoryArguments`.
    memory: Any = msgspec.field(default=None, name="Total Allocated")
    occupancy: Number = msgspec.field(default=ABSENT, name="est. achieved occupancy %")
    # Of an operator, as they are written: to decode them all would take longer than the rest.
    shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    values: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")
    name: Any = None  # of a thread

    @property
    def inputs(self) -> str:
        """JSON of shapes, types and values of an operator's inputs; "" without shapes."""
        texts = list(map(bytes, (self.shapes, self.types, self.values)))
        if self.shapes is _NOTHING or sum(map(len, texts)) > _MAX_INPUT_LETTERS:
            return ""
        return f"[{b','.join(texts).decode(errors='replace')}]"


class MessageArguments(msgspec.Struct, gc=False):
    """Further "args" of a communication operation, apart so that others decode faster."""

    value: Any = msgspec.field(default="", name="Collective name")
    group: Any = msgspec.field(default="", name="Process Group Name")
    group_ranks: Any = msgspec.field(default="", name="Process Group Ranks")
    group_size: Any = msgspec.field(default=ABSENT, name="Group size")
    first_rank: Any = msgspec.field(default=ABSENT, name="Global rank start")
    rank_stride: Any = msgspec.field(default=ABSENT, name="Global rank stride")
    sequence: Any = msgspec.field(default=ABSENT, name="Seq")
    source: Any = msgspec.field(default=ABSENT, name="Src Rank")
    destination: Any = msgspec.field(default=ABSENT, name="Dst Rank")
    in_elements: Any = msgspec.field(default=ABSENT, name="In msg nelems")
    out_elements: Any = msgspec.field(default=ABSENT, name="Out msg nelems")
    dtype: Any = ""


class MemoryArguments(msgspec.Struct, gc=False):
    """Further used "args" of a reading of an allocator."""

    value: Any = msgspec.field(default=ABSENT, name="Total Allocated")
    reserved: Any = msgspec.field(default=ABSENT, name="Total Reserved")
    device: Any = msgspec.field(default=ABSENT, name="Device Id")


class NodeArguments(msgspec.Struct, gc=False):
    """Further used "args" of a node of a CUDA graph."""

    annotation: str


class Event(msgspec.Struct, gc=False):
    """Used part of an event; decoding into it skips the rest of the text."""

    ph: str = ""
    cat: str = ""
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Number = None
    dur: Number = None
    id: Any = None  # of a flow: both of its ends have it
    args: Arguments | None = None


# Further arguments, by the field that holds them: at first it has the first of them alone.
FURTHER: Mapping[str, type[list[Any]]] = MappingProxyType(
    {"message": list[MessageArguments], "memory": list[MemoryArguments]}
)


def is_one_of(*categories: Category) -> BoolArray:
    """Flags to be indexed by a column of categories."""
    return np.isin(np.arange(len(Category)), categories)


IS_GPU_ACTIVITY = is_one_of(*GPU_ACTIVITIES)
_IS_COPY = is_one_of(Category.MEMCPY, Category.MEMSET)
_IS_SYNC = is_one_of(Category.SYNC, Category.CUDA_EVENT)
_IS_NODE = IS_GPU_ACTIVITY | is_one_of(Category.GRAPH_EVENT_NODE, Category.GRAPH_HOST_NODE)
_IS_ON_DEVICE = _IS_NODE | _IS_SYNC
HAS_ARGUMENTS = _IS_ON_DEVICE | is_one_of(*HOST_CALLS)

_NO_ARGUMENTS = Arguments()


class _Field(NamedTuple):
    column: str
    has_column: BoolArray  # bool[len(Category)]
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
    _Field("occupancy_percent", is_one_of(Category.KERNEL), True, "occupancy"),
)


# A number that does not fit is not one.
_NARROW: Mapping[str, type[np.signedinteger[Any]]] = MappingProxyType(
    {"device_number": np.int32, "occupancy_percent": np.int8}
)


def sparse_columns(events: list[Event], category: Int8Array) -> dict[str, NDArray[Any]]:
    """The sparse columns of a trace, by the names of `Trace`'s fields; or `ABSENT`."""
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
    narrow: dict[str, NDArray[Any]] = {}
    for name, dtype in _NARROW.items():
        fits = columns[name] <= np.iinfo(dtype).max
        narrow[name] = np.where(fits, columns[name], ABSENT).astype(dtype)
    return columns | narrow


def merged_arguments(begin: Arguments | None, end: Arguments | None) -> Arguments | None:
    """The arguments of a begin event with those that its end event has beside or instead."""
    if begin is None or end is None:
        return begin or end
    pairs = zip(astuple(begin), astuple(end), strict=True)
    return Arguments(*[old if new in (ABSENT, None, _NOTHING) else new for old, new in pairs])


# Bytes of an element by PyTorch's name of its type.
_BYTES_OF_TYPE: Mapping[str, int] = {
    **dict.fromkeys(("Bool", "Byte", "Char", "QInt8", "QUInt8"), 1),
    **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fn", "e5m2", "e8m0fnu")), 1),
    **dict.fromkeys((f"Float8_{layout}" for layout in ("e4m3fnuz", "e5m2fnuz")), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short", "UInt16"), 2),
    **dict.fromkeys(("ComplexHalf", "Float", "Int", "QInt32", "UInt32"), 4),
    **dict.fromkeys(("ComplexFloat", "Double", "Long", "UInt64"), 8),
    "ComplexDouble": 16,
}


class KeyTable(dict[Any, int]):
    """Numbers keys in order of appearance; keys of the same text have the same number."""

    def __init__(self, text: Callable[[Any], Hashable]) -> None:
        super().__init__()
        self._text = text
        self.rows: dict[Any, int] = {}

    def __missing__(self, key: Any) -> int:
        index = self[key] = self.rows.setdefault(self._text(key), len(self.rows))
        return index

    def indices(self, keys: Collection[Hashable]) -> Int32Array:
        """The number of each key."""
        return np.fromiter(map(self.__getitem__, keys), dtype=np.int32, count=len(keys))


class Table:
    """Columns to which pieces are appended; `keys` are those of the columns that number keys."""

    def __init__(self, **keys: KeyTable) -> None:
        self.keys = keys
        self._bytes: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def __len__(self) -> int:
        name, dtype = next(iter(self._dtypes.items()))
        return len(self._bytes[name]) // dtype.itemsize

    def append(self, piece: Mapping[str, NDArray[Any]]) -> None:
        """Append a piece of each column."""
        for name, column in piece.items():
            self._dtypes[name] = column.dtype
            self._bytes[name] += column.data

    def extend(self, following: Table, **offsets: int) -> None:
        """Append what follows in the file, with its keys numbered as here and offsets added."""
        columns = following.arrays()
        for name, table in self.keys.items():
            new_index = np.append(table.indices(following.keys[name].rows), np.int32(ABSENT))
            columns[name] = new_index[columns[name]]  # the last is ABSENT's
        for name, offset in offsets.items():
            number = columns[name]
            columns[name] = np.where(number == ABSENT, number, number + number.dtype.type(offset))
        self.append(columns)

    def append_absent(self) -> None:
        """Append a row of nothing but `ABSENT`."""
        for name, dtype in self._dtypes.items():
            self._bytes[name] += np.array(ABSENT, dtype).tobytes()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns; nothing can be appended as long as one of them lives."""
        return {
            name: np.frombuffer(self._bytes[name], dtype) for name, dtype in self._dtypes.items()
        }


class TableType(NamedTuple):
    """A table of a `Trace`: rows of the events that have arguments of one sort.

    Attributes:
        type: its class; where a column "x_index" numbers keys, "xs" lists them.
        field: the field of `Arguments` that holds them.
        may_have: [len(Category)], the categories whose events may have them.
        columns_of: makes columns of the arguments and the keys.
        keys: of a column that numbers keys, their text.
    """

    type: type[Any]
    field: str
    may_have: BoolArray
    operators: Collection[str]
    columns_of: Callable[[list[Any], Mapping[str, KeyTable]], dict[str, NDArray[Any]]]
    keys: Mapping[str, Callable[[Any], Hashable]]


class ArgumentTable(Table):
    """Rows of one type of table."""

    def __init__(self, of: TableType) -> None:
        super().__init__(**{column: KeyTable(text) for column, text in of.keys.items()})
        self._of = of
        self.append(of.columns_of([], self.keys))

    def add(self, events: list[Event], category: Int8Array) -> Int32Array:
        """The new row of each event that has arguments, else ABSENT."""
        value_of, operators = attrgetter(self._of.field), self._of.operators
        is_operator = (category == Category.OPERATOR).tolist()
        found = [
            (i, value)
            for i in np.flatnonzero(self._of.may_have[category]).tolist()
            if (not is_operator[i] or events[i].name in operators)
            and (arguments := events[i].args) is not None
            and (value := value_of(arguments))
        ]
        row = np.full(len(events), ABSENT, dtype=np.int32)
        if found:
            row[[i for i, _ in found]] = len(self) + np.arange(len(found))
            self.append(self._of.columns_of([value for _, value in found], self.keys))
        return row

    def finish(self) -> Any:
        """The table as the trace has it; its last row is that of events without one."""
        self.append_absent()
        keys = {f"{name.removesuffix('_index')}s": tuple(x.rows) for name, x in self.keys.items()}
        return self._of.type(**self.arrays(), **keys)


class MomentType(NamedTuple):
    """A table of moments of a `Trace`: its class, the field of `Arguments`, its further columns."""

    type: type[Any]
    field: str
    columns_of: Callable[[list[Any]], dict[str, NDArray[Any]]]


class MomentTable(Table):
    """Rows of moments, which are no events of a trace, with their times and threads."""

    def __init__(self, of: MomentType, threads: KeyTable) -> None:
        super().__init__(thread_index=threads)
        self._of = of
        self.add([])

    def add(self, events: list[Event]) -> None:
        """Add the moments that have arguments and a time."""
        value_of = attrgetter(self._of.field)
        found = [x for x in events if x.args is not None and value_of(x.args) is not None]
        time_ns, is_time = nanoseconds([event.ts for event in found])
        columns = self._of.columns_of([value_of(event.args) for event in found])
        columns |= {
            "time_ns": time_ns,
            "thread_index": self.keys["thread_index"].indices([(x.pid, x.tid) for x in found]),
        }
        self.append({name: column[is_time] for name, column in columns.items()})

    def finish(self, origin_ns: int) -> Any:
        """The table as the trace has it, by time, in ns since `origin_ns`."""
        columns = self.arrays()
        order = np.argsort(columns["time_ns"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        return self._of.type(**columns | {"time_ns": columns["time_ns"] - origin_ns})


def _message_columns(
    messages: list[MessageArguments], keys: Mapping[str, KeyTable]
) -> dict[str, NDArray[Any]]:
    def numbers(field: str) -> Int64Array:
        return natural_numbers(list(map(attrgetter(field), messages)))

    def texts(field: str) -> list[str]:
        return list(map(str, map(attrgetter(field), messages)))

    group_numbers = (numbers(x).tolist() for x in ("group_size", "first_rank", "rank_stride"))
    groups = zip(texts("group"), texts("group_ranks"), *group_numbers, strict=True)
    source, destination = numbers("source"), numbers("destination")
    bytes_of_one = np.array([_BYTES_OF_TYPE.get(x, 0) for x in texts("dtype")], dtype=np.int64)
    return {
        "name_index": keys["name_index"].indices(texts("value")),
        "group_index": keys["group_index"].indices(list(groups)),
        "sequence": numbers("sequence"),
        "peer_rank": np.where(source == ABSENT, destination, source),
        "in_bytes": _bytes(numbers("in_elements"), bytes_of_one),
        "out_bytes": _bytes(numbers("out_elements"), bytes_of_one),
    }


def _node_columns(
    nodes: list[NodeArguments], keys: Mapping[str, KeyTable]
) -> dict[str, NDArray[Any]]:
    numbers = keys["annotation_index"]
    index = [numbers[node.annotation] if node.annotation else ABSENT for node in nodes]
    return {"annotation_index": np.array(index, dtype=np.int32)}


def _memory_columns(readings: list[MemoryArguments]) -> dict[str, NDArray[Any]]:
    def numbers(field: str) -> Int64Array:
        return natural_numbers(list(map(attrgetter(field), readings)))

    device = numbers("device")
    return {
        "device_number": np.where(device < 2**31, device, ABSENT).astype(np.int32),
        "allocated_bytes": numbers("value"),
        "reserved_bytes": numbers("reserved"),
    }


def _input_columns(inputs: list[str], keys: Mapping[str, KeyTable]) -> dict[str, NDArray[Any]]:
    return {"text_index": keys["text_index"].indices(inputs)}


def _bytes(elements: Int64Array, bytes_of_one: Int64Array) -> Int64Array:
    most = np.iinfo(np.int64).max // np.maximum(bytes_of_one, 1)
    is_known = (bytes_of_one > 0) & (elements != ABSENT) & (elements <= most)
    return np.where(is_known, np.where(is_known, elements, 0) * bytes_of_one, ABSENT)


TABLES: Mapping[str, TableType] = MappingProxyType(
    {
        "messages": TableType(
            Messages,
            "message",
            is_one_of(Category.KERNEL, Category.OPERATOR),
            (COLLECTIVE_OPERATOR,),
            _message_columns,
            {"name_index": str, "group_index": GroupText._make},
        ),
        "graph_nodes": TableType(
            GraphNodes, "node", _IS_NODE, (), _node_columns, {"annotation_index": str}
        ),
        "operator_inputs": TableType(
            OperatorInputs,
            "inputs",
            is_one_of(Category.OPERATOR),
            frozenset(PRODUCTS),
            _input_columns,
            {"text_index": str},
        ),
    }
)
MOMENTS: Mapping[str, MomentType] = MappingProxyType(
    {"memory": MomentType(MemoryReadings, "memory", _memory_columns)}
)
OPERATORS_WITH_ARGUMENTS = frozenset(name for of in TABLES.values() for name in of.operators)


def row_column(table: str) -> str:
    """Name the column of a trace that has each event's row in a table."""
    return f"{table.removesuffix('s')}_row"
