"""TL207: many small collectives in a row, each of which costs a latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.candidates_of_exposed import named
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.intervals import Int64Array, intersect, join, measure
from tracelab.measures.peer_waits import peer_waits
from tracelab.measures.small_collectives import FEWEST, SmallCollectives, small_collectives

LATENCY = "latency"  # the cause
_FIX = (
    "Send them as one: pack the tensors into one flat buffer, or issue them inside "
    "`torch.distributed._coalescing_manager()`."
)
_FIX_OF_GRADIENTS = (
    "Send the gradients in larger buckets: leave out `bucket_cap_mb` of "
    "`DistributedDataParallel` (the default is 25), or make it larger."
)


def find(context: Context) -> list[Candidate]:
    """Exposed small collectives in a row, by call site."""
    small = small_collectives(context.timeline)
    if not len(small.row):
        return []
    moving, _ = peer_waits(context.timeline).split(context.timeline, context.exposed)
    saved_ns = small.saved_ns(moving)
    timeline = context.timeline
    inside = np.flatnonzero(
        context.is_inside(timeline.start_ns[small.row], timeline.end_ns[small.row])
    )
    keys = zip(
        context.call_sites(timeline.launch_id[small.row[inside]]),
        map(context.kernel_name, small.row[inside].tolist()),
        small.is_gradient[inside].tolist(),
        strict=True,
    )
    candidates = []
    for (call_site, name, is_gradient), group in grouped(keys).items():
        index = inside[group]
        row = small.row[index]
        is_piece = np.isin(moving.row, row)
        lost = context.by_device(
            timeline.device_number[moving.row[is_piece]],
            moving.start_ns[is_piece],
            moving.end_ns[is_piece],
        )
        limit_ns = {}
        for device in np.unique(timeline.device_number[row]).tolist():
            of_device = index[timeline.device_number[row] == device]
            gaps = intersect(
                context.inside(small.gap_start_ns[of_device], timeline.start_ns[small.row[of_device]]),
                context.idle(device),
            )
            limit_ns[device] = int(saved_ns[of_device].sum()) + measure(gaps)
            if device in lost or len(gaps):
                lost[device] = join(lost[device], gaps) if device in lost else gaps
        candidates.append(
            Candidate(
                title=f"{named(call_site, name)}: many small collectives in a row, each of which "
                "costs a latency",
                cause=LATENCY,
                where=where(call_site, count=len(row), activity=name),
                evidence=most_expensive(timeline.event_id[row].tolist(), saved_ns[index].tolist()),
                fix=f"{_FIX_OF_GRADIENTS if is_gradient else _FIX} "
                f"{_figures(context, small, index, row)}",
                lost=lost,
                limit_ns=limit_ns,
            )
        )
    return candidates


def _figures(
    context: Context, small: SmallCollectives, index: NDArray[np.intp], row: NDArray[np.intp]
) -> str:
    """How many there are, and what they take, in a sentence."""
    steps = max(1, len(context.typical_steps))
    length_ns: Int64Array = (context.timeline.end_ns - context.timeline.start_ns)[row]
    period = "in each step" if context.typical_steps else "in the trace"
    return (
        f"{len(row) / steps:,.0f} of them {period} take {np.median(length_ns) / 1000:,.0f} µs each, "
        f"of which {small.latency_ns[index].min() / 1000:,.0f} µs are needed however little is sent."
    )


RULE = Rule(
    id="TL207",
    name="collectives too small or too many: their latency is the cost",
    matters="A collective takes a latency however little it sends, and the host some tens of "
    "microseconds to issue it. The same bytes in one collective cost both once.",
    decides=f"It takes collectives of less than 1 MB of one process group and operation, {FEWEST} "
    "or more in a row: the gradients of one backward pass, or what one thread issues with next to "
    "no compute between. Collectives that the next layer needs are not in a row. Each but one "
    "saves the latency (the shortest small collective of the group) as far as no compute ran "
    "beside it and it waited for no peer, and the idle time since the one before. Buckets of "
    "DDP's default size, a single small bucket and overlapped collectives are not reported.",
    before="for parameter in model.parameters():\n    dist.all_reduce(parameter.grad)",
    after="flat = torch.cat([p.grad.flatten() for p in model.parameters()])\n"
    "dist.all_reduce(flat)",
    find=find,
)
