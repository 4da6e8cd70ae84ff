"""Pages of what was analyzed, and users' own traces with what was found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelab.analysis.analysis import Analysis, predict_changes
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base.errors import TracelabError, UsageError
from tracelab.base.options import DEFAULTS, Options
from tracelab.findings.fixes import ALL
from tracelab.outputs.perfetto import part_of_perfetto, write_with_tracks
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.outputs.scene_of_job import scenes_of_report
from tracelab.read.sources import find_sources, path_names
from tracelab.read.streams import Source
from tracelab.report.schema import Report
from tracelab.simulate.causal_profile import LINE, OPERATOR, causal_profile
from tracelab.system.files import identities, require_output, write_file

if TYPE_CHECKING:
    from tracelab.render.html.file_part import FilePart
    from tracelab.render.scene import Scene

PAGE_ENDINGS = (".html", ".htm")
TRACE_ENDINGS = (".json", ".json.gz")


def part_of_page(analysis: Analysis, scene: Scene | None = None) -> FilePart:
    """Return what the page needs of one file, in whichever process it is analyzed."""
    from tracelab.render.html.file_part import FilePart

    baseline, sites, findings = analysis.baseline, analysis.sites, analysis.report.findings
    by = LINE if analysis.report.lines else OPERATOR
    return FilePart(
        scene=scene or scene_of_file(analysis),
        causal=causal_profile(baseline, sites, by, findings),
        whatif=predict_changes(baseline, sites, findings, Options(fixes=(ALL,))),
    )


def complete_parts(report: Report, parts: Sequence[FilePart]) -> list[FilePart]:
    """Complete the parts of a page with what the report of all its files says, by rank."""
    scenes = scenes_of_report(report, [part.scene for part in parts]) if parts else []
    part_of = {part.path: part for part in parts}
    return [replace(part_of[scene.path], scene=scene) for scene in scenes]


def save_page(report: Report, parts: Iterable[FilePart | None], path: Path) -> None:
    """Write the page of a report.

    Args:
        report: of all files.
        parts: what `part_of_page` gave of each; none, or None, of a file that is not at hand.
        path: where it goes.
    """
    from tracelab.render.html.page import render_page

    files = complete_parts(report, [part for part in parts if part is not None])
    write_file(path, render_page(report, files).encode())


def save_traces(
    report: Report, results: Sequence[FileResult], path: Path
) -> list[Path | TracelabError]:
    """Write each file's own events with tracks of what was found in it.

    Args:
        report: of all files.
        results: of each file, analyzed with `part_of_perfetto`.
        path: where it goes; those of several files are numbered.

    Returns:
        the files that were written; instead of one that could not be, why.
    """
    paths = numbered_traces(path, len(results))
    written: list[Path | TracelabError] = []
    for result, target in zip(results, paths, strict=True):
        if result.report is None:
            continue
        try:
            write_with_tracks(result.source, result.more, report, target)
        except TracelabError as error:
            written.append(error)
        else:
            written.append(target)
    return written


def write_page(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]],
    path: str | PathLike[str],
    *,
    options: Options = DEFAULTS,
) -> Report:
    """Write one self-contained page of a trace, or of several: it opens from disk.

    Args:
        trace: a file, a folder or a URL, or several of them.
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
    target = Path(fspath(path))
    require_page(target)
    names, sources = _found(trace, target)
    report, results = _analyzed(names, sources, part_of_page, options)
    save_page(report, [result.more for result in results], target)
    return report


def write_perfetto(
    trace: str | PathLike[str],
    path: str | PathLike[str],
    *,
    options: Options = DEFAULTS,
) -> Report:
    """Write a trace with tracks of what was found in it, for Perfetto.

    Args:
        trace: a file or a URL.
        path: the file to write, ``.json`` or ``.json.gz``; its folder is made.
        options: how the file is analyzed; of one step only its events are written.

    Returns:
        the report that the tracks show.

    Raises:
        UsageError: `path` has the ending of another format.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    target = Path(fspath(path))
    require_trace(target)
    names, sources = _found(trace, target)
    report, results = _analyzed(names, sources, part_of_perfetto, options)
    for written in save_traces(report, results, target):
        if isinstance(written, TracelabError):
            raise written
    return report


def _found(
    trace: str | PathLike[str] | Sequence[str | PathLike[str]], path: Path
) -> tuple[list[str], tuple[Source, ...]]:
    """The names of files, and the files, none of which is the one to write."""
    names = path_names(trace)
    sources = find_sources(names)
    require_output(path, identities(source.path for source in sources))
    return names, sources


def _analyzed(
    names: Sequence[str],
    sources: Sequence[Source],
    then: Callable[[Analysis], Any],
    options: Options,
) -> tuple[Report, list[FileResult]]:
    """The report of files, and what became of each."""
    results = [analyze_file(source, options, then=then) for source in sources]
    return merge_results(results, names, options), results


def require_page(path: Path) -> None:
    """Refuse a file whose name is not that of a page.

    Raises:
        UsageError: it is not.

    >>> require_page(Path("step.html"))
    """
    if not path.name.lower().endswith(PAGE_ENDINGS):
        raise UsageError(f"a page is .html, not {str(path)!r}")


def require_trace(path: Path) -> None:
    """Refuse a file whose name is not that of a trace.

    Raises:
        UsageError: it is not.

    >>> require_trace(Path("step.json.gz"))
    """
    if not path.name.lower().endswith(TRACE_ENDINGS):
        raise UsageError(f"a trace for Perfetto is .json or .json.gz, not {str(path)!r}")


def numbered_traces(path: Path, count: int) -> list[Path]:
    """The traces that are written for several files.

    >>> [one.name for one in numbered_traces(Path("out/ddp.json.gz"), 2)]
    ['ddp-0.json.gz', 'ddp-1.json.gz']
    """
    if count == 1:
        return [path]
    ending = next((x for x in TRACE_ENDINGS[::-1] if path.name.lower().endswith(x)), path.suffix)
    stem = path.name[: len(path.name) - len(ending)]
    return [path.with_name(f"{stem}-{i}{path.name[len(stem) :]}") for i in range(count)]
