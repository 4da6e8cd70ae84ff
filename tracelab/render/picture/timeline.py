"""The picture of a timeline: a lane for every host thread and stream, as PNG, SVG or PDF.

The only file that knows matplotlib. It never uses pyplot, and neither a user's rcParams nor a
name in a trace changes how a picture looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextToPath

from tracelab.errors import UsageError
from tracelab.intervals import Int64Array, Intervals, measure, union
from tracelab.model.steps import Step
from tracelab.model.timeline import Timeline
from tracelab.model.trace import Trace
from tracelab.render.picture.coverage import (
    FloatArray,
    Grid,
    lane_polygons,
    rectangles,
    roomy,
    seams,
    spaced,
)
from tracelab.render.picture.lanes import (
    Band,
    Mark,
    Row,
    build_rows,
    busiest,
    caption,
    choose,
    device_busy,
    marks_in,
    visible_idle,
)
from tracelab.render.words import share_text, short_name, shorten, ticks, time_unit

FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True)
class Paint:
    """How one sort of thing looks; `ink` is for a name written upon it."""

    fill: str
    ink: str = "white"
    hatch: str = ""
    hatch_ink: str = "none"


# Okabe and Ito's hues, which colour-blind readers tell apart, in four steps of lightness, so that
# a grey copy can be read as well.
PAINTS: Mapping[Mark, Paint] = MappingProxyType(
    {
        Mark.COMPUTE: Paint("#0072B2"),
        Mark.COMM: Paint("#E69F00", ink="#202124"),
        Mark.COPY: Paint("#009E73", hatch="\\\\\\", hatch_ink="#4DBB9D"),
        Mark.MEMSET: Paint("#5B2A4A"),
        Mark.BLOCKING: Paint("#C24A00"),
        Mark.LAUNCH: Paint("#8FA3B5"),
        Mark.HOST_STEP: Paint("#DDE3E9"),
        Mark.IDLE: Paint("#EFF0F2", hatch="////", hatch_ink="#CDD2D7"),
    }
)
_ORDER = dict.fromkeys(Mark, 2) | {Mark.IDLE: 1}
_TRACK, _GRID_LINE, _RULE, _DARK, _GREY = "#F5F6F8", "#E4E6E9", "#3C4043", "#202124", "#5F6368"
_FONT = "DejaVu Sans"  # it comes with matplotlib

# Lengths in pixels. With a power of two as the resolution whole pixels stay whole in floats.
_DPI = 128
_LEFT, _RIGHT, _LEAST_WIDTH = 240, 30, 400
_MARGIN_X, _UNIT_X, _LABEL_X, _SHARE_PX = 20, 218, 230, 48
_TITLE_Y, _CAPTION_Y, _STEPS_Y, _TOP = 34, 58, 88, 98
_AXIS, _LEGEND_ROW, _LEGEND_ENTRY, _BOTTOM = 46, 24, 160, 14
_LANE_GAP, _GROUP_GAP, _LARGE_LANE, _SMALL_LANE, _ROOMY_ROWS = 4, 14, 40, 22, 8
_TITLE, _TEXT, _SMALL = 20, 14, 12  # letters
_TICK_PX, _STEP_LINE_PX, _TEXT_GAP = 110, 16, 8
_SEAM_PX, _NAME_PX, _NAME_PAD, _NAMED_BAND_PX, _FEWEST_LETTERS = 5, 40, 5, 14, 8
_MOST_ROWS, _LONGEST_TITLE = 400, 300


def draw_timeline(
    timeline: Timeline,
    *,
    blocking_calls: Int64Array,
    start_ns: int,
    end_ns: int,
    lanes: Sequence[str] | None = None,
    title: str = "",
    width_px: int = 1600,
) -> Figure:
    """Draw what ran between two points in time.

    Args:
        timeline: the GPU activities.
        blocking_calls: event ids of the host calls that blocked.
        start_ns: where the picture begins, ns since the trace's first event.
        end_ns: where it ends.
        lanes: draw only these: "host", "device:0", "stream:0/7"; "kind:comm" leaves out work of
            other kinds. Everything by default.
        title: the headline; the file's name by default.
        width_px: the picture's width; its height follows from the number of lanes.

    Raises:
        UsageError: there is nothing to draw, or a lane does not exist.
    """
    if end_ns <= start_ns:
        raise UsageError(f"a picture from {start_ns} ns to {end_ns} ns would show nothing")
    if width_px < _LEAST_WIDTH:
        raise UsageError(f"a timeline needs a width of at least {_LEAST_WIDTH} pixels")
    grid = Grid(int(start_ns), int(end_ns), width_px - _LEFT - _RIGHT)
    calls = np.asarray(blocking_calls, dtype=np.int64)
    every = build_rows(timeline, calls, choose(timeline, calls, lanes), grid)
    rows = busiest(every, _MOST_ROWS)
    devices = dict.fromkeys(row.device for row in rows if row.device is not None)
    busy = {device: device_busy(timeline, device, grid) for device in devices}
    idle = {device: visible_idle(busy[device], grid) for device in devices}
    used = marks_in(rows) | ({Mark.IDLE} if any(map(len, idle.values())) else set())
    headline = title or Path(timeline.trace.path).name
    with _fixed_style():
        sheet = _new_sheet(rows, grid, width_px, marks=len(used))
        _draw_lanes(sheet, timeline, busy, idle)
        _draw_header(sheet, headline, caption(rows, grid, lanes, len(every)))
        _draw_legend(sheet, used)
    return sheet.figure


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One timeline of several in a picture; its attributes are as of `draw_timeline`."""

    timeline: Timeline
    blocking_calls: Int64Array
    start_ns: int
    end_ns: int
    title: str


