"""The picture of a what-if: a steady step as it is, and below it with a change, on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tracelab.model.timeline import Timeline
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import draw_lanes
from tracelab.render.picture.labels import draw_axis, draw_header, draw_labels
from tracelab.render.picture.lanes import Lane, Mark, marks_in, visible_idle
from tracelab.render.picture.layout import Sheet, new_sheets
from tracelab.render.picture.legend import draw_legend, legend_px
from tracelab.render.picture.replayed import (
    ReplayedEvents,
    ReplayedTimes,
    busy_devices,
    moved_activities,
    replayed_lanes,
    replayed_times,
)
from tracelab.render.picture.style import LEFT_PX, RIGHT_PX, fixed_style
from tracelab.render.words import duration_text
from tracelab.simulate.program import Program
from tracelab.simulate.replay import replay

_MOST_LANES = 24  # of each half: more than that are not read side by side


@dataclass(frozen=True, slots=True, eq=False)
class _Half:
    """One of the two: a step as it is, or as it is predicted.

    Attributes:
        title: its headline.
        grid: the time that it shows.
        events: what runs in it.
        lanes: what lies in the lanes.
        runs_ahead: whether nothing holds the host back.
    """

    title: str
    grid: Grid
    events: ReplayedEvents
    lanes: list[Lane]
    runs_ahead: bool


def draw_whatif(
    timeline: Timeline,
    before: Program,
    after: Program,
    *,
    titles: tuple[str, str],
    width_px: int = 1600,
) -> Figure:
    """Draw a step of a program above the same step with a change; a pixel is one time in both.

    Args:
        timeline: of the recording.
        before: the program as it is.
        after: an edit of it.
        titles: the headlines of the two.
        width_px: the picture's width; its height follows from the number of lanes.
    """
    columns = width_px - LEFT_PX - RIGHT_PX
    nothing_moved = np.zeros(len(before), dtype=np.bool_)
    moved = (nothing_moved, moved_activities(before, after))
    whole = [
        _half(timeline, *one, of_half, columns)
        for one, of_half in zip(_both(timeline, before, after, titles), moved, strict=True)
    ]
    kept = _kept(whole)
    halves = [replace(half, lanes=[x for x in half.lanes if _key(x) in kept]) for half in whole]
    marks: set[Mark] = {Mark.IDLE}.union(*(marks_in(half.lanes) for half in halves))
    widest = max((half.grid for half in halves), key=lambda grid: grid.columns)
    with fixed_style():
        sheets = new_sheets(
            [half.lanes for half in halves],
            [half.grid for half in halves],
            width_px,
            legend_px(widest, len(marks)),
        )
        for half, sheet in zip(halves, sheets, strict=True):
            _draw(half, sheet, widest)
        draw_legend(next(sheet for sheet in sheets if sheet.grid is widest), marks)
    return sheets[0].figure


def _both(
    timeline: Timeline, before: Program, after: Program, titles: tuple[str, str]
) -> list[tuple[str, ReplayedTimes, int]]:
    """The headline of each, when what happened, and how long the longer of the two steps is, ns."""
    replayed = replay([before, after])
    step_ns = replayed.step_ns.tolist()
    return [
        (title, replayed_times(timeline, program, replayed.time_ns[:, i], step_ns[i]), max(step_ns))
        for i, (program, title) in enumerate(zip((before, after), titles, strict=True))
    ]


def _half(
    timeline: Timeline,
    title: str,
    times: ReplayedTimes,
    longest_ns: int,
    is_moved: NDArray[np.bool_],
    columns: int,
) -> _Half:
    """One half with all lanes that there are; a step of that length fills all columns."""
    start_ns, end_ns = times.step_window()
    length_ns = max(end_ns - start_ns, 1)
    grid = Grid(start_ns, start_ns + length_ns, max(1, round(columns * length_ns / longest_ns)))
    events = times.events(timeline.trace, grid.start_ns, grid.end_ns)
    return _Half(
        title, grid, events, replayed_lanes(timeline, events, grid, is_moved), times.runs_ahead
    )


def _kept(halves: Sequence[_Half]) -> set[tuple[int | None, str]]:
    """Which lanes are shown: those in which anything happens in either half, the busiest."""
    busy_ns: dict[tuple[int | None, str], int] = {}
    for lane in (lane for half in halves for lane in half.lanes if marks_in([lane])):
        busy_ns[_key(lane)] = max(lane.busy_ns, busy_ns.get(_key(lane), 0))
    return set(sorted(busy_ns, key=lambda key: -busy_ns[key])[:_MOST_LANES])


def _key(lane: Lane) -> tuple[int | None, str]:
    return lane.device, lane.label


def _draw(half: _Half, sheet: Sheet, widest: Grid) -> None:
    busy = busy_devices(half.lanes)
    idle = {device: visible_idle(work, half.grid) for device, work in busy.items()}
    draw_lanes(sheet, half.events, idle)
    draw_labels(sheet, {})
    draw_axis(sheet, widest)
    parts = [f"a replayed step: {duration_text(half.grid.length_ns)}"]
    if half.runs_ahead:
        parts.append("the CPU runs ahead of the GPU")
    if len(half.lanes) >= _MOST_LANES:
        parts.append(f"the {len(half.lanes)} busiest lanes")
    draw_header(sheet, half.title, "  ·  ".join(parts))
