"""From candidates to findings, in a window of 1,000 ns."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from tracelab.findings.attribution import find_all
from tracelab.findings.candidates import Candidate
from tracelab.findings.finding import CRITICAL, INFO, WARNING, Where
from tracelab.findings.rule import Rule
from tracelab.intervals import union
from tracelab.model.steps import Window

CONTEXT = SimpleNamespace(window=Window(None, 0, 1_000), rank=3, window_without_profiler_ns=None)


def candidate(*stretches, title="", device=0, limit=None, severity=None, **lost):
    """A candidate of stretches (start, end) of one device; or of more, `gpu1=[(start, end)]`."""
    places = {device: stretches} | {int(name[3:]): value for name, value in lost.items()}
    return Candidate(
        title=title,
        cause="some_cause",
        where=Where(1),
        evidence=(5, 4),
        fix="some fix",
        lost={x: union(*zip(*times, strict=True)) for x, times in places.items() if times},
        limit_ns={} if limit is None else limit if isinstance(limit, dict) else {device: limit},
        severity_override=severity,
    )


def rule(number, *candidates, **fields):
    return Rule(
        id=f"TL{number}", name="", matters="", decides="", find=lambda _: list(candidates), **fields
    )


def findings_of(*rules, context=CONTEXT):
    return find_all(context, rules)


def bounds(*rules):
    return [(x.rule, x.cost_ns, x.bound_ns) for x in findings_of(*rules)]


# No time is attributed twice.


@st.composite
def random_rules(draw):
    """Rules with candidates on up to three devices, as stretches of the window, with any limits."""
    stretch = st.tuples(st.integers(0, 990), st.integers(1, 300)).map(
        lambda x: (x[0], min(1_000, x[0] + x[1]))
    )
    rules = []
    for number in range(draw(st.integers(1, 4))):
        candidates = []
        for _ in range(draw(st.integers(0, 3))):
            devices = draw(st.lists(st.integers(0, 2), unique=True, max_size=3))
            lost = {f"gpu{x}": draw(st.lists(stretch, min_size=1, max_size=3)) for x in devices}
            limit = {x: draw(st.integers(0, 400)) for x in devices if draw(st.booleans())}
            severity = draw(st.sampled_from([None, None, INFO]))
            candidates.append(candidate(limit=limit, severity=severity, **lost))
        rules.append(rule(number, *candidates))
    return rules


def lost_ticks(rules, device):
    return {
        t
        for some_rule in rules
        for some_candidate in some_rule.find(None)
        for stretches in [some_candidate.lost.get(device)]
        if stretches is not None
        for start, end in zip(stretches.starts.tolist(), stretches.ends.tolist(), strict=True)
        for t in range(start, end)
    }


@settings(derandomize=True, deadline=None, max_examples=200)
@given(random_rules())
def test_bounds_together_are_at_most_the_time_lost(rules):
    findings = findings_of(*rules)

    lost = [lost_ticks(rules, device) for device in range(3)]
    assert sum(x.bound_ns for x in findings) <= sum(map(len, lost))
    for device in range(3):  # and those of one device at most what that one lost
        alone = [
            rule(
                i,
                *(
                    candidate(
                        limit=c.limit_ns,
                        severity=c.severity_override,
                        **{f"gpu{device}": _stretches(c, device)},
                    )
                    for c in some_rule.find(None)
                ),
            )
            for i, some_rule in enumerate(rules)
        ]
        assert sum(x.bound_ns for x in findings_of(*alone)) <= len(lost[device])


def _stretches(some_candidate, device):
    if device not in some_candidate.lost:
        return []
    lost = some_candidate.lost[device]
    return list(zip(lost.starts.tolist(), lost.ends.tolist(), strict=True))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(random_rules())
def test_each_bound_is_at_most_its_cost_and_the_best_come_first(rules):
    findings = findings_of(*rules)

    assert all(0 <= x.bound_ns <= x.cost_ns <= 1_000 for x in findings)
    order = [(-x.bound_ns, -x.cost_ns, x.rule) for x in findings]
    assert order == sorted(order)


def test_earlier_rule_is_attributed_first():
    # [0, 100) and [60, 160) have 40 in common.
    first, second = candidate((0, 100)), candidate((60, 160))

    assert bounds(rule(1, first), rule(2, second)) == [("TL1", 100, 100), ("TL2", 100, 60)]
    assert bounds(rule(2, second), rule(1, first)) == [("TL2", 100, 100), ("TL1", 100, 60)]


def test_most_expensive_candidate_of_a_rule_is_attributed_first():
    small, large = candidate((0, 100), title="small"), candidate((50, 250), title="large")

    assert [(x.title, x.bound_ns) for x in findings_of(rule(1, small, large))] == [
        ("large", 200),
        ("small", 50),
    ]


def test_devices_are_attributed_their_own_time():
    first, second = candidate((0, 100)), candidate((0, 100), device=1)

    assert bounds(rule(1, first), rule(2, second)) == [("TL1", 100, 100), ("TL2", 100, 100)]


def test_cost_and_bound_are_those_of_the_device_that_loses_and_wins_most():
    # GPU 0 loses 100 and can win 20 of them, GPU 1 loses 60 and can win all.
    findings = findings_of(rule(1, candidate((0, 100), gpu1=[(0, 60)], limit={0: 20})))

    assert [(x.cost_ns, x.bound_ns) for x in findings] == [(100, 60)]


def test_attributed_in_full_is_no_finding():
    assert bounds(rule(1, candidate((0, 100))), rule(2, candidate((20, 80)))) == [("TL1", 100, 100)]


def test_not_actionable_candidate_is_attributed_nothing():
    # The one that can win nothing is reported, and leaves its time to the next.
    assert bounds(rule(1, candidate((0, 100), limit=0)), rule(2, candidate((0, 100)))) == [
        ("TL2", 100, 100),
        ("TL1", 100, 0),
    ]


# What is reported.


@pytest.mark.parametrize(
    ("length", "severity"),
    [(1, INFO), (19, INFO), (20, WARNING), (99, WARNING), (100, CRITICAL), (1_000, CRITICAL)],
)
def test_severity_by_share_of_the_window(length, severity):
    # 2 % of 1,000 are 20, 10 % are 100.
    assert [x.severity for x in findings_of(rule(1, candidate((0, length))))] == [severity]


def test_severity_is_that_of_the_bound_and_not_of_the_cost():
    assert [x.severity for x in findings_of(rule(1, candidate((0, 500), limit=50)))] == [WARNING]


def test_below_a_thousandth_of_the_window_nothing_is_reported():
    context = SimpleNamespace(
        window=Window(None, 0, 10_000), rank=0, window_without_profiler_ns=None
    )

    counts = [
        len(findings_of(rule(1, candidate((0, length))), context=context)) for length in (9, 10)
    ]

    assert counts == [0, 1]


@pytest.mark.parametrize(("length", "severities"), [(19, []), (20, [INFO]), (900, [INFO])])
def test_not_actionable_candidate_is_reported_from_two_percent_on_and_never_alarms(
    length, severities
):
    assert [x.severity for x in findings_of(rule(1, candidate((0, length), limit=0)))] == severities


def test_candidate_is_actionable_if_one_device_is():
    # GPU 0 can win nothing, GPU 1 all of its 15: 1.5 % of the window.
    findings = findings_of(rule(1, candidate((0, 19), gpu1=[(0, 15)], limit={0: 0})))

    assert [(x.severity, x.cost_ns, x.bound_ns) for x in findings] == [(INFO, 19, 15)]


@pytest.mark.parametrize("severity", [INFO, WARNING, CRITICAL])
def test_candidate_with_a_severity_override_is_always_reported(severity):
    no_time = candidate(title="no time at all", severity=severity)

    assert [
        (x.title, x.severity, x.cost_ns, x.bound_ns) for x in findings_of(rule(1, no_time))
    ] == [("no time at all", severity, 0, 0)]


def test_candidate_of_no_time_is_nothing():
    assert findings_of(rule(1, candidate())) == ()


def test_no_rules_find_nothing():
    assert findings_of() == ()


# What a finding says.


def test_finding_has_all_that_its_candidate_says():
    context = SimpleNamespace(window=Window(7, 0, 1_000), rank=3, window_without_profiler_ns=None)

    [finding] = findings_of(rule(101, candidate((10, 30), title="It waits")), context=context)

    assert (finding.rule, finding.title, finding.rank, finding.step) == ("TL101", "It waits", 3, 7)
    assert (finding.cause, finding.fix) == ("some_cause", "some fix")
    assert (finding.where, finding.evidence) == (Where(1), (5, 4))


@pytest.mark.parametrize("about", ["program", "trace"])
def test_finding_is_about_what_its_rule_is_about(about):
    [finding] = findings_of(rule(1, candidate((0, 100)), about=about))

    assert finding.about == about


@pytest.mark.parametrize(("fix", "expected"), [("of here", "of here"), ("", "of the rule")])
def test_fix_is_the_rules_where_the_candidate_has_none(fix, expected):
    [finding] = findings_of(rule(1, replace(candidate((0, 100)), fix=fix), fix="of the rule"))

    assert finding.fix == expected


def test_findings_are_ordered_by_what_they_win_then_by_cost_then_by_rule():
    rules = [
        rule(3, candidate((0, 50), limit=30)),
        rule(2, candidate((100, 140), limit=30)),
        rule(4, candidate((200, 300))),
        rule(1, candidate((400, 440), limit=30)),
    ]

    assert [x.rule for x in findings_of(*rules)] == ["TL4", "TL3", "TL1", "TL2"]


# The profiler made 400 of the 500 ns idle: the window would take 600 without it.

WITH_OVERHEAD = SimpleNamespace(
    window=CONTEXT.window,
    rank=3,
    window_without_profiler_ns=600,
    profiler_overhead_ns={0: 400},
    timeline=SimpleNamespace(device_numbers=(0,)),
    idle=lambda _: union([0], [500]),
)


def test_idle_that_the_profiler_made_is_not_attributed():
    rules = (rule(101, candidate((0, 300))), rule(102, candidate((200, 450))))
    assert [
        (x.rule, x.cost_ns, x.bound_ns) for x in findings_of(*rules, context=WITH_OVERHEAD)
    ] == [("TL101", 300, 100)]


def test_what_is_lost_while_busy_is_attributed_whole():
    # 50 ns are idle, 100 are not.
    rules = (rule(101, candidate((450, 600))), rule(102, candidate((0, 100))))
    assert [(x.rule, x.bound_ns) for x in findings_of(*rules, context=WITH_OVERHEAD)] == [
        ("TL101", 150),
        ("TL102", 50),
    ]


@pytest.mark.parametrize(("length", "severity"), [(60, CRITICAL), (59, WARNING), (11, INFO)])
def test_severity_is_by_the_time_without_the_profiler(length, severity):
    [finding] = findings_of(rule(101, candidate((600, 600 + length))), context=WITH_OVERHEAD)
    assert finding.severity == severity
