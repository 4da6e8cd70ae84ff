"""Pictures of timelines, with rows of host threads and streams, or of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import MappingProxyType

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Intervals, clip, gaps, intersect, join, measure, subtract, union
from tracelab.render.first_screen import BusyShares, FirstScreen
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import (
    draw_axis,
    draw_header,
    draw_labels,
    draw_lanes,
    draw_marks,
    draw_steps,
    header_lines,
    tips_of,
)
from tracelab.render.picture.layout import (
    LEFT_PX,
    MAX_SIDE_PX,
    MIN_HEIGHT_PX,
    MIN_WIDTH_PX,
    RIGHT_PX,
    draw_legend,
    legend_px,
    new_sheets,
)
from tracelab.render.picture.rows import (
    Band,
    Choice,
    Layer,
    PlacedMark,
    Row,
    build_rows,
    busiest,
    caption,
    choose,
    kinds_in,
    place_marks,
    require_lane_names,
    visible,
)
from tracelab.render.picture.save import DEFAULT_LOOK, Look, Picture, Tip, fixed_style
from tracelab.render.ranks import RankShares
from tracelab.render.scene import NOTHING, Scene, Span
from tracelab.render.text.savings import percent
from tracelab.render.words import duration_text
from tracelab.report.schema import Job

MAX_ROWS = 400
MAX_ROWS_OF_HALF = 24
MAX_PARTS = 20
_WORK = ("forward", "backward", "other_compute", "compute", "copy", "memset")
_MAX_RANKS = 64


class Part(Record, eq=False):
    """One timeline of a picture.

    Attributes:
        title: by default the verdict of the file, or its name.
        shown: the stretch of time in words.
        said: None without findings.
        findings: numbers of the marked ones.
        lanes: names; None for all.
        busy: by default of the shown time.
    """

    scene: Scene
    span: Span
    title: str = ""
    lanes: Sequence[str] | None = None
    busy: BusyShares | None = None
    shown: str = ""
    said: FirstScreen | None = None
    findings: tuple[int, ...] = ()


class Panel(Record, eq=False):
    """Contents of one part of a picture.

    Attributes:
        names: of spans, by index.
        steps: of each row.
        busy: of each GPU without a row of idle time.
        lines: below the headline; the last one is gray.
        below: below the name of a GPU.
        zero_ns: origin of the axis.
        unit: start of the GPUs' names.
        marked: the GPUs with colored names.
        key: meaning of each finding's number.
    """

    grid: Grid
    names: Sequence[str]
    rows: Sequence[Row]
    steps: Sequence[Mapping[int, Span]]
    busy: Mapping[int, Intervals]
    title: str
    lines: Sequence[str]
    below: Mapping[int, str]
    zero_ns: int
    unit: str = "GPU"
    marked: Set[int] = frozenset()
    key: Mapping[int, str] = MappingProxyType({})
    marks: Sequence[PlacedMark] = ()


def require_drawable(parts: int, lanes: Sequence[str] | None, look: Look) -> None:
    """Refuse impossible numbers of files, lanes and pixels."""
    sides = (("width", MIN_WIDTH_PX, look.width_px), ("height", MIN_HEIGHT_PX, look.height_px))
    for word, least, px in sides:
        if px is not None and not least <= px <= MAX_SIDE_PX:
            raise UsageError(
                f"a timeline's {word} is {least} to {MAX_SIDE_PX:,} pixels, not {px:,}"
            )
    if parts > MAX_PARTS:
        raise UsageError(
            f"one picture shows at most {MAX_PARTS} files that are not one job; these are "
            f"{parts:,}: draw each alone, as `tracelab analyze` does"
        )
    require_lane_names(lanes or ())


def draw_timelines(parts: Sequence[Part], look: Look = DEFAULT_LOOK) -> Picture:
    """Draw timelines below each other on one scale; the longest fills the width."""
    for start_ns, end_ns in (part.span for part in parts):
        if end_ns <= start_ns:
            raise UsageError(f"there is nothing to draw from {start_ns} ns to {end_ns} ns")
    grids = _grids([part.span for part in parts], look.width_px)
    max_rows = max(1, MAX_ROWS // len(parts))
    return draw_panels(
        [_panel(part, grid, max_rows) for part, grid in zip(parts, grids, strict=True)], look
    )


def draw_whatif(scenes: tuple[Scene, Scene], *, titles: tuple[str, str], look: Look) -> Picture:
    """Draw a step above the same step with a change, on one scale."""
    grids = _grids([scene.window for scene in scenes], look.width_px)
    panels = []
    for scene, grid, title in zip(scenes, grids, titles, strict=True):
        streams = tuple(scene.lanes_of_type("stream"))
        choice = Choice((*scene.lanes_of_type("host"), *streams), streams[0].kinds)
        rows = busiest(build_rows(scene, choice, grid), MAX_ROWS_OF_HALF)
        shown = [row for row in rows if kinds_in([row])]
        texts = [f"a replayed step: {duration_text(grid.length_ns)}", *scene.notes]
        if len(shown) >= MAX_ROWS_OF_HALF:
            texts.append(f"the {len(shown)} busiest lanes")
        lines = ["  ·  ".join(texts)]
        busy, steps = _busy(scene, shown, scene.window), [scene.steps] * len(shown)
        zero_ns = grid.start_ns
        panels.append(Panel(grid, scene.names, shown, steps, busy, title, lines, {}, zero_ns))
    return draw_panels(panels, look, max(grids, key=lambda grid: grid.columns))


def _grids(spans: Sequence[Span], width_px: int) -> list[Grid]:
    columns = width_px - LEFT_PX - RIGHT_PX
    longest_ns = max(end_ns - start_ns for start_ns, end_ns in spans)
    return [
        Grid(start_ns, end_ns, max(1, round(columns * (end_ns - start_ns) / longest_ns)))
        for start_ns, end_ns in spans
    ]


def draw_panels(panels: Sequence[Panel], look: Look, ticks: Grid | None = None) -> Picture:
    """Draw panels below each other, with their own or common ticks."""
    kinds = {kind for panel in panels for kind in kinds_in(panel.rows)}
    idle = [
        {
            device: visible(gaps(covered, panel.grid.start_ns, panel.grid.end_ns), panel.grid)
            for device, covered in panel.busy.items()
        }
        for panel in panels
    ]
    if any(len(of_gpu) for of_panel in idle for of_gpu in of_panel.values()):
        kinds.add("idle")
    widest = max((panel.grid for panel in panels), key=lambda grid: grid.columns)
    titles = [header_lines(look.width_px, panel.title) for panel in panels]
    with fixed_style():
        sheets = new_sheets(
            [panel.rows for panel in panels],
            [panel.grid for panel in panels],
            [
                len(title) - 1 + len(panel.lines) + len(panel.key)
                for title, panel in zip(titles, panels, strict=True)
            ],
            look,
            legend_px(widest, kinds),
        )
        for panel, title, sheet, of_panel in zip(panels, titles, sheets, idle, strict=True):
            draw_lanes(sheet, panel.names, of_panel)
            draw_labels(sheet, panel.unit, panel.below, panel.marked)
            draw_steps(sheet, panel.steps)
            draw_axis(sheet, panel.grid.start_ns - panel.zero_ns, ticks)
            draw_marks(sheet, panel.marks)
            draw_header(sheet, title, panel.lines, panel.key)
        draw_legend(next(sheet for sheet in sheets if sheet.grid is widest), kinds)

    def tips() -> Iterator[Tip]:
        for panel, sheet in zip(panels, sheets, strict=True):
            yield from tips_of(sheet, panel.names, panel.zero_ns)

    return Picture(sheets[0].figure, tips)


def _panel(part: Part, grid: Grid, max_rows: int) -> Panel:
    scene = part.scene
    every = build_rows(scene, choose(scene, part.lanes), grid)
    # Idle threads are left out; a stream without work says something.
    available = [row for row in every if row.device is not None or kinds_in([row])] or every
    rows = busiest(available, max_rows)
    busy = _busy(scene, rows, part.span)
    shares = part.busy or BusyShares(
        "the shown time",
        {gpu: percent(measure(covered) / grid.length_ns) for gpu, covered in busy.items()},
    )
    of = [f"busy share of {shares.of}"] if busy else []
    name = Path(scene.path).name
    title = part.title or (part.said.verdict if part.said else "") or name
    said = [] if title == name else [name]
    said += [part.shown] if part.shown else []
    lines = ["  ·  ".join([*said, *caption(rows, grid, part.lanes, len(available)), *of])]
    below = {gpu: f"busy {share}" for gpu, share in shares.by_gpu.items()}
    hatched = {gpu: x for gpu, x in busy.items() if scene.lane(f"idle:{gpu}") is None}
    marks = place_marks(scene, part.findings, rows, grid)
    return Panel(
        grid=grid,
        names=scene.names,
        rows=rows,
        steps=[scene.steps] * len(rows),
        busy=hatched,
        title=title,
        lines=lines,
        below=below,
        key=_key(part, {mark.number for mark in marks}),
        marks=marks,
        zero_ns=0,
    )


def _key(part: Part, shown: Set[int]) -> dict[int, str]:
    items = (*part.said.items, *part.said.others) if part.said else ()
    key = {}
    for item in items:
        if item.number in part.findings:
            place = f" ({item.place})" if item.place else ""
            missing = "" if item.number in shown else "  ·  not in what is shown"
            key[item.number] = f"{item.finding.rule} {item.title.rstrip('.')}{place}{missing}"
    return key


def _busy(scene: Scene, rows: Sequence[Row], span: Span) -> dict[int, Intervals]:
    devices = dict.fromkeys(row.device for row in rows if row.device is not None)
    return {device: scene.busy(device, span) for device in devices}


def draw_job(
    job: Job,
    scenes: Mapping[int, Scene],
    *,
    title: str,
    verdict: str,
    shares: Mapping[int, RankShares],
    look: Look = DEFAULT_LOOK,
) -> Picture:
    """Draw a job in usual steps; scenes and shares are by rank."""
    ranks = _chosen(job)
    steps = choose_steps(job, scenes)
    grid = _grid(job, scenes, steps, look.width_px - LEFT_PX - RIGHT_PX)
    rows, busy = zip(*(_row(scenes[rank], grid, shares.get(rank)) for rank in ranks), strict=True)
    steps_of = {
        times.rank: {x.step: Span(x.start_ns, x.end_ns) for x in times.steps}
        for times in job.per_rank
    }
    of = ["compute / wait: shares of a mean step"] if shares else []
    panel = Panel(
        grid=grid,
        names=(),
        rows=rows,
        steps=[steps_of[rank] for rank in ranks],
        busy=dict(zip(ranks, busy, strict=True)),
        title=title,
        lines=(verdict, "  ·  ".join([*_caption(job, ranks, steps, grid), *of])),
        below=_roles(job),
        zero_ns=grid.start_ns,
        unit="rank",
        marked={x.rank for x in job.stragglers},
    )
    return draw_panels([panel], look)


def _chosen(job: Job) -> list[int]:
    stragglers = [straggler.rank for straggler in job.stragglers]
    kept = list(dict.fromkeys([*stragglers, *job.ranks]))[:_MAX_RANKS]
    return sorted(kept)


def choose_steps(job: Job, scenes: Mapping[int, Scene]) -> tuple[int, ...]:
    """Choose at most two consecutive steps of all ranks, of lengths nearest the median."""
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
    shown = [(x.start_ns, x.end_ns) for rank in job.per_rank for x in rank.steps if x.step in steps]
    shown = shown or [(scene.start_ns, scene.end_ns) for scene in scenes.values()]
    starts, ends = zip(*shown, strict=True)
    return Grid(min(starts), max(ends), columns)


def _row(scene: Scene, grid: Grid, shares: RankShares | None) -> tuple[Row, Intervals]:
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

    # If one kernel waits while another one transfers, both are seen.
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
    percents = shares.percents if shares else {}
    label = " / ".join(f"{percents[name]} %" for name in ("compute", "wait") if percents)
    return Row(label, scene.rank, measure(busy), bands), join(busy, gaps(known, *within))


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
    stages = job.pipeline.per_stage if job.pipeline else ()
    roles = {x.rank: f"stage {x.stage}" for x in stages}
    return roles | {x.rank: "others wait for it" for x in job.stragglers}
