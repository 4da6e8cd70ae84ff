"""TL908: events whose length cannot be."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.finding import WARNING
from tracelab.findings.rule import Rule
from tracelab.model.trace import LOSSES

_IMPOSSIBLE_TIMES = ("negative_durations", "absurd_times")


def find(context: Context) -> list[Candidate]:
    """Events that the reader left out for their times."""
    losses = {name: context.losses[name] for name in _IMPOSSIBLE_TIMES if context.losses.get(name)}
    return candidates_about_trace(
        "impossible_times",
        sum(losses.values()),
        "; ".join(LOSSES[name] for name in losses),
        severity=WARNING,
    )


RULE = Rule(
    id="TL908",
    name="impossible times",
    matters="Events with a negative or an absurd length are in no number.",
    decides="It counts what the reader left out for its times.",
    fix="Record again; a clock of the machine may have wrapped or been set.",
    find=find,
    about="trace",
)
