"""Every function of intervals against plain sets of nanoseconds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tracelab.base.intervals import (
    Intervals,
    clip,
    gaps,
    intersect,
    join,
    measure,
    measure_within,
    overlapping_pairs,
    subtract,
    union,
)

time = st.integers(-5, 30)
bounds = st.lists(st.tuples(time, time), max_size=8)


def covered(pairs):
    """The nanoseconds of intervals ``[start, end)``; one that ends before it starts has none."""
    return {ns for start, end in pairs for ns in range(start, end)}


def intervals(pairs):
    return union([start for start, _ in pairs], [end for _, end in pairs])


def nanoseconds(result: Intervals):
    """The set's nanoseconds, after a check that it is in normal form."""
    pairs = list(zip(result.starts.tolist(), result.ends.tolist(), strict=True))
    assert all(start < end for start, end in pairs)
    assert all(before[1] < after[0] for before, after in pairwise(pairs))
    assert result.starts.dtype == result.ends.dtype == np.int64
    assert len(result) == len(pairs)
    assert not result.starts.flags.writeable
    assert not result.ends.flags.writeable
    return covered(pairs)


@given(bounds)
def test_union(a):
    assert nanoseconds(intervals(a)) == covered(a)


@given(bounds, bounds)
def test_join(a, b):
    assert nanoseconds(join(intervals(a), intervals(b))) == covered(a) | covered(b)


@given(bounds, bounds)
def test_intersect(a, b):
    assert nanoseconds(intersect(intervals(a), intervals(b))) == covered(a) & covered(b)


@given(bounds, bounds)
def test_subtract(a, b):
    assert nanoseconds(subtract(intervals(a), intervals(b))) == covered(a) - covered(b)


@given(bounds, time, time)
def test_gaps(a, start, end):
    assert nanoseconds(gaps(intervals(a), start, end)) == covered([(start, end)]) - covered(a)


@given(bounds, time, time)
def test_clip(a, start, end):
    assert nanoseconds(clip(intervals(a), start, end)) == covered([(start, end)]) & covered(a)


@given(bounds)
def test_measure(a):
    assert measure(intervals(a)) == len(covered(a))


@given(bounds, bounds)
def test_measure_within(a, windows):
    windows = [(min(pair), max(pair)) for pair in windows]
    starts, ends = [start for start, _ in windows], [end for _, end in windows]
    expected = [len(covered(a) & covered([window])) for window in windows]
    assert measure_within(intervals(a), starts, ends).tolist() == expected


@given(bounds, bounds)
def test_overlapping_pairs(a, b):
    a, b = intervals(a), intervals(b)
    left, right = overlapping_pairs(a, b)
    expected = [
        (i, j)
        for i in range(len(a))
        for j in range(len(b))
        if max(a.starts[i], b.starts[j]) < min(a.ends[i], b.ends[j])
    ]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected


def test_touching_intervals_are_one():
    joined = union([10, 0, 20], [20, 10, 30])
    assert (joined.starts.tolist(), joined.ends.tolist()) == ([0], [30])


def test_times_beyond_what_a_float_can_hold_stay_exact():
    # 2**60 + 1 is no float64: a detour over floats would join these two.
    base = 2**60
    apart = union([base, base + 2], [base + 1, base + 3])
    assert len(apart) == 2
    assert measure(apart) == 2


@pytest.mark.parametrize("window", [(5, 5), (6, 4)])
def test_nothing_lies_in_a_window_of_no_length(window):
    assert len(clip(union([0], [10]), *window)) == 0
