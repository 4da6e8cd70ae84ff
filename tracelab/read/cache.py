"""Traces that were read before: their columns, kept in the user's cache folder.

A file is known by its content, so that a copy under another name is the same and one that was
written again is not. An entry is one file: a header in JSON, then the columns as they are in
memory, all of it behind checksums. It is written under another name and then renamed, so that
processes that race see all of it or nothing.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tracelab.model.trace import SparseColumn, Thread, Trace
from tracelab.read.metadata import read_file_info
from tracelab.read.parallel import read_trace_in_chunks
from tracelab.read.streams import Source, fast_zlib
from tracelab.system.processes import processors
from tracelab.version import __version__

SMALLEST_FILE_BYTES = 1 << 20  # a smaller one is read again in no time
LARGEST_BYTES = 2 << 30  # of all entries together; the least recently used go first

_BLOCK_BYTES = 1 << 20
_ENDING, _UNFINISHED = ".columns", ".unfinished"
_ABANDONED_S = 3600  # a file that is still being written after so long belongs to no process
_BEGIN = np.dtype([("magic", "S8"), ("header_bytes", "<u8"), ("checksum", "<u8")])
_MAGIC = b"tracelab"
_ALIGNMENT = 64


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
    if trace is None:
        trace = read_trace_in_chunks(source, processes)
        with suppress(OSError, orjson.JSONEncodeError):  # what orjson reads may nest too deep
            if _state(path) == state:
                _save(trace, entry, digest)
    return trace


def folder() -> Path:
    """The folder of the entries."""
    import platformdirs

    return platformdirs.user_cache_path("tracelab")


def _identity(path: Path) -> tuple[str, tuple[int, int]] | None:
    """The digest of a file's content, and its state before; None for what is not to be kept."""
    try:
        state = _state(path)
        if path.is_file() and state[0] >= SMALLEST_FILE_BYTES:
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
    modules = [*sorted((package / "read").glob("*.py")), package / "model" / "trace.py"]
    text = b"".join(module.read_bytes() for module in modules)
    return hashlib.sha256(__version__.encode() + text).digest()


def _open(entry: Path, digest: str, source: Source) -> Trace | None:
    """The trace of an entry, mapped into memory; None if there is none, or it is damaged."""
    try:
        with open(entry, "rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    with suppress(OSError):
        os.utime(entry)
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
    value_index = columns.pop("value_index")  # of all sparse columns
    for name in header["sparse"]:
        columns[name] = SparseColumn(value_index, columns[name])
    return Trace(
        path=source.path,
        origin_ns=header["origin_ns"],
        **columns,
        strings=tuple(header["strings"]),
        threads=tuple(Thread(*thread) for thread in header["threads"]),
        metadata=MappingProxyType(header["metadata"]),
        objects=header["objects"],
        losses=MappingProxyType(header["losses"]),
        info=read_file_info(header["metadata"], source),
    )


def _save(trace: Trace, entry: Path, digest: str) -> None:
    """Write an entry, unless it is larger than all may be.

    Raises:
        OSError: the folder cannot be written to.
    """
    values = {field.name: getattr(trace, field.name) for field in fields(Trace)}
    sparse = {name: value for name, value in values.items() if isinstance(value, SparseColumn)}
    values |= {name: column.values for name, column in sparse.items()}
    values["value_index"] = next(iter(sparse.values())).value_index  # of all of them
    arrays: dict[str, NDArray[Any]] = {
        name: value for name, value in values.items() if isinstance(value, np.ndarray)
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
            "strings": trace.strings,
            "threads": [astuple(thread) for thread in trace.threads],
            "metadata": dict(trace.metadata),
            "objects": trace.objects,
            "losses": dict(trace.losses),
        }
    )
    begin = np.array([(_MAGIC, len(header), fast_zlib.crc32(header))], _BEGIN).tobytes()
    size = _aligned(len(begin) + len(header)) + offset
    if size > LARGEST_BYTES:
        return
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(entry.parent, size)
    with _replacing(entry) as stream:
        columns_as_bytes = [array.data for array in arrays.values()]
        blocks: list[bytes | memoryview] = [begin + header, *columns_as_bytes]
        for block in blocks:
            stream.write(block)
            stream.write(bytes(-stream.tell() % _ALIGNMENT))


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that replaces the one at a path when all of it is written."""
    import tempfile

    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=_UNFINISHED, delete=False) as stream:
        unfinished = Path(stream.name)
        try:
            yield stream
            stream.close()
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _make_room(folder: Path, size: int) -> None:
    """Remove the entries that were not used for longest, and what crashed processes left."""
    files = []
    for file in folder.iterdir():
        with suppress(OSError):  # another process was faster
            status = file.stat()
            files.append((status.st_mtime, status.st_size, file))
    total = size + sum(file_bytes for _, file_bytes, _ in files)
    for modified, file_bytes, file in sorted(files):
        is_needless = {
            _ENDING: total > LARGEST_BYTES,
            _UNFINISHED: time.time() - modified > _ABANDONED_S,
        }
        if is_needless.get(file.suffix):
            with suppress(OSError):
                file.unlink()
                total -= file_bytes


def _aligned(offset: int) -> int:
    """The first aligned offset that is not before this one.

    >>> _aligned(64), _aligned(65)
    (64, 128)
    """
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
