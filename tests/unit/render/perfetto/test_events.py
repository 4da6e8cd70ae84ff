"""Rows in which nothing overlaps, and numbers that nobody has."""

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st

from tracelab.render.perfetto.events import free_process, lanes

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
