"""Candidates of collectives that waited for a peer, by call site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Intervals, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.candidates_of_exposed import collective_text
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.measures.exposed import Exposed
from tracelab.measures.peer_waits import PeerWaits

PEER_WAIT = "peer_wait"  # the cause
_FIX = (
    "Record all ranks and compare them: on the rank that the others wait for, the collective is "
    "shortest."
)
_FIX_SHORT = "Record all ranks and analyze their files together, as one job."
_FIX_OF_SLOW = (
    f"{_FIX} If it takes as long on all of them, the link is slow: overlap the transfer with "
    "compute (`async_op=True`, and `work.wait()` where the result is used) or make it smaller (a "
    "bf16 compression hook, `no_sync()`)."
)


def candidates_of_peer_waits(
    context: Context, waiting: Exposed, waits: PeerWaits
) -> list[Candidate]:
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
        lost = context.by_device(
            timeline.device_number[waiting.row[piece_index]],
            waiting.start_ns[piece_index],
            waiting.end_ns[piece_index],
        )
        why = ", or its link is slow" if is_slow else ""
        candidates.append(
            Candidate(
                title=f"{collective_text(call_site, name)} waits for a peer{why}",
                cause=PEER_WAIT,
                where=where(call_site, count=len(row), activity=name),
                evidence=most_expensive(
                    timeline.event_id[row].tolist(), waits.wait_ns[row].tolist()
                ),
                fix=f"{_figures(context, waits, row, lost)} {_FIX_OF_SLOW if is_slow else _FIX}",
                fix_short=_FIX_SHORT,
                lost=lost,
                limit_ns=dict.fromkeys(lost, 0),
                severity_override=INFO,
            )
        )
    return candidates


def _figures(
    context: Context, waits: PeerWaits, row: NDArray[np.integer[Any]], lost: Mapping[int, Intervals]
) -> str:
    """How long the slowest of some collectives took, beside its fastest twin."""
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
