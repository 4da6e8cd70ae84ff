"""Pictures of what was analyzed: a file's timeline, or a part of it, or the ranks of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.analysis.analysis import Analysis, analyze_source
from tracelab.analysis.reports import FileResult, add_changes, analyze_file, merge_results
from tracelab.base.errors import TracelabError, UsageError
from tracelab.base.options import DEFAULTS, Options
from tracelab.findings.fixes import choose_fixes
from tracelab.outputs.output import Output, Request, Written
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.outputs.scene_of_job import scenes_of_report
from tracelab.outputs.scene_of_replay import scenes_of_replay
from tracelab.read.sources import one_source, path_names
from tracelab.read.streams import Source
from tracelab.render.picture.save import FORMATS, REFUSAL, Picture
from tracelab.render.scene import Scene, Span
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of
from tracelab.simulate.predict import apply_changes, predict
from tracelab.simulate.program import Program
from tracelab.system.files import identities, require_output

if TYPE_CHECKING:
    from tracelab.render.picture.timeline import Part


# 31 years, in nanoseconds still an int64.
_MAX_TIME_MS = 1e12


def draw(
    trace: str | PathLike[str] | Source | Analysis | Sequence[str | PathLike[str]],
    path: str | PathLike[str] | None = None,
    *,
    options: Options = DEFAULTS,
    start_ms: float | None = None,
    end_ms: float | None = None,
    lanes: str | Sequence[str] | None = None,
    title: str = "",
    width_px: int = 1600,
) -> Picture:
    """Draw what ran when: the streams, the host's blocking calls, the idle time.

    Args:
        trace: a file, a URL, or what `analyze_source` made of one. The files of one job are drawn
            on one clock, in two steps of usual length; other files one above the other.
        path: the file to write, ``.png``, ``.svg`` or ``.pdf``; its folder is made. None for none:
            the picture shows itself in a notebook.
        options: how a file is analyzed; `Options.step` draws that step alone.
        start_ms: where to begin, in ms from the start of the trace or the step.
        end_ms: where to end, likewise.
        lanes: only this one, or these: ``host``, ``device:0``, ``stream:0/7``,
            ``counter:0/allocated``, ``kind:comm``.
        title: the headline, by default the file's name.
        width_px: pixels across.

    Example:
        >>> tracelab.draw("traces/events_item.pt.trace.json.gz", "item.png", lanes="host")
        Picture(figure=<Figure size 1600x222 with 1 Axes>)

    Raises:
        UsageError: there is nothing to draw, or a part of several files is requested.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    from tracelab.render.picture.timeline import draw_timelines, require_drawable

    chosen = [lanes] if isinstance(lanes, str) else lanes
    inputs = [trace] if isinstance(trace, Analysis | Source) else path_names(trace)
    if not inputs:
        raise UsageError("no file or URL to draw was given")
    if len(inputs) > 1 and any(x is not None for x in (lanes, start_ms, end_ms)):
        raise UsageError(
            "only the timeline of a single file can be cut to a part; these are several files"
        )
    if not all(abs(ms or 0) <= _MAX_TIME_MS for ms in (start_ms, end_ms)):  # nan is not, either
        raise UsageError("a picture must begin and end within 10^12 milliseconds")
    require_drawable(1, chosen, width_px)
    known = _inputs(inputs, path)
    if len(known) > 1:
        sources = [x for x in known if isinstance(x, Source)]
        results = [analyze_file(source, options, then=whole_of) for source in sources]
        for result in results:
            if result.error is not None:
                raise result.error
        report = merge_results(results, [source.path for source in sources], options)
        parts = [result.more for result in results]
        picture = draw_parts(report, parts, title=title, width_px=width_px)
    else:
        [one] = known
        plain = replace(options, prices=False)
        part = whole_of(one if isinstance(one, Analysis) else analyze_source(one, plain))
        part = _cut(replace(part, lanes=chosen, title=title), start_ms, end_ms)
        picture = Picture(draw_timelines([part], width_px=width_px))
    if path is not None:
        picture.save(Path(path))
    return picture


