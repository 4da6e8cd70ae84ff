"""TL907: the host's clock and the GPU's disagree."""

from __future__ import annotations

from tracelab.base.text import counted
from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.finding import WARNING
from tracelab.findings.rule import Rule
from tracelab.model.trace import ABSENT


def find(context: Context) -> list[Candidate]:
    """Activities that start before the call that launched them."""
    timeline = context.timeline
    is_launched = timeline.launch_id != ABSENT
    launch_ns = context.trace.start_ns[timeline.launch_id[is_launched]]
    count = int((timeline.start_ns[is_launched] < launch_ns).sum())
    return candidates_about_trace(
        "kernels_before_their_launch",
        count,
        f"{counted(count, 'activity starts', 'activities start')} before the launch: CPU and GPU "
        "clocks disagree",
        severity=WARNING,
    )


RULE = Rule(
    id="TL907",
    name="kernels before their launch",
    matters="Clocks that disagree shift the CPU's events against the GPU's: causes that depend "
    "on both, `host_busy` and `launch` above all, are off by the same amount.",
    decides="It counts the activities that start before the call that launched them.",
    fix="Update the driver and PyTorch; record again.",
    find=find,
    about="trace",
)
