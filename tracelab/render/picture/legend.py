"""The legend below a picture of timelines: what occurs in it, and how it looks."""

from __future__ import annotations

from collections.abc import Set

from matplotlib.patches import Patch

from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.layout import Sheet
from tracelab.render.picture.rows import Mark
from tracelab.render.picture.style import (
    BOTTOM_PX,
    DARK,
    DPI,
    LEFT_PX,
    MARGIN_PX,
    PAINTS,
    TEXT_PX,
    points,
)

_ROW_PX, _ENTRY_PX = 24, 160


def legend_px(grid: Grid, marks: int) -> int:
    """Return the height of a legend with N entries, and of the margin below it."""
    return _ROW_PX * -(-marks // _columns(grid)) + BOTTOM_PX


def _columns(grid: Grid) -> int:
    return max(1, grid.columns // _ENTRY_PX)


def draw_legend(sheet: Sheet, marks: Set[Mark], bottom_px: int = BOTTOM_PX) -> None:
    """Draw the legend of the picture's contents below it; the sheet's width limits a line.

    Args:
        sheet: the drawing.
        marks: the sorts of things in it.
        bottom_px: the legend's lower edge, above the picture's.
    """
    handles = [
        Patch(
            facecolor=paint.fill,
            edgecolor=paint.hatch_ink,
            hatch=paint.hatch or None,
            linewidth=0,
            label=mark.value,
        )
        for mark, paint in PAINTS.items()
        if mark in marks
    ]
    width_px, height_px = sheet.figure.get_size_inches() * DPI
    columns = _columns(sheet.grid)
    left = LEFT_PX if columns > 1 else MARGIN_PX
    sheet.figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(left / width_px, bottom_px / height_px),
        ncols=columns,
        fontsize=points(TEXT_PX),
        labelcolor=DARK,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.6,
        handleheight=1,
        columnspacing=1.6,
    )
