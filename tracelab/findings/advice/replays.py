"""Replays: what steps that run CUDA graphs launch, by graphs and one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.intervals import Int64Array
from tracelab.findings.candidates import grouped
from tracelab.findings.compiled_regions import compiled_regions
from tracelab.findings.context import Context
from tracelab.findings.remedy import is_available
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.frames import is_tensor_operator
from tracelab.model.kernel_kinds import copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.phases import Phase
from tracelab.model.trace import ABSENT
from tracelab.model.wording import describe

# The place of most does not need all.
_MAX_LOOKED_UP_LAUNCHES = 20_000
_COPIES = frozenset(("aten::_foreach_copy_", "aten::copy_"))
_MARKS_SINCE = "2.1"  # `mark_static_address`


@dataclass(frozen=True, slots=True, repr=False)
class Launched(OneLine):
    """The launches of the steady steps together, or of a window without steps.

    Example: ``Launched(replays=20, eager=60, eager_at="`aten::add` in decode (serve.py:9)",
    steps=5, has_optimizer=False, copies_inputs=False)``.

    Attributes:
        replays: calls that replay a graph.
        eager: other calls that a graph could hold: none that waits or copies to the host.
        eager_at: the place of most of those, in words; "" without any.
        steps: the number of steady steps; 0 if the file does not say what repeats.
        has_optimizer: True if an optimizer is among those launches.
        copies_inputs: True if all of them are copies that `torch.compile` makes into the inputs of
            its graphs, and its version can do without.
    """

    replays: int
    eager: int
    eager_at: str
    steps: int
    has_optimizer: bool = False
    copies_inputs: bool = False

    @property
    def replays_per_step(self) -> int:
        """Graphs that a step replays, or the window; 0 if most steps replay none."""
        return round(self.replays / max(1, self.steps))

    @property
    def eager_per_step(self) -> int:
        """Launches of a step outside graphs; or of the window."""
        return round(self.eager / max(1, self.steps))


def find_launched(context: Context) -> Launched | None:
    """Find what is replayed, and what is launched next to it; None if most steps replay nothing."""
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
    launched = Launched(
        replays=int(is_replay.sum()),
        eager=len(eager_id),
        eager_at=_top_place(context, eager_id[:_MAX_LOOKED_UP_LAUNCHES]),
        steps=len(steps),
        has_optimizer=bool((context.phases.phases_of(eager_id) == Phase.OPTIMIZER).any()),
        copies_inputs=_copy_inputs(context, eager_id),
    )
    return launched if launched.replays_per_step else None


def _copy_inputs(context: Context, launch_id: Int64Array) -> bool:
    """Return True if launches (int64[k], event ids) all are copies that begin compiled code."""
    operators = context.timeline.operators
    inside = operators.innermost(launch_id)
    is_copy = np.append(operators.have_name(_COPIES.__contains__), False)[inside]
    is_copy &= compiled_regions(context.trace).innermost(launch_id) != ABSENT
    can_mark = context.torch is None or is_available(_MARKS_SINCE, context.torch)
    return can_mark and bool(len(launch_id)) and bool(is_copy.all())


def _top_place(context: Context, launch_id: Int64Array) -> str:
    """Name the place of most of some launches (int64[k], event ids); "" without any.

    In what `torch.compile` launches that is the operator: the program calls no more than the model
    there.
    """
    in_compiled = compiled_regions(context.trace).innermost(launch_id) != ABSENT
    names = []
    for event_id, site, is_compiled in zip(
        launch_id.tolist(), context.call_sites(launch_id), in_compiled.tolist(), strict=True
    ):
        is_inside_model = is_compiled and site.operator and is_tensor_operator(site.operator)
        place = replace(site, call=None, line=None) if is_inside_model else site
        names.append(describe(place, context.call_name(event_id)))
    places = grouped(names)
    return max(places, key=lambda place: len(places[place]), default="")
