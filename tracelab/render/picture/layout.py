"""Layout of a picture: the sheet of lanes, the letters that fit into it, the legend below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch
from matplotlib.textpath import TextToPath

from tracelab.base.arrays import Record
from tracelab.render.palette import KINDS, kind_word
from tracelab.render.picture.coverage import FloatArray, Grid
from tracelab.render.picture.rows import Band, Row
from tracelab.render.words import shorten

GROUND, GRID_LINE, DARK, GRAY = "#F5F6F8", "#E4E6E9", "#202124", "#5F6368"
FONT = "DejaVu Sans"  # it comes with matplotlib

# With a power of two as the resolution, whole pixels stay whole in floats.
DPI = 128
# Left and right of the lanes.
LEFT_PX, RIGHT_PX = 240, 30
MIN_WIDTH_PX, MAX_WIDTH_PX = 400, 16_384
# Left of the headline and of the devices.
MARGIN_PX = 20
# From the upper edge to the headline, from a line to the next, from the last to the lanes.
_TITLE_DOWN_PX, LINE_PX, CAPTION_UP_PX = 34, 24, 40
# Below the lanes, below the legend.
_AXIS_PX, _BOTTOM_PX = 46, 14
# Letters.
TITLE_PX, TEXT_PX, SMALL_PX = 20, 14, 12

Segment = tuple[tuple[float, float], tuple[float, float]]  # ns from the start, pixels from the top

_LANE_GAP, _DEVICE_GAP = 4, 14
_LARGE_LANE, _SMALL_LANE, _LANES_WITH_ROOM = 40, 22, 8
_LEGEND_ROW_PX, _LEGEND_ENTRY_PX = 24, 160
_MIN_LETTERS = 8


def points(px: float) -> float:
    """Return a length in points, which matplotlib takes for letters and lines."""
    return px * 72 / DPI


class Sheet(Record, eq=False):
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
        """The upper and lower edge of each device's streams."""
        edges: dict[int, tuple[int, int]] = {}
        for lane, top, bottom in self.places():
            if lane.device is not None and lane.streams:
                first, _ = edges.get(lane.device, (top, top))
                edges[lane.device] = (first, bottom)
        return edges

    def fill(self, kind: str, polygons: Sequence[FloatArray]) -> None:
        """Add shapes of one kind as one collection, above idle time."""
        style = KINDS[kind]
        shapes = PolyCollection(
            polygons,
            facecolor=style.color,
            edgecolor=style.hatch_ink,
            hatch=style.hatch or None,
            linewidth=0,
            zorder=1 if kind == "idle" else 2,
        )
        shapes.set_gid(kind)
        self.axes.add_collection(shapes, autolim=False)

    def draw_lines(self, gid: str, segments: Sequence[Segment], px: float, **look: Any) -> None:
        """Add lines of N pixels as one collection."""
        lines = LineCollection(segments, linewidths=points(px), **look)
        lines.set_gid(gid)
        self.axes.add_collection(lines, autolim=False)

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
    lanes: Sequence[Sequence[Row]],
    grids: Sequence[Grid],
    lines: Sequence[int],
    width_px: int,
    legend_px: int,
) -> list[Sheet]:
    """Make an empty picture of the right size: sheets one below the other, axes on whole pixels.

    Above the lanes of each sheet is room for its headline and so many lines.
    """
    lane_px = [_lane_height_px(len(of_sheet)) for of_sheet in lanes]
    tops = [lane_tops(of_sheet, px) for of_sheet, px in zip(lanes, lane_px, strict=True)]
    lanes_px = [
        top[-1] + lane_height_px(of_sheet[-1], px)
        for of_sheet, top, px in zip(lanes, tops, lane_px, strict=True)
    ]
    header_px = [_TITLE_DOWN_PX + LINE_PX * count + CAPTION_UP_PX for count in lines]
    height_px = sum(header_px) + sum(lanes_px) + _AXIS_PX * len(grids) + legend_px
    figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    sheets: list[Sheet] = []
    below_px = height_px
    for i, grid in enumerate(grids):
        below_px -= header_px[i] + lanes_px[i]
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
        below_px -= _AXIS_PX
    return sheets


