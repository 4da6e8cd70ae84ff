"""The words of predictions."""

from tests.figures import figures
from tracelab.findings.fixes import NO_EDIT
from tracelab.findings.places import TOGETHER
from tracelab.measures.window_times import PROFILED, UNPROFILED
from tracelab.render.sections.findings import picture_titles, prediction_sections
from tracelab.render.text.report import render_result
from tracelab.report.schema import WhatIf
from tracelab.simulate.predict import Prediction

US = 1_000
WAIT = Prediction("TL101 `item`", ("unblock:a.py:4",), (0,), 100 * US, 78 * US, 76 * US, 81 * US)
LOAD = Prediction("load=0", ("load=0",), (), 100 * US, 100 * US, 100 * US, 100 * US)
SLOW = Prediction("scale=2", ("scale=2",), (), 100 * US, 150 * US, 145 * US, 155 * US)


def whatif(*predictions, basis=PROFILED, error=0.004, **more):
    return WhatIf(basis, error, predictions, **more)


def opening(found):
    return prediction_sections(found)[0].lines[0]


def table(found):
    return prediction_sections(found)[1]


def test_each_change_stands_below_the_step_as_it_is():
    assert table(whatif(WAIT, LOAD, SLOW)).rows == (
        ("as it is", "100.0 µs", "", ""),
        ("1. TL101 `item` · unblock:a.py:4", "78.00 µs", "22.0 µs (19.0 to 24.0)", "22.0 %"),
        ("load=0", "100.0 µs", "0", "0 %"),
        ("scale=2", "150.0 µs", "-50.0 µs (-55.0 to -45.0)", "-50.0 %"),
    )


def test_what_predictions_are_of_and_how_good_the_replay_is(snapshot):
    assert figures(opening(whatif(WAIT))) == ["100.0 µs", "0.4 %"]
    assert opening(whatif(WAIT)) == snapshot
    assert figures(opening(whatif(WAIT, basis=UNPROFILED, error=-0.012))) == ["100.0 µs", "1.2 %"]
    assert opening(whatif(WAIT, basis=UNPROFILED, error=-0.012)) == snapshot
    assert opening(whatif(WAIT, error=0.0)) == snapshot
    assert figures(opening(whatif(WAIT, error=None, is_of_trace=True))) == ["100.0 µs"]
    assert opening(whatif(WAIT, error=None, is_of_trace=True)) == snapshot


def test_trace_that_cannot_be_replayed_says_why(snapshot):
    found = whatif(error=None, not_replayed="The file has no calls that launch its GPU work.")
    assert opening(found) == snapshot
    assert len(prediction_sections(found)) == 1


def test_nothing_to_predict_is_said(snapshot):
    assert opening(whatif()) == snapshot


def test_reason_stands_once_with_all_that_it_is_about(snapshot):
    def because(name, reason):
        return Prediction(name, (), (2,), 100 * US, 100 * US, 100 * US, 100 * US, reason)

    found = whatif(
        because("TL306", NO_EDIT),
        because("TL305", NO_EDIT),
        because("TL101", "true_dependency"),
        because("pin", "how fast is not known; pin matches nothing in these steps"),
        because(TOGETHER, "how fast is not known; together is less"),
    )
    assert table(found).notes == snapshot


def test_long_lists_of_edits_are_left_to_the_json():
    many = Prediction(TOGETHER, tuple("abcd"), (0, 1), 100 * US, 90 * US, 90 * US, 90 * US)
    assert table(whatif(many)).rows[1][0] == TOGETHER


def test_text_fits_its_width():
    for width in (80, 120):
        text = render_result(whatif(WAIT, LOAD, SLOW), width=width, color=False)
        assert max(map(len, text.splitlines())) <= width
        assert "22.0 µs (19.0 to 24.0)" in text
    assert str(whatif(WAIT)) == render_result(whatif(WAIT), width=100, color=False)


def test_headlines_of_the_picture():
    assert picture_titles("a.json", WAIT) == (
        "a.json · a step as it is: 100.0 µs",
        "TL101 `item` · predicted: 78.00 µs, saves 22.0 µs (19.0 to 24.0)",
    )
