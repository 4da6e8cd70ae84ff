"""The picture of a timeline: a row for every host thread and stream, alone or stacked.

Nothing here uses pyplot, and neither a user's rcParams nor a name in a trace changes how a picture
looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from tracelab.base.arrays import dataclass
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Intervals, measure
from tracelab.render.facts import BusyShares
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import draw_lanes
from tracelab.render.picture.labels import draw_axis, draw_header, draw_labels, draw_steps
from tracelab.render.picture.layout import new_sheets
from tracelab.render.picture.legend import draw_legend, legend_px
from tracelab.render.picture.rows import (
    Mark,
    Row,
    build_rows,
    busiest,
    caption,
    choose,
    marks_in,
    require_lane_names,
    visible_idle,
)
from tracelab.render.picture.style import (
    LEFT_PX,
    MAX_WIDTH_PX,
    MIN_WIDTH_PX,
    RIGHT_PX,
    fixed_style,
)
from tracelab.render.scene import Scene, Span
from tracelab.render.text.savings import percent

# Of all parts together.
MAX_ROWS = 400
# Matplotlib's limit is a height of 2^16 pixels.
MAX_PARTS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One timeline of a picture.

    Attributes:
        scene: the file.
        span: the time that is shown.
        title: the headline; the file's name by default.
        lanes: names of the lanes to draw: "host", "device:0", "stream:0/7"; "kind:comm" leaves out
            work of other kinds. None for all lanes.
        busy: how busy the GPUs are; by default of the shown time.
    """

    scene: Scene
    span: Span
    title: str = ""
    lanes: Sequence[str] | None = None
    busy: BusyShares | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Contents of one part of a picture, before anything is drawn.

    Attributes:
        scene: the file.
        grid: its time in pixel columns.
        rows: what lies in the rows that are shown.
        title, caption: the lines above them.
        busy: for each GPU the share that is written to its left.
        idle: for each shown GPU when none of its streams works.
    """

    scene: Scene
    grid: Grid
    rows: Sequence[Row]
    title: str
    caption: str
    busy: Mapping[int, str]
    idle: Mapping[int, Intervals]


def require_drawable(parts: int, lanes: Sequence[str] | None, width_px: int) -> None:
    """Refuse what no picture can be, whatever is in the traces.

    Args:
        parts: how many timelines are drawn one above the other.
        lanes: the names of the lanes to draw.
        width_px: the picture's width.

    Raises:
        UsageError: it is too wide, too narrow or too high, or there can be no such lane.
    """
    if not MIN_WIDTH_PX <= width_px <= MAX_WIDTH_PX:
        raise UsageError(
            f"a timeline is {MIN_WIDTH_PX} to {MAX_WIDTH_PX:,} pixels wide, not {width_px:,}"
        )
    if parts > MAX_PARTS:
        raise UsageError(f"one picture shows at most {MAX_PARTS} files; these are {parts:,}")
    require_lane_names(lanes or ())


def draw_timelines(parts: Sequence[Part], *, width_px: int = 1600) -> Figure:
    """Draw timelines one above the other; a pixel is the same time in all, the longest fills it.

    Args:
        parts: at least one.
        width_px: the picture's width; its height follows from the number of rows.

    Raises:
        UsageError: one of them would show nothing, or a lane does not exist.
    """
    for start_ns, end_ns in (part.span for part in parts):
        if end_ns <= start_ns:
            raise UsageError(f"there is nothing to draw from {start_ns} ns to {end_ns} ns")
    columns = width_px - LEFT_PX - RIGHT_PX
    longest_ns = max(part.span.end_ns - part.span.start_ns for part in parts)
    return draw_panels(
        [_panel(part, columns, longest_ns, max(1, MAX_ROWS // len(parts))) for part in parts],
        width_px,
    )


def draw_panels(panels: Sequence[Panel], width_px: int, ticks: Grid | None = None) -> Figure:
    """Draw panels one above the other.

    Args:
        panels: at least one.
        width_px: the picture's width.
        ticks: the time whose ticks all panels have; None for their own.
    """
    marks = {mark for panel in panels for mark in marks_in(panel.rows)}
    if any(len(idle) for panel in panels for idle in panel.idle.values()):
        marks.add(Mark.IDLE)
    widest = max((panel.grid for panel in panels), key=lambda grid: grid.columns)
    with fixed_style():
        sheets = new_sheets(
            [panel.rows for panel in panels],
            [panel.grid for panel in panels],
            width_px,
            legend_px(widest, len(marks)),
        )
        for panel, sheet in zip(panels, sheets, strict=True):
            draw_lanes(sheet, panel.scene.names, panel.idle)
            draw_labels(sheet, panel.busy)
            draw_steps(sheet, panel.scene.steps)
            draw_axis(sheet, ticks)
            draw_header(sheet, panel.title, panel.caption)
        draw_legend(next(sheet for sheet in sheets if sheet.grid is widest), marks)
    return sheets[0].figure


def _panel(part: Part, columns: int, longest_ns: int, max_rows: int) -> Panel:
    """Build the rows of a part; the longest part has all columns."""
    scene, (start_ns, end_ns) = part.scene, part.span
    grid = Grid(start_ns, end_ns, max(1, round(columns * (end_ns - start_ns) / longest_ns)))
    available = build_rows(scene, choose(scene, part.lanes), grid)
    rows = busiest(available, max_rows)
    devices = dict.fromkeys(row.device for row in rows if row.device is not None)
    busy = {device: scene.busy(device, part.span) for device in devices}
    shares = part.busy or BusyShares(
        "the shown time",
        {gpu: percent(measure(covered) / grid.length_ns) for gpu, covered in busy.items()},
    )
    of = [f"busy share of {shares.of}"] if busy else []
    return Panel(
        scene=scene,
        grid=grid,
        rows=rows,
        title=part.title or Path(scene.path).name,
        caption="  ·  ".join([caption(rows, grid, part.lanes, len(available)), *of]),
        busy=shares.by_gpu,
        idle={device: visible_idle(covered, grid) for device, covered in busy.items()},
    )
