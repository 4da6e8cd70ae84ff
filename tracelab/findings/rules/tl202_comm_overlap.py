"""TL202: a collective that could run beside compute, and does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Intervals, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.findings.rules.exposed_time import (
    LEFT_AS_IT_IS,
    candidates_of_exposed,
    collective_text,
)
from tracelab.measures.exposed import Exposed
from tracelab.measures.independent_work import needed_at_once
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.measures.peer_waits import PeerWaits, peer_waits
from tracelab.model.kernel_kinds import Kind
from tracelab.model.program.call_sites import CallSite

PEER_WAIT = "peer_wait"  # the cause
_PEER_FIX = (
    "Record all ranks and compare them: on the rank that the others wait for, the collective is "
    "shortest."
)
_SHORT_PEER_FIX = "Record all ranks and analyze their files together, as one job."
_SLOW_LINK_FIX = (
    f"{_PEER_FIX} If it takes as long on all of them, the link is slow: overlap the transfer with "
    "compute (`async_op=True`, and `work.wait()` where the result is used) or make it smaller (a "
    "bf16 compression hook, `no_sync()`)."
)
_COMPARE_RANKS = " A collective also waits for the slowest rank: record all ranks and compare them."
_FIXES = {
    **LEFT_AS_IT_IS,
    OverlapBlocker.SAME_STREAM: Instead(
        "It runs in the stream that computes. If what follows does not need its result: `work = "
        "dist.all_reduce(x, async_op=True)`, and `work.wait()` where the result is used.",
        short="Pass `async_op=True` and call `work.wait()` where the result is used, if the next "
        "compute does not need it.",
    ),
    OverlapBlocker.EVENT_WAIT: Instead(
        "The compute after it waits for it. If that compute does not need the result, wait later: "
        "`work.wait()` (or the event) where the result is used; in a DDP hook, run the rest in a "
        "side stream; with FSDP2, prefetch (`set_modules_to_forward_prefetch`)."
        f"{_COMPARE_RANKS}",
        short="Call `work.wait()` only where the result is used. With FSDP2: "
        "`layer.set_modules_to_forward_prefetch([next_layer])`.",
    ),
    OverlapBlocker.HOST_SYNC: Instead(
        "The compute that could overlap with it was launched late, because the CPU waited: remove "
        "the blocking call, or launch that compute before it.",
        short="Remove the blocking call, or launch the compute before it.",
    ),
    OverlapBlocker.LATE_LAUNCH: Instead(
        "Launch the compute that could overlap with it earlier: the CPU is late there."
    ),
    OverlapBlocker.TRUE_DEPENDENCY: Instead(
        "Nothing can overlap with it, because the next compute needs its result or no other work "
        f"is left.{_COMPARE_RANKS} The time that it takes on every rank is transfer: a bf16 "
        "compression hook halves it, and `no_sync()` during gradient accumulation makes it rarer.",
        short="Send less. With DDP: `model.register_comm_hook(None, bf16_compress_hook)`, and "
        "`model.no_sync()` while gradients accumulate.",
    ),
}
# Where the host launches something late, that is what to change, and findings of their own say so.
_MOVED_BY_A_STREAM = (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT)
WITHOUT_CHANGE = tuple(
    x for x in OverlapBlocker if x not in (*_MOVED_BY_A_STREAM, OverlapBlocker.HARDWARE_QUEUE)
)
_COMPARE_PEERS = " It also waits until the peer sends: record all ranks and compare them."
_FIX_OF_RECEIVED = Instead(
    "Nothing can overlap with it, because the next compute needs what it "
    f"receives.{_COMPARE_PEERS}",
    short="Leave it as it is: the next compute needs what it receives.",
)


def find(context: Context) -> list[Candidate]:
    """Exposed collectives, unless the hardware queue is to blame; apart, what waited for a peer."""
    waits = peer_waits(context.timeline)
    moving, waiting = waits.split(context.timeline, context.exposed)
    is_chosen = context.timeline.kind[moving.row] == Kind.COMM
    is_chosen &= moving.blocker != OverlapBlocker.HARDWARE_QUEUE
    return [
        *candidates_of_exposed(context, moving, is_chosen, worded, _edit_of, "TL202"),
        *_peer_waits(context, waiting, waits),
    ]


def drop_comparison(fix: str) -> str:
    """A fix where the other ranks were recorded and compared.

    >>> drop_comparison(_FIX_OF_RECEIVED.text)
    'Nothing can overlap with it, because the next compute needs what it receives.'
    """
    return fix.replace(_COMPARE_RANKS, "").replace(_COMPARE_PEERS, "")


def worded(site: CallSite, name: str, blocker: OverlapBlocker, reason: str) -> tuple[str, Instead]:
    """Title and fix of some exposed collectives; see `Wording`."""
    is_received = blocker == OverlapBlocker.TRUE_DEPENDENCY and needed_at_once(name)
    fix = _FIX_OF_RECEIVED if is_received else _FIXES[blocker]
    return f"{collective_text(site, name)} does not overlap with compute{reason}", fix


def _edit_of(_name: str, blocker: OverlapBlocker) -> str | None:
    return "side-stream:{place}" if blocker in _MOVED_BY_A_STREAM else None


def _peer_waits(context: Context, waiting: Exposed, waits: PeerWaits) -> list[Candidate]:
    """One candidate for each kernel and call site whose exposed collectives waited for a peer.

    Args:
        context: the window.
        waiting: the exposed pieces in which they waited.
        waits: how long they waited in all.
    """
    timeline = context.timeline
    chosen_index = np.flatnonzero(context.is_inside(waiting.start_ns, waiting.end_ns))
    chosen_row = waiting.row[chosen_index]
    keys = zip(
        waits.is_slow[chosen_row].tolist(),
        context.call_sites(timeline.launch_id[chosen_row]),
        map(context.kernel_name, chosen_row.tolist()),
        strict=True,
    )
    candidates = []
    for (is_slow, call_site, name), group in grouped(keys).items():
        piece_index, row = chosen_index[group], np.unique(chosen_row[group])
        lost = context.group_by_device(
            timeline.device_number[waiting.row[piece_index]],
            waiting.start_ns[piece_index],
            waiting.end_ns[piece_index],
        )
        why, fix = (", or its link is slow", _SLOW_LINK_FIX) if is_slow else ("", _PEER_FIX)
        candidates.append(
            Candidate(
                title=f"{collective_text(call_site, name)} waits for a peer{why}",
                cause=PEER_WAIT,
                where=where(call_site, count=len(row), activity=name),
                evidence=most_expensive(
                    timeline.event_id[row].tolist(), waits.wait_ns[row].tolist()
                ),
                fix=f"{_figures(context, waits, row, lost)} {fix}",
                fix_short=_SHORT_PEER_FIX,
                lost=lost,
                limit_ns=dict.fromkeys(lost, 0),
                severity_override=INFO,
            )
        )
    return candidates


def _figures(
    context: Context, waits: PeerWaits, row: NDArray[np.integer[Any]], lost: Mapping[int, Intervals]
) -> str:
    """Describe the length of the slowest of some collectives, next to its fastest twin."""
    timeline = context.timeline
    length_ns = timeline.end_ns[row] - timeline.start_ns[row]
    slowest = int(np.argmax(waits.wait_ns[row]))
    share = max(map(measure, lost.values())) / context.window.length_ns
    total = f"{100 * share:.1f} % of the time was spent this way without overlapping compute."
    if waits.is_slow[row[slowest]]:
        return (
            f"Each took {_us(length_ns.min())} or more, longer than a usual link needs for that "
            f"many bytes: {total}"
        )
    return (
        f"It took {_us(length_ns[slowest])} where its fastest twin took "
        f"{_us(waits.fastest_ns[row[slowest]])}: it waited for a peer. {total}"
    )


def _us(length_ns: np.integer[Any]) -> str:
    return f"{length_ns / 1000:,.0f} µs"


RULE = Rule(
    id="TL202",
    name="a collective that is not overlapped with compute",
    matters="NCCL needs few multiprocessors, so a collective can run next to compute that does not "
    "need its result: the gradients of one layer during the backward pass of the next, the shards "
    "of a layer during the layer before it.",
    decides="It takes the time in which a collective ran and no compute did, and determines what "
    "kept the next compute from overlapping with it or, for an all-gather, what kept it from "
    "overlapping with the compute before. The bound is the compute that does not need its result: "
    "the rest of the backward pass, if it was launched there; otherwise what follows before the "
    "next collective. Messages that a pipeline stage receives are true dependencies. A collective "
    "that takes 2.5 times as long as its fastest twin (same kernel, size and process group) "
    "waited for a peer: that part is reported separately (`peer_wait`), with a bound of 0.",
    before="dist.all_reduce(gradients)\nother_compute()\nuse(gradients)",
    after="work = dist.all_reduce(gradients, async_op=True)\nother_compute()\nwork.wait()\n"
    "use(gradients)",
    find=find,
)
