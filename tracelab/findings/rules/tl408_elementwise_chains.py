"""TL408: a GPU that is busy with chains of elementwise kernels."""

from __future__ import annotations

from dataclasses import replace

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.finding import GENERIC
from tracelab.findings.rule import Rule
from tracelab.model.arithmetic import is_elementwise
from tracelab.model.lookup import match_names

_LEAST = 0.25  # of the window


def find(context: Context) -> list[Candidate]:
    """The elementwise kernels of one function and its backward pass, if they are a quarter."""
    timeline = context.timeline
    found = candidates_of_remedies(
        context,
        RULE.id,
        cause="elementwise_chains",
        is_chosen=match_names(timeline.trace, timeline.event_id, is_elementwise),
        in_forward=True,
    )
    least_ns = _LEAST * context.window.length_ns
    return [replace(x, role=GENERIC) for x in found if max(x.limit_ns.values()) >= least_ns]


RULE = Rule(
    id="TL408",
    name="chains of elementwise kernels",
    matters="Each elementwise kernel reads its inputs from memory and writes its result to it. "
    "Where one follows another, the GPU moves the same numbers again and again, and computes "
    "hardly anything. A compiler makes one kernel of such a chain.",
    decides="It takes the function of the program that launches most elementwise kernels, "
    "reductions and copies of PyTorch's in chains, each right after a different one, and adds "
    "those of their nodes in the backward pass. Functions of libraries and the loop over steps do "
    "not count, because a program does not compile these; nor do optimizers, CUDA graphs and "
    "compiled kernels. It is silent unless they are a quarter of the time. The prediction is that "
    "a chain takes as long as its longest kernel, or between 0.15 and 2 times as long: "
    "ten functions and their backward passes took 0.05 to 0.45 of their time compiled, on an H100.",
    before="def distances(x):\n    return ((x[None] - x[:, None]) ** 2).sum(2)",
    after="@torch.compile\ndef distances(x):\n    return ((x[None] - x[:, None]) ** 2).sum(2)",
    find=find,
)
