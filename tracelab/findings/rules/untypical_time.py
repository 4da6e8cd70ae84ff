"""TL305 and TL306: time that a typical step does not lose: costs of a first use, rare stalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, IntArray, rows_at
from tracelab.base.intervals import Intervals, intersect, measure, measure_within, subtract, union
from tracelab.findings.candidates import (
    MAX_EVIDENCE,
    Candidate,
    are_rare,
    grouped,
    join_by_device,
    most_expensive,
    where,
)
from tracelab.findings.context import Context
from tracelab.findings.finding import ASIDE, INFO, WARNING_SHARE
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import load_rule
from tracelab.measures.idle_causes import Cause
from tracelab.measures.measure import summed
from tracelab.model.steps import MIN_STEPS
from tracelab.model.trace import ABSENT, HOST_CALLS
from tracelab.model.wording import called

_BY_HOST = (Cause.HOST_BLOCKED, Cause.HOST_BUSY, Cause.LAUNCH)
_BY_HOST_OR_INPUT = (*_BY_HOST, Cause.INPUT)
_MAX_NAMED_KINDS = 2
# Of a steady step: a shorter stall is no alarm in any step.
_MIN_STEP_SHARE = 0.02
# Of a stall: another one of that length at the same place makes it typical.
_MIN_TYPICAL_SHARE = 0.5


def _first_use(context: Context) -> list[Candidate]:
    recurring = []
    for remedy, event_id in context.recognized.events_of:
        if FIRST_USE.id in remedy.rules and not remedy.is_first_use:
            lost, costly_id = _idle_during(context, event_id)
            if lost:
                recurring.append(_first_use_candidate(context, remedy, costly_id, lost, "planning"))
    return [*recurring, *_once(context)]


def _once(context: Context) -> list[Candidate]:
    """Find idle time during what comes once, whatever it is: by its largest part."""
    parts, lost = [], dict[int, Intervals]()
    for remedy, event_id in context.first_use.parts:
        idle, costly_id = _idle_during(context, event_id)
        of_part = {
            device: subtract(time, lost[device]) if device in lost else time
            for device, time in idle.items()
        }
        cost_ns = max(map(measure, of_part.values()), default=0)
        if cost_ns:
            parts.append((cost_ns, remedy, costly_id))
            lost = join_by_device(lost, idle)
    if not parts:
        return []
    parts.sort(key=lambda part: -part[0])
    [(_, remedy, costly_id), *others] = parts
    one = _first_use_candidate(context, remedy, costly_id, lost, "first_use")
    events = np.unique(np.concatenate([costly_id for _, _, costly_id in parts]))
    once = replace(
        one,
        title=title_of([remedy for _, remedy, _ in parts]),
        where=replace(one.where, count=len(events)),
        remedy=replace(remedy, title="") if others else remedy,
        severity_override=INFO,
        is_typical=False,
    )
    return [once]


def title_of(remedies: Sequence[Remedy]) -> str:
    """Name what comes once, by its largest parts: remedies, the most expensive one first."""
    if len(remedies) == 1:
        return remedies[0].title
    names = [remedy.name for remedy in remedies[:_MAX_NAMED_KINDS]]
    if len(remedies) > _MAX_NAMED_KINDS:
        names = [", ".join(names), "more"]
    return f"The recording contains costs of first use: {' and '.join(names)}"


def _first_use_candidate(
    context: Context, remedy: Remedy, costly_id: IntArray, lost: dict[int, Intervals], cause: str
) -> Candidate:
    trace = context.trace
    longest_id = costly_id[[int(np.argmax(trace.duration_ns[costly_id]))]]
    [call_site] = context.call_sites(longest_id)
    api = trace.name_of(int(longest_id[0])) if trace.category[costly_id[0]] in HOST_CALLS else None
    return Candidate(
        title=remedy.title,
        cause=cause,
        where=where(call_site, count=len(costly_id), api=api),
        evidence=most_expensive(costly_id.tolist(), trace.duration_ns[costly_id].tolist()),
        lost=lost,
        remedy=remedy,
    )


def _idle_during(context: Context, event_id: IntArray) -> tuple[dict[int, Intervals], IntArray]:
    trace = context.trace
    start_ns, end_ns = trace.start_ns[event_id], trace.end_ns[event_id]
    during = union(start_ns, end_ns)
    by_host = context.idle_by_device(context.bubbles.select(context.is_idle_by(*_BY_HOST)))
    idle = {x: intersect(by_host[x], during) for x in context.active_devices if x in by_host}
    is_costly = np.zeros(len(event_id), dtype=np.bool_)
    for time in idle.values():
        is_costly |= measure_within(time, start_ns, end_ns) > 0
    return {device: time for device, time in idle.items() if len(time)}, event_id[is_costly]


def _irregular_stalls(context: Context) -> list[Candidate]:
    if len(context.steady_steps) < MIN_STEPS:
        return []
    stalls = _irregular(context)
    # Each step has less of those of a slow start: they are no finding, and no typical cost.
    is_of_start = np.isin(stalls.next_id, context.bubbles.next_id[context.start_up.slow])
    return [
        replace(candidate, becomes_finding=becomes_finding)
        for becomes_finding in (True, False)
        for candidate in _stall_candidate(context, rows_at(stalls, is_of_start != becomes_finding))
    ]


def _stall_candidate(context: Context, stalls: _Stalls) -> list[Candidate]:
    if not len(stalls.next_id):
        return []
    device = int(stalls.device_number[np.lexsort((stalls.device_number, -stalls.length_ns))[0]])
    worst = rows_at(stalls, stalls.device_number == device)
    culprit_id = worst.culprit_id[np.argsort(-worst.length_ns, kind="stable")]
    [call_site] = context.call_sites(culprit_id[:1])
    [remedy] = context.recognized.remedies(culprit_id[:1], STALL.id)
    count = len(worst.next_id)
    is_stall = np.isin(context.bubbles.next_id, stalls.next_id)
    lost = context.idle_by_device([(is_stall, context.is_idle_by(*_BY_HOST_OR_INPUT))])
    devices = np.unique(stalls.device_number).tolist()
    what = called(call_site, context.call_name(int(culprit_id[0])))
    often = "once" if count == 1 else f"irregularly ({count} times)"
    at = f", {'' if count == 1 else 'longest '}in {what}" if what else ""
    return [
        STALL.cases["irregular"].candidate(
            where(call_site, count=count, device=device),
            {"often": often, "at": at},
            evidence=tuple(dict.fromkeys(culprit_id[culprit_id != ABSENT].tolist()))[:MAX_EVIDENCE],
            lost={number: lost.get(number, union([], [])) for number in devices},
            severity_override=INFO,
            remedy=remedy,
            is_typical=False,
            role=ASIDE,
        )
    ]


class _Stalls(Arrays):
    """The long idle times of active devices that the host caused, in steady steps.

    Each ends with an activity, ascending. The culprit is what the host did for most of it, or
    ABSENT; its step is an index into the steady steps.
    """

    device_number: NDArray[np.int32]
    next_id: Int64Array
    length_ns: Int64Array
    step_position: IndexArray
    culprit_id: Int64Array


def _irregular(context: Context) -> _Stalls:
    bubbles, steps = context.bubbles, context.steady_steps
    is_by_host = context.is_idle_by(*_BY_HOST_OR_INPUT)
    least_ns = _MIN_STEP_SHARE * float(np.median([step.length_ns for step in steps]))
    stalls = _stalls_of(context, is_by_host, _MIN_TYPICAL_SHARE * least_ns)
    names = map(context.call_name, stalls.culprit_id.tolist())
    sites = context.call_sites(stalls.culprit_id)
    steps_alike = np.zeros(len(stalls.length_ns), dtype=np.int64)
    for group in grouped(zip(stalls.device_number.tolist(), names, sites, strict=True)).values():
        steps_alike[group] = _steps_alike(stalls, group, len(steps))
    is_rare = (stalls.length_ns >= least_ns) & are_rare(steps_alike, len(steps))
    # Where each step idles as long somewhere else, the stall is no exception.
    devices, of_stall = np.unique(stalls.device_number, return_inverse=True)
    idle = bubbles.idle(bubbles.select(is_by_host))
    idle_ns = np.array([idle.within(device, steps) for device in devices.tolist()])
    if len(devices):
        longer_ns = idle_ns - np.median(idle_ns, axis=1, keepdims=True)
        longest_ns = _MIN_TYPICAL_SHARE * stalls.length_ns
        is_rare &= longer_ns[of_stall, stalls.step_position] >= longest_ns
    is_inside = context.is_inside(*bubbles.lasts_ns)
    is_rare &= np.isin(stalls.next_id, bubbles.next_id[is_inside])
    is_rare &= ~np.isin(stalls.next_id, bubbles.next_id[context.start_up.not_ahead])
    return rows_at(stalls, is_rare)


def _stalls_of(context: Context, is_by_host: BoolArray, least_ns: float) -> _Stalls:
    bubbles, steps = context.bubbles, context.steady_steps
    piece_ns = np.where(is_by_host, bubbles.end_ns - bubbles.start_ns, 0)
    total_ns, longest = bubbles.sums(piece_ns), bubbles.last_longest(piece_ns)
    is_active = np.isin(bubbles.device_number, context.active_devices)
    row = np.flatnonzero((total_ns > 0) & (bubbles.next_id != ABSENT) & is_active)
    next_id, stall_index = np.unique(bubbles.next_id[row], return_inverse=True)
    length_ns = summed(stall_index, total_ns[row], len(next_id))
    by_length = np.argsort(piece_ns[longest[row]], kind="stable")
    row_of_stall = np.zeros(len(next_id), dtype=np.intp)
    row_of_stall[stall_index[by_length]] = row[by_length]  # the last one assigned is the longest
    piece = longest[row_of_stall]
    middle_ns = (bubbles.start_ns[piece] + bubbles.end_ns[piece]) // 2
    step_position = np.searchsorted([step.start_ns for step in steps], middle_ns, "right") - 1
    ends_ns = np.array([step.end_ns for step in steps])
    is_stall = (length_ns >= least_ns) & (step_position >= 0) & (middle_ns < ends_ns[step_position])
    row_of_stall, piece = row_of_stall[is_stall], piece[is_stall]
    return _Stalls(
        device_number=bubbles.device_number[row_of_stall],
        next_id=next_id[is_stall],
        length_ns=length_ns[is_stall],
        step_position=step_position[is_stall],
        culprit_id=context.idle_culprits.look_up((row_of_stall, piece)),
    )


def _steps_alike(stalls: _Stalls, group: list[int], steps: int) -> IndexArray:
    """intp[group], in how many steps a stall of a group is at least half as long as each of it."""
    longest_ns = np.zeros(steps, dtype=np.int64)
    np.maximum.at(longest_ns, stalls.step_position[group], stalls.length_ns[group])
    longest_ns.sort()
    return steps - np.searchsorted(longest_ns, _MIN_TYPICAL_SHARE * stalls.length_ns[group])


FIRST_USE = load_rule("TL305", _first_use)
STALL = load_rule("TL306", _irregular_stalls)


def recording_start(context: Context) -> str:
    """Describe idle time at the start of the recording, from 2 % of the window on; else ""."""
    device, length_ns = context.deciding_device, context.window.length_ns
    start_up = context.start_up
    at_start = context.idle_by_device([(start_up.not_ahead, start_up.by_host)])
    idle_ns = measure(at_start.get(device, union([], [])))
    if idle_ns == 0 or idle_ns < WARNING_SHARE * length_ns:
        return ""
    return (
        f"For {100 * idle_ns / length_ns:.1f} % of the time GPU {device} is idle because the "
        "recording had just begun and the CPU had not run ahead yet: no finding is about that."
    )
