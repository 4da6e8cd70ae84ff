"""What fixes save, as the screens say it."""

from dataclasses import replace

import pytest

from tests.build.report_rows import (
    MS,
    make_finding,
    make_report,
    make_steady,
    make_steps,
    make_trace,
    section_of,
)
from tests.figures import figures
from tests.unit.render.text.test_screen import lines_of
from tracelab.findings.savings import Savings

US = MS // 1000


def savings(saved=(4 * MS, 3 * MS, 5 * MS), *, edits=("load=0", "queues"), **figures):
    """Of a step of 10 ms with the profiler, unless told otherwise."""
    saves, low, high = saved
    known = {
        "step_ns": 10 * MS,
        "basis": "profiled",
        "is_of_trace": False,
        "saves_ns": saves,
        "saves_low_ns": low,
        "saves_high_ns": high,
        "edits": edits,
        "not_replayed": None,
    }
    return Savings(0, None, **known | figures)


def saving(saves, low, high, **figures):
    """A finding whose fix saves so much, ns."""
    return make_finding(saves_ns=saves, saves_low_ns=low, saves_high_ns=high, **figures)


def report_of(*findings, of_all=None, steady=True):
    report = make_report(
        *make_steps([10, 10, 10]),
        steady=(make_steady(),) if steady else (),
        findings=findings,
        traces=(make_trace(),),
    )
    return replace(report, savings=(of_all or savings(),))


def test_each_finding_says_what_its_fix_saves_and_the_verdict_what_all_do(snapshot):
    report = report_of(saving(2_200 * US, 1_900 * US, 2_400 * US))
    assert figures(lines_of(report)[5:10]) == [
        "4.00 ms",
        "5.00",
        "10.0 ms",
        "10.0 ms",
        "1",
        "2.20 ms",
        "2.40",
    ]
    assert "(3.00 to 5.00)" in lines_of(report)[5]
    assert "(1.90 to 2.40)" in lines_of(report)[9]
    assert lines_of(report)[5:10] == snapshot


def test_without_the_profiler_the_step_is_not_profiled():
    of_all = savings(basis="unprofiled", edits=("load=0",))
    lines = lines_of(report_of(saving(4 * MS, 3 * MS, 5 * MS), of_all=of_all))
    assert any("saves 4.00 ms (3.00 to 5.00) of a 10.0 ms step" in line for line in lines)
    assert not any("profiled" in line for line in lines)


@pytest.mark.parametrize(
    ("saved", "texts"),
    [
        ((940 * US, 850 * US, 1_100 * US), ("1. saves 940 µs", "   (850 to 1,100)")),
        ((50 * US, 0, 8_400 * US), ("1. saves 50.0 µs", "   (0 to 8.40 ms)")),
        ((0, 0, 1_200 * US), ("1. saves nothing", "   (0 to 1.20 ms)")),
        ((12 * MS, 12 * MS, 12 * MS), ("1. saves 12.0 ms", "   TL101")),
    ],
)
def test_intervals(saved, texts):
    lines = lines_of(report_of(saving(*saved)))
    first = next(i for i, line in enumerate(lines) if line.startswith("1."))
    assert all(line.startswith(text) for line, text in zip(lines[first:], texts, strict=False))


def test_of_a_trace_without_steps_savings_are_shares(snapshot):
    of_all = savings((MS, MS // 2, 2 * MS), is_of_trace=True)
    report = report_of(saving(MS, MS // 2, 2 * MS), of_all=of_all, steady=False)
    text = "\n".join(lines_of(report))
    assert "save 10.0 % (5.0 to 20.0)" in text
    assert "1. saves 10.0 %" in text
    assert text == snapshot


def test_some_have_a_share_instead(snapshot):
    report = report_of(saving(MS, MS, MS), make_finding("TL202"))
    lines = lines_of(report)
    assert {"10.0 ms"} <= {*figures(lines)}
    assert lines == snapshot
    assert any(line.startswith("2. up to 20.0 %") for line in lines)


def test_numbers_are_those_of_the_report():
    # GIVEN a second finding that is too small for the first screen
    small = saving(10 * US, 0, 20 * US, severity="info", cost_ns=MS // 10)
    large = make_finding("TL202", severity="info")
    report = report_of(saving(MS, MS, MS), small, large)
    # WHEN / THEN the third one has its number
    assert [line[:2] for line in lines_of(report) if line[1:2] == "."] == ["1.", "3."]


def test_why_nothing_is_predicted(snapshot):
    why = "The file has no calls that launch its GPU work."
    of_all = savings((None, None, None), edits=(), step_ns=None, not_replayed=why)
    lines = lines_of(report_of(make_finding(), of_all=of_all))
    assert lines == snapshot


def test_no_saving_has_its_reason(snapshot):
    finding = make_finding(saves_reason="true_dependency")
    assert "\n".join(lines_of(report_of(finding))) == snapshot


def test_nothing_large():
    finding = saving(0, 0, 0, severity="info", cost_ns=0, bound_ns=0)
    lines = lines_of(report_of(finding, of_all=savings((0, 0, 0))))
    assert "No fix saves 2 % of a 10.0 ms step." in lines


@pytest.mark.parametrize(("low_us", "is_told"), [(0, False), (40, True)])
def test_little_that_may_be_nothing_is_not_told_of_a_fix_that_no_screen_shows(low_us, is_told):
    # GIVEN 0.6 % of a step, and in the other case surely 0.4 %
    saved = (60 * US, low_us * US, 80 * US)
    finding = saving(*saved, severity="info", cost_ns=MS // 10)
    report = report_of(finding, of_all=savings(saved, edits=("load=0",)))

    # WHEN
    lines = lines_of(report)

    # THEN it is told where the finding stands below
    told = [line for line in lines if "save" in line and not line[:1].isdigit()]
    assert ("60.0 µs" in figures(told)) == is_told
    assert any(line.startswith("1.") for line in lines) == is_told


def test_the_full_report_has_the_interval_and_a_column():
    large = saving(2_200 * US, 1_900 * US, 2_400 * US)
    small = saving(10 * US, 0, 20 * US, severity="info", cost_ns=MS // 10)
    report = report_of(large, small)
    section = section_of(
        report, "1. critical · saves 2.20 ms (1.90 to 2.40) of a 10.0 ms step · TL101"
    )
    assert section.lines[-1] == "Fix: Read it later."
    brief = section_of(report, "Minor or not actionable")
    assert [column.title for column in brief.columns][3] == "saves"
    assert brief.rows[0][3] == "10.0 µs"


def test_a_report_of_before_there_were_predictions():
    report = replace(report_of(make_finding()), savings=())
    assert "1. up to 20.0 %" in "\n".join(lines_of(report))
