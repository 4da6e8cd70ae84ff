"""From candidates to findings: no time is attributed twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context
from tracelab.findings.finding import CRITICAL, INFO, WARNING, Finding
from tracelab.findings.rule import Rule
from tracelab.intervals import Intervals, intersect, join, measure, subtract, union

# Shares of the window.
_CRITICAL_SHARE, _WARNING_SHARE = 0.1, 0.02
_REPORTED_SHARE = 0.001  # less is not reported
_REPORTED_SHARE_NOT_ACTIONABLE = 0.02  # where nothing can be done
_NOTHING = union([], [])


@dataclass(frozen=True, slots=True)
class _Ledger:
    """What the findings so far leave for the next one.

    Attributes:
        attributed: device to the time that they have; nothing where it is missing.
        idle_left_ns: device to the idle, ns, that there would be without the profiler and that
            they do not have; a device is missing where that is not known.
    """

    attributed: Mapping[int, Intervals]
    idle_left_ns: Mapping[int, int]

    def free(self, candidate: Candidate) -> dict[int, Intervals]:
        """Device to the time that the candidate lost and no finding has."""
        return {
            device: subtract(lost, self.attributed.get(device, _NOTHING))
            for device, lost in candidate.lost.items()
        }

    def after(self, context: Context, taken: Mapping[int, Intervals]) -> _Ledger:
        """What is left once a finding has this time, by device."""
        attributed = {
            device: join(self.attributed.get(device, _NOTHING), time)
            for device, time in taken.items()
        }
        idle_left_ns = {
            device: self.idle_left_ns[device] - measure(intersect(time, context.idle(device)))
            for device, time in taken.items()
            if device in self.idle_left_ns
        }
        return _Ledger({**self.attributed, **attributed}, {**self.idle_left_ns, **idle_left_ns})


def find_all(context: Context, rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """Apply the rules to one window, in order.

    Each nanosecond of a device is attributed to the first rule that wants it, and there to the most
    expensive candidate.

    Returns:
        the findings, those that can win most first.
    """
    ledger = _Ledger({}, _idle_without_profiler_ns(context))
    findings: list[Finding] = []
    for rule in rules:
        for candidate in sorted(rule.find(context), key=lambda candidate: -_cost_ns(candidate)):
            free = ledger.free(candidate)
            bound_ns = _bound_ns(context, candidate, free, ledger)
            if not _is_reported(context, candidate, bound_ns):
                continue
            findings.append(_finding(context, rule, candidate, bound_ns))
            taken = {device: _earliest(time, bound_ns[device]) for device, time in free.items()}
            ledger = ledger.after(context, taken)
    return tuple(
        sorted(findings, key=lambda finding: (-finding.bound_ns, -finding.cost_ns, finding.rule))
    )


def _cost_ns(candidate: Candidate) -> int:
    """Time lost on the device that loses most, ns."""
    return max(map(measure, candidate.lost.values()), default=0)


def _idle_without_profiler_ns(context: Context) -> dict[int, int]:
    """The idle that each device would have without the profiler, where that is known, ns."""
    if context.window_without_profiler_ns is None:
        return {}
    return {
        device: measure(context.idle(device)) - overhead_ns
        for device, overhead_ns in context.profiler_overhead_ns.items()
    }


def _bound_ns(
    context: Context, candidate: Candidate, free: Mapping[int, Intervals], ledger: _Ledger
) -> dict[int, int]:
    """Device to the most that the candidate's fix can win of its free time, ns."""
    bound_ns = {}
    for device, time in free.items():
        left_ns = measure(time)
        if device in ledger.idle_left_ns:  # no change saves what the profiler made idle
            idle_ns = measure(intersect(time, context.idle(device)))
            left_ns -= max(0, idle_ns - ledger.idle_left_ns[device])
        bound_ns[device] = min(left_ns, candidate.limit_ns.get(device, left_ns))
    return bound_ns


def _is_reported(context: Context, candidate: Candidate, bound_ns: Mapping[int, int]) -> bool:
    """Whether a candidate becomes a finding: it costs enough, and earlier findings left some."""
    if not candidate.lost:
        return candidate.severity_override is not None
    is_actionable = any(candidate.limit_ns.get(device) != 0 for device in candidate.lost)
    share = _REPORTED_SHARE if is_actionable else _REPORTED_SHARE_NOT_ACTIONABLE
    if _cost_ns(candidate) < share * context.window.length_ns:
        return False
    return not is_actionable or any(bound_ns.values())


def _finding(
    context: Context, rule: Rule, candidate: Candidate, bound_ns: Mapping[int, int]
) -> Finding:
    """The finding of a candidate."""
    largest_bound_ns = max(bound_ns.values(), default=0)
    length_ns = context.window_without_profiler_ns or context.window.length_ns
    return Finding(
        rule=rule.id,
        title=candidate.title,
        severity=candidate.severity_override or _severity(largest_bound_ns, length_ns),
        rank=context.rank,
        step=context.window.step,
        cause=candidate.cause,
        cost_ns=_cost_ns(candidate),
        bound_ns=largest_bound_ns,
        where=candidate.where,
        evidence=candidate.evidence,
        fix=candidate.fix or rule.fix,
        about=rule.about,
    )


def _earliest(time: Intervals, length_ns: int) -> Intervals:
    """The part of a set that comes first, of this length."""
    lengths = time.ends - time.starts
    length_before = np.cumsum(lengths) - lengths
    ends = time.starts + np.clip(length_ns - length_before, 0, lengths)
    return union(time.starts, ends)


def _severity(bound_ns: int, length_ns: int) -> str:
    """How bad a loss is, by its share of the window as it is without the profiler."""
    if bound_ns >= _CRITICAL_SHARE * length_ns:
        return CRITICAL
    return WARNING if bound_ns >= _WARNING_SHARE * length_ns else INFO
