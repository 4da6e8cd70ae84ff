"""``tracelab diff``: what changed between two traces."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.cli.options import CommPattern, NoCache, StepOn, shared_options
from tracelab.cli.outputs import require_outputs
from tracelab.errors import UsageError
from tracelab.system.console import (
    output_in_color,
    output_width,
    tell,
    write_result,
)
from tracelab.system.files import write_file

if TYPE_CHECKING:
    from tracelab.analysis import Analysis
    from tracelab.comparison.diff import Diff, Side
    from tracelab.measures.kernel_times import NameTimes
    from tracelab.options import Options
    from tracelab.read.streams import Source

_Input = tuple["Source", ...]


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
    from tracelab.comparison.compare import compare_sides
    from tracelab.options import Options
    from tracelab.render.text.diff import render_diff

    if max_regression is not None and not 0 <= max_regression < math.inf:
        raise UsageError(f"--max-regression takes per cent from 0 on, not {max_regression}")
    options = Options(**shared_options(step_on, comm_pattern, no_cache=no_cache))
    inputs = _find(before), _find(after)
    require_outputs((*inputs[0], *inputs[1]), files=[json], pictures=[png])
    if png is not None:
        _check_picture(inputs)
    sides, analyses = _read_sides(inputs, (before, after), options, keep=png is not None)
    found = compare_sides(*sides)
    if json == "-":
        write_result(found.to_json().decode())
    else:
        if json is not None:
            write_file(json, found.to_json())
        write_result(render_diff(found, width=output_width(), color=output_in_color()))
    if png is not None:
        _draw(found, analyses, png)
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


def _check_picture(inputs: tuple[_Input, _Input]) -> None:
    """Refuse what cannot be drawn before anything is read for long."""
    from tracelab.report.load import is_saved_report

    if any(len(sources) > 1 for sources in inputs):
        raise UsageError("a picture shows one trace of each side; these are several: name them")
    for (source,) in inputs:
        if is_saved_report(source):
            raise UsageError(f"{source.path}: a saved report has no timeline to draw")


def _read_sides(
    inputs: tuple[_Input, _Input], paths: tuple[str, str], options: Options, *, keep: bool
) -> tuple[tuple[Side, Side], list[Analysis]]:
    """Both sides, and for a picture their analyses."""
    from tracelab.cli.many_files import map_files
    from tracelab.comparison.compare import merge_side
    from tracelab.reports import analyze_file

    sources = [source for side in inputs for source in side]
    read = partial(
        analyze_file, options=options, then=_kept if keep else _reduced, may_be_saved=True
    )
    results = map_files(read, sources, spec="serial" if keep else None)
    analyses = [x.more[1] for x in results if x.more is not None and x.more[1] is not None]
    results = [replace(x, more=x.more[0] if x.more else None) for x in results]
    first = len(inputs[0])
    sides = (
        merge_side(results[:first], [paths[0]], options),
        merge_side(results[first:], [paths[1]], options),
    )
    return sides, analyses


def _reduced(analysis: Analysis) -> tuple[tuple[NameTimes, ...], None]:
    """What a comparison needs of one file, in whichever process."""
    from tracelab.comparison.compare import kernels_of

    return kernels_of(analysis), None


def _kept(analysis: Analysis) -> tuple[tuple[NameTimes, ...], Analysis]:
    """The same with the analysis itself, of which a picture is drawn."""
    return _reduced(analysis)[0], analysis


def _draw(diff: Diff, analyses: list[Analysis], path: Path) -> None:
    """Draw the step of median length of each side, or the whole traces."""
    from tracelab.drawing import part_of
    from tracelab.render.picture.save import save_figure
    from tracelab.render.picture.timeline import draw_stacked
    from tracelab.render.text.diff import picture_title

    (rank,) = diff.ranks
    parts = [
        part_of(analysis, file.start_ns, file.end_ns, picture_title(file))
        for analysis, file in zip(analyses, (rank.before, rank.after), strict=True)
    ]
    save_figure(draw_stacked(parts), path)
