"""Pictures of what was analyzed: a file's timeline, or a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tracelab.analysis import Analysis, analyze_source
from tracelab.errors import TracelabError, UsageError
from tracelab.options import DEFAULTS, Options
from tracelab.read.sources import one_source, path_names
from tracelab.read.streams import Source
from tracelab.system.files import identities, require_output

if TYPE_CHECKING:
    from tracelab.render.picture.save import Picture
    from tracelab.render.picture.timeline import Part


_LATEST_MS = 1e12  # 31 years, in nanoseconds still an int64


def draw(
    trace: str | PathLike[str] | Source | Analysis | Sequence[str | PathLike[str]],
    path: str | PathLike[str] | None = None,
    *,
    options: Options = DEFAULTS,
    start_ms: float | None = None,
    end_ms: float | None = None,
    lanes: str | Sequence[str] | None = None,
    title: str = "",
    width_px: int = 1600,
) -> Picture:
    """Draw what ran when: the streams, the host's blocking calls, the idle time.

    Args:
        trace: a file, a URL, or what `analyze_source` made of one; of several files each is drawn
            as a whole, one above the other.
        path: the file to write, ``.png``, ``.svg`` or ``.pdf``; its folder is made. None for none:
            the picture shows itself in a notebook.
        options: how a file is analyzed; `Options.step` draws that step alone.
        start_ms: where to begin, in ms from the start of the trace or the step.
        end_ms: where to end, likewise.
        lanes: only this one, or these: ``host``, ``device:0``, ``stream:0/7``, ``kind:comm``.
        title: the headline, by default the file's name.
        width_px: pixels across.

    Example:
        >>> tracelab.draw("traces/events_item.pt.trace.json.gz", "item.png", lanes="host")
        Picture(figure=<Figure size 1600x222 with 1 Axes>)

    Raises:
        UsageError: there is nothing to draw, or a part is asked for of several files.
        OutputError: `path` cannot be written, or is the trace.
        TracelabError: the file cannot be analyzed.
    """
    from tracelab.render.picture.save import Picture, require_format
    from tracelab.render.picture.timeline import draw_timeline, require_drawable

    chosen = [lanes] if isinstance(lanes, str) else lanes
    inputs = [trace] if isinstance(trace, Analysis | Source) else path_names(trace)
    if not inputs:
        raise UsageError("no file or URL to draw was given")
    if len(inputs) > 1 and any(x is not None for x in (lanes, start_ms, end_ms)):
        raise UsageError(
            "only the timeline of a single file can be cut to a part; these are several files"
        )
    if not all(abs(ms or 0) <= _LATEST_MS for ms in (start_ms, end_ms)):  # nan is not, either
        raise UsageError("a picture must begin and end within 10^12 milliseconds")
    require_drawable(len(inputs), chosen, width_px)
    if path is not None:
        require_format(Path(path))
    known = [one if isinstance(one, Analysis) else one_source(one) for one in inputs]
    if path is not None:
        require_output(path, identities(map(_path_of, known)))
    analyses = [one if isinstance(one, Analysis) else analyze_source(one, options) for one in known]
    if len(analyses) > 1:
        picture = _stacked(analyses, width_px)
    else:
        [analysis] = analyses
        start_ns, end_ns = _span(analysis, start_ms, end_ms)
        picture = Picture(
            draw_timeline(
                analysis.timeline,
                blocking_calls=analysis.blocking_calls.calls.event_id,
                start_ns=start_ns,
                end_ns=end_ns,
                lanes=chosen,
                title=title,
                width_px=width_px,
            )
        )
    if path is not None:
        picture.save(Path(path))
    return picture


def draw_beside(analysis: Analysis, path: Path | None) -> Path | TracelabError | None:
    """Draw one of several files that are analyzed, in whichever process.

    Returns:
        the picture that was drawn, None for no path, or why it could not be.
    """
    if path is None:
        return None
    try:
        draw(analysis, path)
    except TracelabError as error:
        return error
    return path


def _path_of(known: Analysis | Source) -> str:
    return known.timeline.trace.path if isinstance(known, Analysis) else known.path


def _span(analysis: Analysis, start_ms: float | None, end_ms: float | None) -> tuple[int, int]:
    """From when to when to draw, ns.

    Raises:
        UsageError: nothing is there.
    """
    window = analysis.windows[0]
    start_ns = window.start_ns + round((start_ms or 0) * 1e6)
    end_ns = window.end_ns if end_ms is None else window.start_ns + round(end_ms * 1e6)
    if not window.start_ns <= start_ns < min(end_ns, window.end_ns):
        raise UsageError(
            f"there is nothing to draw between {(start_ns - window.start_ns) / 1e6:g} ms and "
            f"{(end_ns - window.start_ns) / 1e6:g} ms: what can be drawn is "
            f"{window.length_ns / 1e6:g} ms long"
        )
    return start_ns, end_ns


def part_of(analysis: Analysis, start_ns: int, end_ns: int, title: str) -> Part:
    """A stretch of what was analyzed, to be drawn above or below others."""
    from tracelab.render.picture.timeline import Part

    calls = analysis.blocking_calls.calls
    return Part(analysis.timeline, calls.event_id, start_ns, end_ns, title)


def _stacked(analyses: Sequence[Analysis], width_px: int) -> Picture:
    """The whole of several files, one above the other."""
    from tracelab.render.picture.save import Picture
    from tracelab.render.picture.timeline import draw_stacked

    parts = []
    for analysis in analyses:
        window, name = analysis.windows[0], Path(analysis.timeline.trace.path).name
        parts.append(part_of(analysis, window.start_ns, window.end_ns, name))
    return Picture(draw_stacked(parts, width_px=width_px))
