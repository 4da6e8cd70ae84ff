"""TL301: the GPU waits for the host to launch."""

from __future__ import annotations

import numpy as np

from tracelab.findings.facts import Facts, at, dearest, grouped, told
from tracelab.findings.finding import Claim, Rule
from tracelab.intervals import measure
from tracelab.measures.bubbles import Cause

_MOST_LOOKED_UP = 20_000  # bubbles, the longest: the place of most of the time does not need all


def find(facts: Facts) -> list[Claim]:
    """Idle time before launches that came late, on each device."""
    bubbles, claims = facts.bubbles, []
    late = facts.idle_by(Cause.HOST_BUSY)
    # Of a late launch the time until it starts on the GPU is lost as well.
    late |= facts.idle_by(Cause.LAUNCH) & np.isin(bubbles.next_event, bubbles.next_event[late])
    window = facts.window
    inside = (bubbles.start_ns < window.end_ns) & (bubbles.end_ns > window.start_ns)
    row_of = dict(zip(facts.timeline.event.tolist(), range(len(facts.timeline.event)), strict=True))
    for device in facts.timeline.devices:
        idle = facts.idle(device, late)
        if not len(idle):
            continue
        mine = np.flatnonzero(late & inside & (bubbles.device == device))
        length = bubbles.end_ns[mine] - bubbles.start_ns[mine]
        mine = mine[np.argsort(-length, kind="stable")][:_MOST_LOOKED_UP]
        costs = (bubbles.end_ns[mine] - bubbles.start_ns[mine]).tolist()
        events = bubbles.next_event[mine].tolist()
        places = facts.places(facts.launch_of(row_of[event]) for event in events)
        groups = grouped(places)
        place = max(groups, key=lambda x: sum(costs[i] for i in groups[x]))
        lost = measure(idle)
        claims.append(
            Claim(
                title=f"GPU {device} waits for the host, most of all before "
                f"{told(place, 'the next launch')}",
                cause="launch_bound",
                where=at(place, count=len(idle), device=device),
                evidence=dearest(events, costs),
                fix="Launch less, or ahead: replay the step as a CUDA graph "
                '(`torch.compile(model, mode="reduce-overhead")`, `torch.cuda.graph`), fuse '
                "(`torch.compile`, optimizers with `fused=True`), or give each kernel more to do "
                "(larger batches).",
                lost={device: idle},
                limit_ns=_without_profiler(facts, device, lost),
            )
        )
    return claims


def _without_profiler(facts: Facts, device: int, lost_ns: int) -> dict[int, int]:
    """The profiler slows the host: where the step's time without it is known, it limits this."""
    about = facts.trace.metadata.get("tracelab")
    text = about.get("unprofiled_step_ms") if isinstance(about, dict) else None
    steps = 1 if facts.window.step is not None else len(facts.timeline.steps)
    try:
        unprofiled_ns = round(float(str(text)) * 1e6) * steps
    except (ValueError, OverflowError):
        return {}
    if unprofiled_ns <= 0:
        return {}
    return {device: min(lost_ns, max(0, unprofiled_ns - (facts.window.length_ns - lost_ns)))}


RULE = Rule(
    id="TL301",
    name="launch bound: the GPU waits for the host",
    matters="A launch costs the host some microseconds, an operator of PyTorch some tens. Kernels "
    "that are over sooner leave the GPU waiting for the next one, and a faster GPU waits longer.",
    decides="It sums the idle in which the thread that launched the next activity was executing "
    "Python, operators or launches, and from there to the activity's start. Where the capture "
    "knows how long a step takes without the profiler, the bound leaves out what the profiler "
    "itself cost. Idle behind a blocking call belongs to TL101.",
    before="for x in batches:\n    model(x)  # hundreds of small kernels",
    after="model = torch.compile(model, mode='reduce-overhead')\nfor x in batches:\n    model(x)",
    find=find,
)
