"""Read a Chrome trace of `torch.profiler`, in any of Kineto's layouts, into a `Trace`.

Several processes read chunks of a huge file. If any is wrong, it is read again in one go.
"""

from __future__ import annotations

import gc
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import msgspec
import numpy as np
import orjson

from tracelab.base.arrays import Arrays, Int64Array, Record
from tracelab.base.errors import UnreadableInputError
from tracelab.model.losses import DAMAGE
from tracelab.model.trace import Trace
from tracelab.read.json.array import ArrayReader
from tracelab.read.json.columns import Columns
from tracelab.read.json.events import (
    decode,
    decode_texts,
    decode_with_times_as_text,
    is_event,
    is_text_of_event,
    mapping,
    split_texts,
)
from tracelab.read.json.fields import Event
from tracelab.read.json.numbers import InexactTimesError
from tracelab.read.sources import one_source
from tracelab.read.streams import GZIP_MAGIC, Source, open_source, report_read
from tracelab.system.processes import open_processes

EVENTS = "traceEvents"  # the key of the array of events


@overload
def read_trace(source: str | PathLike[str] | Source) -> Trace: ...  # type: ignore[overload-overlap]
@overload
def read_trace(source: Sequence[str | PathLike[str] | Source]) -> list[Trace]: ...
def read_trace(
    source: str | PathLike[str] | Source | Sequence[str | PathLike[str] | Source],
) -> Trace | list[Trace]:
    """Read one file, or several.

    Args:
        source: a file, a URL, or a folder that holds one trace; or a list of them.

    Raises:
        UsageError: the folder holds several traces.
        UnreadableInputError: it cannot be opened, is not a trace, or holds no complete event.
        MissingSupportError: its URL needs a package that is not installed.

    >>> trace = read_trace("traces/events_item.pt.trace.json.gz")
    >>> trace.info.device_names[0]
    'NVIDIA H200'
    """
    if not isinstance(source, str | PathLike | Source):
        return [read_trace(one) for one in source]
    file = one_source(source)
    try:
        return _read_trace(file, decode)
    except InexactTimesError:
        return _read_trace(file, decode_with_times_as_text)


def _read_trace(source: Source, decode: Callable[[bytes], list[Event]]) -> Trace:
    with open_source(source) as stream:
        columns, metadata, losses = read_columns(stream, source.path, decode)
    return columns.finish(source, metadata, losses)


def read_columns(
    stream: io.BufferedIOBase, path: str, decode: Callable[[bytes], list[Event]] = decode
) -> tuple[Columns, dict[str, Any], Counter[str]]:
    """The columns of the events in a stream, what stands beside them, and what was lost."""
    columns = Columns()
    reader = ArrayReader(stream, path, EVENTS, decode, is_event)
    with collector_paused():
        for events in reader:
            columns.add(events)
    return columns, reader.metadata, reader.losses


def read_arguments(
    source: str | PathLike[str] | Source, file_indices: Iterable[int], *, is_whole: bool = False
) -> dict[int, dict[str, Any]]:
    """The arguments of a few events, which are not kept when a trace is read, by file index.

    Args:
        source: the file that the trace came from.
        file_indices: values of `Trace.file_index`.
        is_whole: the trace has no damage (`DAMAGE`), so that each event is found faster.

    Raises:
        UsageError: the source is a folder of several traces.
        UnreadableInputError: the file can no longer be read.
    """
    file = one_source(source)
    missing = set(file_indices)
    arguments: dict[int, dict[str, Any]] = {}
    with open_source(file) as stream, collector_paused():
        first_index = 0
        # As much is read, and lost, as when the events were numbered.
        split = split_texts if is_whole else decode_texts
        for pieces in ArrayReader(stream, file.path, EVENTS, split, is_text_of_event):
            next_index = first_index + len(pieces)
            in_piece = missing.intersection(range(first_index, next_index))
            arguments |= {index: _arguments_in(pieces[index - first_index]) for index in in_piece}
            missing -= in_piece
            if not missing:
                break
            first_index = next_index
    return arguments


def _arguments_in(event: bytes) -> dict[str, Any]:
    try:
        return mapping(mapping(orjson.loads(event)).get("args"))
    except orjson.JSONDecodeError:
        return {}


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection while millions of small objects come and go without a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


CHUNK_BYTES = 16 << 20
# Fewer chunks do not make up for the start of the processes.
_MIN_CHUNKS = 4
# An event ends within it.
_GLANCE_BYTES = 1 << 16
_GAP = re.compile(rb"\}(\s*,\s*)(?=\{)")
_BEFORE, _AFTER = b'{"%b": [' % EVENTS.encode(), b"]}"


def read_trace_in_chunks(source: Source, processes: int) -> Trace:
    """Read one file, by several processes if it is huge and can be cut; errors as `read_trace`."""
    path = source.copy or source.path
    chunks = _chunks(Path(path)) if processes > 1 else []
    if len(chunks) < _MIN_CHUNKS:
        return read_trace(source)
    columns = Columns()
    metadata: dict[str, Any] = {}
    try:
        with open_processes(min(processes, len(chunks))) as run:
            for following, chunk_metadata, read_bytes in run(
                partial(_read_chunk, path, chunks[-1][1]), chunks
            ):
                columns.add_all(following)
                metadata |= chunk_metadata
                report_read(read_bytes)
        return columns.finish(source, metadata, {})
    except (UnreadableInputError, OSError):  # or there is no room for processes
        return read_trace(source)


def _chunks(path: Path) -> list[tuple[int, int]]:
    """Begin and end of each chunk of a file; none where it cannot be cut."""
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
    return list(zip([0, *(end for _, end in gaps)], ends, strict=True))


