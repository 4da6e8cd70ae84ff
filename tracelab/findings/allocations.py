"""The allocator's calls that go on in every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Intervals, measure
from tracelab.findings.candidates import Candidate, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.blocking_calls import Blocking
from tracelab.model.program.call_sites import CallSite


def allocations(context: Context) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The file's allocator calls that go on, as indices of blocking calls.

    Returns:
        those that blocked at most their own thread, and those that stalled other threads.
    """
    call_index = np.flatnonzero(context.blocking_calls.calls.kind == Blocking.ALLOCATION)
    stalls_others = np.isin(call_index, context.graph.host.stalled_calls.allocation_index)
    goes_on = ~context.first_use.holds(context.blocking_calls.calls.event_id[call_index])
    return call_index[~stalls_others & goes_on], call_index[stalls_others]


def names_of(context: Context, call_index: NDArray[np.intp]) -> list[str]:
    """The name of each of these blocking calls."""
    event_ids = context.blocking_calls.calls.event_id[call_index].tolist()
    return [context.trace.name_of(event_id) for event_id in event_ids]


def idle_of(context: Context, call_index: NDArray[np.intp]) -> dict[int, Intervals]:
    """Device to the idle of the window that these calls caused."""
    idle = context.blocking_calls.attributed_idle
    is_caused = np.isin(idle.call_index, call_index)
    return context.by_device(
        idle.device_number[is_caused], idle.start_ns[is_caused], idle.end_ns[is_caused]
    )


def those_that_cost(context: Context, call_index: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of these calls that caused idle in the window."""
    idle = context.blocking_calls.attributed_idle
    is_inside = context.is_inside(idle.start_ns, idle.end_ns)
    return call_index[np.isin(call_index, idle.call_index[is_inside])]


def candidate_of_allocations(
    context: Context,
    call_index: NDArray[np.intp],
    call_site: CallSite,
    *,
    api: str,
    title: str,
    cause: str,
    fix: Instead,
    severity_override: str | None = None,
    edit: str | None = None,
    remedy: Remedy | None = None,
) -> Candidate:
    """The candidate of these calls, which cost no more than they blocked."""
    costs, lost = context.blocking_calls, idle_of(context, call_index)
    blocked_ns = int(costs.blocked_ns[call_index].sum())
    return Candidate(
        title=title,
        cause=cause,
        where=where(call_site, count=len(call_index), api=api),
        evidence=most_expensive(
            costs.calls.event_id[call_index].tolist(), costs.caused_idle_ns[call_index].tolist()
        ),
        fix=fix.text,
        fix_short=fix.short,
        lost=lost,
        limit_ns={device: min(blocked_ns, measure(time)) for device, time in lost.items()},
        severity_override=severity_override,
        edit=edit,
        remedy=remedy,
    )
