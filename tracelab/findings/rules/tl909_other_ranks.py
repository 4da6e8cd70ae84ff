"""TL909: the file is one rank of several."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """The number of ranks, where there were several; whether all are there, the merge decides."""
    world_size = context.trace.info.world_size
    if world_size is None or world_size < 2:
        return []
    return candidates_about_trace("other_ranks", world_size, f"this is one rank of {world_size}")


RULE = Rule(
    id="TL909",
    name="other ranks",
    matters="A collective on this rank lasts until the slowest rank has joined: one file cannot "
    "tell waiting from transferring.",
    decides="The file says how many ranks there were, and some of them were not given.",
    fix="Record every rank, and analyze their files together.",
    find=find,
    about="trace",
)
