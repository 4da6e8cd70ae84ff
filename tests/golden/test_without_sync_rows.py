"""What is known of waits where a profiler had its default settings, on captures of H200s."""

from tests.benchmarks.without_sync_rows import Score, measure


def test_most_that_the_rows_say_is_found_without_them():
    total = sum(measure().values(), start=Score())
    assert total.delayed > 3_000
    assert total.found >= 0.95 * total.delayed
    assert total.found >= 0.94 * total.inferred
    assert total.right >= 0.97 * total.calls > 300
    assert total.other == 0
    assert total.same >= 0.995 * total.activities
