"""TL207: many small collectives in a row, each of which costs a latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.candidates_of_exposed import named
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.intervals import Int64Array, intersect, join, measure
from tracelab.measures.exposed import Exposed
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
    timeline, small = context.timeline, small_collectives(context.timeline)
    inside = np.flatnonzero(
        context.is_inside(timeline.start_ns[small.row], timeline.end_ns[small.row])
    )
    if not len(inside):
        return []
    moving, _ = peer_waits(timeline).split(timeline, context.exposed)
    saved_ns, row = small.saved_ns(moving), small.row[inside]
    keys = zip(
        context.call_sites(timeline.launch_id[row]),
        map(context.kernel_name, row.tolist()),
        small.is_gradient[inside].tolist(),
        strict=True,
    )
    return [
        _candidate(context, small, inside[group], moving, saved_ns, named(call_site, name))
        for (call_site, name, _), group in grouped(keys).items()
    ]


def _candidate(
    context: Context,
    small: SmallCollectives,
    index: NDArray[np.intp],
    moving: Exposed,
    saved_ns: Int64Array,
    what: str,
) -> Candidate:
    """The candidate of some small collectives of one call site."""
    timeline, row = context.timeline, small.row[index]
    is_piece = np.isin(moving.row, row)
    piece_device = timeline.device_number[moving.row[is_piece]]
    lost = context.by_device(piece_device, moving.start_ns[is_piece], moving.end_ns[is_piece])
    limit_ns = {}
    for device in np.unique(timeline.device_number[row]).tolist():
        of_device = index[timeline.device_number[row] == device]
        gaps = intersect(
            context.inside(small.gap_start_ns[of_device], timeline.start_ns[small.row[of_device]]),
            context.idle(device),
        )
        lost[device] = join(lost.get(device, gaps), gaps)
        limit_ns[device] = int(saved_ns[of_device].sum()) + measure(gaps)
    call_site = context.call_sites(timeline.launch_id[row[:1]])[0]
    is_gradient = bool(small.is_gradient[index[0]])
    return Candidate(
        title=f"{what}: many small collectives in a row, each of which costs a latency",
        cause=LATENCY,
        where=where(call_site, count=len(row), activity=context.kernel_name(int(row[0]))),
        evidence=most_expensive(timeline.event_id[row].tolist(), saved_ns[index].tolist()),
        fix=f"{_FIX_OF_GRADIENTS if is_gradient else _FIX} {_figures(context, small, index)}",
        lost={device: time for device, time in lost.items() if len(time)},
        limit_ns=limit_ns,
    )


def _figures(context: Context, small: SmallCollectives, index: NDArray[np.intp]) -> str:
    """How many there are, and what they take, in a sentence."""
    timeline, row, steps = context.timeline, small.row[index], len(context.typical_steps)
    period = "in each step" if steps else "in the trace"
    length_us = float(np.median(timeline.end_ns[row] - timeline.start_ns[row])) / 1000
    latency_us = int(small.latency_ns[index].min()) / 1000
    return (
        f"{len(row) / max(1, steps):,.0f} of them {period} take {length_us:,.0f} µs each, of which "
        f"{latency_us:,.0f} µs are needed however little is sent."
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
    after="flat = torch.cat([p.grad.flatten() for p in model.parameters()])\ndist.all_reduce(flat)",
    find=find,
)
