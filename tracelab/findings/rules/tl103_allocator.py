"""TL103: memory that is asked of CUDA again and again."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.places import JOINT
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.rule import Rule
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import is_free
from tracelab.model.program.call_sites import CallSite
from tracelab.model.wording import called, capitalize_start

_FIX = Instead(
    "Let the allocator keep its memory: no `torch.cuda.empty_cache()` in the loop, the same shapes "
    "in every step (pad or bucket), pinned buffers made once.",
    short="Remove `torch.cuda.empty_cache()` from the loop, use the same shapes in every step "
    "(pad), and allocate pinned buffers once.",
)
_FIX_OF_ANOTHER_THREAD = Instead(
    "Allocate the memory before the loop and keep it. While one thread allocates, no other can "
    "launch."
)


def find(context: Context) -> list[Candidate]:
    """Find the allocator's calls that recur and caused idle time.

    One candidate has the calls that blocked at most their own thread, and one each call site from
    which they blocked other threads. Filling the allocator for the first time belongs to TL305.
    """
    calls = context.blocking_calls.calls
    call_index = np.flatnonzero((calls.kind == Blocking.ALLOCATION) & context.has_caused_idle)
    stalls_others = np.isin(call_index, context.graph.host.stalled_calls.allocation_index)
    is_first_use = context.first_use.holds(calls.event_id[call_index])
    return [
        *_own_thread(context, call_index[~stalls_others & ~is_first_use]),
        *_other_threads(context, call_index[stalls_others]),
    ]


def _own_thread(context: Context, call_index: NDArray[np.intp]) -> list[Candidate]:
    """Make the candidate of calls that blocked the thread that made them.

    Memory that is freed is requested again, wherever that happens, so calls that free memory are
    blamed before those that allocate it.
    """
    if not len(call_index):
        return []
    names = _names(context, call_index)
    frees = [position for position, name in enumerate(names) if is_free(name)]
    blamed = frees or list(range(len(names)))
    costs_ns = context.blocking_calls.caused_idle_ns[call_index[blamed]]
    call_sites = [context.blocking_calls.call_sites[index] for index in call_index[blamed].tolist()]
    groups = grouped(call_sites)
    call_site = max(groups, key=lambda call_site: int(costs_ns[groups[call_site]].sum()))
    top = blamed[groups[call_site][0]]
    api = names[top]
    call_id = context.blocking_calls.calls.event_id[call_index[[top]]]
    [remedy] = context.recognized.remedies(call_id, RULE.id)
    again = ", and the program allocates it again" if len(frees) < len(names) else ""
    does = f"returns memory to CUDA{again}" if frees else "keeps requesting memory from CUDA"
    return [
        _candidate(
            context,
            call_index,
            call_site,
            api=api,
            title=f"{capitalize_start(called(call_site, api))} {does}",
            fix=_FIX,
            edit=JOINT.join(f"remove:{name}" for name in sorted(set(names))),
            remedy=remedy,
        )
    ]


def _other_threads(context: Context, call_index: NDArray[np.intp]) -> list[Candidate]:
    """Make the candidates of calls that stalled other threads, by thread and call site."""
    candidates = []
    threads = context.blocking_calls.calls.thread_index[call_index].tolist()
    call_sites = [context.blocking_calls.call_sites[index] for index in call_index.tolist()]
    event_id = context.blocking_calls.calls.event_id[call_index]
    remedies = context.recognized.remedies(event_id, RULE.id)
    for (thread, call_site), group in grouped(zip(threads, call_sites, strict=True)).items():
        group_index = call_index[group]
        names = _names(context, group_index)
        api = names[int(np.argmax(context.blocking_calls.caused_idle_ns[group_index]))]
        thread_name = _name_of_thread(context.trace.threads[thread].name)
        which_thread = f"thread {thread_name}" if thread_name else "one thread"
        what = capitalize_start(called(call_site, api))
        candidates.append(
            _candidate(
                context,
                group_index,
                call_site,
                api=api,
                title=f"{what} in {which_thread} blocks the launches of other threads",
                fix=_FIX_OF_ANOTHER_THREAD,
                edit="remove:{place}",
                remedy=remedies[group[0]],
            )
        )
    return candidates


def _candidate(
    context: Context,
    call_index: NDArray[np.intp],
    call_site: CallSite,
    *,
    api: str,
    title: str,
    fix: Instead,
    edit: str,
    remedy: Remedy | None,
) -> Candidate:
    """Make the candidate of these calls, which cost no more than they blocked."""
    costs, lost = context.blocking_calls, context.idle_after(call_index)
    blocked_ns = int(costs.blocked_ns[call_index].sum())
    return Candidate(
        title=title,
        cause="allocator",
        where=where(call_site, count=len(call_index), api=api),
        evidence=most_expensive(
            costs.calls.event_id[call_index].tolist(), costs.caused_idle_ns[call_index].tolist()
        ),
        fix=fix.text,
        fix_short=fix.short,
        lost=lost,
        limit_ns={device: min(blocked_ns, measure(time)) for device, time in lost.items()},
        edit=edit,
        remedy=remedy,
    )


def _names(context: Context, call_index: NDArray[np.intp]) -> list[str]:
    event_ids = context.blocking_calls.calls.event_id[call_index].tolist()
    return [context.trace.name_of(event_id) for event_id in event_ids]


def _name_of_thread(thread: str) -> str:
    """Return the name of a thread without the number that Kineto puts before it.

    >>> _name_of_thread("thread 300 (pt_data_pin)")
    'pt_data_pin'
    """
    return re.sub(r"^thread \d+ \((.+)\)$", r"\1", thread)


RULE = Rule(
    id="TL103",
    name="an allocator call that synchronizes in the steady state",
    matters="cudaMalloc, cudaFree and cudaHostAlloc wait for the GPU. PyTorch's allocator avoids "
    "them by keeping freed memory; a step that still makes these calls pays for them every time.",
    decides="It sums the idle time that these calls caused, as for any blocking call. If a call "
    "site returns memory to CUDA, that call site gets all of it: every cudaFree leads to a "
    "cudaMalloc elsewhere. While one thread allocates, CUDA blocks the launches of other threads. "
    "A call of more than 100 us was stalled that way if for at least half of that time other "
    "threads allocated and returned before it; its idle time is attributed to them. This happens "
    "while DataLoader's pin_memory thread still allocates. Calls that come once belong to TL305: "
    "the first allocations, and what cuBLAS and cuDNN free in the first run of an operator.",
    before="for batch in loader:\n    step(batch)\n    torch.cuda.empty_cache()",
    after="for batch in loader:\n    step(batch)",
    find=find,
)
