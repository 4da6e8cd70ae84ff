"""What was predicted beside what was measured, on the basis that was predicted."""

import pytest

from tests.figures import figures
from tracelab.comparison.compare import prediction_diffs
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.render.sections.diff import predictions
from tracelab.render.sections.diff_words import predicted
from tracelab.report.schema import WhatIf
from tracelab.simulate.predict import Prediction

US = 1_000
# 100 us before; predicted 78, somewhere from 76 to 81: saves 22 (19 to 24).
WAIT = Prediction("TL101", ("unblock",), (0,), 100 * US, 78 * US, 76 * US, 81 * US)
SLOWER = Prediction("scale=2", ("scale=2",), (), 100 * US, 150 * US, 150 * US, 150 * US)


def diffs(*foreseen, basis=PROFILED, profiled=(100, 77), unprofiled=(90, 70)):
    whatif = WhatIf(basis, 0.001, foreseen)
    times = [tuple(None if us is None else us * US for us in of) for of in (profiled, unprofiled)]
    return prediction_diffs(whatif, *times)


def test_saving_is_of_the_step_with_the_profiler(snapshot):
    [diff] = diffs(WAIT)
    assert (diff.saves_ns, diff.saves_low_ns, diff.saves_high_ns) == (22 * US, 19 * US, 24 * US)
    assert (diff.measured_ns, diff.holds) == (23 * US, True)
    assert figures(predicted([diff])) == ["22.0 µs", "24.0", "23.0 µs"]
    assert predicted([diff]) == snapshot


def test_saving_is_of_the_step_without_the_profiler_where_that_was_predicted(snapshot):
    [diff] = diffs(WAIT, basis=UNPROFILED, unprofiled=(90, 75))
    assert (diff.measured_ns, diff.holds) == (15 * US, False)
    assert figures(predicted([diff])) == ["22.0 µs", "24.0", "15.0 µs"]
    assert predicted([diff]) == snapshot


@pytest.mark.parametrize("unprofiled", [(None, 70), (90, None)])
def test_nothing_was_measured_where_a_side_knows_only_the_profiled_step(unprofiled, snapshot):
    [diff] = diffs(WAIT, basis=UNPROFILED, unprofiled=unprofiled)
    assert (diff.measured_ns, diff.holds) == (None, None)
    assert figures(predicted([diff])) == ["22.0 µs", "24.0"]
    assert predicted([diff]) == snapshot


def test_step_may_get_longer(snapshot):
    [diff] = diffs(SLOWER, profiled=(100, 151))
    assert (diff.saves_ns, diff.measured_ns) == (-50 * US, -51 * US)
    assert figures(predicted([diff])) == ["2", "-50.0 µs", "-51.0 µs"]
    assert predicted([diff]) == snapshot


def test_several_predictions_have_a_table_and_the_sentence_is_of_the_last():
    found = diffs(WAIT, SLOWER)
    assert predicted(found)[0].startswith("scale=2: ")
    [table] = predictions(found)
    assert table.rows == (("TL101", "22.0 µs (19.0 to 24.0)"), ("scale=2", "-50.0 µs"))
    assert predictions(found[:1]) == []


def test_nothing_is_said_without_a_prediction():
    assert predicted([]) == []
