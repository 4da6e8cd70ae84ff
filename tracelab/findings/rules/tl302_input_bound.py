"""TL302: the GPU waits for the data loader."""

from __future__ import annotations

import numpy as np

from tracelab.findings.claims import MOST_EVIDENCE, where
from tracelab.findings.facts import Context
from tracelab.findings.rule import Candidate, Rule
from tracelab.intervals import measure
from tracelab.measures.bubbles import Cause
from tracelab.model.thread_states import input_regions


def find(facts: Context) -> list[Candidate]:
    """Idle time in which the launching thread was in a data loader."""
    chosen = facts.idle_by(Cause.INPUT) & np.isin(facts.bubbles.device_number, facts.active_devices)
    lost = {x: facts.idle(x, chosen) for x in facts.timeline.device_numbers}
    lost = {device: idle for device, idle in lost.items() if len(idle)}
    if not lost:
        return []
    first = min(int(idle.starts[0]) for idle in lost.values())
    last = max(int(idle.ends[-1]) for idle in lost.values())
    events = input_regions(facts.trace)
    start, end = facts.trace.start_ns[events], facts.trace.end_ns[events]
    inside = events[(start < last) & (end > first)]
    longest = inside[np.argsort(-facts.trace.duration_ns[inside], kind="stable")].tolist()
    [place] = facts.call_sites(longest[:1])
    return [
        Candidate(
            title=f"The GPU waits for the data loader ({facts.trace.name_of(longest[0])})",
            cause="input_bound",
            where=where(
                place,
                count=max(map(len, lost.values())),
                device=max(lost, key=lambda x: measure(lost[x])),
            ),
            evidence=tuple(longest[:MOST_EVIDENCE]),
            fix="Load beside the training: `DataLoader(..., num_workers=8, pin_memory=True, "
            "persistent_workers=True, prefetch_factor=4)`, cheaper decoding, or the heavy part "
            "of it on the GPU.",
            lost=lost,
        )
    ]


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
