"""TL204: streams that share one queue to the GPU."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_exposed import candidates_of_exposed, collective_text
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.program.call_sites import CallSite


def find(context: Context) -> list[Candidate]:
    """Exposed work beside which other work was launched and was blocked by nothing in the file."""
    is_queued = context.exposed.blocker == OverlapBlocker.HARDWARE_QUEUE
    return candidates_of_exposed(
        context, context.exposed, is_queued, _worded, lambda _name, _blocker: "queues", "TL204"
    )


_FIX = Instead(
    "Give the streams queues of their own: do not set CUDA_DEVICE_MAX_CONNECTIONS=1 (8 is the "
    "default), or set it to the number of streams that work at once.",
    short="Unset `CUDA_DEVICE_MAX_CONNECTIONS` (8 is the default), or set it to the number of "
    "streams that work at once.",
)


def _worded(
    site: CallSite, name: str, _blocker: OverlapBlocker, reason: str
) -> tuple[str, Instead]:
    what = collective_text(site, name)
    return f"{what} delays another stream without any event{reason}", _FIX


RULE = Rule(
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
    find=find,
)
