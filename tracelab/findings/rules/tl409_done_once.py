"""TL409: work that could be done once, before the loop."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """The GPU's work in each step that a preparation before the loop spares."""
    return candidates_of_remedies(context, RULE.id, cause="unprepared", in_forward=True)


RULE = Rule(
    id="TL409",
    name="work that could be done once, before the loop",
    matters="Each step computes something of weights or inputs that never change: adapters next to "
    "the layers that they could be merged into, the normalization or the order of one graph.",
    decides="It sums the GPU's work inside of functions that are known to compute such things: "
    "`forward` of peft/tuners/lora/layer.py without its base layer, in a program without a "
    "backward pass, `gcn_norm` of PyTorch Geometric, and `aten::_coalesce` inside sparse products. "
    "It is silent below 2 % of the time. If graphs differ in size from step to step, the figure is "
    "an upper bound. The GPU is busy in this time, not idle.",
    before="model = PeftModel.from_pretrained(base, adapter)\nfor batch in batches: model(batch)",
    after="model = PeftModel.from_pretrained(base, adapter).merge_and_unload()\n"
    "for batch in batches: model(batch)",
    find=find,
)
