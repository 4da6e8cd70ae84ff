"""TL402: convolutions that change the layout of their images in memory."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_work
from tracelab.findings.context import Context
from tracelab.findings.rule import Rule
from tracelab.model.arithmetic import is_layout_change
from tracelab.model.lookup import match_names

_FIX = (
    "Keep images with their channels last: `model = model.to(memory_format=torch.channels_last)` "
    "once, and `images = images.to(memory_format=torch.channels_last)` for each batch. "
    "Normalization and pooling get faster, too. An operator that returns the other layout, such as "
    "`.contiguous()` or `.view()`, brings the change back."
)


def find(context: Context) -> list[Candidate]:
    """The kernels of the window that do nothing but change the layout."""
    timeline = context.timeline
    return candidates_of_work(
        context,
        match_names(timeline.trace, timeline.event_id, is_layout_change),
        lambda place: (
            f"Convolutions change the layout of their images, most of all at {place}",
            _FIX,
        ),
        cause="layout",
        edit="channels-last",
    )


RULE = Rule(
    id="TL402",
    name="images whose layout every convolution changes",
    matters="The tensor cores' convolutions want the channels of an image last in memory (NHWC). "
    "Tensors are NCHW unless the program says otherwise, and cuDNN then changes the layout before "
    "and after each convolution.",
    decides="It sums cuDNN's kernels `nchwToNhwc` and `nhwcToNchw`, and is silent where they take "
    "less than 2 % of the time. That time is what the GPU is busy with, not idle. The fix may save "
    "more, for normalization and pooling with the channels last are faster, too.",
    before="loss = model(images)",
    after="model = model.to(memory_format=torch.channels_last)  # once\n"
    "loss = model(images.to(memory_format=torch.channels_last))",
    find=find,
)
