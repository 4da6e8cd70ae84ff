"""``tracelab diff``: what changed between two traces."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.cli import saved
from tracelab.cli.options import CommPattern, NoCache, StepOn
from tracelab.errors import TracelabError, UsageError
from tracelab.system.console import (
    output_in_color,
    output_width,
    save_result,
    tell,
    write_result,
)

if TYPE_CHECKING:
    from tracelab.analysis import Analysis, Failure
    from tracelab.comparison.diff import Diff, Side
    from tracelab.measures.kernel_times import NameTimes
    from tracelab.options import Options
    from tracelab.read.streams import Source
    from tracelab.report.schema import Report

_Input = tuple["Source", ...]
_Read = tuple["Report | Failure", "tuple[NameTimes, ...] | None", "Analysis | None"]


def diff(
    before: Annotated[
        str,
        typer.Argument(metavar="BEFORE", help="A trace, a folder or 'pattern*' of one, or a URL."),
    ],
    after: Annotated[
        str, typer.Argument(metavar="AFTER", help="The same, or a report that --json saved.")
    ],
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write all of it as JSON; - for stdout, without text."),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a step of each, one above the other."),
    ] = None,
    max_regression: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="Exit 1 if a step takes longer by more than this."),
    ] = None,
    step_on: StepOn = None,
    comm_pattern: CommPattern = None,
    no_cache: NoCache = False,
) -> None:
    """Tell what changed from one trace to another, and what of it is more than noise."""
    from tracelab.comparison.compare import compare
    from tracelab.options import PROFILER_STEP, Options
    from tracelab.render.text.diff import render_diff

    if max_regression is not None and not 0 <= max_regression < math.inf:
        raise UsageError(f"--max-regression takes per cent from 0 on, not {max_regression}")
    options = Options(
        comm_patterns=tuple(comm_pattern or ()),
        step_pattern=step_on or PROFILER_STEP,
        cache=not no_cache,
    )
    inputs = _find(before), _find(after)
    if png is not None:
        _check_picture(png, inputs)
    sides, analyses = _read_sides(inputs, (before, after), options, keep=png is not None)
    found = compare(*sides)
    if json == "-":
        write_result(found.to_json().decode())
    else:
        if json is not None:
            save_result(Path(json), lambda path: path.write_bytes(found.to_json()))
        write_result(render_diff(found, width=output_width(), color=output_in_color()))
    if png is not None:
        save_result(png, partial(_draw, found, analyses))
        tell(f"drew {png}")
    _leave(found, sides, inputs, max_regression)


def _leave(
    found: Diff, sides: tuple[Side, Side], inputs: tuple[_Input, _Input], allowed: float | None
) -> None:
    """Say what went wrong on stderr, and exit with its code."""
    unread = {file.path: file.reason for x in sides for file in x.report.provenance.unread}
    for reason in unread.values():
        tell(f"left out: {reason}")
    if any(source.named and source.path in unread for x in inputs for source in x):
        raise typer.Exit(3)
    if allowed is None:
        return
    for rank in found.ranks:
        if rank.basis == "trace" and rank.before.steps != rank.after.steps:
            raise UsageError(
                f"--max-regression: {rank.before.path} has {rank.before.steps} steps, "
                f"{rank.after.path} has {rank.after.steps}: too few to compare a step"
            )
    worse = found.regressed(allowed)
    for rank in worse:
        whose = f"rank {rank.after.rank}: " if len(found.ranks) > 1 else ""
        what = "a step" if rank.basis == "step" else "the trace"
        tell(
            f"{whose}{what} takes {rank.length.percent:.1f} % longer; "
            f"--max-regression allows {allowed:g} %"
        )
    if worse:
        raise typer.Exit(1)


def _find(path: str) -> tuple[Source, ...]:
    """The files of one side; a pattern stands for what it matches."""
    from glob import glob

    from tracelab.read.sources import find_sources

    if "://" in path or Path(path).exists():
        return find_sources([path])
    return find_sources(sorted(glob(path)) or [path])  # noqa: PTH207 (it may be absolute)


def _check_picture(png: Path, inputs: tuple[_Input, _Input]) -> None:
    """Refuse what cannot be drawn before anything is read for long."""
    if any(len(sources) > 1 for sources in inputs):
        raise UsageError("a picture shows one trace of each side; these are several: name them")
    for (source,) in inputs:
        if saved.is_report(source):
            raise UsageError(f"{source.path}: a saved report has no timeline to draw")
    from tracelab.render.picture.save import require_format

    require_format(png)


def _read_sides(
    inputs: tuple[_Input, _Input], paths: tuple[str, str], options: Options, *, keep: bool
) -> tuple[tuple[Side, Side], list[Analysis]]:
    """Both sides, and for a picture their analyses."""
    from tracelab.cli.many_files import map_files

    sources = [source for side in inputs for source in side]
    read = partial(_read, options=options, keep=keep)
    results = map_files(read, sources, spec="serial" if keep else None)
    first = len(inputs[0])
    sides = (
        _side(results[:first], inputs[0], paths[0], options),
        _side(results[first:], inputs[1], paths[1], options),
    )
    return sides, [analysis for _, _, analysis in results if analysis is not None]


def _read(source: Source, options: Options, keep: bool) -> _Read:
    """Read one file, in whichever process: its report and the times of its kernels."""
    from tracelab.analysis import Failure, analyze_source
    from tracelab.measures.kernel_times import kernel_times

    try:
        if saved.is_report(source):
            return saved.load(source), None, None
        analysis = analyze_source(source, options)
    except TracelabError as error:
        return Failure(source, error), None, None
    return analysis.report, kernel_times(analysis.timeline), analysis if keep else None


def _side(results: list[_Read], sources: _Input, path: str, options: Options) -> Side:
    """What was read of one side's files as one."""
    from tracelab.analysis import Failure, merge_reports
    from tracelab.comparison.diff import Side

    for (report, kernels, _), source in zip(results, sources, strict=True):
        if kernels is None and not isinstance(report, Failure):
            if len(results) > 1:
                raise UsageError(f"{source.path}: a saved report cannot stand among other files")
            return Side(report, None)
    return Side(
        merge_reports([report for report, _, _ in results], [path], options),
        tuple(kernels for _, kernels, _ in results if kernels is not None),
    )


def _draw(found: Diff, analyses: list[Analysis], path: Path) -> None:
    """Draw the step of median length of each side, or the whole traces."""
    from tracelab.render.picture.save import save_figure
    from tracelab.render.picture.timeline import Part, draw_stacked
    from tracelab.render.text.diff import picture_title

    (rank,) = found.ranks
    parts = [
        Part(
            analysis.timeline,
            analysis.blocking_calls.calls.event_id,
            facts.start_ns,
            facts.end_ns,
            picture_title(facts),
        )
        for analysis, facts in zip(analyses, (rank.before, rank.after), strict=True)
    ]
    save_figure(draw_stacked(parts), path)
