"""The order of findings, and how severe they are. A step takes 1,000 ns."""

import pytest

from tests.build.report_rows import make_finding
from tracelab.findings.finding import (
    ASIDE,
    GENERIC,
    REST,
    is_worth_showing,
    mark_rest,
    sort_findings,
)

STEP = 1_000


def priced(rule, saves_ns, **more):
    return make_finding(rule, saves_ns=saves_ns, saves_low_ns=0, saves_high_ns=saves_ns, **more)


def ids(*findings, steps=1):
    return [x.rule for x in sort_findings(findings, steps, STEP)]


def test_a_change_of_one_place_comes_before_the_rest_that_a_rebuilding_adds():
    graph, read = priced("TL301", 500, role=REST), priced("TL101", 20)
    assert ids(graph, read) == ["TL101", "TL301"]


def test_a_rebuilding_that_is_no_rest_has_its_place_by_what_it_saves():
    graph, read = priced("TL301", 500, role=GENERIC), priced("TL101", 20)
    assert ids(read, graph) == ["TL301", "TL101"]


def test_nothing_without_a_price_stands_above_what_saves_two_percent():
    # 900 of 1,000 is attributed to the first; what the others save is 2.0 and 1.9 % of a step.
    unpriced = make_finding("TL202", bound_ns=900, saves_ns=None)
    assert ids(unpriced, priced("TL101", 20)) == ["TL101", "TL202"]
    assert ids(unpriced, priced("TL101", 19)) == ["TL202", "TL101"]
    assert ids(unpriced, priced("TL301", 20, role=REST)) == ["TL301", "TL202"]


def test_a_rebuilding_without_a_price_stands_behind_changes_of_one_place_that_have_none_either():
    graph = make_finding("TL301", saves_ns=None, saves_high_ns=800, role=GENERIC)
    place, small = make_finding("TL202", bound_ns=20), make_finding("TL205", bound_ns=19)
    assert ids(graph, small, place) == ["TL202", "TL301", "TL205"]


def test_what_alarms_nobody_and_has_no_known_change_has_its_place_by_its_share():
    # 20 is less, and 801 more, than the 800 that a rebuilding saves at most.
    graph = make_finding("TL301", saves_ns=None, saves_high_ns=800, role=GENERIC)
    less = make_finding("TL202", bound_ns=20, severity="info")
    assert ids(less, graph) == ["TL301", "TL202"]
    assert ids(graph, make_finding("TL405", bound_ns=801, severity="info")) == ["TL405", "TL301"]
    # A change is known: it is one of one place.
    assert (
        ids(graph, make_finding("TL202", bound_ns=20, severity="info", edit="queues"))[0] == "TL202"
    )


def test_shares_are_of_all_steps():
    # 300 in three steps is 100 of a step, less than 150.
    unpriced = make_finding("TL202", bound_ns=300, saves_ns=None)
    other = make_finding("TL205", bound_ns=450, saves_ns=None)
    assert ids(unpriced, other, priced("TL101", 10), steps=3) == ["TL205", "TL202", "TL101"]


def test_what_is_of_no_typical_step_or_saves_nothing_is_last_but_for_what_the_trace_lacks():
    stall = make_finding("TL306", bound_ns=900, role=ASIDE)
    lacks = make_finding("TL903", about="trace")
    small = make_finding("TL202", bound_ns=1)
    nothing = priced("TL102", 0, bound_ns=800, severity="info")
    assert ids(lacks, stall, nothing, small) == ["TL202", "TL306", "TL102", "TL903"]


def test_what_is_worth_showing_comes_before_what_is_not():
    # GIVEN 1.9 % that are no alarm, and an alarm of 0.1 %, without prices and with them
    unpriced = make_finding("TL202", bound_ns=19, severity="info", cost_ns=1)
    alarm = make_finding("TL102", bound_ns=1, severity="warning")
    assert ids(unpriced, alarm) == ["TL102", "TL202"]
    assert ids(priced("TL202", 19, severity="info"), alarm) == ["TL102", "TL202"]


@pytest.mark.parametrize(
    ("share", "cost_share", "figures", "is_worth"),
    [
        (0.02, 0, {}, True),
        (0.019, 0, {}, False),
        (0.001, 0, {"severity": "warning"}, True),
        (0, 0.05, {"bound_ns": 0}, True),  # much that nothing can be done about
        (0, 0.049, {"bound_ns": 0}, False),
        (0.001, 0.05, {"bound_ns": 1}, False),  # it can, and that is worth little
        (0.001, 0.9, {"saves_ns": 1}, False),  # what is saved of it is known
        (0.9, 0.9, {"role": ASIDE, "severity": "critical"}, False),
        (0.9, 0.9, {"about": "trace", "severity": "critical"}, False),
    ],
)
def test_what_is_worth_a_place(share, cost_share, figures, is_worth):
    finding = make_finding(**{"severity": "info"} | figures)
    assert is_worth_showing(finding, share, cost_share) == is_worth


@pytest.mark.parametrize(
    ("specific_ns", "role"),
    # Of 300 that all save, a third is 100.
    [(100, REST), (99, GENERIC), (0, GENERIC)],
)
def test_a_rebuilding_is_the_rest_where_others_cover_a_third(specific_ns, role):
    findings = [make_finding("TL101"), make_finding("TL301", role=GENERIC)]
    assert [x.role for x in mark_rest(findings, specific_ns, 300)] == ["specific", role]


def test_the_rest_of_nothing_is_none():
    [graph] = mark_rest([make_finding("TL301", role=REST)], 0, 0)
    assert graph.role == GENERIC


def test_shown_title_says_what_comes_after_others():
    title = "The host launches too slowly"
    assert make_finding("TL301", title=title, role=GENERIC).shown_title == title
    rest = make_finding("TL301", title=title, role=REST).shown_title
    assert rest == f"After that: {title.replace('The', 'the')}"
