"""Layout of a picture: the sheet of lanes, letters, the legend below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch
from matplotlib.textpath import TextToPath

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.render.palette import KINDS, Theme, kind_word
from tracelab.render.picture.coverage import FloatArray, Grid
from tracelab.render.picture.rows import Band, Row
from tracelab.render.picture.save import DPI, Look
from tracelab.render.words import shorten

FONT = "DejaVu Sans"  # matplotlib's own

# Beside the lanes.
LEFT_PX, RIGHT_PX = 240, 30
MIN_WIDTH_PX, MIN_HEIGHT_PX, MAX_SIDE_PX = 400, 200, 16_384
# Left of the headline and of the devices.
MARGIN_PX = 20
# Headline below the edge, lines below each other, lanes below the last.
_TITLE_DOWN_PX, LINE_PX, CAPTION_UP_PX = 34, 24, 40
# Below the lanes, below the legend.
_AXIS_PX, _BOTTOM_PX = 46, 14
TITLE_PX, TEXT_PX, SMALL_PX = 20, 14, 12

Segment = tuple[tuple[float, float], tuple[float, float]]  # ns from the start, px from the top

_LANE_GAP, _DEVICE_GAP = 4, 14
_LARGE_LANE, _SMALL_LANE, _LANES_WITH_ROOM = 40, 22, 8
_LEGEND_ROW_PX, _LEGEND_PATCH_PX = 24, 60
_MIN_WIDE_PX = 800
_MIN_LETTERS = 8
# Of their usual height, at a set height.
_MIN_LANE_SHARE = 0.5


def points(px: float) -> float:
    """Convert to points, matplotlib's unit of letters and lines."""
    return px * 72 / DPI


class Sheet(Record, eq=False):
    """An unfinished drawing; x is ns from the start, y pixels from the top."""

    figure: Figure
    axes: Axes
    grid: Grid
    rows: Sequence[Row]
    tops: Sequence[int]
    heights: Sequence[int]
    theme: Theme

    @property
    def height_px(self) -> int:
        """Height of all lanes."""
        return self.tops[-1] + self.heights[-1]

    @property
    def is_spacious(self) -> bool:
        """True if two lines fit beside a lane."""
        return min(self.heights) >= 2 * TEXT_PX + 4

    def places(self) -> Iterator[tuple[Row, int, int]]:
        """Each lane with its upper and lower edge."""
        for lane, top, height in zip(self.rows, self.tops, self.heights, strict=True):
            yield lane, top, top + height

    def bands(self) -> Iterator[tuple[Band, float, float]]:
        """Each band with its upper and lower edge."""
        for lane, top, bottom in self.places():
            for band in lane.bands:
                yield band, top + band.upper * (bottom - top), top + band.lower * (bottom - top)

    def device_edges(self) -> dict[int, tuple[int, int]]:
        """Upper and lower edge of each device's streams."""
        edges: dict[int, tuple[int, int]] = {}
        for lane, top, bottom in self.places():
            if lane.device is not None and lane.streams:
                first, _ = edges.get(lane.device, (top, top))
                edges[lane.device] = (first, bottom)
        return edges

    def fill(self, kind: str, polygons: Sequence[FloatArray]) -> None:
        """Add shapes of one kind, above idle time."""
        style = KINDS[kind]
        shapes = PolyCollection(
            polygons,
            facecolor=self.theme.color_of(kind),
            edgecolor=self.theme.adapt(style.hatch_ink),
            hatch=style.hatch or None,
            linewidth=0,
            zorder=1 if kind == "idle" else 2,
        )
        shapes.set_gid(kind)
        self.axes.add_collection(shapes, autolim=False)

    def draw_lines(self, gid: str, segments: Sequence[Segment], px: float, **look: Any) -> None:
        """Add lines as one collection."""
        lines = LineCollection(segments, linewidths=points(px), **look)
        lines.set_gid(gid)
        self.axes.add_collection(lines, autolim=False)

    def write(
        self, x_px: float, y_px: float, text: str, size_px: int = TEXT_PX, **look: Any
    ) -> None:
        """Write at a point, px from the lanes' upper left corner."""
        style = {"color": self.theme.text, "va": "center_baseline", "zorder": 5, **look}
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
    look: Look,
    legend_px: int,
) -> list[Sheet]:
    """Make an empty picture: sheets below their headlines and lines, axes on whole pixels."""
    lane_px = [_lane_height_px(len(of_sheet)) for of_sheet in lanes]
    tops = [lane_tops(of_sheet, px) for of_sheet, px in zip(lanes, lane_px, strict=True)]
    ends = [
        [top + lane_height_px(row, px) for top, row in zip(of_sheet, rows, strict=True)]
        for of_sheet, rows, px in zip(tops, lanes, lane_px, strict=True)
    ]
    header_px = [_TITLE_DOWN_PX + LINE_PX * count + CAPTION_UP_PX for count in lines]
    around_px = sum(header_px) + _AXIS_PX * len(grids) + legend_px
    needed_px = sum(of_sheet[-1] for of_sheet in ends)
    height_px = look.height_px or around_px + needed_px
    share = (height_px - around_px) / needed_px
    if share < _MIN_LANE_SHARE:
        least_px = around_px + ceil(needed_px * _MIN_LANE_SHARE)
        text = f"these lanes need a height of {least_px:,} pixels or more, not {height_px:,}"
        raise UsageError(f"{text}: choose some (`lanes`)", option="lanes")
    size = (look.width_px / DPI, height_px / DPI)
    figure = Figure(figsize=size, dpi=DPI, facecolor=look.theme.paper)
    FigureCanvasAgg(figure)
    sheets: list[Sheet] = []
    below_px = height_px
    for i, grid in enumerate(grids):
        upper, lower = ([int(px * share) for px in edges[i]] for edges in (tops, ends))
        below_px -= header_px[i] + lower[-1]
        axes = figure.add_axes(
            (
                LEFT_PX / look.width_px,
                below_px / height_px,
                grid.columns / look.width_px,
                lower[-1] / height_px,
            ),
            label=str(i),
        )
        axes.set(xlim=(0, grid.length_ns), ylim=(lower[-1], 0), facecolor="none")
        heights = [end - top for top, end in zip(upper, lower, strict=True)]
        sheets.append(Sheet(figure, axes, grid, lanes[i], upper, heights, look.theme))
        below_px -= _AXIS_PX
    return sheets


