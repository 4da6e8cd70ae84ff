"""Small kernels that Python launches one by one, where no other remedy says more."""

from __future__ import annotations

import numpy as np

from tracelab.findings.remedies.guards import recurring
from tracelab.findings.remedy import Fix, Remedy
from tracelab.intervals import Int64Array
from tracelab.model.call_sites import python_frames
from tracelab.model.frames import is_built_in, is_program_frame
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT

_FEWEST_TURNS = 30  # of a loop: calls of one name from one call of a function


def _calls_in_loops(graph: Graph, _events: Int64Array) -> Int64Array:
    """What a function of the program calls again and again, each time to launch a kernel.

    That is a built-in function, or an operator that Python calls without a name (``x + y``).
    """
    timeline = graph.host.timeline
    frames, operators = python_frames(timeline), timeline.operators
    is_compute = (timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    launch_id = np.unique(timeline.launch_id[is_compute]).astype(np.int64)
    # The last is for ABSENT.
    built_in = np.append(frames.have_name(is_built_in), False)
    of_program = np.append(frames.have_name(is_program_frame), False)
    parent_index = np.append(frames.parent_index, ABSENT)
    operator = operators.around(operators.innermost(launch_id), operators.parent_index == ABSENT)
    called = frames.innermost(launch_id)
    has_name = built_in[called]
    caller = np.where(has_name, parent_index[called], called)
    known = np.flatnonzero(of_program[caller] & (operator != ABSENT))
    called, has_name, caller, operator = (x[known] for x in (called, has_name, caller, operator))
    call_id = np.where(has_name, frames.event_id[called], operators.event_id[operator])
    call_id, first = np.unique(call_id, return_index=True)
    name = timeline.trace.name_index[call_id]
    _, group, count = np.unique(
        np.stack((caller[first], name), axis=1), axis=0, return_inverse=True, return_counts=True
    )
    return recurring(graph, call_id[count[group.ravel()] >= _FEWEST_TURNS])


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="launch-loop",
        name="a Python loop that launches one small kernel after another",
        title="A loop launches small kernels one by one",
        shows="One call of a function of the program calls the same tensor operation at least "
        f"{_FEWEST_TURNS} times, and the GPU waits for the launches.",
        not_when="Each turn of the loop needs the result of the one before.",
        fixes=(
            Fix(
                "Make one call of many: stack the tensors and compute at once, use "
                "`torch._foreach_mul_` and the like on lists, or compile the function "
                "(`torch.compile`).",
                since="2.0",
            ),
            Fix("Make one call of many: stack the tensors and compute at once."),
        ),
        source="PyTorch Performance Tuning Guide: fuse operations",
        url="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        rules=("TL301",),
        edit="fuse:{place}",
        occurs=_calls_in_loops,
        is_general=True,
    ),
)
