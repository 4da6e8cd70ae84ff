"""TL406: attention whose scores are stored in memory."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.model.arithmetic import is_batched_product, launched_by


def find(context: Context) -> list[Candidate]:
    """What attentions written by hand do beside their products."""
    return candidates_of_remedies(
        context,
        RULE.id,
        cause="attention_scores",
        is_chosen=~launched_by(context.timeline, is_batched_product),
        in_forward=True,
    )


RULE = Rule(
    id="TL406",
    name="attention whose scores are stored in memory",
    matters="Attention written by hand stores a score for each pair of positions in memory. It "
    "reads the scores again to scale them, to mask them, for softmax, for dropout and for the "
    "product with the values, and the backward pass does the same. One fused operator keeps the "
    "scores on the chip.",
    decides="It sums the work between a batched product, softmax and a second product, and "
    "between their nodes in the backward pass. It is silent below 2 % of the time, if the weights "
    "are used in another way before the second product, with a learned bias, and unless the "
    "products are in half precision: in float32 the fused operators take longer than products in "
    "TF32. The price also covers the products: on an H100 the fused operator took 1.1 times their "
    "time with 128 positions and half of it with 2,048, and the name of the softmax kernel tells "
    "how many there are. The GPU is busy in this time, not idle.",
    before="scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n"
    "y = scores.masked_fill(mask, -math.inf).softmax(-1) @ v",
    after="y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    find=find,
)
