"""Candidates about what the GPU is busy with, though less would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tracelab.findings.candidates import Candidate, grouped, most_expensive, where
from tracelab.findings.context import Context
from tracelab.findings.finding import WARNING_SHARE
from tracelab.findings.remedy import Remedy
from tracelab.intervals import Int64Array, measure
from tracelab.model.wording import describe

# Call site and kernel in words -> title and fix.
Wording = Callable[[str], tuple[str, str]]


def candidates_of_work(
    context: Context,
    is_chosen: NDArray[np.bool_],
    wording: Wording,
    *,
    cause: str,
    edit: str | None = None,
    remedy: Remedy | None = None,
    most_saved: float | NDArray[np.float64] = 1.0,
) -> list[Candidate]:
    """One candidate for all of some GPU work, at the call site and kernel that take most of it.

    None where that work takes less than a finding must to be worth a warning.

    Args:
        context: the window.
        is_chosen: bool[m], timeline rows.
        wording: what to say of it.
        cause: of the candidate.
        edit: of the candidate.
        remedy: of the candidate.
        most_saved: the share of each row (float64[m]), or of all, that the fix saves at most.
    """
    timeline = context.timeline
    rows = np.flatnonzero(is_chosen & context.is_inside(timeline.start_ns, timeline.end_ns))
    lost = context.time_of(rows)
    if max(map(measure, lost.values()), default=0) < WARNING_SHARE * context.window.length_ns:
        return []
    length_ns = timeline.end_ns[rows] - timeline.start_ns[rows]
    saved_ns = length_ns * np.broadcast_to(most_saved, is_chosen.shape)[rows]
    device_number = timeline.device_number[rows]
    sites = context.call_sites(timeline.launch_id[rows])
    names = [context.kernel_name(row) for row in rows.tolist()]
    top = _longest([*zip(sites, names, strict=True)], length_ns)
    site, name = sites[top], names[top]
    place = describe(site, "")
    title, fix = wording(f"{place}: {name}" if place else name)
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
            fix=fix,
            lost=lost,
            limit_ns={
                device: round(float(saved_ns[device_number == device].sum())) for device in lost
            },
            edit=edit,
            remedy=remedy,
        )
    ]


def _longest(keys: Sequence[object], length_ns: Int64Array) -> int:
    """The position of the first of those with one key that take longest together."""
    groups = grouped(keys).values()
    return max(groups, key=lambda group: int(length_ns[group].sum()))[0]
