"""The picture of a what-if: a steady step as it is, and below it with a change, on one scale."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.rows import Choice, Row, build_rows, marks_in, visible_idle
from tracelab.render.picture.style import LEFT_PX, RIGHT_PX
from tracelab.render.picture.timeline import Panel, draw_panels
from tracelab.render.scene import Scene
from tracelab.render.words import duration_text

MAX_ROWS_OF_HALF = 24


def draw_whatif(scenes: tuple[Scene, Scene], *, titles: tuple[str, str], width_px: int) -> Figure:
    """Draw a step above the same step with a change; a pixel is one time in both.

    Args:
        scenes: the replayed step as it is, and with the change.
        titles: the headlines of the two.
        width_px: the picture's width; its height follows from the number of rows.
    """
    columns = width_px - LEFT_PX - RIGHT_PX
    lengths_ns = [scene.window.end_ns - scene.window.start_ns for scene in scenes]
    grids = [
        Grid(*scene.window, max(1, round(columns * length_ns / max(lengths_ns))))
        for scene, length_ns in zip(scenes, lengths_ns, strict=True)
    ]
    rows = [_all_rows(*pair) for pair in zip(scenes, grids, strict=True)]
    kept = _kept([row for of_scene in rows for row in of_scene])
    shown = [[row for row in of_scene if _key(row) in kept] for of_scene in rows]
    panels = [_panel(*one) for one in zip(scenes, grids, shown, titles, strict=True)]
    return draw_panels(panels, width_px, max(grids, key=lambda grid: grid.columns))


def _all_rows(scene: Scene, grid: Grid) -> list[Row]:
    lanes = (*scene.lanes_of_type("host"), *scene.lanes_of_type("stream"))
    kinds = next(lane.kinds for lane in scene.lanes_of_type("stream"))
    return build_rows(scene, Choice(lanes, kinds), grid)


def _kept(rows: Sequence[Row]) -> set[tuple[int | None, str]]:
    """List the rows that are shown: those with anything in either half, the busiest."""
    busy_ns: dict[tuple[int | None, str], int] = {}
    for row in rows:
        if marks_in([row]):
            busy_ns[_key(row)] = max(row.busy_ns, busy_ns.get(_key(row), 0))
    return set(sorted(busy_ns, key=lambda key: -busy_ns[key])[:MAX_ROWS_OF_HALF])


def _key(row: Row) -> tuple[int | None, str]:
    return row.device, row.label


def _panel(scene: Scene, grid: Grid, rows: Sequence[Row], title: str) -> Panel:
    parts = [f"a replayed step: {duration_text(grid.length_ns)}", *scene.notes]
    if len(rows) >= MAX_ROWS_OF_HALF:
        parts.append(f"the {len(rows)} busiest lanes")
    devices = dict.fromkeys(row.device for row in rows if row.device is not None)
    busy = {device: scene.busy(device, scene.window) for device in devices}
    return Panel(
        scene=scene,
        grid=grid,
        rows=rows,
        title=title,
        caption="  ·  ".join(parts),
        busy={},
        idle={device: visible_idle(covered, grid) for device, covered in busy.items()},
    )
