"""The picture of a job: all ranks on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import reduce
from itertools import pairwise
from statistics import median
from types import MappingProxyType

from matplotlib.figure import Figure

from tracelab.base.intervals import Intervals, clip, intersect, join, measure, subtract, union
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import draw_axis, draw_header, draw_work
from tracelab.render.picture.layout import (
    AXIS_PX,
    DARK,
    GRAY,
    LEFT_PX,
    MARGIN_PX,
    RIGHT_PX,
    SMALL_PX,
    STEP_LINES,
    TEXT_PX,
    Sheet,
    draw_legend,
    legend_px,
    new_figure,
    new_sheet,
)
from tracelab.render.picture.rows import Band, Layer, Row, kinds_in, visible
from tracelab.render.picture.save import fixed_style
from tracelab.render.ranks import RankShares
from tracelab.render.scene import NOTHING, Scene, Span
from tracelab.render.words import duration_text
from tracelab.report.schema import Job

_WORK = ("forward", "backward", "other_compute", "compute", "copy", "memset")
_MAX_RANKS = 128
_ALL_LANES_PX, _MIN_LANE_PX, _MAX_LANE_PX = 1000, 11, 44
_HEADER_PX = 124
_FIRST_CAPTION_Y, _SECOND_CAPTION_Y, _STEPS_Y = 60, 82, 112
# Right edges of the two columns of shares, from the picture's left.
_SHARE_X = MappingProxyType({"compute": 182, "wait": 228})
_STRAGGLER = "#C24A00"  # its label; the line below the headline says it in words


def draw_job(
    job: Job,
    scenes: Mapping[int, Scene],
    *,
    title: str,
    verdict: str,
    shares: Mapping[int, RankShares],
    width_px: int = 1600,
) -> Figure:
    """Draw the ranks of a job on one clock, in steps of usual length.

    Args:
        job: what the ranks do together.
        scenes: the work of each rank on the job's clock, by its number.
        title: the headline.
        verdict: the line below it.
        shares: how each rank spends a step, by its number, as the first screen says it.
        width_px: the picture's width; its height follows from the number of ranks.
    """
    ranks = _chosen(job)
    steps = choose_steps(job, scenes)
    grid = _grid(job, scenes, steps, width_px - LEFT_PX - RIGHT_PX)
    rows, idle = zip(*(_row(scenes[rank], grid) for rank in ranks), strict=True)
    kinds = kinds_in(rows)
    if any(map(len, idle)):
        kinds.add("idle")
    lane_px = min(_MAX_LANE_PX, max(_MIN_LANE_PX, _ALL_LANES_PX // len(ranks) - 2))
    gap_px = max(2, lane_px // 5)
    lanes_px = len(ranks) * (lane_px + gap_px) - gap_px
    height_px = _HEADER_PX + lanes_px + AXIS_PX + legend_px(grid, len(kinds))
    with fixed_style():
        figure = new_figure(width_px, height_px)
        tops = [i * (lane_px + gap_px) for i in range(len(ranks))]
        below_px = height_px - _HEADER_PX - lanes_px
        sheet = new_sheet(figure, "ranks", grid, rows, tops, lane_px, below_px)
        draw_work(sheet, dict(zip(ranks, idle, strict=True)))
        _draw_bounds(sheet, job)
        _draw_labels(sheet, _roles(job), {x.rank for x in job.stragglers}, shares)
        _draw_steps(sheet, job, steps)
        draw_axis(sheet)
        of = ["shares of a mean step"] if shares else []
        caption = "  ·  ".join([*_caption(job, ranks, steps, grid), *of])
        lines = {_FIRST_CAPTION_Y: (DARK, verdict), _SECOND_CAPTION_Y: (GRAY, caption)}
        draw_header(sheet, _HEADER_PX, title, lines)
        draw_legend(sheet, kinds)
    return figure


def _chosen(job: Job) -> list[int]:
    """The ranks that are shown: all, or of very many the stragglers and then the first."""
    stragglers = [straggler.rank for straggler in job.stragglers]
    kept = list(dict.fromkeys([*stragglers, *job.ranks]))[:_MAX_RANKS]
    return sorted(kept)


def choose_steps(job: Job, scenes: Mapping[int, Scene]) -> tuple[int, ...]:
    """Choose two steps in a row whose lengths are nearest the median, of those that all ranks have.

    Returns their numbers; one where there is no more, none without any.
    """
    length_ns: dict[int, int] = {}
    seen = Counter[int]()
    for times in job.per_rank:
        scene = scenes[times.rank]
        for x in times.steps:
            if x.step in (scene.step, *scene.usual_steps):
                seen[x.step] += 1
                length_ns[x.step] = max(length_ns.get(x.step, 0), x.end_ns - x.start_ns)
    numbers = sorted(number for number, count in seen.items() if count == len(job.per_rank))
    if not numbers:
        return ()
    usual_ns = median(length_ns[number] for number in numbers)
    choices: list[tuple[int, ...]] = list(pairwise(numbers)) or [(numbers[0],)]
    return min(choices, key=lambda steps: sum(abs(length_ns[x] - usual_ns) for x in steps))


def _grid(job: Job, scenes: Mapping[int, Scene], steps: Sequence[int], columns: int) -> Grid:
    """Return the time that is shown: these steps, or without any all that is known."""
    shown = [(x.start_ns, x.end_ns) for rank in job.per_rank for x in rank.steps if x.step in steps]
    shown = shown or [(scene.start_ns, scene.end_ns) for scene in scenes.values()]
    starts, ends = zip(*shown, strict=True)
    return Grid(min(starts), max(ends), columns)


def _row(scene: Scene, grid: Grid) -> tuple[Row, Intervals]:
    """Build the row of a rank: its work and, below, its communication; return when it is idle."""
    within = Span(grid.start_ns, grid.end_ns)
    [work] = scene.lanes_of_type("work")
    covered = {kind: work.covered(kind, within) for kind in work.kinds}
    nothing = union([], [])
    waiting = scene.lane("wait")
    waits, transfers = (
        nothing if waiting is None else waiting.covered(kind, within)
        for kind in ("wait", "transfer")
    )
    busy = reduce(join, covered.values(), nothing)

    def layer(kind: str, of_kind: Intervals) -> Layer:
        return Layer(kind, of_kind, NOTHING, NOTHING, NOTHING)

    # Where one kernel waits while another one transfers, both are seen.
    communication = (
        layer("transfer", join(transfers, subtract(covered["comm"], waits))),
        layer("wait", subtract(waits, transfers)),
    )
    beside = (layer("wait", intersect(waits, transfers)),)
    bands = (
        Band(0, 0.6, 0.16, tuple(layer(kind, covered[kind]) for kind in _WORK)),
        Band(0.66, 1, 0.3, communication),
        Band(0.66, 0.83, 0.3, beside),
    )
    known = clip(union([scene.start_ns], [scene.end_ns]), *within)
    row = Row(f"rank {scene.rank}", scene.rank, measure(busy), bands)
    return row, visible(subtract(known, busy), grid)


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


def _roles(job: Job) -> dict[int, str]:
    """Return the text below a rank's number: its stage, or that others wait for it."""
    stages = job.pipeline.per_stage if job.pipeline else ()
    roles = {x.rank: f"stage {x.stage}" for x in stages}
    return roles | {x.rank: "others wait for it" for x in job.stragglers}


