"""Micro-batches that are too small for the host."""

from __future__ import annotations

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import NO_EVENTS, chosen, counts_inside, named, recurring
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.frames import is_backward, is_module_call, is_optimizer_step
from tracelab.model.graph import Graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import Nesting
from tracelab.model.program.call_sites import python_frames
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, Category

_FEWEST = 3  # backward passes before an optimizer's step: two may be of two losses
_ALIKE = 1.5  # how many times as many launches one may have: the first accumulates nothing
_SCHEDULES = "torch/distributed/pipelining/"  # of pipelines, whose micro-batches fill it


def _small_micro_batches(graph: Graph, _events: Int64Array) -> Int64Array:
    """Modules, backward passes and what else is called for micro-batches that are alike.

    Those are several backward passes with about as many launches each before an optimizer's step.
    """
    timeline = graph.host.timeline
    trace = timeline.trace
    passes = named(trace, is_backward, Category.PYTHON)
    passes = passes[np.argsort(trace.start_ns[passes], kind="stable")]
    steps = named(trace, is_optimizer_step, Category.ANNOTATION, Category.OPERATOR)
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
    of_module = np.searchsorted(steps_ns, trace.start_ns[outermost])
    events = [NO_EVENTS]
    for number in accumulated:
        back, forward = passes[batch == number], outermost[of_module == number]
        called = _called_by_loop(timeline, forward, back)
        events += [back, forward, called[counts_inside(trace, called, steps) == 0]]
    return recurring(graph, np.unique(np.concatenate(events)))


def _called_by_loop(timeline: Timeline, modules: Int64Array, passes: Int64Array) -> Int64Array:
    """What the function around some backward passes calls, from the first module to the last pass.

    Args:
        timeline: the activities.
        modules: int64[k], event ids.
        passes: int64[k], event ids by start, at least one.
    """
    trace, frames = timeline.trace, python_frames(timeline)
    end_ns = trace.end_ns[passes[-1]]
    loop = frames.innermost(passes[:1])[0]
    while loop != ABSENT and frames.end_ns[loop] < end_ns:
        loop = frames.parent_index[loop]
    if loop == ABSENT or not len(modules):
        return NO_EVENTS
    called = frames.event_id[frames.children(np.array([loop]))]
    is_meanwhile = trace.end_ns[called] > trace.start_ns[modules].min()
    return chosen(called, is_meanwhile & (trace.start_ns[called] < end_ns))


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
                "If memory allows, make one batch of the micro-batches of a step, which the CPU "
                "launches once: the predicted saving is of that. Else make half as many, twice as "
                "large, which saves the least that is predicted.",
                short="Make one batch of the micro-batches if memory allows, else half as many.",
            ),
        ),
        source="PyTorch documentation: gradient accumulation",
        url="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        rules=("TL301",),
        edit="one-batch:{place}",
        occurs=_small_micro_batches,
        is_general=True,
    ),
)
