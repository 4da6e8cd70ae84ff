"""Predictions of the fixes that the bundled captures hold, against the captured fixes.

Nothing is fitted on these pairs: the latencies are those of each trace, the cost of overlap comes
from `tests/benchmarks/contention.py`, and the margins from other captures.
"""

from __future__ import annotations

from statistics import mean

import pytest

from tests.build.pairs import BATCHING, OVERLAP, PAIRS, outcome, outcomes

# The interval does not hold the captured step: the work that is too much on one rank is next to
# another group's collective, whose transfer is assumed to take as long without it; see "What the
# model cannot know" in tracelab/docs/whatif.md. The others are 2 and 3 % off: they and their fixes
# were captured at different clocks.
OUTSIDE = {"two_groups_one_late", "straggler_more_work"}
# Jobs that the recording slows by a third and more, and whose replays start from that step: the
# share that is saved is carried over to the plain step, and the interval is as wide as they differ.
FAR = {"late_launch_checksum", "uneven_lengths_drawn"}


# The default run looks at one of each sort.
FIRST = {pair.sort: pair for pair in reversed(PAIRS)}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair,
            id=f"{pair.defect}-{'-'.join(pair.edits)}",
            marks=() if pair is FIRST[pair.sort] else pytest.mark.whole_corpus,
        )
        for pair in PAIRS
    ],
)
def test_captured_step_is_in_the_interval(pair):
    one = outcome(pair)
    assert one.holds == (pair.defect not in OUTSIDE)
    if pair.sort in (BATCHING, OVERLAP):
        assert one.width < 0.2
    else:
        assert abs(one.error) <= 0.1 or pair.defect in OUTSIDE | FAR


@pytest.mark.whole_corpus
def test_predicted_steps_are_within_five_percent_of_the_captured_ones():
    assert mean(abs(one.error) for one in outcomes()) <= 0.05
