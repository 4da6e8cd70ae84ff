"""Pictures of timelines: a row for every host thread and stream, one timeline below the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.intervals import Intervals, gaps, measure
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
    Choice,
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
from tracelab.render.scene import Scene, Span
from tracelab.render.text.savings import percent
from tracelab.render.words import duration_text

# Of all parts together.
MAX_ROWS = 400
MAX_ROWS_OF_HALF = 24
# Nobody compares more of them by eye.
MAX_PARTS = 20


class Part(Record, eq=False):
    """One timeline of a picture.

    Attributes:
        title: by default the verdict of the file, or else its name.
        shown: the stretch of time in words.
        said: None if findings are not shown.
        findings: numbers of those that are marked.
        lanes: names of the lanes to draw; None for all.
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
        names: those of the spans, by index.
        steps: those of each row.
        busy: when any of its streams works, of each GPU whose idle time has no row.
        lines: below the headline; the last one is gray.
        below: what is written below the name of a GPU.
        zero_ns: the moment from which the axis counts.
        unit: how names of GPUs begin; those of a job are ranks.
        marked: the GPUs whose names are colored.
        key: what the number of each finding means.
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
    """Refuse numbers of files, lanes and pixels that no picture has."""
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
    """Draw timelines one above the other; a pixel is the same time in all, the longest fills it."""
    for start_ns, end_ns in (part.span for part in parts):
        if end_ns <= start_ns:
            raise UsageError(f"there is nothing to draw from {start_ns} ns to {end_ns} ns")
    grids = _grids([part.span for part in parts], look.width_px)
    max_rows = max(1, MAX_ROWS // len(parts))
    return draw_panels(
        [_panel(part, grid, max_rows) for part, grid in zip(parts, grids, strict=True)], look
    )


def draw_whatif(scenes: tuple[Scene, Scene], *, titles: tuple[str, str], look: Look) -> Picture:
    """Draw a step above the same step with a change; a pixel is one time in both."""
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
    """Return the pixel columns of each span; the longest has all."""
    columns = width_px - LEFT_PX - RIGHT_PX
    longest_ns = max(end_ns - start_ns for start_ns, end_ns in spans)
    return [
        Grid(start_ns, end_ns, max(1, round(columns * (end_ns - start_ns) / longest_ns)))
        for start_ns, end_ns in spans
    ]


def draw_panels(panels: Sequence[Panel], look: Look, ticks: Grid | None = None) -> Picture:
    """Draw panels one above the other, with their own ticks or those of a common time."""
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
    # Threads that did nothing then; a stream without work says something.
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
