"""What `tracelab view` serves: the page of some traces, and beside it these traces for Perfetto."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult
from tracelab.base.arrays import OneLine
from tracelab.base.file_names import short_names
from tracelab.read.streams import Source
from tracelab.render.html.file_part import FilePart, file_part
from tracelab.render.html.groups import page_times
from tracelab.render.html.page import render_page
from tracelab.render.html.served import PERFETTO, Served, ServedTrace
from tracelab.render.perfetto import Tracks, tracks_of, write_with_tracks
from tracelab.report.schema import Report
from tracelab.system.loopback import Content, content_of_bytes, content_of_file

_Clock = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Viewed(OneLine):
    """What the page, and Perfetto beside it, need of one file.

    Attributes:
        part: for the page's timeline.
        tracks: for Perfetto.
        start_ns, end_ns: the time that Perfetto gets: of one step, or of the whole file, ns since
            its first event.

    Example: ``Viewed(part=FilePart(...), tracks=Tracks(...), start_ns=0, end_ns=20_000_000)``.
    """

    part: FilePart
    tracks: Tracks
    start_ns: int
    end_ns: int


def viewed(analysis: Analysis) -> Viewed:
    """What is needed of one file, in whichever process it is analyzed."""
    window = analysis.windows[0]
    is_step = window.step is not None
    return Viewed(
        file_part(analysis),
        tracks_of(analysis),
        start_ns=window.start_ns if is_step else 0,
        end_ns=window.end_ns if is_step else int(analysis.timeline.trace.end_ns.max()),
    )


def contents(
    report: Report, results: Sequence[FileResult], folder: Path, *, perfetto: str = PERFETTO
) -> dict[str, Content]:
    """What is served, by name: the page as "", and the traces.

    Args:
        report: of all files.
        results: of each; `FileResult.more` is what `viewed` gave, None of a saved report.
        folder: where files may be put as long as this is served.
        perfetto: the origin of the Perfetto UI.
    """
    rank_of = {trace.path: trace.rank for trace in report.traces}
    traces = {rank_of[x.source.path]: x for x in results if x.report is not None and x.more}
    ranks = sorted(traces)
    parts = {rank: traces[rank].more.part for rank in ranks}
    names = short_names([traces[rank].source.path for rank in ranks])
    clocks = _clocks(report, parts)
    served = tuple(
        ServedTrace(
            name=name,
            rank=rank,
            url=f"trace/{rank}",
            origin_ns=traces[rank].more.tracks.origin_ns,
            start_ns=traces[rank].more.start_ns,
            end_ns=traces[rank].more.end_ns,
            clock=clocks.get(rank, ((0, 0),)),
        )
        for name, rank in zip(names, ranks, strict=True)
    )
    page = render_page(
        report, list(parts.values()), served=Served(served, perfetto) if served else None
    )
    return {
        "": content_of_bytes(page.encode(), "text/html; charset=utf-8"),
        **{
            f"trace/{rank}": trace_for_perfetto(
                result.source, result.more.tracks, report, folder / f"{rank}.json"
            )
            for rank, result in traces.items()
        },
    }


def trace_for_perfetto(source: Source, tracks: Tracks, report: Report, path: Path) -> Content:
    """A trace with our tracks in it, written when it is first asked for.

    Args:
        source: the file.
        tracks: what goes into it.
        report: of all files.
        path: where it is written.
    """
    is_writing = threading.Lock()

    def chunks() -> Iterator[bytes]:
        with is_writing:
            if not path.exists():
                write_with_tracks(source, tracks, report, path)
        yield from content_of_file(path, "").chunks()

    return Content("application/json", chunks)


def _clocks(report: Report, parts: Mapping[int, FilePart]) -> dict[int, _Clock]:
    """The clocks of a job's files, as of `ServedTrace`; other files have that of the page."""
    return {
        rank: tuple(zip((time.own_ns + time.shift_ns).tolist(), time.own_ns.tolist(), strict=True))
        for rank, time in page_times(report, parts).items()
    }
