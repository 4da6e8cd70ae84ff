"""Draw what ``tracelab diff`` prints."""

from __future__ import annotations

from tracelab.comparison.diff import Diff
from tracelab.render.sections.diff import chapters


def render_diff(diff: Diff, *, width: int, color: bool) -> str:
    """Return what changed as text; lines are at most `width` long, but at least 80."""
    from tracelab.render.text.terminal import draw

    return draw(chapters(diff), width=width, color=color)