def draw_stacked(parts: Sequence[Part], *, width_px: int = 1600) -> Figure:
    """Draw timelines one above the other; a pixel is the same time in all, the longest fills it.

    Raises:
        UsageError: one of them would show nothing.
    """
    longest_ns = max(part.end_ns - part.start_ns for part in parts)
    if any(part.end_ns <= part.start_ns for part in parts):
        raise UsageError("a picture of a stretch of 0 ns would show nothing")
    columns = width_px - _LEFT - _RIGHT
    grids = [
        Grid(x.start_ns, x.end_ns, max(1, round(columns * (x.end_ns - x.start_ns) / longest_ns)))
        for x in parts
    ]
    every = [
        build_rows(x.timeline, x.blocking_calls, choose(x.timeline, x.blocking_calls, None), grid)
        for x, grid in zip(parts, grids, strict=True)
    ]
    rows = [busiest(x, _MOST_ROWS) for x in every]
    busy = [
        {x: device_busy(part.timeline, x, grid) for x in part.timeline.device_numbers}
        for part, grid in zip(parts, grids, strict=True)
    ]
    idle = [
        {device: visible_idle(when, grid) for device, when in x.items()}
        for x, grid in zip(busy, grids, strict=True)
    ]
    used: set[Mark] = set().union(*(marks_in(x) for x in rows))
    used |= {Mark.IDLE} if any(len(when) for x in idle for when in x.values()) else set()
    widest = max(grids, key=lambda x: x.columns)
    with _fixed_style():
        sheets = _new_sheets(rows, grids, width_px, _legend_px(widest, len(used)))
        for i, (part, sheet) in enumerate(zip(parts, sheets, strict=True)):
            shown = sheet.groups()
            _draw_lanes(sheet, part.timeline, {x: busy[i][x] for x in shown}, idle[i])
            _draw_header(sheet, part.title, caption(sheet.rows, sheet.grid, None, len(every[i])))
        _draw_legend(next(x for x in sheets if x.grid is widest), used)
    return sheets[0].figure


