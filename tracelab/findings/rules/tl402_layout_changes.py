"""TL402: convolutions that change the layout of their images in memory."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_remedies
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.model.arithmetic import is_layout_change
from tracelab.model.lookup import match_names


def find(context: Context) -> list[Candidate]:
    """The kernels of the window that do nothing but change the layout."""
    timeline = context.timeline
    is_change = match_names(timeline.trace, timeline.event_id, is_layout_change)
    return candidates_of_remedies(context, RULE.id, cause="layout", is_chosen=is_change)


RULE = Rule(
    id="TL402",
    name="convolutions that change the layout of images",
    matters="The tensor cores' convolutions want the channels of an image last in memory (NHWC). "
    "Tensors are NCHW unless the program says otherwise, and cuDNN then changes the layout before "
    "and after each convolution.",
    decides="It sums cuDNN's kernels `nchwToNhwc` and `nhwcToNchw`, time in which the GPU is "
    "busy. It is silent if they take less than 2 % of the time, or if group or instance "
    "normalization takes at least a tenth as long: it copies images with the channels last. The "
    "fix may save more, because batch normalization and pooling also get faster, or nothing, "
    "where a layer copies images back. Interpolation of nearest neighbors takes up to 2.3 times "
    "as long with the channels last; the prediction includes that.",
    before="loss = model(images)",
    after="model = model.to(memory_format=torch.channels_last)  # once\n"
    "loss = model(images.to(memory_format=torch.channels_last))",
    find=find,
)
