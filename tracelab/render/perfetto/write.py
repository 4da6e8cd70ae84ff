"""A trace with tracks of what was found in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tracelab.read.event_array import locate_events
from tracelab.read.streams import Source
from tracelab.render.perfetto.events import event_lines
from tracelab.render.perfetto.findings import finding_tracks
from tracelab.render.perfetto.splice import splice
from tracelab.render.perfetto.tracks import Track, Tracks, texts_of
from tracelab.report.schema import Report, TraceInfo
from tracelab.system.files import identities, require_output


def write_with_tracks(source: Source, tracks: Tracks, report: Report, path: Path) -> None:
    """Write a trace with our tracks in it, packed where the name ends in ``.gz``.

    The file's own bytes stay as they are. Where it breaks off, what is whole of it is closed. Of a
    single step, only the file's events of that step are written.

    Args:
        source: the file.
        tracks: what `tracks_of` made of it.
        report: of all files that were asked for: their findings are numbered together.
        path: the file to write.

    Raises:
        UnreadableInputError: the file can no longer be read.
        OutputError: the other cannot be written, or is the same.
    """
    require_output(path, identities([source.path]))
    [info] = [trace for trace in report.traces if trace.path == source.path]
    name = f"tracelab: {_subject(info, tracks, len(report.traces))}"
    array = locate_events(source)
    lines = event_lines(
        name=name,
        rank=info.rank,
        tracks=tracks,
        findings=list(finding_tracks(tracks, report, info.rank)),
        threads=array.threads,
        notes=_notes(array.losses, tracks),
    )
    splice(source, array, lines, path, tracks.selection)


def _subject(info: TraceInfo, tracks: Tracks, files: int) -> str:
    """Whose tracks they are: ``"rank 0 GPU 3"``, without the rank where nothing says it."""
    devices = ", ".join(map(str, tracks.devices))
    gpus = f"GPU{'s' * (len(tracks.devices) > 1)} {devices}"
    is_known = files > 1 or info.rank_source != "position"
    return f"rank {info.rank} {gpus}" if is_known else gpus


def _notes(losses: Mapping[str, int], tracks: Tracks) -> Track:
    """What a reader of the new file should know, over all of it."""
    notes = {
        "the file is truncated": losses.get("truncated"),
        "some events are damaged and were copied unchanged": (
            losses.get("unparsable_events") or losses.get("repairs")
        ),
        "the clock jumped: after that these tracks are offset from their events": tracks.jumps,
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
