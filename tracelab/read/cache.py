"""Traces that were read before: their columns, kept in the user's cache folder.

A file is known by its content, so that a copy under another name is the same and one that was
written again is not. An entry is one file (`tracelab.read.cache_entry`). It is written under
another name and then renamed, so that processes that race see all of it or nothing.
"""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

from tracelab.base.errors import OutputError, reason_of
from tracelab.base.version import __version__
from tracelab.model.trace import Trace
from tracelab.read.cache_entry import trace_as_blocks, trace_from_bytes
from tracelab.read.parallel import read_trace_in_chunks
from tracelab.read.streams import Source, report_read
from tracelab.system.files import replacing
from tracelab.system.processes import processors

SMALLEST_FILE_BYTES = 1 << 20  # a smaller one is read again in no time
LARGEST_BYTES = 2 << 30  # of all entries together; the least recently used go first

_BLOCK_BYTES = 1 << 20
_ENDING, _UNFINISHED = ".columns", ".unfinished"
_ABANDONED_S = 3600  # a file that is still being written after so long belongs to no process


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
    names = ("graph_nodes.py", "kernel_kinds.py", "messages.py", "trace.py")
    of_columns = [package / "model" / name for name in names]
    modules = [*sorted((package / "read").rglob("*.py")), *of_columns]
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
    return trace_from_bytes(data, digest, source)


def _save(trace: Trace, entry: Path, digest: str) -> None:
    """Write an entry, unless it is larger than all may be.

    Raises:
        OSError: the folder cannot be written to.
    """
    blocks = trace_as_blocks(trace, digest)
    size = sum(map(len, blocks))
    if size > LARGEST_BYTES:
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
            _ENDING: total > LARGEST_BYTES,
            _UNFINISHED: time.time() - file.modified_s > _ABANDONED_S,
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
