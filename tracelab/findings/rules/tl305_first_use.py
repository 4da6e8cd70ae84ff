"""TL305: costs of a first use that sit in the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import (
    Intervals,
    intersect,
    join,
    measure,
    measure_within,
    subtract,
    union,
)
from tracelab.findings.candidates import Candidate, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.measures.idle_causes import Cause
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import HOST_CALLS

_BY_HOST = (Cause.HOST_BLOCKED, Cause.HOST_BUSY, Cause.LAUNCH)
_MAX_NAMED_KINDS = 2


def find(context: Context) -> list[Candidate]:
    """Find what should come once and recurs, by remedy; and all that comes once, as one."""
    return [*_going_on(context), *_once(context)]


def _going_on(context: Context) -> list[Candidate]:
    """Idle time during the host events by which each remedy of what goes on is recognized."""
    candidates = []
    for remedy, event_id in context.recognized.events_of:
        if RULE.id in remedy.rules and not remedy.is_first_use:
            lost, costly_id = _idle_during(context, event_id)
            if lost:
                candidates.append(_candidate(context, remedy, costly_id, lost, "planning"))
    return candidates


def _once(context: Context) -> list[Candidate]:
    """Idle time during what comes once, whatever it is: by its largest part."""
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
            lost |= {device: join(time, lost.get(device, time)) for device, time in idle.items()}
    if not parts:
        return []
    parts.sort(key=lambda part: -part[0])
    [(_, remedy, costly_id), *others] = parts
    one = _candidate(context, remedy, costly_id, lost, "first_use")
    events = np.unique(np.concatenate([costly_id for _, _, costly_id in parts]))
    return [
        replace(
            one,
            title=title_of([remedy for _, remedy, _ in parts]),
            where=replace(one.where, count=len(events)),
            remedy=replace(remedy, title="") if others else remedy,
            severity_override=INFO,
            is_typical=False,
        )
    ]


def title_of(remedies: Sequence[Remedy]) -> str:
    """The title of what comes once, by its largest parts.

    Args:
        remedies: of each kind of first use, the most expensive one first.
    """
    if len(remedies) == 1:
        return remedies[0].title
    names = [remedy.name for remedy in remedies[:_MAX_NAMED_KINDS]]
    if len(remedies) > _MAX_NAMED_KINDS:
        names = [", ".join(names), "more"]
    return f"The recording contains costs of first use: {' and '.join(names)}"


def _candidate(
    context: Context,
    remedy: Remedy,
    costly_id: NDArray[np.integer[Any]],
    lost: dict[int, Intervals],
    cause: str,
) -> Candidate:
    """The candidate of a remedy's events that cost idle time."""
    trace = context.trace
    name, call_site = _most_of(context, costly_id)
    is_call = trace.category[costly_id[0]] in HOST_CALLS
    return Candidate(
        title=remedy.title,
        cause=cause,
        where=where(call_site, count=len(costly_id), api=name if is_call else None),
        evidence=most_expensive(costly_id.tolist(), trace.duration_ns[costly_id].tolist()),
        lost=lost,
        remedy=remedy,
    )


def _idle_during(
    context: Context, event_id: NDArray[np.integer[Any]]
) -> tuple[dict[int, Intervals], NDArray[np.integer[Any]]]:
    """Device to its idle during some events of the host, and those events that cost any."""
    trace = context.trace
    start_ns, end_ns = trace.start_ns[event_id], trace.end_ns[event_id]
    during = union(start_ns, end_ns)
    idle = {
        device: intersect(context.idle(device, context.is_idle_by(*_BY_HOST)), during)
        for device in context.active_devices
    }
    is_costly = np.zeros(len(event_id), dtype=np.bool_)
    for time in idle.values():
        is_costly |= measure_within(time, start_ns, end_ns) > 0
    return {device: time for device, time in idle.items() if len(time)}, event_id[is_costly]


def _most_of(context: Context, call_id: NDArray[np.integer[Any]]) -> tuple[str, CallSite]:
    """The name and call site of the longest of some calls."""
    longest_id = call_id[[int(np.argmax(context.trace.duration_ns[call_id]))]]
    [call_site] = context.call_sites(longest_id)
    return context.trace.name_of(int(longest_id[0])), call_site


RULE = Rule(
    id="TL305",
    name="the cost of a first use, in the recorded steps",
    matters="The first launch of a kernel loads its code, cuDNN plans an operator for each new "
    "shape, and the allocator requests memory from CUDA that it then keeps. A warmed-up program "
    "does none of this, so such a recording does not show a typical step.",
    decides="It takes the idle time during CPU work that a program does once: the first launch of "
    "each kernel in the file if it takes more than 0.2 ms, and calls that load modules; the first "
    "matrix product and the first collective; operators of cuDNN and MIOpen that keep the CPU "
    "busy for more than 2 ms; trials of cuDNN's algorithms; and allocations in the first step "
    "only or, if nothing is freed, in fewer than half of the steady steps. All of it is one "
    "`info` finding, and the savings of other findings leave it out. A pause without recorded "
    "events does not belong to it. Work that continues in later steps counts like any other cost. "
    "If most of a trace without steps is first use, nothing is predicted, and TL301 reports "
    "nothing.",
    before="with profile() as prof:\n    train_step()  # the very first one",
    after="for _ in range(3):\n    train_step()\nwith profile() as prof:\n    train_step()",
    find=find,
)
