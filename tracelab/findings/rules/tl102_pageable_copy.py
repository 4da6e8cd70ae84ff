"""TL102: a copy between the GPU and host memory that is not pinned."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Intervals, join, measure
from tracelab.findings.candidates import Candidate, grouped, key_of, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.findings.rules.tl101_blocking_call import is_possible
from tracelab.model.blocking_calls import Blocking
from tracelab.model.program.call_sites import CallSite
from tracelab.model.wording import called, capitalize_start

_FIX = Instead(
    "Make few numbers on the GPU (`torch.full`, `device=...`), or once before the loop; else pin "
    "the memory, and do not wait for the copy.",
    short="Pin the memory (`x.pin_memory()`) and copy with `non_blocking=True`; create a few "
    'numbers on the GPU: `torch.full((), value, device="cuda")`.',
)


def find(context: Context) -> list[Candidate]:
    """Copies of pageable memory, by the call site that makes them."""
    timeline = context.timeline
    rows, call_sites = _copies(context)
    calls_at = grouped(context.blocking_calls.call_sites)
    remedies = context.recognized.remedies(timeline.launch_id[rows], RULE.id)
    candidates = []
    for group in grouped(map(key_of, remedies, call_sites)).values():
        copy_row, call_site = rows[group], call_sites[group[0]]
        calls = chain.from_iterable(
            calls_at.get(site, []) for site in dict.fromkeys(call_sites[i] for i in group)
        )
        call_index = _calls_of_copies(context, list(calls), rows, group)
        blocked_ns = int(context.blocking_calls.blocked_ns[call_index].sum())
        exposed = {
            device: _exposed(context, device, copy_row) for device in timeline.device_numbers
        }
        idle = context.idle_after(np.array(call_index, dtype=np.intp))
        length_ns = timeline.end_ns[copy_row] - timeline.start_ns[copy_row]
        candidates.append(
            Candidate(
                title=f"{capitalize_start(called(call_site, 'copy'))} copies pageable memory",
                cause="pageable",
                where=where(
                    call_site, count=len(copy_row), activity=context.kernel_name(int(copy_row[0]))
                ),
                evidence=most_expensive(timeline.event_id[copy_row].tolist(), length_ns.tolist()),
                fix=_FIX.text,
                fix_short=_FIX.short,
                lost={
                    device: join(time, idle[device]) if device in idle else time
                    for device, time in exposed.items()
                },
                # What the host does between these calls is not theirs.
                limit_ns={device: blocked_ns + measure(time) for device, time in exposed.items()},
                edit="pin:{place}",
                remedy=remedies[group[0]],
                is_possible=is_possible(context, call_index, remedies[group[0]]),
            )
        )
    return candidates


def _copies(context: Context) -> tuple[NDArray[np.intp], tuple[CallSite, ...]]:
    """Timeline rows of the pageable copies that cost time in the window, and their call sites.

    They begin in it, or their call causes idle in it.
    """
    timeline, window = context.timeline, context.window
    rows = context.pageable_copy_row
    start_ns = timeline.start_ns[rows]
    is_here = (start_ns >= window.start_ns) & (start_ns < window.end_ns)
    costly_id = context.blocking_calls.calls.event_id[context.has_caused_idle]
    is_here |= np.isin(timeline.launch_id[rows], costly_id)
    rows = rows[is_here]
    launch_id = timeline.launch_id[rows]
    call_sites = context.call_sites(launch_id)
    chosen_index = np.flatnonzero(context.copies_pageable_memory(launch_id, call_sites))
    return rows[chosen_index], tuple(call_sites[index] for index in chosen_index.tolist())


def _exposed(context: Context, device: int, rows: NDArray[np.intp]) -> Intervals:
    """The time in which these copies were exposed on a device."""
    exposed = context.exposed
    is_chosen = np.isin(exposed.row, rows)
    is_chosen &= context.timeline.device_number[exposed.row] == device
    return context.inside(exposed.start_ns[is_chosen], exposed.end_ns[is_chosen])


def _calls_of_copies(
    context: Context, call_index: list[int], rows: NDArray[np.intp], group: list[int]
) -> list[int]:
    """The calls of some copies that cost time in the window, and the synchronize behind each.

    Args:
        context: the window.
        call_index: the blocking calls of the copies' call sites.
        rows: intp[k], timeline rows of all copies.
        group: which of them are meant: others of the same call sites may have another fix.
    """
    costs, trace = context.blocking_calls, context.trace
    copied_ns = trace.start_ns[context.timeline.launch_id[rows]]
    order = np.argsort(copied_ns, kind="stable")
    before = np.searchsorted(copied_ns[order], costs.calls.start_ns[call_index], side="right") - 1
    is_own = (before >= 0) & np.isin(order[before], group)
    is_own &= context.has_caused_idle[call_index]
    is_own &= costs.calls.kind[call_index] != Blocking.ALLOCATION
    return [index for index, own in zip(call_index, is_own.tolist(), strict=True) if own]


RULE = Rule(
    id="TL102",
    name="a copy with pageable memory",
    matters="The driver must copy pageable memory through a staging buffer: the copy takes "
    "several times as long, its call returns only when it is done, and the CPU launches nothing "
    "until then. A copy stream and non_blocking do not help.",
    decides="It takes the copies whose name contains Pageable, and counts the time in which they "
    "ran exposed and the idle time that their calls caused. Scalars (`.item()`) belong to TL101. "
    "The bound assumes that pinned copies overlap with compute; pinning alone saves most of it.",
    before='for batch in loader:\n    x = batch.to("cuda")',
    after="loader = DataLoader(..., pin_memory=True)\nfor batch in loader:\n"
    '    x = batch.to("cuda", non_blocking=True)',
    find=find,
)
