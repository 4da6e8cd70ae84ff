"""Drawing of a job's heat map in a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from tracelab.render.job_heat_map import COMPUTE, COPIES, IDLE, TRANSFER, WAIT, HeatMap, merged
from tracelab.render.picture.coverage import FloatArray
from tracelab.render.picture.style import DARK, DPI, GRAY, SMALL_PX, TEXT_PX, points

_PANEL_GAP, _TITLE_PX, _STEPS_PX = 28, 30, 24
_MIN_CELL_PX, _NUMBER_CELL_PX, _NUMBER_ROW_PX = 3, 26, 13
_STEP_LABEL = 34

# The darkest color of each panel; none is darker, and colors alone tell nothing.
_COLORS: Mapping[str, str] = MappingProxyType(
    {
        COMPUTE: "#0072B2",
        WAIT: "#D55E00",
        TRANSFER: "#B07900",
        COPIES: "#00795A",
        IDLE: "#5F6368",
    }
)


def heat_map_px(rows: int, row_px: int) -> int:
    """Return the height of a heat map with N rows."""
    return _TITLE_PX + rows * row_px + _STEPS_PX


def draw_heat_map(
    figure: Figure, content: HeatMap, *, left_px: int, top_px: int, width_px: int, row_px: int
) -> None:
    """Draw the panels beside each other.

    Args:
        figure: the picture.
        content: what they show.
        left_px: their left edge, from that of the picture.
        top_px: their upper edge, from that of the picture.
        width_px: of all panels together.
        row_px: the height of a row.
    """
    panels = len(content.shares)
    panel_px = (width_px - (panels - 1) * _PANEL_GAP) // panels
    whole_px = figure.get_size_inches() * DPI
    height_px = row_px * len(content.ranks)
    most = max(np.nanmax(share, initial=0) for share in content.shares.values()) or 1.0
    for index, (title, share) in enumerate(content.shares.items()):
        x_px = left_px + index * (panel_px + _PANEL_GAP)
        y_px = whole_px[1] - top_px - _TITLE_PX - height_px
        axes = figure.add_axes(
            (
                x_px / whole_px[0],
                y_px / whole_px[1],
                panel_px / whole_px[0],
                height_px / whole_px[1],
            ),
            label=title,
        )
        shown, edges = merged(share, -(-share.shape[1] * _MIN_CELL_PX // panel_px))
        _draw_panel(axes, title, shown, most)
        _write_numbers(axes, title, shown, panel_px / shown.shape[1], row_px, most)
        _write_steps(axes, [content.steps[i] for i in edges], panel_px / shown.shape[1])
        if index == 0:
            _write_ranks(axes, content.ranks, row_px)


def _colormap(title: str) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(title, ["#F7F7F8", _COLORS[title]])


def _draw_panel(axes: Axes, title: str, share: FloatArray, most: float) -> None:
    axes.imshow(
        share,
        cmap=_colormap(title),
        vmin=0,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
    )
    axes.set_title(title, fontsize=points(TEXT_PX), color=DARK, loc="left", pad=points(6))
    axes.set_xticks([])
    axes.set_yticks([])
    rows, columns = share.shape
    for spine in axes.spines.values():
        spine.set_visible(False)
    if rows <= 32 and columns <= 40:
        axes.hlines(np.arange(rows - 1) + 0.5, -0.5, columns - 0.5, colors="white", lw=points(2))
        axes.vlines(np.arange(columns - 1) + 0.5, -0.5, rows - 0.5, colors="white", lw=points(2))


def _write_numbers(
    axes: Axes, title: str, share: FloatArray, cell_px: float, row_px: int, most: float
) -> None:
    """The percentage in each cell that has room for it, light on dark."""
    if cell_px < _NUMBER_CELL_PX or row_px < _NUMBER_ROW_PX:
        return
    colors = _colormap(title)
    for (row, column), value in np.ndenumerate(share):
        if np.isfinite(value):
            red, green, blue = to_rgb(colors(value / most))
            is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            axes.text(
                column,
                row,
                f"{100 * value:.0f}",
                fontsize=points(min(SMALL_PX, row_px - 2)),
                color="white" if is_dark else DARK,
                ha="center",
                va="center_baseline",
            )


def _write_steps(axes: Axes, steps: Sequence[int], cell_px: float) -> None:
    every = max(1, -int(-_STEP_LABEL // cell_px))
    for column in range(0, len(steps), every):
        text = f"step {steps[column]}" if column == 0 else f"{steps[column]}"
        axes.annotate(
            text,
            (column, 0),
            (0, -points(14)),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=points(SMALL_PX),
            color=GRAY,
            ha="center",
            va="center_baseline",
        )


def _write_ranks(axes: Axes, ranks: Sequence[int], row_px: int) -> None:
    look: dict[str, Any] = {
        "textcoords": "offset points",
        "ha": "right",
        "va": "center_baseline",
    }
    for row, rank in enumerate(ranks):
        axes.annotate(
            f"rank {rank}",
            (0, row),
            (-points(10), 0),
            xycoords=("axes fraction", "data"),
            fontsize=points(min(TEXT_PX, row_px - 1)),
            color=DARK,
            **look,
        )
    axes.annotate(
        "% of the step",
        (0, 1),
        (-points(10), points(12)),
        xycoords="axes fraction",
        fontsize=points(SMALL_PX),
        color=GRAY,
        **look,
    )
