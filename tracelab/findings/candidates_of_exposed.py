"""Candidates of exposed communication and copies, by overlap blocker and call site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import (
    MOST_EVIDENCE,
    Candidate,
    grouped,
    key_of,
    most_expensive,
    only_one,
    where,
)
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.remedy import Instead, Remedy
from tracelab.measures.exposed import Exposed
from tracelab.measures.independent_work import Side, side_of_independent_work
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.collectives import Operation, operation_of
from tracelab.model.kernel_kinds import Kind
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT
from tracelab.model.wording import as_subject, called, kernel_text

# Where it is, its name on the GPU, its overlap blocker, what that means -> title, fix.
Wording = Callable[[CallSite, str, OverlapBlocker, str], tuple[str, Instead]]
# Its name on the GPU, its overlap blocker -> the edit, as in `Candidate`.
EditOf = Callable[[str, OverlapBlocker], str | None]
# What to do where there is nothing to do, or nobody knows what.
LEFT_AS_IT_IS: Mapping[OverlapBlocker, Instead] = MappingProxyType(
    {
        OverlapBlocker.TRUE_DEPENDENCY: Instead(
            "Leave it as it is: there was no other work to overlap it with."
        ),
        OverlapBlocker.NO_FREE_SM: Instead(
            "Leave it as it is: the kernels that ran left no multiprocessor free."
        ),
        OverlapBlocker.UNKNOWN: Instead(
            "The file does not say what the other work waited for. If it has no event records, "
            "record them with `tracelab run` or `tracelab.capture`.",
            short="Record event records, if the file has none: `tracelab run train.py`.",
        ),
    }
)
_ONCE = 1.5  # a step, give or take one that the recording cut
# What keeps other work waiting, so that it can be named.
_KEEPS_WAITING = (
    OverlapBlocker.SAME_STREAM,
    OverlapBlocker.EVENT_WAIT,
    OverlapBlocker.HARDWARE_QUEUE,
)


def candidates_of_exposed(
    context: Context,
    exposed: Exposed,
    is_chosen: NDArray[np.bool_],
    wording: Wording,
    edit_of: EditOf,
    rule_id: str,
) -> list[Candidate]:
    """One candidate for each call site, or remedy, and overlap blocker of some exposed pieces.

    Args:
        context: the window.
        exposed: pieces of exposed time.
        is_chosen: bool[exposed pieces].
        wording: what to say of a call site.
        edit_of: which change a replay makes.
        rule_id: of the rule that they are for.
    """
    timeline = context.timeline
    chosen_index = np.flatnonzero(is_chosen & context.is_inside(exposed.start_ns, exposed.end_ns))
    chosen_row = exposed.row[chosen_index]
    blockers = exposed.blocker[chosen_index].tolist()
    sites = context.call_sites(timeline.launch_id[chosen_row])
    names = map(context.kernel_name, chosen_row.tolist())
    remedies = context.recognized.remedies(timeline.launch_id[chosen_row], rule_id)
    origins = context.origins_of(chosen_row)
    keys = [
        (blocker, key_of(remedy, (site, name)))
        for blocker, site, name, remedy in zip(blockers, sites, names, remedies, strict=True)
    ]
    blocking_sites = _blocking_call_sites(context, exposed, chosen_index)
    return [
        _candidate(
            context,
            exposed,
            chosen_index[group],
            sites[group[0]],
            only_one([origins[i] for i in group]),
            remedies[group[0]],
            (wording, edit_of),
            blocking_sites,
        )
        for group in grouped(keys).values()
    ]


def _candidate(
    context: Context,
    exposed: Exposed,
    piece_index: NDArray[np.intp],
    call_site: CallSite,
    origin: str,
    remedy: Remedy | None,
    how: tuple[Wording, EditOf],
    blocking_sites: Mapping[int, CallSite],
) -> Candidate:
    """The candidate of exposed pieces with one call site, or remedy, and overlap blocker."""
    timeline, (wording, edit_of) = context.timeline, how
    blocker = OverlapBlocker(int(exposed.blocker[piece_index[0]]))
    piece_row, bound_ns = exposed.row[piece_index], exposed.bound_ns[piece_index]
    start_ns, end_ns = exposed.start_ns[piece_index], exposed.end_ns[piece_index]
    event_ids, device_numbers = timeline.event_id[piece_row], timeline.device_number[piece_row]
    blocked_ids = _blocked_ids(context, exposed, piece_index)
    name = context.kernel_name(int(piece_row[0]))
    reason = _reason(context, exposed.blocking_call_id[piece_index], blocking_sites, blocked_ids)
    title, fix = wording(call_site, name, blocker, reason)
    # Work that was launched late is TL301's to report; what was exposed meanwhile may have needed
    # it.
    is_info = blocker == OverlapBlocker.LATE_LAUNCH or _feeds_next_layer(context, piece_row)
    longest_ids = most_expensive(event_ids.tolist(), (end_ns - start_ns).tolist())
    return Candidate(
        title=title,
        cause=blocker.name.lower(),
        where=where(
            call_site,
            count=len(np.unique(piece_row)),
            activity=name,
            captured_at=origin or None,
        ),
        evidence=(*longest_ids, *blocked_ids),
        fix=fix.text,
        fix_short=fix.short,
        lost=context.by_device(device_numbers, start_ns, end_ns),
        limit_ns={
            device: int(bound_ns[device_numbers == device].sum())
            for device in np.unique(device_numbers).tolist()
        },
        severity_override=INFO if is_info else None,
        edit=None if is_info else edit_of(name, blocker),
        remedy=remedy,
    )


def collective_text(call_site: CallSite, activity: str) -> str:
    """A collective in words: what it does, and the call that issues it.

    >>> collective_text(CallSite(call="backward"), "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    'The all-reduce in `backward()`'
    >>> collective_text(CallSite(call="all_reduce"), "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    '`all_reduce()`'
    >>> collective_text(CallSite(), "ncclDevKernel_Unknown")
    'ncclDevKernel_Unknown'
    """
    operation, name = operation_of(activity), called(call_site)
    if name and operation in (operation_of(name), Operation.UNKNOWN):
        return as_subject(name)
    if operation == Operation.UNKNOWN:
        return activity
    what = f"The {operation.name.lower().replace('_', '-')}"
    return f"{what} in {name}" if name else what


def _feeds_next_layer(context: Context, rows: NDArray[np.intp]) -> bool:
    """Whether these are collectives between the layers of a model, as tensor parallelism has them.

    That is taken of all that run several times a step outside the backward pass and are no
    all-gather: what follows most likely needs them.
    """
    timeline, unique_row = context.timeline, np.unique(rows)
    steps = 1 if context.window.step is not None else max(1, len(timeline.steps))
    is_after = side_of_independent_work(timeline, unique_row) == Side.AFTER
    return (
        bool((timeline.kind[unique_row] == Kind.COMM).all())
        and bool(is_after.all())
        and not context.in_backward[unique_row].any()
        and len(unique_row) > _ONCE * steps
    )


def _blocking_call_sites(
    context: Context, exposed: Exposed, piece_index: NDArray[np.intp]
) -> Mapping[int, CallSite]:
    """The call sites of the blocking calls behind these pieces, by event id."""
    call_id = np.unique(exposed.blocking_call_id[piece_index])
    call_id = call_id[call_id != ABSENT]
    return dict(zip(call_id.tolist(), context.call_sites(call_id), strict=True))


def _reason(
    context: Context,
    call_id: Int64Array,
    blocking_sites: Mapping[int, CallSite],
    blocked_ids: tuple[int, ...],
) -> str:
    """The blocking call behind most of some pieces, or the kernel that waited; "" without."""
    calls = Counter(call_id[call_id != ABSENT].tolist())
    for call, _ in calls.most_common(1):
        return f", because {called(blocking_sites[call], context.trace.name_of(call))} blocks"
    names = Counter(context.trace.name_of(event_id) for event_id in blocked_ids)
    return "".join(f", and {kernel_text(name)} waits for it" for name, _ in names.most_common(1))


def _blocked_ids(
    context: Context, exposed: Exposed, piece_index: NDArray[np.intp]
) -> tuple[int, ...]:
    """Event ids of the work that could not run beside these pieces."""
    waited_index = piece_index[np.isin(exposed.blocker[piece_index], _KEEPS_WAITING)]
    blocked_row = exposed.blocked_row[waited_index]
    is_other = (blocked_row != exposed.row[waited_index]) & (blocked_row != ABSENT)
    blocked_id = context.timeline.event_id[blocked_row[is_other]]
    return tuple(dict.fromkeys(blocked_id.tolist()))[:MOST_EVIDENCE]
