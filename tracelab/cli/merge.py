"""``tracelab merge``: one report of the nodes of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from tracelab.base.errors import UsageError
from tracelab.cli.analyze import chosen_form, look_of, requests_of, show
from tracelab.cli.options import (
    Brief,
    Csv,
    Full,
    Html,
    Json,
    Markdown,
    Png,
    Redact,
    Top,
    require_outputs,
)
from tracelab.system.console import tell


def merge(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PARTS", help="Files that `tracelab analyze --parts` wrote."),
    ],
    full: Full = False,
    markdown: Markdown = False,
    brief: Brief = False,
    json: Json = None,
    csv: Csv = None,
    png: Png = None,
    html: Html = None,
    top: Top = None,
    redact: Redact = False,
) -> None:
    """Merge what the nodes of a job wrote into one report."""
    from tracelab.analysis.parts import merge_parts
    from tracelab.outputs.registry import paths_of

    is_whole = {"--full": full, "--top": top is not None}
    form = chosen_form(markdown=markdown, brief=brief, json=json, is_whole=is_whole)
    requests = requests_of({"png": png, "html": html}, 1)
    outputs = [json, csv and csv / "findings.csv", *paths_of(requests)]
    require_outputs((), files=outputs, other_inputs=paths)
    report, results, options = merge_parts(paths)
    if png is not None and not (report.job and report.job.per_rank):
        raise UsageError(
            "--png draws the ranks of one job, and these are not: parts have no kernels; "
            "`tracelab analyze FILES --png FILE` draws those of the traces"
        )
    if html is not None:
        tell("the page has no timelines, because parts have no kernels")
    look = look_of(full=full, top=top)
    show(report, results, options, form, look, requests, json=json, csv=csv, redact=redact)
