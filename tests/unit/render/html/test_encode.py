"""The bytes of a page's timeline."""

from __future__ import annotations

import gzip
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.reference.page_lanes import read_lanes
from tracelab.model.trace import ABSENT
from tracelab.render.html.encode import BINS, bin_grid, compress, encode, rows_of
from tracelab.render.scene import Lane

NO_ROWS = rows_of([])

_item = st.tuples(
    st.integers(-(2**40), 2**40),  # start
    st.one_of(st.integers(0, 100), st.integers(2**32 - 3, 2**33)),  # length
    st.integers(0, 1),  # kind
    st.integers(-1, 2**16 - 2),  # name
    st.integers(-1, 2**16 - 2),  # line
    st.one_of(st.integers(0, 100), st.integers(2**32 - 3, 2**33)),  # cost
    st.just(ABSENT),  # row
)


def lane_of(items, kinds=("launch_call", "blocking")):
    start, length, kind, name, line, cost, row = np.array(items, dtype=np.int64).reshape(-1, 7).T
    return Lane(
        id="host:0",
        label="host",
        device=None,
        kinds=kinds,
        start_ns=start,
        end_ns=start + length,
        kind=kind.astype(np.uint8),
        more={"name": name, "line": line, "cost": cost, "row": row},
    )


def read_back(*encoded, start=0):
    meta = {"start": start, "groups": [{"lanes": [one.meta for one in encoded]}]}
    [lanes] = read_lanes(SimpleNamespace(meta=meta, columns=compress(encoded)))
    return lanes


@given(st.lists(_item, max_size=20), st.integers(-(2**40), 2**40))
def test_any_lane_is_read_back_as_it_was(items, start):
    lane = lane_of(sorted(items))
    [again] = read_back(encode(lane, start, NO_ROWS), start=start)
    assert again.columns["start"] == lane.start_ns.tolist()
    assert again.columns["end"] == lane.end_ns.tolist()
    assert again.columns["kind"] == [lane.kinds[kind] for kind in lane.kind]
    for name, column in lane.more.items():
        assert again.columns[name] == [None if x == ABSENT else x for x in column.tolist()]


_times = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2**32)), max_size=12)


@given(st.lists(_times, max_size=3), _times, st.data())
def test_times_told_by_rows_are_read_back_as_they_were(streams, items, data):
    """Whatever rows an item names: they only let its times be expected."""
    lanes = [
        stream_of(number, sorted(times, key=lambda time: time[0]))
        for number, times in enumerate(streams)
    ]
    rows = rows_of(lanes)
    row = [data.draw(st.integers(-1, len(rows[0]) - 1)) for _ in items]
    start, length = np.array(sorted(items), dtype=np.int64).reshape(-1, 2).T
    kind = np.zeros(len(items), dtype=np.uint8)
    more = {"row": np.array(row, dtype=np.int64)}
    idle = Lane("idle:0", "", ("launch",), start, start + length, kind, more, 0)
    again, *_ = read_back(*(encode(lane, 0, rows) for lane in (idle, *lanes)))
    assert again.columns["start"] == idle.start_ns.tolist()
    assert again.columns["end"] == idle.end_ns.tolist()
    assert again.columns["row"] == [None if x == ABSENT else x for x in row]


def stream_of(number, times):
    start, length = np.array(times, dtype=np.int64).reshape(-1, 2).T
    nothing = np.full(len(times), ABSENT)
    return Lane(
        f"stream:{number}",
        "",
        ("compute",),
        start,
        start + length,
        np.zeros(len(times), dtype=np.uint8),
        dict.fromkeys(("name", "op", "line", "call", "why", "source"), nothing),
        0,
    )


def test_what_follows_the_activities_takes_no_bytes():
    # A stream is busy from 10 to 20, 35 to 50 and 60 to 61; the GPU is idle in between.
    stream = stream_of(7, [(10, 10), (35, 15), (60, 1)])
    start, end = np.array([0, 20, 50]), np.array([10, 35, 60])
    kind, more = np.zeros(3, dtype=np.uint8), {"row": np.arange(3)}
    idle = Lane("idle:0", "", ("launch",), start, end, kind, more, 0)
    columns = encode(idle, 0, rows_of([stream])).columns
    assert columns[: 2 * 4 * 3] == bytes(2 * 4 * 3)  # gap and dur, four bytes each


def test_bins_have_all_that_a_lane_has_of_each_kind():
    # From 0 to 100 in ten bins; of the lane only what begins before 30 is kept.
    items = [(5, 10, 0), (12, 6, 0), (25, 10, 1), (95, 5, 0)]
    whole = lane_of([(*item, 0, 0, 0, ABSENT) for item in items])
    kept = whole.select(whole.start_ns < 30)
    [again] = read_back(encode(kept, 0, NO_ROWS, whole, bin_grid(0, 100, 10)))
    assert again.columns["start"] == [5, 12, 25]
    assert again.bins == {
        "launch_call": [5, 8, 0, 0, 0, 0, 0, 0, 0, 5],
        "blocking": [0, 0, 5, 5, 0, 0, 0, 0, 0, 0],
    }


def test_of_a_long_time_there_are_more_bins_so_that_each_fits_into_32_bits():
    assert bin_grid(0, 10**9).columns == BINS
    day_ns = 24 * 3600 * 10**9
    grid = bin_grid(0, day_ns)
    [length_ns] = set(np.diff(grid.edges_ns).tolist())
    assert length_ns < 2**32
    assert grid.start_ns == 0 < day_ns <= grid.end_ns < day_ns + grid.columns


def test_the_same_lanes_are_the_same_bytes():
    lane = encode(lane_of([(5, 10, 0, 1, 2, 3, ABSENT)]), 0, NO_ROWS)
    assert compress([lane]) == compress([lane])
    assert gzip.decompress(compress([lane])) == lane.columns


def test_columns_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        lane_of([(5, 10, 0, 1, 2, 3, ABSENT)]).more["name"][0] = 2


def test_numbers_over_time_have_eight_bytes():
    value = np.array([0, 2**40, 2**62])
    start = np.array([0, 5, 9])
    kind = np.zeros(3, dtype=np.uint8)
    lane = Lane("counter:0/a", "", ("counter",), start, start + 4, kind, {"value": value}, 0)
    [again] = read_back(encode(replace(lane, unit="bytes"), 0, NO_ROWS))
    assert again.columns["value"] == value.tolist()
    assert again.meta["unit"] == "bytes"
