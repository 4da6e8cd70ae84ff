"""A trace as the bytes of a cache entry, and back.

First comes a fixed begin, then a header in JSON, then the columns as they are in memory, each of
them aligned; checksums are kept of the header and of each column.
"""

from __future__ import annotations

import mmap
from dataclasses import astuple, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tracelab.model.graph_nodes import GraphNodes
from tracelab.model.messages import GroupText, Messages
from tracelab.model.trace import SparseColumn, Thread, Trace
from tracelab.read.json.metadata import read_file_info, used_devices
from tracelab.read.streams import Source, fast_zlib

_BEGIN = np.dtype([("magic", "S8"), ("header_bytes", "<u8"), ("checksum", "<u8")])
_MAGIC = b"tracelab"
_ALIGNMENT = 64
# Before the names of the columns of `Trace.messages` and `Trace.graph_nodes`.
_MESSAGES, _NODES = "messages.", "graph_nodes."


def trace_as_blocks(trace: Trace, digest: str) -> list[bytes | memoryview]:
    """The bytes of an entry in blocks, those of large columns without a copy.

    Args:
        trace: what is kept.
        digest: what tells the content of the file that it was read from.

    Raises:
        orjson.JSONEncodeError: the file's metadata nests too deep to be written.
    """
    values = {field.name: getattr(trace, field.name) for field in fields(Trace)}
    sparse = {name: value for name, value in values.items() if isinstance(value, SparseColumn)}
    values |= {name: column.values for name, column in sparse.items()}
    values["value_index"] = next(iter(sparse.values())).value_index  # of all of them
    of_tables = {
        f"{prefix}{field.name}": getattr(table, field.name)
        for prefix, table in ((_MESSAGES, trace.messages), (_NODES, trace.graph_nodes))
        for field in fields(table)
    }
    arrays: dict[str, NDArray[Any]] = {
        name: value for name, value in (of_tables | values).items() if isinstance(value, np.ndarray)
    }
    columns, offset = [], 0
    for name, array in arrays.items():
        checksum = fast_zlib.crc32(array)
        columns.append((name, array.dtype.str, len(array), offset, checksum))
        offset = _aligned(offset + array.nbytes)
    header = orjson.dumps(
        {
            "digest": digest,
            "columns": columns,
            "column_bytes": offset,
            "sparse": list(sparse),
            "origin_ns": trace.origin_ns,
            "message_names": trace.messages.names,
            "message_groups": list(map(tuple, trace.messages.groups)),
            "annotations": trace.graph_nodes.annotations,
            "strings": trace.strings,
            "threads": [astuple(thread) for thread in trace.threads],
            "metadata": dict(trace.metadata),
            "objects": trace.objects,
            "losses": dict(trace.losses),
            "loss_names": {loss: dict(names) for loss, names in trace.loss_names.items()},
            "unknown_gpu_ns": [
                (name, list(of_name.items())) for name, of_name in trace.unknown_gpu_ns.items()
            ],
            "platform": trace.info.platform,
        }
    )
    begin = np.array([(_MAGIC, len(header), fast_zlib.crc32(header))], _BEGIN).tobytes()
    blocks: list[bytes | memoryview] = [begin + header, _padding(len(begin) + len(header))]
    for array in arrays.values():
        blocks += [array.data.cast("B"), _padding(array.nbytes)]
    return blocks


def trace_from_bytes(data: mmap.mmap, digest: str, source: Source) -> Trace | None:
    """The trace of an entry, with columns that are views of its bytes.

    Args:
        data: the entry.
        digest: what tells the content of the file.
        source: the file.

    Returns:
        the trace; None if the entry is damaged, or is of another file.
    """
    if len(data) < _BEGIN.itemsize:
        return None
    begin = np.frombuffer(data, _BEGIN, 1)[0]
    end = _BEGIN.itemsize + int(begin["header_bytes"])
    text = data[_BEGIN.itemsize : end]
    if begin["magic"] != _MAGIC or begin["checksum"] != fast_zlib.crc32(text):
        return None
    header = orjson.loads(text)
    columns_begin = _aligned(end)
    if header["digest"] != digest or len(data) != columns_begin + header["column_bytes"]:
        return None
    columns: dict[str, Any] = {}
    for name, dtype, count, offset, checksum in header["columns"]:
        columns[name] = np.frombuffer(data, dtype, count, columns_begin + offset)
        if fast_zlib.crc32(columns[name]) != checksum:
            return None

    def columns_of(prefix: str) -> dict[str, Any]:
        names = [name for name in columns if name.startswith(prefix)]
        return {name.removeprefix(prefix): columns.pop(name) for name in names}

    messages = Messages(
        **columns_of(_MESSAGES),
        names=tuple(header["message_names"]),
        groups=tuple(map(GroupText._make, header["message_groups"])),
    )
    graph_nodes = GraphNodes(**columns_of(_NODES), annotations=tuple(header["annotations"]))
    value_index = columns.pop("value_index")
    for name in header["sparse"]:
        columns[name] = SparseColumn(value_index, columns[name])
    return Trace(
        path=source.path,
        origin_ns=header["origin_ns"],
        **columns,
        messages=messages,
        graph_nodes=graph_nodes,
        strings=tuple(header["strings"]),
        threads=tuple(Thread(*thread) for thread in header["threads"]),
        metadata=MappingProxyType(header["metadata"]),
        objects=header["objects"],
        losses=MappingProxyType(header["losses"]),
        loss_names=MappingProxyType(
            {loss: MappingProxyType(names) for loss, names in header["loss_names"].items()}
        ),
        info=read_file_info(
            header["metadata"],
            source,
            header["platform"],
            used_devices(columns["category"], columns["device_number"]),
        ),
        unknown_gpu_ns=MappingProxyType(
            {name: MappingProxyType(dict(of_name)) for name, of_name in header["unknown_gpu_ns"]}
        ),
    )


def _padding(byte_count: int) -> bytes:
    """What makes so many bytes end at an aligned offset."""
    return bytes(_aligned(byte_count) - byte_count)


def _aligned(offset: int) -> int:
    """The first aligned offset that is not before this one.

    >>> _aligned(64), _aligned(65)
    (64, 128)
    """
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
