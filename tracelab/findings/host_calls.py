"""Claims of blocking calls, by the place in the program that makes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracelab.findings.claims import grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.rule import Candidate
from tracelab.findings.wording import describe

# What is called where, by which API, in which operator -> title, cause, fix.
Wording = Callable[[str, str, str | None, str | None], tuple[str, str, str]]


def claims_of_calls(facts: Context, chosen: list[int], wording: Wording) -> list[Candidate]:
    """One claim for each place of some blocking calls (their numbers) that cost idle time."""
    calls, charges = facts.blocking_calls.calls, facts.blocking_calls.attributed_idle
    inside = (calls.start_ns < facts.window.end_ns) & (calls.end_ns > facts.window.start_ns)
    chosen = [i for i in chosen if inside[i]]
    events = calls.event_id[chosen].tolist()
    places = facts.call_sites(events)
    names = [facts.trace.name_of(event) for event in events]
    claims = []
    # One place may block by two calls, a copy and the synchronize behind it, as `.item()` does.
    keys = [
        place if place.function or place.operator else name
        for name, place in zip(names, places, strict=True)
    ]
    for group in grouped(keys).values():
        numbers = [chosen[i] for i in group]
        mine = np.isin(charges.call_index, numbers)
        lost = facts.by_device(
            charges.device_number[mine], charges.start_ns[mine], charges.end_ns[mine]
        )
        if not lost:
            continue
        # Without the call the host is earlier by what it blocked, and by no more: where it needs
        # longer than the GPU for all else that it does, the rest of the idle stays.
        blocked = int(facts.blocking_calls.blocked_ns[numbers].sum())
        dear = max(group, key=lambda i: int(facts.blocking_calls.caused_idle_ns[chosen[i]]))
        place, api = places[dear], names[dear]
        title, cause, fix = wording(describe(place, api), api, place.operator, place.call)
        claims.append(
            Candidate(
                title=title,
                cause=cause,
                where=where(place, count=len(group), api=api),
                evidence=most_expensive(
                    [events[i] for i in group],
                    facts.blocking_calls.caused_idle_ns[numbers].tolist(),
                ),
                fix=fix,
                lost=lost,
                limit_ns=dict.fromkeys(lost, blocked),
            )
        )
    return claims
