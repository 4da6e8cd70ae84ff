"""TL905: activities whose launch is not in the file."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.rule import Rule
from tracelab.model.trace import ABSENT

_SPOILS_CAUSES = 0.05  # of the activities' time: so much without a launch, and causes are doubtful


def find(context: Context) -> list[Candidate]:
    """GPU activities without a launch, and their share of the time."""
    timeline = context.timeline
    has_no_launch = timeline.launch_id == ABSENT
    count = int(has_no_launch.sum())
    length_ns = (timeline.end_ns - timeline.start_ns).astype(float)
    share = float(length_ns[has_no_launch].sum() / max(1.0, length_ns.sum()))
    return candidates_about_trace(
        "launches_before_the_recording",
        count,
        f"{count} GPU activities ({100 * share:.1f} % of their time) have no launch in the file",
        severity=WARNING if share >= _SPOILS_CAUSES else INFO,
    )


RULE = Rule(
    id="TL905",
    name="launches before the recording",
    matters="They count as busy time but belong to no step, and idle time before them has no "
    "known cause.",
    decides="It counts the activities whose launch is not in the file, and warns if they take 5 % "
    "or more of the activities' time.",
    fix="Synchronize before the first recorded step; `tracelab.capture` does.",
    find=find,
    about="trace",
)
