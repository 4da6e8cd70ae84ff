"""What to do about late launches in steps that are replays of CUDA graphs already.

Each sentence is about what the trace shows: launches beside the graphs, several graphs in a step,
or one graph that the GPU is done with before the next is launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import grouped
from tracelab.findings.compiled_regions import compiled_regions
from tracelab.findings.context import Context
from tracelab.findings.remedy import is_available
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.frames import is_engine_operator, is_tensor_operator
from tracelab.model.kernel_kinds import copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT
from tracelab.model.wording import describe

GRAPH = "graph"  # the edit
CAPTURABLE = "Pass `capturable=True` to Adam and similar optimizers, to capture them, too."
_MOST_LOOKED_UP = 20_000  # launches: the place of most does not need all
_COPIES = frozenset(("aten::_foreach_copy_", "aten::copy_"))
_MARKS_SINCE = "2.1"  # `mark_static_address`
_MOST = 0.5  # of the launches: the phase of most of them is named
_PHASES: Mapping[Phase, str] = MappingProxyType(
    {Phase.BACKWARD: "the backward pass", Phase.OPTIMIZER: "the optimizer"}
)


class Launched(NamedTuple):
    """What the steady steps launch together, or a window without steps.

    Example: ``Launched(replays=20, eager=60, eager_at="at `aten::add` in decode (serve.py:9)",
    steps=5, replaying_steps=5, has_optimizer=False)``.

    Attributes:
        replays: calls that replay a graph.
        eager: other calls, of what a graph could hold: not what waits, nor what copies to the host.
        eager_at: the place of most of those, in words; "" without any.
        steps: how many steady steps the file has; without any, nobody knows what repeats.
        replaying_steps: how many of them replay a graph.
        has_optimizer: whether an optimizer is among those launches.
        copies_inputs: whether all of them are copies that `torch.compile` makes into the inputs of
            its graphs, and its version can do without.
    """

    replays: int
    eager: int
    eager_at: str
    steps: int
    replaying_steps: int
    has_optimizer: bool = False
    copies_inputs: bool = False

    @property
    def is_in_few_steps(self) -> bool:
        """Whether most steps replay nothing, so that replays are no part of a usual one."""
        return 2 * self.replaying_steps <= self.steps and self.steps > 0

    @property
    def replays_of_step(self) -> int:
        """How many graphs a step replays, of those that replay any; or the window."""
        return round(self.replays / max(1, self.replaying_steps))

    @property
    def eager_of_step(self) -> int:
        """How often else a step launches; or the window."""
        return round(self.eager / max(1, self.steps))

    @property
    def whole(self) -> str:
        """What the numbers are of, as the beginning of a sentence."""
        return "A step" if self.steps else "The trace"

    @property
    def what(self) -> str:
        """What is replayed, and what is launched beside it, as the beginning of a sentence."""
        graphs = "a graph" if self.replays_of_step == 1 else f"{self.replays_of_step:,} graphs"
        replays = f"{self.whole} replays {graphs}"
        if self.is_in_few_steps:
            replay = "replays" if self.replaying_steps == 1 else "replay"
            replays = f"{self.replaying_steps:,} of {self.steps:,} steps {replay} {graphs}"
        if not self.eager_of_step:
            return replays
        alone = f"{self.eager_of_step:,} times more, one by one, mostly"
        return (
            f"{replays}{', and a step' if self.is_in_few_steps else ' and'} launches "
            f"{'once more by itself,' if self.eager_of_step == 1 else alone} {self.eager_at}"
        )


def find_launched(context: Context) -> Launched:
    """What is replayed, and what is launched beside it."""
    timeline, trace = context.timeline, context.trace
    is_chosen = timeline.launch_id != ABSENT
    steps = [] if timeline.steady is None else list(timeline.steady.indices)
    if steps:
        is_chosen = is_chosen & np.isin(timeline.step_index, steps)
    else:
        is_chosen = is_chosen & context.is_inside(timeline.start_ns, timeline.end_ns)
    launch_id = np.unique(timeline.launch_id[is_chosen])
    is_replay = match_names(trace, launch_id, is_graph_launch)
    to_host = is_chosen & match_names(
        trace, timeline.event_id, lambda name: copy_direction(name) == "d2h"
    )
    waits = np.union1d(context.blocking_calls.calls.event_id, timeline.launch_id[to_host])
    eager_id = launch_id[~is_replay & ~np.isin(launch_id, waits)]
    of_replay = is_chosen & np.isin(timeline.launch_id, launch_id[is_replay])
    phase = context.phases.of_events(eager_id)
    return Launched(
        replays=int(is_replay.sum()),
        eager=len(eager_id),
        eager_at=_top_place(context, eager_id[:_MOST_LOOKED_UP], phase[:_MOST_LOOKED_UP]),
        steps=len(steps),
        replaying_steps=len(np.unique(timeline.step_index[of_replay])) if steps else 0,
        has_optimizer=bool((phase == Phase.OPTIMIZER).any()),
        copies_inputs=_copy_inputs(context, eager_id),
    )


class ReplayAdvice(NamedTuple):
    """What steps that are mostly replays show, and what to do about it.

    Attributes:
        shows: a sentence.
        step: what to do, an imperative sentence.
        edit: the edit that stands for it; None where nobody knows what it saves.
    """

    shows: str
    step: str
    edit: str | None


def advise_on_replays(launched: Launched) -> ReplayAdvice:
    """How steps that are mostly replays can be launched in less time.

    Args:
        launched: what the steps launch.
    """
    replays, eager = launched.replays_of_step, launched.eager_of_step
    is_few = launched.is_in_few_steps
    is_one = not (eager or replays > 1 or is_few)
    what = f"{launched.whole} is one replay already" if is_one else launched.what
    shows = f"{what}." if eager else f"{what}, and the GPU is done with one before the next."
    is_usual = launched.steps > 0 and not is_few
    is_beside_one = eager > 0 and replays <= 1 and not is_few
    if is_beside_one and launched.copies_inputs:
        step = (
            "Keep the inputs of the graph at one address, fill them in place, and mark them: "
            "`torch._dynamo.mark_static_address(x)`."
        )
    elif is_beside_one:
        step = (
            "Capture the other launches in the graph, too: copies into its inputs as its first "
            "nodes, uses of its results as its last."
        )
    elif replays > 1 or eager:
        all_of_it = "all of it" if is_usual else "replays that always follow one another"
        step = f"Capture {all_of_it} as one graph: `with torch.cuda.graph(graph):`."
    else:
        several = "replays" if is_few else "steps"
        step = f"Capture several {several} in one graph: `with torch.cuda.graph(graph):`."
    has_edit = eager > 0 or (replays > 1 and is_usual)
    return ReplayAdvice(shows, step, GRAPH if has_edit else None)


def _copy_inputs(context: Context, launch_id: Int64Array) -> bool:
    """Whether some launches (int64[k], event ids) are all copies that compiled code begins with."""
    operators = context.timeline.operators
    inside = operators.innermost(launch_id)
    is_copy = np.append(operators.have_name(_COPIES.__contains__), False)[inside]
    is_copy &= compiled_regions(context.trace).innermost(launch_id) != ABSENT
    can_mark = context.torch is None or is_available(_MARKS_SINCE, context.torch)
    return can_mark and bool(len(launch_id)) and bool(is_copy.all())


def _top_place(context: Context, launch_id: Int64Array, phase: NDArray[np.int8]) -> str:
    """Where most of some launches are, in words; "" without any.

    Args:
        context: the window.
        launch_id: int64[k], event ids.
        phase: int8[k], the `Phase` of each.
    """
    if not len(launch_id):
        return ""
    for which, name in _PHASES.items():
        if (phase == which).mean() > _MOST:
            return f"in {name}, at {_top_of(context, launch_id[phase == which])}"
    return f"at {_top_of(context, launch_id)}"


def _top_of(context: Context, launch_id: Int64Array) -> str:
    """The place of most of some launches, in words.

    What autograd does by itself is called as its nodes are; what `torch.compile` launches, by the
    operator, as the program calls no more than the model there.
    """
    trace, operators = context.trace, context.timeline.operators
    sites = list(context.call_sites(launch_id))
    inside = operators.innermost(launch_id)
    node = operators.around(inside, operators.have_name(is_engine_operator))
    in_compiled = compiled_regions(trace).innermost(launch_id) != ABSENT
    names = []
    for index, event_id in enumerate(launch_id.tolist()):
        site = sites[index]
        if site.function is None and node[index] != ABSENT:
            name = trace.name_of(int(operators.event_id[node[index]]))
            names.append(f"`{name.rpartition(':')[2].strip()}`")
            continue
        if in_compiled[index] and site.operator and is_tensor_operator(site.operator):
            site = replace(site, call=None, line=None)
        names.append(describe(site, context.call_name(event_id)))
    places = grouped(names)
    return max(places, key=lambda place: len(places[place]))
