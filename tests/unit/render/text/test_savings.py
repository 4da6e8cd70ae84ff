"""What fixes save, in words: shares of the step that is printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.build.report_rows import (
    MS,
    make_finding,
    make_priced,
    make_report,
    make_savings,
    make_steady_report,
    section_of,
)
from tracelab.render.text.savings import (
    amount,
    interval,
    interval_text,
    not_predicted,
    percent,
    price,
    seen_in,
)
from tracelab.report.views import ranks_of


def scope_of(report):
    [rank] = ranks_of(report)
    return rank.main.scope


def scope(**figures):
    """Two steady steps of 10 ms that were replayed."""
    return scope_of(make_steady_report(savings=make_savings(), **figures))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.004, "<1 %"), (0.234, "23 %"), (0.996, ">99 %"), (1, "100 %")],
)
def test_only_nothing_is_none_and_only_all_is_everything(share, text):
    assert percent(share) == text


class TestAmount:
    @pytest.mark.parametrize(
        ("finding", "text"),
        [
            (make_priced(2.34, 1, 3), "saves 23 %"),
            (make_priced(0.04, 0, 1), "saves <1 %"),
            (make_priced(0, 0, 1), "saves nothing"),
            (make_priced(12, 12, 12), "saves 100 %"),
            # What is attributed is of both steps, 20 ms; so is what it takes.
            (make_finding(bound_ns=4 * MS), "takes 20 %"),
            (make_finding(bound_ns=0, cost_ns=5 * MS), "takes 25 %"),
            # A bound that was replayed is of one of 10 ms.
            (make_finding(bound_ns=0, saves_high_ns=3 * MS), "at most 30 %"),
        ],
    )
    def test_of_a_step(self, finding, text):
        assert amount(finding, scope()) == text

    def test_of_a_report_of_before_there_were_predictions(self):
        assert amount(make_finding(), scope_of(make_steady_report())) == "takes 20 %"

    def test_of_a_trace_without_steps(self):
        # 1 of 10 ms that were replayed, and 4 of 10 ms
        report = replace(make_report(), savings=(make_savings(is_of_trace=True),))
        assert amount(make_priced(1, 1, 1), scope_of(report)) == "saves 10 %"
        assert amount(make_finding(), scope_of(make_report())) == "takes 40 %"


class TestPrice:
    def test_ms_are_that_share_of_the_printed_step(self):
        # GIVEN a replay that saves 2.5 (1 to 3.5) of 10 ms, and a step of 8 ms without the profiler
        finding, timed = make_priced(2.5, 1, 3.5), scope(unprofiled_step_ns=8 * MS)
        # THEN 25 % of 8 ms are 2 ms
        assert price(finding, timed) == "saves 25 % (10 to 35), 2.00 ms"

    def test_without_a_saving_there_are_no_ms(self):
        assert price(make_finding(bound_ns=4 * MS), scope()) == "takes 20 %"
        assert price(make_priced(0, 0, 3), scope()) == "saves nothing (0 to 30)"

    @pytest.mark.parametrize(("seen", "words"), [(1, ["in 1 of 2 steps"]), (2, []), (None, [])])
    def test_in_how_many_steps_where_that_is_not_all(self, seen, words):
        finding = make_finding(steps_seen=seen)
        assert seen_in(finding, scope()) == words
        assert price(finding, scope()).split(", ")[1:] == words


class TestInterval:
    @pytest.mark.parametrize(
        ("low", "high", "text"),
        [
            (0.1, 0.352, "(10 to 35)"),
            (0, 0.004, "(0 to <1)"),
            (0.201, 0.2, ""),
            (0.9, 1, "(90 to 100)"),
        ],
    )
    def test_in_percents_without_the_sign(self, low, high, text):
        assert interval_text(low, high) == text

    def test_only_of_what_was_replayed(self):
        assert interval(make_priced(2, 1, 3), scope()) == "(10 to 30)"
        assert interval(make_priced(2, 1, 3), scope_of(make_steady_report())) == ""
        assert interval(make_finding(saves_high_ns=3 * MS), scope()) == ""


def test_why_nothing_is_predicted(snapshot):
    why = "The file has no calls that launch its GPU work."
    savings = make_savings(None, None, None, edits=(), step_ns=None, not_replayed=why)
    sentence = not_predicted(scope_of(make_steady_report(savings=savings)))
    assert sentence == snapshot
    assert not_predicted(scope()) == not_predicted(scope_of(make_steady_report())) == ""


def test_the_full_report_has_the_interval_and_a_column():
    large = make_priced(2.2, 1.9, 2.4)
    small = make_priced(0.1, 0, 0.2, severity="info", cost_ns=MS // 10)
    report = make_steady_report(findings=(large, small), savings=make_savings())
    section = section_of(report, "1. critical · saves 22 % (19 to 24), 2.20 ms · TL101")
    assert section.lines[-1] == "Fix: Read it later."
    brief = section_of(report, "Minor or not actionable")
    assert [column.title for column in brief.columns][3] == "saves"
    assert brief.rows[0][3] == "1 % (0 to 2)"


def test_no_saving_has_its_reason(snapshot):
    report = make_steady_report(findings=(make_finding(saves_reason="true_dependency"),))
    assert section_of(report, "1. critical · takes 20 % · TL101").lines == snapshot
