"""``tracelab timeline``: a picture of what ran when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracelab.cli.options import Analyzed, analyzes
from tracelab.system.console import tell


@analyzes("step_on", "comm_pattern", "no_cache", "max_unpacked")
def timeline(
    analyzed: Analyzed,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A trace (.json, .pftrace, .gz) or URL.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf to write.")
    ] = Path("timeline.png"),
    step: Annotated[
        str | None,
        typer.Option(
            metavar="N|all", help="Step N, or all; without it the steady step of median length."
        ),
    ] = None,
    finding: Annotated[
        int | None,
        typer.Option(metavar="N", help="Draw where the worst of finding N lies."),
    ] = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Headline in place of the verdict.")
    ] = "",
    start_ms: Annotated[
        float | None,
        typer.Option(
            "--from",
            metavar="MS",
            help="Begin here, in ms of the trace, or from the start of --step N.",
        ),
    ] = None,
    end_ms: Annotated[
        float | None, typer.Option("--to", metavar="MS", help="End here, likewise.")
    ] = None,
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANE",
            help="Only these rows: host, device:0, stream:0/7, counter:0/allocated, kind:comm "
            "(repeat, or use commas).",
        ),
    ] = None,
    height: Annotated[
        int | None,
        typer.Option(metavar="PX", help="Pixels down, 200 to 16384; by default what lanes need."),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Draw it for a dark page.")] = False,
    width: Annotated[int, typer.Option(metavar="PX", help="Pixels across, 400 to 16384.")] = 1600,
) -> None:
    """Draw what ran when, why the GPU was idle, and the first findings."""
    from tracelab.cli.many_files import progress
    from tracelab.outputs.picture import draw
    from tracelab.read.sources import one_source, size_of

    options = analyzed.options(1)
    source = one_source(path, max_unpacked_bytes=options.max_unpacked_bytes)
    with progress([size_of(source)]):
        draw(
            source,
            output,
            options=options,
            step=step,
            finding=finding,
            title=title,
            start_ms=start_ms,
            end_ms=end_ms,
            lanes=[name for text in lanes for name in text.split(",")] if lanes else None,
            width_px=width,
            height_px=height,
            dark=dark,
        )
    tell(f"drew {output}")
