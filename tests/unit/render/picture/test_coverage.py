from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tracelab.base.intervals import union
from tracelab.render.picture.coverage import (
    Grid,
    column_heights,
    column_shares,
    lane_polygons,
    roomy,
    seams,
    spaced,
    split_by_width,
    stack,
)

START = 1000


def i64(*values):
    return np.array(values, dtype=np.int64)


def spans(*pairs):
    return union([START + a for a, _ in pairs], [START + b for _, b in pairs])


@st.composite
def pictures(draw):
    """A grid and up to three sets inside its time."""
    length = draw(st.integers(1, 300))
    grid = Grid(START, START + length, draw(st.integers(1, 40)))
    point = st.integers(0, length)
    sets = draw(st.lists(st.lists(st.tuples(point, point), max_size=25), min_size=1, max_size=3))
    return grid, [spans(*pairs) for pairs in sets]


def nanoseconds(a):
    return {
        ns for s, e in zip(a.starts.tolist(), a.ends.tolist(), strict=True) for ns in range(s, e)
    }


def columns_of(grid):
    edges = grid.edges_ns.tolist()
    return [set(range(a, b)) for a, b in pairwise(edges)]


def shapes_of(grid, sets, least=0.1):
    """Every polygon as (left, right, top, bottom), ns since the first event and lane heights."""
    polygons = lane_polygons(sets, grid, top=0, bottom=1, least=least)
    return [
        [
            (*(p[:, 0].min() + START, p[:, 0].max() + START), p[:, 1].min(), p[:, 1].max())
            for p in of
        ]
        for of in polygons
    ]


@given(pictures())
def test_columns_tile_the_time(picture):
    grid, _ = picture
    edges = grid.edges_ns
    assert (edges[0], edges[-1]) == (grid.start_ns, grid.end_ns)
    assert len(edges) == grid.columns + 1
    assert np.ptp(np.diff(edges)) <= 1


def test_the_edges_of_a_very_long_time_do_not_overflow():
    grid = Grid(0, 2**62, 1330)
    assert grid.edges_ns[-1] == 2**62
    assert (np.diff(grid.edges_ns) > 0).all()


@given(pictures())
def test_the_share_of_a_column_is_exact(picture):
    grid, sets = picture
    shares = column_shares(sets, grid)
    for a, share in zip(sets, shares, strict=True):
        covered = nanoseconds(a)
        expected = [len(covered & c) / max(len(c), 1) for c in columns_of(grid)]
        assert share.tolist() == expected


@given(pictures())
def test_splitting_by_width_loses_nothing(picture):
    grid, sets = picture
    for a in sets:
        wide, thin = split_by_width(a, grid)
        assert nanoseconds(wide) | nanoseconds(thin) == nanoseconds(a)
        assert len(wide) + len(thin) == len(a)
        if grid.pixel_ns > 1:
            assert (thin.ends - thin.starts < 1.5 * grid.pixel_ns).all()
        else:
            assert len(thin) == 0


@given(pictures())
def test_nothing_is_drawn_in_an_empty_column_and_something_in_every_other(picture):
    grid, sets = picture
    edges = grid.edges_ns.tolist()
    for each, shapes in zip(sets, shapes_of(grid, sets), strict=True):
        covered = nanoseconds(each)
        for left, right, column in zip(edges[:-1], edges[1:], columns_of(grid), strict=True):
            drawn = any(a < right and b > left for a, b, top, bottom in shapes if bottom > top)
            assert drawn == bool(covered & column) or not column


def test_a_gap_of_two_pixels_leaves_an_empty_column_in_a_crowd():
    grid = Grid(START, START + 100_000, 100)
    crowd = spans(*((i, i + 40) for i in range(0, 100_000, 50) if not 50_000 <= i < 52_000))
    assert np.flatnonzero(column_shares([crowd], grid)[0] == 0).tolist() == [50, 51]
    (shapes,) = shapes_of(grid, [crowd])
    assert all(b <= START + 50_000 or a >= START + 52_000 for a, b, _, _ in shapes)


def test_a_lone_microsecond_in_a_second_is_seen():
    grid = Grid(START, START + 1_000_000_000, 1330)
    (shapes,) = shapes_of(grid, [spans((300_000_000, 300_001_000))], least=0.16)
    ((left, right, top, bottom),) = shapes
    assert right - left == pytest.approx(grid.pixel_ns, abs=1)
    assert left <= START + 300_000_000 < right
    assert bottom - top == pytest.approx(0.16)


