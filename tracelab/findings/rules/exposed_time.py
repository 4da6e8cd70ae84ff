"""TL201, TL202, TL204, TL206 and TL207: copies and collectives that run alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from tracelab.base.arrays import BoolArray, IndexArray, Int64Array
from tracelab.base.intervals import Intervals, measure
from tracelab.findings.candidates import (
    MAX_EVIDENCE,
    Candidate,
    grouped,
    join_by_device,
    key_of,
    only_one,
    sum_by_device,
    where,
)
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO
from tracelab.findings.rule import Case, Rule, load_rule
from tracelab.measures.collective_costs import PeerWaits, peer_waits, small_collectives
from tracelab.measures.exposed import Exposed
from tracelab.measures.independent_work import Side, needed_at_once, side_of_independent_work
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.collectives import Operation, operation_of
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory, copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called, capitalize_start, kernel_text

PEER_WAIT = "peer_wait"  # a cause of TL202
# In its fixes, where not all ranks were compared.
_COMPARISONS = (
    " A collective also waits for the slowest rank: record all ranks and compare them.",
    " It also waits until the peer sends: record all ranks and compare them.",
)
_MAX_TIMES_OF_STEP = 1.5
_COMPUTE_WAITS = (OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT)
_KEEPS_WAITING = (*_COMPUTE_WAITS, OverlapBlocker.HARDWARE_QUEUE)

# Where the host launches something late, that is what to change, and findings of their own say so.
WITHOUT_CHANGE = tuple(x for x in OverlapBlocker if x not in _KEEPS_WAITING)

_Subject = Callable[[CallSite, str], str]
_CaseOf = Callable[[str, OverlapBlocker], Case]


def _candidates(
    context: Context,
    exposed: Exposed,
    is_chosen: BoolArray,
    rule: Rule,
    case_of: _CaseOf,
    subject: _Subject,
) -> list[Candidate]:
    chosen_index = np.flatnonzero(is_chosen & context.is_inside(exposed.start_ns, exposed.end_ns))
    chosen_row = exposed.row[chosen_index]
    launch_id = context.timeline.launch_id[chosen_row]
    blockers = exposed.blocker[chosen_index].tolist()
    sites = context.call_sites(launch_id)
    names = [*map(context.kernel_name, chosen_row.tolist())]
    remedies = context.recognized.remedies(launch_id, rule.id)
    origins = context.origins_of(chosen_row)
    keys = [
        (blocker, key_of(remedy, (site, name)))
        for blocker, site, name, remedy in zip(blockers, sites, names, remedies, strict=True)
    ]
    candidates = []
    for group in grouped(keys).values():
        piece_index, call_site, name = chosen_index[group], sites[group[0]], names[group[0]]
        blocker = OverlapBlocker(blockers[group[0]])
        row, case = exposed.row[piece_index], case_of(name, blocker)
        length_ns = exposed.end_ns[piece_index] - exposed.start_ns[piece_index]
        blocked_ids = _blocked_ids(context, exposed, piece_index)
        calls = exposed.blocking_call_id[piece_index]
        # Work that was launched late is TL301's; what was exposed meanwhile may have needed it.
        is_info = blocker == OverlapBlocker.LATE_LAUNCH or _feeds_next_layer(context, row)
        captured_at = only_one([origins[i] for i in group]) or None
        device, bound_ns = context.timeline.device_number[row], exposed.bound_ns[piece_index]
        reason = _reason(context, calls, blocked_ids)
        candidates.append(
            case.candidate(
                where(call_site, count=len(np.unique(row)), activity=name, captured_at=captured_at),
                {"what": subject(call_site, name), "reason": reason},
                evidence=(*context.evidence(row, length_ns), *blocked_ids),
                lost=context.time_of_pieces(exposed, piece_index),
                limit_ns=sum_by_device(device, bound_ns),
                severity_override=INFO if is_info else None,
                edit=None if is_info else case.edit,
                remedy=remedies[group[0]],
            )
        )
    return candidates


def collective_text(call_site: CallSite, activity: str) -> str:
    """Describe a collective: its operation, and the call that issues it.

    >>> collective_text(CallSite(call="backward"), "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    'The all-reduce in `backward()`'
    >>> collective_text(CallSite(call="all_reduce"), "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    '`all_reduce()`'
    >>> collective_text(CallSite(), "ncclDevKernel_Unknown")
    'ncclDevKernel_Unknown'
    """
    operation, name = operation_of(activity), called(call_site)
    if name and operation in (operation_of(name), Operation.UNKNOWN):
        return capitalize_start(name)
    if operation == Operation.UNKNOWN:
        return activity
    what = f"The {operation.name.lower().replace('_', '-')}"
    return f"{what} in {name}" if name else what


def _feeds_next_layer(context: Context, rows: IndexArray) -> bool:
    """Return True for collectives between layers, as in tensor parallelism: the next needs them."""
    timeline, unique_row = context.timeline, np.unique(rows)
    steps = 1 if context.window.step is not None else max(1, len(timeline.steps))
    is_after = side_of_independent_work(timeline, unique_row) == Side.AFTER
    return (
        bool((timeline.kind[unique_row] == Kind.COMM).all())
        and bool(is_after.all())
        and not context.is_of_backward[unique_row].any()
        and len(unique_row) > _MAX_TIMES_OF_STEP * steps
    )


def _reason(context: Context, call_id: Int64Array, blocked_ids: tuple[int, ...]) -> str:
    """Name the blocking call behind most of some pieces, or the kernel that waited; else ""."""
    calls = Counter(call_id[call_id != ABSENT].tolist())
    for call, _ in calls.most_common(1):
        [site] = context.call_sites(np.array([call]))
        return f", because {called(site, context.trace.name_of(call))} blocks"
    names = Counter(map(context.trace.name_of, blocked_ids))
    return "".join(f", and {kernel_text(name)} waits for it" for name, _ in names.most_common(1))


def _blocked_ids(context: Context, exposed: Exposed, piece_index: IndexArray) -> tuple[int, ...]:
    waited_index = piece_index[np.isin(exposed.blocker[piece_index], _KEEPS_WAITING)]
    blocked_row = exposed.blocked_row[waited_index]
    is_other = (blocked_row != exposed.row[waited_index]) & (blocked_row != ABSENT)
    blocked_id = context.timeline.event_id[blocked_row[is_other]]
    return tuple(dict.fromkeys(blocked_id.tolist()))[:MAX_EVIDENCE]


# --- TL201 and TL204 ---


def _pinned_copies(context: Context) -> list[Candidate]:
    exposed, timeline = context.exposed, context.timeline
    is_copy = match_names(context.trace, timeline.event_id[exposed.row], _is_pinned_host_copy)
    is_copy &= timeline.kind[exposed.row] == Kind.COPY
    is_copy &= exposed.blocker != OverlapBlocker.HARDWARE_QUEUE
    return _candidates(context, exposed, is_copy, COPIES, _case_of_copy, _copy_text)


def _is_pinned_host_copy(name: str) -> bool:
    return copy_direction(name) in ("h2d", "d2h") and not copies_pageable_memory(name)


def _target(name: str) -> str:
    return "CPU" if copy_direction(name) == "d2h" else "GPU"


def _case_of_copy(name: str, blocker: OverlapBlocker) -> Case:
    cause = blocker.name.lower()
    return COPIES.cases.get(f"to_{_target(name).lower()}_{cause}") or COPIES.cases[cause]


def _copy_text(site: CallSite, name: str) -> str:
    call = called(site)
    return f"The copy to the {_target(name)}{f' by {call}' if call else ''}"


def _queued_work(context: Context) -> list[Candidate]:
    exposed = context.exposed
    is_queued = exposed.blocker == OverlapBlocker.HARDWARE_QUEUE
    [case] = HARDWARE_QUEUE.cases.values()
    return _candidates(
        context, exposed, is_queued, HARDWARE_QUEUE, lambda _name, _blocker: case, collective_text
    )


# --- TL202 ---


def _collectives(context: Context) -> list[Candidate]:
    """Find exposed collectives, unless the hardware queue is to blame; apart, waits for a peer."""
    waits = peer_waits(context.timeline)
    moving, waiting = waits.split(context.timeline, context.exposed)
    is_chosen = context.timeline.kind[moving.row] == Kind.COMM
    is_chosen &= moving.blocker != OverlapBlocker.HARDWARE_QUEUE
    return [
        *_candidates(context, moving, is_chosen, COLLECTIVES, case_of_collective, collective_text),
        *_peer_waits(context, waiting, waits),
    ]


def case_of_collective(name: str, blocker: OverlapBlocker) -> Case:
    """Return the case of TL202 of an exposed collective."""
    is_received = blocker == OverlapBlocker.TRUE_DEPENDENCY and needed_at_once(name)
    return COLLECTIVES.cases["received" if is_received else blocker.name.lower()]


def drop_comparison(fix: str) -> str:
    """Leave out of a fix of TL202 what the other ranks, recorded and compared, would tell.

    >>> drop_comparison(COLLECTIVES.cases["received"].fix)
    'Nothing can overlap with it, because the next compute needs what it receives.'
    """
    for sentence in _COMPARISONS:
        fix = fix.replace(sentence, "")
    return fix


def _peer_waits(context: Context, waiting: Exposed, waits: PeerWaits) -> list[Candidate]:
    chosen_index = np.flatnonzero(context.is_inside(waiting.start_ns, waiting.end_ns))
    chosen_row = waiting.row[chosen_index]
    keys = zip(
        waits.is_slow[chosen_row].tolist(),
        context.call_sites(context.timeline.launch_id[chosen_row]),
        map(context.kernel_name, chosen_row.tolist()),
        strict=True,
    )
    candidates = []
    for (is_slow, call_site, name), group in grouped(keys).items():
        row = np.unique(chosen_row[group])
        length_ns = context.timeline.end_ns[row] - context.timeline.start_ns[row]
        slowest = int(np.argmax(waits.wait_ns[row]))
        lost = context.time_of_pieces(waiting, chosen_index[group])
        candidates.append(
            COLLECTIVES.cases["slow_link" if is_slow else PEER_WAIT].candidate(
                where(call_site, count=len(row), activity=name),
                {
                    "what": collective_text(call_site, name),
                    "slowest_us": length_ns[slowest] / 1000,
                    "twin_us": waits.fastest_ns[row[slowest]] / 1000,
                    "shortest_us": length_ns.min() / 1000,
                    "percent": 100 * max(map(measure, lost.values())) / context.window.length_ns,
                },
                evidence=context.evidence(row, waits.wait_ns[row]),
                lost=lost,
                limit_ns=dict.fromkeys(lost, 0),
                severity_override=INFO,
            )
        )
    return candidates


# --- TL206 ---


def _peer_copies(context: Context) -> list[Candidate]:
    timeline, exposed, window = context.timeline, context.exposed, context.window
    is_copy = match_names(
        context.trace, timeline.event_id, lambda name: copy_direction(name) == "p2p"
    )
    is_copy &= (timeline.kind == Kind.COPY) & (timeline.start_ns >= window.start_ns)
    rows = np.flatnonzero(is_copy & (timeline.start_ns < window.end_ns))
    candidates = []
    for call_site, group in grouped(context.call_sites(timeline.launch_id[rows])).items():
        copy_row = rows[group]
        is_waited_for = np.isin(exposed.row, copy_row) & np.isin(exposed.blocker, _COMPUTE_WAITS)
        piece_index = np.flatnonzero(is_waited_for)
        waits = _waits_at_receivers(context, copy_row)
        if not (lost := waits | context.time_of_pieces(exposed, piece_index)):
            continue
        bound_ns = sum_by_device(
            timeline.device_number[exposed.row[piece_index]], exposed.bound_ns[piece_index]
        )
        compute = context.time_of(np.flatnonzero(timeline.kind == Kind.COMPUTE))
        limit_ns = {}
        for device in lost:
            compute_ns = measure(compute[device]) if device in compute else 0
            limit_ns[device] = min(compute_ns, bound_ns.get(device, compute_ns))
        activity = context.kernel_name(int(copy_row[0]))
        candidates.append(
            PEER_COPY.cases["default_stream"].candidate(
                where(call_site, count=len(copy_row), activity=activity),
                {"what": capitalize_start(called(call_site, "copy"))},
                evidence=context.evidence(copy_row),
                lost=lost,
                limit_ns=limit_ns,
            )
        )
    return candidates


def _waits_at_receivers(context: Context, copy_row: IndexArray) -> dict[int, Intervals]:
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
    return context.idle_within(waits)


# --- TL207 ---


def _small_collectives(context: Context) -> list[Candidate]:
    timeline, small = context.timeline, small_collectives(context.timeline)
    is_inside = context.is_inside(timeline.start_ns[small.row], timeline.end_ns[small.row])
    inside = np.flatnonzero(is_inside & (small.latency_ns > 0))
    if not len(inside):
        return []
    moving, _ = peer_waits(timeline).split(timeline, context.exposed)
    saved_ns, row = small.saved_ns(moving), small.row[inside]
    launch_id = timeline.launch_id[row]
    sites, names = context.call_sites(launch_id), map(context.kernel_name, row.tolist())
    remedies = context.recognized.remedies(launch_id, SMALL.id)
    keys = map(key_of, remedies, zip(sites, names, strict=True))
    candidates, steps = [], len(context.typical_steps)
    for group in grouped(keys).values():
        index = inside[group]
        row = small.row[index]
        device = timeline.device_number[row]
        between = context.group_by_device(device, small.gap_start_ns[index], timeline.start_ns[row])
        gaps_of = context.idle_within(between)
        moved = context.time_of_pieces(moving, np.flatnonzero(np.isin(moving.row, row)))
        length_ns = float(np.median(timeline.end_ns[row] - timeline.start_ns[row]))
        candidates.append(
            SMALL.cases["latency"].candidate(
                where(sites[group[0]], count=len(row), activity=context.kernel_name(int(row[0]))),
                {
                    "number": len(row) / max(1, steps),
                    "period": "in each step" if steps else "in the trace",
                    "length_us": length_ns / 1000,
                    "latency_us": int(small.latency_ns[index].min()) / 1000,
                },
                evidence=context.evidence(row, saved_ns[index]),
                lost=join_by_device(moved, gaps_of),
                limit_ns={
                    number: ns + (measure(gaps_of[number]) if number in gaps_of else 0)
                    for number, ns in sum_by_device(device, saved_ns[index]).items()
                },
                remedy=remedies[group[0]],
            )
        )
    return candidates


COPIES = load_rule("TL201", _pinned_copies)
COLLECTIVES = load_rule("TL202", _collectives)
HARDWARE_QUEUE = load_rule("TL204", _queued_work)
PEER_COPY = load_rule("TL206", _peer_copies)
SMALL = load_rule("TL207", _small_collectives)
