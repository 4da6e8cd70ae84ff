"""Attribution: candidates become findings, and no time is attributed twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracelab.base.intervals import (
    Intervals,
    intersect,
    join,
    measure,
    measure_within,
    subtract,
    union,
)
from tracelab.findings.advice.repeats import have_same_sizes
from tracelab.findings.candidates import MAX_EVIDENCE, Candidate, join_by_device
from tracelab.findings.context import Context
from tracelab.findings.finding import (
    ASIDE,
    MIN_REPORTED_SHARE,
    MIN_REPORTED_SHARE_WITHOUT_FIX,
    UNMET,
    Finding,
    mark_rest,
    severity_of,
    sort_findings,
)
from tracelab.findings.places import JOINT, PLACE, edit_text
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.rule import Rule
from tracelab.model.steps import MIN_STEPS
from tracelab.model.timeline import spread_ns
from tracelab.simulate.sites import REMEDY

_NOTHING = union([], [])


class _Ledger:
    """Time that the findings so far leave for the next one, by device.

    Devices that wait at one moment count once, by `counted`. `idle_left_ns` is idle without the
    profiler, if known; `typical_left_ns` that of typical steps.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.counted = context, _NOTHING
        # What the profiler's own code cost is no finding's, nor what the recording began with.
        self.attributed = dict(context.recording_idle)
        is_known = context.window_without_profiler_ns is not None
        overhead_ns = context.profiler_overhead_ns if is_known else {}
        self.idle_left_ns = {x: measure(context.idle(x)) - ns for x, ns in overhead_ns.items()}
        self.typical_left_ns = dict(context.unprofiled_idle_ns)

    def free(self, candidate: Candidate) -> dict[int, Intervals]:
        return {
            device: subtract(lost, join(self.attributed.get(device, _NOTHING), self.counted))
            for device, lost in candidate.lost.items()
        }

    def bound_ns(self, candidate: Candidate, free: Mapping[int, Intervals]) -> dict[int, int]:
        """Limit what the candidate's fix can save of its free time, ns, by device."""
        bound_ns = {}
        for device, time in free.items():
            left_ns = measure(time)
            known_ns = [self.idle_left_ns.get(device)]
            known_ns += [self.typical_left_ns.get(device)] if candidate.is_typical else []
            most_ns = min((ns for ns in known_ns if ns is not None), default=None)
            if most_ns is not None:  # no change saves what the profiler made idle
                idle_ns = measure(intersect(time, self.context.idle(device)))
                left_ns -= max(0, idle_ns - most_ns)
            bound_ns[device] = min(left_ns, candidate.limit_ns.get(device, left_ns))
        return bound_ns

    def take(self, candidate: Candidate, taken: Mapping[int, Intervals], device: int) -> None:
        """Give a candidate this time, by device; it counts on one."""
        self.counted = join(self.counted, taken[device])
        self.attributed = join_by_device(self.attributed, taken)
        for left_ns in (self.idle_left_ns, self.typical_left_ns):
            if left_ns is self.idle_left_ns or candidate.is_typical:
                for number in left_ns:
                    time = join(taken.get(number, _NOTHING), taken[device])
                    idle_ns = measure(intersect(time, self.context.idle(number)))
                    left_ns[number] = max(0, left_ns[number] - idle_ns)