def draw_whatif(
    trace: str | PathLike[str] | Source | Analysis,
    path: str | PathLike[str] | None = None,
    *,
    fixes: str | int | Sequence[str | int] = (),
    edits: str | Callable[[Program], Program] | Sequence[str | Callable[[Program], Program]] = (),
    options: Options = DEFAULTS,
    width_px: int = 1600,
) -> Picture:
    """Draw a steady step as it is, and below it with all these changes, on one time scale.

    Args:
        trace: a file, a URL, or what `analyze_source` made of one.
        path: the file to write, ``.png``, ``.svg`` or ``.pdf``; None for none.
        fixes: of which findings, as of `whatif`.
        edits: further changes, likewise.
        options: how a file is analyzed.
        width_px: pixels across.

    Raises:
        UsageError: there is nothing to draw, or one of the changes is neither a fix nor an edit.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    from tracelab.render.picture.timeline import draw_whatif as draw_both, require_drawable
    from tracelab.render.sections.predictions import picture_titles

    asked = add_changes(options, fixes, edits)
    require_drawable(1, None, width_px)
    [known] = _inputs([trace], path)
    analysis = known if isinstance(known, Analysis) else analyze_source(known, options)
    program, sites = analysis.baseline.program, analysis.sites
    if program is None or sites is None:
        raise UsageError(f"there is no step to draw: {analysis.baseline.not_replayed}")
    changes = choose_fixes(analysis.report.findings, asked.fixes, asked.edits)
    if not changes:
        raise UsageError("there is nothing to draw: no finding has a change that can be replayed")
    [prediction] = predict(analysis.baseline, sites, changes[-1:])
    changed = apply_changes(changes[-1].edits, program, sites).program
    figure = draw_both(
        scenes_of_replay(analysis.timeline, program, changed),
        titles=picture_titles(Path(analysis.timeline.trace.path).name, prediction),
        width_px=width_px,
    )
    picture = Picture(figure)
    if path is not None:
        picture.save(Path(path))
    return picture


def whole_of(analysis: Analysis, scene: Scene | None = None) -> Part:
    """Return all of what was analyzed, with the busy shares that its report prints."""
    from tracelab.render.first_screen import busy_shares
    from tracelab.render.picture.timeline import Part

    scene = scene or scene_of_file(analysis)
    return Part(scene, scene.window, busy=busy_shares(ranks_of(analysis.report)[0]))


def draw_parts(
    report: Report, parts: Sequence[Part], *, title: str = "", width_px: int = 1600
) -> Picture:
    """Draw the ranks of a job on one clock, or other files one above the other.

    Args:
        report: of these files.
        parts: of each file; of several, made for a job.
        title: the headline of a job, by default the folder and the number of ranks.
        width_px: pixels across.
    """
    from tracelab.render.picture import job
    from tracelab.render.picture.timeline import draw_timelines, require_drawable
    from tracelab.render.ranks import job_sentences, rank_shares

    if report.job is None or not report.job.per_rank:
        require_drawable(len(parts), None, width_px)
        return Picture(draw_timelines(parts, width_px=width_px))
    shares = rank_shares(report)
    folders = {Path(trace.path).parent.name for trace in report.traces}
    name = folders.pop() if len(folders) == 1 else f"{len(folders)} folders"
    headline = f"{len({trace.path for trace in report.traces})} ranks on one clock"
    scenes = scenes_of_report(report, [part.scene for part in parts])
    figure = job.draw_job(
        report.job,
        {scene.rank: scene for scene in scenes},
        title=title or (f"{name}: {headline}" if name else headline),
        verdict=next(iter(job_sentences(report, shares)), ""),
        shares={x.rank: x for x in shares},
        width_px=width_px,
    )
    return Picture(figure)


def _write(report: Report, results: Sequence[FileResult], request: Request) -> Written:
    """Draw a file, a job, or each of several other files."""
    known = [(i, result.more) for i, result in enumerate(results) if result.more is not None]
    drawn = [(request.path, [part for _, part in known])]
    if report.job is None and request.files > 1:
        paths = PICTURE.numbered(request.path, len(results))
        drawn = [(paths[i], [part]) for i, part in known]
    written: Written = []
    for path, parts in drawn:
        try:
            draw_parts(report, parts).save(path)
        except TracelabError as error:
            written.append(error)
        else:
            written.append(path)
    return written


PICTURE = Output(
    name="png",
    verb="drew",
    suffixes=FORMATS,
    refusal=REFUSAL,
    is_of_all=True,
    is_of_each=True,
    reduce=whole_of,
    write=_write,
)


def _inputs(
    traces: Iterable[str | PathLike[str] | Source | Analysis], path: str | PathLike[str] | None
) -> list[Analysis | Source]:
    """Find what is drawn, and refuse a file to write that is no picture or one of the inputs."""
    if path is not None:
        PICTURE.require_name(Path(path))
    known = [one if isinstance(one, Analysis) else one_source(one) for one in traces]
    if path is not None:
        paths = (x.timeline.trace.path if isinstance(x, Analysis) else x.path for x in known)
        require_output(path, identities(paths))
    return known


def _cut(part: Part, start_ms: float | None, end_ms: float | None) -> Part:
    """Return a stretch of a part, without the shares of the whole."""
    if (start_ms, end_ms) == (None, None):
        return part
    first_ns, last_ns = part.span
    start_ns = first_ns + round((start_ms or 0) * 1e6)
    end_ns = last_ns if end_ms is None else first_ns + round(end_ms * 1e6)
    if not first_ns <= start_ns < min(end_ns, last_ns):
        raise UsageError(
            f"there is nothing to draw between {(start_ns - first_ns) / 1e6:g} ms and "
            f"{(end_ns - first_ns) / 1e6:g} ms: what can be drawn is "
            f"{(last_ns - first_ns) / 1e6:g} ms long"
        )
    return replace(part, span=Span(start_ns, end_ns), busy=None)
