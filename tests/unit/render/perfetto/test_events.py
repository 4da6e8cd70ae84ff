"""Rows in which nothing overlaps, numbers that nobody has, times that Perfetto reads exactly."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from tracelab.render.perfetto.events import (
    free_process,
    lanes,
    microseconds,
    perfetto_ns,
    slice_times,
)

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=20)


@given(spans)
def test_no_two_of_a_lane_overlap_and_none_is_missing(pairs):
    start_ns = np.array([start for start, _ in pairs], dtype=np.int64)
    end_ns = np.array([start + length for start, length in pairs], dtype=np.int64)
    found = list(lanes(start_ns, end_ns))
    assert sorted(index for lane in found for index in lane.tolist()) == list(range(len(pairs)))
    for lane in found:
        assert all(end_ns[a] <= start_ns[b] for a, b in pairwise(lane.tolist()))


@given(spans)
def test_there_are_as_few_lanes_as_can_be(pairs):
    start_ns = np.array([start for start, _ in pairs], dtype=np.int64)
    end_ns = np.array([start + 1 + length for start, length in pairs], dtype=np.int64)
    at_once = [int(((start_ns <= t) & (t < end_ns)).sum()) for t in range(42)]
    assert len(list(lanes(start_ns, end_ns))) == max(1, *at_once)


ids = st.integers(-(2**31), 2**34) | st.sampled_from(["Spans", None, 1.5])


@given(st.lists(st.tuples(ids, ids)), st.integers(0, 2000))
def test_a_free_process_and_its_threads_are_free_and_fit(taken, rows):
    process = free_process(taken, rows)
    numbers = {one % 2**32 for pair in taken for one in pair if isinstance(one, int)}
    ours = range(process, process + rows + 1)
    assert process > 0
    assert ours[-1] < 2**32
    assert numbers.isdisjoint(ours)


EXACT = st.integers(-(2**43) * 1000 + 1, 2**43 * 1000 - 1)
SINCE_1970 = st.integers(2**43 * 1000, 2**52 * 1000)


@given(EXACT)
@example(4_359_759_616_840_547)
@example(2**43 * 1000 - 1)
@example(-1)
def test_every_nanosecond_of_a_hundred_days_is_read_back(time_ns):
    assert perfetto_ns(microseconds(time_ns)) == time_ns


@given(EXACT, st.integers(0, 10**12))
def test_the_end_of_a_slice_is_exact_as_well(start_ns, length_ns):
    if start_ns + length_ns < 2**43 * 1000:
        start, duration = slice_times(start_ns, start_ns + length_ns)
        assert perfetto_ns(start) + perfetto_ns(duration) == start_ns + length_ns


@given(
    EXACT | SINCE_1970 | st.integers(2**43 * 1000 - 3000, 2**43 * 1000 + 3000),
    st.lists(st.integers(0, 3000), min_size=2),
)
def test_slices_that_touch_do_so_however_coarsely_their_times_are_read(start_ns, lengths_ns):
    bounds = [start_ns]
    for length_ns in lengths_ns:
        bounds.append(bounds[-1] + length_ns)
    read = [
        (perfetto_ns(start), perfetto_ns(start) + perfetto_ns(duration))
        for start, duration in (slice_times(*pair) for pair in pairwise(bounds))
    ]
    assert all(start <= end for start, end in read)
    assert all(end == start for (_, end), (start, _) in pairwise(read))


@given(SINCE_1970)
def test_times_since_1970_are_the_digits_of_the_file(time_ns):
    whole, rest = divmod(time_ns, 1000)
    assert microseconds(time_ns) == f"{whole}.{rest:03d}"
    assert abs(perfetto_ns(microseconds(time_ns)) - time_ns) <= 512


@pytest.mark.parametrize(
    ("text", "read_ns"),
    [
        ("5", 5000),
        ("1e3", 1_000_000),
        ("0.0005", 1),  # halves are rounded away from zero
        ("-0.0005", -1),
        ("1694039969476590.000", 1694039969476590_000),  # whole numbers are multiplied as integers
        ("1740461679470630.547", 1740461679470630_400),
    ],
)
def test_what_perfetto_makes_of_a_number(text, read_ns):
    assert perfetto_ns(text) == read_ns
