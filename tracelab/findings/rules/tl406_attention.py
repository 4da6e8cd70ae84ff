"""TL406: attention whose scores are stored in memory."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """What attentions written by hand do beside their products."""
    return candidates_of_remedies(context, RULE.id, cause="attention_scores", in_forward=True)


RULE = Rule(
    id="TL406",
    name="attention whose scores are stored in memory",
    matters="Written by hand, attention writes a score for each pair of positions to memory and "
    "reads it again to scale it, to mask it, for softmax, for dropout and for the product with "
    "the values, and so does its backward pass. One fused operator keeps the scores on the chip.",
    decides="It sums what runs between a batched product, softmax and a second product, and "
    "between their nodes in the backward pass. It is silent below 2 % of the time, where weights "
    "are used otherwise before that product, with a learned bias, and unless the products are of "
    "half precision: in float32 the fused operators take longer than products in TF32. It predicts "
    "that the products stay as they are: fused, 128 positions and more took 0.2 to 1.6 times as "
    "long on an H100. That time is what the GPU is busy with, not idle.",
    before="scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n"
    "y = scores.masked_fill(mask, -math.inf).softmax(-1) @ v",
    after="y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    find=find,
)
