"""TL404: gradients that no optimizer uses."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule


def find(context: Context) -> list[Candidate]:
    """The work that backward passes do for parameters that are not trained."""
    return candidates_of_remedies(context, RULE.id, cause="untrained")


RULE = Rule(
    id="TL404",
    name="gradients that no optimizer uses",
    matters="The backward pass computes the gradients of every parameter with `requires_grad`, "
    "whether an optimizer trains it or not: a frozen backbone costs twice its forward pass, and a "
    "generator's loss computes the discriminator's gradients.",
    decides="It looks at the first backward pass since an optimizer's step. If a gradient is "
    "added to another, that one was never cleared, so no step uses it. The work for such "
    "gradients is useless: the additions, the products that they add, everything after the last "
    "gradient that is stored new, and the gradients of operators that ran before any parameter "
    "that is trained was used, by autograd's sequence numbers. It is silent if all gradients of a "
    "pass are added, as after `zero_grad(set_to_none=False)`, and if the file does not tell the "
    "passes apart. The GPU is busy in this time, not idle.",
    before="optimizer = AdamW(model.head.parameters())\nmodel(batch).backward()",
    after="model.backbone.requires_grad_(False)\noptimizer = AdamW(model.head.parameters())\n"
    "model(batch).backward()",
    find=find,
)
