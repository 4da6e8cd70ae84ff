"""TL302: the GPU waits for the data."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import MOST_EVIDENCE, Candidate, grouped, where
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.intervals import Intervals, measure
from tracelab.measures.bubbles import Cause
from tracelab.measures.idle_culprits import innermost_functions
from tracelab.model.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.thread_states import is_in_launching_thread
from tracelab.model.trace import ABSENT
from tracelab.model.wording import describe

_FIX = (
    "Load beside the training: `DataLoader(..., num_workers=8, pin_memory=True, "
    "persistent_workers=True, prefetch_factor=4)`, cheaper decoding, or the heavy part "
    "of it on the GPU."
)
_FIX_IN_THREAD = (
    "The data is loaded in the thread that launches. Move that into worker processes: "
    "`DataLoader(..., num_workers=8, persistent_workers=True)`. Without a DataLoader, prepare the "
    "next batch in a thread of its own while the GPU works on this one: `upcoming = "
    "executor.submit(load, i + 1)`, and `upcoming.result()` a step later. Cache what is the same "
    "each time, or do the heavy part on the GPU."
)


def find(context: Context) -> list[Candidate]:
    """Idle time in which the launching thread loaded data."""
    is_chosen = context.is_idle_by(Cause.INPUT)
    is_chosen &= np.isin(context.bubbles.device_number, context.active_devices)
    lost = context.idle_by_device(is_chosen)
    if not lost:
        return []
    loading_id = _loading_regions(context, lost.values())
    name = context.trace.name_of(int(loading_id[0]))
    call_site = _most_expensive_call_site(context, is_chosen)
    if call_site == NO_CALL_SITE:
        [call_site] = context.call_sites(loading_id[:1])
    is_in_thread = any(map(is_in_launching_thread, map(context.trace.name_of, loading_id.tolist())))
    what = "data that the launching thread loads" if is_in_thread else "the data loader"
    place = f", most of all at {describe(call_site, name)}" if call_site.function else f" ({name})"
    return [
        Candidate(
            title=f"The GPU waits for {what}{place}",
            cause="input_bound",
            where=where(
                call_site,
                count=max(map(len, lost.values())),
                device=max(lost, key=lambda device: measure(lost[device])),
            ),
            evidence=tuple(loading_id[:MOST_EVIDENCE].tolist()),
            fix=_FIX_IN_THREAD if is_in_thread else _FIX,
            lost=lost,
            edit="load=0",
        )
    ]


def _most_expensive_call_site(context: Context, is_chosen: NDArray[np.bool_]) -> CallSite:
    """Where the launching thread was half-way through most of the chosen bubbles, by time."""
    bubbles, timeline = context.bubbles, context.timeline
    is_inside = context.is_inside(bubbles.start_ns, bubbles.end_ns)
    index = np.flatnonzero(is_chosen & is_inside & (bubbles.next_id != ABSENT))
    by_event = np.argsort(timeline.event_id)
    next_row = by_event[np.searchsorted(timeline.event_id[by_event], bubbles.next_id[index])]
    length_ns = bubbles.end_ns[index] - bubbles.start_ns[index]
    function_id = innermost_functions(
        context.trace,
        bubbles.start_ns[index] + length_ns // 2,
        context.trace.thread_index[timeline.launch_id[next_row]],
    )
    call_sites = context.call_sites(function_id)
    groups = grouped(call_sites)
    return max(groups, key=lambda site: int(length_ns[groups[site]].sum()), default=NO_CALL_SITE)


def _loading_regions(context: Context, idle: Collection[Intervals]) -> NDArray[np.integer[Any]]:
    """Event ids of the regions that load data beside some idle time, the longest first."""
    trace = context.trace
    first_ns = min(int(time.starts[0]) for time in idle)
    last_ns = max(int(time.ends[-1]) for time in idle)
    region_id = context.graph.host.loading_id
    region_id = region_id[
        (trace.start_ns[region_id] < last_ns) & (trace.end_ns[region_id] > first_ns)
    ]
    return region_id[np.argsort(-trace.duration_ns[region_id], kind="stable")]


RULE = Rule(
    id="TL302",
    name="input bound: the GPU waits for data",
    matters="While the thread that launches waits for a batch, or makes one itself, it launches "
    "nothing. With a queue of launched work the GPU does not notice; without one it is idle.",
    decides="It sums the idle time in which that thread was in the next() of a data loader, in a "
    "region named after data loading, or in a function that prepares data (collate, "
    "`__getitem__`, preprocess, an image processor, a tokenizer, PIL, torchvision's transforms), "
    "outside any module and launching nothing. A slow loader behind a full queue costs nothing "
    "and is not reported.",
    before="loader = DataLoader(data, batch_size=64)",
    after="loader = DataLoader(\n    data, batch_size=64, num_workers=8, pin_memory=True,\n"
    "    persistent_workers=True,\n)",
    find=find,
)
