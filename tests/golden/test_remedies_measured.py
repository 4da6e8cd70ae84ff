"""The table of tracelab/docs/remedies_measured.md against the captures of pitfalls."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.benchmarks.remedies import outcomes, summary, table
from tests.build.remedies import Measured, told_of
from tests.bundled_traces import MANIFEST
from tracelab.workloads.catalog import CATALOG

DOCUMENT = Path(__file__).parents[2] / "tracelab" / "docs" / "remedies_measured.md"


@cache
def found() -> list[Measured]:
    return outcomes()


def test_document_has_the_table():
    lines = DOCUMENT.read_text().splitlines()
    assert [line for line in lines if line.startswith("|")] == table(found())
    assert summary(found()) in lines


def test_every_captured_pitfall_that_was_timed_tells_something():
    fixed = {(x.workload, x.variant) for x in CATALOG if x.fix}
    timed = [line for line in MANIFEST if "without_profiler_ms" in line]
    pitfalls = [x for x in timed if (x["workload"], x["arguments"][0]) in fixed]
    # No file says that the kernels of one stream are independent: there is a note, and no finding.
    silent = [["graphs_one_branch.pt.trace.json.gz"]]
    assert [x["files"] for x in pitfalls if told_of(x) is None] == silent


def test_at_least_sixteen_remedies_are_proven():
    assert len({one.finding.remedy for one in found()} - {None}) >= 16


def test_each_pitfall_costs_something_and_its_fix_is_worth_saying():
    assert [one for one in found() if one.saved_ms <= 0] == []
    assert [one for one in found() if one.predicted_ms and one.predicted_ms.value <= 0] == []


def test_half_of_the_predictions_are_within_a_tenth_of_the_step():
    predicted = [x for x in found() if x.predicted_ms is not None]
    errors = sorted(abs(x.predicted_ms.value - x.saved_ms) / x.before.median for x in predicted)
    assert errors[len(errors) // 2] <= 0.1
