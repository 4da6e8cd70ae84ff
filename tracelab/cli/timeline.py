"""``tracelab timeline``: a picture of what ran when."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tracelab.cli.console import save_result, tell
from tracelab.errors import UsageError


def timeline(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A trace (.json, .json.gz) or URL.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf to write.")
    ] = Path("timeline.png"),
    step: Annotated[int | None, typer.Option(metavar="N", help="Draw one step.")] = None,
    start_ms: Annotated[
        float | None,
        typer.Option("--from", metavar="MS", help="Begin here, in ms from the start."),
    ] = None,
    end_ms: Annotated[
        float | None, typer.Option("--to", metavar="MS", help="End here, in ms from the start.")
    ] = None,
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LANE",
            help="Only these: host, device:0, stream:0/7, kind:comm (repeat, or use commas).",
        ),
    ] = None,
    step_on: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Host annotations that are the steps.")
    ] = None,
    comm_pattern: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX", help="Kernels that communicate, beside the known ones."),
    ] = None,
    width: Annotated[int, typer.Option(min=400, metavar="PX", help="Pixels across.")] = 1600,
) -> None:
    """Draw what ran when: a lane per stream, the host's blocking calls, the idle time."""
    from tracelab.analysis import Options, analyze_source
    from tracelab.render.png import draw_timeline, save_figure
    from tracelab.sources import find_sources
    from tracelab.timeline import PROFILER_STEP

    sources = find_sources([path])
    if len(sources) > 1:
        raise UsageError(f"{path} holds {len(sources)} files; a picture shows one: name it")
    options = Options(
        comm_patterns=tuple(comm_pattern or ()),
        step_pattern=step_on or PROFILER_STEP,
        step=step,
    )
    analysis = analyze_source(sources[0], options)
    window = analysis.windows[0]
    if not all(map(math.isfinite, (start_ms or 0, end_ms or 0))):
        raise UsageError("--from and --to take milliseconds")
    since = window.start_ns + round((start_ms or 0) * 1e6)
    until = window.end_ns if end_ms is None else window.start_ns + round(end_ms * 1e6)
    if not window.start_ns <= since < until:
        raise UsageError(
            f"there is nothing to draw between {(since - window.start_ns) / 1e6:g} ms and "
            f"{(until - window.start_ns) / 1e6:g} ms: what can be drawn is "
            f"{window.length_ns / 1e6:g} ms long"
        )
    figure = draw_timeline(
        analysis.timeline,
        blocking_calls=analysis.syncs.calls.call,
        start_ns=since,
        end_ns=until,
        lanes=[name for text in lanes for name in text.split(",")] if lanes else None,
        title=Path(path).name,
        width_px=width,
    )
    save_result(output, partial(save_figure, figure))
    tell(f"drew {output}")
