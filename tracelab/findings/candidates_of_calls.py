"""Candidates of blocking calls, by call site."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import Candidate, grouped, key_of, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.host_needs import is_size, with_moves
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.same_sizes import have_same_sizes
from tracelab.model.wording import called

# What is called -> title, cause, fix.
Wording = Callable[[str], tuple[str, str, Instead]]


def candidates_of_calls(
    context: Context, is_chosen: NDArray[np.bool_], wording: Wording, edit: str, rule_id: str
) -> list[Candidate]:
    """One candidate for each call site, or remedy, of some blocking calls that cost idle time.

    Args:
        context: the window.
        is_chosen: bool[blocking calls].
        wording: what to say of a call site.
        edit: as in `Candidate`.
        rule_id: of the rule that they are for.
    """
    costs = context.blocking_calls
    calls, idle = costs.calls, costs.attributed_idle
    is_here = np.zeros(len(calls), dtype=np.bool_)
    is_here[idle.call_index[context.is_inside(idle.start_ns, idle.end_ns)]] = True
    chosen_index = np.flatnonzero(is_chosen & is_here)
    names = [context.trace.name_of(event_id) for event_id in calls.event_id[chosen_index].tolist()]
    call_sites = [costs.call_sites[index] for index in chosen_index.tolist()]
    remedies = context.recognized.remedies(calls.event_id[chosen_index], rule_id)
    # One call site may block by two calls, a copy and the synchronize behind it, as `.item()` does.
    keys = [
        key_of(remedy, call_site if call_site.function or call_site.operator else name)
        for name, call_site, remedy in zip(names, call_sites, remedies, strict=True)
    ]
    candidates = []
    for group in grouped(keys).values():
        call_index = chosen_index[group]
        is_caused = np.isin(idle.call_index, call_index)
        lost = context.by_device(
            idle.device_number[is_caused], idle.start_ns[is_caused], idle.end_ns[is_caused]
        )
        if not lost:
            continue
        # Without the call the host is earlier by what it blocked, and by no more: where it needs
        # longer than the GPU for all else that it does, the rest of the idle stays.
        blocked_ns = int(costs.blocked_ns[call_index].sum())
        caused_idle_ns = costs.caused_idle_ns[call_index]
        top = group[int(np.argmax(caused_idle_ns))]
        call_site, api = call_sites[top], names[top]
        title, cause, fix = wording(called(call_site, api))
        moves = with_moves(fix, context.host_needs[call_index])
        candidates.append(
            Candidate(
                title=title,
                cause=cause,
                where=where(call_site, count=len(group), api=api),
                evidence=most_expensive(
                    calls.event_id[call_index].tolist(), caused_idle_ns.tolist()
                ),
                fix=moves.text,
                fix_short=moves.short,
                lost=lost,
                limit_ns=dict.fromkeys(lost, blocked_ns),
                edit=edit,
                remedy=remedies[top],
                is_possible=is_possible(context, call_index.tolist(), remedies[top]),
            )
        )
    return candidates


def is_possible(context: Context, call_index: Sequence[int], remedy: Remedy | None) -> bool:
    """Tell whether the trace shows that the host can do without the values of some blocking calls.

    It cannot without the size of a result, unless that is the same in every step.

    Args:
        context: the window.
        call_index: index of the blocking calls.
        remedy: what to write instead, where a pitfall is recognized.
    """
    costs = context.blocking_calls
    if remedy is not None and not (remedy.needs_same_sizes and remedy.by_call_site):
        return True
    if not is_size(context.host_needs[call_index]):
        return True
    sites = {costs.call_sites[index] for index in call_index}
    at_sites = [index for index, site in enumerate(costs.call_sites) if site in sites]
    return have_same_sizes(context, costs.calls.event_id[at_sites])
