"""TL203: streams serialized by a wait that comes too early or is too wide."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_serialized_streams import candidates_of_serialized_streams
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.measures.overlap_blockers import OverlapBlocker

_NO_ROOM = Instead(
    "Leave it as it is: the kernels fill the GPU (or the file does not say how large they are), so "
    "side by side they would take as long.",
    short="Leave it as it is: kernels that fill the GPU gain nothing side by side.",
)


def find(context: Context) -> list[Candidate]:
    """Compute that waited for an event of another computing stream."""
    return candidates_of_serialized_streams(
        context, {OverlapBlocker.EVENT_WAIT: "no-wait:{place}"}, _worded, _NO_ROOM
    )


_FIX = Instead(
    "If it does not need what that stream made, wait later (`wait_stream` or `wait_event` where "
    "the result is used), or for an event recorded before the stream's latest work.",
    short="Wait only where the result is used: call `current.wait_stream(side)` after the work "
    "that does not need it.",
)


def _worded(blocked: str, other: str) -> tuple[str, Instead]:
    return f"{blocked} waits for {other} of another stream", _FIX


RULE = Rule(
    id="TL203",
    name="streams serialized by an event wait that comes too early or is too wide",
    matters="`wait_stream` waits for everything that the other stream has been given so far, and "
    "everything launched after it waits. A wait before work that does not need the result "
    "serializes the streams.",
    decides="It looks for two streams of a GPU that both compute for at least 5 % of the time and "
    "hardly overlap, and takes the intervals in which the next kernel of one was launched and "
    "waited for an event of the other. Kernels that together need more blocks than the GPU has "
    "multiprocessors gain nothing by overlap (`no_free_sm`) and are reported as `info`. The trace "
    "does not say whether the kernel needs the result.",
    before="current.wait_stream(side)\nindependent_work()\nuse(result)",
    after="independent_work()\ncurrent.wait_stream(side)\nuse(result)",
    find=find,
)
