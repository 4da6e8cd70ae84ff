"""``tracelab diff``: what changed between two traces."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.base.errors import UsageError
from tracelab.cli.options import Analyzed, Markdown, analyzes, require_one, require_outputs
from tracelab.system.console import (
    output_in_color,
    output_width,
    tell,
    write_result,
)
from tracelab.system.files import write_file

if TYPE_CHECKING:
    from tracelab.analysis.analysis import Analysis
    from tracelab.base.options import Options
    from tracelab.comparison.compare import Launches
    from tracelab.comparison.diff import Diff, Side
    from tracelab.read.streams import Source
    from tracelab.render.picture.timeline import Part

# The files of each recording of one side.
_Input = list[tuple["Source", ...]]


@analyzes("step_on", "comm_pattern", "no_cache", "max_unpacked")
def diff(
    analyzed: Analyzed,
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="BEFORE",
            help="A trace, a folder or 'pattern*' of one job's ranks, a URL, or a saved report.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Argument(metavar="AFTER", help="The same.", show_default=False)
    ] = None,
    several_before: Annotated[
        list[str] | None,
        typer.Option("--before", metavar="PATH", help="One of several recordings; repeat it."),
    ] = None,
    several_after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="PATH", help="Likewise, of the other side."),
    ] = None,
    markdown: Markdown = False,
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
) -> None:
    """Report what changed from one trace to another, beyond the noise.

    With several recordings of each side (--before A --before B --after C --after D), the noise is
    how much recordings of one side differ.
    """
    from tracelab.comparison.compare import compare_sides
    from tracelab.outputs.picture import PICTURE
    from tracelab.render.markdown import render_diff as render_markdown
    from tracelab.render.text.report import render_result
    from tracelab.report.load import is_saved_report

    if max_regression is not None and not 0 <= max_regression < math.inf:
        raise UsageError(f"--max-regression takes per cent from 0 on, not {max_regression}")
    require_one({"--markdown": markdown, "--json -": json == "-"})
    paths = _paths(before, after, several_before or [], several_after or [])
    limit = analyzed.max_unpacked_bytes
    inputs = _find(paths[0], limit), _find(paths[1], limit)
    sources = [source for side in inputs for recording in side for source in recording]
    options = analyzed.options(len(sources))
    if png is not None:
        PICTURE.require_name(png)
        if len(sources) > 2 or any(map(is_saved_report, sources)):
            raise UsageError(
                "a picture shows one trace of each side: neither several nor a saved report"
            )
    require_outputs(sources, files=[json, png])
    sides, parts = _read_sides(inputs, paths, options, is_drawn=png is not None)
    found = compare_sides(*sides)
    if json is not None and json != "-":
        write_file(json, found.to_json())
    if json == "-":
        write_result(found.to_json().decode())
    elif markdown:
        write_result(render_markdown(found))
    else:
        write_result(render_result(found, width=output_width(), color=output_in_color()))
    if png is not None:
        _draw(found, parts, png)
        tell(f"drew {png}")
    _leave(found, sides, inputs, max_regression)


def _paths(
    before: str | None, after: str | None, several_before: list[str], several_after: list[str]
) -> tuple[list[str], list[str]]:
    if before is not None and after is not None and not (several_before or several_after):
        return [before], [after]
    if before is None and after is None and several_before and several_after:
        return several_before, several_after
    raise UsageError(
        "two sides are compared: BEFORE and AFTER, or --before and --after, each once or more"
    )


def _leave(
    found: Diff,
    sides: tuple[list[Side], list[Side]],
    inputs: tuple[_Input, _Input],
    allowed: float | None,
) -> None:
    unread = {
        file.path: file.reason
        for x in sides
        for side in x
        for file in side.report.provenance.unread
    }
    for reason in unread.values():
        tell(f"left out: {reason}")
    named = [x for side in inputs for recording in side for x in recording if x.named]
    if any(source.path in unread for source in named):
        raise typer.Exit(3)
    if allowed is not None:
        _require_no_regression(found, allowed)


def _require_no_regression(found: Diff, allowed: float) -> None:
    from tracelab.comparison.diff import CANNOT_TELL, DIFFERENT_PROGRAMS, Doubt
    from tracelab.render.sections.diff_words import why_not

    for rank in found.ranks:
        too_few = {Doubt.FEW_STEPS, Doubt.NO_STEPS} & {*rank.doubts}
        if too_few and rank.before.steps != rank.after.steps:
            raise UsageError(
                f"--max-regression: {rank.before.path} has {rank.before.steps} steps, "
                f"{rank.after.path} has {rank.after.steps}: too few to compare a step"
            )
        if rank.verdict == CANNOT_TELL:
            tell(f"--max-regression: {why_not(rank)}")
    if found.verdict == DIFFERENT_PROGRAMS:
        tell("--max-regression: these are two different programs, nothing is checked")
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


def _find(paths: list[str], max_unpacked_bytes: int | None) -> _Input:
    from tracelab.read.sources import find_sources

    return [find_sources([path], max_unpacked_bytes) for path in paths]


def _read_sides(
    inputs: tuple[_Input, _Input],
    paths: tuple[list[str], list[str]],
    options: Options,
    *,
    is_drawn: bool,
) -> tuple[tuple[list[Side], list[Side]], list[Part]]:
    from tracelab.analysis.reports import analyze_file
    from tracelab.cli.many_files import map_files
    from tracelab.comparison.compare import merge_side

    sources = [source for side in inputs for recording in side for source in recording]
    then = partial(_reduce, is_drawn=is_drawn)
    read = partial(analyze_file, options=options, then=then, may_be_saved=True)
    results = map_files(read, sources)
    parts = [x.more[1] for x in results if x.more is not None and x.more[1] is not None]
    each = iter([replace(x, more=x.more[0] if x.more else None) for x in results])
    before, after = (
        [
            merge_side([next(each) for _ in recording], [path], options)
            for recording, path in zip(side, of_side, strict=True)
        ]
        for side, of_side in zip(inputs, paths, strict=True)
    )
    return (before, after), parts


def _reduce(analysis: Analysis, *, is_drawn: bool) -> tuple[Launches, Part | None]:
    from tracelab.comparison.compare import launches_of
    from tracelab.outputs.picture import part_of

    return launches_of(analysis), part_of(analysis) if is_drawn else None


def _draw(diff: Diff, parts: list[Part], path: Path) -> None:
    from tracelab.render.picture.timeline import draw_timelines
    from tracelab.render.scene import Span
    from tracelab.render.sections.diff import picture_title

    (rank,) = diff.ranks
    cut = [
        replace(
            part,
            span=Span(file.start_ns, file.end_ns),
            title=picture_title(file),
            busy=None,
            shown="",
            findings=(),
        )
        for part, file in zip(parts, (rank.before, rank.after), strict=True)
    ]
    draw_timelines(cut).save(path)
