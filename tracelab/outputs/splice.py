"""Copy a trace and put events into it: its own bytes stay as they are."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from tracelab.read.event_array import EventArray, Selection, selected_events
from tracelab.read.streams import READ_ERRORS, Source, fast_zlib, open_source, unreadable
from tracelab.system.files import writing

_BLOCK_BYTES = 1 << 20
_LINES_PER_WRITE = 1000
# A higher level takes longer than all the rest.
_COMPRESSION_LEVEL = 2
_GZIP_WBITS = 31

_Write = Callable[[bytes], object]


def splice(
    source: Source,
    array: EventArray,
    lines: Iterator[str],
    path: Path,
    selection: Selection | None = None,
) -> None:
    """Write a trace with more events at the end of its array, packed if the name ends in ``.gz``.

    Args:
        source: the file.
        array: where its events are.
        lines: the events to add, a JSON object each.
        path: the file to write.
        selection: which of the file's own events to keep; None for all, and every byte.

    Raises:
        UnreadableInputError: the file can no longer be read.
        OutputError: the other cannot be written.
    """
    is_packed = path.name.lower().endswith(".gz")
    with writing(path) as stream, packed(stream, is_packed=is_packed) as write:
        last = _copy(_own_events(source, array, selection), write)
        comma = "" if last in (b"[", b",", b"") else ","
        for text in _joined(lines):
            write(f"{comma}\n{text}".encode())
            comma = ","
        write(b"\n")
        if array.breaks_off:
            write(b"]\n" if array.is_bare else b"]}\n")
        else:
            _copy(bytes_of(source, array.end), write)


def _own_events(source: Source, array: EventArray, selection: Selection | None) -> Iterator[bytes]:
    """The file's own bytes up to the end of its events, or only those of the chosen events."""
    if selection is None:
        yield from bytes_of(source, 0, array.end)
        return
    yield from bytes_of(source, 0, array.begin)
    before = b"\n"
    for texts in selected_events(source, selection):
        if texts:
            yield before + b",\n".join(texts)
            before = b",\n"


def bytes_of(source: Source, begin: int, end: int | None = None) -> Iterator[bytes]:
    """The unpacked bytes of a file from an offset on, to another one if it is known.

    Raises:
        UnreadableInputError: they are no longer there.
    """
    with open_source(source) as stream:
        offset = 0
        while end is None or offset < end:
            wanted = _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - offset)
            try:
                block = stream.read1(wanted)
            except READ_ERRORS as error:
                if end is None:  # what follows the events was read as far as it goes before
                    return
                raise unreadable(source.path, error) from None
            if not block:
                return
            yield block[max(0, begin - offset) :]
            offset += len(block)


def _copy(blocks: Iterable[bytes], write: _Write) -> bytes:
    """Write some bytes; the last of them that is not blank."""
    last = b""
    for block in blocks:
        write(block)
        last = block.rstrip()[-1:] or last
    return last


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Lines, with commas between them, in blocks."""
    while block := list(islice(lines, _LINES_PER_WRITE)):
        yield ",\n".join(block)


@contextmanager
def packed(stream: IO[bytes], *, is_packed: bool) -> Iterator[_Write]:
    """Return a writer to a stream, packed if requested."""
    if not is_packed:
        yield stream.write
        return
    packer = fast_zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    yield lambda content: stream.write(packer.compress(content))
    stream.write(packer.flush())
