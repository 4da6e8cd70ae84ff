"""Pictures of what was analysed: a file's timeline, or a part of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.analysis import Analysis, Failure, analyze_source
from tracelab.errors import TracelabError, UsageError
from tracelab.options import DEFAULTS, Options
from tracelab.read.sources import find_sources
from tracelab.read.streams import Source
from tracelab.report.schema import Report
from tracelab.system.console import save_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelab.render.picture.save import Picture


def draw(
    trace: str | Path | Analysis,
    path: str | Path | None = None,
    *,
    options: Options = DEFAULTS,
    start_ms: float | None = None,
    end_ms: float | None = None,
    lanes: Sequence[str] | None = None,
    title: str = "",
    width_px: int = 1600,
) -> Picture:
    """Draw what ran when: a lane per stream, the host's blocking calls, the idle time.

    Args:
        trace: a file, a URL, or what `analyze_source` made of one.
        path: the file to write, ``.png``, ``.svg`` or ``.pdf``; its folder is made. None for none:
            the picture shows itself in a notebook.
        options: how a file is analysed; `Options.step` draws that step alone.
        start_ms: where to begin, in ms from the start of the trace or the step.
        end_ms: where to end, likewise.
        lanes: only these: ``host``, ``device:0``, ``stream:0/7``, ``kind:comm``.
        title: the headline, by default the file's name.
        width_px: pixels across.

    Raises:
        UsageError: there is nothing to draw, several files are meant, or `path` cannot be written.
        TracelabError: the file cannot be analysed.
    """
    from tracelab.render.picture.save import Picture
    from tracelab.render.picture.timeline import draw_timeline

    analysis = trace if isinstance(trace, Analysis) else analyze_source(only_source(trace), options)
    window = analysis.windows[0]
    if not all(map(math.isfinite, (start_ms or 0, end_ms or 0))):
        raise UsageError("a picture begins and ends at a number of milliseconds")
    since = window.start_ns + round((start_ms or 0) * 1e6)
    until = window.end_ns if end_ms is None else window.start_ns + round(end_ms * 1e6)
    if not window.start_ns <= since < until:
        raise UsageError(
            f"there is nothing to draw between {(since - window.start_ns) / 1e6:g} ms and "
            f"{(until - window.start_ns) / 1e6:g} ms: what can be drawn is "
            f"{window.length_ns / 1e6:g} ms long"
        )
    picture = Picture(
        draw_timeline(
            analysis.timeline,
            blocking_calls=analysis.blocking_calls.calls.event_id,
            start_ns=since,
            end_ns=until,
            lanes=lanes,
            title=title,
            width_px=width_px,
        )
    )
    if path is not None:
        save_result(Path(path), picture.save)
    return picture


def analyze_and_draw(
    source: Source, picture: Path | None, options: Options
) -> tuple[Report | Failure, Path | TracelabError | None]:
    """Analyse one file and draw it, in whichever process: only the report travels back.

    Returns:
        the report, and the picture that was drawn or why it could not be.
    """
    try:
        analysis = analyze_source(source, options)
    except TracelabError as error:
        return Failure(source, error), None
    if picture is None:
        return analysis.report, None
    try:
        draw(analysis, picture)
    except TracelabError as error:
        return analysis.report, error
    return analysis.report, picture


def only_source(trace: str | Path) -> Source:
    """The file that a path stands for.

    Raises:
        UsageError: it stands for several.
        UnreadableInputError: it stands for none.
    """
    sources = find_sources([str(trace)])
    if len(sources) > 1:
        raise UsageError(f"{trace} holds {len(sources)} files; a picture shows one: name it")
    return sources[0]
