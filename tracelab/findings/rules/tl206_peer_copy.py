"""TL206: a copy between GPUs that holds up both of them."""

from __future__ import annotations

import numpy as np

from tracelab.findings.claims import grouped, most_expensive, where
from tracelab.findings.facts import Context
from tracelab.findings.rule import Candidate, Rule
from tracelab.findings.wording import describe
from tracelab.intervals import Intervals, gaps, intersect, measure
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT

_HELD = (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT)


def find(facts: Context) -> list[Candidate]:
    """Peer copies that the sender's compute or the receiver's waited for, by place."""
    timeline = facts.timeline
    copies = np.flatnonzero(timeline.kind == Kind.COPY).tolist()
    rows = [x for x in copies if _is_peer_copy(timeline, x) and _in_window(facts, x)]
    places = facts.call_sites(facts.launch_of(row) for row in rows)
    claims = []
    for place, group in grouped(places).items():
        mine = [rows[i] for i in group]
        sent, limits = _at_senders(facts, mine)
        lost = {**_at_receivers(facts, mine), **sent}
        lost = {device: time for device, time in lost.items() if len(time)}
        if not lost:
            continue
        length = timeline.end_ns[mine] - timeline.start_ns[mine]
        claims.append(
            Candidate(
                title=f"{describe(place, 'copy')} copies between GPUs and holds up their compute",
                cause="default_stream",
                where=where(place, count=len(mine), activity=facts.name(mine[0])),
                evidence=most_expensive(timeline.event_id[mine].tolist(), length.tolist()),
                fix="Make a side stream current on *both* GPUs for the copy: `with "
                'torch.cuda.stream(s0), torch.cuda.stream(s1): y = x.to("cuda:1", '
                "non_blocking=True)`; then `current_stream(1).wait_stream(s1)` where y is used, "
                "and `x.record_stream(s0)`. `non_blocking` alone changes nothing.",
                lost=lost,
                limit_ns=limits,
            )
        )
    return claims


def _is_peer_copy(timeline: Timeline, row: int) -> bool:
    return copy_direction(timeline.trace.name_of(int(timeline.event_id[row]))) == "p2p"


def _in_window(facts: Context, row: int) -> bool:
    window = facts.window
    return bool(window.start_ns <= facts.timeline.start_ns[row] < window.end_ns)


def _at_senders(facts: Context, rows: list[int]) -> tuple[dict[int, Intervals], dict[int, int]]:
    """Where the copies ran and the sender's own next compute was held by them, and the limits."""
    found, devices = facts.exposed, facts.timeline.device_number[facts.exposed.row]
    mine = np.isin(found.row, rows) & np.isin(found.blocker, _HELD)
    lost, limits = {}, {}
    for device in np.unique(devices[mine]).tolist():
        here = mine & (devices == device)
        lost[device] = facts.inside(found.start_ns[here], found.end_ns[here])
        limits[device] = int(found.bound_ns[here].sum())
    return lost, limits


def _at_receivers(facts: Context, rows: list[int]) -> dict[int, Intervals]:
    """Where another GPU stood still because its next activity, launched, waited for a copy."""
    timeline = facts.timeline
    waited = np.flatnonzero(np.isin(facts.graph.awaited_row, rows))
    lost = {}
    for device in np.unique(timeline.device_number[waited]).tolist():
        here = waited[timeline.device_number[waited] == device]
        here = here[timeline.launch_id[here] != ABSENT]
        sources = facts.graph.awaited_row[here]
        other = timeline.device_number[sources] != device
        here, sources = here[other], sources[other]
        launched = facts.trace.end_ns[timeline.launch_id[here]]
        since = np.maximum(launched, timeline.start_ns[sources])
        held = facts.inside(since, np.minimum(timeline.end_ns[sources], timeline.start_ns[here]))
        busy = timeline.busy(timeline.select(device=device))
        idle = intersect(held, gaps(busy, facts.window.start_ns, facts.window.end_ns))
        if measure(idle):
            lost[device] = idle
    return lost


RULE = Rule(
    id="TL206",
    name="a peer copy that blocks because it runs in a default stream",
    matters="A copy by `.to()` runs in the sender's current stream, and makes the receiver's "
    "current stream wait. In the default stream of either side it stands between the kernels of "
    "that side, and that GPU computes nothing meanwhile, needed or not.",
    decides="It takes copies between GPUs that ran unhidden on the sender while its next kernel "
    "stood behind them, and the time in which the receiver stood still with launched work that "
    "waited for them. Whether the receiver's work needs the data, the trace does not say: if it "
    "does, only the sender wins.",
    before='y = x.to("cuda:1")\nother_work()',
    after="with torch.cuda.stream(s0), torch.cuda.stream(s1):\n"
    '    y = x.to("cuda:1", non_blocking=True)\nother_work()\n'
    "torch.cuda.current_stream(1).wait_stream(s1)\nuse(y)",
    find=find,
)
