"""The captures of pitfalls: what their reports say, and what the fixes were seen to save."""

from __future__ import annotations

import pytest

from tests.benchmarks.remedies import outcomes
from tests.build.remedies import measured, told_of
from tests.bundled_traces import MANIFEST
from tests.corpus import LINES
from tracelab.workloads.catalog import CATALOG


def test_every_captured_pitfall_that_was_timed_tells_something():
    fixed = {(x.workload, x.variant) for x in CATALOG if x.fix}
    timed = [line for line in MANIFEST if "without_profiler_ms" in line]
    pitfalls = [x for x in timed if (x["workload"], x["arguments"][0]) in fixed]
    # No file says that the kernels of one stream are independent: there is a note, and no finding.
    # What mends the full GPU there does more than the finding asks for: it copies nothing, either.
    silent = [["memory_full.pt.trace.json.gz"], ["graphs_one_branch.pt.trace.json.gz"]]
    assert [x["files"] for x in pitfalls if told_of(x) is None] == silent


def test_a_pitfall_costs_something_and_its_fix_is_worth_saying(bundled_capture):
    if (one := measured(LINES[bundled_capture])) is not None:
        assert one.saved_ms > 0
        assert one.predicted_ms is None or one.predicted_ms.value > 0


@pytest.mark.whole_corpus
def test_at_least_sixteen_remedies_are_proven():
    assert len({one.finding.remedy for one in outcomes()} - {None}) >= 16


@pytest.mark.whole_corpus
def test_half_of_the_predictions_are_within_a_tenth_of_the_step():
    predicted = [x for x in outcomes() if x.predicted_ms is not None]
    errors = sorted(abs(x.predicted_ms.value - x.saved_ms) / x.before.median for x in predicted)
    assert errors[len(errors) // 2] <= 0.1
