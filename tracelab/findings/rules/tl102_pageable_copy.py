"""TL102: a copy between the GPU and host memory that is not pinned."""

from __future__ import annotations

import numpy as np

from tracelab.findings.claims import grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.rule import Candidate, Rule
from tracelab.findings.rules.tl101_blocking_call import launches_pageable
from tracelab.findings.wording import describe
from tracelab.intervals import Intervals, join
from tracelab.model.blocking_calls import Blocking
from tracelab.model.kernel_kinds import copy_direction

_FIX = "Pin the host memory, and do not wait for the copy."
_FIXES = {
    "h2d": "Pin the host memory and do not wait for the copy: `DataLoader(..., pin_memory=True)` "
    'or `tensor.pin_memory()`, then `batch.to("cuda", non_blocking=True)`, in a stream of its '
    "own. Make scalars and constants on the GPU (`torch.full`).",
    "d2h": "Copy into pinned memory and read it later: `host = torch.empty(x.shape, "
    "dtype=x.dtype, pin_memory=True)` once, `host.copy_(x, non_blocking=True)`, an event behind "
    "it, and `event.synchronize()` one step later.",
}


def find(facts: Context) -> list[Candidate]:
    """Copies of pageable memory, by the place that makes them."""
    timeline, trace = facts.timeline, facts.trace
    facts.call_sites(facts.pageable_launches)  # all at once, for the questions about each
    rows = [
        row
        for row in facts.pageable_copies.tolist()
        if facts.window.start_ns <= timeline.start_ns[row] < facts.window.end_ns
        and launches_pageable(facts, facts.launch_of(row))
    ]
    launches = [facts.launch_of(row) for row in rows]
    places = facts.call_sites(launches)
    calls_at = grouped(facts.blocking_calls.call_sites)
    claims = []
    for group in grouped(places).values():
        mine = [rows[i] for i in group]
        place = places[group[0]]
        length = timeline.end_ns[mine] - timeline.start_ns[mine]
        claims.append(
            Candidate(
                title=f"{describe(place, 'copy')} copies pageable memory",
                cause="pageable",
                where=where(place, count=len(mine), activity=facts.name(mine[0])),
                evidence=most_expensive(timeline.event_id[mine].tolist(), length.tolist()),
                fix=_FIXES.get(
                    copy_direction(trace.name_of(int(timeline.event_id[mine[0]]))), _FIX
                ),
                lost={
                    device: join(
                        _exposed(facts, device, mine), _idle(facts, device, calls_at.get(place, []))
                    )
                    for device in timeline.device_numbers
                },
            )
        )
    return claims


def _exposed(facts: Context, device: int, rows: list[int]) -> Intervals:
    found = facts.exposed
    mine = np.isin(found.row, rows) & (facts.timeline.device_number[found.row] == device)
    return facts.inside(found.start_ns[mine], found.end_ns[mine])


def _idle(facts: Context, device: int, calls_here: list[int]) -> Intervals:
    """What the copies' calls cost, and the synchronize that PyTorch puts behind them."""
    calls, charges = facts.blocking_calls.calls, facts.blocking_calls.attributed_idle
    here = [i for i in calls_here if calls.kind[i] != Blocking.ALLOCATION]
    mine = np.isin(charges.call_index, here) & (charges.device_number == device)
    return facts.inside(charges.start_ns[mine], charges.end_ns[mine])


RULE = Rule(
    id="TL102",
    name="a copy with pageable host memory",
    matters="The driver must move pageable memory through a buffer of its own: the copy takes "
    "several times as long, its call returns only when it is done, and while the host waits it "
    "launches nothing that could hide it. A copy stream and non_blocking do not help.",
    decides="It takes the copies whose name says Pageable, and counts the time in which they ran "
    "unhidden and the idle that their calls caused. Scalars (`.item()`) are TL101's. The bound "
    "supposes that pinned copies hide under compute; pinning alone wins the most of it.",
    before='for batch in loader:\n    x = batch.to("cuda")',
    after="loader = DataLoader(..., pin_memory=True)\nfor batch in loader:\n"
    '    x = batch.to("cuda", non_blocking=True)',
    find=find,
)