def _gaps(stream: io.BufferedIOBase, size: int) -> Iterator[tuple[int, int]]:
    """Offsets at which what looks like a gap between two events begins and ends, one a chunk."""
    for offset in range(CHUNK_BYTES, size - _GLANCE_BYTES, CHUNK_BYTES):
        stream.seek(offset)
        if gap := _GAP.search(stream.read(_GLANCE_BYTES)):
            yield offset + gap.start(1), offset + gap.end(1)


def _read_chunk(
    path: str, size: int, chunk: tuple[int, int]
) -> tuple[Columns, dict[str, Any], int]:
    """The columns of a chunk, what stands beside the events, and the chunk's bytes."""
    begin, end = chunk
    with open(path, "rb") as file:
        file.seek(begin)
        content = file.read(end - begin)
    before, after = _BEFORE if begin else b"", _AFTER if end < size else b""
    stream = io.BytesIO(b"".join((before, content, after)))
    columns, metadata, losses = read_columns(stream, path)
    if any(losses.values()):
        raise UnreadableInputError(f"{path}: it was cut within an event, or is damaged")
    return columns, metadata, len(content)


Id = int | float | str | None  # of a process or thread, as files write it


class Head(msgspec.Struct, gc=False):
    """Fields that tell events apart; as written."""

    ph: Id = None
    cat: Id = None
    pid: Id = None
    tid: Id = None
    ts: Id = None
    id: Id = None


class EventArray(Record):
    """Position of a file's array of events in its unpacked bytes: see `ArrayReader`.

    `threads` are every process and thread as the file writes them, by the texts of both.
    """

    begin: int
    end: int
    is_bare: bool
    breaks_off: bool
    metadata: Mapping[str, Any]
    losses: Mapping[str, int]
    threads: Mapping[tuple[str, str], tuple[Id, Id]]

    @property
    def is_damaged(self) -> bool:
        """True if the file is not JSON, even where it would not break off."""
        return not self.losses.keys().isdisjoint({*DAMAGE} - {"truncated"})


class Selection(Arrays):
    """Selection of a file's events to keep.

    Complete events are chosen by their indices in the file's array (ascending). The metadata are
    kept, begins and ends (half a pair would be damage), the arrows of the chosen launches (by
    correlation, ascending), and what happened in the time, in the file's clock.
    """

    file_index: Int64Array
    correlation: Int64Array
    start_us: float
    end_us: float

    def chosen(self, first_index: int, count: int) -> set[int]:
        """The events, among a number from an index on, that are chosen one by one."""
        low, high = np.searchsorted(self.file_index, (first_index, first_index + count))
        return set(self.file_index[low:high].tolist())

    def keeps(self, head: Head) -> bool:
        """Return True if an event that is not complete is kept."""
        if head.ph in ("M", "B", "E"):
            return True
        if head.ph == "X":
            return False
        try:
            time_us = float(head.ts or 0)
        except ValueError:
            return False
        is_arrow = head.ph in ("s", "t", "f") and head.cat != "fwdbwd"
        return self.start_us <= time_us < self.end_us or (is_arrow and self._has_arrow(head.id))

    def _has_arrow(self, number: Id) -> bool:
        if not isinstance(number, int) or not len(self.correlation):
            return False
        index = min(int(np.searchsorted(self.correlation, number)), len(self.correlation) - 1)
        return bool(self.correlation[index] == number)


def locate_events(source: Source) -> EventArray:
    """Find the array of events in a file, however damaged, as its reader does."""
    threads: dict[tuple[Id, Id], None] = {}
    with open_source(source) as stream, collector_paused():
        reader = ArrayReader(stream, source.path, EVENTS, _decode_heads, _is_event)
        for heads in reader:
            threads.update(dict.fromkeys((head.pid, head.tid) for head in heads))
    return EventArray(
        begin=reader.begin,
        end=reader.end,
        is_bare=reader.is_bare,
        breaks_off=reader.breaks_off,
        metadata=MappingProxyType(reader.metadata),
        losses=MappingProxyType(dict(+reader.losses)),
        threads=MappingProxyType({_texts(pair): pair for pair in reversed(threads)}),
    )


def selected_events(source: Source, selection: Selection | None) -> Iterator[list[bytes]]:
    """The texts of the events that are kept, or of all, piece by piece, in the file's order."""
    with open_source(source) as stream, collector_paused():
        first_index = 0
        reader = ArrayReader(
            stream, source.path, EVENTS, _decode_pairs, lambda pair: _is_event(pair[0])
        )
        for pairs in reader:
            chosen = selection.chosen(first_index, len(pairs)) if selection else ()
            yield [
                text
                for index, (head, text) in enumerate(pairs, first_index)
                if selection is None or index in chosen or selection.keeps(head)
            ]
            first_index += len(pairs)


_decode = msgspec.json.Decoder(list[Head]).decode


def _decode_heads(text: bytes) -> list[Head]:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):  # not JSON, or some value is of an unusual type
        return [_head(mapping(element)) for element in orjson.loads(text)]


def _decode_pairs(text: bytes) -> list[tuple[Head, bytes]]:
    """The head and the text of each event; as much is lost as when the events were numbered."""
    texts = decode_texts(text)
    return list(zip(_decode_heads(text), texts, strict=True))


def _head(fields: Mapping[str, Any]) -> Head:
    usual = {
        name: value if isinstance(value, int | float | str) else None
        for name in Head.__struct_fields__
        for value in [fields.get(name)]
    }
    return Head(**usual)


def _is_event(head: Head) -> bool:
    return head.ph is not None


def _texts(pair: tuple[Id, Id]) -> tuple[str, str]:
    process, thread = ("" if one is None else str(one) for one in pair)
    return process, thread
