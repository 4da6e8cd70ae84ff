"""Clocks that jumped: what lies on both sides is put together again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build import files
from tests.build.files import annotation, kernel, launch, operator, write
from tests.build.rows import US
from tests.examples import examples
from tracelab import analyze, read_trace
from tracelab.base.errors import UnreadableInputError
from tracelab.read.json.mended_times import Calls, find_endless, has_long_pause, remove_jumps

S = 1_000_000_000
WRAP = 2**32 * US
HOUR = 3_600 * S
TRACES = Path(__file__).parents[4] / "traces"


def calls_of(numbers, thread=0):
    """Calls with these numbers, one an event."""
    count = len(numbers)
    return Calls(np.arange(count), np.full(count, thread, np.int32), np.array(numbers))


def in_one_time(starts, numbers):
    """Starts of calls that take 1 us, and the number of jumps."""
    start = np.array(starts, dtype=np.int64)
    fixed, jumps = remove_jumps(start, start + US, np.ones(len(start), bool), calls_of(numbers))
    return fixed.tolist(), jumps


class TestWithoutJumps:
    def test_a_wrapped_counter_is_put_right(self):
        # The third and fourth call came 1 and 2 ms after the second; then the counter wrapped.
        before, after = [WRAP, WRAP + 5 * US], [1_005 * US, 2_005 * US]
        assert in_one_time(before + after, [1, 2, 3, 4]) == (
            [WRAP, WRAP + 5 * US, WRAP + 1_005 * US, WRAP + 2_005 * US],
            1,
        )

    def test_a_counter_that_jumps_ahead_by_its_length_is_put_right(self):
        starts = [0, 5 * US, WRAP + 1_005 * US, WRAP + 2_005 * US]
        assert in_one_time(starts, [1, 2, 3, 4]) == ([0, 5 * US, 1_005 * US, 2_005 * US], 1)

    def test_after_a_clock_was_set_back_the_rest_follows_at_once(self):
        # By 10 s, between the call at 20 s and the next, which says 11 s: how long it really took
        # until then nobody knows.
        starts = [20 * S, 20 * S + 7 * US, 11 * S, 11 * S + 3 * US]
        assert in_one_time(starts, [1, 2, 3, 4]) == (
            [20 * S, 20 * S + 7 * US, 20 * S + 7 * US, 20 * S + 10 * US],
            1,
        )

    def test_a_pause_of_more_than_an_hour_is_cut(self):
        starts = [0, 5 * US, 3 * HOUR, 3 * HOUR + 5 * US]
        assert in_one_time(starts, [1, 2, 3, 4]) == ([0, 5 * US, 5 * US, 10 * US], 1)

    @pytest.mark.parametrize("pause", [S, 60 * S, HOUR - S])
    def test_a_shorter_pause_is_one(self, pause):
        starts = [0, pause, 2 * pause]
        assert in_one_time(starts, [1, 2, 3]) == (starts, 0)

    @pytest.mark.parametrize(("pause", "jumps"), [(HOUR - 1, 0), (HOUR, 1)])
    def test_an_hour_is_the_first_pause_that_is_cut(self, pause, jumps):
        assert in_one_time([0, US + pause], [1, 2])[1] == jumps

    @pytest.mark.parametrize(("pause", "jumps"), [(S // 2 - 1, 0), (S // 2, 1)])
    def test_half_a_second_is_the_first_pause_behind_which_the_order_is_asked(self, pause, jumps):
        assert in_one_time([0, US + pause], [2, 1])[1] == jumps

    @pytest.mark.parametrize(("pause", "start"), [(60 * S - 1, 60 * S - 1 + US), (60 * S, 0)])
    def test_a_counter_wrapped_within_a_minute_or_not_at_all(self, pause, start):
        # The first call ends 1 us after the counter's length; the pause goes on behind its wrap.
        assert in_one_time([WRAP, US + pause], [1, 2]) == ([WRAP, WRAP + start], 1)

    @pytest.mark.parametrize(("seen", "start"), [(S, 0), (S + 1, S + 1)])
    def test_a_wrap_lies_less_than_2_s_before_the_end_of_what_the_gpu_still_did(self, seen, start):
        # A call, and a kernel of 3 s; the counter wraps, and 1 s later comes the next call.
        begin = np.array([WRAP, WRAP, seen])
        end = np.array([WRAP + US, WRAP + 3 * S, seen + US])
        calls = Calls(np.array([0, 2]), np.zeros(2, np.int32), np.array([1, 2]))

        fixed, jumps = remove_jumps(begin, end, np.ones(3, bool), calls)

        assert (fixed.tolist(), jumps) == ([WRAP, WRAP, WRAP + start], 1)

    def test_pauses_on_both_sides_of_a_jump_stay(self):
        # Calls 1 and 2 are 2 s apart, calls 3 and 4 are 3 s apart; between 2 and 3 the clock was
        # set back by some 50 s.
        starts = [100 * S, 102 * S, 50 * S, 53 * S]
        assert in_one_time(starts, [1, 2, 3, 4]) == ([100 * S, 102 * S, 102 * S, 105 * S], 1)

    def test_correlations_that_wrap_are_no_jump(self):
        starts = [0, 5 * S, 10 * S]
        assert in_one_time(starts, [2**32 - 1, 0, 1]) == (starts, 0)

    @pytest.mark.parametrize(("numbers", "jumps"), [([2**31, 1], 1), ([2**31, 0], 0)])
    def test_correlations_fall_by_less_than_half_their_range_or_wrap(self, numbers, jumps):
        assert in_one_time([0, 5 * S], numbers)[1] == jumps

    def test_calls_of_other_threads_say_nothing(self):
        # Two processes in one file whose numbers have nothing to do with each other.
        start = np.array([0, 5 * S])
        calls = Calls(np.arange(2), np.array([0, 1], np.int32), np.array([900, 100]))
        fixed, jumps = remove_jumps(start, start + US, np.ones(2, bool), calls)
        assert (fixed.tolist(), jumps) == ([0, 5 * S], 0)

    def test_one_thread_in_order_outweighs_another_that_is_not(self):
        start = np.array([0, 1, 5 * S, 5 * S + 1])
        calls = Calls(np.arange(4), np.array([0, 1, 0, 1], np.int32), np.array([1, 9, 2, 3]))
        fixed, jumps = remove_jumps(start, start + US, np.ones(4, bool), calls)
        assert (fixed.tolist(), jumps) == (start.tolist(), 0)

    def test_an_hour_in_which_something_ran_is_no_pause(self):
        # A call of 61 minutes; the next one begins a second after its end.
        start = np.array([0, 61 * 60 * S + S, 61 * 60 * S + 2 * S])
        end = np.array([61 * 60 * S, 61 * 60 * S + S + US, 61 * 60 * S + 2 * S + US])
        fixed, jumps = remove_jumps(start, end, np.ones(3, bool), calls_of([1, 2, 3]))
        assert (fixed.tolist(), jumps) == (start.tolist(), 0)

    def test_no_wrap_brings_events_before_what_preceded_them(self):
        # 30 s short of the counter's length: that is no wrap, whatever else it is.
        starts = [0, 5 * US, WRAP - 30 * S, WRAP - 30 * S + 7 * US]
        assert in_one_time(starts, [1, 2, 3, 4]) == ([0, 5 * US, 5 * US, 12 * US], 1)

    def test_what_is_no_work_may_be_far_away(self):
        start = np.array([0, 5 * HOUR, 5 * HOUR + 1])
        is_work = np.array([False, True, True])
        none = calls_of([])
        fixed, jumps = remove_jumps(start, start + US, is_work, none)
        assert (fixed.tolist(), jumps) == (start.tolist(), 0)

    @examples(200)
    @given(
        st.lists(st.integers(1, 400_000_000), min_size=2, max_size=30),
        st.integers(0, 28),
        st.sampled_from([WRAP, -WRAP]),
        st.randoms(use_true_random=False),
    )
    def test_wherever_a_counter_wraps_the_times_are_as_they_were(self, gaps, place, wrap, random):
        """GIVEN calls less than half a second apart, in any order in the file
        WHEN the counter wraps somewhere
        THEN their times are those before, but for where all of them begin."""
        true = np.cumsum(gaps)
        first_after = 1 + place % (len(true) - 1)
        seen = true + np.where(np.arange(len(true)) >= first_after, wrap, 0)
        order = np.array(random.sample(range(len(true)), len(true)))
        fixed, jumps = remove_jumps(
            seen[order], seen[order] + 1, np.ones(len(true), bool), calls_of(order)
        )
        assert jumps == 1
        assert fixed.tolist() == true[order].tolist()


class TestHasLongPause:
    @examples(200)
    @given(
        st.lists(st.tuples(st.integers(0, 8 * S), st.integers(0, 2 * S)), min_size=1, max_size=12)
    )
    def test_no_means_that_there_is_none(self, events):
        start = np.array([start for start, _ in events])
        length = np.array([length for _, length in events])
        order = np.argsort(start)
        reached = np.maximum.accumulate((start + length)[order])
        pauses = start[order][1:] - reached[:-1]
        if not has_long_pause(start, length):
            assert pauses.max(initial=0) < S // 2

    def test_a_usual_trace_has_none(self):
        start = np.arange(0, 100 * S, S // 10)
        assert not has_long_pause(start, np.full(len(start), US))

    @pytest.mark.parametrize(("quarters", "asked"), [(2**20 - 1, False), (2**20, True)])
    def test_a_span_of_more_than_three_days_is_looked_at_more_closely(self, quarters, asked):
        # Something runs all the time, 50 minutes each; the last begins so many quarter seconds in.
        last = quarters * S // 4
        start = np.append(np.arange(0, last, 3_000 * S), last)
        assert has_long_pause(start, np.full(len(start), 3_000 * S)) == asked

    def test_a_span_of_142_years_is_looked_at_more_closely(self):
        assert has_long_pause(np.array([0, 2**62]), np.array([1, 1]))


def shifted(content, by_us, is_after):
    """The same trace with the times of some complete events changed."""
    data = json.loads(content)
    for event in data["traceEvents"]:
        if event.get("ph") == "X" and is_after(event):
            event["ts"] += by_us
    return json.dumps(data).encode()


class TestTraces:
    @pytest.fixture(scope="class")
    @staticmethod
    def content():
        import gzip

        return gzip.decompress((TRACES / "events_item.pt.trace.json.gz").read_bytes())

    @pytest.fixture(scope="class")
    @classmethod
    def sound(cls, content, tmp_path_factory):
        path = tmp_path_factory.mktemp("sound") / "a.json"
        path.write_bytes(content)
        return cls.figures(analyze(path))

    @staticmethod
    def figures(report):
        return report.tables["windows"], report.tables["syncs"], report.tables["critical_path"]

    @pytest.mark.parametrize("by_us", [-(2**32), 2**32])
    @pytest.mark.parametrize("whose", ["all", "gpu"])
    def test_a_real_trace_is_as_it_was_when_its_counter_wraps(
        self, tmp_path, content, sound, by_us, whose
    ):
        """GIVEN a real trace in which everything after its middle, or the GPU's time alone, is off
        THEN every figure is that of the sound trace, and the jump is told."""
        starts = sorted(
            event["ts"] for event in json.loads(content)["traceEvents"] if event.get("ph") == "X"
        )
        middle = starts[len(starts) // 2]
        is_after = {
            "all": lambda event: event["ts"] > middle,
            "gpu": lambda event: event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"},
        }[whose]
        jumped = tmp_path / "b.json"
        jumped.write_bytes(shifted(content, by_us, is_after))
        report = analyze(jumped)

        windows, *others = self.figures(report)
        expected, *expected_others = sound

        first = expected[0].start_ns - windows[0].start_ns  # where the file begins
        assert [x.length_ns for x in windows] == [x.length_ns for x in expected]
        assert [x.start_ns + first for x in windows] == [x.start_ns for x in expected]
        assert [x.devices for x in windows] == [x.devices for x in expected]
        assert others == expected_others
        assert report.traces[0].losses["clock_jumps"] == 1
        assert "TL908" in [finding.rule for finding in report.findings]

    def test_a_profilers_own_span_covers_no_jump(self, tmp_path):
        span = files.complete_event("PyTorch Profiler (0)", "Trace", 0, 1_900 * S, pid="Spans")
        events = [launch(0, US, 1), kernel(2 * US, 4 * US, correlation=1)]
        later = [launch(-9 * S, -9 * S + US, 2), kernel(-8 * S, -8 * S + US, correlation=2)]
        trace = read_trace(write(tmp_path / "a.json", [span, *events, *later]))
        assert trace.losses == {"clock_jumps": 1}
        assert trace.start_ns.tolist() == [0, 0, 2 * US, 2 * US, S + 2 * US]

    def test_a_call_without_a_number_says_nothing_about_order(self, tmp_path):
        first = [launch(i * US, i * US + 500, i + 1) for i in range(3)]
        query = files.call("cudaEventQuery", S, S + US, correlation=0)
        last = launch(2 * S, 2 * S + US, 9, tid=7)
        trace = read_trace(write(tmp_path / "a.json", [*first, query, last]))
        assert not trace.losses
        assert trace.start_ns.tolist() == [0, US, 2 * US, S, 2 * S]

    def test_an_annotation_far_away_changes_nothing(self, tmp_path):
        events = [annotation("far", -9 * HOUR, -9 * HOUR + US), launch(0, US, 1)]
        trace = read_trace(write(tmp_path / "a.json", [*events, kernel(2 * US, 3 * US)]))
        assert not trace.losses
        assert trace.start_ns.tolist() == [0, 9 * HOUR, 9 * HOUR + 2 * US]


class TestDurations:
    def test_no_sum_of_them_overflows(self, tmp_path):
        """GIVEN 4,000 calls of 2^42 us, whose sum is beyond int64
        THEN they are left out and told, and the rest is as it is without them."""
        long = 2**42 * US
        good = [launch(0, US, 1), kernel(2 * US, 4 * US, correlation=1), operator("o", 0, US)]
        bad = [
            files.call("cudaDeviceSynchronize", i * US, i * US + long, correlation=10 + i)
            for i in range(4_000)
        ]
        report = analyze(write(tmp_path / "a.json", [*good, *bad]))
        assert report.traces[0].losses["absurd_times"] == 4_000
        assert report.traces[0].events == 3
        assert all(row.blocked_ns >= 0 for row in report.syncs)
        alone = analyze(write(tmp_path / "b.json", good))
        assert report.windows == alone.windows

    @pytest.mark.parametrize(("count", "lost"), [(1_152, 0), (1_153, 1_153)])
    def test_together_they_are_less_than_2_62_ns(self, tmp_path, count, lost):
        # 1,152 times 4 million seconds are 4.608e18 ns, once more is 4.612e18; 2^62 is 4.6117e18.
        good = [launch(0, US, 1), kernel(2 * US, 4 * US, correlation=1)]
        long = [operator("o", i * US, i * US + 4_000_000 * S) for i in range(count)]
        losses = read_trace(write(tmp_path / "a.json", [*good, *long])).losses
        assert losses.get("absurd_times", 0) == lost

    def test_nothing_but_such_events_is_no_trace(self, tmp_path):
        long = 2**42 * US
        bad = [kernel(i * US, i * US + long, correlation=i) for i in range(4_000)]
        with pytest.raises(UnreadableInputError, match=r"no complete event \(absurd_times: 4000\)"):
            read_trace(write(tmp_path / "a.json", bad))

    def test_a_few_long_ones_are_no_loss(self, tmp_path):
        long = 2**42 * US
        events = [launch(0, US, 1), kernel(2 * US, 4 * US), operator("o", 0, long)]
        assert not read_trace(write(tmp_path / "a.json", events)).losses


# --- Python functions whose end the profiler missed ---


@pytest.mark.parametrize(
    ("functions", "endless"),
    [
        ([(0, 100, 0), (10, 50, 0), (20, 40, 0), (50, 100, 0)], []),
        # `apply` began in the second function, and seems to run until after the third.
        ([(0, 100, 0), (10, 50, 0), (20, 95, 0), (60, 90, 0)], [2]),
        # One in it is as long; the next function ends after both, and is none of them.
        ([(0, 100, 0), (10, 50, 0), (20, 80, 0), (30, 75, 0), (60, 90, 0)], [2, 3]),
        # Another thread.
        ([(0, 50, 0), (10, 90, 1)], []),
        # What touches is not inside.
        ([(0, 50, 0), (50, 90, 0)], []),
    ],
    ids=["nested", "outlasts", "one in another", "another thread", "one after another"],
)
def test_functions_that_outlast_the_one_they_began_in(functions, endless):
    start_ns, end_ns, thread = np.array(functions, dtype=np.int64).T
    assert find_endless(start_ns, end_ns, thread.astype(np.int32)).tolist() == endless


def test_no_functions():
    nothing = np.zeros(0, dtype=np.int64)
    assert find_endless(nothing, nothing, nothing.astype(np.int32)).tolist() == []
