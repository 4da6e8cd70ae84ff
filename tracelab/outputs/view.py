"""Contents that `tracelab view` serves: a page, and traces for Perfetto."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult
from tracelab.base.names import short_names
from tracelab.outputs.page import complete_parts, part_of_page
from tracelab.outputs.perfetto import PerfettoPart, part_of_perfetto, write_with_tracks
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.read.sources import new_copy
from tracelab.read.streams import Source
from tracelab.render.html.content import FilePart
from tracelab.render.html.page import PERFETTO, Served, ServedTrace, render_page
from tracelab.report.schema import Report
from tracelab.system.loopback import Content, content_of_bytes, content_of_file


def viewed(analysis: Analysis) -> tuple[FilePart, PerfettoPart]:
    """Reduce one file for the page and Perfetto."""
    scene = scene_of_file(analysis)
    return part_of_page(analysis, scene), part_of_perfetto(analysis, scene)


def contents(
    report: Report, results: Sequence[FileResult], perfetto: str = PERFETTO
) -> dict[str, Content]:
    """Return the contents by name: the page as "", and the traces.

    Args:
        report: of all files.
        results: of each; `FileResult.more` is from `viewed`.
        perfetto: the origin of the Perfetto UI.
    """
    of_path = {x.source.path: x for x in results if x.report is not None and x.more}
    parts = complete_parts(report, [x.more[0] for x in of_path.values()])
    scenes = [part.scene for part in parts]
    shown = [of_path[scene.path] for scene in scenes]
    names = short_names([scene.path for scene in scenes])
    served = tuple(
        ServedTrace(
            name=name,
            rank=scene.rank,
            url=f"trace/{scene.rank}",
            origin_ns=scene.origin_ns,
            start_ns=result.more[1].span.start_ns,
            end_ns=result.more[1].span.end_ns,
            clock=scene.clock or ((0, 0),),
        )
        for name, scene, result in zip(names, scenes, shown, strict=True)
    )
    page = render_page(report, parts, served=Served(served, perfetto) if served else None)
    return {
        "": content_of_bytes(page.encode(), "text/html; charset=utf-8"),
        **{
            f"trace/{scene.rank}": trace_for_perfetto(result.source, result.more[1], report)
            for scene, result in zip(scenes, shown, strict=True)
        },
    }


def trace_for_perfetto(source: Source, part: PerfettoPart, report: Report) -> Content:
    """Return a trace with our tracks, written at its first request."""
    path, is_writing = new_copy(), threading.Lock()

    def chunks() -> Iterator[bytes]:
        with is_writing:
            if not path.exists():
                write_with_tracks(source, part, report, path)
        yield from content_of_file(path, "").chunks()

    return Content("application/json", chunks)
