"""Micro-batches that are too small for the host."""

from __future__ import annotations

import re

import numpy as np

from tracelab.findings.remedies.guards import NO_EVENTS, named, recurring
from tracelab.findings.remedy import Instead, Remedy
from tracelab.intervals import Int64Array
from tracelab.model.frames import is_backward, is_module_call
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.trace import ABSENT, Category

_FEWEST = 3  # backward passes before an optimizer's step: two may be of two losses
_ALIKE = 1.5  # how many times as many launches one may have: the first accumulates nothing
_STEPS = re.compile(r"^Optimizer\.step#")
_SCHEDULES = "torch/distributed/pipelining/"  # of pipelines, whose micro-batches fill it


def _small_micro_batches(graph: Graph, _events: Int64Array) -> Int64Array:
    """Modules and backward passes of micro-batches that are alike.

    Those are several backward passes with about as many launches each before an optimizer's step.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    passes = named(trace, is_backward, Category.PYTHON)
    steps = named(trace, _STEPS.search, Category.ANNOTATION, Category.OPERATOR)
    if not len(steps) or any(_SCHEDULES in name for name in trace.strings):
        return NO_EVENTS
    modules = Nesting(trace, named(trace, is_module_call, Category.PYTHON))
    outermost = modules.event_id[modules.parent_index == ABSENT]
    steps_ns = np.sort(trace.start_ns[steps])
    launched = timeline.launch_id[(timeline.kind == Kind.COMPUTE) & (timeline.launch_id != ABSENT)]
    launched_ns = np.sort(trace.start_ns[launched])
    first, end = (
        np.searchsorted(launched_ns, column[passes]) for column in (trace.start_ns, trace.end_ns)
    )
    batch = np.searchsorted(steps_ns, trace.start_ns[passes])
    accumulated = [
        number
        for number, index in groups_of(batch)
        if len(index) >= _FEWEST
        and (end - first)[index].max() <= _ALIKE * (end - first)[index].min()
    ]
    events = np.concatenate((passes, outermost))
    is_accumulated = np.isin(np.searchsorted(steps_ns, trace.start_ns[events]), accumulated)
    return recurring(graph, events[is_accumulated])


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="small-micro-batches",
        name="gradients that are accumulated over small micro-batches",
        title="Gradients accumulate over micro-batches too small for the CPU",
        shows="At least three backward passes with about as many launches each before each "
        "`Optimizer.step#`, while the GPU waits for their launches.",
        not_when="Memory does not allow larger ones; a trace does not say how much is used.",
        fixes=(
            Instead(
                "If memory allows, make half as many micro-batches, twice as large: the CPU "
                "launches half as much for the same batch. The predicted saving is of that; "
                "fewer still save more.",
                short="Make half as many micro-batches, twice as large, if memory allows.",
            ),
        ),
        source="PyTorch documentation: gradient accumulation",
        url="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        rules=("TL301",),
        edit="host:{place}=0.5",
        occurs=_small_micro_batches,
        is_general=True,
    ),
)
