"""TL901: events that the reader could not use, and calls whose work is not in the file."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace, candidates_of_losses
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.rule import Rule

LOST_WORK = "lost_work"  # the cause


def find(context: Context) -> list[Candidate]:
    """What the reader left out or repaired, and what it did not find; repairs are harmless."""
    return [*candidates_of_losses("damaged_file", "damage", context), *_lost_work(context)]


def _lost_work(context: Context) -> list[Candidate]:
    """Calls whose work on the GPU is missing from the figures; else from steps left out."""
    lost = context.timeline.lost_work
    missing, is_much = context.timeline.missing_work
    calls = int(lost.is_lost.sum())
    others = "call" if calls == 1 else "calls"
    missing = missing or f"{calls:,} {others} of the steps that are left out"
    text = f"the file lacks GPU work of {missing}"
    return candidates_about_trace(
        LOST_WORK,
        calls or context.losses.get("arrows_without_end", 0),
        f"{text}: the GPU was busy for longer than these figures say" if is_much else text,
        severity=WARNING if is_much else INFO,
    )


RULE = Rule(
    id="TL901",
    name="damaged file",
    matters="Events that could not be read are missing from all figures: times and counts are "
    "those of the rest.",
    decides="It counts what the reader had to leave out or repair, and the calls whose work on the "
    "GPU is not in the file: kernel launches, copies, replays of CUDA graphs and nodes that other "
    "replays of the graph have. It warns if that is more than 2 % of the calls of a kind, outside "
    "the steps that are left out for it. The report's losses list it.",
    fix="Record again, with fewer steps; check for a full disk or a killed process.",
    find=find,
    about="trace",
)