def find_all(context: Context, rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """Apply the rules to one window, in order; sort the findings as `sort_findings`.

    Each moment goes to the first rule that wants it, and there to the most expensive candidate:
    bounds of lost time add up to at most the idle and exposed time. A candidate counts on the
    device that decides the step, else on the one where it costs most.
    """
    ledger = _Ledger(context)
    findings: list[tuple[Finding, Candidate]] = []
    for rule in rules:
        for candidate in sorted(rule.find(context), key=lambda x: -_longest_ns(x.lost)):
            free = ledger.free(candidate)
            bound_ns = ledger.bound_ns(candidate, free)
            if not _is_reported(context, candidate, bound_ns):
                continue
            device = _device(context, candidate, bound_ns)
            if candidate.becomes_finding:
                finding = _finding(context, rule, candidate, device, bound_ns.get(device, 0))
                findings.append((finding, candidate))
            if device in free:
                taken = {number: _earliest(free[number], bound_ns[number]) for number in free}
                ledger.take(candidate, taken, device)
    found = _joined(context, findings)
    specific_ns = sum(x.bound_ns for x in found if not x.is_generic and x.role != ASIDE)
    late = mark_rest(found, specific_ns, sum(x.bound_ns for x in found))
    return sort_findings(late, steps_of(context), step_ns_of(context))


def steps_of(context: Context) -> int:
    """Count the steps that the bounds of a window's findings are of."""
    return max(1, len(context.typical_steps))


def step_ns_of(context: Context) -> float:
    """Measure one of these steps, without the profiler where that is known, ns."""
    return context.length_ns / steps_of(context)


def _joined(context: Context, findings: Iterable[tuple[Finding, Candidate]]) -> list[Finding]:
    groups: dict[object, list[tuple[Finding, Candidate]]] = {}
    for i, (finding, candidate) in enumerate(findings):
        remedy, edit = candidate.remedy, finding.edit
        is_whole = remedy and (REMEDY in edit if edit else not remedy.by_call_site)
        key: object = (finding.remedy, edit) if is_whole else i
        if not is_whole and PLACE in (_edit_of(candidate) or PLACE):
            # Calls of one site lose time for several reasons; without known changes, equal words
            # are one.
            where = replace(finding.where, count=0, device=None)
            key = (finding.rule, finding.remedy, edit or finding.title, where)
        groups.setdefault(key, []).append((finding, candidate))
    return [_one(context, group) for group in groups.values()]


def _one(context: Context, group: Sequence[tuple[Finding, Candidate]]) -> Finding:
    lost: Mapping[int, Intervals] = {}
    for _, candidate in group:
        lost = join_by_device(lost, candidate.lost)
    one = merge_group(context, [finding for finding, _ in group], _longest_ns(lost))
    _, largest = max(group, key=lambda pair: pair[0].bound_ns)
    return replace(one, severity=largest.severity_override or one.severity)


def merge_group(context: Context, group: Sequence[Finding], cost_ns: int) -> Finding:
    """Merge the findings of one cause: what the largest says, with the fixes and edits of all."""
    first = max(group, key=lambda finding: finding.bound_ns)
    if len(group) == 1:
        return first
    bound_ns = sum(finding.bound_ns for finding in group)
    spread_ns = (first.spread_ns or 0) * steps_of(context)
    others = (finding for finding in group if finding is not first)
    count = sum(finding.where.count for finding in group if finding.rule == first.rule)
    evidence = itertools.chain(first.evidence, *(finding.evidence for finding in others))
    fixes = {x.remedy or x.fix: x.fix for x in (first, *reversed(group), first)}
    edits = [edit for x in (first, *group) if x.edit for edit in x.edit.split(JOINT)]
    return replace(
        first,
        edit=JOINT.join(dict.fromkeys(edits)) or None,
        fix=" For the rest of it: ".join(fixes.values()),
        severity=severity_of(bound_ns, context.length_ns, spread_ns),
        cost_ns=max(cost_ns, bound_ns),  # bounds may be of several devices
        bound_ns=bound_ns,
        where=replace(first.where, count=count),
        evidence=tuple(dict.fromkeys(evidence))[:MAX_EVIDENCE],
        steps_seen=max((x.steps_seen for x in group if x.steps_seen is not None), default=None),
    )


def _is_met(context: Context, remedy: Remedy | None) -> bool:
    """Tell whether the trace shows that the fix of a remedy can be made at all of its places."""
    if remedy is None or remedy.by_call_site or not remedy.needs_same_sizes:
        return remedy is None or not remedy.is_bound
    return have_same_sizes(context, context.recognized.places[remedy.id])


def _device(context: Context, candidate: Candidate, bound_ns: Mapping[int, int]) -> int:
    decides = context.deciding_device
    if bound_ns.get(decides) or not candidate.lost:
        return decides
    return max(bound_ns, key=lambda device: (bound_ns[device], measure(candidate.lost[device])))


def _longest_ns(lost: Mapping[int, Intervals]) -> int:
    return max(map(measure, lost.values()), default=0)


def _is_reported(context: Context, candidate: Candidate, bound_ns: Mapping[int, int]) -> bool:
    if not candidate.lost:
        return candidate.severity_override is not None
    is_actionable = any(candidate.limit_ns.get(device) != 0 for device in candidate.lost)
    share = MIN_REPORTED_SHARE if is_actionable else MIN_REPORTED_SHARE_WITHOUT_FIX
    if _longest_ns(candidate.lost) < share * context.window.length_ns:
        return False
    return not is_actionable or any(bound_ns.values())


def _finding(
    context: Context, rule: Rule, candidate: Candidate, device: int, bound_ns: int
) -> Finding:
    steps = context.typical_steps
    bounds_ns = np.array([(x.start_ns, x.end_ns) for x in steps], dtype=np.int64).reshape(-1, 2).T
    lost_ns = measure_within(candidate.lost.get(device, _NOTHING), *bounds_ns)
    left_ns = np.array([x.length_ns for x in steps]) - lost_ns
    varies_ns = round(spread_ns(left_ns)) if len(steps) >= MIN_STEPS else None
    of_all_ns = (varies_ns or 0) * len(steps)
    remedy = candidate.remedy
    fix = _fix(context, rule, candidate)
    return Finding(
        rule=rule.id,
        title=(remedy and remedy.title) or candidate.title,
        severity=candidate.severity_override or severity_of(bound_ns, context.length_ns, of_all_ns),
        rank=context.rank,
        step=context.window.step,
        cause=candidate.cause,
        cost_ns=_longest_ns(candidate.lost),
        bound_ns=bound_ns,
        where=candidate.where,
        evidence=candidate.evidence,
        fix=fix.text,
        fix_short=fix.summary,
        about=rule.about,
        steps_seen=int((lost_ns > 0).sum()) if candidate.lost and steps else None,
        spread_ns=varies_ns,
        edit=edit_text(_edit_of(candidate), candidate.where),
        remedy=remedy.id if remedy else None,
        source=remedy.documented if remedy else None,
        saves_reason=None if candidate.is_possible and _is_met(context, remedy) else UNMET,
        role=candidate.role,
    )


def _edit_of(candidate: Candidate) -> str | None:
    return candidate.remedy.edit_of_finding if candidate.remedy else candidate.edit


def _fix(context: Context, rule: Rule, candidate: Candidate) -> Instead:
    of_remedy = candidate.remedy and candidate.remedy.fix_for(context.torch)
    if of_remedy:
        return of_remedy
    said_by = candidate if candidate.fix else rule
    return Instead(said_by.fix, short=said_by.fix_short)


def _earliest(time: Intervals, length_ns: int) -> Intervals:
    lengths = time.ends - time.starts
    length_before = np.cumsum(lengths) - lengths
    return union(time.starts, time.starts + np.clip(length_ns - length_before, 0, lengths))
