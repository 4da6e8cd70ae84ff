"""TL101: a call that makes the host wait for the GPU, and the GPU for the host."""

from __future__ import annotations

from tracelab.findings.facts import Context
from tracelab.findings.host_calls import claims_of_calls
from tracelab.findings.rule import Candidate, Rule
from tracelab.model.blocking_calls import Blocking

_FIXES = {
    "item": "Read the value every N steps, or keep it on the GPU: `log.append(loss.detach())`, and "
    "`torch.stack(log).tolist()` after the loop.",
    "nonzero": "The size of the result must reach the host. Compute with the mask instead: "
    "`torch.where(mask, x, 0)`, or a loss with `ignore_index` or weights.",
    "__bool__": "A condition on a tensor is decided on the host. Decide on the GPU "
    "(`torch.where(...)`), or every N steps.",
    "cpu": "Copy into pinned memory with `non_blocking=True`, and wait for an event of that copy "
    "one step later.",
    "synchronize": "Leave it out, or let a stream wait instead of the host: "
    "`torch.cuda.current_stream().wait_event(event)`.",
    "elapsed_time": "Keep the events of each step and read them one or more steps later, when they "
    "are reached.",
}
_FIX = "Let the host launch on: keep the value on the GPU, or read it some steps later."


def find(facts: Context) -> list[Candidate]:
    """Blocking calls and the idle that they caused, by place."""
    return claims_of_calls(facts, _is_mine(facts), _claimed)


def _is_mine(facts: Context) -> list[int]:
    """All but the allocator's calls and copies of batches from pageable memory."""
    calls = facts.blocking_calls.calls
    kinds = calls.kind.tolist()
    facts.call_sites(calls.event_id.tolist())  # all at once, for the questions about each
    return [
        i
        for i, kind in enumerate(kinds)
        if kind != Blocking.ALLOCATION
        and not (kind == Blocking.COPY and launches_pageable(facts, int(calls.event_id[i])))
    ]


def launches_pageable(facts: Context, call: int) -> bool:
    """Whether a call launches a copy between the GPU and pageable memory, except of a scalar."""
    [place] = facts.call_sites([call])
    if place.operator in ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"):
        return False
    return call in facts.pageable_launches


def _claimed(what: str, api: str, operator: str | None, call: str | None) -> tuple[str, str, str]:
    fix = next((_FIXES[x] for x in (call, _bare(operator)) if x in _FIXES), _FIX)
    return f"{what} makes the host wait for the GPU ({api})", "host_sync", fix


def _bare(operator: str | None) -> str:
    return (operator or "").removeprefix("aten::").strip("_")


RULE = Rule(
    id="TL101",
    name="a blocking call that costs GPU idle time",
    matters="The host launches nothing while it waits. When the call returns, the GPU has run dry "
    "and stays idle until the next launch reaches it. A call that blocks beside a busy GPU, with "
    "work still queued, costs nothing.",
    decides="It sums the idle of every GPU while the call blocked and from its return until work "
    "launched after it arrived. Calls from one place are one finding. The profiler's own calls "
    "and NCCL's watchdog are left out; so is a call that caused no idle.",
    before="for batch in loader:\n    loss = step(batch)\n    log.append(loss.item())",
    after="for batch in loader:\n    loss = step(batch)\n    log.append(loss.detach())\n"
    "values = torch.stack(log).tolist()",
    find=find,
)
