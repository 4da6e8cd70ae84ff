"""Claims of blocking calls, by the place in the program that makes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracelab.findings.facts import Facts, at, dearest, grouped, told
from tracelab.findings.finding import Claim

# What is called where, by which API, in which operator -> title, cause, fix.
Wording = Callable[[str, str, str | None, str | None], tuple[str, str, str]]


def claims_of_calls(facts: Facts, chosen: list[int], wording: Wording) -> list[Claim]:
    """One claim for each place of some blocking calls (their numbers) that cost idle time."""
    calls, charges = facts.syncs.calls, facts.syncs.charges
    inside = (calls.start_ns < facts.window.end_ns) & (calls.end_ns > facts.window.start_ns)
    chosen = [i for i in chosen if inside[i]]
    events = calls.call[chosen].tolist()
    places = facts.places(events)
    names = [facts.trace.name_of(event) for event in events]
    claims = []
    for group in grouped(zip(names, places, strict=True)).values():
        numbers = [chosen[i] for i in group]
        mine = np.isin(charges.call, numbers)
        lost = {
            device: facts.inside(
                charges.start_ns[mine & (charges.device == device)],
                charges.end_ns[mine & (charges.device == device)],
            )
            for device in facts.timeline.devices
        }
        lost = {device: idle for device, idle in lost.items() if len(idle)}
        if not lost:
            continue
        place, api = places[group[0]], names[group[0]]
        title, cause, fix = wording(told(place, api), api, place.operator, place.call)
        claims.append(
            Claim(
                title=title,
                cause=cause,
                where=at(place, count=len(group), api=api),
                evidence=dearest(
                    [events[i] for i in group], facts.syncs.caused_idle_ns[numbers].tolist()
                ),
                fix=fix,
                lost=lost,
            )
        )
    return claims
