"""Style of a timeline: colors, sizes in pixels, and matplotlib's settings while it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from tracelab.base.arrays import dataclass
from tracelab.render.picture.rows import Mark


@dataclass(frozen=True, slots=True)
class Paint:
    """Style of one sort of item.

    Example row: ``Paint(fill="#E69F00", ink="#202124", hatch="", hatch_ink="none")``

    Attributes:
        fill: the color of the shape.
        ink: the color of a name written on it.
        hatch: matplotlib's pattern; "" for none.
        hatch_ink: the color of that pattern.
    """

    fill: str
    ink: str = "white"
    hatch: str = ""
    hatch_ink: str = "none"


# Okabe and Ito's hues, which color-blind readers can tell apart, in four steps of lightness, so
# that a grayscale copy can be read as well.
PAINTS: Mapping[Mark, Paint] = MappingProxyType(
    {
        Mark.COMPUTE: Paint("#0072B2"),
        Mark.FORWARD: Paint("#0072B2"),
        Mark.BACKWARD: Paint("#56B4E9", ink="#202124"),
        Mark.OTHER_COMPUTE: Paint("#0B3C5D"),
        Mark.COMM: Paint("#E69F00", ink="#202124"),
        Mark.WAIT: Paint("#FBE3D3", ink="#202124", hatch="/////", hatch_ink="#D55E00"),
        Mark.TRANSFER: Paint("#E69F00", ink="#202124"),
        Mark.COPY: Paint("#009E73", hatch="\\\\\\", hatch_ink="#4DBB9D"),
        Mark.MEMSET: Paint("#5B2A4A"),
        Mark.BLOCKING: Paint("#C24A00"),
        Mark.LAUNCH: Paint("#8FA3B5"),
        Mark.HOST_STEP: Paint("#DDE3E9"),
        Mark.IDLE: Paint("#EFF0F2", hatch="////", hatch_ink="#CDD2D7"),
    }
)
GROUND, GRID_LINE, STEP_LINE, DARK, GRAY = "#F5F6F8", "#E4E6E9", "#3C4043", "#202124", "#5F6368"
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
