"""The picture of a job: all ranks on one clock, and below them the heat map of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from tracelab.job.merge import Job
from tracelab.render.job_clock import JobTime, job_times
from tracelab.render.job_heat_map import heat_map
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import draw_work
from tracelab.render.picture.heat_map import draw_heat_map, heat_map_px
from tracelab.render.picture.job_lanes import RankLane, choose_steps, lanes_of
from tracelab.render.picture.labels import draw_axis
from tracelab.render.picture.lanes import Mark, marks_in
from tracelab.render.picture.layout import Sheet, new_figure
from tracelab.render.picture.legend import draw_legend, legend_px
from tracelab.render.picture.letters import fit, printable
from tracelab.render.picture.rank_work import RankWork
from tracelab.render.picture.style import (
    AXIS_PX,
    DARK,
    DPI,
    GRAY,
    LEFT_PX,
    MARGIN_PX,
    RIGHT_PX,
    SMALL_PX,
    STEP_LINE,
    TEXT_PX,
    TITLE_PX,
    fixed_style,
    points,
)
from tracelab.render.text.job import RankShares
from tracelab.render.words import duration_text

_MOST_RANKS = 128
_LANES_PX, _LEAST_LANE, _MOST_LANE = 1000, 11, 44  # of all lanes; of one
_ROWS_PX, _LEAST_ROW, _MOST_ROW = 900, 13, 28
_TOP_PX = 124  # above the lanes
_TITLE_Y, _FIRST_CAPTION_Y, _SECOND_CAPTION_Y, _STEPS_Y = 34, 60, 82, 112
# Right edges of the two columns of shares, from the picture's left.
_SHARE_X = MappingProxyType({"compute": 182, "wait": 228})
_STRAGGLER = "#C24A00"  # its label; the line below the headline says it in words
_BETWEEN_PX = 26  # lanes and heat map


def draw_job(
    job: Job,
    works: Mapping[int, RankWork],
    *,
    title: str,
    verdict: str,
    shares: Mapping[int, RankShares],
    width_px: int = 1600,
) -> Figure:
    """Draw the ranks of a job on one clock, in steps of usual length.

    Args:
        job: what the ranks do together.
        works: what each rank did, by its number.
        title: the headline.
        verdict: the line below it.
        shares: how each rank spends a step, by its number, as the first screen says it.
        width_px: the picture's width; its height follows from the number of ranks.
    """
    ranks = _chosen(job)
    steps = choose_steps(job, works)
    times = job_times(job, works)
    grid = _grid(job, works, times, steps, width_px - LEFT_PX - RIGHT_PX)
    lanes = lanes_of(job, ranks, works, times, grid)
    marks = marks_in([lane.lane for lane in lanes])
    if any(len(lane.idle) for lane in lanes):
        marks.add(Mark.IDLE)
    content = heat_map(job, ranks)
    lane_px = min(_MOST_LANE, max(_LEAST_LANE, _LANES_PX // len(ranks) - 2))
    gap_px = max(2, lane_px // 5)
    row_px = min(_MOST_ROW, max(_LEAST_ROW, _ROWS_PX // len(ranks)))
    lanes_px = len(ranks) * (lane_px + gap_px) - gap_px
    map_px = heat_map_px(len(ranks), row_px) + _BETWEEN_PX if content.steps else 0
    legend = legend_px(grid, len(marks))
    height_px = _TOP_PX + lanes_px + AXIS_PX + legend + map_px
    with fixed_style():
        figure = new_figure(width_px, height_px)
        axes = figure.add_axes(
            (
                LEFT_PX / width_px,
                (height_px - _TOP_PX - lanes_px) / height_px,
                grid.columns / width_px,
                lanes_px / height_px,
            ),
            label="ranks",
        )
        axes.set(xlim=(0, grid.length_ns), ylim=(lanes_px, 0), facecolor="none")
        tops = [i * (lane_px + gap_px) for i in range(len(ranks))]
        sheet = Sheet(figure, axes, grid, [lane.lane for lane in lanes], tops, lane_px)
        draw_work(sheet, {lane.rank: lane.idle for lane in lanes})
        _draw_bounds(sheet, lanes)
        _draw_labels(sheet, lanes, _roles(job), {x.rank for x in job.stragglers}, shares)
        _draw_steps(sheet, job, steps, lanes)
        draw_axis(sheet)
        of = ["shares of a mean step"] if shares else []
        caption = "  ·  ".join([*_caption(job, ranks, steps, grid), *of])
        _draw_header(sheet, title, verdict, caption)
        draw_legend(sheet, marks, map_px + 14)
        if map_px:
            draw_heat_map(
                figure,
                content,
                left_px=LEFT_PX,
                top_px=height_px - map_px,
                width_px=grid.columns,
                row_px=row_px,
            )
    return figure


def _chosen(job: Job) -> list[int]:
    """The ranks that are shown: all, or of very many the stragglers and then the first."""
    stragglers = [straggler.rank for straggler in job.stragglers]
    kept = list(dict.fromkeys([*stragglers, *job.ranks]))[:_MOST_RANKS]
    return sorted(kept)


def _grid(
    job: Job,
    works: Mapping[int, RankWork],
    times: Mapping[int, JobTime],
    steps: Sequence[int],
    columns: int,
) -> Grid:
    """The time that is shown: these steps, or without any all that is known."""
    shown = [(x.start_ns, x.end_ns) for rank in job.per_rank for x in rank.steps if x.step in steps]
    if not shown:
        shown = [
            tuple(times[rank](np.array([work.start_ns, work.end_ns])).tolist())
            for rank, work in works.items()
        ]
    starts, ends = zip(*shown, strict=True)
    return Grid(min(starts), max(ends), columns)


def _caption(job: Job, ranks: Sequence[int], steps: Sequence[int], grid: Grid) -> list[str]:
    parts = []
    if len(ranks) < len(job.ranks):
        parts.append(f"{len(ranks)} of {len(job.ranks):,} ranks")
    if steps:
        names = " and ".join(map(str, steps))
        recorded = {x.step for times in job.per_rank for x in times.steps}
        choice = f" (nearest the usual length of {len(recorded):,} steps)"
        choice *= len(recorded) > len(steps)
        parts.append(f"step{'s' * (len(steps) > 1)} {names}{choice}")
    parts.append(duration_text(grid.length_ns))
    if job.alignment is not None and job.alignment.residual_ns is not None:
        parts.append(f"the ranks' clocks agree within {duration_text(job.alignment.residual_ns)}")
    return parts


def _draw_header(sheet: Sheet, title: str, verdict: str, caption: str) -> None:
    left = MARGIN_PX - LEFT_PX
    room_px = sheet.figure.get_size_inches()[0] * DPI - RIGHT_PX - MARGIN_PX
    headline = fit(printable(title), room_px, TITLE_PX, weight="bold")
    sheet.write(left, _TITLE_Y - _TOP_PX, headline, TITLE_PX, weight="bold")
    sheet.write(left, _FIRST_CAPTION_Y - _TOP_PX, fit(printable(verdict), room_px, TEXT_PX))
    below = fit(printable(caption), room_px, TEXT_PX)
    sheet.write(left, _SECOND_CAPTION_Y - _TOP_PX, below, color=GRAY)


def _roles(job: Job) -> dict[int, str]:
    """What there is to say of a rank below its number: its stage, or that others wait for it."""
    stages = job.pipeline.per_stage if job.pipeline else ()
    roles = {x.rank: f"stage {x.stage}" for x in stages}
    return roles | {x.rank: "others wait for it" for x in job.stragglers}


def _draw_labels(
    sheet: Sheet,
    lanes: Sequence[RankLane],
    roles: Mapping[int, str],
    stragglers: Set[int],
    shares: Mapping[int, RankShares],
) -> None:
    """Write next to every lane the rank and how much of a step it computes and waits."""
    size_px = TEXT_PX if sheet.lane_px >= TEXT_PX + 2 else SMALL_PX
    left = MARGIN_PX - LEFT_PX
    for name, x_px in _SHARE_X.items() if shares else ():
        sheet.write(x_px - LEFT_PX, _STEPS_Y - _TOP_PX, name, SMALL_PX, ha="right", color=GRAY)
    for lane, top in zip(lanes, sheet.tops, strict=True):
        middle = top + sheet.lane_px / 2
        role = roles.get(lane.rank, "") if sheet.is_spacious else ""
        color, role_color = (_STRAGGLER,) * 2 if lane.rank in stragglers else (DARK, GRAY)
        name_y = middle - 8 if role else middle
        sheet.write(left, name_y, lane.lane.label, size_px, weight="bold", color=color)
        sheet.write(left, middle + 9, role, SMALL_PX, color=role_color)
        for name, x_px in _SHARE_X.items() if lane.rank in shares else ():
            share = f"{shares[lane.rank].percents[name]} %"
            sheet.write(x_px - LEFT_PX, middle, share, size_px, ha="right", color=GRAY)


def _draw_bounds(sheet: Sheet, lanes: Sequence[RankLane]) -> None:
    """A fine line in each lane where the rank's step begins or ends."""
    grid = sheet.grid
    segments = [
        ((ns - grid.start_ns, top), (ns - grid.start_ns, top + sheet.lane_px))
        for lane, top in zip(lanes, sheet.tops, strict=True)
        for ns in lane.bounds_ns
        if grid.start_ns <= ns <= grid.end_ns
    ]
    lines = LineCollection(
        segments, colors=STEP_LINE, linewidths=points(1.4), zorder=4, clip_on=False
    )
    lines.set_gid("steps")
    sheet.axes.add_collection(lines, autolim=False)


def _draw_steps(sheet: Sheet, job: Job, steps: Sequence[int], lanes: Sequence[RankLane]) -> None:
    """The steps' numbers above the first lane."""
    grid = sheet.grid
    [times] = [times for times in job.per_rank if times.rank == lanes[0].rank]
    starts_ns = {x.step: x.start_ns for x in times.steps}
    for step in steps:
        x_px = max(0.0, (starts_ns[step] - grid.start_ns) / grid.pixel_ns)
        sheet.write(x_px, _STEPS_Y - _TOP_PX, f"step {step}", SMALL_PX, color=GRAY)