def _draw_labels(
    sheet: Sheet,
    roles: Mapping[int, str],
    stragglers: Set[int],
    shares: Mapping[int, RankShares],
) -> None:
    """Write next to every lane the rank and how much of a step it computes and waits."""
    size_px = TEXT_PX if sheet.lane_px >= TEXT_PX + 2 else SMALL_PX
    left = MARGIN_PX - LEFT_PX
    for name, x_px in _SHARE_X.items() if shares else ():
        sheet.write(x_px - LEFT_PX, _STEPS_Y - _HEADER_PX, name, SMALL_PX, ha="right", color=GRAY)
    for row, top, bottom in sheet.places():
        rank, middle = row.device or 0, (top + bottom) / 2
        role = roles.get(rank, "") if sheet.is_spacious else ""
        color, role_color = (_STRAGGLER,) * 2 if rank in stragglers else (DARK, GRAY)
        name_y = middle - 8 if role else middle
        sheet.write(left, name_y, row.label, size_px, weight="bold", color=color)
        sheet.write(left, middle + 9, role, SMALL_PX, color=role_color)
        for name, x_px in _SHARE_X.items() if rank in shares else ():
            share = f"{shares[rank].percents[name]} %"
            sheet.write(x_px - LEFT_PX, middle, share, size_px, ha="right", color=GRAY)


def _draw_bounds(sheet: Sheet, job: Job) -> None:
    """Draw a fine line in each lane where the rank's step begins or ends."""
    grid = sheet.grid
    steps = {times.rank: times.steps for times in job.per_rank}
    segments = [
        ((ns - grid.start_ns, top), (ns - grid.start_ns, bottom))
        for row, top, bottom in sheet.places()
        for ns in sorted({ns for x in steps[row.device or 0] for ns in (x.start_ns, x.end_ns)})
        if grid.start_ns <= ns <= grid.end_ns
    ]
    sheet.draw_lines("steps", segments, 1.4, **STEP_LINES)


def _draw_steps(sheet: Sheet, job: Job, steps: Sequence[int]) -> None:
    """Write the steps' numbers above the first lane."""
    grid = sheet.grid
    [times] = [times for times in job.per_rank if times.rank == sheet.rows[0].device]
    starts_ns = {x.step: x.start_ns for x in times.steps}
    for step in steps:
        x_px = max(0.0, (starts_ns[step] - grid.start_ns) / grid.pixel_ns)
        sheet.write(x_px, _STEPS_Y - _HEADER_PX, f"step {step}", SMALL_PX, color=GRAY)
