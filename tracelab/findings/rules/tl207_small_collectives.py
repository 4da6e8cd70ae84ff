"""TL207: many small collectives in a row, each of which costs a latency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, intersect, join, measure
from tracelab.findings.candidates import Candidate, grouped, key_of, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.remedy import Remedy
from tracelab.findings.rule import Rule
from tracelab.measures.exposed import Exposed
from tracelab.measures.peer_waits import peer_waits
from tracelab.measures.small_collectives import MIN_IN_A_ROW, SmallCollectives, small_collectives
from tracelab.model.program.call_sites import CallSite

LATENCY = "latency"  # the cause
_FIX = (
    "Send them as one: pack the tensors into one flat buffer, or issue them inside "
    "`torch.distributed._coalescing_manager()`; gradients with `DistributedDataParallel` in its "
    "default buckets."
)

_FIX_SHORT = (
    "Send them as one: flatten the tensors (`torch.cat([x.flatten() for x in tensors])`) into one "
    "collective."
)


def find(context: Context) -> list[Candidate]:
    """Exposed small collectives in a row, by call site."""
    timeline, small = context.timeline, small_collectives(context.timeline)
    is_inside = context.is_inside(timeline.start_ns[small.row], timeline.end_ns[small.row])
    inside = np.flatnonzero(is_inside & (small.latency_ns > 0))
    if not len(inside):
        return []
    moving, _ = peer_waits(timeline).split(timeline, context.exposed)
    saved_ns, row = small.saved_ns(moving), small.row[inside]
    launch_id = timeline.launch_id[row]
    sites, names = context.call_sites(launch_id), map(context.kernel_name, row.tolist())
    remedies = context.recognized.remedies(launch_id, RULE.id)
    keys = map(key_of, remedies, zip(sites, names, strict=True))
    hows = [*zip(sites, remedies, strict=True)]
    return [
        _candidate(context, small, inside[group], moving, saved_ns, hows[group[0]])
        for group in grouped(keys).values()
    ]


def _candidate(
    context: Context,
    small: SmallCollectives,
    index: NDArray[np.intp],
    moving: Exposed,
    saved_ns: Int64Array,
    how: tuple[CallSite, Remedy | None],
) -> Candidate:
    """The candidate of some small collectives of one call site, or remedy."""
    timeline, row, (call_site, remedy) = context.timeline, small.row[index], how
    name = context.kernel_name(int(row[0]))
    is_piece = np.isin(moving.row, row)
    piece_device = timeline.device_number[moving.row[is_piece]]
    lost = context.group_by_device(piece_device, moving.start_ns[is_piece], moving.end_ns[is_piece])
    limit_ns = {}
    for device in np.unique(timeline.device_number[row]).tolist():
        of_device = index[timeline.device_number[row] == device]
        gaps = intersect(
            context.inside(small.gap_start_ns[of_device], timeline.start_ns[small.row[of_device]]),
            context.idle(device),
        )
        lost[device] = join(lost.get(device, gaps), gaps)
        limit_ns[device] = int(saved_ns[of_device].sum()) + measure(gaps)
    return Candidate(
        title="Many small collectives run one after another, and each costs a latency",
        cause=LATENCY,
        where=where(call_site, count=len(row), activity=name),
        evidence=most_expensive(timeline.event_id[row].tolist(), saved_ns[index].tolist()),
        fix_short=_FIX_SHORT,
        fix=f"{_FIX} {_figures(context, small, index)}",
        lost={device: time for device, time in lost.items() if len(time)},
        limit_ns=limit_ns,
        remedy=remedy,
    )


def _figures(context: Context, small: SmallCollectives, index: NDArray[np.intp]) -> str:
    """Describe their number, and what they take, in a sentence."""
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
    matters="Every collective costs a latency, however little it sends, and the CPU takes tens of "
    "microseconds to issue it. Sending the same bytes in one collective costs both once.",
    decides="It takes collectives of less than 1 MB of one process group and operation, "
    f"{MIN_IN_A_ROW} or more in a row: the gradients of one backward pass, or collectives that "
    "one thread issues with almost no compute between them. Collectives that the next layer needs "
    "are not in a row. Each but one saves the latency (the shortest small collective of the "
    "group), as far as no compute ran at the same time and no peer was late, and the idle "
    "time since the one before. Buckets of DDP's default size, a single small bucket and "
    "overlapped collectives are not reported.",
    before="for parameter in model.parameters():\n    dist.all_reduce(parameter.grad)",
    after="flat = torch.cat([p.grad.flatten() for p in model.parameters()])\ndist.all_reduce(flat)",
    find=find,
)
