"""Low-rank adapters that inference computes next to their layers."""

from __future__ import annotations

import re

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import NO_EVENTS, every, launches, named, recurs
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.frames import is_backward, is_engine_operator, is_module_call
from tracelab.model.graph import Graph
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT, Category

_CHANGES = re.compile(r"peft/.+: (?:set_adapters?|_mixed_batch_forward)$")  # of the adapter in use


def _next_to_base_layer(graph: Graph, events: Int64Array) -> Int64Array:
    """What forward passes of adapters call, without their base layer, which is the first module.

    Nothing in a program that trains, or that changes its adapters.
    """
    timeline = graph.host.timeline
    trace, frames, operators = timeline.trace, python_frames(timeline), timeline.operators
    if (
        operators.have_name(is_engine_operator).any()
        or len(named(trace, is_backward, Category.PYTHON))
        or any(map(_CHANGES.search, trace.strings))
    ):
        return NO_EVENTS
    is_forward = np.append(np.isin(frames.event_id, events), False)  # the last is for ABSENT
    called = frames.children(np.flatnonzero(is_forward))
    modules = called[frames.have_name(is_module_call)[called]]
    _, first = np.unique(frames.parent_index[modules], return_index=True)
    outermost = operators.event_id[operators.parent_index == ABSENT]
    return np.concatenate(
        (
            frames.event_id[np.setdiff1d(called, modules[first])],
            outermost[is_forward[frames.innermost(outermost)]],
        )
    )


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="unmerged-adapters",
        name="inference with low-rank adapters (LoRA) that are not merged",
        title="Inference computes the LoRA adapters next to each layer",
        shows="`forward` of peft/tuners/lora/layer.py launches more than its base layer does, in "
        "each step, and nothing runs a backward pass.",
        not_when="The program trains the adapters, or changes them from batch to batch.",
        fixes=(
            Instead(
                "Merge the adapters into the weights once, before the loop: `model = "
                "model.merge_and_unload()`. To train them further, or to use others afterwards, "
                "`model.merge_adapter()` and later `model.unmerge_adapter()`.",
                short="Merge the adapters once, before the loop: `model = "
                "model.merge_and_unload()`.",
            ),
        ),
        source="PEFT documentation: merge LoRA weights into the base model",
        url="https://huggingface.co/docs/peft/developer_guides/lora"
        "#merge-lora-weights-into-the-base-model",
        rules=("TL409", "TL301"),
        edit="remove:{place}",
        frames=r"peft/tuners/lora/layer\.py\(\d+\): forward$",
        occurs=every(_next_to_base_layer, launches(1), recurs),
    ),
)
