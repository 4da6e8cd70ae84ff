"""TL103: memory that is asked of CUDA again and again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.facts import Facts, at, dearest, grouped, told
from tracelab.findings.finding import INFO, Claim, Rule
from tracelab.host import Blocking


def find(facts: Facts) -> list[Claim]:
    """The allocator's calls and the idle that they caused, as one claim.

    What is given back has to be asked for again, wherever that happens, so calls that free memory
    are blamed before those that allocate it.
    """
    calls, charges = facts.syncs.calls, facts.syncs.charges
    inside = (calls.start_ns < facts.window.end_ns) & (calls.end_ns > facts.window.start_ns)
    mine = np.flatnonzero((calls.kind == Blocking.ALLOCATION) & inside)
    of_them = np.isin(charges.call, mine)
    lost = facts.by_device(
        charges.device[of_them], charges.start_ns[of_them], charges.end_ns[of_them]
    )
    if not lost:
        return []
    events = calls.call[mine].tolist()
    costs = facts.syncs.caused_idle_ns[mine].tolist()
    names = [facts.trace.name_of(event) for event in events]
    frees = [i for i, name in enumerate(names) if "Free" in name]
    blamed = frees or list(range(len(events)))
    places = facts.places(events[i] for i in blamed)
    groups = grouped(places)
    place = max(groups, key=lambda x: sum(costs[blamed[i]] for i in groups[x]))
    apis = ", ".join(f"{len(x)} {name}" for name, x in sorted(grouped(names).items()))
    api = names[blamed[groups[place][0]]]
    did = "gives memory back to CUDA" if frees else "asks CUDA for memory"
    return [
        Claim(
            title=f"{told(place, api)} {did} ({apis} in all)",
            cause="allocator",
            where=at(place, count=len(events), api=api),
            evidence=dearest(events, costs),
            fix="Keep what the allocator holds: no `torch.cuda.empty_cache()` in the loop, the "
            "same shapes in every step (pad or bucket), pinned buffers made once. Where memory is "
            "short: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
            lost=lost,
            told=INFO if _only_first_step(facts, mine) else None,
        )
    ]


def _only_first_step(facts: Facts, calls: NDArray[np.intp]) -> bool:
    """Whether only the first of several steps makes these calls: it warms up."""
    steps = facts.syncs.step[calls]
    return len(facts.timeline.steps) > 1 and set(steps.tolist()) == {0}


RULE = Rule(
    id="TL103",
    name="an allocator call that synchronises in the steady state",
    matters="cudaMalloc, cudaFree and cudaHostAlloc wait for the GPU. PyTorch's allocator avoids "
    "them by keeping what was freed; a step that still makes them pays each time.",
    decides="It sums the idle that these calls caused, as for any blocking call, and blames the "
    "place that gives memory back, if there is one: every cudaFree makes a cudaMalloc elsewhere. "
    "A capture that begins with a program's first steps shows its first allocations, too; where "
    "only the first step has any, they are no alarm.",
    before="for batch in loader:\n    step(batch)\n    torch.cuda.empty_cache()",
    after="for batch in loader:\n    step(batch)",
    find=find,
)
