"""What is predicted of the fixes that the bundled captures hold, against the captured fixes.

Nothing is fitted on these pairs: the latencies are those of each trace, what overlap costs comes
from `tests/benchmarks/contention.py`, and the margins from other captures.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import mean

from tests.benchmarks.predictions import summary, table
from tests.build.pairs import BATCHING, OVERLAP, PAIRS, Outcome, outcome

DOCUMENT = Path(__file__).parents[2] / "tracelab" / "docs" / "whatif.md"
# The work that is too much on one rank stands beside another group's collective, whose transfer is
# taken to be as long without it: see "What it cannot know" in the document.
TOO_LITTLE = {"two_groups_one_late"}


@cache
def outcomes() -> tuple[Outcome, ...]:
    return tuple(found for pair in PAIRS if (found := outcome(pair)) is not None)


def test_every_pair_is_replayed():
    assert len(outcomes()) == len(PAIRS)


def test_predicted_steps_are_within_five_percent_of_the_captured_ones():
    assert mean(abs(one.error) for one in outcomes()) <= 0.05


def test_no_wait_copy_queue_loader_or_straggler_is_more_than_ten_percent_off():
    sure = [one for one in outcomes() if one.pair.sort not in (BATCHING, OVERLAP)]
    assert {one.pair.defect for one in sure if abs(one.error) > 0.1} <= TOO_LITTLE


def test_intervals_hold_the_captured_step_in_nine_of_ten():
    assert mean(one.holds for one in outcomes()) >= 0.9


def test_batching_and_overlap_are_in_narrow_intervals():
    some = [one for one in outcomes() if one.pair.sort in (BATCHING, OVERLAP)]
    assert some
    assert all(one.holds for one in some)
    assert all(one.width < 0.2 for one in some)


def test_document_has_the_table_that_the_benchmark_prints():
    lines = DOCUMENT.read_text().splitlines()
    some = list(outcomes())
    assert set(table(some)) <= set(lines)
    assert "\n".join(summary(some)) in DOCUMENT.read_text()
