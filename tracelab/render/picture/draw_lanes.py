"""Draw the lanes of a sheet and their surroundings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection

from tracelab.base.arrays import ABSENT
from tracelab.base.intervals import Intervals, clip, union
from tracelab.base.names import kernel_label
from tracelab.base.safe_text import visible
from tracelab.render.palette import KINDS, ink_on, kind_word
from tracelab.render.picture.coverage import (
    FloatArray,
    Grid,
    lane_polygons,
    outlines,
    rectangles,
    roomy,
    seams,
    spaced,
)
from tracelab.render.picture.layout import (
    CAPTION_UP_PX,
    LEFT_PX,
    LINE_PX,
    MARGIN_PX,
    SMALL_PX,
    TEXT_PX,
    TITLE_PX,
    Segment,
    Sheet,
    fit,
    points,
    printable,
    text_width,
    wrap,
)
from tracelab.render.picture.rows import MARK_PX, Layer, PlacedMark, Row
from tracelab.render.picture.save import DPI, Tip
from tracelab.render.scene import Span
from tracelab.render.words import axis_unit, bare_name, shorten, ticks, time_text

_SEAM_PX, _NAME_PX, _NAME_PAD, _NAMED_BAND_PX, _TIP_PX = 5, 40, 5, 14, 2
_MAX_TIP_LETTERS = 2000
# From the picture's left edge.
_UNIT_X, _LABEL_X = 218, 230
_STEPS_UP_PX = 17  # above the lanes
_TICK_PX, _STEP_LINE_PX, _TEXT_GAP = 110, 16, 8
_MAX_TITLE_LETTERS = 300


def draw_lanes(sheet: Sheet, names: Sequence[str], idle: Mapping[int, Intervals]) -> None:
    """Draw the contents of the lanes; `idle` is hatched."""
    _draw_grounds(sheet)
    _draw_idle(sheet, idle)
    _draw_layers(sheet)
    _draw_seams(sheet)
    _draw_names(sheet, names)


def _draw_grounds(sheet: Sheet) -> None:
    whole = union([sheet.grid.start_ns], [sheet.grid.end_ns])
    grounds = [
        ground
        for _, top, bottom in sheet.places()
        for ground in rectangles(whole, sheet.grid.start_ns, top, bottom)
    ]
    sheet.axes.add_collection(
        PolyCollection(grounds, facecolor=sheet.theme.ground, linewidth=0, zorder=0), autolim=False
    )


def _draw_idle(sheet: Sheet, idle: Mapping[int, Intervals]) -> None:
    polygons: list[FloatArray] = []
    for device, (top, bottom) in sheet.device_edges().items():
        if device in idle:
            polygons += rectangles(idle[device], sheet.grid.start_ns, top, bottom)
    sheet.fill("idle", polygons)


def _draw_layers(sheet: Sheet) -> None:
    polygons: dict[str, list[FloatArray]] = {}
    for band, upper, lower in sheet.bands():
        covered = [layer.covered for layer in band.layers]
        shapes = lane_polygons(covered, sheet.grid, top=upper, bottom=lower, least=band.least)
        for layer, layer_shapes in zip(band.layers, shapes, strict=True):
            polygons.setdefault(layer.kind, []).extend(layer_shapes)
    edges_ns = (sheet.grid.edges_ns - sheet.grid.start_ns).astype(float)
    for row, top, bottom in sheet.places():
        if row.heights is not None:
            low = np.full(sheet.grid.columns, float(bottom))
            shapes_of_row = outlines(edges_ns, low, low - row.heights * (bottom - top))
            polygons.setdefault("counter", []).extend(shapes_of_row)
    for kind, of_kind in polygons.items():
        sheet.fill(kind, of_kind)


def _draw_seams(sheet: Sheet) -> None:
    segments: list[Segment] = []
    for band, upper, lower in sheet.bands():
        for layer in band.layers:
            seam_ns = seams(layer.covered, layer.start_ns, layer.end_ns, sheet.grid, _SEAM_PX)
            positions = (seam_ns - sheet.grid.start_ns).tolist()
            segments += [((x, upper), (x, lower)) for x in positions]
    sheet.draw_lines("seams", segments, 0.8, colors="black", alpha=0.45, zorder=3, capstyle="butt")


def _draw_names(sheet: Sheet, names: Sequence[str]) -> None:
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
            kind = band.layers[layer_index[i]].kind
            whole = "" if name[i] == ABSENT else names[name[i]]
            text = bare_name(whole) if whole else kind_word(kind)
            room_px = (ends[i] - starts[i]) / grid.pixel_ns - 2 * _NAME_PAD
            middle_px = ((starts[i] + ends[i]) / 2 - grid.start_ns) / grid.pixel_ns
            if kernel_label(whole) and text_width(text, SMALL_PX) > room_px:
                # The operation or the tile says more than the family.
                text = text.partition(" ")[2] or text
            text = fit(printable(text), room_px, SMALL_PX)
            color = sheet.theme.color_of(kind)
            # Readable on a hatch; outlines would make letters shapes in SVG and PDF.
            ground = {"boxstyle": "square,pad=0.1", "facecolor": color, "linewidth": 0}
            look: dict[str, Any] = {"ha": "center", "color": ink_on(color)}
            look |= {"bbox": ground} if KINDS[kind].hatch else {}
            sheet.write(middle_px, (upper + lower) / 2, text, SMALL_PX, **look)


def tips_of(sheet: Sheet, names: Sequence[str], zero_ns: int) -> Iterator[Tip]:
    """Yield the description of each span with a shape of its own."""
    grid, place = sheet.grid, sheet.axes.get_position()
    down_px = sheet.figure.bbox.height * (1 - place.y1)
    for band, upper, lower in sheet.bands():
        for layer in band.layers:
            starts = np.maximum(layer.start_ns, grid.start_ns)
            ends = np.minimum(layer.end_ns, grid.end_ns)
            for i in roomy(starts, ends, grid, _TIP_PX).tolist():
                yield Tip(
                    LEFT_PX + (int(starts[i]) - grid.start_ns) / grid.pixel_ns,
                    down_px + upper,
                    int(ends[i] - starts[i]) / grid.pixel_ns,
                    lower - upper,
                    visible(_tip(layer, i, names, zero_ns)),
                )


def _tip(layer: Layer, i: int, names: Sequence[str], zero_ns: int) -> str:
    start_ns, end_ns = int(layer.start_ns[i]), int(layer.end_ns[i])
    parts = [kind_word(layer.kind) if layer.name[i] == ABSENT else names[layer.name[i]]]
    parts.append(f"{time_text(end_ns - start_ns)} from {time_text(start_ns - zero_ns)}")
    if layer.kind in ("harmless", "blocking") and len(layer.cost_ns):
        idle_ns = int(layer.cost_ns[i])
        idle = f"a GPU was idle {time_text(idle_ns)} because of it"
        parts.append(idle if idle_ns else "no GPU was idle because of it")
    if len(layer.next) and layer.next[i] != ABSENT:
        parts[0] = f"idle: {parts[0]}"
        parts.append(f"before {names[layer.next[i]]}")
    return "  ·  ".join(shorten(part, _MAX_TIP_LETTERS) for part in parts)


# --- around the lanes ---


def draw_marks(sheet: Sheet, marks: Sequence[PlacedMark]) -> None:
    """Frame evidence, with the numbers of findings above."""
    places, frames = list(sheet.places()), []
    for mark in marks:
        row, top, bottom = places[mark.row]
        upper, lower = _band_of(row, mark)
        edges = top + upper * (bottom - top), top + lower * (bottom - top)
        span = clip(union(*np.array(mark.span)[:, None]), sheet.grid.start_ns, sheet.grid.end_ns)
        frames += rectangles(span, sheet.grid.start_ns, *edges)
        middle_px = min(max(mark.middle_px, MARK_PX / 2), sheet.grid.columns - MARK_PX / 2)
        _write_number(sheet, middle_px, edges[0], mark.number)
    shapes = PolyCollection(
        frames, facecolor="none", edgecolor=sheet.theme.text, linewidth=points(2), zorder=4.5
    )
    shapes.set_gid("marks")
    sheet.axes.add_collection(shapes, autolim=False)


def _band_of(row: Row, mark: PlacedMark) -> tuple[float, float]:
    start_ns, end_ns = mark.span
    for band in row.bands:
        for layer in band.layers:
            if ((layer.start_ns == start_ns) & (layer.end_ns == end_ns)).any():
                return band.upper, band.lower
    return 0, 1


def _write_number(sheet: Sheet, x_px: float, y_px: float, number: int) -> None:
    theme = sheet.theme
    disk = {"boxstyle": "circle,pad=0.25", "facecolor": theme.text, "edgecolor": theme.paper}
    look = {"ha": "center", "va": "center", "weight": "bold", "color": theme.paper, "zorder": 6}
    sheet.write(x_px, y_px, str(number), SMALL_PX - 1, bbox=disk, **look)


def header_lines(width_px: int, title: str) -> list[str]:
    """Wrap a headline."""
    room_px = width_px - 2 * MARGIN_PX
    return wrap(printable(shorten(title, _MAX_TITLE_LETTERS)), room_px, TITLE_PX, "bold", 2)


def draw_header(
    sheet: Sheet, title: Sequence[str], lines: Sequence[str], key: Mapping[int, str]
) -> None:
    """Draw the headline, other lines, and the meaning of numbers."""
    left = MARGIN_PX - LEFT_PX
    room_px = sheet.figure.get_size_inches()[0] * DPI - 2 * MARGIN_PX
    y_px = -CAPTION_UP_PX - LINE_PX * (len(title) - 1 + len(lines) + len(key))
    for text in title:
        sheet.write(left, y_px, text, TITLE_PX, weight="bold")
        y_px += LINE_PX
    for i, text in enumerate(lines, 1):
        color = sheet.theme.gray if i == len(lines) else sheet.theme.text
        sheet.write(left, y_px, fit(printable(text), room_px, TEXT_PX), color=color)
        y_px += LINE_PX
    for number, text in key.items():
        _write_number(sheet, left + MARK_PX / 2, y_px, number)
        cut = fit(printable(text), room_px - MARK_PX - _TEXT_GAP, TEXT_PX)
        sheet.write(left + MARK_PX + _TEXT_GAP, y_px, cut)
        y_px += LINE_PX


def draw_labels(sheet: Sheet, unit: str, below: Mapping[int, str], marked: Set[int]) -> None:
    """Write the names of lanes and devices, and shares."""
    left, right = MARGIN_PX - LEFT_PX, _LABEL_X - LEFT_PX
    size_px = TEXT_PX if sheet.is_spacious else SMALL_PX
    for row, top, bottom in sheet.places():
        sheet.write(right, (top + bottom) / 2, row.label, size_px, ha="right")
    for device, (top, bottom) in sheet.device_edges().items():
        middle, said = (top + bottom) / 2, below.get(device, "")
        theme = sheet.theme
        is_marked = device in marked
        color, said_color = (theme.accent,) * 2 if is_marked else (theme.text, theme.gray)
        name_y = middle - 8 if said else middle
        sheet.write(left, name_y, f"{unit} {device}", weight="bold", color=color)
        sheet.write(left, middle + 9, said, SMALL_PX, color=said_color)


def draw_steps(sheet: Sheet, steps: Sequence[Mapping[int, Span]]) -> None:
    """Draw a thin line at each edge of a step, and the first lane's numbers."""
    if not any(steps):
        return
    grid, segments = sheet.grid, list[Segment]()
    upper = -_STEPS_UP_PX - SMALL_PX
    for of_lanes, lanes in groupby(zip(steps, sheet.places(), strict=True), lambda x: x[0]):
        *_, (_, (_, _, lower)) = lanes
        bounds = {ns - grid.start_ns for span in _shown(of_lanes, grid).values() for ns in span}
        line_ns = sorted(ns for ns in bounds if 0 <= ns <= grid.length_ns)
        kept = spaced([ns / grid.pixel_ns for ns in line_ns], [_STEP_LINE_PX] * len(line_ns))
        segments += [((line_ns[i], upper), (line_ns[i], lower)) for i in kept]
        upper = lower
    look = {"colors": sheet.theme.line, "alpha": 0.7, "zorder": 4, "clip_on": False}
    sheet.draw_lines("steps", segments, 1, **look)
    for left_px, text in step_labels(_shown(steps[0], grid), grid):
        sheet.write(left_px + _TEXT_GAP / 2, -_STEPS_UP_PX, text, SMALL_PX, color=sheet.theme.gray)


