"""TL101: a call that makes the CPU wait for the GPU, and the GPU for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.awaited_results import Awaited, awaited_results, own_waits
from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_calls import candidates_of_calls
from tracelab.findings.context import Context
from tracelab.findings.finding import Where, call_site_of
from tracelab.findings.pageable_copies import launches_pageable_copy
from tracelab.findings.places import JOINT, edit_text
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.findings.waits_in_a_row import place_of, waits_in_a_row
from tracelab.model.blocking_calls import Blocking
from tracelab.model.graph_launches import mostly_replays
from tracelab.model.wording import as_subject, describe

_EDIT = "unblock:{place}"
_FIX = Instead(
    "Do not make the CPU wait: keep the value on the GPU, or read it some steps later.",
    short="Keep the value on the GPU (`x.detach()`), or read it every N steps.",
)


def find(context: Context) -> list[Candidate]:
    """Blocking calls and the idle that they caused, by call site.

    Not the allocator's calls, which are TL103's, and not copies of batches from pageable memory,
    which are TL102's; nor the waits for a result behind which the next replay is queued already.
    """
    calls, call_sites = context.blocking_calls.calls, context.blocking_calls.call_sites
    is_copy = (calls.kind == Blocking.COPY) & launches_pageable_copy(
        context, calls.event_id, call_sites
    )
    # The synchronize behind such a copy is made at the same call site.
    sites_of_copies = {call_sites[index] for index in np.flatnonzero(is_copy).tolist()}
    belongs_to_copy = np.array([site in sites_of_copies for site in call_sites], dtype=np.bool_)
    is_chosen = (calls.kind != Blocking.ALLOCATION) & ~belongs_to_copy
    is_chosen &= ~_behind_next_replay(context)
    in_a_row = waits_in_a_row(context, is_chosen)
    return [
        _with_others(candidate, in_a_row.get(place_of(candidate.where), ()))
        for candidate in candidates_of_calls(context, is_chosen, _worded, _EDIT, "TL101")
    ]


def _behind_next_replay(context: Context) -> NDArray[np.bool_]:
    """bool[blocking calls], the waits for a result that is read while the next replay runs.

    The host must not read it before, and the GPU has a whole graph to do meanwhile.
    """
    calls = context.blocking_calls.calls
    if not mostly_replays(context.timeline):
        return np.zeros(len(calls), dtype=np.bool_)
    waits = own_waits(context.graph)
    waits = waits[awaited_results(context.graph, waits) == Awaited.EARLIER_RESULT]
    return np.isin(calls.event_id, waits)


def _with_others(candidate: Candidate, in_a_row: Sequence[Where]) -> Candidate:
    """A candidate whose edit is that of all the places that wait in a row with it."""
    remedy = candidate.remedy
    if not in_a_row or (remedy is not None and remedy.edit != _EDIT):
        return candidate
    others = [
        describe(call_site_of(where), where.api or "")
        for where in in_a_row
        if place_of(where) != place_of(candidate.where)
    ]
    also = (
        f" Change it together with {' and '.join(others)}: each of them would wait instead of the "
        "other, and only all together save this."
    )
    edit = JOINT.join(filter(None, (edit_text(_EDIT, where) for where in in_a_row)))
    also_short = f" Do so at all {len(others) + 1} places."
    if remedy is not None:
        fixes = tuple(
            replace(fix, text=f"{fix.text}{also}", short=f"{fix.in_short}{also_short}")
            for fix in remedy.fixes
        )
        remedy = replace(remedy, fixes=fixes, edit=edit, by_call_site=True)
    return replace(
        candidate,
        fix=f"{candidate.fix}{also}",
        fix_short=f"{candidate.fix_short}{also_short}",
        edit=edit,
        remedy=remedy,
    )


def _worded(what: str) -> tuple[str, str, Instead]:
    return f"{as_subject(what or 'a call')} makes the CPU wait for the GPU", "host_sync", _FIX


RULE = Rule(
    id="TL101",
    name="a blocking call that costs GPU idle time",
    matters="The CPU launches nothing while it waits. When the call returns, the GPU has run out "
    "of work and stays idle until the next launch reaches it. A call that blocks while the GPU "
    "still has work queued costs nothing.",
    decides="It sums the idle time of each GPU during the call, and after it until newly launched "
    "work arrives. Idle time after the call counts up to the delay that the call caused: the time "
    "for which it blocked while the GPU was busy. Calls from one call site are one finding. Calls "
    "of the profiler and of NCCL's watchdog, calls that caused no idle time, and waits for a copy "
    "to the CPU while the next replay of a CUDA graph is queued are left out. If calls follow "
    "one another so closely that without one the next would wait instead, they are changed and "
    "priced together.",
    before="for batch in loader:\n    loss = step(batch)\n    log.append(loss.item())",
    after="for batch in loader:\n    loss = step(batch)\n    log.append(loss.detach())\n"
    "values = torch.stack(log).tolist()",
    find=find,
)
