"""Read one huge file in chunks, by several processes.

The file is cut at what looks like the gap between two events, about every 16 MiB. Each chunk is
read as a trace of its own; if nothing is wrong with any of them, all the cuts are between events:
the first chunk begins at one, a chunk that is a whole array ends at one, and there the next begins
(JSON is unambiguous). If anything is wrong, whatever it is, the file is read again in one go.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tracelab.base.errors import UnreadableInputError
from tracelab.model.trace import Trace
from tracelab.read.json.columns import Columns
from tracelab.read.reader import EVENTS, read_columns, read_trace
from tracelab.read.streams import GZIP_MAGIC, Source, report_read
from tracelab.system.processes import open_processes

CHUNK_BYTES = 16 << 20
_FEWEST = 4  # chunks that make up for the start of the processes
_GLANCE_BYTES = 1 << 16  # in which an event ends
_GAP = re.compile(rb"\}(\s*,\s*)(?=\{)")
_BEFORE, _AFTER = b'{"%b": [' % EVENTS.encode(), b"]}"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Bytes of a file, and what makes a trace of them where it is put around them."""

    begin: int
    end: int
    before: bytes
    after: bytes


def read_trace_in_chunks(source: Source, processes: int) -> Trace:
    """Read one file, by so many processes if it is a huge one that can be cut.

    Raises:
        UnreadableInputError: it cannot be opened, is not a trace, or holds no complete event.
        MissingSupportError: its URL needs a package that is not installed.
    """
    chunks = _chunks(Path(source.path)) if processes > 1 else []
    if len(chunks) < _FEWEST:
        return read_trace(source)
    columns = Columns()
    metadata: dict[str, Any] = {}
    try:
        with open_processes(min(processes, len(chunks))) as run:
            for following, chunk_metadata, read_bytes in run(
                partial(_read_chunk, source.path), chunks
            ):
                columns.add_all(following)
                metadata |= chunk_metadata
                report_read(read_bytes)
        return columns.finish(source, metadata, {})
    except (UnreadableInputError, OSError):  # or there is no room for processes
        return read_trace(source)


def _chunks(path: Path) -> list[_Chunk]:
    """The chunks of a file; none where it cannot be cut."""
    try:
        if not path.is_file():
            return []
        with open(path, "rb") as stream:
            if stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC:
                return []
            size = stream.seek(0, io.SEEK_END)
            gaps = list(_gaps(stream, size))
    except OSError:
        return []
    ends = [*(begin for begin, _ in gaps), size]
    begins = [0, *(end for _, end in gaps)]
    return [
        _Chunk(begin, end, _BEFORE if begin else b"", _AFTER if end < size else b"")
        for begin, end in zip(begins, ends, strict=True)
    ]


def _gaps(stream: io.BufferedIOBase, size: int) -> Iterator[tuple[int, int]]:
    """Offsets at which what looks like a gap between two events begins and ends, one a chunk."""
    for offset in range(CHUNK_BYTES, size - _GLANCE_BYTES, CHUNK_BYTES):
        stream.seek(offset)
        if gap := _GAP.search(stream.read(_GLANCE_BYTES)):
            yield offset + gap.start(1), offset + gap.end(1)


def _read_chunk(path: str, chunk: _Chunk) -> tuple[Columns, dict[str, Any], int]:
    """The columns of a chunk, what stands beside the events, and the chunk's bytes.

    Raises:
        UnreadableInputError: anything is wrong with it.
    """
    with (
        open(path, "rb", buffering=0) as file,
        io.BufferedReader(_ChunkStream(file, chunk)) as stream,
    ):
        columns, metadata, losses = read_columns(stream, path)
    if any(losses.values()):
        raise UnreadableInputError(f"{path}: it was cut within an event, or is damaged")
    return columns, metadata, chunk.end - chunk.begin


class _ChunkStream(io.RawIOBase):
    """A chunk of an open file between what goes around it."""

    def __init__(self, file: io.RawIOBase, chunk: _Chunk) -> None:
        self._file = file
        self._before, self._after = io.BytesIO(chunk.before), io.BytesIO(chunk.after)
        self._left_bytes = chunk.end - chunk.begin
        file.seek(chunk.begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return (
            self._before.readinto(buffer)
            or self._read_file_into(buffer)
            or self._after.readinto(buffer)
        )

    def _read_file_into(self, buffer: Any) -> int:
        count = self._file.readinto(memoryview(buffer)[: self._left_bytes]) or 0
        self._left_bytes -= count
        return count
