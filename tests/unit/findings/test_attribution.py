"""From claims to findings, in a window of 1,000 ns."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelab.findings.attribution import find_all
from tracelab.findings.candidates import Candidate
from tracelab.findings.finding import CRITICAL, INFO, WARNING, Where
from tracelab.findings.rule import Rule
from tracelab.intervals import union
from tracelab.model.steps import Window

FACTS = SimpleNamespace(window=Window(None, 0, 1_000), rank=3, window_without_profiler_ns=None)


def claim(*stretches, title="", device=0, limit=None, told=None, **lost):
    """A claim of stretches (start, end) of one device; or of more, `gpu1=[(start, end)]`."""
    places = {device: stretches} | {int(name[3:]): value for name, value in lost.items()}
    return Candidate(
        title=title,
        cause="some_cause",
        where=Where(1),
        evidence=(5, 4),
        fix="some fix",
        lost={x: union(*zip(*times, strict=True)) for x, times in places.items() if times},
        limit_ns={} if limit is None else limit if isinstance(limit, dict) else {device: limit},
        severity_override=told,
    )


def rule(number, *candidates, **fields):
    return Rule(
        id=f"TL{number}", name="", matters="", decides="", find=lambda _: list(candidates), **fields
    )


def found(*rules, facts=FACTS):
    return find_all(facts, rules)


def bounds(*rules):
    return [(x.rule, x.cost_ns, x.bound_ns) for x in found(*rules)]


# No time is promised twice.


@st.composite
def random_rules(draw):
    """Rules with claims on up to three devices, as stretches of the window, with any limits."""
    stretch = st.tuples(st.integers(0, 990), st.integers(1, 300)).map(
        lambda x: (x[0], min(1_000, x[0] + x[1]))
    )
    rules = []
    for number in range(draw(st.integers(1, 4))):
        claims = []
        for _ in range(draw(st.integers(0, 3))):
            devices = draw(st.lists(st.integers(0, 2), unique=True, max_size=3))
            lost = {f"gpu{x}": draw(st.lists(stretch, min_size=1, max_size=3)) for x in devices}
            limit = {x: draw(st.integers(0, 400)) for x in devices if draw(st.booleans())}
            told = draw(st.sampled_from([None, None, INFO]))
            claims.append(claim(limit=limit, told=told, **lost))
        rules.append(rule(number, *claims))
    return rules


def lost_ticks(rules, device):
    return {
        t
        for some_rule in rules
        for some_claim in some_rule.find(None)
        for stretches in [some_claim.lost.get(device)]
        if stretches is not None
        for start, end in zip(stretches.starts.tolist(), stretches.ends.tolist(), strict=True)
        for t in range(start, end)
    }


@settings(derandomize=True, deadline=None, max_examples=200)
@given(random_rules())
def test_bounds_together_are_at_most_the_time_lost(rules):
    settled = found(*rules)

    lost = [lost_ticks(rules, device) for device in range(3)]
    assert sum(x.bound_ns for x in settled) <= sum(map(len, lost))
    for device in range(3):  # and those of one device at most what that one lost
        alone = [
            rule(
                i,
                *(
                    claim(
                        limit=c.limit_ns,
                        told=c.severity_override,
                        **{f"gpu{device}": _stretches(c, device)},
                    )
                    for c in some_rule.find(None)
                ),
            )
            for i, some_rule in enumerate(rules)
        ]
        assert sum(x.bound_ns for x in found(*alone)) <= len(lost[device])


def _stretches(some_claim, device):
    if device not in some_claim.lost:
        return []
    lost = some_claim.lost[device]
    return list(zip(lost.starts.tolist(), lost.ends.tolist(), strict=True))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(random_rules())
def test_each_bound_is_at_most_its_cost_and_the_best_come_first(rules):
    settled = found(*rules)

    assert all(0 <= x.bound_ns <= x.cost_ns <= 1_000 for x in settled)
    order = [(-x.bound_ns, -x.cost_ns, x.rule) for x in settled]
    assert order == sorted(order)


def test_earlier_rule_promises_first():
    # [0, 100) and [60, 160) have 40 in common.
    first, second = claim((0, 100)), claim((60, 160))

    assert bounds(rule(1, first), rule(2, second)) == [("TL1", 100, 100), ("TL2", 100, 60)]
    assert bounds(rule(2, second), rule(1, first)) == [("TL2", 100, 100), ("TL1", 100, 60)]


def test_dearest_claim_of_a_rule_promises_first():
    small, large = claim((0, 100), title="small"), claim((50, 250), title="large")

    assert [(x.title, x.bound_ns) for x in found(rule(1, small, large))] == [
        ("large", 200),
        ("small", 50),
    ]


def test_devices_promise_their_own_time():
    first, second = claim((0, 100)), claim((0, 100), device=1)

    assert bounds(rule(1, first), rule(2, second)) == [("TL1", 100, 100), ("TL2", 100, 100)]


def test_cost_and_bound_are_those_of_the_device_that_loses_and_wins_most():
    # GPU 0 loses 100 and can win 20 of them, GPU 1 loses 60 and can win all.
    settled = found(rule(1, claim((0, 100), gpu1=[(0, 60)], limit={0: 20})))

    assert [(x.cost_ns, x.bound_ns) for x in settled] == [(100, 60)]


def test_promised_in_full_is_no_finding():
    assert bounds(rule(1, claim((0, 100))), rule(2, claim((20, 80)))) == [("TL1", 100, 100)]


def test_hopeless_claim_promises_nothing():
    # The one that can win nothing is told, and leaves its time to the next.
    assert bounds(rule(1, claim((0, 100), limit=0)), rule(2, claim((0, 100)))) == [
        ("TL2", 100, 100),
        ("TL1", 100, 0),
    ]


# What is worth telling.


@pytest.mark.parametrize(
    ("length", "severity"),
    [(1, INFO), (19, INFO), (20, WARNING), (99, WARNING), (100, CRITICAL), (1_000, CRITICAL)],
)
def test_severity_by_share_of_the_window(length, severity):
    # 2 % of 1,000 are 20, 10 % are 100.
    assert [x.severity for x in found(rule(1, claim((0, length))))] == [severity]


def test_severity_is_that_of_the_bound_and_not_of_the_cost():
    assert [x.severity for x in found(rule(1, claim((0, 500), limit=50)))] == [WARNING]


def test_below_a_thousandth_of_the_window_nothing_is_told():
    facts = SimpleNamespace(window=Window(None, 0, 10_000), rank=0, window_without_profiler_ns=None)

    heard = [len(found(rule(1, claim((0, length))), facts=facts)) for length in (9, 10)]

    assert heard == [0, 1]


@pytest.mark.parametrize(("length", "severities"), [(19, []), (20, [INFO]), (900, [INFO])])
def test_hopeless_claim_is_told_from_two_percent_on_and_never_alarms(length, severities):
    assert [x.severity for x in found(rule(1, claim((0, length), limit=0)))] == severities


def test_claim_is_hopeless_only_if_every_device_is():
    # GPU 0 can win nothing, GPU 1 all of its 15: 1.5 % of the window.
    settled = found(rule(1, claim((0, 19), gpu1=[(0, 15)], limit={0: 0})))

    assert [(x.severity, x.cost_ns, x.bound_ns) for x in settled] == [(INFO, 19, 15)]


@pytest.mark.parametrize("severity", [INFO, WARNING, CRITICAL])
def test_claim_with_a_severity_of_its_own_is_always_told(severity):
    told = claim(title="no time at all", told=severity)

    assert [(x.title, x.severity, x.cost_ns, x.bound_ns) for x in found(rule(1, told))] == [
        ("no time at all", severity, 0, 0)
    ]


def test_claim_of_no_time_is_nothing():
    assert found(rule(1, claim())) == ()


def test_no_rules_find_nothing():
    assert found() == ()


# What a finding says.


def test_finding_has_all_that_its_claim_says():
    facts = SimpleNamespace(window=Window(7, 0, 1_000), rank=3, window_without_profiler_ns=None)

    [finding] = found(rule(101, claim((10, 30), title="It waits")), facts=facts)

    assert (finding.rule, finding.title, finding.rank, finding.step) == ("TL101", "It waits", 3, 7)
    assert (finding.cause, finding.fix) == ("some_cause", "some fix")
    assert (finding.where, finding.evidence) == (Where(1), (5, 4))


def test_findings_are_ordered_by_what_they_win_then_by_cost_then_by_rule():
    rules = [
        rule(3, claim((0, 50), limit=30)),
        rule(2, claim((100, 140), limit=30)),
        rule(4, claim((200, 300))),
        rule(1, claim((400, 440), limit=30)),
    ]

    assert [x.rule for x in found(*rules)] == ["TL4", "TL3", "TL1", "TL2"]


# The profiler made 400 of the 500 ns idle: the window would take 600 without it.

SLOWED = SimpleNamespace(
    window=FACTS.window,
    rank=3,
    window_without_profiler_ns=600,
    profiler_overhead_ns={0: 400},
    timeline=SimpleNamespace(device_numbers=(0,)),
    idle=lambda _: union([0], [500]),
)


def test_idle_that_the_profiler_made_is_not_promised():
    rules = (rule(101, claim((0, 300))), rule(102, claim((200, 450))))
    assert [(x.rule, x.cost_ns, x.bound_ns) for x in found(*rules, facts=SLOWED)] == [
        ("TL101", 300, 100)
    ]


def test_what_is_lost_while_busy_is_promised_whole():
    # 50 ns are idle, 100 are not.
    rules = (rule(101, claim((450, 600))), rule(102, claim((0, 100))))
    assert [(x.rule, x.bound_ns) for x in found(*rules, facts=SLOWED)] == [
        ("TL101", 150),
        ("TL102", 50),
    ]


@pytest.mark.parametrize(("length", "severity"), [(60, CRITICAL), (59, WARNING), (11, INFO)])
def test_severity_is_by_the_time_without_the_profiler(length, severity):
    [finding] = found(rule(101, claim((600, 600 + length))), facts=SLOWED)
    assert finding.severity == severity
