"""Times, shares and words in the cells of tables."""

import pytest
from hypothesis import given, strategies as st

from tracelab.base.safe_text import counted
from tracelab.render.words import listed, percent_text, time_text


class TestTimeText:
    @pytest.mark.parametrize(
        ("time_ns", "text"),
        [
            (0, "0"),
            (1, "1 ns"),
            (812, "812 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (1_640, "1.64 µs"),
            (99_994, "99.99 µs"),
            (99_996, "100.0 µs"),
            (999_949, "999.9 µs"),
            (999_951, "1.00 ms"),
            (999_999, "1.00 ms"),
            (16_680_000, "16.68 ms"),
            (123_400_000, "123.4 ms"),
            (999_999_999, "1.00 s"),
            (1_230_000_000, "1.23 s"),
            (123_400_000_000, "123.4 s"),
            (999_990_000_000, "1,000.0 s"),
            (86_400_000_000_000, "86,400.0 s"),
        ],
    )
    def test_unit_and_digits(self, time_ns, text):
        assert time_text(time_ns) == text

    @given(st.integers(1, 10**12 - 10**8))
    def test_is_within_half_a_last_digit(self, time_ns):
        value, unit = time_text(time_ns).split(" ")
        unit_ns = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}[unit]
        last_digit_ns = unit_ns / 10 ** len(value.partition(".")[2])
        assert abs(float(value) * unit_ns - time_ns) <= last_digit_ns * 0.501
        assert len(value) <= 5


class TestPercentText:
    @pytest.mark.parametrize(
        ("part", "whole", "text"),
        [
            (0, 5, "0 %"),
            (5, 5, "100 %"),
            (988, 1000, "98.8 %"),
            (1, 2, "50.0 %"),
            (1, 10**9, "<0.1 %"),
            (99, 100_000, "<0.1 %"),
            (100, 100_000, "0.1 %"),
            (99_900, 100_000, "99.9 %"),
            (99_901, 100_000, ">99.9 %"),
            (10**9 - 1, 10**9, ">99.9 %"),
            (3, 2, "150.0 %"),
            (0, 0, "-"),
            (5, 0, "-"),
        ],
    )
    def test_only_the_whole_is_100(self, part, whole, text):
        assert percent_text(part, whole) == text


class TestWords:
    @pytest.mark.parametrize(
        ("count", "text"), [(0, "0 steps"), (1, "1 step"), (1234, "1,234 steps")]
    )
    def test_counted(self, count, text):
        assert counted(count, "step", "steps") == text

    @pytest.mark.parametrize(
        ("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
    )
    def test_listed(self, words, text):
        assert listed(words, "or") == text
