"""TL302: the GPU waits for the data loader."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import MOST_EVIDENCE, Candidate, where
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.intervals import Intervals, measure
from tracelab.measures.bubbles import Cause
from tracelab.model.thread_states import input_regions

_FIX = (
    "Load beside the training: `DataLoader(..., num_workers=8, pin_memory=True, "
    "persistent_workers=True, prefetch_factor=4)`, cheaper decoding, or the heavy part "
    "of it on the GPU."
)


def find(context: Context) -> list[Candidate]:
    """Idle time in which the launching thread was in a data loader."""
    is_chosen = context.is_idle_by(Cause.INPUT)
    is_chosen &= np.isin(context.bubbles.device_number, context.active_devices)
    lost = context.idle_by_device(is_chosen)
    if not lost:
        return []
    loading_id = _loading_regions(context, lost.values())
    [call_site] = context.call_sites(loading_id[:1])
    name = context.trace.name_of(int(loading_id[0]))
    return [
        Candidate(
            title=f"The GPU waits for the data loader ({name})",
            cause="input_bound",
            where=where(
                call_site,
                count=max(map(len, lost.values())),
                device=max(lost, key=lambda device: measure(lost[device])),
            ),
            evidence=tuple(loading_id[:MOST_EVIDENCE].tolist()),
            fix=_FIX,
            lost=lost,
        )
    ]


def _loading_regions(context: Context, idle: Collection[Intervals]) -> NDArray[np.integer[Any]]:
    """Event ids of the regions that load data beside some idle time, the longest first."""
    trace = context.trace
    first_ns = min(int(time.starts[0]) for time in idle)
    last_ns = max(int(time.ends[-1]) for time in idle)
    region_id = input_regions(trace)
    region_id = region_id[
        (trace.start_ns[region_id] < last_ns) & (trace.end_ns[region_id] > first_ns)
    ]
    return region_id[np.argsort(-trace.duration_ns[region_id], kind="stable")]


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
