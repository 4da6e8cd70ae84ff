"""From claims to findings: no time is promised twice."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracelab.findings.facts import Context
from tracelab.findings.finding import CRITICAL, INFO, WARNING, Finding
from tracelab.findings.rule import Candidate, Rule
from tracelab.intervals import Intervals, intersect, join, measure, subtract, union

_CRITICAL_SHARE, _WARNING_SHARE = 0.1, 0.02  # of the window
_WORTH_TELLING = 0.001  # of the window
_WORTH_TELLING_HOPELESS = 0.02  # where nothing can be done
_NOTHING = union([], [])


def find_all(facts: Context, rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """Apply the rules to one window, in order: what one promises, a later one does not.

    Returns:
        the findings, those that can win most first.
    """
    promised: dict[int, Intervals] = {}
    spare_ns = _idle_without_profiler(facts)
    found: list[Finding] = []
    for rule in rules:
        claims = sorted(rule.find(facts), key=lambda x: -_cost(x))
        for claim in claims:
            finding = _settle(facts, rule, claim, promised, spare_ns)
            if finding is not None:
                found.append(finding)
    return tuple(sorted(found, key=lambda x: (-x.bound_ns, -x.cost_ns, x.rule)))


def _cost(claim: Candidate) -> int:
    """Time lost on the device that loses most, ns."""
    return max((measure(x) for x in claim.lost.values()), default=0)


def _idle_without_profiler(facts: Context) -> dict[int, int]:
    """The idle that each device would have without the profiler, where that is known, ns."""
    if facts.unprofiled_ns is None:
        return {}
    return {
        x: measure(facts.idle(x)) - slowed_ns for x, slowed_ns in facts.profiler_overhead_ns.items()
    }


def _settle(
    facts: Context,
    rule: Rule,
    claim: Candidate,
    promised: dict[int, Intervals],
    spare_ns: dict[int, int],
) -> Finding | None:
    """The finding of a claim; None where it is too little, or promised already."""
    cost, length = _cost(claim), facts.window.length_ns
    free = {x: subtract(lost, promised.get(x, _NOTHING)) for x, lost in claim.lost.items()}
    bounds = {}
    for device, time in free.items():
        left = measure(time)
        if device in spare_ns:  # what the profiler made idle is nobody's to win
            idle_ns = measure(intersect(time, facts.idle(device)))
            left -= max(0, idle_ns - spare_ns[device])
        bounds[device] = min(left, claim.limit_ns.get(device, left))
    bound = max(bounds.values(), default=0)
    hopeless = all(claim.limit_ns.get(device) == 0 for device in claim.lost)
    least = _WORTH_TELLING_HOPELESS if hopeless else _WORTH_TELLING
    little = cost < least * length or (bound == 0 and not hopeless)
    if little and (claim.lost or claim.severity_override is None):
        return None
    for device, time in free.items():
        won = _earliest(time, bounds[device])
        promised[device] = join(promised.get(device, _NOTHING), won)
        if device in spare_ns:
            spare_ns[device] -= measure(intersect(won, facts.idle(device)))
    return Finding(
        rule=rule.id,
        title=claim.title,
        severity=claim.severity_override or _severity(bound, facts.unprofiled_ns or length),
        rank=facts.rank,
        step=facts.window.step,
        cause=claim.cause,
        cost_ns=cost,
        bound_ns=bound,
        where=claim.where,
        evidence=claim.evidence,
        fix=claim.fix,
    )


def _earliest(time: Intervals, length_ns: int) -> Intervals:
    """The part of a set that comes first, of this length."""
    lengths = time.ends - time.starts
    begun = np.cumsum(lengths) - lengths
    ends = time.starts + np.clip(length_ns - begun, 0, lengths)
    return union(time.starts, ends)


def _severity(bound_ns: int, length_ns: int) -> str:
    """How bad a loss is, by its share of the window as it is without the profiler."""
    if bound_ns >= _CRITICAL_SHARE * length_ns:
        return CRITICAL
    return WARNING if bound_ns >= _WARNING_SHARE * length_ns else INFO
