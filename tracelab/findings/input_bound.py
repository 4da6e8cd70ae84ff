"""TL302: the GPU waits for the data loader."""

from __future__ import annotations

import numpy as np

from tracelab.findings.facts import Facts, at
from tracelab.findings.finding import Claim, Rule
from tracelab.host import input_regions
from tracelab.measures.bubbles import Cause


def find(facts: Facts) -> list[Claim]:
    """Idle time in which the launching thread was in a data loader, on each device."""
    chosen, claims = facts.idle_by(Cause.INPUT), []
    events = input_regions(facts.trace)
    for device in facts.timeline.devices:
        idle = facts.idle(device, chosen)
        if not len(idle):
            continue
        start, end = facts.trace.start_ns[events], facts.trace.end_ns[events]
        first, last = int(idle.starts[0]), int(idle.ends[-1])
        inside = events[(start < last) & (end > first)]
        length = facts.trace.duration_ns[inside]
        longest = inside[np.argsort(-length, kind="stable")].tolist()
        name = facts.trace.name_of(longest[0])
        [place] = facts.places(longest[:1])
        claims.append(
            Claim(
                title=f"GPU {device} waits for the data loader ({name})",
                cause="input_bound",
                where=at(place, count=len(idle), device=device),
                evidence=tuple(longest[:20]),
                fix="Load beside the training: `DataLoader(..., num_workers=8, pin_memory=True, "
                "persistent_workers=True, prefetch_factor=4)`, cheaper decoding, or the heavy part "
                "of it on the GPU.",
                lost={device: idle},
            )
        )
    return claims


RULE = Rule(
    id="TL302",
    name="input bound: the GPU waits for the data loader",
    matters="While the thread that launches waits for a batch, it launches nothing. With a queue "
    "of launched work the GPU does not notice; without one it stands still.",
    decides="It sums the idle in which that thread was in the next() of a data loader, or in a "
    "region that says it loads data. A slow loader behind a full queue costs nothing and is not "
    "reported.",
    before="loader = DataLoader(data, batch_size=64)",
    after="loader = DataLoader(\n    data, batch_size=64, num_workers=8, pin_memory=True,\n"
    "    persistent_workers=True,\n)",
    find=find,
)
