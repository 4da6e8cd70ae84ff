"""``tracelab merge``: one report of the parts that the nodes of a job wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from tracelab.cli.analyze import chosen_form, look_of, show
from tracelab.cli.options import (
    Brief,
    Csv,
    Full,
    Json,
    Markdown,
    Redact,
    Top,
    require_outputs,
)


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
    top: Top = None,
    redact: Redact = False,
) -> None:
    """Merge what the nodes of a job wrote into one report."""
    from tracelab.analysis.parts import merge_parts

    is_whole = {"--full": full, "--top": top is not None}
    form = chosen_form(markdown=markdown, brief=brief, json=json, is_whole=is_whole)
    require_outputs((), files=[json, csv and csv / "findings.csv"], other_inputs=paths)
    report, results, options = merge_parts(paths)
    look = look_of(full=full, top=top)
    show(report, results, options, form, look, {}, json=json, csv=csv, redact=redact)
