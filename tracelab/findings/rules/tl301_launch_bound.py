"""TL301: the GPU waits for the host to launch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.claims import grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.rule import Candidate, Rule
from tracelab.findings.wording import describe
from tracelab.intervals import measure
from tracelab.measures.bubbles import Cause
from tracelab.model.call_sites import CallSite
from tracelab.model.trace import ABSENT

_MOST_LOOKED_UP = 20_000  # bubbles, the longest: the place of most of the time does not need all
# Between two launches, without the profiler: the host did something else than launch.
_LONG_NS = 1_000_000


def find(facts: Context) -> list[Candidate]:
    """Idle time before launches that came late: short gaps together, long ones together."""
    bubbles = facts.bubbles
    busy = facts.idle_by(Cause.HOST_BUSY)
    # Of a late launch the time until it starts on the GPU is lost as well.
    late = busy | (facts.idle_by(Cause.LAUNCH) & np.isin(bubbles.next_id, bubbles.next_id[busy]))
    late &= np.isin(bubbles.device_number, facts.active_devices)
    slower = facts.window.length_ns / (facts.unprofiled_ns or facts.window.length_ns or 1)
    is_silent = bubbles.end_ns - bubbles.start_ns >= _LONG_NS * slower
    silent = busy & is_silent & ~_launches_inside(facts)
    is_long = np.isin(bubbles.next_id, bubbles.next_id[silent])
    claims = []
    for chosen, cause, does, fix in (
        (late & ~is_long, "launch_bound", "launches too slowly for the GPU", _FIX),
        (late & is_long, "slow_host", "does something else than launch", _FIX_OF_LONG),
    ):
        lost = {x: facts.idle(x, chosen) for x in facts.timeline.device_numbers}
        lost = {device: idle for device, idle in lost.items() if len(idle)}
        if lost:
            name, place, evidence = _dearest_place(facts, chosen)
            claims.append(
                Candidate(
                    title=f"The host {does}, most of all at {describe(place, name)}",
                    cause=cause,
                    where=where(
                        place,
                        count=max(map(len, lost.values())),
                        device=max(lost, key=lambda x: measure(lost[x])),
                    ),
                    evidence=evidence,
                    fix=fix,
                    lost=lost,
                    limit_ns={
                        x: measure(y) * max(0, total - facts.profiler_overhead_ns[x]) // total
                        for x, y in lost.items()
                        if (total := measure(facts.idle(x, late)))
                    },
                )
            )
    return claims


_FIX = (
    "Launch less, or ahead: replay the step as a CUDA graph (`torch.compile(model, "
    'mode="reduce-overhead")`, `torch.cuda.graph`), fuse (`torch.compile`, optimizers with '
    "`fused=True`), or give each kernel more to do (larger batches)."
)
_FIX_OF_LONG = (
    "Take this work out of the thread that launches: do it ahead, in worker processes "
    "(`DataLoader(..., num_workers=...)`), once instead of in each step, or on the GPU."
)


def _launches_inside(facts: Context) -> NDArray[np.bool_]:
    """bool[bubbles], during which something was launched, for whatever GPU."""
    bubbles, launch = facts.bubbles, facts.timeline.launch_id
    launch_ns = np.sort(facts.trace.start_ns[launch[launch != ABSENT]])
    first = np.searchsorted(launch_ns, bubbles.start_ns, side="right")
    return np.searchsorted(launch_ns, bubbles.end_ns) > first


def _dearest_place(
    facts: Context, chosen: NDArray[np.bool_]
) -> tuple[str, CallSite, tuple[int, ...]]:
    """What held most of these bubbles, and where; and events that held them, the dearest first."""
    bubbles, window = facts.bubbles, facts.window
    inside = (bubbles.start_ns < window.end_ns) & (bubbles.end_ns > window.start_ns)
    mine = np.flatnonzero(chosen & inside)
    length = bubbles.end_ns[mine] - bubbles.start_ns[mine]
    mine = mine[np.argsort(-length, kind="stable")][:_MOST_LOOKED_UP]
    costs = (bubbles.end_ns[mine] - bubbles.start_ns[mine]).tolist()
    events = facts.idle_culprits[mine].tolist()
    names = [facts.call_name(event) for event in events]
    groups = grouped(zip(names, facts.call_sites(events), strict=True))
    name, place = max(groups, key=lambda x: sum(costs[i] for i in groups[x]))
    return name, place, most_expensive(events, costs)


RULE = Rule(
    id="TL301",
    name="launch bound: the GPU waits for the host",
    matters="A launch costs the host some microseconds, an operator of PyTorch some tens. Kernels "
    "that are over sooner leave the GPU waiting for the next one, and a faster GPU waits longer.",
    decides="It sums the idle in which the thread that launched the next activity was executing "
    "Python, operators or launches, and from there to the activity's start. Where the capture "
    "knows how long a step takes without the profiler, the bound leaves out what the profiler "
    "itself cost. Gaps of 1 ms and more, in which nothing was launched, are told apart "
    "(`slow_host`): there the host did something else. Idle behind a blocking call is TL101's.",
    before="for x in batches:\n    model(x)  # hundreds of small kernels",
    after="model = torch.compile(model, mode='reduce-overhead')\nfor x in batches:\n    model(x)",
    find=find,
)
