"""Findings by place: one for each change of the program, numbered in the order of their worth."""

from __future__ import annotations

import pytest

from tests.build.report_rows import MS, make_finding, make_job_report, make_report, make_steady
from tracelab.findings.finding import GENERIC, Where
from tracelab.report.finding_groups import finding_groups, put_groups_first
from tracelab.report.views import ranks_of


def at_line(line, **figures):
    return make_finding(where=Where(count=1, file="train.py", function="f", line=line), **figures)


def in_operator(name, **figures):
    title = f"`{name}` copies pageable memory"
    return make_finding(title=title, where=Where(count=1, operator=name), **figures)


def groups_of(report, **options):
    return finding_groups(report, ranks_of(report), **options)


def test_a_line_of_several_ranks_is_one_and_its_most_expensive_rank_stands_for_all():
    # GIVEN line 40 on four ranks, of 1 to 4 ms, and line 50 on one
    findings = [at_line(40, rank=rank, bound_ns=(1 + rank) * MS) for rank in range(4)]
    report = make_job_report(4, (*findings, at_line(50, rank=2, bound_ns=2 * MS)))
    # WHEN
    first, second = groups_of(report)
    # THEN
    assert (first.finding, first.ranks) == (findings[3], (0, 1, 2, 3))
    assert [x.rank for x, _ in first.members] == [3, 2, 1, 0]
    assert second.ranks == (2,)


def test_findings_of_one_rank_at_one_place_are_one_rank():
    [group] = groups_of(make_job_report(2, [at_line(40, bound_ns=x * MS) for x in (8, 1)]))
    assert (group.ranks, group.finding.bound_ns) == ((0,), 8 * MS)


def test_the_largest_share_is_first_though_its_rank_has_longer_steps():
    # GIVEN 4 of 20 ms on rank 0, and 4.5 of 24 ms on rank 1
    findings = (at_line(40, rank=1, bound_ns=9 * MS // 2), at_line(50, rank=0, bound_ns=4 * MS))
    report = make_job_report(2, findings, step_ns=12 * MS)
    # THEN 20 % come before 18.75 %
    assert [group.finding.where.line for group in groups_of(report)] == [50, 40]


def test_without_a_line_what_is_known_besides_tells_places_apart():
    findings = [in_operator(name, rank=rank) for rank in (0, 1) for name in ("aten::to", "aten::x")]
    groups = groups_of(make_job_report(2, findings))
    assert [(x.finding.where.operator, x.ranks) for x in groups] == [
        ("aten::to", (0, 1)),
        ("aten::x", (0, 1)),
    ]


@pytest.mark.parametrize(
    ("own", "count"),
    [
        ({"function": "f", "line": 40}, 1),
        ({"function": "f", "line": None}, 1),
        ({"function": "f", "line": 50}, 2),
        ({"function": "g", "line": 40}, 2),
        ({"function": "f", "line": 40, "rank": 1}, 2),  # the others wait for rank 0
        ({"function": "f", "line": 40, "rule": "TL202"}, 2),
        ({"function": "f", "line": 40, "role": GENERIC}, 2),
    ],
)
def test_why_others_wait_and_the_work_for_which_they_wait_are_one(own, count):
    # GIVEN a rank that launches late because of line 40, and what its own file says of the host
    where = Where(count=1, file="train.py", function=own.pop("function"), line=own.pop("line"))
    late = at_line(40, rule="TL304", cause="late_launch", bound_ns=2 * MS)
    work = make_finding(
        **{"rule": "TL301", "cause": "slow_host", "bound_ns": MS} | own, where=where
    )
    # THEN the more expensive one stands for both
    first, *others = groups_of(make_job_report(2, (work, late)))
    assert (first.finding, 1 + len(others)) == (late, count)
    assert sum(len(group.members) for group in (first, *others)) == 2


def test_files_that_are_no_job_share_nothing():
    report = make_report(
        steady=(make_steady(),), findings=[at_line(40, bound_ns=x * MS) for x in (1, 8)]
    )
    assert [group.finding.bound_ns for group in groups_of(report)] == [1 * MS, 8 * MS]


def test_what_is_about_the_trace_is_apart():
    lack = make_finding("TL903", about="trace")
    report = make_job_report(2, (at_line(40), lack))
    assert [group.finding.rule for group in groups_of(report)] == ["TL101"]
    assert [group.finding for group in groups_of(report, about="trace")] == [lack]


def test_a_place_is_worth_showing_where_it_is_on_one_rank():
    small = {"severity": "info", "cost_ns": 1}
    report = make_job_report(2, [at_line(40, rank=0, bound_ns=1, **small)])
    [group] = groups_of(report)
    assert not group.is_worth_showing
    much = at_line(40, rank=1, bound_ns=MS, **small)
    [group] = groups_of(make_job_report(2, (*report.findings, much)))
    assert group.is_worth_showing


def test_the_places_of_a_job_are_numbered_from_one():
    # GIVEN findings by rank: line 40 on both, line 50 on the second, and one about a file
    findings = (
        at_line(40, rank=0, bound_ns=2 * MS),
        make_finding("TL903", about="trace"),
        at_line(50, rank=1, bound_ns=3 * MS),
        at_line(40, rank=1, bound_ns=4 * MS),
    )
    # WHEN
    report = put_groups_first(make_job_report(2, findings))
    # THEN one of each place comes first, the most expensive, and nothing is lost
    assert report.findings == (findings[3], findings[2], findings[0], findings[1])
    assert [group.number_in(report) for group in groups_of(report)] == [1, 2]
