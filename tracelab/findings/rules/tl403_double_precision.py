"""TL403: work in double precision."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_work
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.model.arithmetic import is_float64
from tracelab.model.lookup import match_names

_FIX = Instead(
    "Unless the result needs double precision, make tensors float32 where they are made: "
    "`torch.as_tensor(array, dtype=torch.float32)` (NumPy's arrays are float64), `model.float()`, "
    'and allow TF32: `torch.set_float32_matmul_precision("high")`.',
    short="Make tensors float32 where they are made, unless the result needs double precision: "
    "`torch.as_tensor(array, dtype=torch.float32)`, `model.float()`.",
)


def find(context: Context) -> list[Candidate]:
    """The kernels of the window whose tensors are float64."""
    timeline = context.timeline
    return candidates_of_work(
        context,
        match_names(timeline.trace, timeline.event_id, is_float64),
        title="The GPU computes in double precision",
        fix=_FIX,
        cause="float64",
        edit="float32",
    )


RULE = Rule(
    id="TL403",
    name="double precision",
    matters="A float64 tensor is twice as many bytes to move, and most GPUs compute in double "
    "precision at 1/32 or 1/64 of the speed of float32. One NumPy array is enough: everything "
    "computed with it is float64, too.",
    decides="It sums the kernels whose tensors are float64 by their names (`dgemm`, `f64f64`, "
    "`<double`). A single Python number in double precision does not count. It is silent if they "
    "take less than 2 % of the time. The GPU is busy in this time, not idle.",
    before="x = torch.from_numpy(array).cuda()  # float64",
    after="x = torch.as_tensor(array, dtype=torch.float32).cuda()",
    find=find,
)
