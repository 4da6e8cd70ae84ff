"""TL205: work of two streams that could run at once and never does."""

from __future__ import annotations

from collections.abc import Mapping

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_serialized_streams import candidates_of_serialized_streams
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.measures.overlap_blockers import OverlapBlocker

_NO_ROOM = Instead(
    "Leave it as it is: the kernels fill the GPU (or the file does not say how large they are), so "
    "side by side they would take as long. Smaller kernels in several streams help only where each "
    "leaves multiprocessors free.",
    short="Leave it as it is: kernels that fill the GPU gain nothing side by side.",
)
_FIX = Instead("Launch both streams' work before the CPU waits for either; wait once, at the end.")
_EDITS: Mapping[OverlapBlocker, str | None] = {
    OverlapBlocker.HOST_SYNC: "unblock:{place}",
    OverlapBlocker.HARDWARE_QUEUE: "queues",
    OverlapBlocker.NO_FREE_SM: None,
}


def find(context: Context) -> list[Candidate]:
    """Streams that were serialized by the host or the GPU, not by an event."""
    return candidates_of_serialized_streams(context, _EDITS, _worded, _NO_ROOM)


def _worded(blocked: str, other: str) -> tuple[str, Instead]:
    what = f"{blocked} starts only after {other} of another stream"
    return f"{what}, although no event makes it wait", _FIX


RULE = Rule(
    id="TL205",
    name="independent work on two streams that never overlaps",
    matters="Two streams are meant to run side by side. If the CPU waits for one before it "
    "launches the other, they alternate, although the GPU has room for both and may never be "
    "idle.",
    decides="It looks for two streams of a GPU that both compute for at least 5 % of the time and "
    "hardly overlap, and takes the switches between them that no event explains: a blocking call "
    "does, or nothing. Kernels that together need more blocks than the GPU has multiprocessors "
    "gain nothing by overlap (`no_free_sm`). Two GPUs that alternate are idle in turn: TL101 and "
    "TL301 say why.",
    before="with torch.cuda.stream(a):\n    f()\na.synchronize()\n"
    "with torch.cuda.stream(b):\n    g()",
    after="with torch.cuda.stream(a):\n    f()\nwith torch.cuda.stream(b):\n    g()\n"
    "torch.cuda.current_stream().wait_stream(a)",
    find=find,
)
