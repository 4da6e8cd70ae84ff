"""Candidates about what the GPU is busy with, though less would do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array, measure
from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import WARNING_SHARE
from tracelab.findings.remedy import NO_FIX, Instead, Remedy
from tracelab.measures.independent_work import launched_in_backward
from tracelab.model.nesting import Nesting
from tracelab.model.trace import ABSENT


def candidates_of_work(
    context: Context,
    is_chosen: NDArray[np.bool_],
    *,
    title: str = "",
    fix: Instead = NO_FIX,
    cause: str,
    edit: str | None = None,
    remedy: Remedy | None = None,
    most_saved: NDArray[np.float64] | None = None,
    in_forward: bool = False,
    made_by: Int64Array | None = None,
) -> list[Candidate]:
    """One candidate for all of some GPU work, at the call site and kernel that take most of it.

    None where it cannot save what is worth a warning.

    Args:
        context: the window.
        is_chosen: bool[m], timeline rows.
        title: of the candidate; that of the remedy counts.
        fix: likewise.
        cause: of the candidate.
        edit: of the candidate.
        remedy: of the candidate.
        most_saved: float64[m], the share of each row that the fix saves at most; all without it.
        in_forward: whether the place is none of the backward pass, unless all of them are.
        made_by: int64[m], event ids of the host events whose call sites count; those of the
            launches without it.
    """
    timeline = context.timeline
    rows = np.flatnonzero(is_chosen & context.is_inside(timeline.start_ns, timeline.end_ns))
    lost = context.time_of(rows)
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    saved_ns = length_ns if most_saved is None else length_ns * most_saved[rows]
    device_number = timeline.device_number[rows]
    limit_ns = {
        device: min(measure(time), round(float(saved_ns[device_number == device].sum())))
        for device, time in lost.items()
    }
    most_ns = max(limit_ns.values(), default=0)
    if not most_ns or most_ns < WARNING_SHARE * context.window.length_ns:
        return []
    sites = context.call_sites((timeline.launch_id if made_by is None else made_by)[rows])
    names = [context.kernel_name(row) for row in rows.tolist()]
    is_place = ~(launched_in_backward(timeline)[rows] & in_forward)
    top = _longest([*zip(sites, names, strict=True)], length_ns * (is_place | ~is_place.any()))
    site, name = sites[top], names[top]
    return [
        Candidate(
            title=title,
            cause=cause,
            where=where(
                site,
                count=len(rows),
                activity=name,
                captured_at=context.origins_of(rows[[top]])[0] or None,
            ),
            evidence=most_expensive(timeline.event_id[rows].tolist(), length_ns.tolist()),
            fix=fix.text,
            fix_short=fix.short,
            lost=lost,
            limit_ns=limit_ns,
            edit=edit,
            remedy=remedy,
        )
    ]


def _longest(keys: Sequence[object], length_ns: Int64Array) -> int:
    """The position of the first of those with one key that take longest together."""
    groups = grouped(keys).values()
    return max(groups, key=lambda group: int(length_ns[group].sum()))[0]


def candidates_of_remedies(
    context: Context,
    rule_id: str,
    *,
    cause: str,
    is_chosen: NDArray[np.bool_] | None = None,
    in_forward: bool = False,
    at_events: bool = False,
) -> list[Candidate]:
    """One candidate for the GPU work of each remedy of a rule.

    Args:
        context: the window.
        rule_id: of the rule.
        cause: of the candidates.
        is_chosen: bool[m], the timeline rows that count, of those that were launched inside the
            events by which the remedy is recognized; all of these without it.
        in_forward: whether the place is none of the backward pass, unless all of them are.
        at_events: whether the place is that of those events, rather than of a launch.
    """
    candidates = []
    for remedy, event_id in context.recognized.events_of:
        if rule_id in remedy.rules:
            around = _launched_inside(context, event_id)
            candidates += candidates_of_work(
                context,
                (around != ABSENT) & (True if is_chosen is None else is_chosen),
                cause=cause,
                remedy=remedy,
                in_forward=in_forward,
                made_by=around if at_events else None,
            )
    return candidates


def _launched_inside(context: Context, event_id: Int64Array) -> Int64Array:
    """int64[m], the innermost of some host events that launched each timeline row, else ABSENT."""
    launch_id = context.timeline.launch_id
    around = np.full(len(launch_id), ABSENT, dtype=np.int64)
    rows = np.flatnonzero(launch_id != ABSENT)
    nesting = Nesting(context.trace, event_id)
    index = nesting.innermost(launch_id[rows])
    around[rows] = np.where(index == ABSENT, ABSENT, nesting.event_id[index])
    return around
