"""Pages of an analysis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.analysis.analysis import Analysis, predict_changes
from tracelab.analysis.reports import FileResult, analyze_file
from tracelab.base.options import DEFAULTS, Options
from tracelab.findings.fixes import ALL
from tracelab.outputs.output import Output, Request, Saves
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.outputs.scene_of_job import scenes_of_report
from tracelab.read.sources import Inputs, find_sources
from tracelab.report.schema import Report
from tracelab.simulate.causal_profile import LINE, OPERATOR, causal_profile
from tracelab.system.files import write_file

if TYPE_CHECKING:
    from tracelab.render.html.content import FilePart
    from tracelab.render.scene import Scene


def part_of_page(analysis: Analysis, scene: Scene) -> FilePart:
    """Reduce one file to its part of a page."""
    from tracelab.render.html.content import FilePart

    baseline, sites, findings = analysis.baseline, analysis.sites, analysis.report.findings
    by = LINE if analysis.report.lines else OPERATOR
    return FilePart(
        scene=scene,
        causal=causal_profile(baseline, sites, by),
        whatif=predict_changes(baseline, sites, findings, Options(fixes=(ALL,))),
    )


def complete_parts(report: Report, parts: Sequence[FilePart]) -> list[FilePart]:
    """Complete the parts of a page from the report, by rank."""
    scenes = scenes_of_report(report, [part.scene for part in parts]) if parts else []
    part_of = {part.scene.path: part for part in parts}
    return [replace(part_of[scene.path], scene=scene) for scene in scenes]


def save_page(report: Report, parts: Iterable[FilePart | None], path: Path) -> None:
    """Write a report's page, with the available parts."""
    from tracelab.render.html.page import render_page

    files = complete_parts(report, [part for part in parts if part is not None])
    write_file(path, render_page(report, files).encode())


def page_of(report: Report) -> str:
    """Return a report's page, with timelines of its unchanged files."""
    from tracelab.render.html.page import render_page

    made = report.provenance
    is_whole = any(window.step is None for window in report.windows)
    options = Options(
        comm_pattern=made.comm_patterns,
        step_on=made.step_pattern,
        step=None if is_whole else report.windows[0].step,
    )
    kept = {trace.path: trace for trace in report.traces if Path(trace.path).is_file()}
    results = (
        analyze_file(source, options, then=lambda x: part_of_page(x, scene_of_file(x)))
        for source in find_sources(kept)
    )
    parts = [
        result.more
        for result in results
        if result.report is not None
        and result.report.traces[0].events == kept[result.source.path].events
    ]
    return render_page(report, complete_parts(report, parts))


def write_page(
    trace: Inputs,
    path: str | PathLike[str],
    *,
    options: Options = DEFAULTS,
) -> Report:
    """Write one self-contained page of a trace, or of several: it opens from disk.

    Args:
        trace: a file, a folder, a pattern, a URL, bytes or an open file, or
            several of them.
        path: the file to write, ``.html``; its folder is made.
        options: how files are analyzed.

    Returns:
        the report that the page shows.

    Example:
        >>> tracelab.write_page("traces/events_item.pt.trace.json.gz", "item.html")
        <Report of 1 file, 6 windows, 2 findings>

    Raises:
        OutputError: `path` cannot be written, or is a trace.
        TracelabError: nothing could be analyzed.
    """
    return PAGE.write_to(trace, path, options)


def _saves(report: Report, results: Sequence[FileResult], request: Request) -> Saves:
    return [(request.path, partial(save_page, report, [result.more for result in results]))]


PAGE = Output(
    name="html",
    verb="wrote",
    suffixes=(".html", ".htm"),
    refusal="a page is .html, not '{}'",
    is_of_all=True,
    is_of_each=False,
    reduce=part_of_page,
    saves=_saves,
)