def test_what_is_wide_keeps_its_exact_edges_and_the_whole_height():
    grid = Grid(START, START + 100_000, 100)
    (shapes,) = shapes_of(grid, [spans((10_111, 20_222), (20_222, 20_333), (90_001, 99_999))])
    assert shapes == [
        (START + 10_111, START + 20_333, 0, 1),
        (START + 90_001, START + 99_999, 0, 1),
    ]


def test_kinds_that_share_a_column_are_stacked_by_their_shares():
    grid = Grid(START, START + 1000, 10)
    low, high = stack(column_shares([spans((0, 30)), spans((30, 50))], grid), 0.1)
    assert (high - low)[:, 0] == pytest.approx([0.3, 0.2])
    assert low[1, 0] == high[0, 0]
    assert (high - low)[:, 1:].sum() == 0


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=20),
    st.sampled_from([0.1, 0.4, 1.0]),
)
def test_bars_are_never_above_the_lane_nor_invisible(columns, least):
    shares = np.array(columns).T
    low, high = stack(shares, least)
    height = high - low
    total = high[-1]
    assert (total <= 1 + 1e-9).all()
    assert (low >= 0).all()
    assert ((height > 0) == (shares > 0)).all()
    assert (total[(shares > 0).any(axis=0)] >= least - 1e-9).all()
    honest = (shares == 0) | (shares >= least / 3)
    exact = honest.all(axis=0) & (shares.sum(axis=0) <= 1) & (shares.sum(axis=0) >= least)
    assert np.allclose(height[:, exact], shares[:, exact])


def test_a_crowd_has_no_more_shapes_than_pixels():
    grid = Grid(START, START + 10_000_000, 500)
    rng = np.random.default_rng(0)
    starts = START + np.sort(rng.integers(0, 9_990_000, 100_000))
    crowd = union(starts, starts + rng.integers(1, 60, 100_000))
    polygons = lane_polygons([crowd, crowd], grid, top=0, bottom=1, least=0.1)
    assert sum(map(len, polygons)) <= 2 * 500
    assert sum(len(p) for of in polygons for p in of) <= 2 * 500 * 4


def test_a_seam_is_where_wide_events_meet_without_a_visible_gap():
    grid = Grid(START, START + 1000, 100)
    starts = START + i64(0, 100, 205, 400, 700, 703, 706)
    ends = START + i64(100, 200, 300, 500, 703, 706, 900)
    found = seams(union(starts, ends), starts, ends, grid, 5)
    # 100: they touch; 200/205: the gap is half a pixel; 706: only the last one is wide.
    assert (found - START).tolist() == [100, 200, 706]


def test_seams_and_names_stay_few_when_events_overlap():
    grid = Grid(START, START + 100_000, 100)
    starts = START + np.arange(50_000)
    ends = starts + 20_000
    assert len(seams(union(starts, ends), starts, ends, grid, 5)) <= 50
    named = roomy(starts, ends, grid, 10)
    assert (starts[named][1:] >= ends[named][:-1]).all()
    assert 1 <= len(named) <= 5


def test_names_go_to_events_that_are_wide_enough():
    grid = Grid(START, START + 1000, 100)
    starts, ends = START + i64(500, 0, 150, 800), START + i64(800, 100, 180, 1000)
    assert roomy(starts, ends, grid, 10).tolist() == [1, 0, 3]
    assert roomy(i64(), i64(), grid, 10).tolist() == []


def test_things_that_would_collide_are_left_out():
    assert spaced([0, 5, 10, 11, 30], [10, 10, 10, 10, 10]) == [0, 2, 4]
    assert spaced([], []) == []


@given(
    st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 9), st.integers(0, 40)), max_size=20),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_a_number_over_time_is_the_highest_of_each_column(spans_of_numbers, length, columns):
    """Beside a loop over every nanosecond."""
    grid = Grid(0, length, min(columns, length))
    start, count, value = np.array(spans_of_numbers, dtype=np.int64).reshape(-1, 3).T
    heights = column_heights(start, start + count, value, grid)
    highest = [
        max([v for s, n, v in spans_of_numbers if not of_column.isdisjoint(range(s, s + n))] or [0])
        for of_column in columns_of(grid)
    ]
    assert heights == pytest.approx([x / max(1, *highest, 1) for x in highest])