def _draw_lanes(
    sheet: _Sheet,
    timeline: Timeline,
    busy: Mapping[int, Intervals],
    idle: Mapping[int, Intervals],
) -> None:
    """Everything but the words above the lanes and the legend below them."""
    _draw_tracks(sheet)
    _draw_idle(sheet, idle)
    _draw_work(sheet)
    _draw_seams(sheet, timeline.trace)
    _draw_names(sheet, timeline.trace)
    _draw_labels(sheet, {device: measure(when) for device, when in busy.items()})
    _draw_steps(sheet, timeline.steps)
    _draw_axis(sheet)


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A drawn timeline, which shows itself in a notebook.

    Attributes:
        figure: the drawing.
    """

    figure: Figure

    def save(self, path: str | Path) -> None:
        """Write it; the errors are those of `save_figure`."""
        save_figure(self.figure, path)

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with _fixed_style():
            self.figure.savefig(content, format="png")
        return content.getvalue()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a picture; the ending of the name says in which format.

    Raises:
        UsageError: it is none of the three formats, or the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{path}: a timeline is written as .png, .svg or .pdf")
    # The same picture is the same file, whenever it is written.
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    try:
        with _fixed_style():
            figure.savefig(path, format=suffix[1:], metadata=undated)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def _fixed_style() -> Iterator[None]:
    """Matplotlib's own defaults, whatever the user's are, and what a timeline needs."""
    defaults = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith("backend")}
    with mpl.rc_context({**defaults, "hatch.linewidth": 0.8, "svg.hashsalt": "tracelab"}):
        yield


@dataclass(frozen=True, slots=True, eq=False)
class _Sheet:
    """A drawing in the making; in its axes x is ns from the start, y is pixels from the top.

    Attributes:
        figure: the picture.
        axes: the part that the lanes fill.
        grid: the pixel columns of the axes.
        rows: the lanes.
        tops: each lane's upper edge.
        lane_px: every lane's height.
    """

    figure: Figure
    axes: Axes
    grid: Grid
    rows: Sequence[Row]
    tops: Sequence[int]
    lane_px: int

    @property
    def height_px(self) -> int:
        """Of all lanes."""
        return self.tops[-1] + self.lane_px

    @property
    def spacious(self) -> bool:
        """Whether two lines of text fit beside a lane."""
        return self.lane_px >= 2 * _TEXT + 4

    def bands(self) -> Iterator[tuple[Band, float, float]]:
        """Every band of every lane with its upper and lower edge."""
        for row, top in zip(self.rows, self.tops, strict=True):
            for band in row.bands:
                yield band, top + band.upper * self.lane_px, top + band.lower * self.lane_px

    def groups(self) -> dict[int, tuple[int, int]]:
        """The upper and lower edge of each device's lanes."""
        edges: dict[int, tuple[int, int]] = {}
        for row, top in zip(self.rows, self.tops, strict=True):
            if row.device is not None:
                first, _ = edges.get(row.device, (top, top))
                edges[row.device] = (first, top + self.lane_px)
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
            zorder=_ORDER[mark],
        )
        shapes.set_gid(mark.name.lower())
        self.axes.add_collection(shapes, autolim=False)

    def write(self, x_px: float, y_px: float, text: str, size_px: int = _TEXT, **look: Any) -> None:
        """Write at a place in pixels from the lanes' upper left corner."""
        style = {"color": _DARK, "va": "center_baseline", "zorder": 5, **look}
        self.axes.text(
            x_px * self.grid.pixel_ns,
            y_px,
            printable(text),
            fontsize=_points(size_px),
            parse_math=False,
            **style,
        )


def _points(px: float) -> float:
    return px * 72 / _DPI


def _new_sheet(rows: Sequence[Row], grid: Grid, width_px: int, marks: int) -> _Sheet:
    """An empty picture of the right size, its axes on whole pixels."""
    return _new_sheets([rows], [grid], width_px, _legend_px(grid, marks))[0]


