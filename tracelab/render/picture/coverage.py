"""Coverage of pixel columns by stretches of time.

Intervals wider than a pixel keep their exact edges; others become the exact covered share of each
column, so the number of shapes is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Int64Array
from tracelab.base.intervals import Intervals, measure_within

FloatArray = NDArray[np.float64]

_MIN_EXACT_PX = 1.5


@dataclass(frozen=True)
class Grid:
    """The time ``[start_ns, end_ns)`` spread over pixel columns."""

    start_ns: int
    end_ns: int
    columns: int

    @property
    def length_ns(self) -> int:
        """The time of all columns."""
        return self.end_ns - self.start_ns

    @property
    def pixel_ns(self) -> float:
        """The time of one column."""
        return self.length_ns / self.columns

    @cached_property
    def edges_ns(self) -> Int64Array:
        """int64[columns + 1]: the columns' edges."""
        whole, rest = divmod(self.length_ns, self.columns)
        column = np.arange(self.columns + 1, dtype=np.int64)
        return self.start_ns + column * whole + column * rest // self.columns

    def column_of(self, times_ns: Int64Array) -> NDArray[np.intp]:
        """Return the columns of points in time."""
        return np.searchsorted(self.edges_ns, times_ns, side="right") - 1


def split_by_width(a: Intervals, grid: Grid) -> tuple[Intervals, Intervals]:
    """Return the intervals wide enough for exact edges, and the others."""
    # Below 1 ns a column nothing is thinner.
    wide = ((a.ends - a.starts) >= _MIN_EXACT_PX * grid.pixel_ns) | (grid.pixel_ns <= 1)
    return Intervals(a.starts[wide], a.ends[wide]), Intervals(a.starts[~wide], a.ends[~wide])


def column_shares(sets: Sequence[Intervals], grid: Grid) -> FloatArray:
    """Return the covered share of each column: float64[len(sets), columns]."""
    starts, ends = grid.edges_ns[:-1], grid.edges_ns[1:]
    shares = np.zeros((len(sets), grid.columns))
    for share, a in zip(shares, sets, strict=True):
        share[:] = measure_within(a, starts, ends) / np.maximum(ends - starts, 1)
    return shares


def column_heights(
    starts: Int64Array, ends: Int64Array, value: Int64Array, grid: Grid
) -> FloatArray:
    """Return each column's highest number as a share of the highest."""
    shown = (ends > grid.start_ns) & (starts < grid.end_ns) & (ends > starts)
    first = grid.column_of(np.maximum(starts[shown], grid.start_ns))
    count = grid.column_of(np.minimum(ends[shown], grid.end_ns) - 1) - first + 1
    column = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
    heights = np.zeros(grid.columns)
    np.maximum.at(heights, column, np.repeat(value[shown], count))
    heights /= max(1.0, heights.max())
    return heights


def stack(shares: FloatArray, least: float) -> tuple[FloatArray, FloatArray]:
    """Stack shares as visible bars, together at least `least`: low and high edges, 0 to 1."""
    height = np.where(shares > 0, np.maximum(shares, least / len(shares)), 0.0)
    total = height.sum(axis=0)
    height *= np.clip(total, least, 1.0) / np.where(total > 0, total, 1.0)
    high = np.cumsum(height, axis=0)
    return high - height, high


def outlines(edges: FloatArray, low: FloatArray, high: FloatArray) -> list[FloatArray]:
    """Return a polygon (float64[k, 2]) around each run of columns, without seams in SVG and PDF."""
    filled = np.concatenate(([False], high != low, [False]))
    changes = np.flatnonzero(filled[1:] != filled[:-1])
    polygons = []
    for first, last in zip(changes[::2], changes[1::2], strict=True):
        x = np.repeat(edges[first : last + 1], 2)[1:-1]
        upper_edge = np.column_stack((x, np.repeat(high[first:last], 2)))
        lower_edge = np.column_stack((x, np.repeat(low[first:last], 2)))[::-1]
        polygons.append(np.concatenate((upper_edge, lower_edge)))
    return polygons


def rectangles(a: Intervals, origin_ns: int, top: float, bottom: float) -> list[FloatArray]:
    """Return a polygon for each interval: float64[4, 2]."""
    left, right = (a.starts - origin_ns).astype(float), (a.ends - origin_ns).astype(float)
    x = np.column_stack((left, right, right, left))
    y = np.broadcast_to((top, top, bottom, bottom), x.shape)
    return list(np.stack((x, y), axis=-1))


def lane_polygons(
    sets: Sequence[Intervals], grid: Grid, *, top: float, bottom: float, least: float
) -> list[list[FloatArray]]:
    """Return the polygons of each set in a lane; x is ns since the grid's start.

    Sets of a column are stacked, at least `least` high, a share.
    """
    split = [split_by_width(a, grid) for a in sets]
    low, high = stack(column_shares([thin for _, thin in split], grid), least)
    edges = (grid.edges_ns - grid.start_ns).astype(float)
    y_low, y_high = bottom - low * (bottom - top), bottom - high * (bottom - top)
    return [
        rectangles(wide, grid.start_ns, top, bottom) + outlines(edges, y_low[i], y_high[i])
        for i, (wide, _) in enumerate(split)
    ]


def seams(
    covered: Intervals, starts: Int64Array, ends: Int64Array, grid: Grid, least_px: float
) -> Int64Array:
    """Return the times, ns, at which wide events meet without a gap, at least two pixels apart."""
    wide = ends - starts >= least_px * grid.pixel_ns
    edges_ns = np.concatenate((starts[wide], ends[wide]))
    is_gap = covered.starts[1:] - covered.ends[:-1] >= grid.pixel_ns
    beside_gap_ns = np.concatenate(
        (
            covered.starts[:1],
            covered.starts[1:][is_gap],
            covered.ends[:-1][is_gap],
            covered.ends[-1:],
        )
    )
    seam_ns = edges_ns[~np.isin(edges_ns, beside_gap_ns)]
    seam_ns = np.unique(seam_ns[(seam_ns > grid.start_ns) & (seam_ns < grid.end_ns)])
    _, first = np.unique(grid.column_of(seam_ns), return_index=True)
    seam_ns = seam_ns[first]
    return seam_ns[spaced((seam_ns / grid.pixel_ns).tolist(), [2.0] * len(seam_ns))]


def roomy(starts: Int64Array, ends: Int64Array, grid: Grid, least_px: float) -> NDArray[np.intp]:
    """Return the indices of disjoint events with room for a name, by start."""
    wide = np.flatnonzero(ends - starts >= least_px * grid.pixel_ns)
    wide = wide[np.argsort(starts[wide], kind="stable")]
    # In each column in which events begin, one is named.
    _, first = np.unique(grid.column_of(starts[wide]), return_index=True)
    kept, free_from_ns = [], grid.start_ns
    for index in wide[first]:
        if starts[index] >= free_from_ns:
            kept.append(index)
            free_from_ns = int(ends[index])
    return np.array(kept, dtype=np.intp)


def spaced(positions_px: Sequence[float], widths_px: Sequence[float]) -> list[int]:
    """Return the indices of things that fit side by side, from the left."""
    kept, free_from_px = [], -np.inf
    for index, (left_px, width_px) in enumerate(zip(positions_px, widths_px, strict=True)):
        if left_px >= free_from_px:
            kept.append(index)
            free_from_px = left_px + width_px
    return kept
