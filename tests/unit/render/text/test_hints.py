"""What the text says of steps that the profiler has not marked."""

import pytest

from tests.build.report_rows import make_report, make_trace
from tests.figures import figures
from tracelab.base.options import PROFILER_STEP
from tracelab.model.steps import KNOWN_STEPS, RepeatedAnnotation
from tracelab.render.document import detailed, document_of
from tracelab.render.text.hints import steps_hint
from tracelab.render.text.screen import screen

BATCH = RepeatedAnnotation("batch N", r"^batch \d+$", 1200, 0.97)
LOAD = RepeatedAnnotation("load", "^load$", 40, 0.5)
LONG = RepeatedAnnotation("a" * 100, f"^{'a' * 100}$", 3, 0.02)


@pytest.mark.parametrize("pattern", ["", PROFILER_STEP, "^mine$"])
def test_nothing_is_said_of_steps_that_somebody_named(pattern):
    assert steps_hint(make_trace(step_pattern=pattern)) == ""


def test_steps_of_a_framework_are_told_with_their_pattern(snapshot):
    said = [steps_hint(make_trace(step_pattern=known.pattern)) for known in KNOWN_STEPS]

    for known, text in zip(KNOWN_STEPS, said, strict=True):
        assert known.pattern in text
        assert known.framework in text
    assert said == snapshot


def test_what_repeats_is_offered(snapshot):
    text = steps_hint(make_trace(repeated_annotations=(BATCH, LOAD, LONG, LOAD)))

    assert [x for x in figures(text) if x in ("1,200", "40", "3")] == ["1,200", "40", "3"]
    assert r"--step-on '^batch \d+$'" in text
    assert text == snapshot


def test_what_launches_half_of_the_work_or_less_is_not_offered(snapshot):
    text = steps_hint(make_trace(repeated_annotations=(LOAD, LONG)))

    assert "--step-on" not in text
    assert text == snapshot


def test_first_screen_and_full_text_say_it():
    report = make_report(traces=(make_trace(repeated_annotations=(BATCH,)),))
    first = " ".join(line.text.strip() for line in screen(document_of(report), width=80))
    full = [
        line for chapter in detailed(report).chapters for x in chapter.sections for line in x.lines
    ]

    assert steps_hint(report.traces[0]) in first
    assert steps_hint(report.traces[0]) in full
