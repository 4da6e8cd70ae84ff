"""Traces that were read before: their columns, kept in the user's cache folder.

A file is known by its content. An entry is renamed when whole, as processes may race.
"""

from __future__ import annotations

import mmap
import os
import stat
import time
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracelab.base import __version__
from tracelab.base.arrays import Record
from tracelab.base.errors import OutputError, reason_of
from tracelab.model.trace import FileInfo, Trace
from tracelab.read.json.metadata import read_file_info, used_devices
from tracelab.read.reader import read_trace_in_chunks
from tracelab.read.streams import Source, fast_zlib, report_read
from tracelab.system.files import replacing
from tracelab.system.processes import processors

# A smaller file is read again in a few milliseconds.
MIN_FILE_BYTES = 1 << 20
MAX_TOTAL_BYTES = 2 << 30

_BLOCK_BYTES = 1 << 20
_ENDING, _UNFINISHED = ".columns", ".unfinished"
# The process that began to write an older unfinished file has ended.
_MAX_UNFINISHED_S = 3600


class KeptFile(Record):
    """A file in the cache folder that holds a trace's columns, or will hold them.

    `modified_s`, seconds since the epoch, is when it was written or last used.
    """

    path: Path
    size_bytes: int
    modified_s: float


def load_trace(source: Source, processes: int = 1) -> Trace:
    """Read one file, or open what an earlier look at the same content has left in the cache.

    The cache is for local files of some size, and unused if others can write into its folder.
    Errors are those of `read_trace`.
    """
    path = Path(source.copy or source.path)
    identity = _identity(path)
    if identity is None or not _is_own(folder()):
        return read_trace_in_chunks(source, processes)
    digest, state = identity
    entry = folder() / f"{digest}{_ENDING}"
    trace = _open(entry, digest, source)
    if trace is not None:
        report_read(state[0])
    else:
        trace = read_trace_in_chunks(source, processes)
        with suppress(OSError, RecursionError):  # what orjson reads may nest too deep
            if _state(path) == state:
                _save(trace, entry, digest)
    return trace


def folder() -> Path:
    """The folder of the entries."""
    import platformdirs

    return platformdirs.user_cache_path("tracelab")


def kept_files() -> list[KeptFile]:
    """The files that the cache holds; none where it has no folder that can be read."""
    with suppress(OSError):
        return _kept_in(folder())
    return []


def clear() -> list[KeptFile]:
    """Remove all that the cache holds, and return it. A process that is writing goes without."""
    files = kept_files()
    for file in files:
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"cannot remove {file.path}: {reason_of(error)}") from None
    return files


def _is_own(folder: Path) -> bool:
    """True if no other user can write into a folder; a missing one will be made so."""
    try:
        status = folder.stat()
    except OSError:
        return True
    if not hasattr(os, "geteuid"):  # Windows keeps users apart by the folder above
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


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
    with suppress(RecursionError):  # its metadata nests as deep as could be written
        return trace_from_bytes(data, digest, source)
    return None


def _save(trace: Trace, entry: Path, digest: str) -> None:
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


class _Header(msgspec.Struct):
    """Contents of an entry before its columns: of each its type, length, offset and checksum.

    The trace is JSON, in which arrays are numbers of columns.
    """

    digest: str
    columns: list[tuple[str, int, int, int]]
    column_bytes: int
    trace: msgspec.Raw


def trace_as_blocks(trace: Trace, digest: str) -> list[bytes | memoryview]:
    """The bytes of an entry in blocks, those of large columns without a copy.

    A RecursionError if the file's metadata nests too deep to be written.
    """
    arrays: dict[int, NDArray[Any]] = {}

    def encode(value: Any) -> Any:
        if isinstance(value, MappingProxyType):
            return dict(value)
        arrays.setdefault(id(value), value)
        return list(arrays).index(id(value))

    # The path and what depends on the file's name are not kept.
    kept = replace(trace, path="", info=FileInfo(platform=trace.info.platform))
    text = msgspec.Raw(msgspec.json.encode(kept, enc_hook=encode))
    columns, offset = [], 0
    for array in arrays.values():
        columns.append((array.dtype.str, len(array), offset, fast_zlib.crc32(array)))
        offset = _aligned(offset + array.nbytes)
    header = msgspec.json.encode(_Header(digest, columns, offset, text))
    begin = np.array([(_MAGIC, len(header), fast_zlib.crc32(header))], _BEGIN).tobytes()
    blocks: list[bytes | memoryview] = [begin + header, _padding(len(begin) + len(header))]
    for array in arrays.values():
        blocks += [array.data.cast("B"), _padding(array.nbytes)]
    return blocks


def trace_from_bytes(data: mmap.mmap, digest: str, source: Source) -> Trace | None:
    """The trace of an entry, with views of its bytes as columns; None if damaged or of another."""
    if len(data) < _BEGIN.itemsize:
        return None
    begin = np.frombuffer(data, _BEGIN, 1)[0]
    end = _BEGIN.itemsize + int(begin["header_bytes"])
    text = data[_BEGIN.itemsize : end]
    if begin["magic"] != _MAGIC or begin["checksum"] != fast_zlib.crc32(text):
        return None
    header = msgspec.json.decode(text, type=_Header)
    columns_begin = _aligned(end)
    if header.digest != digest or len(data) != columns_begin + header.column_bytes:
        return None
    arrays = []
    for dtype, count, offset, checksum in header.columns:
        arrays.append(np.frombuffer(data, dtype, count, columns_begin + offset))
        if fast_zlib.crc32(arrays[-1]) != checksum:
            return None
    trace = msgspec.json.decode(header.trace, type=Trace, dec_hook=lambda _, number: arrays[number])
    mappings: dict[str, Any] = {
        field.name: MappingProxyType(value)
        for field in fields(trace)
        if isinstance(value := getattr(trace, field.name), dict)
    }
    devices = used_devices(trace.category, trace.device_number)
    info = read_file_info(trace.metadata, source, trace.info.platform, devices)
    return replace(trace, path=source.path, info=info, **mappings)


def _padding(byte_count: int) -> bytes:
    return bytes(_aligned(byte_count) - byte_count)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
