"""Style of a timeline: grays, sizes in pixels, and matplotlib's settings while it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

GROUND, GRID_LINE, DARK, GRAY = "#F5F6F8", "#E4E6E9", "#202124", "#5F6368"
STEP_LINES: Mapping[str, Any] = MappingProxyType(
    {"colors": "#3C4043", "zorder": 4, "clip_on": False}
)
FONT = "DejaVu Sans"  # it comes with matplotlib

# With a power of two as the resolution, whole pixels stay whole in floats.
DPI = 128
# Left and right of the lanes.
LEFT_PX, RIGHT_PX = 240, 30
MIN_WIDTH_PX, MAX_WIDTH_PX = 400, 16_384
# Left of the headline and of the devices.
MARGIN_PX = 20
# Above the lanes, below them, below the legend.
TOP_PX, AXIS_PX, BOTTOM_PX = 98, 46, 14
# Letters.
TITLE_PX, TEXT_PX, SMALL_PX = 20, 14, 12


def points(px: float) -> float:
    """A length in points, which matplotlib takes for letters and lines.

    >>> points(128)
    72.0
    """
    return px * 72 / DPI


@contextmanager
def fixed_style() -> Iterator[None]:
    """Matplotlib's own defaults, whatever the user's are, and what a timeline needs."""
    import matplotlib as mpl

    defaults = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith("backend")}
    with mpl.rc_context({**defaults, "hatch.linewidth": 0.8, "svg.hashsalt": "tracelab"}):
        yield
