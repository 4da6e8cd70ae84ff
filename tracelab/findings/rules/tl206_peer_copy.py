"""TL206: a copy between GPUs that delays both of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Intervals, gaps, intersect, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called, capitalize_start

_COMPUTE_WAITS = (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT)
_FIX = Instead(
    "Make a side stream current on *both* GPUs for the copy: `with "
    'torch.cuda.stream(s0), torch.cuda.stream(s1): y = x.to("cuda:1", '
    "non_blocking=True)`; then `current_stream(1).wait_stream(s1)` where y is used, "
    "and `x.record_stream(s0)`. `non_blocking` alone changes nothing.",
    short="Copy under side streams of both GPUs: `with torch.cuda.stream(s0), "
    'torch.cuda.stream(s1): y = x.to("cuda:1", non_blocking=True)`. Wait where `y` is used.',
)


def find(context: Context) -> list[Candidate]:
    """Peer copies that the sender's compute or the receiver's waited for, by call site."""
    timeline, rows = context.timeline, _peer_copy_rows(context)
    candidates = []
    for call_site, group in grouped(context.call_sites(timeline.launch_id[rows])).items():
        copy_row, what = rows[group], capitalize_start(called(call_site, "copy"))
        lost_by_sender, bound_ns = _waits_at_senders(context, copy_row)
        lost = {
            device: time
            for device, time in {**_waits_at_receivers(context, copy_row), **lost_by_sender}.items()
            if len(time)
        }
        if not lost:
            continue
        length_ns = timeline.end_ns[copy_row] - timeline.start_ns[copy_row]
        candidates.append(
            Candidate(
                title=f"{what} copies between GPUs and delays their compute",
                cause="default_stream",
                where=where(
                    call_site, count=len(copy_row), activity=context.kernel_name(int(copy_row[0]))
                ),
                evidence=most_expensive(timeline.event_id[copy_row].tolist(), length_ns.tolist()),
                fix=_FIX.text,
                fix_short=_FIX.short,
                lost=lost,
                # The copies can overlap with no more compute than there is.
                limit_ns={
                    device: min(compute_ns, bound_ns.get(device, compute_ns))
                    for device in lost
                    for compute_ns in [_compute_ns(context, device)]
                },
                edit="side-stream:{place}",
            )
        )
    return candidates


def _compute_ns(context: Context, device: int) -> int:
    """Return the compute time of a device in the window, ns."""
    timeline = context.timeline
    rows = np.flatnonzero(timeline.select(device=device, kind=Kind.COMPUTE))
    return measure(context.inside(timeline.start_ns[rows], timeline.end_ns[rows]))


def _peer_copy_rows(context: Context) -> NDArray[np.intp]:
    """Timeline rows of the copies between GPUs that begin in the window."""
    timeline, window = context.timeline, context.window
    is_peer_copy = match_names(
        context.trace, timeline.event_id, lambda name: copy_direction(name) == "p2p"
    )
    is_peer_copy &= timeline.kind == Kind.COPY
    is_peer_copy &= (timeline.start_ns >= window.start_ns) & (timeline.start_ns < window.end_ns)
    return np.flatnonzero(is_peer_copy)


def _waits_at_senders(
    context: Context, copy_row: NDArray[np.intp]
) -> tuple[dict[int, Intervals], dict[int, int]]:
    """Return the time in which the sender's next compute waited for the copies, and the bounds."""
    exposed = context.exposed
    device_number = context.timeline.device_number[exposed.row]
    is_waited_for = np.isin(exposed.row, copy_row) & np.isin(exposed.blocker, _COMPUTE_WAITS)
    lost, bound_ns = {}, {}
    for device in np.unique(device_number[is_waited_for]).tolist():
        on_device = is_waited_for & (device_number == device)
        lost[device] = context.inside(exposed.start_ns[on_device], exposed.end_ns[on_device])
        bound_ns[device] = int(exposed.bound_ns[on_device].sum())
    return lost, bound_ns


def _waits_at_receivers(context: Context, copy_row: NDArray[np.intp]) -> dict[int, Intervals]:
    """Return the idle time of other GPUs whose next launched activity waited for a copy."""
    timeline, bound_by_row = context.timeline, context.graph.binding.source_row
    waiting_row = np.flatnonzero(np.isin(bound_by_row, copy_row) & (timeline.launch_id != ABSENT))
    source_row = bound_by_row[waiting_row]
    is_other = timeline.device_number[waiting_row] != timeline.device_number[source_row]
    waiting_row, source_row = waiting_row[is_other], source_row[is_other]
    launched_ns = context.trace.end_ns[timeline.launch_id[waiting_row]]
    waits = context.group_by_device(
        timeline.device_number[waiting_row],
        np.maximum(launched_ns, timeline.start_ns[source_row]),
        np.minimum(timeline.end_ns[source_row], timeline.start_ns[waiting_row]),
    )
    return {device: intersect(wait, _idle(context, device)) for device, wait in waits.items()}


def _idle(context: Context, device: int) -> Intervals:
    """Return the time in which a device had no work, within the window."""
    busy = context.timeline.busy(context.timeline.select(device=device))
    return gaps(busy, context.window.start_ns, context.window.end_ns)


RULE = Rule(
    id="TL206",
    name="a peer copy that blocks because it runs in a default stream",
    matters="A copy by `.to()` runs in the sender's current stream and makes the receiver's "
    "current stream wait. In the default stream of either GPU it separates that GPU's kernels, "
    "and the GPU computes nothing during the copy, whether it needs the data or not.",
    decides="It takes copies between GPUs that ran exposed on the sender while its next kernel "
    "waited for them, and the time in which the receiver was idle with launched work that "
    "waited for them. The trace does not say whether the receiver's work needs the data: if it "
    "does, only the sender gains.",
    before='y = x.to("cuda:1")\nother_work()',
    after="with torch.cuda.stream(s0), torch.cuda.stream(s1):\n"
    '    y = x.to("cuda:1", non_blocking=True)\nother_work()\n'
    "torch.cuda.current_stream(1).wait_stream(s1)\nuse(y)",
    find=find,
)
