"""What to do about late launches in steps that are replays of CUDA graphs already.

Each sentence is about what the trace shows: launches beside the graphs, several graphs in a step,
or one graph that the GPU is done with before the next is launched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tracelab.findings.candidates import grouped
from tracelab.findings.context import Context
from tracelab.intervals import Int64Array
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.kernel_kinds import copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.trace import ABSENT
from tracelab.model.wording import describe

GRAPH = "graph"  # the edit
_MOST_LOOKED_UP = 20_000  # launches: the place of most does not need all


class Launched(NamedTuple):
    """What a step launches: the mean of the steady steps, or the sum of a window without steps.

    Example: ``Launched(replays=4, eager=12, eager_at="`aten::add` in decode (serve.py:9)",
    has_steps=True)``.

    Attributes:
        replays: calls that replay a graph.
        eager: other calls, of what a graph could hold: not what waits, nor what copies to the host.
        eager_at: the place of most of those, in words; "" without any.
        has_steps: whether the file has steady steps; else nobody knows what repeats.
    """

    replays: int
    eager: int
    eager_at: str
    has_steps: bool


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
    return Launched(
        replays=round(int(is_replay.sum()) / count),
        eager=round(len(eager_id) / count),
        eager_at=_top_place(context, eager_id[:_MOST_LOOKED_UP]),
        has_steps=bool(steps),
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
    whole = "A step" if launched.has_steps else "The trace"
    all_of_it = "all of it" if launched.has_steps else "what always follows one another"
    alone = "once more by itself" if eager == 1 else f"{eager:,} times more, one by one"
    beside = f"launches {alone}, most of all at {launched.eager_at}"
    early = "the GPU is done with one before the next is launched"
    if eager and replays > 1:
        what = f"{whole} replays {replays:,} graphs and {beside}. Capture {all_of_it} as one graph."
    elif eager:
        what = (
            f"{whole} replays a graph and {beside}. Capture that in the graph, too: copies into "
            "its inputs as its first nodes, what uses its results as its last."
        )
    elif replays > 1:
        what = f"{whole} replays {replays:,} graphs, and {early}. Capture {all_of_it} as one graph."
    else:
        what = f"{whole} is one replay already, and {early}. Capture several steps in one graph."
    first = f"No graph goes beyond a call that waits for the GPU: first change {places}."
    has_edit = eager > 0 or (replays > 1 and launched.has_steps)
    return [what, first if places else ""], GRAPH if has_edit else None


def _top_place(context: Context, launch_id: Int64Array) -> str:
    """Where most of some launches are, in words; "" without any."""
    names = map(context.call_name, launch_id.tolist())
    places = grouped(map(describe, context.call_sites(launch_id), names))
    return max(places, key=lambda place: len(places[place]), default="")
