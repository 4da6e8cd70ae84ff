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

from tracelab.findings.candidates import grouped
from tracelab.findings.compiled_regions import compiled_regions
from tracelab.findings.context import Context
from tracelab.findings.remedy import is_available
from tracelab.intervals import Int64Array
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.frames import is_engine_operator, is_tensor_operator
from tracelab.model.kernel_kinds import copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT
from tracelab.model.wording import describe

GRAPH = "graph"  # the edit
CAPTURABLE = "Adam and its kin need `capturable=True` to be in it."
_MOST_LOOKED_UP = 20_000  # launches: the place of most does not need all
_COPIES = frozenset(("aten::_foreach_copy_", "aten::copy_"))
_MARKS_SINCE = "2.1"  # `mark_static_address`
_MOST = 0.5  # of the launches: the phase of most of them is named
_PHASES: Mapping[Phase, str] = MappingProxyType(
    {Phase.BACKWARD: "the backward pass", Phase.OPTIMIZER: "the optimizer"}
)


class Launched(NamedTuple):
    """What a step launches: the mean of the steady steps, or the sum of a window without steps.

    Example: ``Launched(replays=4, eager=12, eager_at="at `aten::add` in decode (serve.py:9)",
    has_steps=True, has_optimizer=False)``.

    Attributes:
        replays: calls that replay a graph.
        eager: other calls, of what a graph could hold: not what waits, nor what copies to the host.
        eager_at: the place of most of those, in words; "" without any.
        has_steps: whether the file has steady steps; else nobody knows what repeats.
        has_optimizer: whether an optimizer is among those launches.
        copies_inputs: whether all of them are copies that `torch.compile` makes into the inputs of
            its graphs, and its version can do without.
    """

    replays: int
    eager: int
    eager_at: str
    has_steps: bool
    has_optimizer: bool = False
    copies_inputs: bool = False

    @property
    def what(self) -> str:
        """What is replayed, and what is launched beside it, as the beginning of a sentence."""
        whole = "A step" if self.has_steps else "The trace"
        graphs = "a graph" if self.replays == 1 else f"{self.replays:,} graphs"
        if not self.eager:
            return f"{whole} replays {graphs}"
        alone = f"{self.eager:,} times more, one by one, most of all"
        return (
            f"{whole} replays {graphs} and launches "
            f"{'once more by itself,' if self.eager == 1 else alone} {self.eager_at}"
        )


def launched_by_step(context: Context) -> Launched:
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
    count = max(1, len(steps))
    phase = context.phases.of_events(eager_id)
    return Launched(
        replays=round(int(is_replay.sum()) / count),
        eager=round(len(eager_id) / count),
        eager_at=_top_place(context, eager_id[:_MOST_LOOKED_UP], phase[:_MOST_LOOKED_UP]),
        has_steps=bool(steps),
        has_optimizer=bool((phase == Phase.OPTIMIZER).any()),
        copies_inputs=_copy_inputs(context, eager_id),
    )


def advise_on_replays(launched: Launched, places: str) -> tuple[list[str], str | None]:
    """How steps that are mostly replays can be launched in less time.

    Args:
        launched: what a step launches.
        places: where the host waits for the GPU within a step, in words; "" where it does not.

    Returns:
        sentences, and the edit that stands for them.
    """
    replays, eager = launched.replays, launched.eager
    all_of_it = "all of it" if launched.has_steps else "what always follows one another"
    early = "the GPU is done with one before the next is launched"
    if eager and replays > 1:
        what = f"{launched.what}. Capture {all_of_it} as one graph."
    elif eager and launched.copies_inputs:
        what = (
            f"{launched.what}, which copies its inputs. Keep them at one address, fill them in "
            "place, and mark them: `torch._dynamo.mark_static_address(x)`."
        )
    elif eager:
        what = (
            f"{launched.what}. Capture that in the graph, too: copies into its inputs as its first "
            "nodes, what uses its results as its last."
        )
    elif replays > 1:
        what = f"{launched.what}, and {early}. Capture {all_of_it} as one graph."
    else:
        whole = "A step" if launched.has_steps else "The trace"
        what = f"{whole} is one replay already, and {early}. Capture several steps in one graph."
    if launched.has_optimizer:
        what = f"{what} `torch.cuda.graph` can hold the optimizer, too. {CAPTURABLE}"
    first = f"No graph goes beyond a call that waits for the GPU: first change {places}."
    has_edit = eager > 0 or (replays > 1 and launched.has_steps)
    return [what, first if places else ""], GRAPH if has_edit else None


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
