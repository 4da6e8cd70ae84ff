"""The user's own trace with tracks of its findings, for Perfetto."""

from __future__ import annotations

import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult
from tracelab.base.arrays import ABSENT, Record
from tracelab.base.options import DEFAULTS, Options
from tracelab.base.safe_text import json_bytes
from tracelab.model.timeline import Timeline
from tracelab.outputs.output import Output, Request, Saves
from tracelab.outputs.scene_of_job import marks_of
from tracelab.read.reader import EVENTS, EventArray, Selection, locate_events, selected_events
from tracelab.read.streams import READ_ERRORS, Source, fast_zlib, open_source, unreadable
from tracelab.render.perfetto import event_lines
from tracelab.render.scene import Scene, Span
from tracelab.report.schema import Report, TraceInfo
from tracelab.system.files import identities, require_output, writing

_BLOCK_BYTES = 1 << 20
_LINES_PER_WRITE = 1000
# Higher levels take longer than all the rest.
_COMPRESSION_LEVEL = 2
_GZIP_WBITS = 31

_Write = Callable[[bytes], object]


class PerfettoPart(Record, eq=False):
    """Part of a file for a trace; without a selection all its events."""

    scene: Scene
    selection: Selection | None
    span: Span


def part_of_perfetto(analysis: Analysis, scene: Scene) -> PerfettoPart:
    """Reduce a file to its part of a trace."""
    timeline = analysis.timeline
    if scene.step is None:
        return PerfettoPart(scene, None, Span(0, int(timeline.trace.end_ns.max())))
    return PerfettoPart(scene, select(timeline, scene.window), scene.window)


def select(timeline: Timeline, window: Span) -> Selection:
    """Select the events in a window, and the launches of its activities."""
    trace, launch_id = timeline.trace, timeline.launch_id
    is_kept = (trace.start_ns < window.end_ns) & (
        (trace.end_ns > window.start_ns) | (trace.start_ns >= window.start_ns)
    )
    launched = (launch_id != ABSENT) & is_kept[timeline.event_id]
    is_kept[launch_id[launched]] = True
    correlation = np.unique(np.asarray(trace.correlation[launch_id[launched]], dtype=np.int64))
    return Selection(
        file_index=np.sort(trace.file_index[is_kept]).astype(np.int64),
        correlation=correlation,
        start_us=(trace.origin_ns + window.start_ns) / 1000,
        end_us=(trace.origin_ns + window.end_ns) / 1000,
    )


def write_with_tracks(source: Source, part: PerfettoPart, report: Report, path: Path) -> None:
    """Write a trace's own readable bytes with our tracks, packed if named ``.gz``."""
    require_output(path, identities([source.path]))
    [info] = [trace for trace in report.traces if trace.path == source.path]
    scene = replace(part.scene, rank=info.rank)
    [marks] = marks_of(report, [scene])
    scene = replace(scene, marks=tuple(marks))
    name = f"tracelab: {_subject(info, scene, len(report.traces))}"
    array = locate_events(source)
    lines = event_lines(name, scene, array.threads, _notes(array.losses))
    splice(source, array, lines, path, part.selection)


