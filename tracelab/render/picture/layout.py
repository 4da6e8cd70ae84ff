"""Layout of a picture of a timeline: the sheet of lanes, their edges, their heights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tracelab.base.arrays import dataclass
from tracelab.render.picture.coverage import FloatArray, Grid
from tracelab.render.picture.letters import printable
from tracelab.render.picture.rows import Band, Mark, Row
from tracelab.render.picture.style import (
    AXIS_PX,
    DARK,
    DPI,
    LEFT_PX,
    PAINTS,
    TEXT_PX,
    TOP_PX,
    points,
)

_LANE_GAP, _DEVICE_GAP = 4, 14
_LARGE_LANE, _SMALL_LANE, _LANES_WITH_ROOM = 40, 22, 8
_MIN_BAND_PX = 8
_LAYERS = dict.fromkeys(Mark, 2) | {Mark.IDLE: 1}  # what is drawn above what


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """A drawing in the making; in its axes x is ns from the start, y is pixels from the top.

    Attributes:
        figure: the picture.
        axes: the part that the lanes fill.
        grid: the pixel columns of the axes.
        rows: what lies in them.
        tops: each lane's upper edge.
        lane_px: every lane's height, unless its bands need more.
    """

    figure: Figure
    axes: Axes
    grid: Grid
    rows: Sequence[Row]
    tops: Sequence[int]
    lane_px: int

    @property
    def height_px(self) -> int:
        """Height of all lanes."""
        return self.tops[-1] + lane_height_px(self.rows[-1], self.lane_px)

    @property
    def is_spacious(self) -> bool:
        """True if two lines of text fit beside a lane."""
        return self.lane_px >= 2 * TEXT_PX + 4

    def places(self) -> Iterator[tuple[Row, int, int]]:
        """Every lane with its upper and lower edge."""
        for lane, top in zip(self.rows, self.tops, strict=True):
            yield lane, top, top + lane_height_px(lane, self.lane_px)

    def bands(self) -> Iterator[tuple[Band, float, float]]:
        """Every band of every lane with its upper and lower edge."""
        for lane, top, bottom in self.places():
            for band in lane.bands:
                yield band, top + band.upper * (bottom - top), top + band.lower * (bottom - top)

    def device_edges(self) -> dict[int, tuple[int, int]]:
        """The upper and lower edge of each device's lanes."""
        edges: dict[int, tuple[int, int]] = {}
        for lane, top, bottom in self.places():
            if lane.device is not None:
                first, _ = edges.get(lane.device, (top, top))
                edges[lane.device] = (first, bottom)
        return edges

    def fill(self, mark: Mark, polygons: Sequence[FloatArray]) -> None:
        """Add shapes of one sort as one collection."""
        paint = PAINTS[mark]
        shapes = PolyCollection(
            polygons,
            facecolor=paint.fill,
            edgecolor=paint.hatch_ink,
            hatch=paint.hatch or None,
            linewidth=0,
            zorder=_LAYERS[mark],
        )
        shapes.set_gid(mark.name.lower())
        self.axes.add_collection(shapes, autolim=False)

    def write(
        self, x_px: float, y_px: float, text: str, size_px: int = TEXT_PX, **look: Any
    ) -> None:
        """Write at a point in pixels from the lanes' upper left corner."""
        style = {"color": DARK, "va": "center_baseline", "zorder": 5, **look}
        self.axes.text(
            x_px * self.grid.pixel_ns,
            y_px,
            printable(text),
            fontsize=points(size_px),
            parse_math=False,
            **style,
        )


def new_sheets(
    lanes: Sequence[Sequence[Row]], grids: Sequence[Grid], width_px: int, legend_px: int
) -> list[Sheet]:
    """An empty picture of the right size: sheets one below the other, axes on whole pixels.

    Args:
        lanes: of each sheet.
        grids: the time of each sheet.
        width_px: the picture's width.
        legend_px: the height to leave below all sheets.
    """
    lane_px = [_lane_height_px(len(of_sheet)) for of_sheet in lanes]
    tops = [lane_tops(of_sheet, px) for of_sheet, px in zip(lanes, lane_px, strict=True)]
    lanes_px = [
        top[-1] + lane_height_px(of_sheet[-1], px)
        for of_sheet, top, px in zip(lanes, tops, lane_px, strict=True)
    ]
    height_px = sum(TOP_PX + px + AXIS_PX for px in lanes_px) + legend_px
    figure = new_figure(width_px, height_px)
    sheets: list[Sheet] = []
    below_px = height_px
    for i, grid in enumerate(grids):
        below_px -= TOP_PX + lanes_px[i]
        axes = figure.add_axes(
            (
                LEFT_PX / width_px,
                below_px / height_px,
                grid.columns / width_px,
                lanes_px[i] / height_px,
            ),
            label=str(i),
        )
        axes.set(xlim=(0, grid.length_ns), ylim=(lanes_px[i], 0), facecolor="none")
        sheets.append(Sheet(figure, axes, grid, lanes[i], tops[i], lane_px[i]))
        below_px -= AXIS_PX
    return sheets


def new_figure(width_px: int, height_px: int) -> Figure:
    """An empty picture."""
    figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _lane_height_px(lanes: int) -> int:
    return max(_SMALL_LANE, _LARGE_LANE - max(0, lanes - _LANES_WITH_ROOM))


def lane_height_px(lane: Row, lane_px: int) -> int:
    """The height of a lane: that of every lane, or what its bands need to be seen."""
    return max(lane_px, _MIN_BAND_PX * len(lane.bands))


def lane_tops(lanes: Sequence[Row], lane_px: int) -> list[int]:
    """The upper edge of each lane, with more room where the device changes."""
    tops = [0]
    for before, lane in pairwise(lanes):
        gap_px = _LANE_GAP if lane.device == before.device else _DEVICE_GAP
        tops.append(tops[-1] + lane_height_px(before, lane_px) + gap_px)
    return tops
