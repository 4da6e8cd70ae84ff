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
    decides="It looks at the first backward pass since an optimizer's step. Cleared gradients are "
    "stored as they come; one that is added to another was never cleared, so that no step uses it. "
    "Useless is all that follows the last stored gradient of the pass, and before it the additions "
    "and the products that they add. It is silent where all gradients of a pass are added, as "
    "after `zero_grad(set_to_none=False)`, and where the file does not tell the passes apart. That "
    "time is what the GPU is busy with, not idle.",
    before="optimizer = AdamW(model.head.parameters())\nmodel(batch).backward()",
    after="model.backbone.requires_grad_(False)\noptimizer = AdamW(model.head.parameters())\n"
    "model(batch).backward()",
    find=find,
)
