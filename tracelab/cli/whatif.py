"""``tracelab whatif``: replay of a step with changes."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.base.errors import UsageError
from tracelab.cli.options import Analyzed, Json, analyzes, require_outputs
from tracelab.system.console import output_in_color, output_width, tell, write_result

if TYPE_CHECKING:
    from tracelab.analysis.analysis import Analysis
    from tracelab.base.options import Options


class By(StrEnum):
    """Rows of the causal profile."""

    FINDING = "finding"
    LINE = "line"
    OPERATOR = "operator"
    KERNEL = "kernel"


@analyzes("step_on", "comm_pattern", "source", "job", "no_cache", "max_unpacked")
def whatif(
    analyzed: Analyzed,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="A trace (.json, .pftrace, .gz) or URL, or those of a job."
        ),
    ],
    fix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|RULE|all",
            help="Fix finding N, as `analyze` numbers them, all of a rule, or each. Repeat it.",
        ),
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EDIT",
            help="KIND[:PLACE][=VALUE]: unblock:train.py:40, scale:kernel:gemm=0.5. Repeat it.",
        ),
    ] = None,
    by: Annotated[
        By | None,
        typer.Option(help="The causal profile: the step if each of these cost nothing."),
    ] = None,
    json: Json = None,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a step before and after: .png, .svg, .pdf."),
    ] = None,
) -> None:
    """Predict how long a step takes with each change, and with all.

    Without --fix, --edit or --by, the changes are the fixes of all findings.
    """
    from tracelab.analysis.reports import analyze_file, merge_results, whatif_of_job
    from tracelab.cli.many_files import map_files
    from tracelab.findings.fixes import ALL, require_choices
    from tracelab.outputs.picture import PICTURE
    from tracelab.read.sources import find_sources
    from tracelab.render.text.report import render_predictions

    if not (fix or edit or by):
        fix = [ALL]
    if png is not None and not (fix or edit):
        raise UsageError("--png draws a step before and after a change: add --fix or --edit")
    require_choices(fix or (), edit or ())
    sources = find_sources(paths, analyzed.max_unpacked_bytes)
    if len(sources) > 1 and (by or png):
        raise UsageError("--by and --png are of one file: give that of one rank")
    if png is not None:
        PICTURE.require_name(png)
    require_outputs(sources, files=[json, png])
    options = analyzed.options(
        len(sources),
        fixes=tuple(fix or ()),
        edits=tuple(edit or ()),
        profile_by=by,
    )
    if len(sources) > 1:
        report, kept = whatif_of_job(sources, paths, options, map_files), None
    else:
        read = partial(analyze_file, options=options, then=None if png is None else _kept)
        [result] = map_files(read, sources)
        report, kept = merge_results([result], paths, options), result.more
    if json == "-":
        write_result(report.to_json().decode())
    else:
        if json is not None:
            report.save(json)
        write_result(render_predictions(report, width=output_width(), color=output_in_color()))
    if png is not None and kept is not None:
        _draw(kept, options, png)


def _kept(analysis: Analysis) -> Analysis:
    return analysis


def _draw(analysis: Analysis, options: Options, path: Path) -> None:
    from tracelab.outputs.picture import draw_whatif

    if analysis.baseline.program is None:
        tell(f"{path} is not drawn: nothing was replayed")
        return
    draw_whatif(analysis, path, fixes=options.fixes, edits=options.edits)
    tell(f"drew {path}")
