"""TL201: a copy that could run beside compute, and does not."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_exposed import LEFT_AS_IT_IS, candidates_of_exposed
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind, copies_pageable_memory, copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.program.call_sites import CallSite
from tracelab.model.wording import called

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


def find(context: Context) -> list[Candidate]:
    """Exposed copies between the host and the GPU, from pinned memory."""
    exposed, timeline = context.exposed, context.timeline
    is_copy = match_names(context.trace, timeline.event_id[exposed.row], _is_pinned_host_copy)
    is_copy &= timeline.kind[exposed.row] == Kind.COPY
    is_queued = exposed.blocker == OverlapBlocker.HARDWARE_QUEUE
    return candidates_of_exposed(context, exposed, is_copy & ~is_queued, _worded, _edit_of, "TL201")


def _is_pinned_host_copy(name: str) -> bool:
    return copy_direction(name) in ("h2d", "d2h") and not copies_pageable_memory(name)


def _worded(site: CallSite, name: str, blocker: OverlapBlocker, reason: str) -> tuple[str, Instead]:
    to_host = copy_direction(name) == "d2h"
    fixes = _FIXES_TO_HOST if to_host else _FIXES_TO_DEVICE
    call = called(site)
    what = f"The copy to the {'CPU' if to_host else 'GPU'}{f' by {call}' if call else ''}"
    return f"{what} does not overlap with compute{reason}", {**fixes, **LEFT_AS_IT_IS}[blocker]


def _edit_of(name: str, blocker: OverlapBlocker) -> str | None:
    if blocker in LEFT_AS_IT_IS:
        return None
    return "side-stream:{place}" if copy_direction(name) == "d2h" else "prefetch:{place}"


RULE = Rule(
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
    find=find,
)