def _shown(steps: Mapping[int, Span], grid: Grid) -> dict[int, Span]:
    return {
        number: span
        for number, span in steps.items()
        if span.start_ns < grid.end_ns and span.end_ns > grid.start_ns
    }


def step_labels(steps: Mapping[int, Span], grid: Grid) -> list[tuple[float, str]]:
    """Return the positions of step numbers, px: of wide steps, or of every n-th."""
    left = [max(0.0, (s.start_ns - grid.start_ns) / grid.pixel_ns) for s in steps.values()]
    right = [min(grid.columns, (s.end_ns - grid.start_ns) / grid.pixel_ns) for s in steps.values()]
    texts = [f"step {number}" for number in steps]
    needed = max((text_width(text, SMALL_PX) for text in texts), default=0.0) + _TEXT_GAP
    wide = [i for i in range(len(texts)) if right[i] - left[i] >= needed]
    spread = [i for i in spaced(left, [needed] * len(left)) if left[i] + needed <= grid.columns]
    return [(left[i], texts[i]) for i in wide or spread]


def draw_axis(sheet: Sheet, start_ns: int, longest: Grid | None = None) -> None:
    """Draw time from `start_ns` on, with the longest sheet's ticks."""
    axes, grid, gray = sheet.axes, longest or sheet.grid, sheet.theme.gray
    tick_ns, tick_labels = ticks(grid.length_ns, max(2, grid.columns // _TICK_PX), start_ns)
    tick_ns = tick_ns - start_ns
    shown = int((tick_ns <= sheet.grid.length_ns).sum())
    axes.set_xticks(tick_ns[:shown], tick_labels[:shown], fontsize=points(TEXT_PX), color=gray)
    axes.set_yticks([])
    axes.tick_params(axis="x", length=points(6), width=points(1), color=gray, pad=points(6))
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=sheet.theme.grid, linewidth=points(1))
    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=gray, linewidth=points(1))
    unit, _ = axis_unit(start_ns, grid.length_ns)
    below = sheet.height_px + 20
    sheet.write(_UNIT_X - LEFT_PX, below, f"time ({unit})", ha="right", color=gray)
