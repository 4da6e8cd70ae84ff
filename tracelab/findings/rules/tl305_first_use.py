"""TL305: costs of a first use that sit in the recording."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.allocations import (
    allocations,
    candidate_of_allocations,
    counted,
    fills_for_the_first_time,
    names_of,
    those_that_cost,
)
from tracelab.findings.candidates import Candidate, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.remedies import first_use, memory
from tracelab.findings.rule import Rule
from tracelab.intervals import Intervals, intersect, measure_within, union
from tracelab.measures.bubbles import Cause
from tracelab.model.call_sites import CallSite
from tracelab.model.trace import HOST_CALLS
from tracelab.model.wording import describe

_BY_HOST = (Cause.HOST_BLOCKED, Cause.HOST_BUSY, Cause.LAUNCH)
_ONCE = frozenset(remedy.id for remedy in first_use.ONCE)
_FIRST_USE = _ONCE - {first_use.PLAN}


def find(context: Context) -> list[Candidate]:
    """What a first use costs, and what should come once and goes on: by remedy."""
    return [*_of_remedies(context), *_of_growth(context)]


def _of_remedies(context: Context) -> list[Candidate]:
    """Idle time during the host events by which each of this rule's remedies is recognized."""
    trace = context.trace
    candidates = []
    for remedy, event_id in context.recognized.events_of:
        if RULE.id not in remedy.rules or remedy.id == memory.GROWTH:
            continue
        lost, costly_id = _idle_during(context, event_id)
        if not lost:
            continue
        name, call_site = _most_of(context, costly_id)
        is_call = trace.category[costly_id[0]] in HOST_CALLS
        candidates.append(
            Candidate(
                title=remedy.title,
                cause="planning"
                if remedy.id not in _ONCE or remedy.id == first_use.PLAN
                else "first_use",
                where=where(call_site, count=len(costly_id), api=name if is_call else None),
                evidence=most_expensive(costly_id.tolist(), trace.duration_ns[costly_id].tolist()),
                lost=lost,
                severity_override=INFO if remedy.id in _ONCE else None,
                remedy=remedy,
                is_typical=remedy.id not in _ONCE,
            )
        )
    return candidates


def _of_growth(context: Context) -> list[Candidate]:
    """The allocator's calls that do not go on in later steps."""
    own_index, _ = allocations(context)
    costly_index = those_that_cost(context, own_index)
    if not len(costly_index) or not fills_for_the_first_time(context, own_index):
        return []
    costs, names = context.blocking_calls, names_of(context, costly_index)
    top = int(np.argmax(costs.caused_idle_ns[costly_index]))
    call_site = costs.call_sites[costly_index[top]]
    remedies = context.recognized.remedies(costs.calls.event_id[costly_index], RULE.id)
    title = f"The allocator grows: {counted(names)}, most of all at "
    growth = candidate_of_allocations(
        context,
        costly_index,
        call_site,
        api=names[top],
        title=title + describe(call_site, names[top]),
        cause="first_use",
        severity_override=INFO,
        remedy=remedies[top],
    )
    return [replace(growth, is_typical=False)]


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
    decides="It takes the idle time during three kinds of host work: the first launch of each "
    "kernel in the file if it takes more than 0.2 ms, and calls that load modules; operators of "
    "cuDNN and MIOpen that keep the host busy for more than 2 ms; and allocations in the first "
    "step only or, if nothing is freed, in fewer than half of the steady steps. Planning that "
    "continues in later steps counts like any other cost; the rest is for information.",
    before="with profile() as prof:\n    train_step()  # the very first one",
    after="for _ in range(3):\n    train_step()\nwith profile() as prof:\n    train_step()",
    find=find,
)
