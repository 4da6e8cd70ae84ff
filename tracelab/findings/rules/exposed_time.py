"""TL201 and TL204, and what TL202 shares with them: copies and collectives that run alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import (
    MAX_EVIDENCE,
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
from tracelab.findings.rule import Rule
from tracelab.measures.exposed import Exposed
from tracelab.measures.independent_work import Side, side_of_independent_work
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.collectives import Operation, operation_of
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory, copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT
from tracelab.model.wording import called, capitalize_start, kernel_text

# Where it is, its name on the GPU, its overlap blocker, what that means -> title, fix.
Wording = Callable[[CallSite, str, OverlapBlocker, str], tuple[str, Instead]]
# Its name on the GPU, its overlap blocker -> the edit, as in `Candidate`.
EditOf = Callable[[str, OverlapBlocker], str | None]
# The fix where nothing can be done, or no change is known.
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
# The recording may cut a step.
_MAX_TIMES_OF_STEP = 1.5
# What keeps other work waiting, so that it can be named.
_KEEPS_WAITING = (
    OverlapBlocker.SAME_STREAM,
    OverlapBlocker.EVENT_WAIT,
    OverlapBlocker.HARDWARE_QUEUE,
)
_FIXES_TO_DEVICE = {
    OverlapBlocker.SAME_STREAM: Instead(
        "Give the copies a stream of their own and load one batch ahead: `with "
        'torch.cuda.stream(copies): upcoming = batch.to("cuda", non_blocking=True)`, and '
        "`torch.cuda.current_stream().wait_stream(copies)` where it is used.",
        short="Copy the next batch in a side stream: `with torch.cuda.stream(s): x = "
        'batch.to("cuda", non_blocking=True)`; before use, `current_stream().wait_stream(s)`.',
    ),
    OverlapBlocker.EVENT_WAIT: Instead(
        "The copy waits for work that it does not need: let its stream wait for an event recorded "
        "earlier, or for nothing, before the copy of the next batch.",
        short="Let the copy's stream wait for an earlier event (`copies.wait_event(event)`), or "
        "for none, before it copies the next batch.",
    ),
    OverlapBlocker.HOST_SYNC: Instead(
        "The copy was launched late because the CPU waited: move the blocking call out of the "
        "loop, or launch the next copy before it.",
        short="Move the blocking call out of the loop, or launch the next copy before it: "
        '`upcoming = batch.to("cuda", non_blocking=True)`.',
    ),
    OverlapBlocker.LATE_LAUNCH: Instead(
        "The copy was launched late: launch the copy of the next batch before the compute of this "
        "one.",
        short="Launch the copy of the next batch before the compute of this one: `upcoming = "
        'batch.to("cuda", non_blocking=True)`.',
    ),
}
_READ_LATER = Instead(
    "Copy in a stream of its own that waits for what is copied, into pinned memory, and read the "
    "result one step later: `side.wait_stream(torch.cuda.current_stream())`, `with "
    "torch.cuda.stream(side): pinned.copy_(x, non_blocking=True)`, `x.record_stream(side)`.",
    short="Copy into pinned memory in a side stream, after `side.wait_stream(main)`: "
    "`pinned.copy_(x, non_blocking=True)`. Read it one step later.",
)
_FIXES_TO_HOST = {
    OverlapBlocker.SAME_STREAM: _READ_LATER,
    OverlapBlocker.EVENT_WAIT: _READ_LATER,
    OverlapBlocker.HOST_SYNC: Instead(
        "The compute after the copy was launched late because the CPU waited: launch the next "
        "compute first, and read what was copied one step later, after an event "
        "(`event.record()`, `event.synchronize()`).",
        short="Launch the next compute first, and read the copy one step later: `event.record()` "
        "after it, then `event.synchronize()`.",
    ),
    OverlapBlocker.LATE_LAUNCH: Instead(
        "The compute after the copy was launched late: launch it before the CPU looks at what was "
        "copied.",
        short="Launch the next compute before the CPU reads what was copied.",
    ),
}
_MORE_QUEUES = Instead(
    "Give the streams queues of their own: do not set CUDA_DEVICE_MAX_CONNECTIONS=1 (8 is the "
    "default), or set it to the number of streams that work at once.",
    short="Unset `CUDA_DEVICE_MAX_CONNECTIONS` (8 is the default), or set it to the number of "
    "streams that work at once.",
)


def candidates_of_exposed(
    context: Context,
    exposed: Exposed,
    is_chosen: NDArray[np.bool_],
    wording: Wording,
    edit_of: EditOf,
    rule_id: str,
) -> list[Candidate]:
    """Make one candidate for each call site, or remedy, and overlap blocker of exposed pieces.

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
    """Make the candidate of exposed pieces with one call site, or remedy, and overlap blocker."""
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
        lost=context.group_by_device(device_numbers, start_ns, end_ns),
        limit_ns={
            device: int(bound_ns[device_numbers == device].sum())
            for device in np.unique(device_numbers).tolist()
        },
        severity_override=INFO if is_info else None,
        edit=None if is_info else edit_of(name, blocker),
        remedy=remedy,
    )


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


def _feeds_next_layer(context: Context, rows: NDArray[np.intp]) -> bool:
    """Return True for collectives between the layers of a model, as in tensor parallelism.

    They run several times a step outside the backward pass and are no all-gather: what follows
    most likely needs them.
    """
    timeline, unique_row = context.timeline, np.unique(rows)
    steps = 1 if context.window.step is not None else max(1, len(timeline.steps))
    is_after = side_of_independent_work(timeline, unique_row) == Side.AFTER
    return (
        bool((timeline.kind[unique_row] == Kind.COMM).all())
        and bool(is_after.all())
        and not context.is_of_backward[unique_row].any()
        and len(unique_row) > _MAX_TIMES_OF_STEP * steps
    )


