"""Draw what lies in the lanes: idle time, activities, the seams between them, their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patheffects import withStroke

from tracelab.base.intervals import Intervals, union
from tracelab.render.picture.coverage import (
    FloatArray,
    lane_polygons,
    rectangles,
    roomy,
    seams,
)
from tracelab.render.picture.layout import Sheet
from tracelab.render.picture.letters import fit, printable
from tracelab.render.picture.rows import Mark
from tracelab.render.picture.style import GROUND, PAINTS, SMALL_PX, points
from tracelab.render.words import bare_name

_SEAM_PX, _NAME_PX, _NAME_PAD, _NAMED_BAND_PX = 5, 40, 5, 14


def draw_lanes(sheet: Sheet, names: Sequence[str], idle: Mapping[int, Intervals]) -> None:
    """Draw everything inside the lanes.

    Args:
        sheet: where to draw.
        names: of the scene.
        idle: for each device when none of its streams works.
    """
    draw_work(sheet, idle)
    _draw_seams(sheet)
    _draw_names(sheet, names)


def draw_work(sheet: Sheet, idle: Mapping[int, Intervals]) -> None:
    """Draw the contents of the lanes, without names and ends of single activities."""
    _draw_grounds(sheet)
    _draw_idle(sheet, idle)
    _draw_layers(sheet)


def _draw_grounds(sheet: Sheet) -> None:
    """A pale ground for every lane, so that an empty one is seen to be empty."""
    whole = union([sheet.grid.start_ns], [sheet.grid.end_ns])
    grounds = [
        ground
        for _, top, bottom in sheet.places()
        for ground in rectangles(whole, sheet.grid.start_ns, top, bottom)
    ]
    sheet.axes.add_collection(
        PolyCollection(grounds, facecolor=GROUND, linewidth=0, zorder=0), autolim=False
    )


def _draw_idle(sheet: Sheet, idle: Mapping[int, Intervals]) -> None:
    """A hatch across all lanes of a device where none of its streams works."""
    polygons: list[FloatArray] = []
    for device, (top, bottom) in sheet.device_edges().items():
        polygons += rectangles(idle[device], sheet.grid.start_ns, top, bottom)
    sheet.fill(Mark.IDLE, polygons)


def _draw_layers(sheet: Sheet) -> None:
    """Draw the contents of the lanes, one collection for each sort."""
    polygons: dict[Mark, list[FloatArray]] = {}
    for band, upper, lower in sheet.bands():
        covered = [layer.covered for layer in band.layers]
        shapes = lane_polygons(covered, sheet.grid, top=upper, bottom=lower, least=band.least)
        for layer, layer_shapes in zip(band.layers, shapes, strict=True):
            polygons.setdefault(layer.mark, []).extend(layer_shapes)
    for mark, mark_polygons in polygons.items():
        sheet.fill(mark, mark_polygons)


def _draw_seams(sheet: Sheet) -> None:
    """A fine line where one activity follows another of its kind without a gap."""
    segments: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for band, upper, lower in sheet.bands():
        for layer in band.layers:
            seam_ns = seams(layer.covered, layer.start_ns, layer.end_ns, sheet.grid, _SEAM_PX)
            positions = (seam_ns - sheet.grid.start_ns).tolist()
            segments += [((x, upper), (x, lower)) for x in positions]
    lines = LineCollection(
        segments, colors="black", alpha=0.45, linewidths=points(0.8), zorder=3, capstyle="butt"
    )
    lines.set_gid("seams")
    sheet.axes.add_collection(lines, autolim=False)


def _draw_names(sheet: Sheet, names: Sequence[str]) -> None:
    """The names of what is wide enough for them."""
    grid = sheet.grid
    for band, upper, lower in sheet.bands():
        if lower - upper < _NAMED_BAND_PX:
            continue
        name = np.concatenate([layer.name for layer in band.layers])
        counts = [len(layer.name) for layer in band.layers]
        layer_index = np.repeat(range(len(band.layers)), counts)
        first = np.concatenate([layer.start_ns for layer in band.layers])
        last = np.concatenate([layer.end_ns for layer in band.layers])
        starts, ends = np.maximum(first, grid.start_ns), np.minimum(last, grid.end_ns)
        for i in roomy(starts, ends, grid, _NAME_PX):
            room_px = (ends[i] - starts[i]) / grid.pixel_ns - 2 * _NAME_PAD
            middle_px = ((starts[i] + ends[i]) / 2 - grid.start_ns) / grid.pixel_ns
            text = fit(printable(bare_name(names[name[i]])), room_px, SMALL_PX)
            paint = PAINTS[band.layers[layer_index[i]].mark]
            # Its own ground keeps a name readable on a hatch and where a step's line crosses it.
            ground = [withStroke(linewidth=points(3), foreground=paint.fill)]
            look = {"ha": "center", "color": paint.ink, "path_effects": ground}
            sheet.write(middle_px, (upper + lower) / 2, text, SMALL_PX, **look)