def _lane_height_px(lanes: int) -> int:
    return max(_SMALL_LANE, _LARGE_LANE - max(0, lanes - _LANES_WITH_ROOM))


def lane_height_px(lane: Row, lane_px: int) -> int:
    """The common height of lanes, or this one's least visible."""
    return max(lane_px, lane.min_px)


def lane_tops(lanes: Sequence[Row], lane_px: int) -> list[int]:
    """The upper edge of each lane, with a gap between devices."""
    tops = [0]
    for before, lane in pairwise(lanes):
        gap_px = _LANE_GAP if lane.device == before.device else _DEVICE_GAP
        tops.append(tops[-1] + lane_height_px(before, lane_px) + gap_px)
    return tops


# --- letters ---


def printable(text: str) -> str:
    """Replace letters that the font lacks."""
    known = _letters()
    return "".join(c if c.isprintable() and ord(c) in known else "?" for c in text)


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont(FONT)).get_charmap())


@lru_cache(maxsize=4096)
def text_width(text: str, size_px: int, weight: str = "normal") -> float:
    """Width of a line, pixels."""
    font = FontProperties(family=FONT, size=size_px, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def fit(text: str, room_px: float, size_px: int, weight: str = "normal") -> str:
    """Return the text, its beginning, or "" without room for a few letters."""
    width = text_width(text, size_px, weight)
    if width <= room_px:
        return text
    for letters in range(int(len(text) * room_px / width), _MIN_LETTERS - 1, -1):
        if text_width(shorten(text, letters), size_px, weight) <= room_px:
            return shorten(text, letters)
    return ""


def wrap(text: str, room_px: float, size_px: int, weight: str, most: int) -> list[str]:
    """Wrap the text into at most `most` lines, cut at the end."""
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


def legend_px(grid: Grid, kinds: Set[str]) -> int:
    """Return the height of a legend and the margin below it."""
    labels = [label for _, label in legend_entries(kinds)]
    _, room_px = _legend_room(grid)
    return _LEGEND_ROW_PX * -(-len(labels) // legend_columns(labels, room_px)) + _BOTTOM_PX


def _legend_room(grid: Grid) -> tuple[int, int]:
    if grid.columns >= _MIN_WIDE_PX:
        return LEFT_PX, grid.columns
    return MARGIN_PX, grid.columns + LEFT_PX - MARGIN_PX


def legend_columns(labels: Sequence[str], room_px: float) -> int:
    """Return the number of columns in which labels fit."""
    widths = [text_width(label, TEXT_PX) + _LEGEND_PATCH_PX for label in labels]
    for count in range(len(widths), 1, -1):
        rows, longer = divmod(len(widths), count)
        firsts = [i * rows + min(i, longer) for i in range(count + 1)]
        if sum(max(widths[i:j]) for i, j in pairwise(firsts)) <= room_px:
            return count
    return 1


def legend_entries(kinds: Set[str]) -> list[tuple[str, str]]:
    """List a kind and a label for each look."""
    alike: dict[tuple[str, str], list[str]] = {}
    for kind, style in KINDS.items():
        if kind in kinds:
            alike.setdefault((style.color, style.hatch), []).append(kind)
    return [(x[0], " / ".join(dict.fromkeys(map(kind_word, x)))) for x in alike.values()]


def draw_legend(sheet: Sheet, kinds: Set[str]) -> None:
    """Draw the legend below a picture."""
    handles = [
        Patch(
            facecolor=sheet.theme.color_of(kind),
            edgecolor=sheet.theme.adapt(KINDS[kind].hatch_ink),
            hatch=KINDS[kind].hatch or None,
            linewidth=0,
            label=label,
        )
        for kind, label in legend_entries(kinds)
    ]
    width_px, height_px = sheet.figure.get_size_inches() * DPI
    labels = [label for _, label in legend_entries(kinds)]
    left, room_px = _legend_room(sheet.grid)
    columns = legend_columns(labels, room_px)
    sheet.figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(left / width_px, _BOTTOM_PX / height_px),
        ncols=columns,
        fontsize=points(TEXT_PX),
        labelcolor=sheet.theme.text,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.6,
        handleheight=1,
        columnspacing=1.6,
    )
