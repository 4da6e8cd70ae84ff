"""From candidates to findings, in a window of 1,000 ns."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from tests.examples import examples
from tracelab.base.intervals import union
from tracelab.findings.attribution import find_all
from tracelab.findings.candidates import Candidate
from tracelab.findings.finding import CRITICAL, INFO, WARNING, Where, is_worth_showing
from tracelab.findings.rule import Rule
from tracelab.model.steps import Window

# Of the devices, GPU 0 decides how long a step takes; nothing is known of steps.
WINDOW = Window(None, 0, 1_000)


def context_of(**fields):
    """What the attribution looks at."""
    known = {"window": WINDOW, "rank": 3, "deciding_device": 0, "typical_steps": ()}
    without_profiler = {"window_without_profiler_ns": None, "unprofiled_idle_ns": {}}
    context = SimpleNamespace(**{**known, **without_profiler, "recording_idle": {}, **fields})
    context.length_ns = context.window_without_profiler_ns or context.window.length_ns
    return context


CONTEXT = context_of()


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


@examples(300)
@given(random_rules(), st.integers(0, 2))
def test_bounds_together_are_at_most_the_window_and_what_each_device_lost(rules, decides):
    findings = find_all(context_of(deciding_device=decides), rules)

    lost = [lost_ticks(rules, device) for device in range(3)]
    assert sum(x.bound_ns for x in findings) <= len(set.union(*lost)) <= WINDOW.length_ns
    # A finding counts on the device that decides wherever that has some of its time left.
    if not any(lost[device] for device in range(3) if device != decides):
        assert sum(x.bound_ns for x in findings) <= len(lost[decides])


@examples(200)
@given(random_rules())
def test_each_bound_is_at_most_its_cost_and_the_best_come_first(rules):
    findings = findings_of(*rules)

    assert all(0 <= x.bound_ns <= x.cost_ns <= 1_000 for x in findings)
    is_worth = [is_worth_showing(x, x.bound_ns / 1_000, x.cost_ns / 1_000) for x in findings]
    assert is_worth == sorted(is_worth, reverse=True)
    order = [(x.severity == INFO, -x.bound_ns, -x.cost_ns, x.rule) for x in findings if x.bound_ns]
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


def test_a_moment_counts_once_whichever_devices_wait():
    # GPU 1 waits from 60 to 160, of which GPU 0 waits until 100 for something else.
    first, second = candidate((0, 100)), candidate((60, 160), device=1)

    assert bounds(rule(1, first), rule(2, second)) == [("TL1", 100, 100), ("TL2", 100, 60)]


def test_what_a_finding_has_on_other_devices_is_no_other_findings():
    # Both GPUs wait for the first, at different times; the second wants GPU 1's again.
    first, second = candidate((0, 100), gpu1=[(200, 300)]), candidate((200, 310), device=1)

    assert bounds(rule(1, first), rule(2, second)) == [("TL1", 100, 100), ("TL2", 110, 10)]


def test_the_device_that_decides_counts_and_cost_is_of_the_one_that_loses_most():
    # GPU 0 decides and loses 60; GPU 1 loses 100.
    some = rule(1, candidate((0, 60), gpu1=[(0, 100)]))
    assert bounds(some) == [("TL1", 100, 60)]
    on_other = find_all(context_of(deciding_device=1), [some])
    assert [x.bound_ns for x in on_other] == [100]


def test_where_the_device_that_decides_loses_nothing_the_one_that_loses_most_counts():
    assert bounds(rule(1, candidate(gpu1=[(0, 30)], gpu2=[(0, 50)]))) == [("TL1", 50, 50)]


def test_attributed_in_full_is_no_finding():
    assert bounds(rule(1, candidate((0, 100))), rule(2, candidate((20, 80)))) == [("TL1", 100, 100)]


def test_what_is_said_in_the_same_words_and_has_no_known_change_is_one():
    # Of one call 100 was launched late, which alarms nobody, and 60 had nothing to overlap with.
    late, needed = candidate((0, 100), severity=INFO), candidate((200, 260), limit=0)

    [finding] = findings_of(rule(1, late, needed))

    assert (finding.cost_ns, finding.bound_ns, finding.severity) == (160, 100, INFO)


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
    context = context_of(window=Window(None, 0, 10_000))

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


def test_the_profilers_idle_is_no_findings():
    context = context_of(recording_idle={0: union([20], [50])})
    [found] = findings_of(rule(1, candidate((0, 100))), context=context)
    assert (found.cost_ns, found.bound_ns) == (100, 70)


# Ten steps of 100 ns, each longer than that by these ns.


def stepped(*longer_ns):
    steps = tuple(Window(i, 100 * i, 100 * i + 100 + x) for i, x in enumerate(longer_ns))
    return context_of(typical_steps=steps)


@pytest.mark.parametrize(
    ("longer_ns", "severity"),
    [
        ([0] * 10, WARNING),
        ([0] * 8 + [-50, 50], WARNING),  # two steps that differ make no spread
        ([-1] * 5 + [1] * 5, WARNING),  # all are 1 ns from the median: 2 ns, below 2.5
        ([-2] * 5 + [2] * 5, INFO),  # 4 ns
    ],
)
def test_an_alarm_is_beyond_the_spread_of_the_steps(longer_ns, severity):
    # The finding costs 25 of 1,000 ns, 2 or 3 in each step.
    lost = [(100 * i + 10, 100 * i + 12 + i % 2) for i in range(10)]
    longer_ns = [x + i % 2 for i, x in enumerate(longer_ns)]
    found = findings_of(rule(1, candidate(*lost)), context=stepped(*longer_ns))
    assert [(x.bound_ns, x.severity, x.steps_seen) for x in found] == [(25, severity, 10)]


def test_what_differs_because_of_the_finding_is_no_spread():
    # It costs nothing in the even steps and 10 ns in the odd ones, which are longer by it.
    lost = [(100 * i, 100 * i + 10) for i in range(1, 10, 2)]
    found = findings_of(rule(1, candidate(*lost)), context=stepped(*[0, 10] * 5))
    assert [(x.bound_ns, x.severity, x.steps_seen) for x in found] == [(50, WARNING, 5)]


@pytest.mark.parametrize(("count", "severity"), [(2, WARNING), (3, INFO)])
def test_two_steps_have_no_spread(count, severity):
    context = stepped(*[-40, 40, 0][:count])
    [found] = findings_of(rule(1, candidate((0, 25))), context=context)
    assert (found.severity, found.steps_seen) == (severity, 1)


def test_what_costs_a_tenth_is_critical_whatever_the_spread():
    [found] = findings_of(rule(1, candidate((0, 100))), context=stepped(*[-40, 40] * 5))
    assert found.severity == CRITICAL


def test_steps_are_counted_in_which_it_costs_time_on_the_device_that_counts():
    # In the first step GPU 0, in the third GPU 1: GPU 0 decides.
    found = findings_of(rule(1, candidate((10, 90), gpu1=[(210, 290)])), context=stepped(0, 0, 0))
    assert [x.steps_seen for x in found] == [1]


def test_without_steady_steps_nobody_knows_in_how_many():
    assert [x.steps_seen for x in findings_of(rule(1, candidate((0, 100))))] == [None]


# What a finding says.


def test_finding_has_all_that_its_candidate_says():
    context = context_of(window=Window(7, 0, 1_000))

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

WITH_OVERHEAD = context_of(
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


# Of the 500 ns idle, 200 would be left without the profiler, 120 of them in typical steps.

WITH_TYPICAL = context_of(
    window_without_profiler_ns=700,
    profiler_overhead_ns={0: 300},
    unprofiled_idle_ns={0: 120},
    timeline=SimpleNamespace(device_numbers=(0,)),
    idle=lambda _: union([0], [500]),
)


def test_typical_findings_have_no_more_idle_than_typical_steps():
    rules = (rule(101, candidate((0, 100))), rule(102, candidate((200, 300), (600, 650))))
    assert [(x.rule, x.bound_ns) for x in findings_of(*rules, context=WITH_TYPICAL)] == [
        ("TL101", 100),
        ("TL102", 70),  # 20 idle, and 50 beside work
    ]


def test_what_is_not_typical_has_the_rest_of_the_idle_time():
    once = replace(candidate((0, 150)), is_typical=False)
    rules = (rule(306, once), rule(101, candidate((200, 300))))
    assert [(x.rule, x.bound_ns) for x in findings_of(*rules, context=WITH_TYPICAL)] == [
        ("TL306", 150),
        ("TL101", 50),  # of 200
    ]


def test_where_the_profiler_hardly_slows_typical_steps_bound_as_well():
    context = context_of(
        unprofiled_idle_ns={0: 120},
        timeline=SimpleNamespace(device_numbers=(0,)),
        idle=lambda _: union([0], [500]),
    )
    rules = (rule(101, candidate((0, 100))), rule(102, candidate((200, 300))))
    assert [(x.rule, x.bound_ns) for x in findings_of(*rules, context=context)] == [
        ("TL101", 100),
        ("TL102", 20),
    ]


def test_without_idle_in_typical_steps_there_is_nothing_to_report():
    context = context_of(unprofiled_idle_ns={0: 0}, idle=lambda _: union([0], [500]))
    assert findings_of(rule(101, candidate((0, 100))), context=context) == ()


def test_time_of_what_is_not_reported_is_nobodys():
    silent = replace(candidate((0, 150)), becomes_finding=False)
    rules = (rule(306, silent), rule(101, candidate((100, 300))))
    assert [(x.rule, x.cost_ns, x.bound_ns) for x in findings_of(*rules)] == [("TL101", 200, 150)]
