"""Pictures of an analysis: a file's timeline or a part of it, or the ranks of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.analysis.analysis import Analysis, analyze_source
from tracelab.analysis.reports import FileResult, add_changes, analyze_file, merge_results
from tracelab.base.errors import UsageError
from tracelab.base.options import DEFAULTS, Options, require_types, step_number, texts
from tracelab.findings.fixes import choose_fixes
from tracelab.outputs.output import Output, Request, Saves
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.outputs.scene_of_job import scenes_of_ranks, scenes_of_report
from tracelab.outputs.scene_of_replay import scenes_of_replay
from tracelab.read.sources import Given, Inputs, find_inputs, one_source
from tracelab.read.streams import Source
from tracelab.render.palette import DARK, LIGHT
from tracelab.render.picture.save import DEFAULT_LOOK, FORMATS, REFUSAL, Look, Picture
from tracelab.render.scene import Scene, Span, evidence_of
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of
from tracelab.simulate.predict import apply_changes, predict
from tracelab.simulate.program import Program
from tracelab.system.files import identities, require_output

if TYPE_CHECKING:
    from tracelab.render.picture.timeline import Part


_MIN_FINDING_PX = 40
# 31 years; in ns an int64.
_MAX_TIME_MS = 1e12


def draw(
    trace: Inputs | Analysis,
    path: str | PathLike[str] | None = None,
    *,
    options: Options = DEFAULTS,
    step: int | str | None = None,
    finding: int | None = None,
    start_ms: float | None = None,
    end_ms: float | None = None,
    lanes: str | Sequence[str] | None = None,
    title: str = "",
    width_px: int = 1600,
    height_px: int | None = None,
    dark: bool = False,
) -> Picture:
    """Draw what ran when, and the first findings: by default a usual step.

    Args:
        trace: as of `analyze`, or what `analyze_source` made of it. The files
            of a job have one clock; others are drawn one above the other.
        path: the ``.png``, ``.svg`` or ``.pdf`` to write; its folder is made.
        options: how a file is analyzed, but for `Options.step`.
        step: its number, or "all"; by default the steady one of median length.
        finding: its number, instead of a step: draws the worst that it cites.
        start_ms: where to begin, in ms of the trace, or of the step.
        end_ms: where to end, likewise.
        lanes: these alone: ``host``, ``device:0``, ``stream:0/7``,
            ``counter:0/allocated``, ``kind:comm``.
        title: the headline, by default the verdict.
        width_px: pixels across.
        height_px: pixels down, by default as many as the lanes need.
        dark: whether it is for a dark page.

    Example:
        >>> path = "traces/events_item.pt.trace.json.gz"
        >>> tracelab.draw(path, lanes="host").figure
        <Figure size 1600x246 with 1 Axes>

    Raises:
        UsageError: there is nothing to draw, or a part of several files.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    from tracelab.render.picture.timeline import draw_timelines, require_drawable

    require_types(
        path=(path, str | PathLike | None),
        options=(options, Options),
        finding=(finding, Integral | None),
        start_ms=(start_ms, Real | None),
        end_ms=(end_ms, Real | None),
        title=(title, str),
        width_px=(width_px, Integral),
        height_px=(height_px, Integral | None),
        dark=(dark, bool),
    )
    chosen = None if lanes is None else texts("lanes", lanes)
    number = step_number(step)
    limit = options.max_unpacked_bytes
    inputs = [trace] if isinstance(trace, Analysis) else find_inputs(trace, "trace", limit)[1]
    parts_of_one = (lanes, step, finding, start_ms, end_ms)
    if len(inputs) > 1 and any(x is not None for x in parts_of_one):
        raise UsageError(
            "only the timeline of a single file can be cut to a part; these are several files"
        )
    if finding is not None and step is not None:
        raise UsageError("a picture shows a step, or the step of a finding: choose one of the two")
    if not all(abs(ms or 0) <= _MAX_TIME_MS for ms in (start_ms, end_ms)):  # also refuses nan
        raise UsageError("a picture must start and end within 10^12 milliseconds")
    look = Look(width_px, height_px, DARK if dark else LIGHT)
    require_drawable(1, chosen, look)
    known = _inputs(inputs, path, options)
    if len(known) > 1:
        sources = [x for x in known if isinstance(x, Source)]
        results = [analyze_file(source, options, then=part_of) for source in sources]
        for result in results:
            if result.error is not None:
                raise result.error
        report = merge_results(results, [source.path for source in sources], options)
        picture = draw_results(report, results, title=title, look=look)
    else:
        [one] = known
        part = part_of(one if isinstance(one, Analysis) else analyze_source(one, options))
        if finding is not None:
            part = _choose_finding(part, finding, width_px)
        elif step is not None or (start_ms, end_ms) != (None, None):
            part = _choose_step(part, number)
        part = _cut(replace(part, lanes=chosen, title=title), start_ms, end_ms, number)
        picture = draw_timelines([part], look)
    if path is not None:
        picture.save(Path(path))
    return picture


