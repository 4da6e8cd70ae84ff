"""The picture of a timeline: a lane for every host thread and stream, alone or stacked.

Nothing here uses pyplot, and neither a user's rcParams nor a name in a trace changes how a picture
looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tracelab.base.errors import UsageError
from tracelab.base.intervals import Int64Array, Intervals, measure
from tracelab.model.timeline import Timeline
from tracelab.render.facts import BusyShares
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import draw_lanes
from tracelab.render.picture.labels import draw_axis, draw_header, draw_labels, draw_steps
from tracelab.render.picture.lanes import (
    Lane,
    Mark,
    build_lanes,
    busiest,
    caption,
    choose,
    device_busy,
    marks_in,
    require_lane_names,
    visible_idle,
)
from tracelab.render.picture.layout import new_sheets
from tracelab.render.picture.legend import draw_legend, legend_px
from tracelab.render.picture.style import (
    LEAST_WIDTH_PX,
    LEFT_PX,
    MOST_WIDTH_PX,
    RIGHT_PX,
    fixed_style,
)
from tracelab.render.text.savings import percent

_MOST_LANES = 400  # of all parts together
_MOST_PARTS = 100  # matplotlib's limit is a height of 2^16 pixels


def draw_timeline(
    timeline: Timeline,
    *,
    blocking_calls: Int64Array,
    start_ns: int,
    end_ns: int,
    lanes: Sequence[str] | None = None,
    title: str = "",
    busy: BusyShares | None = None,
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
        busy: how busy the GPUs are; by default of the shown time.
        width_px: the picture's width; its height follows from the number of lanes.

    Raises:
        UsageError: there is nothing to draw, or a lane does not exist.
    """
    if end_ns <= start_ns:
        raise UsageError(f"a picture from {start_ns} ns to {end_ns} ns would show nothing")
    require_drawable(1, lanes, width_px)
    part = Part(
        timeline=timeline,
        blocking_calls=np.asarray(blocking_calls, dtype=np.int64),
        start_ns=int(start_ns),
        end_ns=int(end_ns),
        title=title or Path(timeline.trace.path).name,
        lanes=lanes,
        busy=busy,
    )
    return _draw([part], width_px)


def require_drawable(parts: int, lanes: Sequence[str] | None, width_px: int) -> None:
    """Refuse what no picture can be, whatever is in the traces.

    Args:
        parts: how many timelines are drawn one above the other.
        lanes: the names that were asked for.
        width_px: the picture's width.

    Raises:
        UsageError: it is too wide, too narrow or too high, or there can be no such lane.
    """
    if not LEAST_WIDTH_PX <= width_px <= MOST_WIDTH_PX:
        raise UsageError(
            f"a timeline is {LEAST_WIDTH_PX} to {MOST_WIDTH_PX:,} pixels wide, not {width_px:,}"
        )
    if parts > _MOST_PARTS:
        raise UsageError(f"one picture shows at most {_MOST_PARTS} files; these are {parts:,}")
    require_lane_names(lanes or ())


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One timeline of several in a picture; its attributes are as of `draw_timeline`."""

    timeline: Timeline
    blocking_calls: Int64Array
    start_ns: int
    end_ns: int
    title: str
    lanes: Sequence[str] | None = None
    busy: BusyShares | None = None


def draw_stacked(parts: Sequence[Part], *, width_px: int = 1600) -> Figure:
    """Draw timelines one above the other; a pixel is the same time in all, the longest fills it.

    Raises:
        UsageError: one of them would show nothing.
    """
    if any(part.end_ns <= part.start_ns for part in parts):
        raise UsageError("a picture of a stretch of 0 ns would show nothing")
    return _draw(parts, width_px)


@dataclass(frozen=True, slots=True, eq=False)
class _Content:
    """What a part shows, before anything is drawn.

    Attributes:
        part: what was asked for.
        grid: its time in pixel columns.
        lanes: what lies in the lanes that are shown.
        available_lanes: how many lanes there are to show.
        busy, idle: for each shown device when any of its streams works, and when none does.
    """

    part: Part
    grid: Grid
    lanes: Sequence[Lane]
    available_lanes: int
    busy: Mapping[int, Intervals]
    idle: Mapping[int, Intervals]

    @property
    def marks(self) -> set[Mark]:
        """The sorts of things in it."""
        return marks_in(self.lanes) | ({Mark.IDLE} if any(map(len, self.idle.values())) else set())


def _draw(parts: Sequence[Part], width_px: int) -> Figure:
    columns = width_px - LEFT_PX - RIGHT_PX
    longest_ns = max(part.end_ns - part.start_ns for part in parts)
    most_lanes = max(1, _MOST_LANES // len(parts))
    contents = [_content(part, columns, longest_ns, most_lanes) for part in parts]
    marks: set[Mark] = set().union(*(content.marks for content in contents))
    widest = max((content.grid for content in contents), key=lambda grid: grid.columns)
    with fixed_style():
        sheets = new_sheets(
            [content.lanes for content in contents],
            [content.grid for content in contents],
            width_px,
            legend_px(widest, len(marks)),
        )
        for content, sheet in zip(contents, sheets, strict=True):
            timeline, names = content.part.timeline, content.part.lanes
            draw_lanes(sheet, timeline.trace, content.idle)
            shares = content.part.busy or _shown_shares(content)
            draw_labels(sheet, shares.by_gpu)
            draw_steps(sheet, timeline.steps)
            draw_axis(sheet)
            below = caption(content.lanes, content.grid, names, content.available_lanes)
            of = [f"busy share of {shares.of}"] if content.busy else []
            draw_header(sheet, content.part.title, "  ·  ".join([below, *of]))
        draw_legend(next(sheet for sheet in sheets if sheet.grid is widest), marks)
    return sheets[0].figure


def _shown_shares(content: _Content) -> BusyShares:
    """How busy the GPUs are in the time that is shown."""
    shares = {gpu: measure(busy) / content.grid.length_ns for gpu, busy in content.busy.items()}
    return BusyShares("the shown time", {gpu: percent(share) for gpu, share in shares.items()})


def _content(part: Part, columns: int, longest_ns: int, most_lanes: int) -> _Content:
    """What a part shows, in so many lanes at most; the longest one has all columns."""
    length_ns = part.end_ns - part.start_ns
    grid = Grid(part.start_ns, part.end_ns, max(1, round(columns * length_ns / longest_ns)))
    choice = choose(part.timeline, part.blocking_calls, part.lanes)
    available = build_lanes(part.timeline, part.blocking_calls, choice, grid)
    lanes = busiest(available, most_lanes)
    devices = dict.fromkeys(lane.device for lane in lanes if lane.device is not None)
    busy = {device: device_busy(part.timeline, device, grid) for device in devices}
    return _Content(
        part=part,
        grid=grid,
        lanes=lanes,
        available_lanes=len(available),
        busy=busy,
        idle={device: visible_idle(intervals, grid) for device, intervals in busy.items()},
    )