def write_perfetto(
    trace: str | PathLike[str],
    path: str | PathLike[str],
    *,
    options: Options = DEFAULTS,
) -> Report:
    """Write a trace with tracks of its findings, for Perfetto.

    Args:
        trace: a file or a URL.
        path: the ``.json`` or ``.json.gz`` to write; its folder is made.
        options: of the analysis; of one step only its events are written.

    Returns:
        the report of the tracks.

    Raises:
        UsageError: `path` has the ending of another format.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    return TRACE.write_to(trace, path, options)


def _saves(report: Report, results: Sequence[FileResult], request: Request) -> Saves:
    paths = TRACE.paths(request.path, len(results))
    return [
        (path, partial(write_with_tracks, result.source, result.more, report))
        for result, path in zip(results, paths, strict=True)
        if result.report is not None
    ]


TRACE = Output(
    name="perfetto",
    verb="wrote",
    suffixes=(".json", ".json.gz"),
    refusal="a trace for Perfetto is .json or .json.gz, not '{}'",
    is_of_all=False,
    is_of_each=True,
    reduce=part_of_perfetto,
    saves=_saves,
    hint=(
        'open it in https://ui.perfetto.dev: the process "tracelab: ..." at the top has the '
        "findings, the idle time by cause and the critical path"
    ),
)


def _subject(info: TraceInfo, scene: Scene, files: int) -> str:
    devices = ", ".join(map(str, scene.devices))
    gpus = f"GPU{'s' * (len(scene.devices) > 1)} {devices}"
    is_known = files > 1 or info.rank_source != "position"
    return f"rank {info.rank} {gpus}" if is_known else gpus


def _notes(losses: Mapping[str, int]) -> list[str]:
    notes = {
        "the file is truncated": losses.get("truncated"),
        "some events were damaged, and are repaired or left out": (
            losses.get("unparsable_events") or losses.get("repairs")
        ),
    }
    return [text for text, is_so in notes.items() if is_so]


# --- its own bytes stay as they are ---


def splice(
    source: Source,
    array: EventArray,
    lines: Iterator[str],
    path: Path,
    selection: Selection | None = None,
) -> None:
    """Write a trace with more JSON objects at the end of its array.

    Without a selection all the file's own events stay, and every byte if none is damaged.
    """
    is_packed = path.name.lower().endswith(".gz")
    with writing(path) as stream, packed(stream, is_packed=is_packed) as write:
        last = _copy(_own_events(source, array, selection), write)
        comma = "" if last in (b"[", b",", b"") else ","
        for text in _joined(lines):
            write(f"{comma}\n{text}".encode())
            comma = ","
        write(b"\n")
        if array.is_damaged:
            write(b"]}\n")
        elif array.breaks_off:
            write(b"]\n" if array.is_bare else b"]}\n")
        else:
            _copy(bytes_of(source, array.end), write)


def _own_events(source: Source, array: EventArray, selection: Selection | None) -> Iterator[bytes]:
    if array.is_damaged:
        yield _header_of(array, source.path)
    elif selection is None:
        yield from bytes_of(source, 0, array.end)
        return
    else:
        yield from bytes_of(source, 0, array.begin)
    before = b"\n"
    for texts in selected_events(source, selection):
        if texts:
            yield before + b",\n".join(texts)
            before = b",\n"


def _header_of(array: EventArray, path: str) -> bytes:
    try:
        keys = json_bytes(dict(array.metadata), is_indented=False)
    except TypeError as error:  # too deep to write
        raise unreadable(path, error) from None
    comma = b"," * bool(array.metadata)
    return b'%b%b"%b": [' % (keys.rstrip()[:-1], comma, EVENTS.encode())


def bytes_of(source: Source, begin: int, end: int | None = None) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file from `begin` to `end`, by default its own."""
    with open_source(source) as stream:
        offset = 0
        while end is None or offset < end:
            wanted = _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - offset)
            try:
                block = stream.read1(wanted)
            except READ_ERRORS as error:
                if end is None:  # the rest of a damaged file ends earlier
                    return
                raise unreadable(source.path, error) from None
            if not block:
                return
            yield block[max(0, begin - offset) :]
            offset += len(block)


def _copy(blocks: Iterable[bytes], write: _Write) -> bytes:
    """Write bytes, with those that are no text replaced; return the last that is not blank."""
    last, decoder = b"", getincrementaldecoder("utf-8")("replace")
    for block in blocks:
        is_whole = block.isascii() and not decoder.getstate()[0]
        write(block if is_whole else decoder.decode(block).encode())
        last = block.rstrip()[-1:] or last
    return last


def _joined(lines: Iterator[str]) -> Iterator[str]:
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