def draw_whatif(
    trace: Given | Analysis,
    path: str | PathLike[str] | None = None,
    *,
    fixes: str | int | Sequence[str | int] = (),
    edits: str | Callable[[Program], Program] | Sequence[str | Callable[[Program], Program]] = (),
    options: Options = DEFAULTS,
    width_px: int = 1600,
) -> Picture:
    """Draw a steady step, and below it the same with changes, on one time scale.

    Args:
        trace: a file, a URL, or the result of `analyze_source`.
        path: the ``.png``, ``.svg`` or ``.pdf`` to write, or None.
        fixes: as of `whatif`.
        edits: further changes, likewise.
        options: of the analysis.
        width_px: pixels across.

    Raises:
        UsageError: there is nothing to draw, or one of the changes is neither a fix nor an edit.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    from tracelab.render.picture.timeline import draw_whatif as draw_both, require_drawable
    from tracelab.render.sections.findings import picture_titles

    require_types(
        path=(path, str | PathLike | None),
        options=(options, Options),
        width_px=(width_px, Integral),
    )
    asked = add_changes(options, fixes, edits)
    look = Look(width_px)
    require_drawable(1, None, look)
    [known] = _inputs([trace], path, options)
    analysis = known if isinstance(known, Analysis) else analyze_source(known, options)
    program, sites = analysis.baseline.program, analysis.sites
    if program is None or sites is None:
        raise UsageError(f"there is no step to draw: {analysis.baseline.not_replayed}")
    changes = choose_fixes(analysis.report.findings, asked.fixes, asked.edits)
    if not changes:
        raise UsageError("there is nothing to draw: no finding has a change that can be replayed")
    [prediction] = predict(analysis.baseline, sites, changes[-1:])
    changed = apply_changes(changes[-1].edits, program, sites).program
    picture = draw_both(
        scenes_of_replay(analysis.phases, program, changed),
        titles=picture_titles(Path(analysis.timeline.trace.path).name, prediction),
        look=look,
    )
    if path is not None:
        picture.save(Path(path))
    return picture


def part_of(analysis: Analysis, scene: Scene | None = None) -> Part:
    """Return a steady step near the median, with the first finding if any has it; else all."""
    from tracelab.render.first_screen import busy_shares, first_screen
    from tracelab.render.picture.timeline import Part

    report = analysis.report
    [scene] = scenes_of_report(report, [scene or scene_of_file(analysis)])
    said = first_screen(report)
    part = Part(
        scene,
        scene.window,
        busy=busy_shares(ranks_of(report)[0]),
        said=said,
        findings=tuple(item.number for item in said.items),
    )
    steps = scene.steps
    usual = sorted(scene.usual_steps, key=lambda number: -steps[number].length_ns)
    if scene.step is not None or not usual:
        return _choose_step(part, scene.step)
    median = usual[len(usual) // 2]
    length_ns = steps[median].length_ns
    usual.sort(key=lambda x: (x != median, abs(steps[x].length_ns - length_ns)))
    first = next((x for x in scene.marks if part.findings[:1] == (x.number,)), None)
    places = evidence_of(scene, first) if first is not None else ()
    found = (
        number
        for number in usual
        for place in places
        if place.start_ns < steps[number].end_ns and place.end_ns > steps[number].start_ns
    )
    number = next(found, median)
    shown = f"step {number}"
    if number != median:
        shown += f", nearest the median length of those with finding {part.findings[0]}"
    elif len(usual) > 1:
        shown += f", of median length among {len(usual)} steady ones"
    return replace(part, span=steps[number], shown=shown)


def _choose_step(part: Part, step: int | None) -> Part:
    scene = part.scene
    if step is not None:
        if step not in scene.steps:
            known = ", ".join(map(str, scene.steps)) or "not known"
            raise UsageError(
                f"{scene.path}: there is no step {step}; the file's steps are: {known}"
            )
        return replace(part, span=scene.steps[step], shown=f"step {step}")
    why = "" if scene.usual_steps else ", no step is steady" if scene.steps else ", no steps found"
    return replace(part, span=scene.window, shown=f"all of the trace{why}")


def _choose_finding(part: Part, number: int, width_px: int) -> Part:
    from tracelab.render.picture.layout import LEFT_PX, RIGHT_PX

    scene = part.scene
    mark = next((mark for mark in scene.marks if mark.number == number), None)
    if mark is None:
        known = len(scene.marks)
        raise UsageError(f"{scene.path}: there is no finding {number}; there are {known}")
    part = replace(part, findings=tuple(sorted({*part.findings, number})))
    worst = next(iter(evidence_of(scene, mark)), None)
    if worst is None:
        return _choose_step(part, None)
    length_ns, middle_ns = worst.end_ns - worst.start_ns, (worst.start_ns + worst.end_ns) // 2
    steps = (x for x in scene.steps.items() if x[1].start_ns <= middle_ns < x[1].end_ns)
    step, whole = next(steps, (None, scene.window))
    shown = "all of the trace" if step is None else f"step {step}"
    # Leave room for the surroundings.
    columns = width_px - LEFT_PX - RIGHT_PX
    most_ns = max(length_ns * columns // _MIN_FINDING_PX, whole.length_ns // 30)
    if most_ns >= whole.length_ns:
        return replace(part, span=whole, shown=shown)
    start_ns = min(max(whole.start_ns, middle_ns - most_ns // 2), whole.end_ns - most_ns)
    return replace(part, span=Span(start_ns, start_ns + most_ns), shown=f"part of {shown}")


def draw_results(
    report: Report, results: Sequence[FileResult], *, title: str = "", look: Look = DEFAULT_LOOK
) -> Picture:
    """Draw the ranks of a job on one clock, or other files below each other.

    Without a job, `FileResult.more` is from `part_of`.
    """
    from tracelab.render.picture.timeline import draw_job, draw_timelines, require_drawable
    from tracelab.render.ranks import job_sentences, rank_shares

    if report.job is None or not report.job.per_rank:
        parts = [result.more for result in results if result.more is not None]
        require_drawable(len(parts), None, look)
        return draw_timelines(parts, look)
    shares = rank_shares(report)
    folders = {Path(trace.path).parent.name for trace in report.traces}
    name = folders.pop() if len(folders) == 1 else f"{len(folders)} folders"
    headline = f"{len({trace.path for trace in report.traces})} ranks on one clock"
    return draw_job(
        report.job,
        scenes_of_ranks(report, results),
        title=title or (f"{name}: {headline}" if name else headline),
        verdict=next(iter(job_sentences(report, shares)), ""),
        shares={x.rank: x for x in shares},
        look=look,
    )


def _saves(report: Report, results: Sequence[FileResult], request: Request) -> Saves:
    drawn = [(request.path, results)]
    if report.job is None and request.files > 1:
        paths = PICTURE.numbered(request.path, len(results))
        each = zip(paths, results, strict=True)
        drawn = [(path, [result]) for path, result in each if result.more is not None]
    return [(path, partial(_save, report, some)) for path, some in drawn]


def _save(report: Report, results: Sequence[FileResult], path: Path) -> None:
    draw_results(report, results).save(path)


PICTURE = Output(
    name="png",
    verb="drew",
    suffixes=FORMATS,
    refusal=REFUSAL,
    is_of_all=True,
    is_of_each=True,
    reduce=part_of,
    saves=_saves,
)


def _inputs(
    traces: Iterable[Given | Analysis], path: str | PathLike[str] | None, options: Options
) -> list[Analysis | Source]:
    if path is not None:
        PICTURE.require_name(Path(path), "path")
    limit = options.max_unpacked_bytes
    known = [
        one if isinstance(one, Analysis) else one_source(one, "trace", limit) for one in traces
    ]
    if path is not None:
        paths = (x.timeline.trace.path if isinstance(x, Analysis) else x.path for x in known)
        require_output(path, identities(paths))
    return known


def _cut(part: Part, start_ms: float | None, end_ms: float | None, step: int | None) -> Part:
    if (start_ms, end_ms) == (None, None):
        return part
    first_ns, last_ns = part.span
    is_step = step is not None or part.scene.step is not None
    zero_ns = first_ns if is_step else 0
    start_ns = first_ns if start_ms is None else zero_ns + round(start_ms * 1e6)
    end_ns = last_ns if end_ms is None else zero_ns + round(end_ms * 1e6)
    if start_ns < zero_ns or not max(start_ns, first_ns) < min(end_ns, last_ns):
        raise UsageError(
            f"there is nothing to draw between {(start_ns - zero_ns) / 1e6:g} ms and "
            f"{(end_ns - zero_ns) / 1e6:g} ms: what can be drawn is from "
            f"{(first_ns - zero_ns) / 1e6:g} to {(last_ns - zero_ns) / 1e6:g} ms"
        )
    span = Span(max(start_ns, first_ns), end_ns)
    return replace(part, span=span, shown=f"part of {part.shown.partition(',')[0]}", busy=None)
