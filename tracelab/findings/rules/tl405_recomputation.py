"""TL405: a forward pass that is computed twice."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """What the backward pass computes of the forward pass."""
    return candidates_of_remedies(context, RULE.id, cause="recomputation")


RULE = Rule(
    id="TL405",
    name="a forward pass that is computed twice",
    matters="Activation checkpointing keeps less of the forward pass, and computes it again in "
    "the backward pass. That costs up to a third more work, and gains nothing if memory is left.",
    decides="It sums the GPU's work for `recompute_fn` of torch/utils/checkpoint.py or, if no "
    "Python functions were recorded, for operators of the forward pass inside nodes of the "
    "backward pass. It is silent below 2 % of the time. The file does not say how much memory is "
    "left, so the saving of a replay without this work is an upper bound.",
    before="x = checkpoint(block, x, use_reentrant=False)",
    after="x = block(x)  # if memory allows",
    find=find,
)
