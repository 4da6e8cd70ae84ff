"""Claims of streams that took turns though there was room for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracelab.findings.claims import grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Candidate
from tracelab.findings.wording import describe
from tracelab.intervals import measure
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT

# The first kernel that was held, the last one that ran, what was called where -> title, fix.
Wording = Callable[[str, str, str], tuple[str, str]]


def claims_of_turns(
    facts: Context, obstacles: tuple[OverlapBlocker, ...], wording: Wording, no_room: str
) -> list[Candidate]:
    """One claim for each place at which streams were held, of these obstacles."""
    found, timeline = facts.serialized_streams, facts.timeline
    inside = (found.start_ns < facts.window.end_ns) & (found.end_ns > facts.window.start_ns)
    chosen = np.flatnonzero(np.isin(found.blocker, obstacles) & inside)
    places = facts.call_sites(_call(facts, int(i)) for i in chosen)
    keys = [
        (OverlapBlocker(int(found.blocker[i])), place, facts.name(int(found.other_row[i])))
        for i, place in zip(chosen, places, strict=True)
    ]
    # What a stream does beside one kernel it cannot do beside another as well.
    left = {x: _limit(facts, x, chosen) for x in timeline.device_numbers}
    claims = []
    for (obstacle, place, name), group in grouped(keys).items():
        mine = chosen[group]
        devices = timeline.device_number[found.row[mine]]
        held = facts.name(int(found.row[mine[0]]))
        room = _there_is_room(facts, int(found.row[mine[0]]), int(found.other_row[mine[0]]))
        api = facts.call_name(_call(facts, int(mine[0])))
        title, fix = wording(held, name, describe(place, api))
        length = found.end_ns[mine] - found.start_ns[mine]
        limits = {x: min(left[x], _limit(facts, x, mine)) for x in np.unique(devices).tolist()}
        if room:
            left |= {x: left[x] - limit for x, limit in limits.items()}
        claims.append(
            Candidate(
                title=title,
                cause=obstacle.name.lower() if room else OverlapBlocker.NO_FREE_SM.name.lower(),
                where=where(place, count=len(mine), activity=held),
                evidence=most_expensive(
                    timeline.event_id[found.row[mine]].tolist(), length.tolist()
                ),
                fix=fix if room else no_room,
                # Side by side they would take as long: nothing is lost.
                lost=facts.by_device(devices, found.start_ns[mine], found.end_ns[mine])
                if room
                else {},
                limit_ns=limits,
                severity_override=None if room else INFO,
            )
        )
    return claims


def _call(facts: Context, turn: int) -> int:
    """The blocking call behind a turn, else the launch of what was held."""
    call = int(facts.serialized_streams.blocking_call_id[turn])
    return call if call != ABSENT else facts.launch_of(int(facts.serialized_streams.row[turn]))


def _limit(facts: Context, device: int, turns: Any) -> int:
    """What these streams side by side can win: no more than all but the busiest compute."""
    found, timeline = facts.serialized_streams, facts.timeline
    turns = turns[timeline.device_number[found.row[turns]] == device]
    lanes = np.unique(
        timeline.stream_index[np.concatenate((found.row[turns], found.other_row[turns]))]
    )
    compute = timeline.select(device=device, kind=Kind.COMPUTE)
    each = [
        measure(facts.inside(timeline.start_ns[x], timeline.end_ns[x]))
        for x in (compute & (timeline.stream_index == lane) for lane in lanes.tolist())
    ]
    return min(int(found.bound_ns[turns].sum()), sum(each) - max(each, default=0))


def _there_is_room(facts: Context, row: int, other: int) -> bool:
    """Whether two kernels fit on the multiprocessors side by side, as far as the file says."""
    kernels = [int(facts.timeline.event_id[kernel_row]) for kernel_row in (row, other)]
    # Kineto writes down how many of a kernel's blocks each multiprocessor gets.
    blocks = facts.blocks_per_sm(kernels)
    return all(kernel in blocks for kernel in kernels) and sum(blocks[x] for x in kernels) <= 1