def _new_sheets(
    rows: Sequence[Sequence[Row]], grids: Sequence[Grid], width_px: int, legend_px: int
) -> list[_Sheet]:
    """An empty picture with a sheet for each group of rows, one below the other."""
    lane_px = [max(_SMALL_LANE, _LARGE_LANE - max(0, len(x) - _ROOMY_ROWS)) for x in rows]
    tops = [lane_tops([y.device for y in x], px) for x, px in zip(rows, lane_px, strict=True)]
    lanes_px = [top[-1] + px for top, px in zip(tops, lane_px, strict=True)]
    height_px = sum(_TOP + px + _AXIS for px in lanes_px) + legend_px
    figure = Figure(figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    sheets: list[_Sheet] = []
    below_px = height_px
    for i, grid in enumerate(grids):
        below_px -= _TOP + lanes_px[i]
        axes = figure.add_axes(
            (
                _LEFT / width_px,
                below_px / height_px,
                grid.columns / width_px,
                lanes_px[i] / height_px,
            ),
            label=str(i),
        )
        axes.set(xlim=(0, grid.length_ns), ylim=(lanes_px[i], 0), facecolor="none")
        sheets.append(_Sheet(figure, axes, grid, rows[i], tops[i], lane_px[i]))
        below_px -= _AXIS
    return sheets


def _legend_px(grid: Grid, marks: int) -> int:
    return _LEGEND_ROW * -(-marks // _legend_columns(grid)) + _BOTTOM


def lane_tops(groups: Sequence[int | None], lane_px: int) -> list[int]:
    """The upper edge of each lane, with more room where the group changes."""
    tops = [0]
    for before, group in pairwise(groups):
        tops.append(tops[-1] + lane_px + (_LANE_GAP if group == before else _GROUP_GAP))
    return tops


def _draw_tracks(sheet: _Sheet) -> None:
    """A pale ground for every lane, so that an empty one is seen to be empty."""
    whole = union([sheet.grid.start_ns], [sheet.grid.end_ns])
    tracks = [
        track
        for top in sheet.tops
        for track in rectangles(whole, sheet.grid.start_ns, top, top + sheet.lane_px)
    ]
    sheet.axes.add_collection(
        PolyCollection(tracks, facecolor=_TRACK, linewidth=0, zorder=0), autolim=False
    )


def _draw_idle(sheet: _Sheet, idle: Mapping[int, Intervals]) -> None:
    """A hatch across all lanes of a device where none of its streams works."""
    polygons: list[FloatArray] = []
    for device, (top, bottom) in sheet.groups().items():
        polygons += rectangles(idle[device], sheet.grid.start_ns, top, bottom)
    sheet.fill(Mark.IDLE, polygons)


def _draw_work(sheet: _Sheet) -> None:
    """What lies in the lanes, one collection for each sort of thing."""
    polygons: dict[Mark, list[FloatArray]] = {}
    for band, upper, lower in sheet.bands():
        covered = [layer.covered for layer in band.layers]
        shapes = lane_polygons(covered, sheet.grid, top=upper, bottom=lower, least=band.least)
        for layer, found in zip(band.layers, shapes, strict=True):
            polygons.setdefault(layer.mark, []).extend(found)
    for mark, found in polygons.items():
        sheet.fill(mark, found)


def _draw_seams(sheet: _Sheet, trace: Trace) -> None:
    """A fine line where one activity follows another of its kind without a gap."""
    segments: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for band, upper, lower in sheet.bands():
        for layer in band.layers:
            at = seams(
                layer.covered,
                trace.start_ns[layer.events],
                trace.end_ns[layer.events],
                sheet.grid,
                _SEAM_PX,
            )
            segments += [((x, upper), (x, lower)) for x in (at - sheet.grid.start_ns).tolist()]
    lines = LineCollection(
        segments, colors="black", alpha=0.45, linewidths=_points(0.8), zorder=3, capstyle="butt"
    )
    lines.set_gid("seams")
    sheet.axes.add_collection(lines, autolim=False)


def _draw_names(sheet: _Sheet, trace: Trace) -> None:
    """The names of what is wide enough for them."""
    grid = sheet.grid
    for band, upper, lower in sheet.bands():
        if lower - upper < _NAMED_BAND_PX:
            continue
        events = np.concatenate([layer.events for layer in band.layers])
        layer_of = np.repeat(range(len(band.layers)), [len(layer.events) for layer in band.layers])
        starts = np.maximum(trace.start_ns[events], grid.start_ns)
        ends = np.minimum(trace.end_ns[events], grid.end_ns)
        for i in roomy(starts, ends, grid, _NAME_PX):
            room_px = (ends[i] - starts[i]) / grid.pixel_ns - 2 * _NAME_PAD
            middle_px = ((starts[i] + ends[i]) / 2 - grid.start_ns) / grid.pixel_ns
            text = fit(printable(short_name(trace.name_of(events[i]))), room_px, _SMALL)
            paint = PAINTS[band.layers[layer_of[i]].mark]
            # Its own ground keeps a name readable on a hatch and where a step's line crosses it.
            ground = [withStroke(linewidth=_points(3), foreground=paint.fill)]
            look = {"ha": "center", "color": paint.ink, "path_effects": ground}
            sheet.write(middle_px, (upper + lower) / 2, text, _SMALL, **look)


def _draw_labels(sheet: _Sheet, busy_ns: Mapping[int, int]) -> None:
    """Beside every lane its name and its share, before them the device."""
    length_ns = sheet.grid.length_ns
    left, right = _MARGIN_X - _LEFT, _LABEL_X - _LEFT
    for row, top in zip(sheet.rows, sheet.tops, strict=True):
        middle = top + sheet.lane_px / 2
        share = share_text(row.busy_ns, length_ns)
        if sheet.spacious:
            verb = "blocked" if row.device is None else "busy"
            sheet.write(right, middle - 8, row.label, ha="right")
            sheet.write(right, middle + 9, f"{share} {verb}", _SMALL, ha="right", color=_GREY)
        else:
            sheet.write(right - _SHARE_PX, middle, row.label, _SMALL, ha="right")
            if row.device is not None:
                sheet.write(right, middle, share, _SMALL, ha="right", color=_GREY)
    for device, (top, bottom) in sheet.groups().items():
        middle = (top + bottom) / 2
        share = share_text(busy_ns[device], length_ns)
        sheet.write(left, middle - 8, f"GPU {device}", weight="bold")
        sheet.write(left, middle + 9, f"{share} busy", _SMALL, color=_GREY)


def _draw_steps(sheet: _Sheet, steps: Sequence[Step]) -> None:
    """A thin line where a step's window begins or ends, and the steps' numbers above."""
    grid = sheet.grid
    shown = [s for s in steps if s.start_ns < grid.end_ns and s.end_ns > grid.start_ns]
    bounds = {ns - grid.start_ns for s in shown for ns in (s.start_ns, s.end_ns)}
    at_ns = sorted(ns for ns in bounds if 0 <= ns <= grid.length_ns)
    kept = spaced([ns / grid.pixel_ns for ns in at_ns], [_STEP_LINE_PX] * len(at_ns))
    top = _STEPS_Y - _TOP - _SMALL
    lines = LineCollection(
        [((at_ns[i], top), (at_ns[i], sheet.height_px)) for i in kept],
        colors=_RULE,
        linewidths=_points(1),
        alpha=0.7,
        zorder=4,
        clip_on=False,
    )
    lines.set_gid("steps")
    sheet.axes.add_collection(lines, autolim=False)
    for x, text in step_labels(shown, grid):
        sheet.write(x + _TEXT_GAP / 2, _STEPS_Y - _TOP, text, _SMALL, color=_GREY)


def step_labels(steps: Sequence[Step], grid: Grid) -> list[tuple[float, str]]:
    """Where to write which step's number, in pixels: those of wide steps, or of every so many."""
    left = [max(0.0, (s.start_ns - grid.start_ns) / grid.pixel_ns) for s in steps]
    right = [min(grid.columns, (s.end_ns - grid.start_ns) / grid.pixel_ns) for s in steps]
    texts = [f"step {s.number}" for s in steps]
    needed = max((text_width(text, _SMALL) for text in texts), default=0.0) + _TEXT_GAP
    wide = [i for i in range(len(steps)) if right[i] - left[i] >= needed]
    spread = [i for i in spaced(left, [needed] * len(left)) if left[i] + needed <= grid.columns]
    return [(left[i], texts[i]) for i in wide or spread]


def _draw_axis(sheet: _Sheet) -> None:
    """Time from the picture's start, in the unit that suits its length."""
    axes, length_ns = sheet.axes, sheet.grid.length_ns
    at, labels = ticks(length_ns, max(2, sheet.grid.columns // _TICK_PX))
    axes.set_xticks(at, labels, fontsize=_points(_TEXT), color=_GREY)
    axes.set_yticks([])
    axes.tick_params(axis="x", length=_points(6), width=_points(1), color=_GREY, pad=_points(6))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=_GRID_LINE, linewidth=_points(1))
    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=_GREY, linewidth=_points(1))
    unit, _ = time_unit(length_ns)
    below = sheet.height_px + 20
    sheet.write(_UNIT_X - _LEFT, below, f"time ({unit})", ha="right", color=_GREY)


def _draw_header(sheet: _Sheet, title: str, text: str) -> None:
    """The headline and the caption, cut to the picture's width."""
    left = _MARGIN_X - _LEFT
    room_px = sheet.figure.get_size_inches()[0] * _DPI - _RIGHT - _MARGIN_X
    headline = fit(printable(shorten(title, _LONGEST_TITLE)), room_px, _TITLE, weight="bold")
    sheet.write(left, _TITLE_Y - _TOP, headline, _TITLE, weight="bold")
    sheet.write(left, _CAPTION_Y - _TOP, fit(printable(text), room_px, _TEXT), color=_GREY)


def _legend_columns(grid: Grid) -> int:
    return max(1, grid.columns // _LEGEND_ENTRY)


def _draw_legend(sheet: _Sheet, used: Set[Mark]) -> None:
    """What occurs in the picture, below it."""
    handles = [
        Patch(
            facecolor=paint.fill,
            edgecolor=paint.hatch_ink,
            hatch=paint.hatch or None,
            linewidth=0,
            label=mark.value,
        )
        for mark, paint in PAINTS.items()
        if mark in used
    ]
    width_px, height_px = sheet.figure.get_size_inches() * _DPI
    columns = _legend_columns(sheet.grid)
    left = _LEFT if columns > 1 else _MARGIN_X
    sheet.figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(left / width_px, _BOTTOM / height_px),
        ncols=columns,
        fontsize=_points(_TEXT),
        labelcolor=_DARK,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.6,
        handleheight=1,
        columnspacing=1.6,
    )


def printable(text: str) -> str:
    """The text with a question mark for every letter that the picture's font does not have."""
    known = _letters()
    return "".join(c if c.isprintable() and ord(c) in known else "?" for c in text)


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    return frozenset(get_font(findfont(_FONT)).get_charmap())


@lru_cache(maxsize=4096)
def text_width(text: str, size_px: int, weight: str = "normal") -> float:
    """Width of a line of text, pixels."""
    font = FontProperties(family=_FONT, size=size_px, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def fit(text: str, room_px: float, size_px: int, weight: str = "normal") -> str:
    """The text, or its beginning, or nothing where not even a few letters fit."""
    width = text_width(text, size_px, weight)
    if width <= room_px:
        return text
    for letters in range(int(len(text) * room_px / width), _FEWEST_LETTERS - 1, -1):
        if text_width(shorten(text, letters), size_px, weight) <= room_px:
            return shorten(text, letters)
    return ""
