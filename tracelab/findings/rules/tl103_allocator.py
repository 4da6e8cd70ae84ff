"""TL103: memory that is asked of CUDA again and again."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.claims import grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Candidate, Rule
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


def find(facts: Context) -> list[Candidate]:
    """The allocator's calls and the idle that they caused.

    One claim of the calls that held up at most their own thread, and one for each place from which
    they held up others.
    """
    calls = facts.blocking_calls.calls
    inside = (calls.start_ns < facts.window.end_ns) & (calls.end_ns > facts.window.start_ns)
    mine = np.flatnonzero((calls.kind == Blocking.ALLOCATION) & inside)
    holds_others = np.isin(mine, facts.graph.host.stalled_calls.allocation_index)
    return _claims_of_own(facts, mine[~holds_others]) + _claims_of_holders(
        facts, mine[holds_others]
    )


def _claims_of_own(facts: Context, mine: NDArray[np.intp]) -> list[Candidate]:
    """The claim of calls that held up the thread that made them, if they cost anything.

    What is given back has to be asked for again, wherever that happens, so calls that free memory
    are blamed before those that allocate it.
    """
    lost = _lost(facts, mine)
    if not lost:
        return []
    events, costs, names = _told_of(facts, mine)
    frees = [i for i, name in enumerate(names) if is_free(name)]
    blamed = frees or list(range(len(events)))
    places = facts.call_sites(events[i] for i in blamed)
    groups = grouped(places)
    place = max(groups, key=lambda x: sum(costs[blamed[i]] for i in groups[x]))
    api = names[blamed[groups[place][0]]]
    did = "gives memory back to CUDA" if frees else "asks CUDA for memory"
    title = f"{describe(place, api)} {did} ({_counted(names)} in all)"
    return [_claim(facts, mine, lost, place, api, title, _FIX)]


def _claims_of_holders(facts: Context, mine: NDArray[np.intp]) -> list[Candidate]:
    """The claims of calls that held up the launches of other threads, by thread and place."""
    claims = []
    places = facts.call_sites(facts.blocking_calls.calls.event_id[mine].tolist())
    threads = facts.blocking_calls.calls.thread_index[mine].tolist()
    for (thread, place), group in grouped(zip(threads, places, strict=True)).items():
        calls = mine[group]
        lost = _lost(facts, calls)
        if not lost:
            continue
        _, costs, names = _told_of(facts, calls)
        api = names[int(np.argmax(costs))]
        name = _short_name(facts.trace.threads[thread].name)
        pins = _PINS_BATCHES.search(f"{name} {place.function} {place.file}")
        title = (
            f"{describe(place, api)} in {f'thread {name}' if name else 'one thread'} keeps other "
            f"threads from launching ({_counted(names)} in all)"
        )
        fix = _FIX_OF_PINNING if pins else _FIX_OF_ANOTHER_THREAD
        claims.append(_claim(facts, calls, lost, place, api, title, fix))
    return claims


def _lost(facts: Context, calls: NDArray[np.intp]) -> dict[int, Intervals]:
    """Device to the idle that these calls caused."""
    charges = facts.blocking_calls.attributed_idle
    of_them = np.isin(charges.call_index, calls)
    return facts.by_device(
        charges.device_number[of_them], charges.start_ns[of_them], charges.end_ns[of_them]
    )


def _told_of(facts: Context, calls: NDArray[np.intp]) -> tuple[list[int], list[int], list[str]]:
    """Event id, caused idle (ns) and name of each of these calls."""
    events = facts.blocking_calls.calls.event_id[calls].tolist()
    costs = facts.blocking_calls.caused_idle_ns[calls].tolist()
    return events, costs, [facts.trace.name_of(event) for event in events]


def _claim(
    facts: Context,
    calls: NDArray[np.intp],
    lost: dict[int, Intervals],
    place: CallSite,
    api: str,
    title: str,
    fix: str,
) -> Candidate:
    """The claim of these calls."""
    events, costs, _ = _told_of(facts, calls)
    return Candidate(
        title=title,
        cause="allocator",
        where=where(place, count=len(events), api=api),
        evidence=most_expensive(events, costs),
        fix=fix,
        lost=lost,
        severity_override=INFO if _only_first_step(facts, calls) else None,
    )


def _counted(names: list[str]) -> str:
    """How often each of these was called."""
    return ", ".join(f"{len(x)} {name}" for name, x in sorted(grouped(names).items()))


def _short_name(thread: str) -> str:
    """What a thread is called, without the number that Kineto puts before it."""
    return re.sub(r"^thread \d+ \((.+)\)$", r"\1", thread)


def _only_first_step(facts: Context, calls: NDArray[np.intp]) -> bool:
    """Whether only the first of several steps makes these calls: it warms up."""
    steps = facts.blocking_calls.step_index[calls]
    return len(facts.timeline.steps) > 1 and set(steps.tolist()) == {0}


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
