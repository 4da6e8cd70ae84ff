"""What is known of waits where a profiler had its default settings, on captures of H200s."""

import pytest

from tests.benchmarks.inferred_waits import captures
from tests.benchmarks.without_sync_rows import Score, score_of

RECORDED = sorted(file for files in captures().values() for file in files)


def test_nothing_else_is_found_without_the_rows(bundled_path):
    if bundled_path.name not in RECORDED:
        pytest.skip("its waits name no records")
    assert score_of(bundled_path.name).other == 0


@pytest.mark.whole_corpus
def test_most_that_the_rows_say_is_found_without_them():
    total = sum(map(score_of, RECORDED), start=Score())
    assert total.delayed > 3_000
    assert total.found >= 0.95 * total.delayed
    assert total.found >= 0.94 * total.inferred
    assert total.right >= 0.97 * total.calls > 300
    assert total.same >= 0.995 * total.activities
