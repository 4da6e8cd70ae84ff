"""TL202: a collective that could run beside compute, and does not."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_exposed import candidates_of_exposed
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.findings.wording import NO_RECORD
from tracelab.measures.independent_work import needed_at_once
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.kernel_kinds import Kind

_FIXES = {
    OverlapBlocker.SAME_STREAM: "It runs in the stream that computes. If what follows does not "
    "need its result: `work = dist.all_reduce(x, async_op=True)`, and `work.wait()` where the "
    "result is used.",
    OverlapBlocker.EVENT_WAIT: "The compute after it waits for it. If that compute does not need "
    "the result, wait later: `work.wait()` (or the event) where the result is used; in a DDP hook, "
    "run the rest in a side stream; with FSDP2, prefetch (`set_modules_to_forward_prefetch`). A "
    "collective also waits for the slowest rank: look at all ranks' traces.",
    OverlapBlocker.HOST_SYNC: "The compute beside it was launched late because the host waited: "
    "take the blocking call out, or launch that compute before it.",
    OverlapBlocker.LATE_LAUNCH: "The host launched the compute beside it late: the step is launch "
    "bound there.",
    OverlapBlocker.TRUE_DEPENDENCY: "No overlap to win: what came next needed it, or no other work "
    "was left. Communicate less (a bf16 compression hook, gradients accumulated under "
    "`no_sync()`), compute more in a step, or split it into more microbatches.",
    OverlapBlocker.NO_FREE_SM: "Nothing to do: the kernels that ran left no multiprocessor free.",
    OverlapBlocker.UNKNOWN: NO_RECORD,
}
_FIX_OF_RECEIVED = (
    "No overlap to win: what is received is needed at once. Work on another microbatch beside it: "
    "more microbatches, an interleaved schedule, or two batches in turns."
)


def find(context: Context) -> list[Candidate]:
    """Exposed collectives, unless the hardware queue is to blame."""
    exposed = context.exposed
    is_comm = context.timeline.kind[exposed.row] == Kind.COMM
    is_queued = exposed.blocker == OverlapBlocker.HARDWARE_QUEUE
    return candidates_of_exposed(context, is_comm & ~is_queued, _worded)


def _worded(what: str, name: str, blocker: OverlapBlocker, reason: str) -> tuple[str, str]:
    is_received = blocker == OverlapBlocker.TRUE_DEPENDENCY and needed_at_once(name)
    fix = _FIX_OF_RECEIVED if is_received else _FIXES[blocker]
    return f"{what} runs beside no compute{reason}", fix


RULE = Rule(
    id="TL202",
    name="a collective that no compute hides",
    matters="NCCL needs few multiprocessors, so a collective can run beside compute that does not "
    "need its result: the gradients of one layer beside the backward pass of the next, the shards "
    "of a layer beside the one before it.",
    decides="It takes the time in which a collective ran and no compute did, and asks what kept "
    "the next compute from it, or it from the compute before (all-gather). The bound is compute "
    "that does not need it: what is left of the backward pass, if it was launched there; else what "
    "follows before the next collective. What a pipeline's stage receives is a true dependency.",
    before="dist.all_reduce(gradients)\nother_compute()\nuse(gradients)",
    after="work = dist.all_reduce(gradients, async_op=True)\nother_compute()\nwork.wait()\n"
    "use(gradients)",
    find=find,
)
