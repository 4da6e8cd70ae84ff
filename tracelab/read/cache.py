"""Traces that were read before: their columns, kept in the user's cache folder.

A file is known by its content, so that a copy under another name is the same and one that was
written again is not. An entry is one file (`tracelab.read.cache`). It is written under
another name and then renamed, so that processes that race see all of it or nothing.
"""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from dataclasses import astuple, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tracelab.base.arrays import dataclass
from tracelab.base.errors import OutputError, reason_of
from tracelab.base.version import __version__
from tracelab.model.trace import GraphNodes, GroupText, Messages, SparseColumn, Thread, Trace
from tracelab.read.json.metadata import read_file_info, used_devices
from tracelab.read.reader import read_trace_in_chunks
from tracelab.read.streams import Source, fast_zlib, report_read
from tracelab.system.files import replacing
from tracelab.system.processes import processors

# A smaller file is read again in a few milliseconds.
MIN_FILE_BYTES = 1 << 20
# The least recently used entries are removed first.
MAX_TOTAL_BYTES = 2 << 30

_BLOCK_BYTES = 1 << 20
_ENDING, _UNFINISHED = ".columns", ".unfinished"
# The process that began to write an older unfinished file has ended.
_MAX_UNFINISHED_S = 3600


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file in the cache folder that holds a trace's columns, or will hold them.

    Example row: ``KeptFile(path=Path("9f2c.columns"), size_bytes=7_340_032, modified_s=1.7e9)``

    Attributes:
        path: the file.
        size_bytes: its size.
        modified_s: when it was written or last used, seconds since the epoch.
    """

    path: Path
    size_bytes: int
    modified_s: float


def load_trace(source: Source, processes: int = 1) -> Trace:
    """Read one file, or open what an earlier look at the same content has left in the cache.

    Only local files of some size are kept. Where the cache cannot be used, it is not.

    Args:
        source: the file.
        processes: how many may read it, if it is huge.

    Raises:
        UnreadableInputError: the file cannot be opened, is not a trace, or holds no complete event.
        MissingSupportError: its URL needs a package that is not installed.
    """
    path = Path(source.path)
    identity = _identity(path)
    if identity is None:
        return read_trace_in_chunks(source, processes)
    digest, state = identity
    entry = folder() / f"{digest}{_ENDING}"
    trace = _open(entry, digest, source)
    if trace is not None:
        report_read(state[0])
    else:
        trace = read_trace_in_chunks(source, processes)
        with suppress(OSError, orjson.JSONEncodeError):  # what orjson reads may nest too deep
            if _state(path) == state:
                _save(trace, entry, digest)
    return trace


def folder() -> Path:
    """The folder of the entries."""
    import platformdirs

    return platformdirs.user_cache_path("tracelab")


def kept_files() -> list[KeptFile]:
    """List what the cache holds; nothing where it has no folder yet, or none that can be read."""
    with suppress(OSError):
        return _kept_in(folder())
    return []


def clear() -> list[KeptFile]:
    """Remove all that the cache holds, and return it. A process that is writing goes without.

    Raises:
        OutputError: a file cannot be removed.
    """
    files = kept_files()
    for file in files:
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"cannot remove {file.path}: {reason_of(error)}") from None
    return files


def _identity(path: Path) -> tuple[str, tuple[int, int]] | None:
    """The digest of a file's content, and its state before; None for what is not to be kept."""
    try:
        state = _state(path)
        if path.is_file() and state[0] >= MIN_FILE_BYTES:
            return _digest(path, state[0]), state
    except OSError:  # its reader says what is wrong
        pass
    return None


def _state(path: Path) -> tuple[int, int]:
    """Size in bytes and time of the last change in ns: differs when it was written meanwhile."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _digest(path: Path, size: int) -> str:
    """A text that is the same for the same content, read by the same version."""
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    def digest_at(offset: int) -> bytes:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return hashlib.sha256(stream.read(_BLOCK_BYTES)).digest()

    with ThreadPoolExecutor(min(8, processors())) as pool:
        blocks = pool.map(digest_at, range(0, size, _BLOCK_BYTES))
        return hashlib.sha256(b"".join((_reader_version(), *blocks))).hexdigest()


@cache
def _reader_version() -> bytes:
    import hashlib

    # A change of any of these may change what is read of the same file.
    package = Path(__file__).parents[1]
    of_columns = [package / "model" / name for name in ("kernel_kinds.py", "trace.py")]
    of_reader = [x for x in (package / "read").rglob("*") if x.suffix in {".py", ".toml"}]
    text = b"".join(file.read_bytes() for file in [*sorted(of_reader), *of_columns])
    return hashlib.sha256(__version__.encode() + text).digest()


def _open(entry: Path, digest: str, source: Source) -> Trace | None:
    """The trace of an entry, mapped into memory; None if it is missing or damaged."""
    try:
        with open(entry, "rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    with suppress(OSError):
        os.utime(entry)
    return trace_from_bytes(data, digest, source)


def _save(trace: Trace, entry: Path, digest: str) -> None:
    """Write an entry, unless it is larger than all may be.

    Raises:
        OSError: the folder cannot be written to.
    """
    blocks = trace_as_blocks(trace, digest)
    size = sum(map(len, blocks))
    if size > MAX_TOTAL_BYTES:
        return
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(entry.parent, size)
    with replacing(entry, _UNFINISHED, is_private=True) as stream:
        stream.writelines(blocks)


def _make_room(folder: Path, size: int) -> None:
    """Remove the entries that were not used for longest, and what crashed processes left."""
    files = sorted(_kept_in(folder), key=lambda file: file.modified_s)
    total = size + sum(file.size_bytes for file in files)
    for file in files:
        is_needless = {
            _ENDING: total > MAX_TOTAL_BYTES,
            _UNFINISHED: time.time() - file.modified_s > _MAX_UNFINISHED_S,
        }
        if is_needless[file.path.suffix]:
            with suppress(OSError):
                file.path.unlink()
                total -= file.size_bytes


def _kept_in(folder: Path) -> list[KeptFile]:
    """The files in a folder that this module wrote, finished or not; others are not touched."""
    files = []
    for path in folder.iterdir():
        if path.suffix in {_ENDING, _UNFINISHED}:
            with suppress(OSError):  # another process was faster
                status = path.stat()
                files.append(KeptFile(path, status.st_size, status.st_mtime))
    return files


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
    """Fill bytes up to an aligned offset."""
    return bytes(_aligned(byte_count) - byte_count)


def _aligned(offset: int) -> int:
    """The first aligned offset that is not before this one.

    >>> _aligned(64), _aligned(65)
    (64, 128)
    """
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