def _blocking_call_sites(
    context: Context, exposed: Exposed, piece_index: NDArray[np.intp]
) -> Mapping[int, CallSite]:
    """Map the blocking calls behind these pieces, by event id, to their call sites."""
    call_id = np.unique(exposed.blocking_call_id[piece_index])
    call_id = call_id[call_id != ABSENT]
    return dict(zip(call_id.tolist(), context.call_sites(call_id), strict=True))


def _reason(
    context: Context,
    call_id: Int64Array,
    blocking_sites: Mapping[int, CallSite],
    blocked_ids: tuple[int, ...],
) -> str:
    """Name the blocking call behind most of some pieces, or the kernel that waited; else ""."""
    calls = Counter(call_id[call_id != ABSENT].tolist())
    for call, _ in calls.most_common(1):
        return f", because {called(blocking_sites[call], context.trace.name_of(call))} blocks"
    names = Counter(context.trace.name_of(event_id) for event_id in blocked_ids)
    return "".join(f", and {kernel_text(name)} waits for it" for name, _ in names.most_common(1))


def _blocked_ids(
    context: Context, exposed: Exposed, piece_index: NDArray[np.intp]
) -> tuple[int, ...]:
    """Return the event ids of the work that could not run next to these pieces."""
    waited_index = piece_index[np.isin(exposed.blocker[piece_index], _KEEPS_WAITING)]
    blocked_row = exposed.blocked_row[waited_index]
    is_other = (blocked_row != exposed.row[waited_index]) & (blocked_row != ABSENT)
    blocked_id = context.timeline.event_id[blocked_row[is_other]]
    return tuple(dict.fromkeys(blocked_id.tolist()))[:MAX_EVIDENCE]


def _pinned_copies(context: Context) -> list[Candidate]:
    """Find exposed copies between the host and the GPU, from pinned memory."""
    exposed, timeline = context.exposed, context.timeline
    is_copy = match_names(context.trace, timeline.event_id[exposed.row], _is_pinned_host_copy)
    is_copy &= timeline.kind[exposed.row] == Kind.COPY
    is_queued = exposed.blocker == OverlapBlocker.HARDWARE_QUEUE
    return candidates_of_exposed(
        context, exposed, is_copy & ~is_queued, _describe_copy, _copy_edit, "TL201"
    )


def _is_pinned_host_copy(name: str) -> bool:
    return copy_direction(name) in ("h2d", "d2h") and not copies_pageable_memory(name)


def _describe_copy(
    site: CallSite, name: str, blocker: OverlapBlocker, reason: str
) -> tuple[str, Instead]:
    to_host = copy_direction(name) == "d2h"
    fixes = _FIXES_TO_HOST if to_host else _FIXES_TO_DEVICE
    call = called(site)
    what = f"The copy to the {'CPU' if to_host else 'GPU'}{f' by {call}' if call else ''}"
    return f"{what} does not overlap with compute{reason}", {**fixes, **LEFT_AS_IT_IS}[blocker]


def _copy_edit(name: str, blocker: OverlapBlocker) -> str | None:
    if blocker in LEFT_AS_IT_IS:
        return None
    return "side-stream:{place}" if copy_direction(name) == "d2h" else "prefetch:{place}"


def _queued_work(context: Context) -> list[Candidate]:
    """Find exposed work next to which other work was launched that nothing in the file blocked."""
    is_queued = context.exposed.blocker == OverlapBlocker.HARDWARE_QUEUE
    return candidates_of_exposed(
        context,
        context.exposed,
        is_queued,
        _describe_queued,
        lambda _name, _blocker: "queues",
        "TL204",
    )


def _describe_queued(
    site: CallSite, name: str, _blocker: OverlapBlocker, reason: str
) -> tuple[str, Instead]:
    what = collective_text(site, name)
    return f"{what} delays another stream without any event{reason}", _MORE_QUEUES


COPIES = Rule(
    id="TL201",
    name="a copy that is not overlapped with compute",
    matters="The GPU can copy and compute at the same time, in different streams. A copy in the "
    "stream that computes, or one launched only when the compute before it is over, adds its "
    "whole length to the step.",
    decides="It takes the time in which a copy ran and neither compute nor communication did, and "
    "determines what kept it from overlapping with the compute of the batch before (for a copy to "
    "the GPU), or the next compute from overlapping with it (for a copy to the CPU). The bound "
    "is the length of that compute, at most that of the copy. The first copy of a trace has no "
    "compute before it; copies within one GPU count as part of its work.",
    before='for batch in loader:\n    x = batch.to("cuda", non_blocking=True)\n    model(x)',
    after="copies = torch.cuda.Stream()\ndef load():\n    with torch.cuda.stream(copies):\n"
    '        return next(batches).to("cuda", non_blocking=True)\nupcoming = load()\n'
    "for _ in range(steps):\n    torch.cuda.current_stream().wait_stream(copies)\n"
    "    x, upcoming = upcoming, load()\n    model(x)",
    find=_pinned_copies,
)

HARDWARE_QUEUE = Rule(
    id="TL204",
    name="streams serialized by the hardware queue",
    matters="CUDA hands launches to the GPU through a few queues, and each queue is processed in "
    "order. With CUDA_DEVICE_MAX_CONNECTIONS=1 (which Megatron's tensor parallelism asks for) all "
    "streams share one: everything queued after a waiting collective waits, whatever its stream.",
    decides="It takes exposed communication and copies during which the next compute was already "
    "launched, in a free stream that waited for no event, and yet started only just after them, "
    "or just after work that waited for them. Nothing in the trace orders the two, so the queue "
    "did.",
    before='os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"',
    after="# unset: CUDA's default is 8",
    find=_queued_work,
)
