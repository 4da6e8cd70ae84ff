"""TL410: a compiled function that runs eagerly."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.model.kernel_kinds import work_of
from tracelab.model.lookup import match_names

_FUSED = ("elementwise operations", "reductions")


def find(context: Context) -> list[Candidate]:
    """The work of kernels that compiled code would fuse."""
    timeline = context.timeline
    is_fused = match_names(timeline.trace, timeline.event_id, lambda name: work_of(name) in _FUSED)
    return candidates_of_remedies(
        context,
        RULE.id,
        cause="uncompiled",
        is_chosen=is_fused,
        in_forward=True,
        at_events=True,
    )


RULE = Rule(
    id="TL410",
    name="a compiled function that runs eagerly",
    matters="`torch.compile` compiles a function anew when a guard fails, up to 8 times. "
    "From then on, calls that fit none of these versions run eagerly. Only a warning at that "
    "moment says so.",
    decides="It sums the GPU's work for kernels that compiled code fuses, element by element and "
    "reductions, in calls of compiled functions that look for compiled code in each step, find "
    "none and compile nothing, and in their backward pass. It is silent below 2 % of the time. "
    "What a compiler makes of a function no file says: the figure is an upper bound. The GPU is "
    "busy in this time, not idle.",
    before="self.updates += 1  # in a compiled module: a guard on a Python number",
    after='self.register_buffer("updates", torch.zeros(()))\nself.updates += 1',
    find=find,
)
