"""Copy a trace and put tracks into it: its own bytes stay as they are."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from tracelab.read.event_array import (
    EventArray,
    Selection,
    locate_events,
    selected_events,
)
from tracelab.read.streams import (
    READ_ERRORS,
    Source,
    fast_zlib,
    open_source,
    unreadable,
)
from tracelab.render.perfetto.events import event_lines
from tracelab.render.perfetto.findings import finding_tracks
from tracelab.render.perfetto.tracks import Track, Tracks, texts_of
from tracelab.report.schema import Report, TraceInfo
from tracelab.system.files import identities, require_output, writing

_BLOCK_BYTES = 1 << 20
_LINES = 1000  # at once
_LEVEL = 2  # of compression: more takes longer than all the rest
_GZIP = 31  # what zlib calls its format

_Write = Callable[[bytes], object]


def write_with_tracks(source: Source, tracks: Tracks, report: Report, path: Path) -> None:
    """Write a trace with our tracks in it, packed where the name ends in ``.gz``.

    The file's own bytes stay as they are. Where it breaks off, what is whole of it is closed.

    Args:
        source: the file.
        tracks: what `tracks_of` made of it.
        report: of all files that were asked for: their findings are numbered together.
        path: the file to write.

    Raises:
        UsageError: the report has no such file.
        UnreadableInputError: the file can no longer be read.
        OutputError: the other cannot be written, or is the same.
    """
    require_output(path, identities([source.path]))
    [info] = [trace for trace in report.traces if trace.path == source.path]
    array = locate_events(source)
    findings = list(finding_tracks(tracks, report, info.rank))
    name = f"tracelab: {_subject(info, tracks, len(report.traces))}"
    lines = event_lines(
        name, info.rank, tracks, findings, array.threads, notes=_notes(array, tracks)
    )
    with (
        writing(path) as stream,
        _packed(stream, is_packed=path.name.lower().endswith(".gz")) as write,
    ):
        write_first = _first_events(source, array, tracks.selection)
        last = _copy(write_first, write)
        comma = "" if last in (b"[", b",", b"") else ","
        for text in _joined(lines):
            write(f"{comma}\n{text}".encode())
            comma = ","
        write(b"\n")
        if array.breaks_off:
            write(b"]\n" if array.is_bare else b"]}\n")
        else:
            _copy(_bytes_of(source, array.end), write)


def _subject(info: TraceInfo, tracks: Tracks, files: int) -> str:
    """Whose tracks they are: ``"rank 0 GPU 3"``, without the rank where nothing says it."""
    devices = ", ".join(map(str, tracks.devices))
    gpus = f"GPU{'s' * (len(tracks.devices) > 1)} {devices}"
    is_known = files > 1 or info.rank_source != "position"
    return f"rank {info.rank} {gpus}" if is_known else gpus


def _first_events(
    source: Source, array: EventArray, selection: Selection | None
) -> Iterator[bytes]:
    """The file's own bytes up to the end of its events, or only those of the chosen events."""
    if selection is None:
        yield from _bytes_of(source, 0, array.end)
        return
    yield from _bytes_of(source, 0, array.begin)
    before = b"\n"
    for texts in selected_events(source, selection):
        if texts:
            yield before + b",\n".join(texts)
            before = b",\n"


def _bytes_of(source: Source, begin: int, end: int | None = None) -> Iterator[bytes]:
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
    """Lines, with commas between them, many at once."""
    while block := list(islice(lines, _LINES)):
        yield ",\n".join(block)


@contextmanager
def _packed(stream: IO[bytes], *, is_packed: bool) -> Iterator[_Write]:
    """What writes to a stream, packed if it is to be."""
    if not is_packed:
        yield stream.write
        return
    packer = fast_zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    yield lambda content: stream.write(packer.compress(content))
    stream.write(packer.flush())


def _notes(array: EventArray, tracks: Tracks) -> Track:
    """What a reader of the new file should know, over all of it."""
    losses = array.losses
    notes = {
        "the file breaks off": losses.get("truncated"),
        "some events are damaged, and stand here as they are": (
            losses.get("unparsable_events") or losses.get("repairs")
        ),
        "the clock jumped: behind that these tracks stand beside their events": tracks.jumps,
    }
    texts = [text for text, is_so in notes.items() if is_so]
    return Track(
        label="Notes",
        category="note",
        start_ns=np.full(len(texts), tracks.window.start_ns),
        end_ns=np.full(len(texts), tracks.window.end_ns),
        name=texts_of(texts),
        arguments={},
    )
