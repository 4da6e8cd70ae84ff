"""Exact times, however they are written."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from tests.build.files import (
    US,
    kernel,
    operator,
    trace as trace_of,
)
from tests.build.read_scene import read_bytes
from tests.examples import examples
from tracelab.model.trace import ABSENT
from tracelab.read.json.numbers import natural_number


def as_three_decimals(ns: int) -> str:
    return f"{Decimal(ns).scaleb(-3):.3f}"


def as_trimmed(ns: int) -> str:
    whole = as_three_decimals(ns).rstrip("0")
    return whole + "0" if whole.endswith(".") else whole


def as_integer_if_whole(ns: int) -> str:
    return str(ns // 1000) if ns % 1000 == 0 else as_three_decimals(ns)


def as_string(ns: int) -> str:
    return f'"{as_three_decimals(ns)}"'


def as_exponent(ns: int) -> str:
    return f"{Decimal(ns):e}".replace("e", "E") if ns == 0 else f"{Decimal(ns).scaleb(-3):E}"


WRITINGS = (as_three_decimals, as_trimmed, as_integer_if_whole, as_string, as_exponent)


EPOCH_NS = 1_740_461_679_470_630_547  # a profile of 2025 in the clock of the world


BOOT_NS = 4_359_759_616_840_547  # one in the clock of the machine


EDGE_NS = 2**43 * 1000


@examples(250)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**10)
            | st.integers(BOOT_NS, BOOT_NS + 10**9)
            | st.integers(EDGE_NS - 3000, EDGE_NS + 3000)
            | st.integers(EPOCH_NS, EPOCH_NS + 10**9),
            st.integers(0, 10**6) | st.integers(0, 10**15),
            st.sampled_from(WRITINGS),
            st.sampled_from(WRITINGS),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_times_are_exact_however_they_are_written(scratch, times):
    """GIVEN nanoseconds written as microseconds in any way
    THEN exactly these nanoseconds are read."""
    events = ",".join(
        f'{{"ph":"X","name":"a","ts":{write_start(start)},"dur":{write_dur(duration)}}}'
        for start, duration, write_start, write_dur in times
    )
    trace = read_bytes(scratch, f"[{events}]".encode())
    assert (trace.start_ns + trace.origin_ns).tolist() == [start for start, *_ in times]
    assert trace.duration_ns.tolist() == [duration for _, duration, *_ in times]
    assert trace.origin_ns == min(start for start, *_ in times)
    assert not trace.losses


def test_touching_activities_touch(tmp_path):
    # 1365627949885.185 + 3.072 = 1365627949888.257
    trace = trace_of(
        tmp_path,
        kernel(1_365_627_949_885_185, 1_365_627_949_888_257, "a"),
        kernel(1_365_627_949_888_257, 1_365_627_949_889_257, "b"),
    )
    assert trace.end_ns[0] == trace.start_ns[1] == 3072


def test_more_than_three_decimals_round_to_the_nearest_nanosecond(tmp_path):
    content = (
        b'[{"ph":"X","name":"a","ts":1.0004,"dur":0.0006},{"ph":"X","name":"a","ts":%s,"dur":1}]'
    )
    for first in (b"2", b"1740461679470630.5474"):  # the second makes all be read by their digits
        trace = read_bytes(tmp_path, content % first)
        assert trace.start_ns[0] + trace.origin_ns == 1000
        assert trace.duration_ns.tolist() == [1, 1000]
    assert trace.start_ns[1] + trace.origin_ns == 1740461679470630547


def test_pairs_far_beyond_a_floats_precision_are_exact(tmp_path):
    content = (
        b'[{"ph":"B","name":"a","pid":1,"tid":1,"ts":1740461679470630.547},'
        b'{"ph":"E","name":"a","pid":1,"tid":1,"ts":1740461679470630.548}]'
    )
    trace = read_bytes(tmp_path, content)
    assert trace.origin_ns == 1740461679470630547
    assert trace.duration_ns.tolist() == [1]


def test_times_at_the_ends_of_their_range_do_not_wrap(tmp_path):
    last = 2**52
    trace = trace_of(
        tmp_path,
        operator("a", (-last) * US, (-last + 2**43 - 1) * US),
        operator("b", last * US, (last + 2**43 - 1) * US),
    )
    assert not trace.losses
    assert trace.origin_ns == -last * 1000
    assert trace.end_ns.tolist() == [(2**43 - 1) * 1000, (2 * last + 2**43 - 1) * 1000]


def test_times_and_durations_beyond_their_range_are_absurd(tmp_path):
    last = 2**52
    trace = trace_of(
        tmp_path,
        operator("good", 0, 3 * US),
        operator("too long", 0, 2**43 * US),
        operator("too early", (-last - 1) * US, -last * US),
        operator("too late", (last + 1) * US, (last + 2) * US),
    )
    assert trace.duration_ns.tolist() == [3 * US]
    assert trace.losses == {"absurd_times": 3}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("stream 7", 7),
        ("stream -7", ABSENT),
        ("7 of 9 streams", ABSENT),
        ("1234567890123456789", 1234567890123456789),
        ("12345678901234567890", ABSENT),  # its last 19 digits are another number
        ("00000000000000000007", ABSENT),  # nobody writes 20 digits
    ],
)
def test_a_number_in_a_text_is_what_it_ends_in(text, number):
    assert natural_number(text) == number
