"""TL302: the GPU waits for the data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, Intervals, measure
from tracelab.findings.candidates import MAX_EVIDENCE, Candidate, grouped, where
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead, Remedy
from tracelab.findings.rule import Rule
from tracelab.measures.idle_causes import Cause
from tracelab.measures.idle_culprits import innermost_functions
from tracelab.model.lookup import rows_of
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.thread_states import is_in_launching_thread
from tracelab.model.trace import ABSENT

_FIX = Instead(
    "Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True, "
    "persistent_workers=True, prefetch_factor=4)`. Decode more cheaply, or do the heavy part of it "
    "on the GPU.",
    short="Load in worker processes: `DataLoader(..., num_workers=8, pin_memory=True, "
    "persistent_workers=True, prefetch_factor=4)`.",
)


def find(context: Context) -> list[Candidate]:
    """Idle time in which the launching thread loaded data, by what the fix is."""
    bubbles = context.bubbles
    is_chosen = context.is_idle_by(Cause.INPUT)
    is_chosen &= np.isin(bubbles.device_number, context.active_devices)
    is_chosen &= context.is_inside(bubbles.start_ns, bubbles.end_ns)
    index = np.flatnonzero(is_chosen)
    function_id = _functions_during(context, index)
    remedies = context.recognized.remedies(
        np.where(function_id == ABSENT, context.idle_culprits[index], function_id), RULE.id
    )
    call_sites = context.call_sites(function_id)
    return [
        _candidate(context, index[group], [call_sites[i] for i in group], remedies[group[0]])
        for group in grouped(remedy and remedy.id for remedy in remedies).values()
    ]


def _candidate(
    context: Context,
    bubble_index: NDArray[np.intp],
    call_sites: Sequence[CallSite],
    remedy: Remedy | None,
) -> Candidate:
    """The candidate of some bubbles; a call site each."""
    bubbles = context.bubbles
    is_chosen = np.zeros(len(bubbles.cause), dtype=np.bool_)
    is_chosen[bubble_index] = True
    lost = context.idle_by_device(is_chosen)
    length_ns = (bubbles.end_ns - bubbles.start_ns)[bubble_index]
    groups = grouped(call_sites)
    call_site = max(groups, key=lambda site: int(length_ns[groups[site]].sum()))
    loading_id = _loading_regions(context, lost.values())
    if call_site == NO_CALL_SITE:
        [call_site] = context.call_sites(loading_id[:1])
    is_in_thread = any(map(is_in_launching_thread, map(context.trace.name_of, loading_id.tolist())))
    what = "data loaded in the launching thread" if is_in_thread else "the data loader"
    return Candidate(
        title=f"The GPU waits for {what}",
        cause="input_bound",
        where=where(
            call_site,
            count=max(map(len, lost.values())),
            device=max(lost, key=lambda device: measure(lost[device])),
        ),
        evidence=tuple(loading_id[:MAX_EVIDENCE].tolist()),
        fix=_FIX.text,
        fix_short=_FIX.short,
        lost=lost,
        edit="load=0",
        remedy=remedy,
    )


def _functions_during(context: Context, bubble_index: NDArray[np.intp]) -> Int64Array:
    """The function that the launching thread was in half-way through each bubble, else ABSENT."""
    bubbles, timeline = context.bubbles, context.timeline
    next_id = bubbles.next_id[bubble_index]
    launch_id = timeline.launch_id[rows_of(timeline.event_id, next_id)]
    start_ns, end_ns = bubbles.start_ns[bubble_index], bubbles.end_ns[bubble_index]
    return innermost_functions(
        context.trace,
        start_ns + (end_ns - start_ns) // 2,
        context.trace.thread_index[launch_id],
    )


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
    "outside any module and launching nothing. A slow loader whose queue is full costs nothing "
    "and is not reported.",
    before="loader = DataLoader(data, batch_size=64)",
    after="loader = DataLoader(\n    data, batch_size=64, num_workers=8, pin_memory=True,\n"
    "    persistent_workers=True,\n)",
    find=find,
)
