"""TL103: memory that is asked of CUDA again and again."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Rule
from tracelab.findings.wording import describe
from tracelab.intervals import Intervals
from tracelab.model.blocking_calls import Blocking
from tracelab.model.call_sites import CallSite
from tracelab.model.driver_api import is_free

# DataLoader's thread that copies batches into pinned memory, as PyTorch names it and its function.
_PINS_BATCHES = re.compile(r"pt_data_pin|pin_memory")
_FIX = (
    "Keep what the allocator holds: no `torch.cuda.empty_cache()` in the loop, the same shapes in "
    "every step (pad or bucket), pinned buffers made once. Where memory is short: "
    "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`."
)
_FIX_OF_ANOTHER_THREAD = (
    "Allocate before the loop and keep it: while one thread allocates, no other can launch."
)
_FIX_OF_PINNING = (
    "DataLoader's pin_memory thread asks CUDA for new pinned memory, and no other thread can "
    "launch meanwhile. It does so until it holds a block for each batch in flight: let it settle "
    "(record after more warm-up steps) before you judge. If it goes on: the same batch shape in "
    "every step (pad, `drop_last=True`), or fewer batches in flight (`num_workers` times "
    "`prefetch_factor`)."
)


def find(context: Context) -> list[Candidate]:
    """The allocator's calls and the idle that they caused.

    One candidate of the calls that blocked at most their own thread, and one for each call site
    from which they blocked other threads.
    """
    calls = context.blocking_calls.calls
    is_inside = context.is_inside(calls.start_ns, calls.end_ns)
    call_index = np.flatnonzero((calls.kind == Blocking.ALLOCATION) & is_inside)
    stalls_others = np.isin(call_index, context.graph.host.stalled_calls.allocation_index)
    return _candidates_of_own_thread(
        context, call_index[~stalls_others]
    ) + _candidates_of_other_threads(context, call_index[stalls_others])


def _candidates_of_own_thread(context: Context, call_index: NDArray[np.intp]) -> list[Candidate]:
    """The candidate of calls that blocked the thread that made them, if they cost anything.

    What is given back has to be asked for again, wherever that happens, so calls that free memory
    are blamed before those that allocate it.
    """
    lost = _lost(context, call_index)
    if not lost:
        return []
    names = _names(context, call_index)
    frees = [position for position, name in enumerate(names) if is_free(name)]
    blamed = frees or list(range(len(names)))
    costs_ns = context.blocking_calls.caused_idle_ns[call_index[blamed]]
    call_sites = [context.blocking_calls.call_sites[index] for index in call_index[blamed].tolist()]
    groups = grouped(call_sites)
    call_site = max(groups, key=lambda call_site: int(costs_ns[groups[call_site]].sum()))
    api = names[blamed[groups[call_site][0]]]
    does = "gives memory back to CUDA" if frees else "asks CUDA for memory"
    title = f"{describe(call_site, api)} {does} ({_counted(names)} in all)"
    return [_candidate(context, call_index, lost, call_site, api, title, _FIX)]


def _candidates_of_other_threads(context: Context, call_index: NDArray[np.intp]) -> list[Candidate]:
    """The candidates of calls that stalled launches of other threads, by thread and call site."""
    candidates = []
    threads = context.blocking_calls.calls.thread_index[call_index].tolist()
    call_sites = [context.blocking_calls.call_sites[index] for index in call_index.tolist()]
    for (thread, call_site), group in grouped(zip(threads, call_sites, strict=True)).items():
        group_index = call_index[group]
        lost = _lost(context, group_index)
        if not lost:
            continue
        names = _names(context, group_index)
        api = names[int(np.argmax(context.blocking_calls.caused_idle_ns[group_index]))]
        thread_name = _name_of_thread(context.trace.threads[thread].name)
        pins_batches = _PINS_BATCHES.search(f"{thread_name} {call_site.function} {call_site.file}")
        which_thread = f"thread {thread_name}" if thread_name else "one thread"
        title = (
            f"{describe(call_site, api)} in {which_thread} keeps other threads from launching "
            f"({_counted(names)} in all)"
        )
        fix = _FIX_OF_PINNING if pins_batches else _FIX_OF_ANOTHER_THREAD
        candidates.append(_candidate(context, group_index, lost, call_site, api, title, fix))
    return candidates


def _lost(context: Context, call_index: NDArray[np.intp]) -> dict[int, Intervals]:
    """Device to the idle that these calls caused."""
    idle = context.blocking_calls.attributed_idle
    is_caused = np.isin(idle.call_index, call_index)
    return context.by_device(
        idle.device_number[is_caused], idle.start_ns[is_caused], idle.end_ns[is_caused]
    )


def _names(context: Context, call_index: NDArray[np.intp]) -> list[str]:
    """The name of each of these calls."""
    event_ids = context.blocking_calls.calls.event_id[call_index].tolist()
    return [context.trace.name_of(event_id) for event_id in event_ids]


def _candidate(
    context: Context,
    call_index: NDArray[np.intp],
    lost: dict[int, Intervals],
    call_site: CallSite,
    api: str,
    title: str,
    fix: str,
) -> Candidate:
    """The candidate of these calls."""
    costs = context.blocking_calls
    return Candidate(
        title=title,
        cause="allocator",
        where=where(call_site, count=len(call_index), api=api),
        evidence=most_expensive(
            costs.calls.event_id[call_index].tolist(), costs.caused_idle_ns[call_index].tolist()
        ),
        fix=fix,
        lost=lost,
        severity_override=INFO if _only_in_first_step(context, call_index) else None,
    )


def _counted(names: list[str]) -> str:
    """How often each of these was called.

    >>> _counted(["cudaMalloc", "cudaFree", "cudaMalloc"])
    '1 cudaFree, 2 cudaMalloc'
    """
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(names).items()))


def _name_of_thread(thread: str) -> str:
    """What a thread is called, without the number that Kineto puts before it.

    >>> _name_of_thread("thread 300 (pt_data_pin)")
    'pt_data_pin'
    """
    return re.sub(r"^thread \d+ \((.+)\)$", r"\1", thread)


def _only_in_first_step(context: Context, call_index: NDArray[np.intp]) -> bool:
    """Whether only the first of several steps makes these calls: it warms up."""
    step_index = context.blocking_calls.step_index[call_index]
    return len(context.timeline.steps) > 1 and set(step_index.tolist()) == {0}


RULE = Rule(
    id="TL103",
    name="an allocator call that synchronises in the steady state",
    matters="cudaMalloc, cudaFree and cudaHostAlloc wait for the GPU. PyTorch's allocator avoids "
    "them by keeping what was freed; a step that still makes them pays each time.",
    decides="It sums the idle that these calls caused, as for any blocking call, and blames the "
    "place that gives memory back, if there is one: every cudaFree makes a cudaMalloc elsewhere. "
    "While one thread allocates, CUDA lets no other launch: a call of more than 100 us, at least "
    "half of which lies in allocations of other threads that returned before it, was held up by "
    "them, and the idle is theirs. So it is when DataLoader's pin_memory thread still asks for "
    "memory. A capture that begins with a program's first steps shows its first allocations, too; "
    "where only the first step has any, they are no alarm.",
    before="for batch in loader:\n    step(batch)\n    torch.cuda.empty_cache()",
    after="for batch in loader:\n    step(batch)",
    find=find,
)