def _lane_height_px(lanes: int) -> int:
    return max(_SMALL_LANE, _LARGE_LANE - max(0, lanes - _LANES_WITH_ROOM))


def lane_height_px(lane: Row, lane_px: int) -> int:
    """The height of a lane: that of every lane, or what it needs to be seen."""
    return max(lane_px, lane.min_px)


def lane_tops(lanes: Sequence[Row], lane_px: int) -> list[int]:
    """The upper edge of each lane, with more room where the device changes."""
    tops = [0]
    for before, lane in pairwise(lanes):
        gap_px = _LANE_GAP if lane.device == before.device else _DEVICE_GAP
        tops.append(tops[-1] + lane_height_px(before, lane_px) + gap_px)
    return tops


# --- letters ---


def printable(text: str) -> str:
    """Return the text with a question mark for each letter that the font does not have."""
    known = _letters()
    return "".join(c if c.isprintable() and ord(c) in known else "?" for c in text)


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont(FONT)).get_charmap())


@lru_cache(maxsize=4096)
def text_width(text: str, size_px: int, weight: str = "normal") -> float:
    """Width of a line of text, pixels."""
    font = FontProperties(family=FONT, size=size_px, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def fit(text: str, room_px: float, size_px: int, weight: str = "normal") -> str:
    """Return the text, or its beginning, or nothing where not even a few letters fit."""
    width = text_width(text, size_px, weight)
    if width <= room_px:
        return text
    for letters in range(int(len(text) * room_px / width), _MIN_LETTERS - 1, -1):
        if text_width(shorten(text, letters), size_px, weight) <= room_px:
            return shorten(text, letters)
    return ""


def wrap(text: str, room_px: float, size_px: int, weight: str, most: int) -> list[str]:
    """Return the text in at most N lines, cut at its end."""
    lines: list[str] = []
    rest = text.split(" ")
    while rest and len(lines) < most - 1:
        count = len(rest)
        while count > 1 and text_width(" ".join(rest[:count]), size_px, weight) > room_px:
            count -= 1
        lines.append(" ".join(rest[:count]))
        rest = rest[count:]
    last = fit(" ".join(rest), room_px, size_px, weight)
    return [fit(line, room_px, size_px, weight) for line in lines] + ([last] if rest else [])


# --- legend ---


def legend_px(grid: Grid, entries: int) -> int:
    """Return the height of a legend with N entries, and of the margin below it."""
    return _LEGEND_ROW_PX * -(-entries // _legend_columns(grid)) + _BOTTOM_PX


def _legend_columns(grid: Grid) -> int:
    return max(1, grid.columns // _LEGEND_ENTRY_PX)


def legend_entries(kinds: Set[str]) -> list[list[str]]:
    """List the kinds that occur, those that look alike together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for kind, style in KINDS.items():
        if kind in kinds:
            alike.setdefault((style.color, style.hatch), []).append(kind)
    return list(alike.values())


def draw_legend(sheet: Sheet, kinds: Set[str]) -> None:
    """Draw the legend of the kinds of spans below a picture; the sheet's width limits a line."""
    handles = [
        Patch(
            facecolor=KINDS[of_look[0]].color,
            edgecolor=KINDS[of_look[0]].hatch_ink,
            hatch=KINDS[of_look[0]].hatch or None,
            linewidth=0,
            label=" / ".join(dict.fromkeys(map(kind_word, of_look))),
        )
        for of_look in legend_entries(kinds)
    ]
    width_px, height_px = sheet.figure.get_size_inches() * DPI
    columns = _legend_columns(sheet.grid)
    left = LEFT_PX if columns > 1 else MARGIN_PX
    sheet.figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(left / width_px, _BOTTOM_PX / height_px),
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
